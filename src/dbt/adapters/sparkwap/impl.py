"""The adapter: dbt-spark's, with what macros need to build behind the gate."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

import click
import sqlparse
from dbt.adapters.base.impl import ConstraintSupport
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.spark.column import SparkColumn
from dbt.adapters.spark.impl import SparkAdapter, SparkConfig
from dbt.flags import get_flags
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.events.functions import fire_event
from dbt_common.events.types import Note
from dbt_common.exceptions import DbtRuntimeError
from dbt_common.invocation import get_invocation_id

from dbt import selected_resources
from dbt.adapters.sparkwap import again, anomalies, docs, facts
from dbt.adapters.sparkwap.column import SparkWapColumn
from dbt.adapters.sparkwap.connections import SparkWapConnectionManager
from dbt.adapters.sparkwap.credentials import SparkWapCredentials
from dbt.adapters.sparkwap.listening import statement_of
from dbt.adapters.sparkwap.python_models import model_frame, named_in
from dbt.adapters.sparkwap.record import all_batches, to_retry, write_unfinished
from dbt.adapters.sparkwap.relation import SparkWapRelation, as_of
from dbt.adapters.sparkwap.seeds import column_types, seed_sql
from dbt.adapters.sparkwap.sessions import base_settings, logger
from sparkwap.audits.anomaly import column_metrics
from sparkwap.catalog import Kind, TableState, lease
from sparkwap.catalog.metadata import WAP_ENABLED
from sparkwap.core import names, next_command, sqllex, sqltext, steplog, steps
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.core.node import Node, building
from sparkwap.core.redaction import redact
from sparkwap.core.retry import Fate
from sparkwap.core.spark_types import family, widens, wider
from sparkwap.core.steps import reached
from sparkwap.gate import connect_guard, guard, summary
from sparkwap.gate.placement import Desired, in_place
from sparkwap.gate.settings import GateSettings, from_environment, of_one_call, table_names
from sparkwap.landing.sql import checked, plain_cast
from sparkwap.ledger import manifests
from sparkwap.runs import overlay, replay, state
from sparkwap.runs.state import RESULTS, UNFINISHED, GoingOn, LastRun, RetryRecord, run_of

# What reaches the catalog (PyIceberg, PyArrow, SQLAlchemy) is imported where it is first used: it
# takes a second, and `dbt parse`, `dbt ls` and the like have no use for it.
if TYPE_CHECKING:
    from multiprocessing.context import SpawnContext

    import agate
    from dbt.adapters.base.impl import FreshnessResponse
    from dbt.adapters.contracts.connection import AdapterResponse
    from dbt.adapters.contracts.relation import RelationConfig
    from dbt_common.contracts.metadata import CatalogTable
    from pyspark.sql import SparkSession

    from dbt.adapters.sparkwap.alerting import RunAlerts
    from sparkwap.publish.lake import Lake
    from sparkwap.runs.rebuilding import Ended
    from sparkwap.runs.run import Run
    from sparkwap.runs.types import Closing

_T = TypeVar("_T")

# Commands that write or audit, and so open a run. All others read `main`, or the branch that
# `wap_branch` names.
RUN_COMMANDS = frozenset({"build", "run", "test", "seed", "snapshot", "clone"})
_DBTS_CLOCK = len("12:34:56  ")
_NARROWEST = 40
LOOKING = frozenset({"show", "compile"})
"""Commands that compile nodes and open no run."""


@dataclass
class SparkWapConfig(SparkConfig):
    """Model configs that dbt-spark does not have.

    sort_by: columns or expressions that the table's files are ordered by.
    format_version: Iceberg's table format version.
    hard_deletes_at: for snapshots, an aggregate over the source rows that says when a row found
        missing was deleted; the time of the run if absent.
    contract_types: what a contract compares: ``family``, a type without size, precision and scale,
        as dbt documents it; or ``exact``.
    wap_writes: tables without a gate that the node's hooks and header may write to and change.
    """

    file_format: str = "iceberg"
    sort_by: list[str] | str | None = None
    format_version: int | None = None
    hard_deletes_at: str | None = None
    contract_types: str = "family"
    wap_writes: list[str] | str | None = None


class SparkWapAdapter(SparkAdapter):
    Relation = SparkWapRelation
    Column = SparkWapColumn
    # dbt-spark says which class it is, not that it may be a subclass.
    ConnectionManager = SparkWapConnectionManager  # type: ignore[assignment]
    AdapterSpecificConfigs = SparkWapConfig

    connections: SparkWapConnectionManager

    CONSTRAINT_SUPPORT: ClassVar[dict[ConstraintType, ConstraintSupport]] = {  # type: ignore[misc]
        ConstraintType.not_null: ConstraintSupport.ENFORCED,
        ConstraintType.check: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.unique: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.primary_key: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_SUPPORTED,
    }
    _capabilities = CapabilityDict(
        {
            Capability.TableLastModifiedMetadata: CapabilitySupport(support=Support.Full),
            Capability.TableLastModifiedMetadataBatch: CapabilitySupport(support=Support.Full),
            Capability.SchemaMetadataByRelations: CapabilitySupport(support=Support.Full),
        }
    )

    def __init__(self, config: Any, mp_context: SpawnContext) -> None:
        super().__init__(config, mp_context)
        self._lock = threading.RLock()
        self._reading = threading.local()
        # Of the node that a thread works on: `writes`, its config; `own`, who sends statements.
        self._thread = threading.local()
        self._side_schemas: dict[str, str] = {}
        logs = getattr(get_flags(), "LOG_PATH", None)
        if logs:  # dbt's log has the code of models, and what Spark says of their rows
            steplog.make_private(Path(str(logs)), "dbt.log*")
        self._lake: Lake | None = None
        self._run: Run | None = None
        self._lease: lease.Holding | None = None
        self._replay: replay.Replay | None = None
        self._replay_known = False
        self._run_settled = False
        self._opened_by_hook = False
        # The run that the gate has decided: hooks of other packages may come after its own.
        self._closed_run: Run | None = None
        self._refusal: str | None = None
        # What is wrong with the server or catalog: empty for nothing, None while it is not known.
        self._probed: str | None = None
        self._log: steplog.StepLog | None = None
        self._alerts: RunAlerts | None = None
        self._read_branch_known = False
        self._facts: facts.Manifest | None = None
        self._calls: manifests.Calls | None = None
        # To its adapter a retry looks like the command that it repeats.
        context = click.get_current_context(silent=True)
        self._went_on = False
        self._is_retry = context is not None and context.info_name == "retry"
        self._retry_record = (
            None if self._command in RUN_COMMANDS else RetryRecord(self._target_path)
        )
        self._here = threading.local()
        self._end_listening: Callable[[], None] = lambda: None
        self.connections.session_settings = self._session_settings
        self.connections.check_statement = self._check_statement
        self.connections.check_request = self._check_request
        self.connections.watch_statement = self._watch_statement
        overlay.activate(None)

    # -- the lake and the run --------------------------------------------------------------------

    @property
    def credentials(self) -> SparkWapCredentials:
        return cast(SparkWapCredentials, self.config.credentials)

    @property
    def lake(self) -> Lake:
        """The lake's catalog, reached without Spark."""
        from sparkwap.publish.lake import Lake

        with self._lock:
            if self._lake is None:
                if self.credentials.embedded:
                    # The server lays the lake out when it starts for the first time.
                    self.connections.endpoint()
                settings = self.credentials.catalog_settings(self._project_root)
                self._lake = Lake(self.credentials.catalog_name, settings)
            return self._lake

    @property
    def _project_root(self) -> str:
        return str(getattr(self.config, "project_root", "."))

    @property
    def _target_path(self) -> Path:
        return Path(self._project_root) / str(getattr(self.config, "target_path", "target"))

    @property
    def _command(self) -> str:
        # `dbt debug` has a profile only, which has no arguments.
        args = getattr(self.config, "args", None)
        return str(getattr(args, "which", "") or getattr(args, "WHICH", ""))

    def current_run(self) -> Run | None:
        """The run of this invocation; None for commands that only read."""
        with self._lock:
            if self._run is None and not self._run_settled and self._command in RUN_COMMANDS:
                with _as_dbt_error():
                    self._run = self._open_run()
            return self._run

    @cached_property
    def settings(self) -> GateSettings:
        """The gate's settings, read once: for commands that open no run."""
        return self._settings()

    def _settings(self) -> GateSettings:
        """The gate's settings: vars of the project, then those of the command line."""
        variables = dict(self.config.vars.to_dict()) if hasattr(self.config, "vars") else {}
        # A mapping holds the vars of the package that its key names, but for the one of ours.
        scoped = {
            k: v for k, v in variables.items() if not isinstance(v, dict) or k == "wap_alerts"
        }
        own = variables.get(getattr(self.config, "project_name", ""), {})
        given = {**from_environment(self._environment), **self._given_vars()}
        settings = GateSettings.from_vars({**scoped, **own, **given})
        if given.get(replay.VARIABLE) and "wap_publish" not in given:
            # An earlier state must not come to readers because nobody thought of them.
            settings = replace(settings, publish="never")
        rebuilt = again.rebuilt_branch()
        return settings if rebuilt is None else replace(settings, branch=rebuilt[0])

    @cached_property
    def _environment(self) -> dict[str, str]:
        """The environment variables that are settings of this call.

        dbt retries with the vars of the run that failed, and knows nothing of its environment.
        """
        before = self._retried.settings if self._retried else {}
        return {**before, **of_one_call(os.environ)}

    def _given_vars(self) -> Mapping[str, Any]:
        """The vars of the command line."""
        return getattr(self.config, "cli_vars", None) or {}

    def _as_of(self) -> replay.Replay | None:
        """The moment that this invocation reads as of; None for the present.

        Of the command line only: a project that has a var of that name means something else by it.
        """
        with self._lock:
            if not self._replay_known:
                self._replay = self._open_replay()
                self._replay_known = True
            return self._replay

    def _open_replay(self) -> replay.Replay | None:
        wanted = replay.asked(self._given_vars().get(replay.VARIABLE), datetime.now(UTC))
        if wanted is None:
            return None
        args = getattr(self.config, "args", None)
        if self._command == "clone" or getattr(args, "defer", False) or getattr(args, "DEFER", 0):
            raise ConfigError(
                f"{replay.VARIABLE} cannot go with `dbt clone` or --defer, whose tables belong to "
                "another state of the project. Nothing was run. Leave one of the two out."
            )
        rows = self.lake.ledger.rows("publishes")
        moment = replay.named(wanted, rows) if isinstance(wanted, str) else wanted
        return replay.Replay(moment, self.lake.histories, replay.changes(rows))

    def _branch(self, settings: GateSettings) -> str:
        """The audit branch: the user's, that of the run that is retried, or one of its own."""
        run_id = get_invocation_id()
        if self._is_retry:
            results = self._retried_results
            retried, last = run_of(results), self._retried
            # Whoever named the branch: a publish of that run would be made twice.
            if last is not None and (last.outcome == "open" or state.is_unfinished(results)):
                state.require_unpublished(self.lake.ledger, last)
            if settings.branch is None and retried is not None:
                # It may have gone on with the branch of an earlier one.
                closed = [] if last else self.lake.ledger.of_run("runs", retried)
                found = [last.branch] if last else [str(row["branch"]) for row in closed]
                return found[-1] if found else names.audit_branch(retried, None)
        return names.audit_branch(run_id, settings.branch)

    @cached_property
    def _retried(self) -> LastRun | None:
        """The run that `dbt retry` repeats, if it is the last one here."""
        last = LastRun.read(self._target_path) if self._is_retry else None
        return last if last and last.run_id == run_of(self._retried_results) else None

    def _going_on(self, settings: GateSettings) -> GoingOn:
        """Which branch of an earlier command this one goes on with by itself."""
        if settings.branch is not None or self._is_retry or self._command == "clone":
            return GoingOn()
        runs = LastRun.waiting(self._target_path, self._target_name)
        if not runs or self._as_of() is not None:
            return GoingOn()
        return state.going_on(
            self.lake,
            runs,
            time.time(),
            command=self._command,
            publish=settings.publish,
            selected=selected_resources.SELECTED_RESOURCES,
            known=lambda: self._manifest_facts().known(),
        )

    @property
    def _target_name(self) -> str:
        return str(getattr(self.config, "target_name", ""))

    def _hold(self, branch: str) -> lease.Holding:
        return lease.hold(
            self.lake.leases, run_id=get_invocation_id(), branch=branch, command=self._command
        )

    def _on_record(
        self,
        run: Run,
        outcome: Literal["open", "closed", "held", "rejected"],
        gone: Collection[str] = (),
    ) -> None:
        """Put the run on record for the commands that come next."""
        LastRun(
            run.run_id,
            run.branch,
            outcome,
            command=self._command,
            target=self._target_name,
            at=time.time(),
            publish="replay" if run.replay else run.settings.publish,
            settings=self._environment,
        ).write(self._target_path, gone)

    def _part(self) -> Literal["empty", "sample"] | None:
        """Whether dbt was told to read no rows (``--empty``), or a part of them (``--sample``)."""
        args = getattr(self.config, "args", None)
        if getattr(args, "EMPTY", False):
            return "empty"
        return "sample" if getattr(args, "SAMPLE", None) is not None else None

    @property
    def _retried_results(self) -> Path:
        """The record that `dbt retry` repeats."""
        folder = Path(getattr(self.config.args, "state", None) or self._target_path)
        return Path(self._project_root) / folder / RESULTS

    @cached_property
    def _to_retry(self) -> list[str]:
        """The nodes that `dbt retry` repeats; first asked before the record is written over."""
        return to_retry(self._retried_results)

    def _open_run(self) -> Run:
        from dbt.adapters.sparkwap.alerting import RunAlerts
        from sparkwap.runs.run import Run
        from sparkwap.runs.types import Invocation

        settings = self._settings()
        tables = facts.tables(self.get_macro_resolver())
        names.require_own(tables, self.lake.alike(tables))
        self._start_log(settings)
        # First of all: what follows asks the ledger what is published.
        for line in self.lake.publishing.recover():
            logger.info(line)
        # Now, as no node was run yet: dbt adds to this what nodes call when they are.
        self._calls = facts.calls(self.get_macro_resolver())
        rebuilt = again.rebuilt_branch()
        going_on, moment = self._going_on(settings), self._as_of()
        branch = going_on.run.branch if going_on.run else self._branch(settings)
        self._lease = self._hold(branch)
        if going_on.run and lease.taken_before(self.lake.leases, self._lease.lease):
            # Another command here has asked at the same moment, and was first.
            self._lease.release()
            going_on, branch = GoingOn(gone=going_on.gone), self._branch(settings)
            self._lease = self._hold(branch)
        self._went_on = going_on.run is not None
        run = Run(
            self.lake,
            Invocation(
                run_id=get_invocation_id(),
                branch=branch,
                settings=settings,
                command=self._command,
                project=str(getattr(self.config, "project_name", "")),
                target_name=self._target_name,
                rebuild_of=None if rebuilt is None else rebuilt[1],
                # A retried test has vars too, but they need not be those of the build.
                repeats=self._is_retry and self._command != "test",
                part=self._part(),
                replay=moment,
            ),
            # A clone copies tables, whatever code has made them.
            manifest=None if self._command == "clone" else self._packed_manifest,
            stands=lambda node_id: self._manifest_facts().table(node_id),
        )
        if settings.alerts.routes and rebuilt is None:
            # What a rebuild came to is told by the run that it belongs to.
            self._alerts = RunAlerts(self, run)
        if not names.is_run_branch(run.branch):
            self.lake.branches.require_own(
                tables | facts.source_tables(self.get_macro_resolver()), run.branch
            )
        run.warm_up()
        run.candidates.load_side_schemas()
        run.candidates.find_candidates()
        # Before the first session of the run is opened.
        run.watch_main(
            tables,
            app_id=self._app_id,
            same_clock=self.credentials is not None and self.credentials.embedded,
        )
        self._end_listening = steps.listen(self._listen)
        overlay.activate(run.candidates.overlay)
        reached(steps.RUN_OPENING, run_id=run.run_id, branch=run.branch)
        self._on_record(run, "open", going_on.gone)
        if going_on.line is not None:
            _tell([going_on.line])
        return run

    def _start_log(self, settings: GateSettings) -> None:
        if self._log is None and settings.log != "none":
            write = logger.info if settings.log == "dbt" else steplog.to_file(self._target_path)
            self._log = steplog.StepLog(write, get_invocation_id()).start()

    def _log_verdicts(self, run: Run, closing: Closing) -> None:
        if self._log is None:
            return
        for node in closing.nodes:
            verdict = closing.decision.verdicts[node.node_id]
            refused = verdict.outcome == "published" and closing.refused is not None
            self._log.tell(
                "refused" if refused else verdict.outcome,
                run_id=run.run_id,
                branch=run.branch,
                table=node.name,
                node_id=node.node_id,
                reason=closing.refused if refused else "; ".join(verdict.reasons) or None,
            )

    def _record_unfinished(self) -> None:
        """Let `dbt retry` find this run, should it not come to its end."""
        try:
            selected = self._to_retry if self._is_retry else selected_resources.SELECTED_RESOURCES
            write_unfinished(self._target_path / RESULTS, self.get_macro_resolver(), selected)
        except Exception as error:
            # A convenience: the branch can be named by hand, too.
            logger.debug(f"no record of the open run was written: {error}")

    def _session_settings(self) -> Mapping[str, str]:
        """The settings of every Spark session of this invocation."""
        creds = self.credentials
        settings = base_settings(creds.catalog_name, creds.server_side_parameters)
        if self._closed_run is not None:  # what comes now sees what readers see
            return settings
        run = self.current_run()
        branch = run.branch if run else self._read_branch()
        if branch:
            settings["spark.wap.branch"] = branch
        if run:
            # Underscores only: SET cuts a key off at a hyphen.
            settings["spark.sql.iceberg.snapshot-property.wap_run"] = run.run_id
        return settings

    def _read_branch(self) -> str | None:
        """The branch that a reading command looks at, with its side schemas.

        A name that is no branch would show `main` in silence.
        """
        branch = self._settings().branch
        if branch and not self._read_branch_known:
            from sparkwap.runs.candidates import overlay_of

            found = sorted(one.branch for one in self.lake.branches.all())
            if branch not in found:
                raise DbtRuntimeError(
                    f"There is no open audit branch '{branch}' (wap_branch), so nothing was read. "
                    f"Open: {', '.join(found) or 'none'}. Without wap_branch, main is read."
                )
            overlay.activate(overlay_of(self.lake, branch))
            self._read_branch_known = True
        return branch

    def _check_statement(self, sql: str) -> None:
        if self._refusal is not None:
            raise DbtRuntimeError(self._refusal)
        if getattr(self._thread, "own", False):
            return
        run = self.current_run()
        reader = getattr(self._reading, "node_id", None)
        if run is not None and reader is not None:
            run.trail.named(reader, sqllex.relation_names(sql))
        with _as_dbt_error():
            settings = (run or self._closed_run or self).settings
            if settings.guard:
                node = getattr(self._thread, "writes", None)
                named = (*settings.writes, *table_names(node or ()))
                phase: guard.Phase = "run" if run else "closed" if self._closed_run else "outside"
                catalog = self.credentials.catalog_name
                guard.check(sql, guard.Scope(catalog, self._standing, phase, named))

    @contextmanager
    def _own_statements(self) -> Iterator[None]:
        """What is sent within is sparkwap's own, and not for the guard to judge."""
        self._thread.own = True
        try:
            yield
        finally:
            self._thread.own = False

    def _standing(self, identifier: guard.Identifier) -> guard.Standing:
        """What a name of a statement means now."""
        schema, name = identifier
        branch = self._branch_of(schema)
        if branch is not None:
            return "side" if self._run is not None and branch == self._run.branch else "own"
        target = None if self._run is None else self._run.candidates.target(identifier)
        if target is not None and target.identifier == identifier and target.how == "branch":
            return "placed"
        state = self.lake.state(identifier)
        if schema == LEDGER_SCHEMA:
            return "own"
        if state is not None and state.properties.get(WAP_ENABLED, "").lower() == "true":
            return "gated"
        if self._is_node(identifier):
            return "node"
        if state is not None:
            return state.kind
        # A reader may take the one for the other, and some catalogs do.
        alike = (one for one in self.lake.relations(schema) if one.lower() == name.lower())
        return next((self._standing((schema, one)) for one in alike), "absent")

    def _branch_of(self, schema: str) -> str | None:
        """The audit branch whose side schema this is."""
        if names.SIDE_SEPARATOR in schema and schema not in self._side_schemas:
            self._side_schemas |= self.lake.side_schemas()
        return self._side_schemas.get(schema)

    def _is_node(self, identifier: guard.Identifier) -> bool:
        """Whether the project builds something of this name, in whatever case."""
        schema, name = identifier
        known = self.get_macro_resolver() is not None
        return known and (schema.lower(), name.lower()) in self._manifest_facts().tables

    def _check_request(self, request: connect_guard.Message) -> None:
        """Check what a Python model asks by Spark Connect."""
        run = self._run or self._closed_run
        if run is None or run.settings.guard:
            with _as_dbt_error():
                connect_guard.check(request, self._check_statement)
        sent = statement_of(request)
        if sent is not None:
            self._command_sent(sent)

    def _watch_statement(self, sql: str) -> Callable[[], Fate]:
        """What tells the fate of a statement after an error, without which none is sent again."""
        tables = guard.written_tables(sql)
        if not tables:
            return lambda: "no table"
        identifier = guard.identifier_of(tables[0], self.credentials.catalog_name)
        if self._run is None or identifier is None or len(tables) > 1:
            return lambda: "unknown"
        with _as_dbt_error():
            return self._run.candidates.watch(identifier)

    @contextmanager
    def connection_named(
        self, name: str, query_header_context: Any = None, should_release_connection: bool = True
    ) -> Iterator[None]:
        """dbt opens a node's connection before it compiles the node: here the node begins."""
        self._require_no_replay()
        with (
            super().connection_named(name, query_header_context, should_release_connection),
            self._main_checked(query_header_context),
        ):
            kind = getattr(query_header_context, "resource_type", None)
            config = getattr(query_header_context, "config", None)
            self._thread.writes = config.get("wap_writes") if config is not None else None
            if kind in facts.BUILT_TYPES:
                self._begin_node(query_header_context)
            if kind in facts.READING_TYPES and self._run is not None:
                with _as_dbt_error():
                    reads = self._manifest_facts().read_by(query_header_context)
                    self._run.read(query_header_context.unique_id, reads)
            if kind in facts.TEST_TYPES and self._run is not None:
                reached(
                    steps.AUDIT_BEGINS,
                    run_id=self._run.run_id,
                    branch=self._run.branch,
                    node_id=query_header_context.unique_id,
                )
            # A seed reads no table, and its rows would be searched for names.
            outer = getattr(self._reading, "node_id", None)
            if kind in facts.READING_TYPES and kind != "seed":
                self._reading.node_id = query_header_context.unique_id
            try:
                yield
            finally:
                self._reading.node_id = outer

    @contextmanager
    def _main_checked(self, node: Any) -> Iterator[None]:
        """Look at `main` when a node, test or hook has done what it does."""
        self._here.node_id = getattr(node, "unique_id", None)
        try:
            yield
        finally:
            main = self._run.main if self._run is not None else None
            if main is not None:
                main.answered()
                try:
                    main.check()
                except SparkwapError as error:
                    # Closing the run looks again, and ends with this if it comes to stay.
                    logger.debug(f"main was not looked at: {error}")
            self._here.node_id = None

    def _listen(self, step: steps.Step, about: Mapping[str, Any]) -> None:
        if step is steps.STATEMENT_SENDING:
            self._command_sent(about["sql"])
        elif step is steps.STATEMENT_DONE and self._run is not None and self._run.main is not None:
            self._run.main.answered()

    def _command_sent(self, sql: str) -> None:
        if self._run is not None and "drop" in sql.lower():
            for name in guard.dropped(sql):
                identifier = guard.identifier_of(name, self.credentials.catalog_name)
                if identifier is not None:
                    self._run.candidates.dropped(identifier)
        if self._run is not None and self._run.main is not None:
            self._run.main.sent(getattr(self._here, "node_id", None), sql)

    def _app_id(self) -> str | None:
        """The Spark application that this invocation writes by."""
        handle = self.connections.pool.borrow(lambda sql: None)
        try:
            handle.execute("set spark.app.id")
            rows = handle.fetchall()
        finally:
            handle.close()
        return str(rows[0][1]) if rows else None

    def _require_no_replay(self) -> None:
        """What only looks opens no run, so that nothing would be read as of an earlier moment."""
        if self._command in LOOKING and self._given_vars().get(replay.VARIABLE):
            raise DbtRuntimeError(
                f"`dbt {self._command}` reads the present, whatever {replay.VARIABLE} says, so "
                f"nothing was run. To look at a replay: dbt build --vars '{replay.VARIABLE}: ...', "
                f"then {next_command.dbt(self._command, branch='<its branch>')}."
            )

    def _manifest_facts(self) -> facts.Manifest:
        if self._facts is None:
            self._facts = self._read_manifest()
        return self._facts

    def _read_manifest(self) -> facts.Manifest:
        varying = self._settings().varying
        return facts.Manifest(self.get_macro_resolver(), self._given_vars(), varying, self.config)

    def _packed_manifest(self) -> manifests.Packed:
        manifest: Any = self.get_macro_resolver()
        return manifests.pack(
            manifest.writable_manifest().to_dict(omit_none=False), calls=self._calls
        )

    def _begin_node(self, node: Any) -> None:
        run = self._run
        if run is None:
            return
        if self._is_retry and getattr(node.config, "incremental_strategy", None) == "microbatch":
            # dbt gives it the batches that failed, to be added to those that did not.
            left = getattr(node, "previous_batch_results", None)
            if left is not None and run.goes_on(node.unique_id, (node.schema, node.alias)):
                return
            if node.unique_id not in run.trail.begun:
                # What did not fail is not on the branch any more, or was rejected with the rest.
                node.previous_batch_results = all_batches(self._retried_results, node.unique_id)
        if _adds(node):
            if self._went_on and run.goes_on(node.unique_id, (node.schema, node.alias)):
                return
            if self._went_on:
                if node.unique_id in run.candidates.found:
                    run.told.tell(node.unique_id, _BEGUN_ANEW)
            elif run.candidates.has_added(node.unique_id):
                raise SparkwapError(
                    f"{node.schema}.{node.alias} has rows of several commands on the branch "
                    f"{run.branch}, which nobody has published yet. Built anew from main it would "
                    "have those of this command alone, so it is not built. Drop the branch and "
                    "give the commands again, one by one: "
                    f"{next_command.operation('wap_discard', run.branch)}"
                )
        if run.begin(node.unique_id, (node.schema, node.alias)):
            relation = self.Relation.create(schema=node.schema, identifier=node.alias)
            self.cache.drop(relation)
            live = self.lake.state((node.schema, node.alias))
            if live is not None:
                there = relation.incorporate(type=live.kind)  # type: ignore[no-untyped-call]
                self.cache.add(there)

    # -- where things are built ------------------------------------------------------------------

    @available.parse(lambda *a, **k: None)
    def wap_place_table(
        self,
        relation: BaseRelation,
        columns: Sequence[Mapping[str, Any]] | None = None,
        layout: Mapping[str, Any] | None = None,
    ) -> str:
        """Decide where a table is built; from now on ``relation`` renders to that place.

        :param columns: dicts of name, type, nullable and doc, in order; None to keep the table's.
        :param layout: partition_by, sort_by, properties, format_version, comment, as far as the
            model manages them; ``given``, all properties of the model's config.
        :return: ``branch``, or ``side``.
        """
        layout = layout or {}
        desired = Desired(
            columns=None
            if columns is None
            else tuple((c["name"], c["type"], c.get("nullable"), c.get("doc")) for c in columns),
            partitioning=_terms(layout, "partition_by"),
            sort_order=_terms(layout, "sort_by"),
            properties=layout.get("properties"),
            format_version=layout.get("format_version"),
            comment=layout.get("comment"),
            location=None,
            ordered=True,
        )
        at_once = in_place(layout.get("given"))
        return self._placed(
            lambda run: run.candidates.place_table(_identifier(relation), desired, at_once).how
        )

    @available.parse(lambda *a, **k: None)
    def wap_place_clone(self, relation: BaseRelation, changes: Sequence[str]) -> str:
        """Build on a clone, as the schema will change; see :meth:`wap_place_table`."""
        return self._placed(
            lambda run: run.candidates.place_clone(_identifier(relation), changes).how
        )

    @available.parse(lambda *a, **k: None)
    def wap_place_beside(self, relation: BaseRelation) -> str:
        """Build from nothing in the side schema: a view, a replacement, stored failures."""
        kind: Kind = "view" if relation.is_view else "table"
        return self._placed(
            lambda run: run.candidates.place_beside(_identifier(relation), kind).how
        )

    @available.parse(lambda *a, **k: None)
    def wap_place_copy(self, relation: BaseRelation, other: BaseRelation) -> str:
        """Build ``relation`` as a zero-copy copy of the published table ``other``."""
        source = _identifier(other)
        return self._placed(
            lambda run: run.candidates.place_copy(_identifier(relation), source).how
        )

    @available.parse(lambda *a, **k: None)
    def wap_built(self, node_id: str, relation: BaseRelation, must_write: bool = True) -> None:
        """Record what a node's build left as its candidate."""
        self._placed(
            lambda run: run.built(node_id, _identifier(relation), must_write=must_write).how
        )

    @available.parse(lambda *a, **k: "")
    def wap_location(self, relation: BaseRelation) -> str:
        """A path of its own for a new table."""
        return self._placed(lambda run: run.candidates.location(_identifier(relation)))

    @available.parse(lambda *a, **k: None)
    def wap_published(self, relation: BaseRelation) -> str | None:
        """What renders to the published state of a table, from within a run; None if none is."""
        schema, name = _identifier(relation)
        state = self.lake.state((schema, name))
        if state is None or (state.kind == "table" and state.main is None):
            return None
        quoted = f"{self.quote(schema)}.{self.quote(name)}"
        moment = self._as_of()
        if moment is not None:
            with _as_dbt_error():
                former = moment.former((schema, name))
            return None if former is None else f"{quoted}{as_of(former)}"
        return quoted if state.kind == "view" else f"{quoted} version as of 'main'"

    @available.parse(lambda *a, **k: None)
    def wap_live(self, relation: BaseRelation) -> TableState | None:
        """The state of the table or view that ``relation`` renders to now."""
        return self._state(relation)

    def _placed(self, work: Callable[[Run], _T]) -> _T:
        run = self.current_run()
        if run is None:
            raise DbtRuntimeError(
                f"`dbt {self._command}` does not open a run, so it cannot build tables. Use "
                f"one of: {', '.join(sorted(RUN_COMMANDS))}."
            )
        with _as_dbt_error():
            self._require_safe(run)
            return work(run)

    def _require_safe(self, run: Run) -> None:
        """Before the first table: see that rows of an audit branch stay on it.

        The embedded server on the lake's own database is ours, and known to keep them apart.
        """
        if self.credentials.embedded and self.lake.store.rows.takes_files:
            return
        with self._lock:
            if self._probed is None:
                # Here, as it brings PyArrow along: half a second that not every command needs.
                from dbt.adapters.sparkwap.probing import require_safe

                try:
                    require_safe(self.lake, self.connections, self._session_settings(), run.run_id)
                    self._probed = ""
                except SparkwapError as error:
                    self._probed = str(error)
            if self._probed:
                raise SparkwapError(self._probed)

    # -- audits that compare with what is published ----------------------------------------------

    @available.parse(lambda *a, **k: {})
    def wap_known_metrics(
        self, name: str, test: Mapping[str, Any], metrics: Sequence[str], rule: Mapping[str, Any]
    ) -> dict[str, int]:
        """Those of an anomaly audit's metrics that need no query; its rule is checked first.

        :param name: the audit's name, for messages.
        :param test: dbt's node of the test.
        :param metrics: names of what it measures.
        :param rule: its arguments, by the names of :class:`sparkwap.audits.anomaly.Rule`.
        """
        with _as_dbt_error():
            return anomalies.known(
                self.current_run(), self._manifest_facts(), name, test, metrics, rule
            )

    @available.parse(lambda *a, **k: "")
    def wap_judge(
        self,
        name: str,
        test: Mapping[str, Any],
        values: Mapping[str, Any],
        rule: Mapping[str, Any],
        scope: str | None = None,
    ) -> str:
        """A query that returns those of a candidate's metrics that are anomalies.

        :param values: what was measured, by metric; the rest is as in :meth:`wap_known_metrics`.
        :param scope: what else the metrics depend on, besides the test's ``where``.
        """
        with _as_dbt_error():
            run, manifest = self.current_run(), self._manifest_facts()
            return anomalies.judged(run, manifest, name, test, values, rule, scope)

    @available.parse(lambda *a, **k: {})
    def wap_column_metrics(self, column: str, metrics: Any) -> dict[str, str]:
        """Metric -> SQL of what is to be measured of a column."""
        with _as_dbt_error():
            return column_metrics(column, self.quote(column), metrics)

    @available.parse(lambda *a, **k: "")
    def wap_column_changes(self, test: Mapping[str, Any], allowed: Any) -> str:
        """A query that returns how a candidate's columns differ from the published ones."""
        with _as_dbt_error():
            return anomalies.column_changes(
                self.lake, self.current_run(), self._manifest_facts(), test, allowed
            )

    # -- Python models ---------------------------------------------------------------------------

    @available.parse(lambda *a, **k: "")
    def wap_python_view(self, model: Mapping[str, Any], code: str, name: str) -> None:
        """Run a Python model; its frame is the temporary view ``name`` for the node's SQL."""
        run = self.current_run()
        if run is not None:
            run.trail.named(str(model["unique_id"]), named_in(code))
        # PySpark's annotations are those of a classic session.
        spark = cast("SparkSession", self.connections.connect_session())
        with building(self._node(model)):
            frame = model_frame(spark, model, code, self._project_root)
        frame.createOrReplaceTempView(name)

    def _node(self, model: Mapping[str, Any]) -> Node:
        """What a Python model may know of itself; see :mod:`sparkwap.core.node`."""
        run, node_id = self.current_run(), str(model["unique_id"])
        return Node(
            node_id=node_id,
            meta=model["config"].get("meta") or {},
            parents=tuple((model.get("depends_on") or {}).get("nodes") or ()),
            run_id=get_invocation_id(),
            meta_of=self._manifest_facts().meta,
            tell=lambda notice: run.told.tell(node_id, notice) if run else None,
            published=lambda: self.wap_published(
                self.Relation.create(schema=model["schema"], identifier=model["alias"])
            ),
            replay=self._as_of() is not None,
            settings=self._environment,
            project=Path(self._project_root),
        )

    # -- opening and closing ---------------------------------------------------------------------

    @available.parse(lambda *a, **k: None)
    def wap_open_run(self, selected: Sequence[str] = ()) -> str | None:
        """Open the run of this invocation; returns its audit branch.

        :param selected: ids of the nodes and tests that it was told to run.
        """
        run = self.current_run()
        if run is None:
            return None
        if run.replay is not None:
            self._pin(run, selected)
        self._record_unfinished()
        self._opened_by_hook = True
        reached(steps.RUN_OPENED, run_id=run.run_id, branch=run.branch)
        return run.branch

    def _pin(self, run: Run, selected: Sequence[str]) -> None:
        """Resolve what a replay reads and does not build, before anything is written."""
        manifest = self._manifest_facts()
        try:
            with _as_dbt_error():
                replay.require(manifest.not_replayable(selected))
                run.pin(manifest.outside(selected))
        except DbtRuntimeError:
            # There is nothing on its branch that a later command could go on with.
            self._on_record(run, "closed")
            raise

    @available.parse(lambda *a, **k: False)
    def wap_is_replay(self) -> bool:
        """Whether this invocation reads as of an earlier moment."""
        with _as_dbt_error():
            return self._as_of() is not None

    @available.parse(lambda *a, **k: "current_timestamp()")
    def wap_now(self) -> str:
        """The present as SQL, in a replay its moment."""
        with _as_dbt_error():
            moment = self._as_of()
        return "current_timestamp()" if moment is None else replay.literal(moment.moment.at)

    @available.parse(lambda *a, **k: {})
    def wap_close_run(self, results: Iterable[Any]) -> dict[str, Any]:
        """Let the gate decide and publish.

        :return: ``lines`` to print and ``failed``, whether dbt has to be told that the run failed.
        """
        from sparkwap.runs import rebuilding

        run = self.current_run()
        if run is None:
            return {"lines": [], "failed": False}
        results = list(results)
        manifest = self._read_manifest()
        nodes = manifest.nodes(results)
        try:
            selected = {result.node.unique_id for result in results}
            deferred = facts.deferred(self.get_macro_resolver(), self.config.args, selected)
            seen = manifest.seen(results, deferred)
            closing = run.close(
                nodes, manifest.tests(), seen, manifest.known(), varied=manifest.varied
            )
        except Exception as error:
            # dbt knows of nothing wrong with them, and a retry would pass them by.
            facts.mark_rejected(results, {n.node_id: UNFINISHED for n in nodes}, manifest)
            told = _not_closed(error, run.branch)
            if self._alerts is not None:
                self._alerts.broke_down(told, [node.node_id for node in nodes])
            raise DbtRuntimeError(told) from error
        finally:
            self._run_settled = True
            self._end_run()
            self._leave_branch(run)
        if closing.rebuild is not None:
            closing = self._build_again(run, closing, manifest)
        self._log_verdicts(run, closing)
        about = {"run_id": run.run_id, "branch": run.branch}
        reached(steps.RECORDING, **about)
        self._on_record(run, closing.left)
        reached(steps.RECORDED, **about)
        skipped = facts.mark_rejected(results, closing.rejected(), manifest)
        reached(steps.MARKED, **about)
        remarks = [*(run.replay.remark() if run.replay else ()), *rebuilding.told(closing)]
        remarks += filter(
            None, (run.left_nothing(), manifest.dropped(), facts.audited_again(skipped))
        )
        lines = summary.lines(
            closing,
            run_id=run.run_id,
            branch=run.branch,
            remarks=remarks,
            width=_width(),
            next_steps=_tells_next(),
        )
        if self._alerts is not None:
            lines += self._alerts.closed(closing, manifest, results)
        return {
            "lines": [*lines, *self._swept(run)],
            "failed": self._fail(closing, results),
        }

    def _leave_branch(self, run: Run) -> None:
        """Let hooks of other packages that come after the gate's own read and write main.

        On the audit branch, of which nothing is published any more, their rows would be lost.
        """
        self._closed_run = run
        self.connections.pool.renew()

    def _build_again(self, run: Run, closing: Closing, manifest: facts.Manifest) -> Closing:
        """Follow main, which moved away under the run."""
        from sparkwap.runs import rebuilding

        def build(node_ids: tuple[str, ...], limit: float | None) -> Ended:
            return again.build(
                self.config,
                [manifest.selector(node_id) for node_id in node_ids],
                branch=run.branch,
                run_id=run.run_id,
                target_path=self._target_path,
                limit=limit,
                settings=self._environment,
            )

        with _as_dbt_error():
            return rebuilding.follow(run, closing, build, logger.info)

    def _swept(self, run: Run) -> list[str]:
        """Sweep after a run, where the project wants it; a run never fails by it."""
        if run.settings.sweep == "never":
            return []
        # Here, as it brings PyArrow along, which most commands do not need.
        from sparkwap.maintenance.sweeper import end_of_run

        return end_of_run(self.lake, run.run_id, run.settings)

    @available.parse(lambda *a, **k: [])
    def wap_operation(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """Run ``wap_status``, ``wap_publish``, ...; returns the lines to print."""
        from dbt.adapters.sparkwap.alerting import rolled_back
        from sparkwap.runs.operations import Operations

        self._start_log(self._settings())
        operations = Operations(
            self.lake,
            run_id=get_invocation_id(),
            settings=self._settings(),
            project=str(getattr(self.config, "project_name", "")),
            target_name=self._target_name,
            tests=lambda: self._read_manifest().tests(),
            known=lambda: self._read_manifest().known(),
            stands=lambda node_id: self._manifest_facts().table(node_id),
            unfinished=state.unfinished_run(self._target_path),
            manifest=self._packed_manifest,
            width=_width(),
            next_steps=_tells_next(),
        )
        with _as_dbt_error():
            lines = operations.call(name, arguments)
        if operations.rolled_back:
            lines += rolled_back(self, operations.rolled_back)
        return lines

    @available.parse(lambda *a, **k: [])
    def wap_erasure(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """Run ``wap_erase`` or ``wap_rectify``; returns the lines to print."""
        # Here, as it brings PyArrow along: half a second that not every command needs.
        from dbt.adapters.sparkwap.erasing import erasure

        with _as_dbt_error(), self._own_statements():
            return erasure(self).call(name, arguments)

    @available.parse(lambda *a, **k: [])
    def wap_diff(self, arguments: Mapping[str, Any]) -> list[str]:
        """Compare the tables of a branch with ``main``; returns the lines to print."""
        # Here, as only this operation needs it.
        from dbt.adapters.sparkwap.diffing import diff

        with _as_dbt_error(), self._own_statements():
            return diff(self, arguments)

    def _fail(self, closing: Closing, results: Sequence[Any]) -> bool:
        """Whether dbt takes for a success what the gate did not publish.

        An exception in an on-run-end hook is a keyboard interrupt to dbt, but a statement of the
        hook that fails is an error of that hook, and exit code 1: the hook sends one.
        """
        failed = closing.refused is not None or closing.decision.failed
        if not failed or facts.dbt_failed(results):
            return False
        self._refusal = "Not everything was published; the reasons stand above."
        return True

    def _end_run(self) -> None:
        with self._lock:
            self._run = None
            held, self._lease = self._lease, None
            self._end_listening()
            overlay.activate(None)
        if held is not None:
            held.release()

    # -- what is there ---------------------------------------------------------------------------

    def _state(self, relation: BaseRelation) -> TableState | None:
        if self.current_run() is None:
            self._read_branch()
        schema, name = _identifier(relation)
        return self.lake.state((overlay.active().schema_of(schema, name), name))

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        schema = str(schema_relation.schema)
        if self.current_run() is None:
            self._read_branch()
        found = self.lake.relations(schema)
        for (of_schema, name), side in overlay.active().members().items():
            if of_schema == schema:
                found[name] = self.lake.relations(side).get(name, "table")
        return [
            self.Relation.create(
                schema=schema, identifier=name, type=RelationType(kind), is_iceberg=True
            )
            for name, kind in found.items()
        ]

    def get_catalog(
        self,
        relation_configs: Iterable[RelationConfig],
        used_schemas: frozenset[tuple[str, str]],
    ) -> tuple[agate.Table, list[Exception]]:
        schemas = {
            str(schema)
            for found in self._get_catalog_schemas(relation_configs).values()
            for schema in found
            if schema is not None
        }
        relations = [
            relation
            for schema in sorted(schemas)
            for relation in self.list_relations_without_caching(self.Relation.create(schema=schema))
        ]
        return self.get_catalog_by_relations(used_schemas, relations)

    def get_catalog_by_relations(
        self, used_schemas: frozenset[tuple[str, str]], relations: Iterable[BaseRelation]
    ) -> tuple[agate.Table, list[Exception]]:
        rows: list[dict[str, Any]] = []
        for relation in relations:
            state = self._state(relation)
            if state is not None:
                rows += docs.catalog_rows(state, _identifier(relation), self._summary(state))
        return docs.catalog_table(rows), []

    @available.parse(lambda *a, **k: None)
    def get_catalog_for_single_relation(self, relation: BaseRelation) -> CatalogTable | None:
        state = self._state(relation)
        if state is None:
            return None
        return docs.single_table(state, _identifier(relation), self._summary(state))

    def _summary(self, state: TableState) -> Mapping[str, str]:
        """The summary of the snapshot that this invocation reads; empty where there is none."""
        branch = self._settings().branch
        ref = state.refs.get(branch or "main") or state.refs.get("main")
        return self.lake.snapshot_summary(state.identifier, ref.snapshot_id) if ref else {}

    def calculate_freshness_from_metadata_batch(
        self, sources: list[BaseRelation], macro_resolver: Any = None
    ) -> tuple[list[AdapterResponse | None], dict[BaseRelation, FreshnessResponse]]:
        found = {}
        for source in sources:
            state = self.lake.state(_identifier(source))
            if state is not None and state.kind == "table":
                changed = self.lake.last_change(state.identifier)
                found[source] = self._create_freshness_response(changed, datetime.now(UTC))
        return [], found

    def calculate_freshness_from_metadata(
        self, source: BaseRelation, macro_resolver: Any = None
    ) -> tuple[AdapterResponse | None, FreshnessResponse]:
        _, found = self.calculate_freshness_from_metadata_batch([source], macro_resolver)
        if source not in found:
            raise DbtRuntimeError(
                f"The catalog does not know when the rows of {source} changed, as it is missing "
                "or a view. Give the source a `loaded_at_field`, or correct its name."
            )
        return None, found[source]

    def list_schemas(self, database: str | None) -> list[str]:
        return sorted(self.lake.schemas())

    def check_schema_exists(self, database: str | None, schema: str) -> bool:
        return schema in self.lake.schemas()

    def create_schema(self, relation: BaseRelation) -> None:
        self.lake.ensure_schema(str(relation.schema))

    def drop_schema(self, relation: BaseRelation) -> None:
        schema = str(relation.schema)
        run = self.current_run()
        if run is not None and run.settings.guard and self.lake.relations(schema):
            raise DbtRuntimeError(
                f"The guard refused to drop schema {schema}: its tables and views are live, and "
                "their readers would lose them at once. Nothing was dropped. Drop it by a "
                "run-operation, when no run is on."
            )
        self.lake.drop_schema(schema, purge=False)
        self.cache.drop_schema(None, relation.schema)

    def get_columns_in_relation(self, relation: BaseRelation) -> list[SparkColumn]:
        reader = getattr(self._reading, "node_id", None)
        if self._run is not None and reader is not None and relation.schema and relation.identifier:
            self._run.looked_at(reader, (relation.schema, relation.identifier))
        # A relation without a schema is a temporary view, which only its session knows.
        state = self._state(relation) if relation.schema else None
        if state is None:
            return [SparkWapColumn(**vars(c)) for c in super().get_columns_in_relation(relation)]
        pinned = overlay.active().pinned(_identifier(relation))
        columns = (
            state.columns if pinned is None else self.lake.columns_at(state.identifier, pinned)
        )
        return [
            SparkWapColumn(
                table_schema=relation.schema,
                table_name=relation.identifier,
                table_type=relation.type,
                column=column.name,
                column_index=index,
                dtype=column.type,
            )
            for index, column in enumerate(columns)
        ]

    def get_column_schema_from_query(self, sql: str) -> list[SparkWapColumn]:
        # The Thrift protocol says ARRAY_TYPE of every array; contracts compare full types.
        _, cursor = self.connections.add_select_query(f"describe query {sql}")
        return [SparkWapColumn(column=row[0], dtype=row[1]) for row in cursor.fetchall()]

    def generate_python_submission_response(self, submission_result: Any) -> AdapterResponse:
        return self.connections.get_response(None)

    @available
    def valid_incremental_strategies(self) -> list[str]:
        return ["append", "merge", "delete+insert", "insert_overwrite", "microbatch"]

    def cleanup_connections(self) -> None:
        if self._run is not None and self._command == "clone" and sys.exc_info()[0] is None:
            self._publish_copies(self._run)
        if self._run is not None and sys.exc_info()[0] is not None:
            # Interrupted: dbt's own record is of the nodes that have run, and knows no others.
            self._record_unfinished()
        elif self._run is not None and self._opened_by_hook:
            caught = [one.told for one in self._run.caught_on_main()]
            about = {"run_id": self._run.run_id, "branch": self._run.branch}
            _tell(summary.not_closed(**about, caught=caught))
        super().cleanup_connections()
        # What comes later in this process reads main; it must not open another run.
        self._run_settled = True
        self._closed_run = None
        self._end_run()
        if self._log is not None:
            self._log.stop()
        if self._retry_record is not None:
            self._retry_record.put_back(get_invocation_id())

    def _publish_copies(self, run: Run) -> None:
        """Close the run of `dbt clone`, which calls no on-run-end hooks."""
        with _as_dbt_error():
            manifest = self._manifest_facts()
            closing = run.close_copies(manifest.tests(), manifest.known())
        self._on_record(run, closing.left)
        _tell(summary.lines(closing, run_id=run.run_id, branch=run.branch, width=_width()))
        if closing.refused:
            raise DbtRuntimeError(closing.refused)

    @available.parse(lambda *a, **k: None)
    def wap_error_if(self, test_id: str) -> str | None:
        """The `error_if` of a test of which somebody has accepted what it finds; None for its own.

        :param test_id: dbt's unique id.
        """
        run = self.current_run()
        if run is None:
            return None
        return run.rules.error_if(test_id, self._manifest_facts().severity(test_id))

    @available.parse(lambda *a, **k: None)
    def wap_sample(self, test: Mapping[str, Any], sql: str, result: Any) -> None:
        """Keep some of the rows that failed a test, where alerts are to show them.

        :param sql: the query of the rows that fail.
        :param result: what dbt's statement of the test has loaded.
        """
        if self._alerts is not None:
            self._alerts.keep_sample(str(test["unique_id"]), sql, result)

    # -- small things for macros -----------------------------------------------------------------

    @available
    def wap_list(self, value: Any) -> list[str] | None:
        """A config that may be one text or a list of texts, as a list; None stays None."""
        if value is None:
            return None
        values = value if isinstance(value, list | tuple) else [value]
        return [str(one) for one in values if str(one).strip()]

    @available
    def quote(self, identifier: str) -> str:  # type: ignore[override]
        """A name in backquotes, whatever it holds."""
        # dbt also quotes what is not there, such as the database, and leaves it away later.
        return sqltext.quote(str(identifier))

    @available
    def wap_quoted(self, columns: Sequence[str]) -> list[str]:
        """Column names in backquotes."""
        return [self.quote(name) for name in columns]

    @available
    def wap_intersect(self, columns: Sequence[str], given: Sequence[str]) -> list[str]:
        """Those of ``columns`` that are in ``given`` (lower case), in their own order."""
        return [name for name in columns if name.lower() in given]

    @available
    def wap_split_statements(self, text: str) -> list[str]:
        """The statements of a text that may hold several."""
        return [part.strip().rstrip(";") for part in sqlparse.split(text) if part.strip(" ;\n\t")]

    @available.parse(lambda *a, **k: True)
    def wap_widens(self, relation: BaseRelation, column: str, new_type: str) -> bool:
        """Whether Iceberg can change the column's type in place."""
        state = self._state(relation)
        old = {c.name.lower(): c.type for c in state.columns} if state else {}
        return widens(old.get(column.lower(), ""), new_type)

    @available.parse(lambda *a, **k: False)
    def wap_is_building(self) -> bool:
        """Whether this command builds tables, and does not only compile or show them."""
        return self.current_run() is not None

    @available
    def wap_wider(self, column_type: str) -> str | None:
        """The type of the same family that takes more values; None where there is none."""
        return wider(column_type)

    @available
    def wap_type_family(self, column_type: str) -> str:
        """A type without the size, precision and scale of its parts."""
        return family(column_type)

    @available
    def wap_checked_cast(self, value: str, column_type: str, column: str) -> str:
        """SQL: a text as a type; the query fails on a value that is none, or would be rounded."""
        return checked(value, column_type, column)

    @available
    def wap_plain_cast(self, expression: str) -> tuple[str, str] | None:
        """Column and type of SQL that is nothing but a cast of a column; None for any other."""
        return plain_cast(expression)

    @available.parse(lambda *a, **k: None)
    def wap_tell(self, node_id: str, notice: str) -> None:
        """Keep what a node's build has to tell, one line, for the summary of the run."""
        run = self.current_run()
        if run is not None:
            run.told.tell(node_id, notice)

    @available.parse(lambda *a, **k: "")
    def wap_seed_sql(self, table: Any, given: Mapping[str, str], quote: bool = True) -> str:
        """A query that returns the rows of a seed's table."""
        names_ = list(table.column_names)
        inferred = [self.convert_type(table, i) or "string" for i in range(len(names_))]
        rows = [list(row) for row in table.rows]
        return seed_sql(column_types(names_, inferred, given), rows, quote=quote)


@contextmanager
def _as_dbt_error() -> Iterator[None]:
    """dbt prints the message of its own errors; any other is a traceback to its reader."""
    try:
        yield
    except SparkwapError as error:
        raise DbtRuntimeError(str(error)) from error


def _width() -> int | None:
    """The columns that dbt leaves to a line of the terminal; None where there is no terminal."""
    columns = shutil.get_terminal_size((0, 0)).columns
    return max(columns - _DBTS_CLOCK, _NARROWEST) if columns else None


def _tells_next() -> bool:
    """Whether the summary says what comes next; else the command does so that has called dbt."""
    return os.environ.get(next_command.VARIABLE) != next_command.OFF


_BEGUN_ANEW = (
    "built anew from main: what it reads was built anew on the branch, so what earlier commands "
    "have added to it there is not kept"
)


def _adds(node: Any) -> bool:
    """Whether a build of the node adds to what is there."""
    if str(node.resource_type) == "snapshot":
        return True
    anew = node.config.full_refresh
    if anew is None:
        anew = get_flags().FULL_REFRESH
    return node.config.materialized == "incremental" and not anew


def _tell(lines: Iterable[str]) -> None:
    """Print a summary where no macro can: without the name of an adapter before each line."""
    for line in lines:
        fire_event(Note(msg=redact(line)))


def _not_closed(error: Exception, branch: str) -> str:
    """What is told when the gate could not come to its end; its own errors say it themselves."""
    if isinstance(error, SparkwapError):
        return str(error)
    return (
        f"The gate broke down when it closed the run ({type(error).__name__}: {error}). All tables "
        f"of the run are published or none, and what is not is on branch {branch}. `dbt "
        "run-operation wap_status` shows which; `dbt retry` looks, and does nothing twice."
    )


def _terms(layout: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    """A clause that the model manages, empty if it wants none; None if it does not manage it."""
    if key not in layout:
        return None
    return tuple(layout[key] or ())


def _identifier(relation: BaseRelation) -> tuple[str, str]:
    return str(relation.schema), str(relation.identifier)
