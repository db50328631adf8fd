"""The adapter: extends dbt-spark with the lake's catalog and the gate (``adapter.wap``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from dbt.adapters.base.impl import ConstraintSupport
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.spark.column import SparkColumn
from dbt.adapters.spark.impl import SparkAdapter, SparkConfig
from dbt_common.clients.agate_helper import table_from_data_flat, table_from_rows
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap import docs
from dbt.adapters.sparkwap.column import SparkWapColumn
from dbt.adapters.sparkwap.connections import SparkWapConnectionManager
from dbt.adapters.sparkwap.relation import SparkWapRelation, identifier_of
from dbt.adapters.sparkwap.wap import Gate, Wap
from sparkwap.audits.constraints import ENFORCED
from sparkwap.catalog import TableState
from sparkwap.core.sqltext import quote

if TYPE_CHECKING:
    from multiprocessing.context import SpawnContext

    import agate
    from dbt.adapters.base.impl import FreshnessResponse
    from dbt.adapters.contracts.macros import MacroResolverProtocol
    from dbt.adapters.contracts.relation import RelationConfig
    from dbt_common.contracts.metadata import CatalogTable

    from sparkwap.publish.lake import Lake


@dataclass
class SparkWapConfig(SparkConfig):
    """Model configs that dbt-spark does not have.

    Attributes:
        sort_by: Columns or expressions that order the rows of the table's files.
        format_version: Iceberg's table format version.
        hard_deletes_at: For snapshots, an aggregate over the source rows that returns the deletion
            time of missing rows; without it, the time of the run.
        contract_types: How a contract compares types: ``family``, without size, precision and
            scale, as dbt documents it; or ``exact``.
        wap_writes: Ungated tables that the node's hooks and header may write to and change.
        wap_write_mode: ``copy-on-write``, ``merge-on-read``, or ``auto`` to choose by what its runs
            change, see `sparkwap.gate.write_mode`; None to leave the table's properties alone.
        wap_reuse: Whether the result depends only on the code and on what is read, see
            `sparkwap.plan.uncertain`; None to look for what says otherwise.
    """

    file_format: str = "iceberg"
    sort_by: list[str] | str | None = None
    format_version: int | None = None
    hard_deletes_at: str | None = None
    contract_types: str = "family"
    wap_writes: list[str] | str | None = None
    wap_write_mode: str | None = None
    wap_reuse: bool | None = None


class SparkWapAdapter(SparkAdapter):
    Relation = SparkWapRelation
    Column = SparkWapColumn
    # dbt-spark's annotation does not allow a subclass.
    ConnectionManager = SparkWapConnectionManager  # type: ignore[assignment]
    AdapterSpecificConfigs = SparkWapConfig

    connections: SparkWapConnectionManager
    wap = Wap()

    CONSTRAINT_SUPPORT: ClassVar[dict[ConstraintType, ConstraintSupport]] = {  # type: ignore[misc]
        ConstraintType(kind): ConstraintSupport.ENFORCED for kind in ENFORCED
    }
    _capabilities = CapabilityDict(
        {
            Capability.TableLastModifiedMetadata: CapabilitySupport(support=Support.Full),
            Capability.TableLastModifiedMetadataBatch: CapabilitySupport(support=Support.Full),
            Capability.SchemaMetadataByRelations: CapabilitySupport(support=Support.Full),
            Capability.GetCatalogForSingleRelation: CapabilitySupport(support=Support.Full),
            Capability.MicrobatchConcurrency: CapabilitySupport(support=Support.Full),
        }
    )

    def __init__(self, config: Any, mp_context: SpawnContext) -> None:
        super().__init__(config, mp_context)
        self.gate = Gate(
            config, self.connections, self.get_macro_resolver, self.get_columns_in_relation
        )

    def set_macro_resolver(self, macro_resolver: MacroResolverProtocol) -> None:
        # dbt calls it when it has read the whole project.
        super().set_macro_resolver(macro_resolver)
        self.gate.command.require_retryable()

    @property
    def lake(self) -> Lake:
        return self.gate.command.lake

    # -- statements ------------------------------------------------------------------------------

    @available.parse(lambda *a, **k: ("", table_from_rows([], [])))
    def execute(
        self, sql: str, auto_begin: bool = False, fetch: bool = False, limit: int | None = None
    ) -> tuple[AdapterResponse, agate.Table]:
        answer = self.gate.shared.answer(sql)
        if answer is not None:
            return AdapterResponse("OK"), answer
        sent: tuple[AdapterResponse, agate.Table] = super().execute(sql, auto_begin, fetch, limit)
        return sent

    # -- connections -----------------------------------------------------------------------------

    @contextmanager
    def connection_named(
        self, name: str, query_header_context: Any = None, should_release_connection: bool = True
    ) -> Iterator[None]:
        """Begin a node when dbt opens its connection, which is before dbt compiles it."""
        self.gate.command.require_no_replay()
        nodes, node = self.gate.nodes, query_header_context
        with (
            super().connection_named(name, node, should_release_connection),
            nodes.main_checked(node),
        ):
            if nodes.begin(node):
                self._look_again(node)
            with nodes.reading(node):
                yield

    def _look_again(self, node: Any) -> None:
        """Put a node's table into dbt's cache in its published state."""
        relation = self.Relation.create(schema=node.schema, identifier=node.alias)
        self.cache.drop(relation)
        live = self.lake.state((node.schema, node.alias))
        if live is not None:
            cached = relation.incorporate(type=live.kind)  # type: ignore[no-untyped-call]
            self.cache.add(cached)

    def cleanup_connections(self) -> None:
        self.gate.hooks.before_cleanup()
        super().cleanup_connections()
        self.gate.runs.cleanup()

    # -- the catalog -----------------------------------------------------------------------------

    def _state(self, relation: BaseRelation) -> TableState | None:
        return self.gate.runs.state(identifier_of(relation))

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        schema = str(schema_relation.schema)
        members = self.gate.runs.overlay().members()
        found = self.lake.relations(schema)
        for (of_schema, name), side in members.items():
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
                rows += docs.catalog_rows(state, identifier_of(relation), self._summary(state))
        # No text is converted, such as a name `2024` or a comment `true`.
        return table_from_data_flat(rows, list(rows[0]) if rows else []), []

    @available.parse(lambda *a, **k: None)
    def get_catalog_for_single_relation(self, relation: BaseRelation) -> CatalogTable | None:
        # Imported late, because it imports all of dbt's commands.
        from dbt.task.docs.generate import Catalog

        state = self._state(relation)
        if state is None:
            return None
        rows = docs.catalog_rows(state, identifier_of(relation), self._summary(state))
        return next(iter(Catalog(rows).values()), None)

    def _summary(self, state: TableState) -> Mapping[str, str]:
        """Return the summary of the snapshot that this invocation reads; empty if there is none."""
        branch = self.gate.command.settings.branch
        ref = state.refs.get(branch or "main") or state.refs.get("main")
        return self.lake.snapshot_summary(state.identifier, ref.snapshot_id) if ref else {}

    def calculate_freshness_from_metadata_batch(
        self, sources: list[BaseRelation], macro_resolver: Any = None
    ) -> tuple[list[AdapterResponse | None], dict[BaseRelation, FreshnessResponse]]:
        found = {}
        for source in sources:
            state = self.lake.state(identifier_of(source))
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
                f"{source} is missing or a view, so the catalog has no time of its last change. "
                "Give the source a `loaded_at_field`, or correct its name."
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
        connection = self.connections.get_if_exists()
        # What dbt compiles and all hooks have connections of other names. `_test` and `__test` are
        # those of dbt's test kit, which calls the adapter itself.
        by_hand = connection is not None and str(connection.name).startswith(
            ("macro_", "_test", "__test")
        )
        guarded = self.gate.command.settings.guard and not by_hand
        if guarded and self.lake.relations(schema):
            raise DbtRuntimeError(
                f"The guard refused to drop schema {schema}: its tables and views are live, so "
                "readers would lose them immediately. Nothing was dropped. Drop the schema with a "
                "run-operation."
            )
        self.lake.drop_schema(schema, purge=False)
        self.cache.drop_schema(None, relation.schema)

    def get_columns_in_relation(self, relation: BaseRelation) -> list[SparkColumn]:
        self.gate.nodes.looked_at(relation)
        # A relation without a schema is a temporary view, which exists only in its session.
        state = self._state(relation) if relation.schema else None
        if state is None:
            return [SparkWapColumn(**vars(c)) for c in super().get_columns_in_relation(relation)]
        pinned = self.gate.runs.overlay().pinned(identifier_of(relation))
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
        types = self.connections.query_types(sql)
        return [SparkWapColumn(column=name, dtype=kind) for name, kind in types]

    def generate_python_submission_response(self, submission_result: Any) -> AdapterResponse:
        return self.connections.get_response(None)

    @available
    def valid_incremental_strategies(self) -> list[str]:
        return ["append", "merge", "delete+insert", "insert_overwrite", "microbatch"]

    # -- SQL -------------------------------------------------------------------------------------

    @available
    def quote(self, identifier: str) -> str:  # type: ignore[override]
        """Return a name in backquotes, whatever its characters are."""
        # dbt also quotes None, such as the database, and omits it later.
        return quote(str(identifier))
