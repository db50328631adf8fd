"""The guard and the net around each statement: checks it, and records what was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap.command import as_dbt_error
from dbt.adapters.sparkwap.command_run import CommandRun
from sparkwap.catalog import Identifier
from sparkwap.catalog.metadata import is_gated
from sparkwap.core import checkpoints, names, sqllex
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.core.retry import Fate
from sparkwap.gate import connect_guard, guard
from sparkwap.gate.settings import table_names
from sparkwap.gate.statement_effects import classify, dropped_objects, written_tables
from sparkwap.gate.statement_reader import Name


class AtWork(threading.local):
    """The work of the current thread.

    Attributes:
        node_id: The node, test or hook; None for none.
        reader: The node or test whose reads are recorded on its trail; None for none.
        writes: Ungated tables that the node's config allows it to write to.
        batch: The batch of a microbatch model beside which others may write; None for none.
        own: Whether sparkwap itself sends the statements.
        silent: Whether no statement may be sent.
    """

    node_id: str | None = None
    reader: str | None = None
    writes: Any = None
    batch: str | None = None
    own: bool = False
    silent: bool = False


class StatementGuard:
    """The guard and the net around the statements of a command."""

    def __init__(self, runs: CommandRun) -> None:
        self.at_work = AtWork()
        self._runs = runs
        self._command = runs.command
        self._side_schemas: dict[str, str] = {}
        runs.on_step = self.on_step
        connections = runs.command.connections
        connections.session_settings = runs.session_settings
        connections.check_statement = self.check
        connections.check_request = self.check_request
        connections.watch_statement = self.watch

    # -- the guard -------------------------------------------------------------------------------

    def check(self, sql: str) -> None:
        """Refuse a statement that could harm a live table."""
        if self._runs.refusal is not None:
            raise DbtRuntimeError(self._runs.refusal)
        if self.at_work.silent:
            raise DbtRuntimeError("No statement is sent while the query of a test is predicted.")
        if self.at_work.own:
            return
        run = self._runs.current()
        if run is not None and self.at_work.reader is not None:
            present = sqllex.relation_names(sql, present=True)
            run.trail.named(self.at_work.reader, sqllex.relation_names(sql), present)
        self.require_allowed(sql)
        if run is not None and run.settings.reuse:
            for target in classify(sql).targets:
                identifier = self._identifier(target.name)
                if identifier is not None:
                    run.trail.written.add(names.folded(identifier))

    def require_allowed(self, sql: str) -> None:
        """Refuse a statement that could harm a live table; records nothing."""
        run = self._runs.current()
        with as_dbt_error():
            closed = self._runs.closed
            settings = (run or closed or self._command).settings
            if settings.guard:
                named = (*settings.writes, *table_names(self.at_work.writes or ()))
                phase: guard.Phase = "run" if run else "closed" if closed else "outside"
                catalog = self._command.credentials.catalog_name
                guard.check(sql, guard.Scope(catalog, self._name_state, phase, named))

    @contextmanager
    def own(self) -> Iterator[None]:
        """Send sparkwap's own statements, which the guard does not check."""
        self.at_work.own = True
        try:
            yield
        finally:
            self.at_work.own = False

    @contextmanager
    def none_sent(self) -> Iterator[None]:
        """Let no statement through, and record no reads."""
        reader, self.at_work.reader = self.at_work.reader, None
        self.at_work.silent = True
        try:
            yield
        finally:
            self.at_work.silent, self.at_work.reader = False, reader

    def check_request(self, request: connect_guard.Message, reader: str | None = None) -> None:
        """Check a Spark Connect request of a Python model, of any thread, and record its reads."""
        # Imported late, because it needs PySpark; here a session exists already.
        from dbt.adapters.sparkwap.connect import statement_of

        run = self._runs.active or self._runs.closed
        if self._runs.active is not None and reader is not None:
            self.at_work.reader = reader
            with as_dbt_error():
                self._runs.active.trail.named(reader, connect_guard.reads(request))
        if run is None or run.settings.guard:
            with as_dbt_error():
                connect_guard.check(request, self.check)
        sent = statement_of(request)
        if sent is not None:
            self._sent(sent)

    def _identifier(self, name: Name) -> Identifier | None:
        """Return the table of the lake that a name in a statement refers to; None for others."""
        return guard.identifier_of(name, self._command.credentials.catalog_name)

    def _name_state(self, identifier: Identifier) -> guard.NameState:
        """Return what a name in a statement refers to now."""
        schema, name = identifier
        run, lake = self._runs.active, self._command.lake
        branch = self._branch_of(schema)
        if branch is not None:
            return "side" if run is not None and branch == run.branch else "own"
        target = None if run is None else run.candidates.target(identifier)
        if target is not None and target.identifier == identifier and target.how == "branch":
            return "placed"
        state = lake.state(identifier)
        if schema == LEDGER_SCHEMA:
            return "own"
        if state is not None and is_gated(state.properties):
            return "gated"
        if self._is_node(identifier) and not (state and self._is_kept_by_package(identifier)):
            return "node"
        if state is not None:
            return state.kind
        # Some catalogs do not distinguish upper and lower case.
        alike = (other for other in lake.relations(schema) if other.lower() == name.lower())
        return next((self._name_state((schema, other)) for other in alike), "absent")

    def _branch_of(self, schema: str) -> str | None:
        """Return the audit branch that owns a side schema; None for other schemas."""
        if names.SIDE_SEPARATOR in schema and schema not in self._side_schemas:
            self._side_schemas |= self._command.lake.side_schemas()
        return self._side_schemas.get(schema)

    def _is_node(self, identifier: Identifier) -> bool:
        """Return whether the project builds a relation of this name, case-insensitively."""
        schema, name = identifier
        known = self._command.dbt_manifest() is not None
        return known and (schema.lower(), name.lower()) in self._command.manifest.tables

    def _is_kept_by_package(self, identifier: Identifier) -> bool:
        """Return whether a node of an installed package has this table, and is not built now.

        Such as Elementary's, whose hooks write to them after each command.
        """
        owner = self._command.manifest.owner(identifier)
        return (
            owner is not None
            and owner.split(".")[1] != self._command.project_name
            and owner not in self._runs.selected
        )

    # -- the net ---------------------------------------------------------------------------------

    def watch(self, sql: str) -> Callable[[], Fate]:
        """Return a function that determines after an error whether a statement took effect.

        A statement is sent again only if that is known.
        """
        tables = written_tables(sql)
        if not tables:
            return lambda: "no table"
        run = self._runs.active
        identifier = self._identifier(tables[0])
        if run is None or identifier is None or len(tables) > 1:
            return lambda: "unknown"
        with as_dbt_error():
            return run.candidates.watch(identifier, self.at_work.batch)

    def on_step(self, step: checkpoints.Checkpoint, about: Mapping[str, Any]) -> None:
        """Record sent and answered statements for the check of ``main``."""
        if step is checkpoints.STATEMENT_SENDING:
            self._sent(about["sql"])
        elif step is checkpoints.STATEMENT_DONE:
            run = self._runs.active
            if run is not None and run.main is not None:
                run.main.answered()

    def _sent(self, sql: str) -> None:
        run = self._runs.active
        if run is None:
            return
        if "drop" in sql.lower():
            for name in dropped_objects(sql):
                identifier = self._identifier(name)
                if identifier is not None:
                    run.candidates.dropped(identifier)
        if run.main is not None:
            run.main.sent(self.at_work.node_id, sql)
