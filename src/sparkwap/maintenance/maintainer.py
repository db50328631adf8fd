"""Maintains the tables of a lake: finds what can be gained, chooses, compacts, expires, reports."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import LedgerRows
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import table_row
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.file_plan import StateFiles
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.snapshot_files import Snapshot, Unreadable
from sparkwap.catalog.store import Staged
from sparkwap.core.errors import CatalogError, SparkwapError
from sparkwap.core.names import LEDGER_SCHEMA, audit_branch
from sparkwap.core.text import first_line
from sparkwap.gate.settings import Upkeep
from sparkwap.maintenance import choice as choosing
from sparkwap.maintenance.choice import COSTS, HORIZON_DAYS, Choice, Fact
from sparkwap.maintenance.compaction import (
    Compactor,
    Execute,
    NotMoved,
    at_work,
    remove_leftovers,
)
from sparkwap.maintenance.history import Outdated, outdated
from sparkwap.maintenance.maintenance_report import Report, TableReport, lines
from sparkwap.maintenance.metadata_files import compression, needed, superseded
from sparkwap.maintenance.rules import Rules
from sparkwap.maintenance.table_use import (
    DAY_MS,
    TableUse,
    cold_sequence,
    overwritten_after,
    table_use,
)

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

METADATA_MARGIN_MS = 60 * 60 * 1000
"""A reader may be late: it reads the metadata file that it has looked up before."""

_DELETED_TOGETHER = 100
_FILE_SIZE = "write.target-file-size-bytes"


class Maintainer:
    """Maintains tables of one lake that the gate has built, and those of the ledger.

    Args:
        lake: The lake.
        execute: Sends statements to Spark.
        run_id: The run of the maintenance.
        upkeep: The settings.
        rules: The tables of the project -> their rules; None for all tables of the gate, by the
            default rules. What others have configured for their tables is not known here.
    """

    def __init__(
        self,
        lake: Lake,
        execute: Execute,
        *,
        run_id: str,
        upkeep: Upkeep,
        rules: Mapping[Identifier, Rules] | None = None,
    ) -> None:
        self._lake = lake
        self._execute = execute
        self._run_id = run_id
        # Not the branch of the run, which may have candidates in its side schemas.
        self._lease_id = str(uuid.uuid4())
        self._branch = audit_branch(self._lease_id, None)
        self._upkeep = upkeep
        self._rules = rules
        self._known: TableUse | None = None

    def look(
        self, tables: Collection[str] = (), budget: float | None = None, *, everything: bool = False
    ) -> Report:
        """Return what a maintenance would do now, without changing anything.

        Args:
            tables: Names of tables (``schema.name``) or schemas; all if empty.
            budget: Seconds for compactions; None for no limit.
            everything: Compact whatever can be compacted, even if it does not pay off.

        Raises:
            CatalogError: Metadata cannot be read.
        """
        now = self._now()
        known = self._known = table_use(self._lake, now)
        rows = self._tables(tables)
        cores = self._cores() if rows else 1
        reports = self._lake.store.map(
            lambda row: self._guarded(row, known, now, cores, everything), rows
        )
        self._find_metadata([one for one, _ in reports], now)
        facts = {one.name: fact for one, fact in reports}
        by_name = {one.name: one for one, _ in reports}
        for chosen in choosing.choose(facts.values(), budget, everything=everything):
            by_name[chosen.fact.name].choice = chosen
        ranked = sorted(
            by_name.values(),
            key=lambda one: (-(one.choice.fact.score if one.choice else 0), one.name),
        )
        return Report(ranked, budget, done=False)

    def maintain(
        self, tables: Collection[str] = (), budget: float | None = None, *, everything: bool = False
    ) -> Report:
        """Compact the chosen tables, and remove the history that is no longer needed.

        Takes a lease, so that sweeps leave the new files alone. For arguments and errors, see
        `look`. A table whose writer was faster is left, and so is a table that fails; the report
        names it.
        """
        self._lake.ledger.ensure({"maintenance"})
        holding = leasing.hold(
            self._lake.leases,
            run_id=self._lease_id,
            branch=self._branch,
            command=leasing.MAINTENANCE,
        )
        try:
            remove_leftovers(self._lake)
            report = self.look(tables, budget, everything=everything)
            report.done = True
            started = time.monotonic()
            for one in report.tables:
                spent = time.monotonic() - started
                self._compact(one, report, None if budget is None else budget - spent)
            for one in report.tables:
                self._expire(one, report)
                self._delete_metadata(one, report)
        finally:
            holding.release()
        return report

    def allowance(self) -> float:
        """Return the budget in seconds for a maintenance at the end of a run.

        A share is that of the time that runs have taken within the horizon, less the time that
        compactions have taken.
        """
        if self._upkeep.seconds is not None:
            return self._upkeep.seconds
        since = self._now() - timedelta(days=HORIZON_DAYS)
        runs: float = sum(
            (row["ended_at"] - row["started_at"]).total_seconds()
            for row in self._lake.ledger.recent("runs", since)
            if row["started_at"] and row["ended_at"] and row["outcome"] != "died"
        )
        spent: float = sum(
            row["seconds"] or 0.0 for row in self._lake.ledger.recent("maintenance", since)
        )
        return max(0.0, self._upkeep.share * runs - spent)

    def _rules_of(self, identifier: Identifier) -> Rules:
        return (self._rules or {}).get(identifier, Rules())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._lake.leases.now(), UTC)

    # -- facts -----------------------------------------------------------------------------------

    def _tables(self, wanted: Collection[str]) -> list[Pointer]:
        """Return the tables of the ledger, and those of the project that the gate has switched on.

        Raises:
            SparkwapError: A wanted table or schema is not among them.
        """
        marked = self._lake.store.backend.side_schemas()
        rows = [
            row
            for row in self._lake.store.backend.all()
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
                "this target. Nothing has changed. Give names as schema.table or schema."
            )
        return chosen

    def _ours(self, row: Pointer) -> bool:
        known = self._rules is None or row.identifier in self._rules
        if row.identifier[0] != LEDGER_SCHEMA and not known:
            return False
        try:
            properties = md.properties_of(self._lake.store.load(row.location))
        except CatalogError:
            return False
        if properties.get(md.GC_ENABLED, "true").lower() == "false":
            return False
        gated = properties.get(md.WAP_ENABLED, "").lower() == "true"
        return gated or row.identifier[0] == LEDGER_SCHEMA

    def _cores(self) -> int:
        """Return how many tasks Spark runs at the same time, by its default parallelism."""
        query = "select distinct spark_partition_id() from range(10000)"
        return max(1, len(self._execute(query)))

    def _guarded(
        self, row: Pointer, known: TableUse, now: datetime, cores: int, everything: bool
    ) -> tuple[TableReport, Fact]:
        """Like `_report`; a table that cannot be read does not stop the others."""
        try:
            return self._report(row, known, now, cores, everything)
        except Exception as error:
            name, reason = ".".join(row.identifier), f"it cannot be read: {first_line(str(error))}"
            return TableReport(name, problem=reason), Fact(name, None, reason=reason)

    def _report(
        self, row: Pointer, known: TableUse, now: datetime, cores: int, everything: bool
    ) -> tuple[TableReport, Fact]:
        name = ".".join(row.identifier)
        document = self._lake.store.load(row.location)
        rules = self._rules_of(row.identifier)
        main = md.snapshot(document, md.main_of(document) or -1)
        found = TableReport(
            name,
            md.count(main, "total-data-files"),
            md.count(main, "total-delete-files") or 0,
            md.count(main, "total-files-size") or 0,
            known.readings.get(name, 0.0) + rules.readings_per_day,
        )
        reason = at_work(self._lake, row.identifier, self._branch)
        found.problem = reason
        if row.identifier[0] != LEDGER_SCHEMA and reason is None:
            found.outdated = self._outdated(row.identifier, document, known, now)
            found.compress = bool(compression(document))
        if main is None:
            return found, Fact(name, None, reason="it has no rows")
        if not rules.compact:
            return found, Fact(name, None, reason="wap_maintain is false in its config")
        pace = overwritten_after(document, known.paces.get(name))
        state, manifests = StateFiles(), 0
        if (found.files or 0) > 1 or found.delete_files:
            try:
                snapshot = Snapshot(self._lake.store, document, main)
                state, manifests = snapshot.files(), len(snapshot.manifests)
            except Unreadable as error:
                return found, Fact(name, None, reason=f"its files are not known: {error}")
            found.files, found.delete_files = len(state.data), len(state.deletes)
            found.bytes = sum(one.size for one in state.data)
        properties = md.properties_of(document)
        target = choosing.target_size(found.bytes, cores, rules, properties.get(_FILE_SIZE))
        work = choosing.compaction(
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
            choosing.readings(found.readings, pace),
            known.slower.get(name, known.slower.get("", 1.0)),
            known.waited.get(name, 0.0),
            reason,
        )

    def _outdated(
        self, identifier: Identifier, document: md.Document, known: TableUse, now: datetime
    ) -> Outdated:
        rules = self._rules_of(identifier)
        keep_days = rules.keep_days or self._upkeep.keep_days
        if any(one.command == leasing.REPLAY for one in leasing.living(self._lake.leases)):
            return Outdated()
        return outdated(
            document,
            self._oldest_state(now),
            keep_ms=keep_days * DAY_MS,
            keep_publishes=rules.keep_publishes or self._upkeep.keep_publishes,
            bases=known.bases.get(".".join(identifier), {}),
        )

    def _oldest_state(self, now: datetime) -> int:
        """Return when the oldest living run began, else now, in milliseconds.

        What such a run has read was the state of `main` at that time, or later.
        """
        began = [one.began for one in leasing.living(self._lake.leases)]
        return int(min([now, *began]).timestamp() * 1000)

    def _find_metadata(self, reports: Collection[TableReport], now: datetime) -> None:
        """Note the metadata files of former states; those of what cannot be read stay."""
        try:
            keep, before = needed(self._lake), self._oldest_state(now) - METADATA_MARGIN_MS
        except Exception:
            keep, before = None, 0
        for one in reports:
            files: list[str] = []
            identifier = _identifier(one.name)
            if keep is not None and one.problem is None and identifier[0] != LEDGER_SCHEMA:
                with contextlib.suppress(Exception):
                    row = table_row(self._lake.store, identifier)
                    document = self._lake.store.load(row.location)
                    files = superseded(self._lake.store, document, keep, before)
            one.outdated = replace(one.outdated, metadata_files=tuple(files))

    # -- work ------------------------------------------------------------------------------------

    def _compact(self, one: TableReport, report: Report, left: float | None) -> None:
        chosen = one.choice
        if chosen is None or not (chosen.compact or chosen.waits):
            return
        work, identifier = chosen.fact.work, _identifier(one.name)
        row = self._row(one, "compact", chosen)
        if chosen.waits or (left is not None and left <= 0):
            one.choice = Choice(
                chosen.fact, False, reason=chosen.reason or "the budget is used up", waits=True
            )
            if self._known is not None and one.name not in self._known.waited:
                self._record({**row, "outcome": "waits", "reason": one.choice.reason})
            return
        assert work is not None
        started = time.monotonic()
        compactor = Compactor(self._lake, self._execute, run_id=self._run_id, branch=self._branch)
        rules = self._rules_of(identifier)
        try:
            one.done = compactor.compact(identifier, work, rules, chosen.max_files)
        except NotMoved as late:
            one.problem = f"dropped, because a writer was faster: {late}"
            outcome: dict[str, Any] = {"outcome": "dropped", "reason": str(late)}
        except Exception as error:
            one.problem = f"failed: {first_line(str(error))}"
            report.failed.append(f"{one.name}: {error}")
            outcome = {"outcome": "failed", "reason": first_line(str(error))}
        else:
            outcome = {
                "outcome": "done",
                "files_before": one.done.files[0],
                "files_after": one.done.files[1],
                "delete_files_before": one.done.delete_files[0],
                "delete_files_after": one.done.delete_files[1],
                "bytes": one.done.added_bytes,
                "base_snapshot": one.done.base,
                "snapshot": one.done.head,
            }
        one.seconds = time.monotonic() - started
        self._record({**row, **outcome, "seconds": one.seconds})

    def _expire(self, one: TableReport, report: Report) -> None:
        if not (one.outdated.tags or one.outdated.snapshots or one.compress):
            return
        identifier = _identifier(one.name)
        known, now = self._known, self._now()
        assert known is not None

        def stage() -> Staged[Outdated]:
            row = self._lake.store.backend.get(identifier)
            if row is None or row.kind != "table":
                return Staged(Outdated())
            document = self._lake.store.load(row.location)
            # A change of its branches and tags makes a commit of a writer fail.
            if at_work(self._lake, identifier, self._branch) is not None:
                one.compress = False
                return Staged(Outdated())
            found = self._outdated(identifier, document, known, now)
            codec = compression(document)
            one.compress = bool(codec)
            if not (found.tags or found.snapshots or codec):
                return Staged(found)
            change = MetadataChange(document).remove_refs(*found.tags)
            change = change.remove_snapshots(found.snapshots).properties(codec)
            swaps, files = self._lake.store.grow([(row, change)])
            recorded = {
                **self._row(one, "expire", None),
                "outcome": "done",
                "snapshots": len(found.snapshots),
                "tags": list(found.tags),
            }
            staged = Staged(found, swaps, files)
            return self._lake.ledger.beside(staged, [LedgerRows("maintenance", [recorded])])

        try:
            done = self._lake.store.commit(stage, "maintain", table=one.name, run_id=self._run_id)
        except SparkwapError as error:
            done, one.compress = Outdated(), False
            report.failed.append(f"{one.name}: {error}")
        one.outdated = replace(done, metadata_files=one.outdated.metadata_files)

    def _delete_metadata(self, one: TableReport, report: Report) -> None:
        found, store = one.outdated.metadata_files, self._lake.store
        if not found:
            return
        # Others may have registered one of them meanwhile.
        self._find_metadata([one], self._now())
        files = [path for path in found if path in one.outdated.metadata_files]
        one.outdated = replace(one.outdated, metadata_files=tuple(files))
        if not files:
            return
        for start in range(0, len(files), _DELETED_TOGETHER):
            part = files[start : start + _DELETED_TOGETHER]
            store.map(store.files.delete, part)
            if store.files.exists(part[0]):
                one.outdated = replace(one.outdated, metadata_files=())
                report.failed.append(
                    f"{one.name}: {part[0]}, a metadata file of a former state, could not be "
                    "deleted. The table is as it was. Check the rights to delete there; the next "
                    "maintenance tries again."
                )
                return
        self._record(
            {**self._row(one, "metadata", None), "outcome": "done", "metadata_files": len(files)}
        )

    def _row(self, one: TableReport, action: str, chosen: Choice | None) -> dict[str, Any]:
        schema, name = _identifier(one.name)
        row = {
            "run_id": self._run_id,
            "at": datetime.now(UTC),
            "schema": schema,
            "name": name,
            "action": action,
        }
        if chosen is not None:
            row |= {
                "score": chosen.fact.score,
                "expected_seconds": chosen.fact.seconds,
                "saved_seconds": chosen.fact.saved,
            }
        return row

    def _record(self, row: Mapping[str, Any]) -> None:
        self._lake.ledger.append(LedgerRows("maintenance", [row]))


def end_of_run(
    lake: Lake,
    execute: Execute,
    run_id: str,
    upkeep: Upkeep,
    rules: Callable[[], Mapping[Identifier, Rules]],
) -> list[str]:
    """Maintain the tables after a run, within the budget.

    Args:
        lake: The lake.
        execute: Sends statements to Spark.
        run_id: The run that has ended and released its lease.
        upkeep: Its settings.
        rules: Returns the rules of the project's tables.

    Returns:
        The lines to print; none if nothing was done. A maintenance that fails prints a line and
        does not fail the run.
    """
    try:
        work = Maintainer(lake, execute, run_id=run_id, upkeep=upkeep, rules=rules())
        budget = work.allowance()
        if budget < COSTS.start:
            return []
        report = work.maintain(budget=budget)
    except Exception as error:
        return [f"  The maintenance after the run failed; readers of main see no change: {error}"]
    return lines(report, short=True) if report.anything or report.failed else []


def _identifier(name: str) -> Identifier:
    schema, _, table = name.partition(".")
    return schema, table
