"""The expiry of a table's former states, in metadata and files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.compute as pc
import pytest
from helpers.bench import Bench
from helpers.people import PEOPLE, files, lake_of_people

from sparkwap.catalog import avro
from sparkwap.catalog import metadata as md
from sparkwap.maintenance import expiry, file_references, live_manifests
from sparkwap.publish.lake import Lake

PEOPLE_TABLE = ("s", "people")
RUN = "1a2b3c4d-0000-4000-8000-000000000000"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lake_of_people(tmp_path) as lake:
        yield lake


def document(lake: Lake) -> md.Document:
    row = lake.store.backend.get(PEOPLE_TABLE)
    assert row is not None
    return lake.store.load(row.location)


def erased(lake: Lake) -> None:
    """Delete the subject on ``main``."""
    lake.catalog.load_table(PEOPLE_TABLE).delete("customer_id = 42")


def read(lake: Lake) -> list[int]:
    return sorted(
        lake.catalog.load_table(PEOPLE_TABLE).scan().to_arrow()["customer_id"].to_pylist()
    )


def statuses(lake: Lake) -> list[int]:
    table = lake.catalog.load_table(PEOPLE_TABLE)
    return [
        entry["status"]
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in avro.read(Path(manifest.manifest_path).read_bytes()).records
    ]


def test_only_main_stays(lake: Lake, tmp_path: Path) -> None:
    before = document(lake)
    first = md.main_of(before)
    lake.catalog.load_table(PEOPLE_TABLE).manage_snapshots().create_tag(first, "old").commit()
    erased(lake)
    gone = expiry.expire(lake, PEOPLE_TABLE, RUN)
    assert (gone.refs, gone.snapshots) == (("old",), 1)
    after = document(lake)
    assert [s["snapshot-id"] for s in after["snapshots"]] == [md.main_of(after)]
    assert after["metadata-log"] == []
    assert [entry["snapshot-id"] for entry in after["snapshot-log"]] == [md.main_of(after)]
    assert list(after["refs"]) == ["main"]
    assert read(lake) == [41, 43]


def test_manifests_do_not_name_removed_files(lake: Lake) -> None:
    erased(lake)
    assert 2 in statuses(lake)
    expiry.expire(lake, PEOPLE_TABLE, RUN)
    assert 2 not in statuses(lake)
    assert read(lake) == [41, 43]
    # Later writers can append.
    lake.catalog.load_table(PEOPLE_TABLE).append(PEOPLE.filter(pc.field("customer_id") == 41))
    assert read(lake) == [41, 41, 43]


def test_a_table_that_lost_all_rows_can_be_read_and_written(lake: Lake) -> None:
    lake.catalog.load_table(PEOPLE_TABLE).delete("customer_id > 0")
    expiry.expire(lake, PEOPLE_TABLE, RUN)
    assert statuses(lake) == []
    assert read(lake) == []
    lake.catalog.load_table(PEOPLE_TABLE).append(PEOPLE)
    assert read(lake) == [41, 42, 43]


def test_a_second_expiry_does_nothing(lake: Lake) -> None:
    erased(lake)
    expiry.expire(lake, PEOPLE_TABLE, RUN)
    before = lake.store.backend.get(PEOPLE_TABLE)
    assert expiry.expire(lake, PEOPLE_TABLE, RUN).snapshots == 0
    assert lake.store.backend.get(PEOPLE_TABLE) == before


def test_the_receipt_of_main_stays(lake: Lake) -> None:
    erased(lake)
    main = md.main_of(document(lake))
    table = lake.catalog.load_table(PEOPLE_TABLE)
    table.manage_snapshots().create_tag(main, "wap_pub_1", max_ref_age_ms=5).commit()
    expiry.expire(lake, PEOPLE_TABLE, RUN)
    refs = document(lake)["refs"]
    assert refs["wap_pub_1"]["snapshot-id"] == refs["main"]["snapshot-id"]
    assert refs["wap_pub_1"]["max-ref-age-ms"] == 5


def test_the_head_of_a_branch_names_only_live_files(lake: Lake) -> None:
    lake.branches.open(PEOPLE_TABLE, "pr_1")
    before = md.main_of(document(lake))
    lake.catalog.load_table(PEOPLE_TABLE).delete("customer_id = 42", branch="pr_1")
    head = live_manifests.keep_live_files(lake, PEOPLE_TABLE, "pr_1", RUN)
    now = document(lake)
    assert md.refs_of(now)["pr_1"].snapshot_id == head
    assert md.main_of(now) == before
    assert md.grew_from(now, head, before)
    assert live_manifests.keep_live_files(lake, PEOPLE_TABLE, "pr_1", RUN) == head
    assert read(lake) == [41, 42, 43]


def test_unreferenced_files_are_found_and_deleted(lake: Lake, tmp_path: Path) -> None:
    erased(lake)
    expiry.expire(lake, PEOPLE_TABLE, RUN)
    orphan = tmp_path / "warehouse/s/people/data/.orphan.parquet.crc"
    orphan.write_text("x")
    listed = [file.path for file in lake.store.files.listing(str(tmp_path / "warehouse"))]
    doomed = file_references.unreachable(listed, file_references.reachable(lake))
    assert str(orphan) in doomed
    file_references.delete_files(lake, doomed)
    left = files(tmp_path)
    assert sum(path.endswith(".parquet") for path in left) == 1
    assert sum(path.endswith(".json") for path in left) == 1
    assert sum(path.endswith(".avro") for path in left) == 2
    assert read(lake) == [41, 43]


def test_checksums_stay_with_their_files() -> None:
    assert file_references.unreachable(["/w/.a.crc", "/w/.b.crc", "/w/b"], {"/w/a"}) == [
        "/w/.b.crc",
        "/w/b",
    ]


def test_files_of_a_copy_are_reachable(lake: Lake, tmp_path: Path) -> None:
    lake.branches.copy(PEOPLE_TABLE, ("s", "copied"), f"{tmp_path}/warehouse/s/copied")
    erased(lake)
    expiry.expire(lake, PEOPLE_TABLE, RUN)
    known = file_references.reachable(lake)
    data = [path for path in files(tmp_path) if path.endswith(".parquet")]
    assert {frozenset(known[path]) for path in data} == {
        frozenset({("s", "copied")}),
        frozenset({PEOPLE_TABLE}),
    }


def test_the_catalog_does_not_name_the_former_metadata_file(lake: Lake, tmp_path: Path) -> None:
    erased(lake)
    expiry.expire(lake, PEOPLE_TABLE, RUN)
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database:
        rows = database.execute(
            "select previous_metadata_location from iceberg_tables where table_name = 'people'"
        ).fetchall()
    assert rows == [(None,)]


def test_no_folder_named_by_a_value_stays(bench: Bench) -> None:
    table = Path(bench.lake.warehouse.removeprefix("file://"), "s/t")
    gone, kept = (table / f"data/email={who}/day=1/hour=2" for who in ("a", "b"))
    for folder in (gone, kept):
        folder.mkdir(parents=True)
        (folder / "x.parquet").touch()
    kept.joinpath("x.parquet").unlink()
    deep = table / "data/email=c/x/y/f.parquet"
    deep.parent.mkdir(parents=True)
    deep.touch()
    doomed = [str(gone / "x.parquet"), f"{kept}/", str(deep)]
    file_references.delete_files(bench.lake, doomed)
    assert not table.exists() and table.parent.exists()
