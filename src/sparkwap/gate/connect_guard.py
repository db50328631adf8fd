"""The guard for Spark Connect: which requests of a Python model may reach the server.

A Python model sends Spark Connect's protocol, and most of its requests contain no SQL. So this
guard checks the requests: it allows reads, a few commands that change only the session, and SQL
text that the guard of statements allows. It refuses everything else, also what later versions of
Spark add.

Requests are protobuf messages of `spark.connect`; the guard identifies them by their descriptors.
"""

from collections.abc import Callable, Iterator
from typing import Any

from sparkwap.catalog.model import Identifier
from sparkwap.core.errors import GateError
from sparkwap.core.sqllex import ANY_RELATION, relation_names
from sparkwap.core.sqltext import quote
from sparkwap.gate.session_changes import END_SESSION, session_changes
from sparkwap.gate.session_settings import settable

CheckSql = Callable[[str], None]
Message = Any
"""A protobuf message; the library has no static types for messages read by their descriptors."""


def check(request: Message, check_sql: CheckSql) -> None:
    """Refuse a request that could change more than the session that sends it.

    Args:
        request: A request of the service `spark.connect.SparkConnectService`.
        check_sql: Called with each SQL text in the request; raises if it refuses the text.

    Raises:
        GateError: The request is refused; the message has an alternative.
    """
    kind = request.DESCRIPTOR.name
    if kind in ("ExecutePlanRequest", "AnalyzePlanRequest"):
        for part in _parts_of_plan(request):
            _check_part(part, check_sql)
    elif kind == "ConfigRequest":
        for key in _changed_keys(request):
            if not settable(key):
                _refuse_setting(key)
            check_sql(f"set {quote(key)}=0")
    elif kind == "AddArtifactsRequest":
        for name in _artifacts(request):
            if not name.startswith(_ARTIFACTS):
                _refuse(f"the artifact {name}", "Use Python files, or create a frame of the data.")
    elif kind not in HARMLESS_REQUESTS:
        _refuse(f"Spark Connect's {kind}", "Use the session that the model is called with.")


def changes(request: Message) -> list[str]:
    """Return the statements that undo the changes of a session by a request.

    Returns:
        SQL statements, and `END_SESSION` for changes that only a new session undoes.
    """
    kind = request.DESCRIPTOR.name
    if kind == "ConfigRequest":
        return [f"reset {quote(key)}" for key in _changed_keys(request)]
    if kind in ("ReleaseSessionRequest", "CloneSessionRequest"):
        return [END_SESSION]
    if kind == "AddArtifactsRequest":
        kept = all(name.startswith(_DATA) for name in _artifacts(request))
        return [] if kept else [END_SESSION]
    found: list[str | None] = []
    for part in _parts_of_plan(request):
        match part.DESCRIPTOR.name:
            case "SQL":
                found.append(session_changes(part.query))
            case "SqlCommand":
                found.append(session_changes(part.sql) if part.sql else None)
            case "CreateDataFrameViewCommand" if not part.is_global:
                found.append(f"drop view if exists {quote(part.name)}")
            case "Command" if part.WhichOneof("command_type") not in _STATELESS_COMMANDS:
                found.append(END_SESSION)
            case "CacheTable":
                found.append(f"uncache table if exists {part.table_name}")
            case "Catalog" if part.WhichOneof("cat_type") not in _CATALOG:
                found.append(END_SESSION)
            case "Persist":
                found.append(END_SESSION)
    return [change for change in found if change is not None]


