"""Metadata files of former states: which go, which stay, and what is possible without them."""

from __future__ import annotations

import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from helpers.bench import BRANCH, Bench, on_branch, values
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import LongType

from sparkwap.catalog import PublishReceipt, PublishRefused, RollbackRefused
from sparkwap.catalog import metadata as md
from sparkwap.gate.settings import Upkeep
from sparkwap.maintenance import inspection, maintainer, metadata_files
from sparkwap.maintenance.maintenance_report import Report, lines
from sparkwap.maintenance.metadata_files import Needed, compression, needed, superseded
from sparkwap.maintenance.rules import Rules
from sparkwap.publish.lake import Lake

NAME = ("s", "t")
LOG = "write.metadata.previous-versions-max"
NO_TIME = 2**62
"""A time later than all files."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is too young."""
    monkeypatch.setattr(inspection, "METADATA_MARGIN_MS", -60_000)


@pytest.fixture
def many(bench: Bench) -> Bench:
    """A table of the gate after nine changes, whose log names three former metadata files."""
    bench.table("t", **{md.WAP_ENABLED: "true", LOG: "3"})
    for number in range(9):
        bench.write(NAME, number, branch="main")
    return bench


def maintain(bench: Bench, *, explain: bool = False) -> Report:
    work = maintainer.Maintainer(
        bench.lake,
        lambda _statement: [(0,)],
        run_id="5e5e5e5e-0000-4000-8000-000000000000",
        upkeep=Upkeep(),
        rules={NAME: Rules(compact=False)},
    )
    return work.look() if explain else work.maintain()


def document(bench: Bench) -> md.Document:
    row = bench.lake.store.backend.get(NAME)
    assert row is not None
    return bench.lake.store.load(row.location)


def former(bench: Bench, before_ms: int = NO_TIME, *keep: str) -> list[str]:
    needs = Needed(frozenset(keep), frozenset())
    return superseded(bench.lake.store, document(bench), needs, before_ms)


def on_disk(bench: Bench) -> set[str]:
    return {str(path) for path in bench.folder.glob("warehouse/s/t/metadata/*.metadata.json")}


def numbers(paths: list[str]) -> list[int]:
    return [int(Path(path).name.split("-")[0]) for path in paths]


def publish(bench: Bench, number: int) -> PublishReceipt:
    """Overwrite the table on a branch, and publish it."""
    opened = bench.lake.branches.open(NAME, BRANCH)
    bench.lake.catalog.load_table(NAME).overwrite(values(number), branch=BRANCH)
    return published(bench, on_branch(NAME, opened.base, bench.head(NAME, BRANCH)))


def published(bench: Bench, candidate: Any) -> PublishReceipt:
    run_id = str(uuid.uuid4())
    return bench.publish(candidate, run_id=run_id, tag=f"wap_pub_{run_id[:8]}")


def changed(bench: Bench, number: int) -> Any:
    """Change rows and properties of a clone."""
    bench.lake.branches.clone(NAME, "s__pr_1", {"comment": str(number)})
    bench.lake.catalog.load_table(("s__pr_1", "t")).overwrite(values(number))
    return bench.side("t")


def gone(bench: Bench, *locations: str) -> None:
    """Delete metadata files, as Iceberg can do by itself."""
    bench.lake.store.delete(locations)
    bench.lake.store._documents.clear()


def roll_back(bench: Bench, receipt: PublishReceipt, *, force: bool = False) -> None:
    bench.lake.publishing.rollback(
        receipt.entries, run_id=str(uuid.uuid4()), publish_id=receipt.publish_id, force=force
    )


def test_files_go_that_the_log_no_longer_names(many: Bench) -> None:
    assert numbers(former(many)) == [0, 1, 2, 3, 4, 5]
    before = on_disk(many)
    report = maintain(many, explain=True)
    assert "remove 6 old metadata files" in "\n".join(lines(report))
    assert on_disk(many) == before
    report = maintain(many)
    assert "removed 6 old metadata files" in "\n".join(lines(report))
    assert numbers(sorted(on_disk(many))) == [6, 7, 8, 9]
    (row,) = many.lake.ledger.rows("maintenance")
    assert (row["action"], row["metadata_files"]) == ("metadata", 6)
    assert many.read("t") == list(range(9))
    assert lines(maintain(many)) == ["There is nothing to maintain."]


