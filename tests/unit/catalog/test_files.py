"""Files of a lake in an object store, as far as they need no store."""

from __future__ import annotations

import errno
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy

from dbt.adapters.sparkwap.credentials import SparkWapCredentials
from sparkwap.catalog.files import WarehouseFiles, plain_location
from sparkwap.core.errors import CatalogError


@pytest.mark.parametrize(
    ("error", "gone"), [(FileNotFoundError, True), (PermissionError, False), (OSError, False)]
)
def test_a_refused_deletion_is_told(
    error: type[Exception], gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Store:
        def delete(self, location: str) -> None:
            raise error(location)

    files = WarehouseFiles({})
    monkeypatch.setattr(files, "io", lambda location: Store())
    assert files.delete("s3://bucket/lake/data/x.parquet") is gone


def test_a_local_file_that_is_not_there_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.touch()
    assert WarehouseFiles({}).delete(str(file)) and not file.exists()
    assert WarehouseFiles({}).delete(f"file://{file}")
    assert not WarehouseFiles({}).delete(str(tmp_path))


@pytest.mark.parametrize("location", ["s3://b/lake", "s3a://b/lake/", "s3n://b/lake"])
def test_the_schemes_of_s3_are_one_place(location: str) -> None:
    assert plain_location(location) == "s3://b/lake"


def test_the_catalog_of_a_profile_sends_requests_to_s3_again() -> None:
    credentials = SparkWapCredentials(
        host="spark", method="thrift", schema="x", catalog={"uri": "sqlite:///c.db"}
    )
    settings = credentials.catalog_settings(".")
    module, _, name = settings["s3.retry-strategy-impl"].rpartition(".")
    assert isinstance(getattr(import_module(module), name)(), AwsStandardS3RetryStrategy)


def test_the_listing_of_a_local_folder(tmp_path: Path) -> None:
    for name in ("t/data/email=a/day=1/.x.crc", "t/metadata/m.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("12")
    (tmp_path / "t/data/email=b/day=1").mkdir(parents=True)
    (tmp_path / "t/data/email=c").mkdir()
    (tmp_path / "t/data/email=c/gone").symlink_to(tmp_path / "no")
    os.mkfifo(tmp_path / "t/data/email=c/pipe")
    (tmp_path / "t/out").symlink_to("/")
    files = WarehouseFiles({})
    found = {file.path.removeprefix(f"{tmp_path}/"): file for file in files.listing(str(tmp_path))}
    there = {"t/data/email=a/day=1/.x.crc", "t/metadata/m.json"}
    # A link and a pipe are no files, whose folders have names nevertheless.
    assert set(found) - there == {
        *("t/data/email=b/", "t/data/email=b/day=1/", "t/data/email=c/", "t/out/")
    }
    assert all(found[name].size == 2 and found[name].modified for name in there)
    (one,) = files.listing(f"file://{tmp_path}/t/metadata/m.json")
    assert one.path == f"{tmp_path}/t/metadata/m.json"
    assert files.listing(str(tmp_path / "none")) == []


def test_a_folder_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad").mkdir()
    scandir = os.scandir

    def broken(path: str) -> Any:
        if str(path).endswith("bad"):
            raise OSError(errno.EIO, "no answer")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(CatalogError, match="no answer"):
        WarehouseFiles({}).listing(str(tmp_path))
