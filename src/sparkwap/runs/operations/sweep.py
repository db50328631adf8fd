"""``wap_sweep``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from sparkwap.core.arguments import argument
from sparkwap.core.errors import SparkwapError
from sparkwap.gate.settings import Limits
from sparkwap.runs.operations.context import Context, Operation


class NotSwept(SparkwapError):
    """Not all that was to go could be taken away; the message is the report."""


@dataclass(frozen=True, kw_only=True)
class Sweep(Operation):
    """Take away what runs have left behind: old audit branches, tags, files without a use."""

    name: ClassVar = "wap_sweep"
    older_than: int | None = argument(
        "days since anything happened on a run's own audit branch; 7 if left out", default=None
    )
    named_older_than: int | None = argument(
        "days, for branches that users have named, such as pr_123; 30 if left out, and no less "
        "than older_than",
        default=None,
    )
    files_older_than: int | None = argument(
        "days since a file was written that nothing refers to, 1 or more; 3 if left out",
        default=None,
    )
    dry_run: bool = argument(
        "true to be told, without any change; false, the default, to do it", default=False
    )

    def operate(self, gate: Context) -> Iterable[str]:
        # Here, as it brings PyArrow along: half a second that not every command needs.
        from sparkwap.maintenance import sweeper

        work = sweeper.Sweeper(
            gate.lake,
            run_id=gate.run_id,
            limits=self._limits(gate.settings.sweep_limits),
            retention_days=gate.settings.tag_retention_days,
        )
        days = ("older_than", "named_older_than", "files_older_than")
        given = {key: value for key in days if (value := getattr(self, key)) is not None}
        arguments = ", ".join(f"{key}: {value}" for key, value in given.items())
        again = "dbt run-operation wap_sweep" + (f" --args '{{{arguments}}}'" if given else "")
        report = work.look() if self.dry_run else work.sweep()
        told = sweeper.lines(report, again)
        if report.problems:
            raise NotSwept("\n".join(told))
        return told

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
            problem = "files_older_than is 0: a job that is at work would lose its files"
            raise self.refused(problem)
        return limits
