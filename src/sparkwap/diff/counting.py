"""Counts the rows that differ, and selects samples of them, by Spark SQL."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, get_args

from sparkwap.catalog.private_catalog import PrivateCatalog, Sql
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import diff_folder
from sparkwap.diff.model import RowChange, RowSample, TableDiff, Values
from sparkwap.diff.plan import Columns
from sparkwap.diff.session import Cache, error_class, is_true, on_branch, partitions_for
from sparkwap.diff.sources import Sources
from sparkwap.diff.sql import DiffStatements

_FETCHED = 100  # hashes of each kind to select samples from, if there is no key
_FEW = 1_000_000  # hashes that fit into the memory of each worker


class RowCounter:
    """Counts the rows that differ between two states of a table.

    Args:
        warehouse: The warehouse folder, for private tables.
        sample: The number of sample rows of each kind; 0 for none.
    """

    def __init__(self, sql: Sql, private: PrivateCatalog, warehouse: str, sample: int) -> None:
        self._sql = sql
        self._private = private
        self._warehouse = warehouse
        self._sample = sample

    def count(
        self, found: TableDiff, columns: Columns, read: Sources, seeds: tuple[int, int]
    ) -> TableDiff:
        """Return the result with counts and samples; adds folders of private tables to ``read``."""
        statements = DiffStatements(columns.compared, found.key, seeds)
        cache = Cache(self._sql)
        try:
            differing = read.lineage.differing(self._sql, cache) if read.lineage else None
            if differing is not None:
                read.sources, read.how = list(differing), "rows"
            with partitions_for(self._sql, read.rows):
                if read.by_branch:
                    rows = statements.merged(self._stored(statements, read))
                elif read.at_once:
                    rows = statements.rows(read.sources)
                else:
                    signs = cache.put(statements.signs(read.sources))
                    found = self._summed(found, statements, signs)
                    if not (found.rows and (found.key or self._sample)):
                        return found
                    rows = self._differing(found, statements, read, signs)
                view = cache.put(statements.paired(f"({rows})"))
            if found.key:
                found = self._paired(found, columns, statements, view)
            elif read.by_branch or read.at_once:
                found = self._summed(found, statements, view)
            if not (found.rows and self._sample):
                return found
            return replace(found, samples=self._samples(found, columns, statements, view))
        finally:
            cache.clear()

    def _differing(
        self, found: TableDiff, statements: DiffStatements, read: Sources, signs: str
    ) -> str:
        """Return a query for the rows that differ: all rows if there is a key, else samples."""
        few = not found.key or found.rows <= _FEW
        picked = signs if found.key else statements.some(signs, max(_FETCHED, self._sample))
        return statements.rows_of(read.sources, picked, few=few)

    def _stored(self, statements: DiffStatements, read: Sources) -> list[str]:
        """Write the rows of each source to a private table; returns the tables.

        A session sees the tables behind a view on one branch at a time. After a change of the
        branch, it would read the rows of a cached result again, on the other branch.
        """
        try:
            self._private.open()
        except Exception as error:
            raise CatalogError(
                "to compare a view, its rows on each branch are written to private tables, and "
                f"the session cannot have any ({error_class(error)}): put SQLite's JDBC driver on "
                "Spark's class path"
            ) from error
        tables = []
        for source in read.sources:
            folder = f"{self._warehouse}/{diff_folder(uuid.uuid4().hex)}"
            read.folders.append(folder)
            with on_branch(self._sql, source.branch):
                tables.append(self._private.create(folder, statements.rows([source])))
        return tables

    def _summed(self, found: TableDiff, statements: DiffStatements, view: str) -> TableDiff:
        added, removed = (int(n) for n in self._sql(statements.sums(view))[0])
        return replace(found, added=added, removed=removed)

    def _paired(
        self, found: TableDiff, columns: Columns, statements: DiffStatements, view: str
    ) -> TableDiff:
        added, removed, changed, twice, *counts = self._sql(statements.counts(view))[0]
        if is_true(twice):
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


def _sample(
    row: Sequence[Any], names: Sequence[str], shown: Sequence[int], key: Collection[str]
) -> RowSample:
    """Return a row of `DiffStatements.samples`; a changed one has its key and what differs."""
    change: RowChange = row[0]
    width = len(shown)
    old, new, flags = row[2 : 2 + width], row[2 + width : 2 + 2 * width], row[2 + 2 * width :]
    listed = [
        at
        for at, i in enumerate(shown)
        if change != "changed" or names[i] in key or is_true(flags[i])
    ]

    def values(texts: Sequence[Any]) -> Values:
        return {names[shown[at]]: texts[at] for at in listed}

    return RowSample(
        change,
        int(row[1]),
        None if change == "added" else values(old),
        None if change == "removed" else values(new),
    )
