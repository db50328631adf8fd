"""The module of Hive's metastore on a real one; skipped without Java."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from helpers.hive import HiveServer, running_hive_metastore
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from sparkwap.catalog import hive_client
from sparkwap.catalog import metadata as md
from sparkwap.catalog.hive_metastore import HiveMetastore
from sparkwap.catalog.metastore import Entry, Metastore
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Conflict, Pointer, Unanswered
from sparkwap.core.errors import CatalogError

ROOT = Path(__file__).parents[3]
COLUMNS = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKWAP_JARS", os.environ.get("SPARKWAP_JARS", str(ROOT / ".lake/jars")))
        with running_hive_metastore(tmp_path_factory.mktemp("hive")) as server:
            yield server


@pytest.fixture
def hive(server: HiveServer) -> Iterator[HiveMetastore]:
    # PyIceberg would wait for seconds.
    hive = HiveMetastore("lake", {**server.properties, "lock-check-max-wait-time": "0.1"})
    yield hive
    hive.close()


@pytest.fixture
def schema(hive: HiveMetastore, server: HiveServer) -> str:
    """A new schema."""
    name = f"s{next(numbers)}"
    assert hive.create_schema(name, f"{server.warehouse}/{name}", {})
    return name


def made(hive: HiveMetastore, identifier: Identifier) -> tuple[Entry, md.Document]:
    """A table that PyIceberg has created, and its metadata."""
    table = hive.pyiceberg().create_table(identifier, COLUMNS)
    return found(hive, identifier), document(table.metadata_location)


def found(hive: HiveMetastore, identifier: Identifier) -> Entry:
    entry = hive.entry(identifier)
    assert entry is not None
    return entry


def document(location: str) -> md.Document:
    return md.parse(Path(location.removeprefix("file:").replace("//", "/")).read_bytes())


def written(document: md.Document, **changes: Any) -> tuple[str, md.Document]:
    """Write a changed document; returns its location, and the document."""
    changed = {**document, **changes}
    folder = Path(str(document["location"]).removeprefix("file:").replace("//", "/"), "metadata")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4()}.metadata.json"
    path.write_bytes(md.dump(changed))
    return f"file://{path}", changed


def raw(hive: HiveMetastore, identifier: Identifier) -> HiveTable:
    return hive._connections.read(lambda client: client.get_table(*identifier))


def view(location: str, sql: str = "select 1 as id") -> md.Document:
    return {
        "view-uuid": str(uuid.uuid4()),
        "format-version": 1,
        "location": location,
        "current-version-id": 1,
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [{"id": 1, "name": "id", "required": False, "type": "int"}],
            }
        ],
        "versions": [
            {
                "version-id": 1,
                "timestamp-ms": 1,
                "schema-id": 0,
                "summary": {},
                "default-namespace": ["s"],
                "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
            }
        ],
        "version-log": [{"timestamp-ms": 1, "version-id": 1}],
        "properties": {},
    }


def test_schemas(hive: HiveMetastore, server: HiveServer) -> None:
    metastore: Metastore = hive
    location = f"file://{server.folder}/elsewhere"
    assert metastore.create_schema("made", location, {"wap.branch": "b", "comment": "why"})
    assert not metastore.create_schema("made", location, {})
    properties = metastore.schema_properties("made")
    assert properties is not None
    assert properties["wap.branch"] == "b"
    assert properties["comment"] == "why"
    assert properties["location"].endswith("/elsewhere")
    assert metastore.schemas()["made"] == properties
    assert metastore.schema_properties("absent") is None
    assert metastore.entries("absent") == []
    made(hive, ("made", "t"))
    assert not metastore.drop_schema("made")
    assert [entry.pointer.identifier for entry in metastore.entries("made")] == [("made", "t")]
    metastore.drop(found(hive, ("made", "t")))
    assert metastore.drop_schema("made")
    assert metastore.schema_properties("made") is None
    assert metastore.drop_schema("made")


def test_a_schema_that_two_create_at_once_keeps_its_files(
    hive: HiveMetastore, server: HiveServer
) -> None:
    """The metastore refuses one of them, and must not delete the folder of the other."""
    other = HiveMetastore("lake", server.properties)
    name = f"s{next(numbers)}"
    location = f"{server.warehouse}/{name}"
    file = Path(location.removeprefix("file://"), "file")
    waiting = "select count(*) from pg_locks where not granted"
    with (
        closing(psycopg2.connect(server.dsn)) as database,
        closing(psycopg2.connect(server.dsn)) as looker,
        ThreadPoolExecutor() as threads,
    ):
        looker.autocommit = True
        with database.cursor() as at, looker.cursor() as look:
            at.execute('lock table "DBS" in share row exclusive mode')
            both = [threads.submit(one.create_schema, name, location, {}) for one in (hive, other)]
            count = 0
            while count < 2:
                look.execute(waiting)
                ((count,),) = look.fetchall()
            # Both have created the folder, or found it.
            file.write_text("of the first")
            database.commit()
    assert sorted(one.result() for one in both) == [False, True]
    assert file.read_text() == "of the first"
    other.close()


def test_threads_create_a_schema_once(
    hive: HiveMetastore, server: HiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    change = hive._change

    def counted(name: str, *arguments: Any) -> Any:
        asked.append(name)
        return change(name, *arguments)

    monkeypatch.setattr(hive, "_change", counted)
    name = f"s{next(numbers)}"
    with ThreadPoolExecutor(4) as threads:
        tasks = [
            threads.submit(hive.create_schema, name, f"{server.warehouse}/{name}", {})
            for _ in range(4)
        ]
    assert sorted(task.result() for task in tasks) == [False, False, False, True]
    assert asked == [name]


def test_a_table_of_ours_is_pyicebergs(hive: HiveMetastore, schema: str) -> None:
    entry, before = made(hive, (schema, "t"))
    location, _ = written(before)
    pointer = Pointer((schema, "u"), "table", location)
    hive.create(pointer, before)
    assert found(hive, (schema, "u")).pointer == pointer
    with pytest.raises(Conflict, match="exists"):
        hive.create(replace(pointer, location=entry.pointer.location), before)
    with pytest.raises(Conflict, match="does not exist"):
        hive.create(Pointer(("absent", "u"), "table", location), before)
    table = hive.pyiceberg().load_table((schema, "u"))
    table.append(pa.table({"id": [1], "name": ["a"]}))
    assert table.scan().to_arrow().num_rows == 1
    assert (schema, "u") in hive.pyiceberg().list_tables(schema)
    theirs, ours = raw(hive, (schema, "t")), raw(hive, (schema, "u"))
    assert theirs.tableType == ours.tableType == "EXTERNAL_TABLE"
    assert [(c.name, c.type) for c in ours.sd.cols] == [("id", "bigint"), ("name", "string")]
    assert ours.parameters["uuid"] == before["table-uuid"]
    assert ours.parameters["EXTERNAL"] == "TRUE"
    assert {entry.pointer.identifier[1] for entry in hive.entries(schema)} == {"t", "u"}


def test_a_swap(hive: HiveMetastore, schema: str) -> None:
    entry, before = made(hive, (schema, "t"))
    hive.pyiceberg().load_table((schema, "t")).append(pa.table({"id": [1], "name": ["a"]}))
    with pytest.raises(Conflict, match="changed"):
        hive.swap(entry, *written(before))
    entry = found(hive, (schema, "t"))
    present = document(entry.pointer.location)
    fields = [
        *present["schemas"][0]["fields"],
        {"id": 3, "name": "shape", "required": False, "type": "a type of the future", "doc": "x"},
        {"id": 4, "name": "long", "required": False, "type": "string", "doc": "x" * 5000},
    ]
    schemas = [{**present["schemas"][0], "fields": fields}]
    location, changed = written(
        present, schemas=schemas, properties={"a": "b", "big": "x" * 40_000}
    )
    hive.swap(entry, location, changed)
    stored = raw(hive, (schema, "t"))
    assert stored.parameters["metadata_location"] == location
    assert stored.parameters["previous_metadata_location"] == entry.pointer.location
    assert stored.parameters["numRows"] == "1"
    assert stored.parameters["a"] == "b"
    assert json.loads(stored.parameters["current-schema"]) == schemas[0]
    assert [column.name for column in stored.sd.cols] == ["id", "name", "shape", "long"]
    hive.drop(found(hive, (schema, "t")))
    with pytest.raises(Conflict, match="gone"):
        hive.swap(
            replace(entry, pointer=replace(entry.pointer, location=location)), *written(before)
        )


def test_two_threads_lose_no_swap(server: HiveServer, hive: HiveMetastore, schema: str) -> None:
    made(hive, (schema, "t"))

    def swap(name: str) -> int:
        hive = HiveMetastore("lake", server.properties)
        tries = 0
        for number in range(25):
            while True:
                tries += 1
                entry = found(hive, (schema, "t"))
                present = document(entry.pointer.location)
                properties = {**present["properties"], f"{name}{number}": "x"}
                try:
                    hive.swap(entry, *written(present, properties=properties))
                except Conflict:
                    continue
                break
        return tries

    with ThreadPoolExecutor(2) as threads:
        tries = list(threads.map(swap, "ab"))
    present = document(found(hive, (schema, "t")).pointer.location)
    made_all = {f"{name}{number}" for name in "ab" for number in range(25)}
    assert made_all <= set(present["properties"]), tries


@pytest.mark.parametrize("locked", ["true", "false"])
def test_pyiceberg_beside_loses_nothing(hive: HiveMetastore, schema: str, locked: str) -> None:
    hive.pyiceberg().create_table(
        (schema, "t"), COLUMNS, properties={"engine.hive.lock-enabled": locked}
    )

    def theirs() -> None:
        catalog = hive.pyiceberg()
        for number in range(10):
            while True:
                try:
                    with catalog.load_table((schema, "t")).transaction() as change:
                        change.set_properties({f"theirs{number}": "x"})
                except CommitFailedException:
                    continue
                break

    def ours() -> None:
        for number in range(10):
            while True:
                entry = found(hive, (schema, "t"))
                present = document(entry.pointer.location)
                properties = {**present["properties"], f"ours{number}": "x"}
                try:
                    hive.swap(entry, *written(present, properties=properties))
                except Conflict:
                    continue
                break

    if locked == "false":
        # PyIceberg always locks and never compares, so that only our own changes can race.
        theirs, ours = ours, lambda: None
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(theirs), threads.submit(ours)]:
            done.result()
    properties = set(document(found(hive, (schema, "t")).pointer.location)["properties"])
    assert {f"ours{number}" for number in range(10)} <= properties
    if locked == "true":
        assert {f"theirs{number}" for number in range(10)} <= properties


def test_compare_and_swap_without_locks(server: HiveServer, schema: str) -> None:
    hive = HiveMetastore("lake", {**server.properties, "hive.lock-enabled": "false"})
    entry, before = made(hive, (schema, "t"))
    outcomes = []

    def swap(number: int) -> None:
        try:
            hive.swap(entry, *written(before, properties={"n": str(number)}))
            outcomes.append("made")
        except Conflict:
            outcomes.append("conflict")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(swap, range(8)))
    assert sorted(outcomes) == ["conflict"] * 7 + ["made"]
    hive.close()


def test_a_lock_that_is_not_free(
    hive: HiveMetastore, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hive_client, "LOCK_SECONDS", 0.2)
    entry, before = made(hive, (schema, "t"))

    def held() -> None:
        with pytest.raises(CatalogError, match=r"lock of .* was not free"):
            hive.swap(entry, *written(before))
        with pytest.raises(CatalogError, match=r"lock of .* was not free"):
            hive.drop(entry)

    hive._connections.use(lambda client: hive._connections.locked(client, (schema, "t"), held))
    # The wait that was given up leaves no lock behind.
    hive.swap(entry, *written(before))


def test_a_rename_leaves_the_files(hive: HiveMetastore, server: HiveServer, schema: str) -> None:
    entry, before = made(hive, (schema, "t"))
    other = f"{schema}_other"
    hive.create_schema(other, f"{server.warehouse}/{other}", {})
    folder = Path(str(before["location"]).removeprefix("file:").replace("//", "/"))
    files = sorted(folder.rglob("*"))
    made(hive, (schema, "taken"))
    with pytest.raises(Conflict, match="exists"):
        hive.rename(entry, (schema, "taken"))
    hive.rename(entry, (other, "u"))
    assert hive.entry((schema, "t")) is None
    assert found(hive, (other, "u")).pointer.location == entry.pointer.location
    assert sorted(folder.rglob("*")) == files
    assert raw(hive, (other, "u")).sd.location == raw(hive, (schema, "taken")).sd.location.replace(
        "/taken", "/t"
    )
    with pytest.raises(Conflict, match="gone"):
        hive.rename(entry, (other, "v"))
    moved = found(hive, (other, "u"))
    hive.pyiceberg().load_table((other, "u")).append(pa.table({"id": [1], "name": ["a"]}))
    with pytest.raises(Conflict, match="changed"):
        hive.rename(moved, (schema, "back"))
    with pytest.raises(CatalogError, match="does not exist"):
        hive.rename(found(hive, (other, "u")), ("absent", "u"))


def test_a_drop_leaves_the_files(hive: HiveMetastore, schema: str) -> None:
    entry, before = made(hive, (schema, "t"))
    location, changed = written(before, properties={"gc.enabled": "true"})
    hive.swap(entry, location, changed)
    with pytest.raises(Conflict, match="changed"):
        hive.drop(entry)
    hive.drop(found(hive, (schema, "t")))
    assert hive.entry((schema, "t")) is None
    assert document(location) == changed
    hive.drop(entry)


def test_views(hive: HiveMetastore, server: HiveServer, schema: str) -> None:
    first = view(f"{server.warehouse}/{schema}/v")
    location, _ = written(first)
    hive.create(Pointer((schema, "v"), "view", location), first)
    entry = found(hive, (schema, "v"))
    assert entry.pointer.kind == "view"
    stored = raw(hive, (schema, "v"))
    assert stored.tableType == "VIRTUAL_VIEW"
    assert stored.parameters["table_type"].lower() == "iceberg-view"
    assert stored.viewOriginalText == stored.viewExpandedText == "select 1 as id"
    second = view(f"{server.warehouse}/{schema}/v", "select 2 as id")
    hive.swap(entry, *written(second))
    assert raw(hive, (schema, "v")).viewExpandedText == "select 2 as id"
    assert hive.pyiceberg().list_tables(schema) == []
    entry = found(hive, (schema, "v"))
    hive.rename(entry, (schema, "w"))
    assert [one.pointer.identifier for one in hive.entries(schema)] == [(schema, "w")]
    hive.drop(found(hive, (schema, "w")))
    assert hive.entries(schema) == []


def test_marks(hive: HiveMetastore, server: HiveServer, schema: str) -> None:
    text = "x" * 9000

    def put(number: int) -> None:
        for _ in range(3):
            hive.put_mark(schema, "shared", f"{number} {text}")
        hive.put_mark(schema, f"Of {number}-é", f"{number}")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(8)))
    marks = hive.marks(schema)
    assert marks.pop("shared").endswith(text)
    assert marks == {f"Of {number}-é": str(number) for number in range(8)}
    assert hive.entries(schema) == []
    assert hive.pyiceberg().list_tables(schema) == []
    assert not hive.drop_schema(schema)
    hive.drop_marks(schema, ["shared", *marks, "absent"])
    assert hive.marks(schema) == {}
    assert hive.drop_schema(schema)
    assert hive.marks(schema) == {}
    with pytest.raises(Conflict):
        hive.put_mark(schema, "m", "x")


def test_names_with_capitals(hive: HiveMetastore, schema: str) -> None:
    entry, before = made(hive, (schema, "t"))
    assert hive.entry((schema.upper(), "t")) is None
    assert hive.entry((schema, "T")) is None
    assert hive.entries(schema.upper()) == []
    assert hive.schema_properties(schema.upper()) is None
    for act in (
        lambda: hive.create(Pointer((schema, "Ab"), "table", entry.pointer.location), before),
        lambda: hive.rename(entry, (schema, "Ab")),
        lambda: hive.create_schema("Ab", "file:///tmp/ab", {}),
    ):
        with pytest.raises(CatalogError, match="lower case"):
            act()


def test_entries_of_other_formats(hive: HiveMetastore, schema: str) -> None:
    entry, before = made(hive, (schema, "t"))
    other = raw(hive, (schema, "t"))
    other.tableName = "parquet"
    other.parameters = {"EXTERNAL": "TRUE"}
    hive._connections.read(lambda client: client.create_table(other))
    assert hive.entry((schema, "parquet")) is None
    assert [one.pointer.identifier[1] for one in hive.entries(schema)] == ["t"]
    with pytest.raises(Conflict, match="exists"):
        hive.create(Pointer((schema, "parquet"), "table", entry.pointer.location), before)
    with pytest.raises(Conflict, match="exists"):
        hive.rename(entry, (schema, "parquet"))


def test_a_metastore_that_does_not_answer(tmp_path: Path) -> None:
    hive = HiveMetastore("lake", {"uri": "thrift://127.0.0.1:1,thrift://127.0.0.1:2"})
    with pytest.raises(CatalogError, match="does not answer"):
        hive.entry(("s", "t"))
    with pytest.raises(CatalogError, match="Nothing was changed"):
        hive.create_schema("s", "file:///tmp/s", {})


def test_a_killed_metastore(server: HiveServer, hive: HiveMetastore, schema: str) -> None:
    entry, before = made(hive, (schema, "t"))
    location, changed = written(before)
    ready = threading.Event()

    def swap() -> str:
        ready.set()
        present, to, state = entry, location, changed
        while True:
            try:
                hive.swap(present, to, state)
            except Unanswered as error:
                assert error.lost
                return to
            except CatalogError:
                return to
            present = replace(present, pointer=replace(present.pointer, location=to))
            to, state = written(before)

    with ThreadPoolExecutor(1) as threads:
        last = threads.submit(swap)
        ready.wait()
        time.sleep(0.5)
        server.kill()
        unanswered = last.result()
    with pytest.raises(CatalogError, match="does not answer"):
        hive.entry((schema, "t"))
    server.start()
    now = found(hive, (schema, "t"))
    assert now.pointer.location == unanswered or document(now.pointer.location)
    # The lock of the swap ends only by its time, if it was not released.
    hive._locks = False
    hive.swap(now, *written(before))
    assert hive.pyiceberg().load_table((schema, "t")).name() == (schema, "t")
