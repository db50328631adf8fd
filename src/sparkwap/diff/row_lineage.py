"""Finds changed rows in rewritten files by Iceberg's row lineage (format version 3).

Copy-on-write copies the unchanged rows of a file into a new file, with their row id and the
sequence number of the commit that changed them last (https://iceberg.apache.org/spec/#row-lineage).
So of the added files, the rows with a later number than the old state differ, and of the removed
files, the rows whose id is not among the copied ones.

The ids of copied rows are kept as bits, which each worker gets, so that no row is shuffled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sparkwap.catalog import metadata as md
from sparkwap.catalog.private_catalog import Sql
from sparkwap.diff.session import Cache
from sparkwap.diff.sql import Source
from sparkwap.diff.states import TableVersion

MOST_WORDS = 5_000_000
"""The words of ids that fit into the memory of each worker: those of 300 million rows or fewer."""

_ID, _CHANGED = "_row_id", "_last_updated_sequence_number"
_ICEBERG = re.compile(r"^Apache Iceberg (\d+)\.(\d+)\.")
_RIGHT_SINCE = (1, 12)
"""Earlier versions of Iceberg gave rewritten rows wrong ids (iceberg #16699, #17039)."""

_SUMS = "select count(*), coalesce(sum(n), 0L), coalesce(sum(bit_count(bits)), 0L) from {kept}"


@dataclass(frozen=True)
class RowLineage:
    """The rows of files that only one of the two states has.

    Attributes:
        added: All rows of files that only the new state has.
        removed: All rows of files that only the old state has.
        since: The sequence number of the old state.
    """

    added: Source
    removed: Source
    since: int

    def differing(self, sql: Sql, cache: Cache) -> tuple[Source, Source] | None:
        """Return the sources of the rows that differ; None if the ids do not tell.

        An error of Spark is no reason to fail: all rows can be compared.
        """
        try:
            return self._differing(sql, cache)
        except Exception:
            return None

    def _differing(self, sql: Sql, cache: Cache) -> tuple[Source, Source] | None:
        kept = cache.put(self._kept())
        words, copied, different = (int(n) for n in sql(_SUMS.format(kept=kept))[0])
        if not copied or words > MOST_WORDS:
            return None
        gone, new = (self.removed.rows or 0) - copied, (self.added.rows or 0) - copied
        removed = self._gone(kept)
        # Ids that are missing, used twice or not of the old state make one of these counts wrong.
        if copied != different or int(sql(f"select count(*) from {removed}")[0][0]) != gone:
            return None
        return (
            replace(self.added, condition=f"not coalesce({self._is_old}, false)", rows=new),
            replace(self.removed, relation=removed, rows=gone),
        )

    @property
    def _is_old(self) -> str:
        return f"{_CHANGED} <= {self.since}L"

    def _kept(self) -> str:
        """Return a query for the ids of copied rows: a word of bits for 64 ids."""
        return (
            f"select {_ID} div 64 as word, count(*) as n, "
            f"bit_or(shiftleft(1L, cast({_ID} % 64 as int))) as bits "
            f"from {self.added.relation} where {self._is_old} group by {_ID} div 64"
        )

    def _gone(self, kept: str) -> str:
        # Names that no column has: Spark prefers a field of a column to a row id.
        rows, row = f"{kept}_rows", f"{kept}_id"
        bit = f"getbit({kept}.bits, cast({row} % 64 as int))"
        return (
            f"(select /*+ broadcast({kept}) */ {rows}.* from "
            f"(select *, {_ID} as {row} from {self.removed.relation}) as {rows} "
            f"left join {kept} on {kept}.word = {row} div 64 where coalesce({bit}, 0) = 0)"
        )


def lineage_since(before: TableVersion, after: TableVersion) -> int | None:
    """Return the sequence number after which rows of ``after`` differ; None if it is not sure.

    It is sure if ``after`` has grown from ``before`` by writes and rewrites of Spark with a version
    of Iceberg that keeps row ids, and if no column has the name of an id. Pure.
    """
    has_ids = all(md.has_row_ids(one.document) for one in (before, after))
    columns = {column.name.lower() for one in (before, after) for column in one.columns}
    if not has_ids or before.found is None or columns & {_ID, _CHANGED}:
        return None
    for one in md.ancestors(after.document, after.snapshot):
        if one["snapshot-id"] == before.snapshot:
            number = before.found.get("sequence-number")
            return None if number is None else int(number)
        if not _keeps_ids(one.get("summary") or {}):
            return None
    return None


def _keeps_ids(summary: md.Document) -> bool:
    version = _ICEBERG.match(str(summary.get("iceberg-version") or ""))
    if summary.get("engine-name") != "spark" or version is None:
        return False
    # Files that Spark has not written in this commit, as of `add_files`, may have ids of old rows.
    written = "spark.app.id" in summary or summary.get("operation") == "replace"
    return written and (int(version[1]), int(version[2])) >= _RIGHT_SINCE
