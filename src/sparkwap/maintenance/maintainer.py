"""Maintains the tables of a lake: finds what can be gained, chooses, compacts, expires, reports."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import LedgerRows
from sparkwap.catalog import lease as leasing
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.store import Staged
from sparkwap.core.errors import SparkwapError
from sparkwap.core.names import audit_branch
from sparkwap.core.text import first_line
from sparkwap.gate.settings import Upkeep
from sparkwap.maintenance.choice import HORIZON_DAYS, Choice, choose
from sparkwap.maintenance.compaction import (
    Compactor,
    Execute,
    NotMoved,
    at_work,
    remove_leftovers,
)
from sparkwap.maintenance.file_choice import COSTS
from sparkwap.maintenance.history import Outdated
from sparkwap.maintenance.inspection import TableInspector
from sparkwap.maintenance.maintenance_report import Report, TableReport, lines
from sparkwap.maintenance.metadata_files import compression
from sparkwap.maintenance.rules import Rules
from sparkwap.maintenance.table_use import table_use

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

_DELETED_TOGETHER = 100


class Maintainer:
    """Maintains tables of one lake that the gate has built, and those of the ledger.

    Args:
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
        self._inspector = TableInspector(lake, self._branch, upkeep, rules)

    def look(
        self, tables: Collection[str] = (), budget: float | None = None, *, everything: bool = False
    ) -> Report:
        """Return what a maintenance would do now, without changing anything.

        Args:
            tables: Names of tables (``schema.name``) or schemas; all if empty.
            budget: Seconds for compactions; None for no limit.
            everything: Compact whatever can be compacted, even if it does not pay off.
        """
        now, inspector = self._now(), self._inspector
        inspector.use = table_use(self._lake, now)
        rows = inspector.tables(tables)
        cores = self._cores() if rows else 1
        reports = self._lake.store.map(
            lambda row: inspector.inspect(row, now, cores, everything), rows
        )
        inspector.find_metadata([one for one, _ in reports], now)
        facts = {one.name: fact for one, fact in reports}
        by_name = {one.name: one for one, _ in reports}
        for chosen in choose(facts.values(), budget, everything=everything):
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

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._lake.leases.now(), UTC)

    def _cores(self) -> int:
        """Return how many tasks Spark runs at the same time, by its default parallelism."""
        query = "select distinct spark_partition_id() from range(10000)"
        return max(1, len(self._execute(query)))

    # -- work ------------------------------------------------------------------------------------

    def _compact(self, one: TableReport, report: Report, left: float | None) -> None:
        chosen = one.choice
        if chosen is None or not (chosen.compact or chosen.waits):
            return
        work = chosen.fact.work
        row = self._row(one, "compact", chosen)
        if chosen.waits or (left is not None and left <= 0):
            one.choice = Choice(
                chosen.fact, False, reason=chosen.reason or "the budget is used up", waits=True
            )
            if one.name not in self._inspector.use.waited:
                self._record({**row, "outcome": "waits", "reason": one.choice.reason})
            return
        assert work is not None
        started = time.monotonic()
        compactor = Compactor(self._lake, self._execute, run_id=self._run_id, branch=self._branch)
        rules = self._inspector.rules_of(one.identifier)
        try:
            one.done = compactor.compact(one.identifier, work, rules, chosen.max_files)
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
        identifier, now = one.identifier, self._now()

        def stage() -> Staged[Outdated]:
            row = self._lake.store.backend.get(identifier)
            if row is None or row.kind != "table":
                return Staged(Outdated())
            document = self._lake.store.load(row.location)
            # A change of its branches and tags makes a commit of a writer fail.
            if at_work(self._lake, identifier, self._branch) is not None:
                one.compress = False
                return Staged(Outdated())
            found = self._inspector.outdated(identifier, document, now)
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
        self._inspector.find_metadata([one], self._now())
        files = [path for path in found if path in one.outdated.metadata_files]
        one.outdated = replace(one.outdated, metadata_files=tuple(files))
        if not files:
            return
        gone: list[str] = []
        for start in range(0, len(files), _DELETED_TOGETHER):
            part = files[start : start + _DELETED_TOGETHER]
            deleted = store.map(store.files.delete, part)
            gone += [path for path, done in zip(part, deleted, strict=True) if done]
            if left := [path for path in part if path not in gone]:
                report.failed.append(
                    f"{one.name}: {left[0]}, a metadata file of a former state, could not be "
                    "deleted. The table is as it was. Check the rights to delete there; the next "
                    "maintenance or sweep tries again."
                )
                break
        one.outdated = replace(one.outdated, metadata_files=tuple(gone))
        if gone:
            row = {**self._row(one, "metadata", None), "outcome": "done"}
            self._record({**row, "metadata_files": len(gone)})

    def _row(self, one: TableReport, action: str, chosen: Choice | None) -> dict[str, Any]:
        schema, name = one.identifier
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
        run_id: The run that has ended and released its lease.
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
