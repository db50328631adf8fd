"""The placement of a node: the calls of the materializations before and after they write."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap.command import RUN_COMMANDS, as_dbt_error
from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.relation import as_of, identifier_of
from dbt.adapters.sparkwap.sessions import logger
from sparkwap.catalog import Identifier, Kind, TableState
from sparkwap.core import names, next_command
from sparkwap.core.errors import SparkwapError
from sparkwap.core.spark_types import widens
from sparkwap.core.sqltext import quote
from sparkwap.gate.placement import Desired, decide_build, in_place, is_exact, partition_terms
from sparkwap.gate.write_mode import MODES, PROPERTIES, choose

if TYPE_CHECKING:
    from sparkwap.runs.run import Run

_T = TypeVar("_T")


class Placement:
    """The places where the nodes of a run are built."""

    def __init__(self, runs: CommandRun) -> None:
        self._runs = runs
        self._command = runs.command
        self._lock = threading.Lock()
        self._throw_away: set[Identifier] = set()
        # The problem of the server or catalog; empty for none, None before the check.
        self._unsafe: str | None = None

    @available.parse(lambda *a, **k: False)
    def is_building(self) -> bool:
        """Return whether this command builds tables, and does not only compile or show them."""
        return self._runs.current() is not None

    @available.parse(lambda *a, **k: None)
    def place_table(
        self,
        relation: BaseRelation,
        columns: Sequence[Mapping[str, Any]] | None = None,
        layout: Mapping[str, Any] | None = None,
    ) -> str:
        """Decide where a table is built (``branch`` or ``side``); ``relation`` now renders to it.

        Args:
            columns: Dicts of name, type, nullable and doc, in order; None to keep the table's.
            layout: Those of partition_by, sort_by, properties, format_version and comment that
                the model manages; ``given``, all properties of the model's config; and
                ``on_clone``, properties that a clone has from the start.
        """
        table = identifier_of(relation)
        if table in self._throw_away:
            return "side"
        layout = layout or {}
        desired = _desired(layout, columns)
        at_once = in_place(layout.get("given"))
        on_clone = layout.get("on_clone")
        return self._in_run(
            lambda run: run.candidates.place_table(table, desired, at_once, on_clone).how
        )

    @available.parse(lambda *a, **k: None)
    def check_layout(
        self,
        relation: BaseRelation,
        layout: Mapping[str, Any],
        types: Mapping[str, str],
        node_id: str,
        strategy: str,
    ) -> None:
        """Note what of a model's layout and types its existing table does not have.

        Args:
            relation: The table, after it was placed.
            types: The types that the model returns, by column. A cast to those of the table may
                change values.

        Raises:
            SparkwapError: The strategy replaces partitions, and the table's are not the model's.
        """
        state = self.live(relation)
        if state is None or identifier_of(relation) in self._throw_away:
            return
        again = _build_anew(node_id)
        if cast := list(_inexact(types, state)):
            self._tell_once(
                node_id,
                f"values are cast to the types of its table, which may round them: "
                f"{', '.join(cast)}; to change the table: {again}",
            )
        wanted = _terms(layout, "partition_by")
        if (
            strategy == "insert_overwrite"
            and wanted is not None
            # The same terms in another order have the same partitions.
            and set(partition_terms(wanted)) != set(partition_terms(state.partitioning))
        ):
            changes = decide_build(state, Desired(partitioning=wanted)).changes
            with as_dbt_error():
                raise SparkwapError(
                    "insert_overwrite replaces whole partitions, but those of the table "
                    f"{'.'.join(identifier_of(relation))} are not those of the config: "
                    f"{', '.join(changes)}. Rows that the increment does not have would be lost. "
                    "The increment was not written. Set partition_by to that of the table, or "
                    f"build the table anew: {again}"
                )
        changes = decide_build(state, _desired(layout)).changes
        if changes:
            self._tell_once(
                node_id,
                "its config differs from its table, which keeps its layout "
                f"({', '.join(changes)}); to change the table: {again}",
            )

    def _tell_once(self, node_id: str, notice: str) -> None:
        run = self._runs.current()
        if run is not None and notice not in run.notes.notices.get(node_id, ()):
            run.notes.add_notice(node_id, notice)

    @available.parse(lambda *a, **k: {})
    def write_mode(self, relation: BaseRelation, wanted: str, node_id: str) -> dict[str, str]:
        """Return the table properties to change for a write mode; notes why ``auto`` chose it."""
        table = identifier_of(relation)

        def chosen(run: Run) -> dict[str, str]:
            state = self._command.lake.state(table)
            if state is None or state.kind != "table":
                return {}
            properties = state.properties
            mode = wanted
            if wanted == "auto":
                summaries = self._command.lake.summaries(table, None, state.main)
                found = choose(summaries, properties.get(PROPERTIES[0]))
                mode = found.mode
                run.notes.write_modes[node_id] = f"{mode}: {found.reason}"
            if all(properties.get(key, MODES[0]) == mode for key in PROPERTIES):
                return {}
            if wanted == "auto":
                run.notes.add_notice(node_id, f"{mode} from now on: {found.reason}")
            return dict.fromkeys(PROPERTIES, mode)

        return self._in_run(chosen)

    @available.parse(lambda *a, **k: None)
    def place_clone(self, relation: BaseRelation, changes: Sequence[str]) -> str:
        """Build on a clone, because the schema changes; see :meth:`place_table`."""
        table = identifier_of(relation)
        if table in self._throw_away:
            return "side"
        return self._in_run(lambda run: run.candidates.place_clone(table, changes).how)

    @available.parse(lambda *a, **k: None)
    def place_beside(self, relation: BaseRelation) -> str:
        """Build a view or a replacement in the side schema, without the published rows."""
        kind: Kind = "view" if relation.is_view else "table"
        table = identifier_of(relation)
        return self._in_run(lambda run: run.candidates.place_beside(table, kind).how)

    @available.parse(lambda *a, **k: None)
    def place_failures(self, relation: BaseRelation) -> str:
        """Build stored failures in the side schema; they may replace only stored failures."""
        table = identifier_of(relation)
        with as_dbt_error():
            owner = self._command.manifest.owner(table)
            if owner is None and self._command.lake.state(table) is not None:
                owner = self._published.get(table)
            if owner is not None:
                raise SparkwapError(
                    f"The failures of this test would be stored as {'.'.join(table)}, which is the "
                    f"table of {owner}, and replace it for readers. They were not written. Give "
                    "the test another `alias` or `schema`."
                )
        how: str = self.place_beside(relation)
        return how

    def throw_away_table(self) -> Identifier:
        """Return the name of a table of this run that no node builds, in a new side schema.

        The macros that write a node's table can write it, too; it never becomes a candidate.
        """
        return self._in_run(self._new_throw_away)

    def _new_throw_away(self, run: Run) -> Identifier:
        schema = names.throw_away_schema(run.run_id, uuid.uuid4().hex, run.branch)
        self._command.lake.ensure_schema(schema, run.branch)
        table = schema, "tested"
        self._throw_away.add(table)
        return table

    def drop_throw_away(self, table: Identifier) -> None:
        """Drop such a table with its schema and files."""
        self._throw_away.discard(table)
        try:
            self._command.lake.drop_schema(table[0], purge=True)
        except Exception as error:
            # The next run on the branch, a discard or a sweep drops it.
            logger.debug(f"the throw-away table {'.'.join(table)} stays: {error}")

    @cached_property
    def _published(self) -> Mapping[Identifier, str]:
        """The node that was last published as each table or view, without stored failures."""
        return self._command.lake.ledger.owners()

    @available.parse(lambda *a, **k: None)
    def place_copy(self, relation: BaseRelation, other: BaseRelation) -> str:
        """Build ``relation`` as a copy of the published table ``other``, without copying files."""
        table, source = identifier_of(relation), identifier_of(other)
        return self._in_run(lambda run: run.candidates.place_copy(table, source).how)

    @available.parse(lambda *a, **k: "")
    def location(self, relation: BaseRelation) -> str:
        """Return a new, unused path for a new table."""
        table = identifier_of(relation)
        return self._in_run(lambda run: run.candidates.location(table))

    @available.parse(lambda *a, **k: None)
    def built(self, node_id: str, relation: BaseRelation, must_write: bool = True) -> None:
        """Record the table or view that a node has built as its candidate."""
        table = identifier_of(relation)
        self._in_run(lambda run: run.built(node_id, table, must_write=must_write).how)

    def tell(self, node_id: str, notice: str) -> None:
        """Keep a line about a node's build for the summary of the run."""
        run = self._runs.current()
        if run is not None:
            run.notes.add_notice(node_id, notice)

    @available.parse(lambda *a, **k: None)
    def published(self, relation: BaseRelation) -> str | None:
        """Return SQL that reads a table's published state from within a run; None if none."""
        return self.published_name(identifier_of(relation))

    def published_name(self, identifier: Identifier) -> str | None:
        """See :meth:`published`."""
        state = self._command.lake.state(identifier)
        if state is None or (state.kind == "table" and state.main is None):
            return None
        quoted = ".".join(map(quote, identifier))
        moment = self._command.as_of
        if moment is not None:
            with as_dbt_error():
                former = moment.former(identifier)
            return None if former is None else f"{quoted}{as_of(former)}"
        return quoted if state.kind == "view" else f"{quoted} version as of 'main'"

    @available.parse(lambda *a, **k: None)
    def live(self, relation: BaseRelation) -> TableState | None:
        """Return the state of the table or view that ``relation`` renders to now."""
        return self._runs.state(identifier_of(relation))

    @available.parse(lambda *a, **k: True)
    def widens(self, relation: BaseRelation, column: str, new_type: str) -> bool:
        """Return whether Iceberg can change the column's type in place."""
        state = self.live(relation)
        old = {c.name.lower(): c.type for c in state.columns} if state else {}
        return widens(old.get(column.lower(), ""), new_type)

    def _in_run(self, work: Callable[[Run], _T]) -> _T:
        run = self._runs.current()
        if run is None:
            raise DbtRuntimeError(
                f"`dbt {self._command.name}` does not open a run, so it cannot build tables. "
                f"Nothing was built. Use one of: {', '.join(sorted(RUN_COMMANDS))}."
            )
        with as_dbt_error():
            self._require_safe(run)
            return work(run)

    def _require_safe(self, run: Run) -> None:
        """Check before the first table that rows of an audit branch stay on the branch.

        The embedded server with the lake's own database needs no check.
        """
        command = self._command
        if command.credentials.embedded and command.lake.store.backend.atomic:
            return
        with self._lock:
            if self._unsafe is None:
                # Imported late, because it loads PyArrow, which takes half a second.
                from dbt.adapters.sparkwap.probing import require_safe

                settings = self._runs.session_settings()
                try:
                    require_safe(command.lake, command.connections, settings, run.run_id)
                    self._unsafe = ""
                except SparkwapError as error:
                    self._unsafe = str(error)
            if self._unsafe:
                raise SparkwapError(self._unsafe)


