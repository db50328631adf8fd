"""The Spark Connect requests of a Python model: only listed ones are allowed."""

from __future__ import annotations

from typing import Any

import pytest
import zstandard
from google.protobuf.message import Message
from pyspark.sql.connect import proto

from sparkwap.core.errors import GateError
from sparkwap.core.sqllex import ANY_RELATION
from sparkwap.gate.connect_guard import changes, check, reads
from sparkwap.gate.session_changes import END_SESSION


def refuse_writes(sql: str) -> None:
    if sql.startswith(("insert", "set spark.wap", "set `spark.wap")):
        raise GateError(f"The guard refused {sql}")


def relation(**kind: Any) -> proto.Relation:
    return proto.Relation(**kind)


def sql(text: str) -> proto.Relation:
    return relation(sql=proto.SQL(query=text))


TABLE = relation(read=proto.Read(named_table=proto.Read.NamedTable(unparsed_identifier="s.t")))


def query(root: proto.Relation) -> proto.ExecutePlanRequest:
    return proto.ExecutePlanRequest(plan=proto.Plan(root=root))


def command(**kind: Any) -> proto.ExecutePlanRequest:
    return proto.ExecutePlanRequest(plan=proto.Plan(command=proto.Command(**kind)))


def catalog(kind: str, **fields: Any) -> proto.ExecutePlanRequest:
    request = query(relation(catalog=proto.Catalog()))
    message = getattr(request.plan.root.catalog, kind)
    message.SetInParent()
    for field, value in fields.items():
        setattr(message, field, value)
    return request


def setting(key: str, value: str = "x") -> proto.ConfigRequest:
    pairs = [proto.KeyValue(key=key, value=value)]
    operation = proto.ConfigRequest.Operation(set=proto.ConfigRequest.Set(pairs=pairs))
    return proto.ConfigRequest(operation=operation)


def unsetting(key: str) -> proto.ConfigRequest:
    operation = proto.ConfigRequest.Operation(unset=proto.ConfigRequest.Unset(keys=[key]))
    return proto.ConfigRequest(operation=operation)


def artifacts(*names: str) -> proto.AddArtifactsRequest:
    request = proto.AddArtifactsRequest()
    for name in names:
        request.batch.artifacts.add(name=name)
    return request


def packed(request: proto.ExecutePlanRequest, level: bool = True) -> proto.ExecutePlanRequest:
    kind = request.plan.WhichOneof("op_type")
    data = getattr(request.plan, kind).SerializeToString()
    compressed = proto.Plan.CompressedOperation(
        data=zstandard.compress(data) if level else data,
        op_type={"root": 1, "command": 2}[kind],  # type: ignore[arg-type]
        compression_codec=1,  # type: ignore[arg-type]
    )
    return proto.ExecutePlanRequest(plan=proto.Plan(compressed_operation=compressed))


VIEW = command(create_dataframe_view=proto.CreateDataFrameViewCommand(input=TABLE, name="a`b"))
WRITE = command(write_operation=proto.WriteOperation(input=TABLE, path="/x"))
BY_SQL = command(sql_command=proto.SqlCommand(input=sql("insert into s.t values (1)")))
PERSIST = proto.AnalyzePlanRequest(persist=proto.AnalyzePlanRequest.Persist(relation=TABLE))


