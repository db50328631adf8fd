"""A comparison of two states of a lake, carried out: metadata by Python, rows by Spark SQL."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, get_args

from sparkwap.catalog import content_equality
from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.sparksql import partitioning
from sparkwap.core.errors import CatalogError, ConfigError, SparkwapError
from sparkwap.core.names import diff_folder
from sparkwap.core.personal import Hidden
from sparkwap.core.sqltext import literal, quote
from sparkwap.diff import plan as planning
from sparkwap.diff import states
from sparkwap.diff.files import Part, Snapshot, Unreadable, count_of
from sparkwap.diff.model import AddedColumn, How, RowChange, RowSample, RunDiff, TableDiff, Values
from sparkwap.diff.plan import Columns, FilePlan
from sparkwap.diff.private import PrivateCatalog, Sql
from sparkwap.diff.sql import DiffStatements, Source, null_counts, seeds_of, text_sql
from sparkwap.diff.states import TableVersion
from sparkwap.publish.lake import Lake

_WAP_BRANCH = "spark.wap.branch"
_PARTITIONS = "spark.sql.shuffle.partitions"
_ERROR_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_FETCHED = 100  # hashes of each kind that samples are chosen from, where there is no key
_AT_ONCE = 2_000_000  # rows up to which it is cheaper to shuffle values than to scan twice
_PER_PARTITION = 1_000_000  # rows that a task of the shuffle groups
_FEW = 1_000_000  # hashes that each worker can hold


@dataclass
class Work:
    """What is needed to read the rows of one table, and has to be cleared away after it.

    Attributes:
        sources: Where its rows are.
        how: What is read of them.
        parts: Files that were written for it.
        folders: Folders of tables that were written for it.
    """

    sources: list[Source] = field(default_factory=list)
    how: How = "metadata"
    parts: list[Part] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int | None:
        """How many rows the sources have at most; None where nobody knows."""
        counts = [source.rows for source in self.sources]
        return None if None in counts else sum(n for n in counts if n is not None)

    @property
    def at_once(self) -> bool:
        """Whether they are so few that one scan is cheaper, in which all values are shuffled."""
        return self.rows is not None and self.rows <= _AT_ONCE

    @property
    def by_branch(self) -> bool:
        """Whether the session has to be on one branch or another to see the rows."""
        return any(source.branch is not None for source in self.sources)


class Differ:
    """Compares branches of a lake.

    Args:
        lake: The lake.
        sql: Runs a statement in one Spark session, always the same, and returns its rows.
        keys: The key columns of tables and views, by the names that readers use.
        hidden: Which columns' values are not shown.
        sample: How many rows of each kind to show of a table; 0 for none.
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
        self._keys = {_lower(name): tuple(key) for name, key in (keys or {}).items()}
        self._hidden = hidden or Hidden()
        self._sample = sample
        self._private = PrivateCatalog(sql, lake.name)

    def compare(self, branch: str, against: str = md.MAIN, tables: Collection[str] = ()) -> RunDiff:
        """Compare the tables and views of a branch.

        Args:
            branch: The new state: an audit branch, a tag, or ``main``.
            against: The old state: ``main`` as it is now, another branch or tag, or ``base``: what
                the tables were when the branch was opened. A table that a branch does not have is
                what it is on ``main``, as it is for sessions on that branch.
            tables: Names, with or without the schema, to compare no others.

        Raises:
            ConfigError: There is no such branch or table.
        """
        pairs = self._pairs(branch, against)
        chosen = _chosen(pairs, tables)
        found = [self._table(name, *pairs[name]) for name in sorted(chosen)]
        return RunDiff(branch, against, datetime.now(UTC), tuple(found))

    def _pairs(
        self, branch: str, against: str
    ) -> dict[Identifier, tuple[TableVersion | None, TableVersion | None, tuple[str, ...]]]:
        """Old state, new state and notes of each table that one of the two has of its own."""
        new = states.states_of(self._lake, branch)
        old = {} if against == states.BASE else states.states_of(self._lake, against)
        now = states.published(self._lake, {*new, *old})
        pairs: dict[
            Identifier, tuple[TableVersion | None, TableVersion | None, tuple[str, ...]]
        ] = {}
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

    # -- one table -------------------------------------------------------------------------------

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
        work = Work()
        try:
            if before is not None and after is not None:
                found = self._both(name, before, after, work)
            else:
                found = self._one(name, present, is_new=after is not None)
        except Exception as error:
            problem = error if isinstance(error, SparkwapError) else _class_of(error)
            found = TableDiff(name, present.kind, "failed", notes=(f"not compared: {problem}",))
        finally:
            for part in work.parts:
                part.remove()
            for folder in work.folders:
                self._lake.store.files.delete_tree(folder)
        return replace(found, notes=(*found.notes, *notes), seconds=time.monotonic() - started)

    def _one(self, name: Identifier, state: TableVersion, *, is_new: bool) -> TableDiff:
        """A table or view that only one of the two states has."""
        rows = state.rows()
        columns = [column.name for column in state.columns]
        hidden = self._hidden.of(name, columns)
        samples: list[RowSample] = []
        how: How = "metadata"
        if rows is None or (rows and self._sample):
            with self._on(state.branch if state.kind == "view" else None):
                relation = self._relation(state)
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
        self, name: Identifier, before: TableVersion, after: TableVersion, work: Work
    ) -> TableDiff:
        same_table = before.kind == after.kind == "table" and md.identity(
            before.document
        ) == md.identity(after.document)
        columns = planning.match_columns(before.columns, after.columns, same_table=same_table)
        key = planning.key_in(self._keys.get(_lower(name), ()), columns)
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
            self._find_sources(before, after, columns, work)
        else:
            found = replace(found, notes=(*found.notes, "no column in common: rows not compared"))
        if work.sources:
            found = self._count(found, columns, work, _seeds(before, after))
        if columns.change.added:
            found = self._with_null_counts(found, after)
        differs = bool(found.rows or columns.change or before.kind != after.kind)
        return replace(found, change="changed" if differs else "unchanged", how=work.how)

    # -- where the rows are ----------------------------------------------------------------------

    def _find_sources(
        self, before: TableVersion, after: TableVersion, columns: Columns, work: Work
    ) -> None:
        if "view" in (before.kind, after.kind):
            work.how = "whole"
            work.sources = [self._whole(after, 1), self._whole(before, -1)]
            return
        if columns.same_files and _same_rows(before, after):
            return
        try:
            comparable = columns.same_files and before.snapshot and after.snapshot
            if comparable and self._parts(before, after, work):
                return
        except (CatalogError, OSError):
            # Metadata that is not read here, or a lake that may not be written to: a short cut
            # less, and no more.
            work.sources.clear()
        work.how = "whole"
        for state, sign in ((after, 1), (before, -1)):
            if state.snapshot is not None:
                work.sources.append(self._whole(state, sign))

    def _parts(self, before: TableVersion, after: TableVersion, work: Work) -> bool:
        """Take the files that differ as private tables; False if it takes all of both states."""
        old, new = (self._snapshot(state) for state in (before, after))
        common = {one.path for one in old.manifests} & {one.path for one in new.manifests}
        files = old.files(common), new.files(common)
        plan = planning.plan_files(*files)
        sides = (
            (after, new, plan.added, {one.path for one in files[1].data}),
            (before, old, plan.removed, {one.path for one in files[0].data}),
        )
        shared = any(m.has_data and m.path in common for m in new.manifests)
        alone = not shared and all(paths == listed for *_, paths, listed in sides)
        if plan.read == "whole" or alone:
            return False
        work.how = "files" if plan.read == "parts" else "metadata"
        for state, snapshot, paths, _ in sides:
            sign = 1 if state is after else -1
            if paths:
                work.parts.append(snapshot.part(paths))
                work.sources.append(self._source(work.parts[-1], sign, old=sign < 0))
        self._touched(plan, old, new, work)
        return True

    def _touched(self, plan: FilePlan, old: Snapshot, new: Snapshot, work: Work) -> None:
        """Rows of common files that are deleted in one of the two states."""
        for snapshot, sign in ((new, -1), (old, 1)):
            if plan.touched and snapshot.has_deletes:
                work.parts.append(snapshot.part(plan.touched))
                source = self._source(work.parts[-1], sign, old=snapshot is old)
                deleted = snapshot.count("total-position-deletes")
                work.sources.append(replace(source, condition="_deleted", rows=deleted))

    def _source(self, part: Part, sign: int, *, old: bool) -> Source:
        try:
            return Source(self._private.register(part.location), sign, old, rows=part.rows)
        except Exception as error:
            raise Unreadable(f"The session cannot have tables of its own: {error}") from error

    def _snapshot(self, state: TableVersion) -> Snapshot:
        found = state.found
        if found is None:
            raise Unreadable(f"There is no snapshot {state.snapshot}.")
        return Snapshot(self._lake.store, state.with_schema(), found)

    def _whole(self, state: TableVersion, sign: int) -> Source:
        branch = state.branch if state.kind == "view" else None
        rows = None if state.found is None else count_of(state.found, "total-records")
        return Source(self._relation(state), sign, sign < 0, branch=branch, rows=rows)

    def _relation(self, state: TableVersion) -> str:
        """What stands for a state in a from clause."""
        name = ".".join(map(quote, state.row.identifier))
        if state.kind == "view":
            return name
        version = f" version as of {literal(str(state.ref))}"
        try:
            # A metadata file never changes: what is read is what was planned, whatever is
            # committed meanwhile.
            return self._private.register(state.row.location) + version
        except Exception:
            if self._lake.store.backend.get(state.row.identifier) is None:
                raise
            return name + version

    # -- reading ---------------------------------------------------------------------------------

    def _count(
        self, found: TableDiff, columns: Columns, work: Work, seeds: tuple[int, int]
    ) -> TableDiff:
        statements = DiffStatements(columns.compared, found.key, seeds)
        cache = Cache(self._sql)
        try:
            with self._partitions(work.rows):
                if work.by_branch:
                    rows = statements.merged(self._kept(statements, work))
                elif work.at_once:
                    rows = statements.rows(work.sources)
                else:
                    signs = cache.put(statements.signs(work.sources))
                    found = self._summed(found, statements, signs)
                    if not (found.rows and (found.key or self._sample)):
                        return found
                    rows = self._differing(found, statements, work, signs)
                view = cache.put(statements.paired(f"({rows})"))
            if found.key:
                found = self._paired(found, columns, statements, view)
            elif work.by_branch or work.at_once:
                found = self._summed(found, statements, view)
            if not (found.rows and self._sample):
                return found
            return replace(found, samples=self._samples(found, columns, statements, view))
        finally:
            cache.clear()

    def _differing(
        self, found: TableDiff, statements: DiffStatements, work: Work, signs: str
    ) -> str:
        """A query for the rows that differ: all of them to pair them, else some for samples."""
        few = not found.key or found.rows <= _FEW
        picked = signs if found.key else statements.some(signs, max(_FETCHED, self._sample))
        return statements.rows_of(work.sources, picked, few=few)

    def _kept(self, statements: DiffStatements, work: Work) -> list[str]:
        """The rows of each source, written to a private table.

        A session sees the tables behind a view on one branch at a time, and what it has cached on
        one it would read anew on another.
        """
        try:
            self._private.open()
        except Exception as error:
            raise CatalogError(
                "a view is compared by what each branch returns, kept in private tables for a "
                f"while, and the session can have none ({_class_of(error)}): put SQLite's JDBC "
                "driver on Spark's class path"
            ) from error
        tables = []
        for source in work.sources:
            folder = f"{self._lake.warehouse}/{diff_folder(uuid.uuid4().hex)}"
            work.folders.append(folder)
            with self._on(source.branch):
                tables.append(self._private.create(folder, statements.rows([source])))
        return tables

    @contextmanager
    def _partitions(self, rows: int | None) -> Iterator[None]:
        """The session with enough partitions for so many rows, while the block runs."""
        wanted = (rows or 0) // _PER_PARTITION
        default = int(self._sql(f"set {_PARTITIONS}")[0][1]) if wanted > 1 else wanted
        if wanted <= default:
            yield
            return
        self._sql(f"set {_PARTITIONS}={wanted}")
        try:
            yield
        finally:
            self._sql(f"set {_PARTITIONS}={default}")

    def _summed(self, found: TableDiff, statements: DiffStatements, view: str) -> TableDiff:
        added, removed = (int(n) for n in self._sql(statements.sums(view))[0])
        return replace(found, added=added, removed=removed)

    def _paired(
        self, found: TableDiff, columns: Columns, statements: DiffStatements, view: str
    ) -> TableDiff:
        added, removed, changed, twice, *counts = self._sql(statements.counts(view))[0]
        if _is_true(twice):
            note = "keys that are not unique among the rows that differ: added and removed"
            found = replace(found, notes=(*found.notes, note))
        differ = zip(columns.compared, map(int, counts), strict=True)
        return replace(
            found,
            added=int(added),
            removed=int(removed),
            changed=int(changed),
            columns={column.name: count for column, count in differ if count},
        )

    def _samples(
        self, found: TableDiff, columns: Columns, statements: DiffStatements, view: str
    ) -> tuple[RowSample, ...]:
        names = [c.name for c in columns.compared]
        shown = [i for i, name in enumerate(names) if name not in found.hidden]
        counts = {"removed": found.removed, "added": found.added, "changed": found.changed}
        kinds: list[RowChange] = [kind for kind in get_args(RowChange) if counts[kind]]
        rows = self._sql(statements.samples(view, self._sample, shown, kinds))
        return tuple(_sample(row, names, shown, found.key) for row in rows)

    @contextmanager
    def _on(self, branch: str | None) -> Iterator[None]:
        """The session on an audit branch, or on none if it is empty, while the block runs."""
        if branch is None:
            yield
            return
        reset = f"reset {_WAP_BRANCH}"
        self._sql(f"set {_WAP_BRANCH}={branch}" if branch else reset)
        try:
            yield
        finally:
            self._sql(reset)

    def _with_null_counts(self, found: TableDiff, after: TableVersion) -> TableDiff:
        """How many values of the added columns are NULL."""
        names = [c.name for c in found.schema.added]
        if after.kind == "table" and after.snapshot is None:
            rows, counts = 0, [0] * len(names)
        else:
            with self._on(after.branch if after.kind == "view" else None):
                query = null_counts(self._relation(after), names)
                rows, *counts = (int(n) for n in self._sql(query)[0])
        added = tuple(
            AddedColumn(c.name, c.type, rows - values, values)
            for c, values in zip(found.schema.added, counts, strict=True)
        )
        return replace(found, schema=replace(found.schema, added=added))


