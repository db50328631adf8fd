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

MOST_ROWS = 300_000_000
"""The rows whose ids fit into the memory of each worker: some 50 bytes for 64 ids in a row."""

_LINEAGE_FORMAT = 3
_ICEBERG = re.compile(r"^Apache Iceberg (\d+)\.(\d+)\.")
_RIGHT_SINCE = (1, 12)
"""Earlier versions of Iceberg gave rewritten rows wrong ids (iceberg #16699, #17039)."""

_SUMS = "select coalesce(sum(n), 0L), coalesce(sum(bit_count(bits)), 0L) from {kept}"


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
        """Return the sources of the rows that differ; None if no ids tell, or they do not add up.

        Args:
            sql: Runs a statement in the Spark session.
            cache: Keeps the ids.
        """
        kept = cache.put(self._kept())
        copied, different = (int(n) for n in sql(_SUMS.format(kept=kept))[0])
        if not copied:
            return None
        gone, new = (self.removed.rows or 0) - copied, (self.added.rows or 0) - copied
        removed = self._gone(kept)
        # Ids that are missing, used twice or not of the old state make one of these counts wrong.
        if copied != different or int(sql(f"select count(*) from {removed}")[0][0]) != gone:
            return None
        return (
            replace(self.added, condition=f"not ({self._is_old})", rows=new),
            replace(self.removed, relation=removed, rows=gone),
        )

    @property
    def _is_old(self) -> str:
        return f"_last_updated_sequence_number <= {self.since}L"

    def _kept(self) -> str:
        """Return a query for the ids of copied rows: a word of bits for 64 ids."""
        return (
            "select _row_id div 64 as word, count(*) as n, "
            "bit_or(shiftleft(1L, cast(_row_id % 64 as int))) as bits "
            f"from {self.added.relation} where {self._is_old} group by 1"
        )

    def _gone(self, kept: str) -> str:
        return (
            f"(select /*+ broadcast(k) */ r.* from {self.removed.relation} as r left join {kept} "
            "as k on k.word = r._row_id div 64 "
            "where coalesce(getbit(k.bits, cast(r._row_id % 64 as int)), 0) = 0)"
        )


def lineage_since(before: TableVersion, after: TableVersion) -> int | None:
    """Return the sequence number after which rows of ``after`` differ; None if it is not sure.

    It is sure if ``after`` has grown from ``before``, by appends and by changes of Spark with a
    version of Iceberg that keeps row ids. Pure.
    """
    formats = [int(one.document.get("format-version") or 1) for one in (before, after)]
    if min(formats) < _LINEAGE_FORMAT or before.found is None:
        return None
    for one in md.ancestors(after.document, after.snapshot):
        if one["snapshot-id"] == before.snapshot:
            number = before.found.get("sequence-number")
            return None if number is None else int(number)
        if not _keeps_ids(one.get("summary") or {}):
            return None
    return None


def _keeps_ids(summary: md.Document) -> bool:
    if summary.get("operation") == "append":
        return True
    version = _ICEBERG.match(str(summary.get("iceberg-version") or ""))
    return (
        summary.get("engine-name") == "spark"
        and version is not None
        and (int(version[1]), int(version[2])) >= _RIGHT_SINCE
    )
