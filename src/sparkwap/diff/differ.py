"""Compares two states of a lake: metadata by Python, rows by Spark SQL."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.private_catalog import PrivateCatalog, Sql
from sparkwap.catalog.sparksql import partitioning
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.core.names import folded
from sparkwap.core.personal import Hidden
from sparkwap.core.sqltext import quote
from sparkwap.diff import plan as planning
from sparkwap.diff import states
from sparkwap.diff.counting import RowCounter
from sparkwap.diff.model import AddedColumn, How, RowSample, RunDiff, TableDiff
from sparkwap.diff.session import error_class, on_branch
from sparkwap.diff.sources import SourceFinder, Sources
from sparkwap.diff.sql import null_counts, seeds_of, text_sql
from sparkwap.diff.states import TableVersion
from sparkwap.publish.lake import Lake

Pair = tuple[TableVersion | None, TableVersion | None, tuple[str, ...]]
"""The old state and the new state of a table, with notes."""


class Differ:
    """Compares branches of a lake.

    Args:
        sql: Runs a statement in one Spark session, always the same, and returns its rows.
        keys: The key columns of tables and views, by the names that readers use.
        sample: The number of sample rows of each kind of a table; 0 for none.
    """

    def __init__(
        self,
        lake: Lake,
        sql: Sql,
        *,
        keys: Mapping[Identifier, Sequence[str]] | None = None,
        hidden: Hidden | None = None,
        sample: int = 0,
    ) -> None:
        self._lake = lake
        self._sql = sql
        self._keys = {folded(name): tuple(key) for name, key in (keys or {}).items()}
        self._hidden = hidden or Hidden()
        self._sample = sample
        private = PrivateCatalog(sql, lake.name)
        self._sources = SourceFinder(lake, private)
        self._counter = RowCounter(sql, private, lake.warehouse, sample)

    def compare(self, branch: str, against: str = md.MAIN, tables: Collection[str] = ()) -> RunDiff:
        """Compare the tables and views of a branch.

        Args:
            branch: The new state: an audit branch, a tag, or ``main``.
            against: The old state: ``main`` as it is now, another branch or tag, or ``base``: the
                state of the tables when the branch was opened. For a table that a branch does not
                have, its state on ``main`` is compared, as sessions on that branch read ``main``.
            tables: Names of the tables to compare, with or without the schema; empty for all.

        Raises:
            ConfigError: There is no such branch or table.
        """
        pairs = self._pairs(branch, against)
        chosen = _chosen(pairs, tables)
        found = [self._table(name, *pairs[name]) for name in sorted(chosen)]
        return RunDiff(branch, against, datetime.now(UTC), tuple(found))

    def _pairs(self, branch: str, against: str) -> dict[Identifier, Pair]:
        """Return the two states of each table that the branch or ``against`` has."""
        new = states.states_of(self._lake, branch)
        old = {} if against == states.BASE else states.states_of(self._lake, against)
        now = states.published(self._lake, {*new, *old})
        pairs: dict[Identifier, Pair] = {}
        for name in {*new, *old}:
            after = new.get(name, now.get(name))
            before = old.get(name, now.get(name))
            moved = False
            if against == states.BASE and after is not None:
                before = states.base_of(self._lake, after, branch, now.get(name))
            elif against == md.MAIN and after is not None:
                moved = states.has_moved(after, branch, now.get(name))
            notes = ("main has moved since the branch was opened",) if moved else ()
            pairs[name] = (before, after, notes)
        return pairs

    def _table(
        self,
        name: Identifier,
        before: TableVersion | None,
        after: TableVersion | None,
        notes: tuple[str, ...],
    ) -> TableDiff:
        started = time.monotonic()
        present = after or before
        assert present is not None
        read = Sources()
        try:
            if before is not None and after is not None:
                found = self._both(name, before, after, read)
            else:
                found = self._one(name, present, is_new=after is not None)
        except Exception as error:
            problem = error if isinstance(error, SparkwapError) else error_class(error)
            found = TableDiff(name, present.kind, "failed", notes=(f"not compared: {problem}",))
        finally:
            for part in read.parts:
                part.remove()
            for folder in read.folders:
                self._lake.store.files.delete_tree(folder)
        return replace(found, notes=(*found.notes, *notes), seconds=time.monotonic() - started)

    def _one(self, name: Identifier, state: TableVersion, *, is_new: bool) -> TableDiff:
        """Return the result for a table or view that only one of the two states has."""
        rows = state.rows()
        columns = [column.name for column in state.columns]
        hidden = self._hidden.of(name, columns)
        samples: list[RowSample] = []
        how: How = "metadata"
        if rows is None or (rows and self._sample):
            with on_branch(self._sql, state.branch if state.kind == "view" else None):
                relation = self._sources.relation(state)
                if rows is None:
                    how = "whole"
                    rows = int(self._sql(null_counts(relation, ()))[0][0])
                if self._sample and rows:
                    shown = [c for c in state.columns if c.name not in hidden]
                    samples = self._first_rows(relation, shown, is_new=is_new)
        return TableDiff(
            name,
            state.kind,
            "new" if is_new else "dropped",
            added=rows if is_new else 0,
            removed=0 if is_new else rows,
            hidden=hidden,
            samples=tuple(samples),
            rows_before=None if is_new else rows,
            rows_after=rows if is_new else None,
            how=how,
        )

    def _first_rows(
        self, relation: str, shown: Sequence[planning.Column], *, is_new: bool
    ) -> list[RowSample]:
        texts = [text_sql(quote(c.name), c.type) for c in shown]
        if not texts:
            return []
        rows = self._sql(f"select {', '.join(texts)} from {relation} limit {self._sample}")
        found = [dict(zip([c.name for c in shown], row, strict=True)) for row in rows]
        if is_new:
            return [RowSample("added", 1, after=values) for values in found]
        return [RowSample("removed", 1, before=values) for values in found]

    def _both(
        self, name: Identifier, before: TableVersion, after: TableVersion, read: Sources
    ) -> TableDiff:
        same_table = before.kind == after.kind == "table" and md.identity(
            before.document
        ) == md.identity(after.document)
        columns = planning.match_columns(before.columns, after.columns, same_table=same_table)
        wanted = self._keys.get(folded(name), ())
        key = planning.key_in(wanted, columns)
        names = [c.name for c in columns.compared]
        found = TableDiff(
            name,
            after.kind,
            "unchanged",
            schema=columns.change,
            key=key,
            hidden=self._hidden.of(name, [*names, *(c.name for c in columns.change.added)]),
            rows_before=before.rows(),
            rows_after=after.rows(),
            notes=(*_remarks(before, after), *columns.notes),
        )
        if columns.compared:
            self._sources.find(before, after, columns, read)
        else:
            found = replace(found, notes=(*found.notes, "no column in common: rows not compared"))
        if read.sources:
            found = self._counter.count(found, columns, read, _seeds(before, after))
        if found.rows and wanted and not key:
            note = f"the key ({', '.join(wanted)}) is not used: not all of it are compared columns"
            found = replace(found, notes=(*found.notes, note))
        if columns.change.added:
            found = self._with_null_counts(found, after)
        differs = bool(found.rows or columns.change or before.kind != after.kind)
        return replace(found, change="changed" if differs else "unchanged", how=read.how)

    def _with_null_counts(self, found: TableDiff, after: TableVersion) -> TableDiff:
        """Return the result with the numbers of NULLs in the added columns."""
        names = [c.name for c in found.schema.added]
        if after.kind == "table" and after.snapshot is None:
            rows, counts = 0, [0] * len(names)
        else:
            with on_branch(self._sql, after.branch if after.kind == "view" else None):
                query = null_counts(self._sources.relation(after), names)
                rows, *counts = (int(n) for n in self._sql(query)[0])
        added = tuple(
            AddedColumn(c.name, c.type, rows - values, values)
            for c, values in zip(found.schema.added, counts, strict=True)
        )
        return replace(found, schema=replace(found.schema, added=added))


def _chosen(pairs: Collection[Identifier], tables: Collection[str]) -> set[Identifier]:
    """Return the tables with these names; all if there are no names."""
    if not tables:
        return set(pairs)
    found: set[Identifier] = set()
    for text in tables:
        named = {n for n in pairs if text.lower() in (n[1].lower(), ".".join(n).lower())}
        if not named:
            known = ", ".join(sorted(".".join(name) for name in pairs)) or "none"
            raise ConfigError(
                f"The branch has no table or view {text!r}, so nothing was compared. It has: "
                f"{known}."
            )
        found |= named
    return found


def _remarks(before: TableVersion, after: TableVersion) -> tuple[str, ...]:
    if before.kind != after.kind:
        return (f"was a {before.kind}, is a {after.kind}",)
    if before.kind == "view":
        return ()
    old, new = (", ".join(partitioning(s.document)) or "none" for s in (before, after))
    return () if old == new else (f"partitioning was {old}, is {new}",)


def _seeds(before: TableVersion, after: TableVersion) -> tuple[int, int]:
    return seeds_of(
        *((md.identity(s.document), s.snapshot or s.row.location) for s in (before, after))
    )
