"""Reading and rewriting Iceberg's Avro files."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.transforms import IdentityTransform

from sparkwap.catalog import avro

ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "day": [date(2020, 1, 2), date(1, 1, 1), None],
        "at": [datetime(1900, 1, 2, 3, 4, 5, 6), datetime(9999, 1, 1), None],
        "amount": pa.array([Decimal("1.25"), Decimal("-3"), None], pa.decimal128(9, 2)),
    }
)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> ManifestFile:
    """The manifest of a table with partitions of Avro's logical types."""
    folder = tmp_path_factory.mktemp("lake")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/c.db", warehouse=f"{folder}/warehouse")
    catalog.create_namespace("s")
    table = catalog.create_table("s.t", ROWS.schema)
    with table.update_spec() as change:
        for name in ("day", "at", "amount"):
            change.add_field(name, IdentityTransform())
    table.append(ROWS)
    (found,) = table.current_snapshot().manifests(table.io)
    return found


def test_a_manifest_keeps_field_ids_and_header(manifest: ManifestFile) -> None:
    path = Path(manifest.manifest_path.removeprefix("file://"))
    old = avro.read(path.read_bytes())
    entries = manifest.fetch_manifest_entry(PyArrowFileIO())
    again = old.with_records(old.records)
    new = avro.read(again)
    assert (new.schema, new.records) == (old.schema, old.records)
    compressed = {"avro.codec": "null"}
    assert {**new.header, "avro.schema": ""} == {**old.header, **compressed, "avro.schema": ""}
    # PyIceberg finds fields by their ids only.
    path.write_bytes(again)
    assert manifest.fetch_manifest_entry(PyArrowFileIO()) == entries
    assert len(entries) == ROWS.num_rows


@pytest.mark.parametrize("size", [0, 3, 100, -1])
def test_a_truncated_file_is_not_an_avro_file(manifest: ManifestFile, size: int) -> None:
    data = Path(manifest.manifest_path.removeprefix("file://")).read_bytes()
    with pytest.raises(avro.AvroError):
        avro.read(data[:size])