@pytest.mark.parametrize(
    ("request_", "undo"),
    [
        (query(TABLE), []),
        (query(relation(join=proto.Join(left=TABLE, right=sql("select 1")))), []),
        (packed(query(TABLE)), []),
        (command(sql_command=proto.SqlCommand(input=sql("select 1"))), []),
        (command(sql_command=proto.SqlCommand(input=sql("use s"))), [END_SESSION]),
        (query(sql("create temporary view v as select 1")), ["drop view if exists v"]),
        (VIEW, ["drop view if exists `a``b`"]),
        (packed(VIEW), ["drop view if exists `a``b`"]),
        (command(checkpoint_command=proto.CheckpointCommand(relation=TABLE, local=True)), []),
        (command(get_resources_command=proto.GetResourcesCommand()), []),
        (command(register_function=proto.CommonInlineUserDefinedFunction()), [END_SESSION]),
        (PERSIST, [END_SESSION]),
        (catalog("list_tables"), []),
        (catalog("table_exists", table_name="s.t"), []),
        (catalog("cache_table", table_name="s.t"), ["uncache table if exists s.t"]),
        (setting("spark.sql.session.timeZone"), ["reset `spark.sql.session.timeZone`"]),
        (unsetting("spark.sql.session.timeZone"), ["reset `spark.sql.session.timeZone`"]),
        (artifacts("cache/abc"), []),
        (artifacts("cache/abc", "pyfiles/x.py"), [END_SESSION]),
        (proto.AddArtifactsRequest(chunk=proto.AddArtifactsRequest.ArtifactChunk()), []),
        (proto.InterruptRequest(), []),
        (proto.ReleaseSessionRequest(), [END_SESSION]),
    ],
)
def test_allowed_requests_and_their_undo(request_: Message, undo: list[str]) -> None:
    check(request_, refuse_writes)
    assert changes(request_) == undo


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (WRITE, "DataFrame.write to /x"),
        (packed(WRITE), "DataFrame.write to /x"),
        (
            command(write_operation_v2=proto.WriteOperationV2(input=TABLE, table_name="s.t")),
            "DataFrame.writeTo s.t",
        ),
        (
            command(merge_into_table_command=proto.MergeIntoTableCommand(target_table_name="s.t")),
            "DataFrame.mergeInto s.t",
        ),
        (command(write_stream_operation_start=proto.WriteStreamOperationStart()), "a stream"),
        (command(streaming_query_command=proto.StreamingQueryCommand()), "streaming_query_command"),
        (command(execute_external_command=proto.ExecuteExternalCommand()), "execute_external"),
        (command(pipeline_command=proto.PipelineCommand()), "pipeline_command"),
        (
            command(ml_command=proto.MlCommand(write=proto.MlCommand.Write(path="/x"))),
            "write of an ML model",
        ),
        (
            command(
                create_dataframe_view=proto.CreateDataFrameViewCommand(
                    input=TABLE, name="v", is_global=True
                )
            ),
            "global temporary view",
        ),
        (BY_SQL, "insert into s.t"),
        (command(sql_command=proto.SqlCommand(sql="insert into s.t values (1)")), "insert into"),
        # Spark also runs a statement in the place of a frame, or to return its columns.
        (query(sql("insert into s.t values (1)")), "insert into s.t"),
        (
            query(
                relation(
                    with_relations=proto.WithRelations(
                        root=TABLE, references=[sql("insert into s.t values (1)")]
                    )
                )
            ),
            "insert into s.t",
        ),
        (
            proto.AnalyzePlanRequest(
                schema=proto.AnalyzePlanRequest.Schema(
                    plan=proto.Plan(root=sql("insert into s.t values (1)"))
                )
            ),
            "insert into s.t",
        ),
        (catalog("set_current_catalog", catalog_name="lake"), "catalog.setCurrentCatalog"),
        (catalog("set_current_database", db_name="s"), "catalog.setCurrentDatabase"),
        (catalog("create_table", table_name="s.t"), "catalog.createTable"),
        (catalog("recover_partitions", table_name="s.t"), "catalog.recoverPartitions"),
        (catalog("clear_cache"), "catalog.clearCache"),
        (query(relation(unknown=proto.Unknown())), "relation `unknown`"),
        (setting("spark.wap.branch", "main"), "spark.wap.branch"),
        (unsetting("spark.wap.branch"), "spark.wap.branch"),
        (setting("spark.sql.sources.partitionOverwriteMode", "dynamic"), "partitionOverwriteMode"),
        (setting("spark.sql.catalog.other.uri"), "spark.sql.catalog.other.uri"),
        (setting("spark.sql.defaultCatalog"), "spark.sql.defaultCatalog"),
        (setting("spark.sql.session.timeZone.x"), "timeZone.x"),
        (artifacts("cache/a", "forward_to_fs/etc/x"), "forward_to_fs/etc/x"),
        (artifacts("jars/x.jar"), "jars/x.jar"),
        (proto.CloneSessionRequest(), "CloneSessionRequest"),
        (packed(WRITE, level=False), "cannot be read"),
    ],
)
def test_refused_requests(request_: Message, told: str) -> None:
    with pytest.raises(GateError, match="The guard refused") as error:
        check(request_, refuse_writes)
    assert told in str(error.value)


def test_a_server_plugin_is_refused_everywhere() -> None:
    for request in (
        query(relation(extension={"type_url": "x"})),
        command(extension={"type_url": "x"}),
        query(
            relation(
                filter=proto.Filter(
                    input=TABLE, condition=proto.Expression(extension={"type_url": "x"})
                )
            )
        ),
    ):
        with pytest.raises(GateError, match="The guard refused"):
            check(request, refuse_writes)


def test_the_guard_of_statements_checks_every_key() -> None:
    seen: list[str] = []
    check(setting("spark.sql.session.timeZone", "a`b;c"), seen.append)
    assert seen == ["set `spark.sql.session.timeZone`=0"]


def source(**fields: Any) -> proto.ExecutePlanRequest:
    return query(relation(read=proto.Read(data_source=proto.Read.DataSource(**fields))))


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (query(TABLE), ("s", "t")),
        (packed(query(relation(join=proto.Join(left=sql("select 1"), right=TABLE)))), ("s", "t")),
        (PERSIST, ("s", "t")),
        (source(format="iceberg", paths=["lake.s.t"]), ("s", "t")),
        (source(format="Iceberg", options={"path": "/lake/s/t"}), ANY_RELATION),
        (source(format="CSV", paths=["/landing/s/t"]), ("csv", "/landing/s/t")),
        (setting("a.b"), None),
    ],
)
def test_the_reads_of_a_frame_come_from_its_plan(request_: Message, name: Any) -> None:
    assert (name in reads(request_)) if name else not reads(request_)