def reads(request: Message) -> frozenset[Identifier]:
    """Return the tables and views that the frames of a request read.

    Relations in its SQL texts are not included: `check_sql` gets these.

    Returns:
        See `sparkwap.core.sqllex.relation_names`. A path of an Iceberg table may be any relation;
        files have their name in SQL: format and path.
    """
    found: set[Identifier] = set()
    for part in _parts_of_plan(request):
        match part.DESCRIPTOR.name:
            case "NamedTable":
                found |= relation_names(part.unparsed_identifier)
            case "DataSource":
                iceberg = part.format.lower() == "iceberg"
                for path in (*part.paths, part.options.get("path", "")):
                    if "/" in path:
                        found.add(ANY_RELATION if iceberg else (part.format.lower(), path.lower()))
                    elif iceberg:
                        found |= relation_names(path)
    return frozenset(found)


# --- allowed requests ---------------------------------------------------------------------------

HARMLESS_REQUESTS = frozenset(
    {
        "ArtifactStatusesRequest",
        "FetchErrorDetailsRequest",
        "InterruptRequest",
        "ReattachExecuteRequest",
        "ReleaseExecuteRequest",
        "ReleaseSessionRequest",
    }
)
"""Requests that are always allowed: they return the state of a session's work, or end it."""

# Data of frames, and files for Python functions. `jars/` and `classes/` are code that the server
# runs, and `forward_to_fs` writes any file.
_DATA = ("cache/",)
_ARTIFACTS = (*_DATA, "pyfiles/", "files/", "archives/")

_RELATIONS = frozenset(
    """
    aggregate apply_in_pandas_with_state approx_quantile as_of_join cached_local_relation
    cached_remote_relation catalog chunked_cached_local_relation co_group_map collect_metrics
    common_inline_user_defined_data_source common_inline_user_defined_table_function corr cov
    crosstab deduplicate describe drop drop_na fill_na filter freq_items group_map hint html_string
    join lateral_join limit local_relation map_partitions ml_relation offset parse project range
    read repartition repartition_by_expression replace sample sample_by set_op show_string sort sql
    subquery_alias summary tail to_df to_schema transpose unpivot unresolved_table_valued_function
    with_columns with_columns_renamed with_relations with_watermark
    """.split()  # noqa: SIM905 - a page of one word a line
)
_STATELESS_COMMANDS = frozenset(
    {
        "checkpoint_command",
        "create_dataframe_view",  # `changes` handles its own message
        "get_resources_command",
        "remove_cached_remote_relation_command",
        "sql_command",
    }
)
_COMMANDS = _STATELESS_COMMANDS | {
    "create_resource_profile_command",
    "ml_command",
    "register_data_source",
    "register_function",
    "register_table_function",
}
_CATALOG = frozenset(
    """
    cache_table current_catalog current_database database_exists drop_temp_view function_exists
    get_database get_function get_table is_cached list_catalogs list_columns list_databases
    list_functions list_tables refresh_by_path refresh_table table_exists uncache_table
    """.split()  # noqa: SIM905 - a page of one word a line
)


def _check_part(part: Message, check_sql: CheckSql) -> None:
    match part.DESCRIPTOR.name:
        case "Relation":
            kind = part.WhichOneof("rel_type")
            if kind is not None and kind not in _RELATIONS:
                _refuse(f"Spark Connect's relation `{kind}`", _RETURN)
        case "SQL":
            check_sql(part.query)
        case "SqlCommand" if part.sql:
            check_sql(part.sql)
        case "Command":
            _check_command(part)
        case "Catalog":
            kind = part.WhichOneof("cat_type")
            if kind is not None and kind not in _CATALOG:
                _refuse(f"`catalog.{_camel(kind)}`", _NAME)
        case "Any":
            _refuse("a message of a plugin of Spark Connect", _RETURN)


def _check_command(command: Message) -> None:
    kind = command.WhichOneof("command_type")
    if kind == "create_dataframe_view" and command.create_dataframe_view.is_global:
        _refuse("a global temporary view", "Use a temporary view: the node's SQL can read it.")
    if kind == "ml_command" and command.ml_command.WhichOneof("command") == "write":
        _refuse("the write of an ML model", "Write it outside of dbt.")
    if kind is not None and kind not in _COMMANDS:
        _refuse(_WRITES.get(kind, lambda _: f"Spark Connect's command `{kind}`")(command), _RETURN)