class Cache:
    """Results that Spark keeps for a session, under names of their own."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._token = uuid.uuid4().hex[:12]
        self._names: list[str] = []

    def put(self, query: str) -> str:
        """Run a query and keep what it returns; the name of a view that has it."""
        name = f"wap_diff_{self._token}_{len(self._names)}"
        self._sql(f"cache table {name} as {query}")
        self._names.append(name)
        return name

    def clear(self) -> None:
        """Let go of all."""
        for name in reversed(self._names):
            self._sql(f"uncache table if exists {name}")
            self._sql(f"drop view if exists {name}")
        self._names.clear()


# ---------------------------------------------------------------- small things


def _chosen(pairs: Collection[Identifier], tables: Collection[str]) -> set[Identifier]:
    """Those that are named.

    Raises:
        ConfigError: A name is none of them.
    """
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


def _same_rows(before: TableVersion, after: TableVersion) -> bool:
    """Whether metadata proves that two states of one table have the same rows."""
    old, new = before.snapshot, after.snapshot
    if old == new:
        return True
    return any(
        content_equality.same_rows(document, one, other)
        for document in (before.document, after.document)
        for one, other in ((old, new), (new, old))
    )


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


def _sample(
    row: Sequence[Any], names: Sequence[str], shown: Sequence[int], key: Collection[str]
) -> RowSample:
    """A row of `DiffStatements.samples`. Of a changed one the key and what differs is shown."""
    change: RowChange = row[0]
    width = len(shown)
    old, new, flags = row[2 : 2 + width], row[2 + width : 2 + 2 * width], row[2 + 2 * width :]
    listed = [
        at
        for at, i in enumerate(shown)
        if change != "changed" or names[i] in key or _is_true(flags[i])
    ]

    def values(texts: Sequence[Any]) -> Values:
        return {names[shown[at]]: texts[at] for at in listed}

    return RowSample(
        change,
        int(row[1]),
        None if change == "added" else values(old),
        None if change == "removed" else values(new),
    )


def _class_of(error: Exception) -> str:
    """What kind of error it is: its text may hold values that are not to be shown."""
    found = _ERROR_CLASS.search(str(error))
    return f"Spark said {found[1]}" if found else type(error).__name__


def _is_true(value: Any) -> bool:
    return str(value).lower() == "true"


def _lower(name: Identifier) -> Identifier:
    return name[0].lower(), name[1].lower()
