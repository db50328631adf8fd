"""Copy-on-write or merge-on-read, by what the runs of a table change."""

from __future__ import annotations

import pytest

from sparkwap.gate.write_mode import choose, rows_changed

MERGE = "spark.merge-into.num-target-rows-"


def merge(updated: int, copied: int, *, deleted: int = 0, inserted: int = 5) -> dict[str, str]:
    """A merge by copy-on-write, as Spark 4.1 writes it down."""
    return {
        "operation": "overwrite",
        f"{MERGE}copied": str(copied),
        f"{MERGE}matched-updated": str(updated),
        f"{MERGE}deleted": str(deleted),
        f"{MERGE}inserted": str(inserted),
        "added-records": str(updated + copied + inserted),
        "deleted-records": str(updated + copied + deleted),
    }


def on_read(
    positions: int, files: int, *, replaced: int = 0, per_file: int = 100
) -> dict[str, str]:
    """A change by merge-on-read, in a table of ten files."""
    return {
        "operation": "overwrite",
        "added-delete-files": str(files),
        "added-position-deletes": str(positions + replaced),
        "removed-position-deletes": str(replaced),
        "total-records": "1000",
        "total-data-files": "10",
    }


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        (merge(10, 90), (10, 100)),
        (merge(10, 80, deleted=10), (20, 100)),
        (merge(0, 0), None),
        (on_read(10, 2), (10, 200)),
        (on_read(10, 2, replaced=30), (10, 200)),
        (on_read(500, 2), (500, 500)),
        # A delete by copy-on-write, an update, an append, a compaction.
        ({"operation": "overwrite", "added-records": "90", "deleted-records": "100"}, (10, 100)),
        ({"operation": "overwrite", "added-records": "100", "deleted-records": "100"}, None),
        ({"operation": "append", "added-records": "100"}, None),
        ({"operation": "replace", "added-records": "90", "deleted-records": "100"}, None),
        ({"operation": "delete", "deleted-records": "100"}, (100, 100)),
        ({"operation": "overwrite", "added-records": "x"}, None),
        ({}, None),
    ],
)
def test_what_a_snapshot_changed(
    summary: dict[str, str], expected: tuple[float, float] | None
) -> None:
    assert rows_changed(summary) == expected


@pytest.mark.parametrize(
    ("share", "present", "mode"),
    [
        (5, None, "merge-on-read"),
        (5, "copy-on-write", "merge-on-read"),
        (20, "copy-on-write", "copy-on-write"),
        (20, "merge-on-read", "merge-on-read"),
        (40, "merge-on-read", "copy-on-write"),
        (40, None, "copy-on-write"),
    ],
)
def test_the_mode_follows_the_changes_and_does_not_swing(
    share: int, present: str | None, mode: str
) -> None:
    append = {"operation": "append"}
    found = choose([append, merge(share, 100 - share), append, merge(share, 100 - share)], present)
    assert found.mode == mode
    assert f"the last 2 changes have changed {share}.0%" in found.reason


@pytest.mark.parametrize(
    ("size", "present", "mode"),
    [
        (1_000_000, None, "copy-on-write"),
        (10_000_000, None, "merge-on-read"),
        # Then the sizes of touched files are not known.
        (1_000_000, "merge-on-read", "merge-on-read"),
    ],
)
def test_small_files_are_rewritten(size: int, present: str | None, mode: str) -> None:
    replaced = {"deleted-data-files": "3", "removed-files-size": str(3 * size)}
    found = choose([{**merge(1, 99), **replaced}] * 3, present)
    assert found.mode == mode
    assert ("these files are small (1.0 MB)" in found.reason) == (mode == "copy-on-write")


def test_only_the_latest_changes_count() -> None:
    assert choose([merge(1, 99)] * 5 + [merge(99, 1)] * 50, None).mode == "merge-on-read"


def test_without_changes_the_mode_stays() -> None:
    for present in (None, "merge-on-read"):
        found = choose([merge(1, 99)], present)
        assert found.mode == (present or "copy-on-write")
        assert found.reason == "too few changes are known yet"