def _build_anew(node_id: str) -> str:
    """Return the way to build a table anew; a snapshot is never built anew."""
    if node_id.startswith("snapshot."):
        return "alter it outside of dbt, if Iceberg can widen the type"
    return next_command.dbt(f"build --full-refresh --select {next_command.selected(node_id)}")


def _inexact(types: Mapping[str, str], state: TableState) -> Iterator[str]:
    """Yield the columns of a table to whose types a cast of these types may change values."""
    new = {name.lower(): kind for name, kind in types.items()}
    for column in state.columns:
        given = new.get(column.name.lower(), column.type)
        if not is_exact(given, column.type):
            yield f"{column.name} from {given} to {column.type}"


def _desired(
    layout: Mapping[str, Any], columns: Sequence[Mapping[str, Any]] | None = None
) -> Desired:
    """Return the desired state of a table; see `Placement.place_table`."""
    return Desired(
        columns=None
        if columns is None
        else tuple((c["name"], c["type"], c.get("nullable"), c.get("doc")) for c in columns),
        partitioning=_terms(layout, "partition_by"),
        sort_order=_terms(layout, "sort_by"),
        properties=layout.get("properties"),
        format_version=layout.get("format_version"),
        comment=layout.get("comment"),
    )


def _terms(layout: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    """Return the terms of a clause, empty to remove it; None if the model does not manage it."""
    if key not in layout:
        return None
    return tuple(layout[key] or ())
