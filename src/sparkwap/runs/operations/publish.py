"""``wap_publish``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from sparkwap.catalog import lease as leasing
from sparkwap.core import next_command
from sparkwap.core.arguments import argument
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.gate import facts
from sparkwap.ledger.records import candidates_digest
from sparkwap.runs import results, summary
from sparkwap.runs.operations.context import Context, Operation
from sparkwap.runs.state import pending


class NotPublished(SparkwapError):
    """A branch was not published, or only in part; the message is the summary."""


@dataclass(frozen=True, kw_only=True)
class PublishBranch(Operation):
    """Publish the tables of a held branch, by the test results that it already has."""

    name: ClassVar = "wap_publish"
    branch: str | None = argument("the audit branch to publish", default=None)
    mode: Literal["run", "lineage"] = argument(
        "run (all of its tables or none, the default) or lineage", default="run"
    )
    candidates: str | None = argument(
        "the digest of its candidates when `sparkwap pr publish` compared their code; by default, "
        "those that it has are published",
        default=None,
    )

    def operate(self, gate: Context) -> Iterable[str]:
        from sparkwap.runs.run import Run
        from sparkwap.runs.types import Invocation

        one = self.open_branch(gate.lake.branches.all(), self.branch)
        run = Run(
            gate.lake,
            Invocation(
                run_id=gate.run_id,
                branch=one.branch,
                settings=replace(gate.settings, publish=self.mode),
                command=self.name,
                project=gate.project,
                target_name=gate.target_name,
            ),
            manifest=gate.manifest,
            table_of_node=gate.table_of_node,
            code_of_node=gate.code_of_node,
        )
        with self._held(gate, one.branch):
            run.candidates.load()
            run.watch_main()
            self._require_compared(gate, one.branch)
            closing = run.close([], gate.tests(), [], gate.known())
        if all(node.kind == facts.LEFTOVER for node in closing.nodes):
            raise ConfigError(
                f"The ledger has no tables of {one.branch} that could be published, because its "
                "run did not end. Nothing was changed. Build it again: "
                f"{next_command.dbt('build', branch=one.branch)}, or drop it: "
                f"{next_command.operation('wap_discard', one.branch)}"
            )
        found = results.run_results(run.invocation, closing)
        gate.found.append(CommandEnd(found.outcome, found))
        lines = summary.lines(
            closing,
            run_id=gate.run_id,
            branch=one.branch,
            width=gate.width,
            with_next=gate.next_steps,
        )
        if closing.refused or closing.decision.failed or not closing.published:
            raise NotPublished("\n".join(lines))
        return lines

    def _require_compared(self, gate: Context, branch: str) -> None:
        now = candidates_digest(pending(gate.lake.ledger.branch_history(branch).nodes))
        if self.candidates not in (None, now):
            raise NotPublished(
                f"{branch} was built again while its publish was starting, so nothing was "
                "published; readers of main see no change. Compare its code again: "
                f"{next_command.sparkwap(f'pr publish --branch {branch}')}"
            )

    @contextmanager
    def _held(self, gate: Context, branch: str) -> Iterator[None]:
        holding = leasing.hold(
            gate.lake.leases, run_id=gate.run_id, branch=branch, command=self.name
        )
        try:
            yield
        finally:
            holding.release()
