"""Files of a lake in an object store, as far as they need no store."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy

from sparkwap.catalog.files import WarehouseFiles, plain_location
from sparkwap.publish.lake import Lake


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


def test_a_lake_sends_requests_to_s3_again(tmp_path: Path) -> None:
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://b/lake"}
    lake = Lake("lake", properties)
    module, _, name = lake.properties["s3.retry-strategy-impl"].rpartition(".")
    assert isinstance(getattr(import_module(module), name)(), AwsStandardS3RetryStrategy)
    lake.close()
