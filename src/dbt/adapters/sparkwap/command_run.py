"""The run of a dbt command: opened at its first use, ended when the gate has closed it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from dbt_common.exceptions import DbtRuntimeError

from dbt import selected_resources
from dbt.adapters.sparkwap import dbt_nodes, rebase
from dbt.adapters.sparkwap.command import DbtCommand, as_dbt_error, tell
from dbt.adapters.sparkwap.run_results import write_unfinished
from dbt.adapters.sparkwap.sessions import BRANCH, RUN_ID, base_settings, logger
from sparkwap.catalog import Identifier, TableState, lease
from sparkwap.core import checkpoints, command_end, names, steplog
from sparkwap.core.checkpoints import checkpoint
from sparkwap.core.command_end import CommandEnd
from sparkwap.runs import relation_overlay, results, state
from sparkwap.runs.state import RESULTS, Continuation, LastRun, RetryRecord, run_of

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.alerting import RunAlerts
    from sparkwap.runs.run import Run
    from sparkwap.runs.types import RunEnd


class CommandRun:
    """The run of one dbt command, and the branch that a reading command reads.

    Attributes:
        closed: The run after the gate's decision; hooks of other packages may follow.
        refusal: The reason to refuse all further statements; None to send them.
        opened_by_hook: Whether the hook on-run-start was called, so that on-run-end closes the run.
        continues_branch: Whether the run continues the branch of an earlier command.
        alerts: The alerts of the run; None if the project has no routes.
        log: The structured log; None if it is disabled.
    """

    def __init__(self, command: DbtCommand) -> None:
        self.command = command
        self.active: Run | None = None
        self.closed: Run | None = None
        self.refusal: str | None = None
        self.opened_by_hook = False
        self.continues_branch = False
        self.alerts: RunAlerts | None = None
        self.log: steplog.StepLog | None = None
        self.on_step: Callable[[checkpoints.Checkpoint, Mapping[str, Any]], None] = (
            lambda step, about: None
        )
        self._lock = threading.RLock()
        self._settled = False
        self._lease: lease.Holding | None = None
        self._end_listening: Callable[[], None] = lambda: None
        self._read_branch_known = False
        self._retry_record = None if command.opens_run else RetryRecord(command.target_path)
        relation_overlay.activate(None)

    def current(self) -> Run | None:
        """Return the run of this command, and open it if necessary; None for reading commands."""
        with self._lock:
            if self.active is None and not self._settled and self.command.opens_run:
                with as_dbt_error():
                    self.active = self._open()
            return self.active

    # -- what the command reads ------------------------------------------------------------------

    def session_settings(self) -> Mapping[str, str]:
        """Return the settings of every Spark session of this command."""
        creds = self.command.credentials
        settings = base_settings(creds.catalog_name, creds.server_side_parameters)
        if self.closed is not None:  # later statements read main, as readers do
            return settings
        run = self.current()
        branch = run.branch if run else self.read_branch()
        if branch:
            settings[BRANCH] = branch
        if run:
            settings[RUN_ID] = run.run_id
        return settings

    def read_branch(self) -> str | None:
        """Return the branch of a reading command, and activate its side schemas.

        A branch that does not exist is an error, because Spark would silently read `main`.
        """
        branch = self.command.settings.branch
        if branch and not self._read_branch_known:
            from sparkwap.runs.candidates import overlay_of

            lake = self.command.lake
            found = sorted(entry.branch for entry in lake.branches.all())
            if branch not in found:
                raise DbtRuntimeError(
                    f"There is no open audit branch '{branch}' (wap_branch), so nothing was read. "
                    f"Open: {', '.join(found) or 'none'}. Without wap_branch, main is read."
                )
            relation_overlay.activate(overlay_of(lake, branch))
            self._read_branch_known = True
        return branch

    def overlay(self) -> relation_overlay.Overlay:
        """Return the overlay of the side schemas and pinned snapshots that this command reads."""
        if self.current() is None:
            self.read_branch()
        return relation_overlay.active()

    def state(self, identifier: Identifier) -> TableState | None:
        """Return the state of the table or view that a name refers to in this command."""
        schema, name = identifier
        return self.command.lake.state((self.overlay().schema_of(schema, name), name))

    # -- opening ---------------------------------------------------------------------------------

    def _open(self) -> Run:
        from dbt.adapters.sparkwap.alerting import RunAlerts
        from sparkwap.runs.run import Run
        from sparkwap.runs.types import Invocation

        command, settings = self.command, self.command.settings
        if settings.openlineage != "never":
            # Imported late, because most projects send no events.
            from sparkwap.lineage.send import require_client

            require_client()
        lake, dbt_manifest = command.lake, command.dbt_manifest()
        tables = dbt_nodes.tables(dbt_manifest)
        names.require_own(tables, lake.alike(tables))
        self.start_log()
        # Recover first, because the following steps read the published state from the ledger.
        for line in lake.publishing.recover():
            logger.info(line)
        # Read this before the first node runs: dbt adds the macros that nodes call at run time.
        command.calls = dbt_nodes.calls(dbt_manifest)
        rebuilt = rebase.rebuilt_branch()
        continuation, moment = self._find_continuation(), command.as_of
        branch = self._take_branch(continuation)
        if branch is None:
            # Another command of this project took the branch at the same moment.
            continuation = Continuation(gone=continuation.gone)
            branch = self._own_branch()
            self._lease = self._hold(branch)
        self.continues_branch = continuation.run is not None
        run = Run(
            lake,
            Invocation(
                run_id=command.run_id,
                branch=branch,
                settings=settings,
                command=command.name,
                project=command.project_name,
                target_name=command.target_name,
                rebuild_of=None if rebuilt is None else rebuilt[1],
                # A retried test has vars too, but they may differ from those of the build.
                repeats=command.is_retry and command.name != "test",
                part=command.part,
                session=command.credentials.session_token(command.project_root),
                replay=moment,
            ),
            # A clone copies tables, whatever code has built them.
            manifest=None if command.name == "clone" else command.packed_manifest,
            table_of_node=lambda node_id: command.manifest.table(node_id),
            code_of_node=lambda node_id: command.manifest.code(node_id),
        )
        if settings.alerts.routes and rebuilt is None:
            # The run that is rebased sends the alerts of its rebuild.
            self.alerts = RunAlerts(command, run)
        if not names.is_run_branch(run.branch):
            lake.branches.require_own(tables | dbt_nodes.source_tables(dbt_manifest), run.branch)
        run.warm_up()
        run.candidates.load()
        # Do this before the run opens its first session.
        run.watch_main(
            tables,
            application=lambda: command.connections.application(guarded=settings.guard),
            same_clock=command.credentials.embedded,
        )
        self._end_listening = checkpoints.listen(self.on_step)
        relation_overlay.activate(run.candidates.overlay)
        checkpoint(checkpoints.RUN_OPENING, run_id=run.run_id, branch=run.branch)
        # A run that is killed leaves these results, so no program takes older ones for its own.
        if problem := self.write_results(run, None, state.UNFINISHED):
            raise DbtRuntimeError(problem)
        self.record(run, "open", continuation.gone)
        if continuation.line is not None:
            tell([continuation.line])
        return run

    def _find_continuation(self) -> Continuation:
        """Return the earlier command whose branch this command continues by itself."""
        command, settings = self.command, self.command.settings
        if settings.branch is not None or command.is_retry or command.name == "clone":
            return Continuation()
        runs = LastRun.waiting(command.target_path, command.target_name)
        if not runs or command.as_of is not None:
            return Continuation()
        return state.find_continuation(
            command.lake,
            runs,
            time.time(),
            command=command.name,
            publish=settings.publish,
            selected=selected_resources.SELECTED_RESOURCES,
            known=lambda: {n: command.manifest.table(n) for n in command.manifest.known()},
            last=LastRun.last_branch(command.target_path, command.target_name),
            part=command.part,
        )

    def _take_branch(self, continuation: Continuation) -> str | None:
        """Lease the run's branch; returns None if another command has just taken it to continue."""
        branch = continuation.run.branch if continuation.run else self._own_branch()
        self._lease = self._hold(branch)
        if continuation.run and lease.taken_before(self.command.lake.leases, self._lease.lease):
            self._lease.release()
            return None
        return branch

    def _own_branch(self) -> str:
        """Return the audit branch: the user's, the retried run's, or a new one."""
        command, named = self.command, self.command.settings.branch
        if command.is_retry:
            results = command.retried_results
            retried, last = run_of(results), command.retried
            ledger = command.lake.ledger
            # Check this for named branches too: the retry must not publish that run twice.
            if last is not None and (last.outcome == "open" or state.is_unfinished(results)):
                state.require_unpublished(ledger, last)
            if named is None and retried is not None:
                # The retried run may have continued the branch of an earlier run.
                closed = [] if last else ledger.of_run("runs", retried)
                found = [last.branch] if last else [str(row["branch"]) for row in closed]
                return found[-1] if found else names.audit_branch(retried, None)
        return names.audit_branch(command.run_id, named)

    def _hold(self, branch: str) -> lease.Holding:
        command = self.command
        name = command.name if command.as_of is None else lease.REPLAY
        return lease.hold(command.lake.leases, run_id=command.run_id, branch=branch, command=name)

    def start_log(self) -> None:
        """Start the structured log if the project enables it."""
        wanted = self.command.settings.log
        if self.log is None and wanted != "none":
            to_dbt = wanted == "dbt"
            write = logger.info if to_dbt else steplog.to_file(self.command.target_path)
            self.log = steplog.StepLog(write, self.command.run_id).start()

    # -- records for later commands --------------------------------------------------------------

    def record(
        self,
        run: Run,
        outcome: Literal["open", "closed", "held", "rejected"],
        gone: Collection[str] = (),
    ) -> None:
        """Record the run for later commands."""
        LastRun(
            run.run_id,
            run.branch,
            outcome,
            command=self.command.name,
            target=self.command.target_name,
            at=time.time(),
            publish="replay" if run.replay else run.settings.publish,
            settings=self.command.environment,
        ).write(self.command.target_path, gone)

    def write_results(
        self,
        run: Run,
        end: RunEnd | None,
        message: str | None = None,
        *,
        failed: Sequence[str] = (),
    ) -> str | None:
        """Write the results of the run for machines; return the problem if they are not written.

        Args:
            end: Its end; None while it has none.
            message: The error, if the gate has not closed the run.
            failed: The names of all nodes and tests that have failed.
        """
        result = results.run_results(run.invocation, end)
        outcome = "failed" if end is None else result.outcome
        if failed and outcome != "rejected" and end is not None:
            outcome = "rejected"  # by a test without a table of the run, such as one of a source
            message = (
                message or f"These failed, and belong to no table of the run: {', '.join(failed)}."
            )
        found = CommandEnd(outcome, result, message)
        path = command_end.results_file(self.command.target_path)
        try:
            command_end.write(path, f"dbt {self.command.name}", found)
        except OSError as error:
            return f"{path} cannot be written: {error.strerror}."
        return None

    @property
    def selected(self) -> frozenset[str]:
        """Ids of the nodes and tests that the command is to run."""
        command = self.command
        return frozenset(
            command.to_retry if command.is_retry else selected_resources.SELECTED_RESOURCES
        )

    def record_unfinished(self) -> None:
        """Write results that let `dbt retry` repeat this run if it is killed."""
        command = self.command
        try:
            write_unfinished(command.target_path / RESULTS, command.dbt_manifest(), self.selected)
        except Exception as error:
            # Not an error, because the user can also name the branch.
            logger.debug(f"the results of the open run were not written: {error}")

    # -- the end ---------------------------------------------------------------------------------

    def leave(self, run: Run) -> None:
        """Leave the audit branch after the gate's decision.

        Later hooks of other packages read and write main: rows on the branch would be lost.
        """
        self.end()
        self.closed = run
        self.command.connections.pool.renew()

    def end(self) -> None:
        """Release the branch's lease; this command opens no further run."""
        with self._lock:
            self._settled = True
            self.active = None
            held, self._lease = self._lease, None
            self._end_listening()
            relation_overlay.activate(None)
        if held is not None:
            held.release()

    def cleanup(self) -> None:
        """End the run when dbt closes its connections; later commands of the process read main."""
        self.closed = None
        self.end()
        if self.log is not None:
            self.log.stop()
        if self._retry_record is not None:
            self._retry_record.put_back(self.command.run_id)
