"""``wap_discard``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from sparkwap.catalog import lease as leasing
from sparkwap.catalog.model import OpenBranch
from sparkwap.core import next_command
from sparkwap.core.arguments import argument
from sparkwap.core.errors import SparkwapError
from sparkwap.core.text import counted
from sparkwap.runs.operations.context import Context, Operation
from sparkwap.runs.state import pending


@dataclass(frozen=True, kw_only=True)
class Discard(Operation):
    """Discard an audit branch, with all tables and rows that exist only on it."""

    name: ClassVar = "wap_discard"
    branch: str | None = argument("the audit branch to discard", default=None)
    force: bool = argument("discard it even if a run is using it", default=False)

    def operate(self, gate: Context) -> Iterable[str]:
        lake = gate.lake
        found = lake.branches.all()
        if self.branch and pending(lake.ledger.branch_history(self.branch).nodes):
            # Its nodes may all have failed before they had a candidate.
            found.append(OpenBranch(self.branch, (), ()))
        one = self.open_branch(found, self.branch)
        now = lake.leases.now()
        for lease in lake.leases.all():
            if lease.branch == one.branch and not self.force and leasing.alive(lease, now):
                in_use = leasing.describe(lease, lives=True)
                raise SparkwapError(
                    f"{one.branch} is {in_use}. Nothing was discarded. "
                    "Wait for that run, or end it. If it died on another machine, its lease "
                    "expires 15 minutes after its last sign of life (24 hours on a catalog "
                    "without a clock). To discard the branch nevertheless: "
                    f"{next_command.operation(self.name, one.branch, force=True)}. "
                    "The run then publishes nothing."
                )
        gone = lake.branches.discard(one.branch, gate.run_id)
        left = sorted({table.identifier for table in one.tables} - set(gone.tables))
        ways = [f"alter table {'.'.join(name)} drop branch {one.branch}" for name in left]
        if one.tables and not (gone.tables or gone.schemas):
            raise SparkwapError(
                f"Nothing was discarded: no run has opened the branch {one.branch}, only its name "
                f"is that of an audit branch. To drop it: {'; '.join(ways)}"
            )
        count = counted(len(gone.tables) + len(gone.side), "table")
        yield f"Discarded {gone.branch} with {count} on it; readers of main see no change."
        for way in ways:
            yield f"Not dropped: a branch that no run has opened. To drop it: {way}"
        for schema in gone.kept:
            yield f"Not dropped: the schema {schema}, which only has the name of a side schema."
