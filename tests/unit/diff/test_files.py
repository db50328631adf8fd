"""Files of real snapshots, and private tables of some of them, read by PyIceberg."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import StaticTable

from sparkwap.catalog import Identifier
from sparkwap.catalog import metadata as md
from sparkwap.catalog.file_plan import DeleteFile, plan_files
from sparkwap.catalog.snapshot_files import Snapshot, Unreadable, _delete
from sparkwap.catalog.sparksql import current_schema

from .conftest import BRANCH, Bench, rows


def snapshot(bench: Bench, identifier: Identifier, ref: str) -> Snapshot:
    row = bench.lake.store.backend.get(identifier)
    assert row is not None
    document = bench.lake.store.load(row.location)
    found = md.snapshot(document, md.refs_of(document)[ref].snapshot_id)
    assert found is not None
    return Snapshot(bench.lake.store, document, found)


def md_fields(of: Snapshot) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = current_schema(of.document)["fields"]
    return fields


def ids(location: str) -> list[int]:
    table = StaticTable.from_metadata(location).scan().to_arrow()
    return sorted(table["id"].to_pylist())


@pytest.fixture(params=["1", "2"], ids=["v1", "v2"])
def changed(bench: Bench, request: Any) -> Identifier:
    """A table with three files on main; the branch has rewritten one and added one."""
    name = bench.table("t", (1, 2, 3), (4, 5), (6, 7), **{"format-version": request.param})
    table = bench.open(name)
    table.delete("id = 4", branch=BRANCH)
    table.append(rows(8), branch=BRANCH)
    return name


def test_only_manifests_of_one_state_are_read(bench: Bench, changed: Identifier) -> None:
    old, new = (snapshot(bench, changed, ref) for ref in ("main", BRANCH))
    common = {one.path for one in old.manifests} & {one.path for one in new.manifests}
    assert common
    plan = plan_files(old.files(common), new.files(common))
    everything = plan_files(old.files(), new.files())
    assert plan == everything
    assert (plan.read, len(plan.removed), len(plan.added)) == ("parts", 1, 2)


def test_a_part_has_only_the_rows_of_its_files(bench: Bench, changed: Identifier) -> None:
    old, new = (snapshot(bench, changed, ref) for ref in ("main", BRANCH))
    plan = plan_files(old.files(), new.files())
    gone, come = old.part(plan.removed), new.part(plan.added)
    assert ids(gone.location) == [4, 5]
    assert ids(come.location) == [5, 8]
    assert (gone.rows, come.rows) == (2, 2)
    id_field = next(f["id"] for f in md_fields(new) if f["name"] == "id")
    numbers = [
        tuple(int.from_bytes(one, "little") for one in pair) for pair in come.bounds(id_field) or ()
    ]
    assert sorted(numbers) == [(5, 5), (8, 8)]
    assert come.bounds(999) is None
    document = json.loads(Path(gone.location.removeprefix("file://")).read_text())
    assert document["properties"]["gc.enabled"] == "false"
    assert document["table-uuid"] != old.document["table-uuid"]


def test_a_part_is_no_table_of_the_lake_and_is_deleted_completely(
    bench: Bench, changed: Identifier
) -> None:
    files = {path for path in bench.folder.rglob("*") if path.is_file()}
    members = bench.lake.relations("s")
    part = snapshot(bench, changed, BRANCH).part(
        {file.path for file in snapshot(bench, changed, BRANCH).files().data}
    )
    assert ids(part.location) == [1, 2, 3, 5, 6, 7, 8]
    assert bench.lake.relations("s") == members
    assert {path for path in bench.folder.rglob("*") if path.is_file()} > files
    part.remove()
    assert {path for path in bench.folder.rglob("*") if path.is_file()} == files


def test_a_part_without_files_is_empty(bench: Bench, changed: Identifier) -> None:
    assert ids(snapshot(bench, changed, "main").part(["file:///other"]).location) == []


def test_a_snapshot_without_a_manifest_list_cannot_be_read(
    bench: Bench, changed: Identifier
) -> None:
    known = snapshot(bench, changed, "main")
    old = {**known.snapshot, "manifest-list": None, "manifests": ["a.avro"]}
    with pytest.raises(Unreadable):
        assert Snapshot(bench.lake.store, known.document, old).manifests


def test_a_missing_manifest_list_cannot_be_read(bench: Bench, changed: Identifier) -> None:
    known = snapshot(bench, changed, "main")
    old = {**known.snapshot, "manifest-list": f"{bench.folder}/gone.avro"}
    with pytest.raises(Unreadable, match=r"gone\.avro"):
        assert Snapshot(bench.lake.store, known.document, old).manifests


PATHS = {
    "file_path": "d.parquet",
    "content": DataFileContent.POSITION_DELETES.value,
    "record_count": 3,
}


def bounds(lower: bytes, upper: bytes) -> dict[str, Any]:
    return {
        "lower_bounds": [{"key": 2147483546, "value": lower}, {"key": 1, "value": b"x"}],
        "upper_bounds": [{"key": 2147483546, "value": upper}],
    }


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"referenced_data_file": "a", "content_offset": 4},
            DeleteFile("d.parquet", 4, "a", rows=3),
        ),
        (bounds(b"a", b"a"), DeleteFile("d.parquet", None, "a", rows=3)),
        (bounds(b"a", b"b"), DeleteFile("d.parquet", rows=3)),
        ({}, DeleteFile("d.parquet", rows=3)),
        ({"lower_bounds": None, "upper_bounds": None}, DeleteFile("d.parquet", rows=3)),
        (
            {"content": DataFileContent.EQUALITY_DELETES.value, **bounds(b"a", b"a")},
            DeleteFile("d.parquet", equality=True, rows=3),
        ),
    ],
)
def test_the_target_of_a_delete_file(more: dict[str, Any], expected: DeleteFile) -> None:
    assert _delete({**PATHS, **more}, 0) == expected
