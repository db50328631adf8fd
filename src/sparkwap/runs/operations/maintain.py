"""``wap_maintain``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from sparkwap.core.arguments import argument
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.errors import SparkwapError
from sparkwap.runs.operations.context import Context, Operation
from sparkwap.runs.operations.found import MaintenanceResult, TableMaintenance


class NotMaintained(SparkwapError):
    """The maintenance of a table failed; the message is the report."""


@dataclass(frozen=True, kw_only=True)
class Maintain(Operation):
    """Compact tables where it saves more than it takes, and remove history past its age."""

    name: ClassVar = "wap_maintain"
    tables: tuple[str, ...] = argument(
        "the tables (schema.table) or schemas; by default, all that this project builds in this "
        "target, and the ledger",
        default=(),
    )
    budget: int | None = argument(
        "seconds for compactions, those first that save most; by default, no limit", default=None
    )
    everything: bool = argument(
        "merge all small files, even where it does not pay off",
        default=False,
    )
    explain: bool = argument(
        "only print what each table has, and what would be done",
        default=False,
    )

    def operate(self, gate: Context) -> Iterable[str]:
        # Imported here, because it imports PyArrow: half a second that not every command needs.
        from sparkwap.maintenance.maintainer import Maintainer
        from sparkwap.maintenance.maintenance_report import lines

        if gate.execute is None:
            raise self.refused("there is no session of Spark")
        work = Maintainer(
            gate.lake,
            gate.execute,
            run_id=gate.run_id,
            upkeep=gate.settings.upkeep,
            rules=gate.rules(),
        )
        how = work.look if self.explain else work.maintain
        report = how(self.tables, self.budget, everything=self.everything)
        tables = tuple(
            TableMaintenance(
                table.name,
                table.files,
                table.delete_files,
                table.bytes,
                table.readings,
                table.done is not None,
                table.problem,
            )
            for table in report.tables
        )
        result = MaintenanceResult(report.done, tables, tuple(report.failed))
        gate.found.append(CommandEnd("failed" if report.failed else "done", result))
        found = lines(report)
        if report.failed:
            raise NotMaintained("\n".join(found))
        return found
