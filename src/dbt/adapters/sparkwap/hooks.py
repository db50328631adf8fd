"""The hooks of every project, which open and close the run."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap import lineage, rebase, run_results
from dbt.adapters.sparkwap.command import as_dbt_error, next_to_tell, tell, width
from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.dbt_nodes import maintenance_rules
from dbt.adapters.sparkwap.manifest import ProjectManifest
from dbt.adapters.sparkwap.reuse import Reuse
from dbt.adapters.sparkwap.sessions import logger
from dbt.adapters.sparkwap.statements import StatementGuard
from sparkwap.core import checkpoints
from sparkwap.core.checkpoints import checkpoint
from sparkwap.core.errors import SparkwapError
from sparkwap.runs import replay_moment, summary, time_travel
from sparkwap.runs.state import UNFINISHED

if TYPE_CHECKING:
    from sparkwap.runs.rebase_loop import Ended
    from sparkwap.runs.run import Run
    from sparkwap.runs.types import NodeFact, RunEnd

_REFUSAL = "Not everything was published; see the reasons above."


class RunHooks:
    """Opens and closes the run of a command."""

    def __init__(self, runs: CommandRun, reuse: Reuse, statements: StatementGuard) -> None:
        self._runs = runs
        self._statements = statements
        self._reuse = reuse
        self._command = runs.command

    # -- on-run-start ----------------------------------------------------------------------------

    @available.parse(lambda *a, **k: None)
    def open_run(self, selected: Sequence[str] = ()) -> str | None:
        """Open the run of this invocation, and return its audit branch."""
        run = self._runs.current()
        if run is None:
            return None
        if run.replay is not None:
            self._pin(run, selected)
        self._runs.record_unfinished()
        self._reuse.find(run)
        self._runs.opened_by_hook = True
        checkpoint(checkpoints.RUN_OPENED, run_id=run.run_id, branch=run.branch)
        return run.branch

    def _pin(self, run: Run, selected: Sequence[str]) -> None:
        """Find the snapshots of the tables that a replay reads but does not build."""
        manifest = self._command.manifest
        try:
            with as_dbt_error():
                time_travel.require(manifest.not_replayable(selected))
                run.pin(manifest.outside(selected))
        except DbtRuntimeError:
            # Its branch is empty, so later commands must not continue it.
            self._runs.record(run, "closed")
            raise

    @available.parse(lambda *a, **k: False)
    def is_replay(self) -> bool:
        """Return whether this invocation is a replay."""
        with as_dbt_error():
            return self._command.as_of is not None

    @available.parse(lambda *a, **k: "current_timestamp()")
    def now(self) -> str:
        """Return the SQL of the present time; in a replay, of its moment."""
        with as_dbt_error():
            moment = self._command.as_of
        return "current_timestamp()" if moment is None else replay_moment.literal(moment.moment.at)

    # -- on-run-end ------------------------------------------------------------------------------

    @available.parse(lambda *a, **k: {})
    def close_run(self, results: Iterable[Any]) -> dict[str, Any]:
        """Close the run: the gate decides and publishes.

        Return ``lines`` to print, and ``failed``: whether the hook has to make dbt fail.
        """
        from sparkwap.runs import rebase_loop

        run = self._runs.current()
        if run is None:
            return {"lines": [], "failed": False}
        results, manifest = list(results), self._command.read_manifest()
        done = self._reuse.without(run, results)
        nodes = manifest.nodes(done)
        try:
            closing = self._closed(run, manifest, nodes, done)
        except Exception as error:
            # To dbt these nodes are successful, so `dbt retry` would not repeat them.
            unfinished = {node.node_id: UNFINISHED for node in nodes}
            run_results.mark_rejected(results, unfinished, manifest.tests())
            message = _not_closed(error, run.branch)
            if self._runs.alerts is not None:
                self._runs.alerts.broke_down(message, list(unfinished))
            logger.debug(traceback.format_exc())
            # Later hooks must not run: nobody knows what was published. dbt shows the refusal of
            # this hook's statement, also with --quiet.
            self._runs.refusal = message
            self._runs.write_results(run, None, message)
            lines = summary.broke_down(run_id=run.run_id, branch=run.branch)
            return {"lines": lines, "failed": True}
        finally:
            self._runs.leave(run)
        if closing.rebase is not None:
            closing = self._build_again(run, closing, manifest)
        self._log_verdicts(run, closing)
        about = {"run_id": run.run_id, "branch": run.branch}
        checkpoint(checkpoints.RECORDING, **about)
        self._runs.record(run, closing.left)
        unwritten = self._runs.write_results(run, closing, failed=run_results.failed(results))
        if unwritten:
            unwritten += (
                " The run itself is complete, but a program that reads this file takes it for "
                "failed."
            )
        checkpoint(checkpoints.RECORDED, **about)
        skipped = run_results.mark_rejected(results, closing.rejected(), manifest.tests())
        published = () if closing.refused else closing.decision.publish
        run_results.locate_failures(results, run.candidates.overlay.side_schema, published)
        checkpoint(checkpoints.MARKED, **about)
        remarks = [
            *(run.replay.remark() if run.replay else ()),
            *rebase_loop.format_rebase(closing),
        ]
        audited_again = run_results.audited_again(skipped)
        reused = self._reuse.line(run, results)
        found = (
            run.left_nothing(), manifest.dropped(), audited_again, _shared(run, done), reused,
            unwritten,
        )  # fmt: skip
        remarks += filter(None, found)
        columns = width()
        lines = summary.lines(closing, **about, remarks=remarks, width=columns, with_next=False)
        lines += next_to_tell(summary.next_lines(closing, run.branch, columns))
        if not lines and reused:
            lines = [f"sparkwap  {reused}"]
        if self._runs.alerts is not None:
            lines += self._runs.alerts.closed(closing, manifest, results)
        lines += lineage.closed(self._command, run, closing, results)
        lines += [*self._maintained(run, closing), *self._swept(run)]
        return {"lines": lines, "failed": closing.failed and self._fail(results)}

    def _closed(
        self, run: Run, manifest: ProjectManifest, nodes: Sequence[NodeFact], results: Sequence[Any]
    ) -> RunEnd:
        selected = {result.node.unique_id for result in results}
        args = self._command.config.args
        deferred = run_results.deferred(self._command.dbt_manifest(), args, selected)
        return run.close(
            nodes,
            manifest.tests(),
            manifest.seen(results, deferred),
            manifest.known(),
            varied=manifest.inputs.varied,
        )

    def _build_again(self, run: Run, closing: RunEnd, manifest: ProjectManifest) -> RunEnd:
        """Rebase a run whose reads have moved on main."""
        from sparkwap.runs import rebase_loop

        def build(node_ids: tuple[str, ...], limit: float | None) -> Ended:
            return rebase.build(
                self._command.config,
                [manifest.selector(node_id) for node_id in node_ids],
                branch=run.branch,
                run_id=run.run_id,
                target_path=self._command.target_path,
                limit=limit,
                settings=self._command.environment,
            )

        with as_dbt_error():
            return rebase_loop.follow(run, closing, build, logger.info)

    def _log_verdicts(self, run: Run, closing: RunEnd) -> None:
        log = self._runs.log
        if log is None:
            return
        for node in closing.nodes:
            verdict = closing.decision.verdicts[node.node_id]
            refused = verdict.outcome == "published" and closing.refused is not None
            log.tell(
                "refused" if refused else verdict.outcome,
                run_id=run.run_id,
                branch=run.branch,
                table=node.name,
                node_id=node.node_id,
                reason=closing.refused if refused else "; ".join(verdict.reasons) or None,
            )

    def _swept(self, run: Run) -> list[str]:
        """Sweep after a run if the project enables it; never makes the run fail."""
        if run.settings.sweep == "never":
            return []
        # Imported late, because it loads PyArrow, which most commands do not need.
        from sparkwap.maintenance.sweeper import end_of_run

        return end_of_run(self._command.lake, run.run_id, run.settings)

    def _maintained(self, run: Run, closing: RunEnd) -> list[str]:
        """Maintain the project's tables after a publish if it enables it; never fails the run.

        A run on a branch that the user has named may be that of a pull request, with other code.
        """
        settings = run.settings
        publishes = closing.published and not closing.refused and settings.publish != "never"
        if settings.upkeep.when == "never" or not publishes or settings.branch is not None:
            return []
        # Imported late, because it loads PyArrow, which most commands do not need.
        from sparkwap.maintenance.maintainer import end_of_run

        with self._statements.own():
            return end_of_run(
                self._command.lake,
                self._command.connections.rows_of,
                run.run_id,
                settings.upkeep,
                lambda: maintenance_rules(self._command.dbt_manifest()),
            )

    def _fail(self, results: Sequence[Any]) -> bool:
        """Return whether dbt would end with success, and if so, make it fail.

        dbt treats an exception in an on-run-end hook as a keyboard interrupt. A failing statement
        of the hook is an ordinary error with exit code 1, so the hook sends a statement, which
        the guard refuses.
        """
        if run_results.failed(results):
            return False
        self._runs.refusal = _REFUSAL
        return True

    # -- commands without hooks ------------------------------------------------------------------

    def before_cleanup(self) -> None:
        """Close the run of `dbt clone`, which calls no hooks; report a run that is still open."""
        run, interrupted = self._runs.active, sys.exc_info()[0] is not None
        if run is not None and self._command.name == "clone" and not interrupted:
            self._publish_copies(run)
        if run is not None and interrupted:
            # dbt's own results contain only the nodes that have run.
            self._runs.record_unfinished()
        elif run is not None and self._runs.opened_by_hook:
            caught = [change.message for change in run.caught_on_main()]
            self._runs.write_results(run, None, "A hook failed before the gate decided.")
            tell(summary.not_closed(run_id=run.run_id, branch=run.branch, caught=caught))
            tell(next_to_tell(summary.next_of_not_closed(run.branch)))

    def _publish_copies(self, run: Run) -> None:
        with as_dbt_error():
            manifest = self._command.manifest
            closing = run.close_copies(manifest.tests(), manifest.known())
        self._runs.record(run, closing.left)
        if problem := self._runs.write_results(run, closing):
            raise DbtRuntimeError(problem)
        tell(summary.lines(closing, run_id=run.run_id, branch=run.branch, width=width()))
        tell(lineage.closed(self._command, run, closing))
        if closing.refused:
            raise DbtRuntimeError(closing.refused)


def _shared(run: Run, results: Sequence[Any]) -> str | None:
    """Return a line about the tests that shared statements have answered; None if none."""
    tests = sum(str(result.node.resource_type) == "test" for result in results)
    shared = run.trail.shared.values()
    added = sum(one.how == "incremental" for one in shared)
    if not shared:
        return None
    line = f"Shared statements answered {len(shared):,} of {tests:,} tests"
    return f"{line}, {added:,} of them from the changed rows alone." if added else f"{line}."


def _not_closed(error: Exception, branch: str) -> str:
    """Return the message of a failed close; sparkwap's own errors have a complete message."""
    if isinstance(error, SparkwapError):
        return str(error)
    return (
        f"The gate failed while it closed the run ({type(error).__name__}: {error}). "
        f"{summary.TOGETHER} Unpublished tables are on branch {branch}: `dbt run-operation "
        "wap_status` shows them. `dbt retry` publishes nothing twice."
    )
