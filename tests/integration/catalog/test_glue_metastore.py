"""AWS Glue as a metastore, on moto's data catalog with the checks of the real one."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from helpers.glue import GlueServer, running_glue
from helpers.s3 import Faults
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    TimeType,
)

from sparkwap.catalog import metadata as md
from sparkwap.catalog.glue_metastore import GlueMetastore
from sparkwap.catalog.metastore import Entry
from sparkwap.catalog.pointers import Conflict, Pointer, Unanswered
from sparkwap.core.errors import CatalogError, ConfigError

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True, doc="the key"),
    NestedField(2, "amount", DecimalType(9, 2)),
    NestedField(3, "tags", ListType(4, StringType())),
    NestedField(5, "by", MapType(6, StringType(), 7, StructType(NestedField(8, "t", TimeType())))),
    NestedField(9, "at", TimestamptzType()),
    NestedField(10, "raw", FixedType(4)),
)
DOCUMENT: dict[str, Any] = {
    "location": "s3://lake/warehouse/t",
    "current-schema-id": 0,
    "schemas": [{"schema-id": 0, "fields": [{"id": 1, "name": "id", "type": "long"}]}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[GlueServer]:
    with running_glue() as server:
        yield server


@pytest.fixture(scope="module")
def store(server: GlueServer) -> Iterator[GlueMetastore]:
    store = GlueMetastore("lake", server.properties)
    yield store
    store.close()


@pytest.fixture(autouse=True)
def no_faults(server: GlueServer) -> Iterator[None]:
    """Faults end with their test."""
    yield
    server.faults(Faults())


@pytest.fixture
def schema(store: GlueMetastore, server: GlueServer) -> str:
    name = f"s_{uuid.uuid4().hex[:8]}"
    assert store.create_schema(name, f"{server.warehouse}/{name}/", {"wap.branch": "pr"})
    return name


def new_location() -> str:
    return f"s3://lake/warehouse/t/metadata/{uuid.uuid4()}.metadata.json"


def created(store: GlueMetastore, schema: str, name: str = "t") -> Entry:
    store.create(Pointer((schema, name), "table", new_location()), DOCUMENT)
    return present(store, schema, name)


def present(store: GlueMetastore, schema: str, name: str = "t") -> Entry:
    entry = store.entry((schema, name))
    assert entry is not None
    return entry


def raw(store: GlueMetastore, schema: str, name: str = "t") -> dict[str, Any]:
    found: dict[str, Any] = store._client.glue.get_table(DatabaseName=schema, Name=name)["Table"]
    return found


def put_raw(store: GlueMetastore, schema: str, name: str, **more: Any) -> None:
    store._client.glue.create_table(DatabaseName=schema, TableInput={"Name": name, **more})


class TestSchemas:
    def test_properties(self, store: GlueMetastore, server: GlueServer, schema: str) -> None:
        wanted = {"wap.branch": "pr", "location": f"{server.warehouse}/{schema}"}
        assert store.schema_properties(schema) == wanted
        assert store.schemas()[schema] == wanted
        assert store.create_schema(schema, "s3://lake/other", {}) is False
        assert store.schema_properties(schema) == wanted

    def test_no_such_schema(self, store: GlueMetastore) -> None:
        assert store.schema_properties("nowhere") is None
        assert store.entries("nowhere") == []
        assert store.entry(("nowhere", "t")) is None
        assert store.marks("nowhere") == {}
        assert store.drop_schema("nowhere")
        store.drop_marks("nowhere", ["m"])

    def test_only_an_empty_one_is_dropped(self, store: GlueMetastore, schema: str) -> None:
        put_raw(store, schema, "csv", Parameters={"classification": "csv"})
        assert store.drop_schema(schema) is False
        store._client.glue.delete_table(DatabaseName=schema, Name="csv")
        store.put_mark(schema, "m", "text")
        assert store.drop_schema(schema) is False
        store.drop_marks(schema, ["m"])
        assert store.drop_schema(schema) is True
        assert schema not in store.schemas()

    def test_more_than_one_page(self, store: GlueMetastore, schema: str) -> None:
        for number in range(101):
            store._client.glue.create_database(DatabaseInput={"Name": f"{schema}_{number}"})
        found = store.schemas()
        assert len([name for name in found if name.startswith(f"{schema}_")]) == 101


class TestEntries:
    def test_columns_are_those_of_pyiceberg(self, store: GlueMetastore, schema: str) -> None:
        table = store.pyiceberg().create_table((schema, "t"), SCHEMA)
        written = raw(store, schema)
        entry = present(store, schema)
        assert entry.pointer == Pointer((schema, "t"), "table", table.metadata_location)
        document = md.parse(table.metadata.model_dump_json().encode())
        store.create(Pointer((schema, "u"), "table", table.metadata_location), document)
        ours = raw(store, schema, "u")
        for key in ("TableType", "Parameters", "StorageDescriptor"):
            assert ours[key] == written[key]
        assert store.pyiceberg().load_table((schema, "u")).schema() == table.schema()

    def test_former_columns_follow(self, store: GlueMetastore, schema: str) -> None:
        table = store.pyiceberg().create_table((schema, "t"), SCHEMA)
        with table.update_schema() as update:
            update.delete_column("amount").add_column("n", LongType())
        document = md.parse(table.metadata.model_dump_json().encode())
        store.create(Pointer((schema, "u"), "table", table.metadata_location), document)
        assert (
            raw(store, schema, "u")["StorageDescriptor"]["Columns"]
            == (raw(store, schema)["StorageDescriptor"]["Columns"])
        )

    def test_types_and_comments_that_glue_does_not_know(
        self, store: GlueMetastore, schema: str
    ) -> None:
        types = ["variant", "geometry(srid:3857)", "timestamp_ns", "unknown", "news"]
        fields = [
            {"id": number, "name": f"c{number}", "type": one, "doc": "a\nb" * 200}
            for number, one in enumerate(types)
        ]
        properties = {"comment": "c" * 5000, "write.data.path": "s3://lake/data"}
        document = {
            **DOCUMENT,
            "schemas": [{"schema-id": 0, "fields": fields}],
            "properties": properties,
        }
        store.create(Pointer((schema, "t"), "table", new_location()), document)
        found = raw(store, schema)
        columns = found["StorageDescriptor"]["Columns"]
        wanted = ["variant", "geometry", "timestamp_nano", "unknown", "news"]
        assert [column["Type"] for column in columns] == wanted
        assert {len(column["Comment"]) for column in columns} == {255}
        assert len(found["Description"]) == 2048
        assert found["StorageDescriptor"]["AdditionalLocations"] == ["s3://lake/data"]

    def test_one_pass_over_more_than_one_page(
        self, store: GlueMetastore, server: GlueServer, schema: str
    ) -> None:
        for number in range(110):
            put_raw(store, schema, f"csv_{number:03}")
        entry = created(store, schema, "zz")
        put_raw(store, schema, "half", Parameters={"table_type": "ICEBERG"})
        server.requests()
        assert store.entries(schema) == [entry]
        assert server.requests() == {"GetTables": 2}
        assert store.entry((schema, "csv_000")) is None
        assert store.entry((schema, "half")) is None

    def test_a_taken_name(self, store: GlueMetastore, schema: str) -> None:
        put_raw(store, schema, "csv")
        for schema_name in ((schema, "csv"), ("nowhere", "t")):
            with pytest.raises(Conflict):
                store.create(Pointer(schema_name, "table", new_location()), DOCUMENT)

    def test_no_views(self, store: GlueMetastore, schema: str) -> None:
        with pytest.raises(CatalogError, match="keeps no views"):
            store.create(Pointer((schema, "v"), "view", new_location()), DOCUMENT)

    def test_capital_letters(self, store: GlueMetastore, schema: str) -> None:
        entry = created(store, schema)
        assert store.entry((schema, "T")) is None
        assert store.entry((schema.upper(), "t")) is None
        assert store.entries(schema.upper()) == []
        assert store.schema_properties(schema.upper()) is None
        changes: list[Callable[[], Any]] = [
            lambda: store.create(Pointer((schema, "T2"), "table", "s3://x"), DOCUMENT),
            lambda: store.rename(entry, (schema, "T2")),
            lambda: store.create_schema("S2", "s3://x", {}),
        ]
        for change in changes:
            with pytest.raises(CatalogError, match="lower case"):
                change()
        assert store.drop_schema(schema.upper())
        assert store.entries(schema) == [entry]


class TestSwap:
    def test_what_others_wrote_stays(self, store: GlueMetastore, schema: str) -> None:
        before = {
            "Name": "t",
            "Description": "of a person",
            "Owner": "hadoop",
            "Retention": 3,
            "PartitionKeys": [],
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {
                "table_type": "iceberg",
                "metadata_location": "s3://lake/2",
                "previous_metadata_location": "s3://lake/1",
                "steward": "ada",
            },
            "StorageDescriptor": {
                "Columns": [{"Name": "id", "Type": "int", "Comment": "of a person"}],
                "Location": "s3://lake/old",
                "AdditionalLocations": ["s3://lake/more"],
            },
        }
        store._client.glue.create_table(DatabaseName=schema, TableInput=before)
        location = new_location()
        store.swap(present(store, schema), location, DOCUMENT)
        found = raw(store, schema)
        for key in ("Description", "Owner", "Retention", "PartitionKeys"):
            assert found[key] == before[key]
        assert found["Parameters"] == {
            "table_type": "ICEBERG",
            "metadata_location": location,
            "steward": "ada",
        }
        storage = found["StorageDescriptor"]
        assert storage["AdditionalLocations"] == ["s3://lake/more"]
        assert storage["Location"] == DOCUMENT["location"]
        assert (storage["Columns"][0]["Type"], storage["Columns"][0]["Comment"]) == (
            "bigint",
            "of a person",
        )

    @pytest.mark.parametrize("archive", ["true", "false"])
    def test_the_archive(self, server: GlueServer, schema: str, archive: str) -> None:
        skip = {"true": "false", "false": "true"}[archive]
        store = GlueMetastore("lake", {**server.properties, "glue.skip-archive": skip})
        store.swap(created(store, schema), new_location(), DOCUMENT)
        versions = store._client.glue.get_table_versions(DatabaseName=schema, TableName="t")
        assert len(versions["TableVersions"]) == (2 if archive == "true" else 1)

    def test_a_former_state(self, store: GlueMetastore, schema: str) -> None:
        entry = created(store, schema)
        store.swap(entry, new_location(), DOCUMENT)
        now = present(store, schema)
        with pytest.raises(Conflict):
            store.swap(entry, new_location(), DOCUMENT)
        assert present(store, schema) == now

    def test_a_change_after_the_last_look(
        self, store: GlueMetastore, server: GlueServer, schema: str, monkeypatch: Any
    ) -> None:
        entry = created(store, schema)
        seen = raw(store, schema)
        other = new_location()
        store.swap(entry, other, DOCUMENT)
        monkeypatch.setattr(store, "_table", lambda identifier: seen)
        with pytest.raises(Conflict):
            store.swap(entry, new_location(), DOCUMENT)
        monkeypatch.undo()
        assert present(store, schema).pointer.location == other

    def test_gone_and_created_anew(self, store: GlueMetastore, schema: str) -> None:
        entry = created(store, schema)
        store.drop(entry)
        with pytest.raises(Conflict):
            store.swap(entry, new_location(), DOCUMENT)
        anew = created(store, schema)
        assert anew.token == entry.token  # Glue begins to count again
        with pytest.raises(Conflict):
            store.swap(entry, new_location(), DOCUMENT)
        assert present(store, schema) == anew

    def test_a_service_without_versions(
        self, store: GlueMetastore, schema: str, monkeypatch: Any
    ) -> None:
        created(store, schema)
        found = {key: value for key, value in raw(store, schema).items() if key != "VersionId"}
        monkeypatch.setattr(store, "_table", lambda identifier: found)
        with pytest.raises(CatalogError, match="no VersionId"):
            store.swap(present(store, schema), new_location(), DOCUMENT)

    def test_two_threads_lose_nothing(self, server: GlueServer, schema: str) -> None:
        stores = [GlueMetastore("lake", server.properties) for _ in range(2)]
        stores[0].create(Pointer((schema, "t"), "table", "s3://lake/0"), DOCUMENT)
        conflicts = []

        def count(store: GlueMetastore) -> None:
            done = 0
            while done < 100:
                entry = present(store, schema)
                number = int(entry.pointer.location.rpartition("/")[2])
                try:
                    store.swap(entry, f"s3://lake/{number + 1}", DOCUMENT)
                except Conflict:
                    conflicts.append(number)
                else:
                    done += 1

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(count, stores))
        assert present(stores[0], schema).pointer.location == "s3://lake/200"
        assert conflicts

    def test_beside_pyiceberg(self, server: GlueServer, schema: str) -> None:
        ours, theirs = (GlueMetastore("lake", server.properties) for _ in range(2))
        theirs.pyiceberg().create_table((schema, "t"), SCHEMA)

        def by_pyiceberg() -> None:
            done = 0
            while done < 15:
                table = theirs.pyiceberg().load_table((schema, "t"))
                try:
                    with table.transaction() as change:
                        change.set_properties({f"theirs_{done}": "1"})
                except CommitFailedException:
                    continue
                done += 1

        def by_swaps() -> None:
            done = 0
            catalog = ours.pyiceberg()
            while done < 15:
                entry = present(ours, schema)
                io = catalog._load_file_io(location=entry.pointer.location)
                with io.new_input(entry.pointer.location).open() as file:
                    document = dict(md.parse(file.read()))
                document["properties"] = {**document["properties"], f"ours_{done}": "1"}
                folder = entry.pointer.location.rpartition("/")[0]
                location = f"{folder}/00009-{uuid.uuid4()}.metadata.json"
                with io.new_output(location).create() as file:
                    file.write(md.dump(document))
                try:
                    ours.swap(entry, location, document)
                except Conflict:
                    continue
                done += 1

        with ThreadPoolExecutor(2) as threads:
            for ended in [threads.submit(by_pyiceberg), threads.submit(by_swaps)]:
                ended.result()
        found = ours.pyiceberg().load_table((schema, "t")).properties
        assert len([key for key in found if key.startswith("ours_")]) == 15
        assert len([key for key in found if key.startswith("theirs_")]) == 15


class TestRenameAndDrop:
    def test_rename(self, store: GlueMetastore, schema: str) -> None:
        entry = created(store, schema)
        before = raw(store, schema)
        store.rename(entry, (schema, "u"))
        after = present(store, schema, "u")
        assert store.entries(schema) == [after]
        assert after.pointer.location == entry.pointer.location
        for key in ("TableType", "Parameters", "StorageDescriptor"):
            assert raw(store, schema, "u")[key] == before[key]

    def test_a_taken_name(self, store: GlueMetastore, schema: str) -> None:
        entry, other = created(store, schema), created(store, schema, "u")
        with pytest.raises(Conflict):
            store.rename(entry, (schema, "u"))
        assert store.entries(schema) == [entry, other]

    def test_a_former_state(self, store: GlueMetastore, schema: str) -> None:
        entry = created(store, schema)
        store.swap(entry, new_location(), DOCUMENT)
        now = present(store, schema)
        for change in (lambda: store.rename(entry, (schema, "u")), lambda: store.drop(entry)):
            with pytest.raises(Conflict):
                change()
        assert store.entries(schema) == [now]
        store.drop(now)
        store.drop(now)
        assert store.entries(schema) == []
        with pytest.raises(Conflict):
            store.rename(now, (schema, "u"))

    def test_a_change_while_it_is_renamed(
        self, store: GlueMetastore, schema: str, monkeypatch: Any
    ) -> None:
        entry = created(store, schema)
        create = store._create

        def and_swap(*arguments: Any) -> None:
            create(*arguments)
            store.swap(entry, "s3://lake/other", DOCUMENT)

        monkeypatch.setattr(store, "_create", and_swap)
        with pytest.raises(Conflict):
            store.rename(entry, (schema, "u"))
        [kept] = store.entries(schema)
        assert kept.pointer == Pointer((schema, "t"), "table", "s3://lake/other")

    def test_a_refused_deletion_is_undone(
        self, store: GlueMetastore, server: GlueServer, schema: str
    ) -> None:
        entry = created(store, schema)
        server.faults(Faults(every=1, method="DeleteTable", error="AccessDeniedException", most=1))
        with pytest.raises(CatalogError, match=r"AccessDeniedException.*glue:DeleteTable"):
            store.rename(entry, (schema, "u"))
        assert store.entries(schema) == [entry]

    def test_both_names_are_told(
        self, store: GlueMetastore, server: GlueServer, schema: str
    ) -> None:
        entry = created(store, schema)
        server.faults(Faults(every=1, method="DeleteTable", error="AccessDeniedException"))
        with pytest.raises(CatalogError, match="Both names exist"):
            store.rename(entry, (schema, "u"))
        assert len(store.entries(schema)) == 2


class TestMarks:
    def test_they_are_no_tables(self, store: GlueMetastore, schema: str) -> None:
        store.put_mark(schema, "Run/1 é", "one\n")
        store.put_mark(schema, "Run/1 é", "two\n")
        store.put_mark(schema, "b", "")
        assert store.marks(schema) == {"Run/1 é": "two\n", "b": ""}
        assert store.entries(schema) == []
        assert store.pyiceberg().list_tables(schema) == []
        store.drop_marks(schema, ["Run/1 é", "never there"])
        assert store.marks(schema) == {"b": ""}
        with pytest.raises(CatalogError, match="does not exist"):
            store.put_mark("nowhere", "b", "")

    def test_many_writers(self, store: GlueMetastore, schema: str) -> None:
        def write(number: int) -> None:
            for turn in range(10):
                store.put_mark(schema, f"own_{number}", str(turn))
                store.put_mark(schema, "shared", f"{number}")

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(write, range(8)))
        found = store.marks(schema)
        assert found.pop("shared") in "01234567"
        assert found == {f"own_{number}": "9" for number in range(8)}


class TestLostAnswers:
    """The client sends a request again, and is refused, because the first one was carried out."""

    def test_the_changes_were_made(
        self, store: GlueMetastore, server: GlueServer, schema: str
    ) -> None:
        def losing(method: str) -> None:
            lost.append(method)
            server.faults(Faults(every=1, method=method, lost=True, most=1))

        lost: list[str] = []
        server.requests()
        losing("CreateTable")
        entry = created(store, schema)
        losing("UpdateTable")
        location = new_location()
        store.swap(entry, location, DOCUMENT)
        entry = present(store, schema)
        assert entry.pointer.location == location
        losing("DeleteTable")
        store.rename(entry, (schema, "u"))
        assert [one.pointer.identifier[1] for one in store.entries(schema)] == ["u"]
        losing("CreateTable")
        store.rename(present(store, schema, "u"), (schema, "v"))
        losing("DeleteTable")
        store.drop(present(store, schema, "v"))
        assert store.entries(schema) == []
        losing("CreateTable")
        store.put_mark(schema, "m", "1")
        losing("UpdateTable")
        store.put_mark(schema, "m", "2")
        assert store.marks(schema) == {"m": "2"}
        losing("DeleteTable")
        store.drop_marks(schema, ["m"])
        losing("DeleteDatabase")
        assert store.drop_schema(schema)
        assert store.schema_properties(schema) is None
        losing("CreateDatabase")
        assert store.create_schema(schema, "s3://lake/s", {"a": "b", "comment": "c"})
        assert server.requests()["503"] == len(lost)

    def test_a_deletion_is_sent_once(
        self, store: GlueMetastore, server: GlueServer, schema: str
    ) -> None:
        entry = created(store, schema)
        server.faults(Faults(every=1, method="DeleteTable", most=1))
        server.requests()
        with pytest.raises(Unanswered):
            store.drop(entry)
        assert server.requests()["DeleteTable"] == 1
        assert store.entries(schema) == [entry]

    def test_pyiceberg_sends_deletions_again(
        self, store: GlueMetastore, server: GlueServer, schema: str
    ) -> None:
        created(store, schema)
        server.faults(Faults(every=1, method="DeleteTable", most=1))
        store.pyiceberg().drop_table((schema, "t"))
        assert store.entries(schema) == []

    def test_no_answer_at_all(self, server: GlueServer, schema: str) -> None:
        store = GlueMetastore("lake", {**server.properties, "glue.max-retries": "1"})
        entry = created(store, schema)
        server.faults(Faults(every=1, method="UpdateTable"))
        with pytest.raises(Unanswered) as found:
            store.swap(entry, new_location(), DOCUMENT)
        assert found.value.lost
        server.faults(Faults(every=1, error="InternalServiceException"))
        with pytest.raises(CatalogError):
            store.entry((schema, "t"))
        server.faults(Faults())
        assert present(store, schema) == entry

    @pytest.mark.parametrize("tells", [True, False])
    def test_another_engine_went_on(self, server: GlueServer, schema: str, tells: bool) -> None:
        """Between the lost answer and the second request, an engine commits to the new state."""
        store, other = (GlueMetastore("lake", server.properties) for _ in range(2))
        entry, location = created(store, schema), new_location()
        server.faults(Faults(every=1, method="UpdateTable", lost=True, most=1))
        attempts = []

        def before(**_: Any) -> None:
            attempts.append(1)
            if len(attempts) == 2:
                table = raw(other, schema)
                former = table["Parameters"]["metadata_location"]
                assert former == location
                parameters = {"table_type": "ICEBERG", "metadata_location": "s3://lake/next"}
                if tells:
                    parameters["previous_metadata_location"] = former
                other._client.glue.update_table(
                    DatabaseName=schema,
                    TableInput={"Name": "t", "Parameters": parameters},
                    VersionId=table["VersionId"],
                )

        store._client.glue.meta.events.register("before-send.glue.UpdateTable", before)
        if tells:
            store.swap(entry, location, DOCUMENT)
        else:
            with pytest.raises(Unanswered) as found:
                store.swap(entry, location, DOCUMENT)
            assert not found.value.lost
        assert present(store, schema).pointer.location == "s3://lake/next"


class TestErrors:
    def test_refusals(self, store: GlueMetastore, server: GlueServer, schema: str) -> None:
        entry = created(store, schema)
        server.faults(Faults(every=1, error="AccessDeniedException"))
        calls: list[Callable[[], Any]] = [
            lambda: store.entry((schema, "t")),
            lambda: store.entries(schema),
            lambda: store.schemas(),
            lambda: store.create_schema("s", "s3://lake/s", {}),
            lambda: store.create(Pointer((schema, "u"), "table", "s3://lake/u"), DOCUMENT),
            lambda: store.drop_marks(schema, ["m"]),
        ]
        for call in calls:
            with pytest.raises(CatalogError, match=r"AccessDeniedException.*Lake Formation"):
                call()
        server.faults(Faults(every=1, method="UpdateTable", error="InvalidInputException"))
        with pytest.raises(CatalogError, match=r"InvalidInputException.*Nothing was changed"):
            store.swap(entry, new_location(), DOCUMENT)

    def test_no_server(self, server: GlueServer) -> None:
        properties = {**server.properties, "glue.endpoint": "http://127.0.0.1:1"}
        store = GlueMetastore("lake", {**properties, "glue.max-retries": "0"})
        for call in (store.schemas, lambda: store.create_schema("s", "s3://lake/s", {})):
            with pytest.raises(CatalogError, match="Nothing was changed"):
                call()

    def test_settings(self, server: GlueServer, monkeypatch: Any) -> None:
        with pytest.raises(ConfigError, match=r"glue\.max-retries"):
            GlueMetastore("lake", {**server.properties, "glue.max-retries": "many"})
        for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        with pytest.raises(CatalogError, match=r"region.*glue\.region"):
            GlueMetastore("lake", {"type": "glue"})

    def test_a_missing_package(self, server: GlueServer, monkeypatch: Any) -> None:
        monkeypatch.setitem(sys.modules, "boto3", None)
        monkeypatch.delitem(sys.modules, "pyiceberg.catalog.glue", raising=False)
        with pytest.raises(ConfigError, match=r"pip install '.*\[glue\]'"):
            GlueMetastore("lake", server.properties)