_WRITES: dict[str, Callable[[Message], str]] = {
    "write_operation": lambda c: (
        "DataFrame.write to "
        + (c.write_operation.table.table_name or c.write_operation.path or "a data source")
    ),
    "write_operation_v2": lambda c: f"DataFrame.writeTo {c.write_operation_v2.table_name}",
    "merge_into_table_command": lambda c: (
        f"DataFrame.mergeInto {c.merge_into_table_command.target_table_name}"
    ),
    "write_stream_operation_start": lambda c: "a stream",
}
_RETURN = (
    "Return the frame from model(): the materialization writes it to the audit branch, and tests "
    "read it before it is published. "
)
_NAME = "Name tables with their schema, as dbt.ref() and dbt.source() do. "


def _refuse(what: str, instead: str) -> None:
    raise GateError(
        f"The guard refused {what}: a Python model may only read, and change its own session. "
        f"It was not sent to Spark. {instead.rstrip()} Or do it outside of a run, or turn the "
        "guard off at your own risk: --vars 'wap_guard: false'."
    )


def _refuse_setting(key: str) -> None:
    raise GateError(
        f"The guard refused to set {key}: it is not on the list of settings that change neither "
        "where statements write nor what they read. It was not sent to Spark. Put a setting of "
        "all sessions in `server_side_parameters` of the profile."
    )


def _camel(kind: str) -> str:
    first, *rest = kind.split("_")
    return first + "".join(word.title() for word in rest)


# --- reading a request --------------------------------------------------------------------------


def _parts_of_plan(request: Message) -> Iterator[Message]:
    """Return all messages within the plan of a request; none for a request without a plan."""
    kind = request.DESCRIPTOR.name
    if kind == "ExecutePlanRequest":
        # The client compresses large ones.
        packed = request.plan.WhichOneof("op_type") == "compressed_operation"
        yield from _parts(_unpacked(request.plan) if packed else request.plan)
    elif kind == "AnalyzePlanRequest":
        # Spark runs a command even if the request needs only its columns.
        yield from _parts(request)


def _unpacked(plan: Message) -> Message:
    packed, opened = plan.compressed_operation, type(plan)()
    try:
        import zstandard  # the client depends on it too

        # `decompress` needs the size in the data; this does not.
        content = zstandard.ZstdDecompressor().decompressobj().decompress(packed.data)
        which = {1: opened.root, 2: opened.command}[packed.op_type]
        which.MergeFromString(content)
    except Exception as error:
        raise GateError(
            "The guard refused a compressed plan of Spark Connect that cannot be read "
            f"({type(error).__name__}: {error}). It was not sent to Spark. Set "
            "`spark.connect.session.planCompression.threshold: -1` in `server_side_parameters` of "
            "the profile."
        ) from error
    return opened


def _parts(message: Message) -> Iterator[Message]:
    todo = [message]
    while todo:
        part = todo.pop()
        yield part
        for field, value in part.ListFields():
            if field.message_type is None:
                continue
            if hasattr(value, "DESCRIPTOR"):
                todo.append(value)
            else:
                members = value.values() if hasattr(value, "values") else value
                todo += [member for member in members if hasattr(member, "DESCRIPTOR")]


def _changed_keys(request: Message) -> list[str]:
    operation = request.operation
    kind = operation.WhichOneof("op_type")
    if kind == "set":
        return [pair.key for pair in operation.set.pairs]
    return list(operation.unset.keys) if kind == "unset" else []


def _artifacts(request: Message) -> list[str]:
    """Return the names of the artifacts that a request begins; a later chunk has no name."""
    kind = request.WhichOneof("payload")
    if kind == "batch":
        return [artifact.name for artifact in request.batch.artifacts]
    return [request.begin_chunk.name] if kind == "begin_chunk" else []
