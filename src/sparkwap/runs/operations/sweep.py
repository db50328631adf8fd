"""``wap_sweep``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from sparkwap.core import next_command
from sparkwap.core.arguments import argument
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.errors import SparkwapError
from sparkwap.gate.settings import MOST_DAYS, Limits
from sparkwap.runs.operations.context import Context, Operation
from sparkwap.runs.operations.found import SweepResult


class NotSwept(SparkwapError):
    """The sweep could not remove everything that it had to; the message is the report."""


@dataclass(frozen=True, kw_only=True)
class Sweep(Operation):
    """Remove leftovers of runs: old audit branches, old tags, and files that nothing refers to."""

    name: ClassVar = "wap_sweep"
    older_than: int | None = argument(
        "days since the last activity on a run's own audit branch; by default, 7", default=None
    )
    named_older_than: int | None = argument(
        "the same for branches that users have named, such as pr_123; by default, 30, but not "
        "less than older_than",
        default=None,
    )
    files_older_than: int | None = argument(
        "days since the write of a file that nothing refers to, at least 1; by default, 3",
        default=None,
    )
    dry_run: bool = argument("only list what would be removed", default=False)

    def operate(self, gate: Context) -> Iterable[str]:
        # Imported here, because it imports PyArrow: half a second that not every command needs.
        from sparkwap.maintenance import sweeper

        work = sweeper.Sweeper(
            gate.lake,
            run_id=gate.run_id,
            limits=self._limits(gate.settings.sweep_limits),
            retention_days=gate.settings.tag_retention_days,
        )
        days = ("older_than", "named_older_than", "files_older_than")
        given = {key: value for key in days if (value := getattr(self, key)) is not None}
        report = work.look() if self.dry_run else work.sweep()
        result = SweepResult(
            report.done,
            tuple(branch.name for branch in report.plan.branches),
            len(report.plan.tags),
            report.snapshots,
            len(report.plan.manifests),
            report.found.count,
            report.found.size,
            tuple(report.dead),
            tuple(report.problems),
        )
        gate.found.append(CommandEnd("failed" if report.problems else "done", result))
        lines = sweeper.lines(report, next_command.operation(self.name, **given))
        if report.problems:
            raise NotSwept("\n".join(lines))
        return lines

    def _limits(self, default: Limits) -> Limits:
        run_days = default.run_days if self.older_than is None else self.older_than
        named, files = self.named_older_than, self.files_older_than
        limits = Limits(
            run_days,
            max(default.named_days, run_days) if named is None else named,
            default.file_days if files is None else files,
            default.manifest_days,
        )
        if limits.file_days < 1:
            problem = "files_older_than is 0: a running job would lose its files"
            raise self.refused(problem)
        if max(limits.run_days, limits.named_days, limits.file_days) > MOST_DAYS:
            raise self.refused(f"the most are {MOST_DAYS:,} days")
        return limits
