"""Inspects the tables of a lake: what each has, and what a maintenance could do with it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import table_row
from sparkwap.catalog.file_plan import StateFiles
from sparkwap.catalog.leases import Lease
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.snapshot_files import Snapshot, Unreadable
from sparkwap.core.errors import CatalogError, SparkwapError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.core.text import first_line
from sparkwap.gate.settings import Upkeep
from sparkwap.maintenance.choice import Fact, readings
from sparkwap.maintenance.compaction import at_work
from sparkwap.maintenance.file_choice import compaction, target_size
from sparkwap.maintenance.history import Outdated, outdated
from sparkwap.maintenance.maintenance_report import TableReport
from sparkwap.maintenance.metadata_files import compression, needed, superseded
from sparkwap.maintenance.rules import Rules, keeps_files
from sparkwap.maintenance.table_use import (
    DAY_MS,
    TableUse,
    cold_sequence,
    overwritten_after,
)

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

METADATA_MARGIN_MS = 60 * 60 * 1000
"""A reader may be late: it reads the metadata file that it has looked up before."""

_FILE_SIZE = "write.target-file-size-bytes"


@dataclass
class TableInspector:
    """Inspects tables, without changing anything.

    Attributes:
        branch: The branch of the maintenance itself.
        rules: See `Maintainer`.
        use: How the tables are used; the caller sets it.
    """

    lake: Lake
    branch: str
    upkeep: Upkeep
    rules: Mapping[Identifier, Rules] | None
    use: TableUse = field(default_factory=lambda: TableUse({}, {}, {}, {}, {}))

    def rules_of(self, identifier: Identifier) -> Rules:
        """Return the rules of a table."""
        return (self.rules or {}).get(identifier, Rules())

    def tables(self, wanted: Collection[str]) -> list[Pointer]:
        """Return the tables of the ledger, and those of the project that the gate has switched on.

        Args:
            wanted: Names of tables (``schema.name``) or schemas; all if empty.
        """
        marked = self.lake.store.backend.side_schemas()
        rows = [
            row
            for row in self.lake.store.backend.all()
            if row.kind == "table" and row.identifier[0] not in marked and self._ours(row)
        ]
        if not wanted:
            return rows
        chosen = [
            row for row in rows if {row.identifier[0], ".".join(row.identifier)} & set(wanted)
        ]
        found = {name for row in chosen for name in (row.identifier[0], ".".join(row.identifier))}
        missing = sorted(set(wanted) - found)
        if missing:
            raise SparkwapError(
                f"There is no table or schema {', '.join(missing)} that this project has built in "
                "this target. Nothing was changed. Give names as schema.table or schema."
            )
        return chosen

    def _ours(self, row: Pointer) -> bool:
        of_ledger = row.identifier[0] == LEDGER_SCHEMA
        if not (of_ledger or self.rules is None or row.identifier in self.rules):
            return False
        try:
            document = self.lake.store.load(row.location)
        except CatalogError:
            return False
        gated = of_ledger or md.is_gated(md.properties_of(document))
        return gated and not keeps_files(document)

    def inspect(
        self, row: Pointer, now: datetime, cores: int, everything: bool
    ) -> tuple[TableReport, Fact]:
        """Return what a table has, for the report and for the choice of compactions.

        A table that cannot be read does not stop the others; its report says why.

        Args:
            now: The time from which ages count.
            everything: Compact whatever can be compacted.
        """
        try:
            return self._inspected(row, now, cores, everything)
        except Exception as error:
            name, reason = ".".join(row.identifier), f"it cannot be read: {first_line(str(error))}"
            return TableReport(name, problem=reason), Fact(name, None, reason=reason)

    def _inspected(
        self, row: Pointer, now: datetime, cores: int, everything: bool
    ) -> tuple[TableReport, Fact]:
        name, use = ".".join(row.identifier), self.use
        document = self.lake.store.load(row.location)
        rules = self.rules_of(row.identifier)
        main = md.snapshot(document, md.main_of(document) or -1)
        found = TableReport(
            name,
            md.count(main, "total-data-files"),
            md.count(main, "total-delete-files") or 0,
            md.count(main, "total-files-size") or 0,
            use.readings.get(name, 0.0) + rules.readings_per_day,
        )
        reason = at_work(self.lake, row.identifier, self.branch)
        found.problem = reason
        if row.identifier[0] != LEDGER_SCHEMA and reason is None:
            found.outdated = self.outdated(row.identifier, document, now)
            found.compress = bool(compression(document))
        if main is None:
            return found, Fact(name, None, reason="it has no rows")
        if not rules.compact:
            return found, Fact(name, None, reason="wap_maintain is false in its config")
        pace = overwritten_after(document, use.paces.get(name))
        state, manifests = StateFiles(), 0
        if (found.files or 0) > 1 or found.delete_files:
            try:
                snapshot = Snapshot(self.lake.store, document, main)
                state, manifests = snapshot.files(), len(snapshot.manifests)
            except Unreadable as error:
                return found, Fact(name, None, reason=f"its files are not known: {error}")
            found.files, found.delete_files = len(state.data), len(state.deletes)
            found.bytes = sum(one.size for one in state.data)
        properties = md.properties_of(document)
        target = target_size(found.bytes, cores, rules, properties.get(_FILE_SIZE))
        work = compaction(
            state,
            target,
            rules,
            manifests=manifests,
            cold=cold_sequence(document, now),
            everything=everything,
        )
        return found, Fact(
            name,
            work,
            readings(found.readings, pace),
            use.slower.get(name, use.slower.get("", 1.0)),
            use.waited.get(name, 0.0),
            reason,
        )

    def outdated(self, identifier: Identifier, document: md.Document, now: datetime) -> Outdated:
        """Return what of a table's history is no longer needed; none while a run reads of it."""
        rules = self.rules_of(identifier)
        keep_days = rules.keep_days or self.upkeep.keep_days
        living = leasing.living(self.lake.leases)
        if any(one.command == leasing.REPLAY for one in living):
            return Outdated()
        return outdated(
            document,
            _oldest_state(living, now),
            keep_ms=keep_days * DAY_MS,
            keep_publishes=rules.keep_publishes or self.upkeep.keep_publishes,
            bases=self.use.bases.get(".".join(identifier), {}),
        )

    def find_metadata(self, reports: Collection[TableReport], now: datetime) -> None:
        """Note the metadata files of former states; those of what cannot be read stay."""
        try:
            keep = needed(self.lake)
            living = leasing.living(self.lake.leases)
            before = _oldest_state(living, now) - METADATA_MARGIN_MS
        except Exception:
            keep, before = None, 0
        for one in reports:
            files: list[str] = []
            of_ledger = one.identifier[0] == LEDGER_SCHEMA
            if keep is not None and one.problem is None and not of_ledger:
                with contextlib.suppress(Exception):
                    row = table_row(self.lake.store, one.identifier)
                    document = self.lake.store.load(row.location)
                    files = superseded(self.lake.store, document, keep, before)
            one.outdated = replace(one.outdated, metadata_files=tuple(files))


def _oldest_state(living: Iterable[Lease], now: datetime) -> int:
    """Return when the oldest living run began, else now, in milliseconds.

    What such a run has read was the state of `main` at that time, or later.
    """
    return int(min([now, *(one.began for one in living)]).timestamp() * 1000)
