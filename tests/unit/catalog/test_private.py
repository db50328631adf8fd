"""Files of a lake have no more rights than its warehouse, whatever the umask of the caller."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.bench import BRANCH, RUN, TAG, Bench

from sparkwap.catalog import LedgerRows
from sparkwap.catalog.files import WarehouseFiles


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def rights(folder: Path) -> set[int]:
    """Return the rights of group and others on all files and folders in a folder."""
    return {stat.S_IMODE(path.lstat().st_mode) & 0o077 for path in folder.rglob("*")}


@pytest.mark.parametrize(("mode", "others"), [(0o700, {0}), (0o750, {0o050, 0o040})])
def test_files_get_the_rights_of_the_warehouse(tmp_path: Path, mode: int, others: set[int]) -> None:
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    warehouse.chmod(mode)
    WarehouseFiles({"warehouse": str(warehouse)}).make_folder(f"{warehouse}/a/b")
    bench = Bench(tmp_path)
    bench.table("t", 1)
    item = bench.candidate("t", 2)
    bench.lake.publishing.publish(
        [item],
        run_id=RUN,
        tag=TAG,
        tag_max_age_ms=None,
        branch=BRANCH,
        appends=[LedgerRows("runs", [{"run_id": RUN, "branch": BRANCH}])],
    )
    found = {path.suffix for path in warehouse.rglob("*") if path.is_file()}
    assert {".json", ".avro", ".parquet"} <= found
    assert (warehouse / "a/b").is_dir()
    assert rights(warehouse) == others


def test_files_of_the_ledger_are_durable_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    ledger = Bench(tmp_path).lake.ledger
    for number in range(17):  # Some of these appends merge files.
        ledger.append(LedgerRows("runs", [{"run_id": f"r{number}"}]))
    written = (tmp_path / "warehouse/wap_ledger").rglob("*")
    assert [path for path in written if str(path) not in synced] == []