def test_young_and_needed_files_stay(many: Bench) -> None:
    log = document(many)["metadata-log"]
    assert numbers(former(many, int(log[0]["timestamp-ms"]))) == [0, 1, 2, 3, 4]
    assert former(many, 0) == []
    (third,) = (one for one in former(many) if "/00003-" in one)
    assert numbers(former(many, NO_TIME, third)) == [0, 1, 2, 4, 5]


def test_a_deletion_that_ended_early_goes_on(many: Bench) -> None:
    files = former(many)
    for path in files[:4]:
        many.lake.store.files.delete(path)
    assert former(many) == files[4:]
    maintain(many)
    assert former(many) == []


def test_what_cannot_be_deleted_is_said(many: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many.lake.store.files, "delete", lambda _path: None)
    report = maintain(many)
    assert "could not be deleted. The table is as it was" in "\n".join(lines(report))
    assert "removed" not in "\n".join(lines(report))
    assert many.lake.ledger.rows("maintenance") == []


def test_only_deleted_files_are_counted(many: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    delete, second = many.lake.store.files.delete, former(many)[1]
    monkeypatch.setattr(
        many.lake.store.files, "delete", lambda path: path != second and delete(path)
    )
    said = "\n".join(lines(maintain(many)))
    assert "removed 5 old metadata files" in said and f"{second}, a metadata file" in said
    (row,) = many.lake.ledger.rows("maintenance")
    assert row["metadata_files"] == 5


def test_a_table_with_unpublished_work_is_left_alone(many: Bench) -> None:
    changed(many, 5)
    before = on_disk(many)
    maintain(many)
    assert on_disk(many) == before


def test_an_open_clone_and_rollbacks_keep_what_they_read(many: Bench) -> None:
    receipt = published(many, changed(many, 5))
    (entry,) = receipt.entries
    base = str(entry.base_metadata_location)
    assert {base, entry.published_metadata_location} <= needed(many.lake).files
    (by_branch,) = publish(many, 6).entries
    assert str(by_branch.base_metadata_location) in needed(many.lake).files
    many.lake.branches.clone(NAME, "s__other")
    row = many.lake.store.backend.get(NAME)
    assert row is not None
    for number in range(9):
        many.write(NAME, number, branch="main")
    assert row.location in needed(many.lake).files


def test_a_table_that_is_registered_twice_is_left_alone(many: Bench) -> None:
    """Also where the second name spells the folder in another way, such as through a link."""
    link = many.folder / "link"
    link.symlink_to(many.folder / "warehouse")
    (second,) = (path for path in on_disk(many) if "/00002-" in path)
    many.lake.catalog.register_table(("s", "again"), second.replace("/warehouse/", "/link/"))
    before = on_disk(many)
    maintain(many)
    assert on_disk(many) == before
    assert many.read("again") == [0, 1]


def test_what_another_catalog_of_the_database_has_is_left_alone(many: Bench) -> None:
    other = Lake("lake2", many.properties)
    try:
        other.ensure_schema("s")
        (second,) = (path for path in on_disk(many) if "/00002-" in path)
        other.catalog.register_table(("s", "t"), second)
        before = on_disk(many)
        maintain(many)
        assert on_disk(many) == before
    finally:
        other.close()


def test_what_is_registered_during_the_maintenance_stays(
    many: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (third,) = (path for path in on_disk(many) if "/00003-" in path)

    def meanwhile(*_: object) -> None:
        many.lake.catalog.drop_table(NAME)
        many.lake.catalog.register_table(NAME, third)

    monkeypatch.setattr(maintainer.Maintainer, "_compact", meanwhile)
    maintain(many)
    assert many.read("t") == [0, 1, 2]
    assert Path(third).exists()


def test_a_file_that_cannot_be_read_stops_nothing(many: Bench) -> None:
    oldest = document(many)["metadata-log"][0]["metadata-file"]
    Path(oldest.removeprefix("file://")).write_text("[]")
    assert lines(maintain(many)) == ["There is nothing to maintain."]
    assert len(on_disk(many)) == 10


def test_large_metadata_are_compressed(many: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    maintain(many)
    assert md.CODEC not in md.properties_of(document(many))
    monkeypatch.setattr(metadata_files, "LARGE_BYTES", 1000)
    assert "would be compressed" in "\n".join(lines(maintain(many, explain=True)))
    assert "its metadata are compressed from now on" in "\n".join(lines(maintain(many)))
    row = many.lake.store.backend.get(NAME)
    assert row is not None
    assert row.location.endswith(".gz.metadata.json")
    assert many.read("t") == list(range(9))
    assert compression(document(many)) == {}
    # What the owner has set stays.
    assert compression({"properties": {md.CODEC: "none"}, "x": "y" * 2000}) == {}


def test_without_its_metadata_file_an_open_clone_is_built_again(many: Bench) -> None:
    """As Iceberg does it by itself with ``write.metadata.delete-after-commit.enabled``."""
    base = document(many)
    row = many.lake.store.backend.get(NAME)
    assert row is not None
    candidate = changed(many, 5)
    with many.lake.catalog.load_table(NAME).transaction() as change:
        change.set_properties(later="x")
    gone(many, row.location)
    with pytest.raises(PublishRefused, match="that the file is gone") as refused:
        published(many, candidate)
    assert [one.kind for one in refused.value.mismatches] == ["definition"]
    assert md.main_of(document(many)) == md.main_of(base)
    (entry,) = published(many, changed(many, 6)).entries
    assert entry.how == "clone"
    assert many.read("t") == [6]


def test_without_its_metadata_file_a_clone_is_not_rolled_back(many: Bench) -> None:
    receipt = published(many, changed(many, 5))
    with many.lake.catalog.load_table(NAME).transaction() as change:
        change.set_properties(later="x")
    gone(many, receipt.entries[0].published_metadata_location)
    with pytest.raises(RollbackRefused, match="that the file is gone"):
        roll_back(many, receipt)


def test_without_its_metadata_file_a_forced_rollback_restores_the_definition(many: Bench) -> None:
    (entry,) = (receipt := publish(many, 5)).entries
    with many.lake.catalog.load_table(NAME).update_schema() as schema:
        schema.add_column("later", LongType())
    many.write(NAME, 6, branch="main")
    gone(many, entry.published_metadata_location)
    roll_back(many, receipt, force=True)
    assert many.read("t") == list(range(9))
    assert "later" not in many.lake.catalog.load_table(NAME).schema().column_names


def test_without_both_metadata_files_a_forced_rollback_is_refused(many: Bench) -> None:
    (entry,) = (receipt := publish(many, 5)).entries
    many.write(NAME, 6, branch="main")
    gone(many, entry.published_metadata_location, str(entry.base_metadata_location))
    with pytest.raises(RollbackRefused, match="that the file is gone"):
        roll_back(many, receipt, force=True)
    assert many.read("t") == [5, 6]


def test_a_forced_rollback_knows_a_copy_from_the_table(many: Bench) -> None:
    """A table that is registered from files of another one has its snapshots, and its own id."""
    (entry,) = (receipt := publish(many, 5)).entries
    copied = dict(document(many), **{"table-uuid": str(uuid.uuid4())})
    place = entry.published_metadata_location.replace("/metadata/", "/metadata/copy-")
    many.lake.store.write({place: copied})
    many.lake.catalog.drop_table(NAME)
    many.lake.catalog.register_table(NAME, place)
    roll_back(many, receipt, force=True)
    assert many.read("t") == list(range(9))
    base = many.lake.store.load(str(entry.base_metadata_location))
    assert md.identity(document(many)) == md.identity(base)


OPERATION = st.sampled_from(["append", "branch", "branch", "clone", "maintain", "roll back"])


@pytest.mark.long
@settings(max_examples=40)
@given(st.lists(OPERATION, max_size=12), st.integers(1, 3), st.booleans())
def test_any_publish_can_still_be_rolled_back(operations: list[str], log: int, force: bool) -> None:
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            bench.table("t", 0, **{md.WAP_ENABLED: "true", LOG: str(log)})
            done: list[tuple[PublishReceipt, list[int]]] = []
            for number, operation in enumerate([*operations, "maintain", *["roll back"] * 12], 1):
                before = bench.read("t")
                if operation == "append":
                    bench.write(NAME, number, branch="main")
                    done.clear()
                elif operation == "branch":
                    done.append((publish(bench, number), before))
                elif operation == "clone":
                    done.append((published(bench, changed(bench, number)), before))
                elif operation == "maintain":
                    maintain(bench)
                    bench.lake.store._documents.clear()
                    assert bench.read("t") == before
                elif done:
                    receipt, rows = done.pop()
                    roll_back(bench, receipt, force=force)
                    assert bench.read("t") == rows
            for snapshot in document(bench)["snapshots"]:
                bench.lake.catalog.load_table(NAME).scan(
                    snapshot_id=snapshot["snapshot-id"]
                ).to_arrow()
        finally:
            bench.lake.close()
