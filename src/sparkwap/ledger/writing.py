"""Writes the files of a snapshot of a table of the ledger: data files, manifests, manifest lists.

PyIceberg's own append converts each schema and copies the metadata many times. At the end of a run
with small models, which appends to four tables, this was a twentieth of its time.
"""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from sparkwap.catalog import avro
from sparkwap.catalog import metadata as md
from sparkwap.catalog.snapshot_files import ADDED, DELETED, counts_of
from sparkwap.catalog.sparksql import current_schema

Record = Mapping[str, Any]
"""An entry of a manifest or of a manifest list, with the names of Iceberg's specification."""

_ROWS_IN_GROUP = 10_000


@dataclass(slots=True)
class SnapshotWriter:
    """Writes one snapshot of a table, on top of its `main`.

    ``written`` gets the location of each file before it is written.
    """

    io: FileIO
    document: md.Document
    written: list[str]
    snapshot_id: int = field(default_factory=lambda: secrets.randbits(62))
    _schema: str = field(init=False)

    def __post_init__(self) -> None:
        self._schema = json.dumps(current_schema(self.document))

    @property
    def sequence(self) -> int:
        return int(self.document["last-sequence-number"]) + 1

    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the data files, with Iceberg's field ids."""
        return _layout(self._schema)[0]

    def data_file(self, rows: pa.Table) -> dict[str, Any]:
        """Write rows that have `arrow_schema`, and return the entry of a manifest."""
        _, collectors, ids = _layout(self._schema)
        out = pa.BufferOutputStream()
        with pq.ParquetWriter(out, rows.schema, compression="zstd") as writer:
            writer.write_table(rows, row_group_size=_ROWS_IN_GROUP)
        content = out.getvalue().to_pybytes()
        footer = pq.read_metadata(pa.BufferReader(content))
        found = data_file_statistics_from_parquet_metadata(footer, collectors, ids)
        statistics = {
            key: [{"key": k, "value": v} for k, v in value.items()]
            if isinstance(value, dict)
            else value
            for key, value in found.to_serialized_dict().items()
        }
        data: dict[str, Any] = {
            "content": 0,
            "file_path": self._write(f"data/{uuid.uuid4()}.parquet", content),
            "file_format": "PARQUET",
            "partition": {},
            "file_size_in_bytes": len(content),
            **statistics,
        }
        return {"status": ADDED, "snapshot_id": self.snapshot_id, "data_file": data}

    def manifest(self, entries: Sequence[Record]) -> dict[str, Any]:
        """Write a manifest, and return the entry of a manifest list.

        Entries without a sequence number have that of this snapshot.
        """
        header = {
            "schema": self._schema,
            "partition-spec": "[]",
            "partition-spec-id": "0",
            "format-version": "2",
            "content": "data",
        }
        content = avro.write(_manifest_schema(), entries, header)
        live = [
            e.get("sequence_number") or self.sequence for e in entries if e["status"] != DELETED
        ]
        return {
            "manifest_path": self._write(f"metadata/{uuid.uuid4()}-m0.avro", content),
            "manifest_length": len(content),
            "partition_spec_id": 0,
            "content": 0,
            "sequence_number": self.sequence,
            "min_sequence_number": min(live, default=self.sequence),
            "added_snapshot_id": self.snapshot_id,
            **counts_of(entries),
        }

    def snapshot(
        self, operation: str, manifests: Sequence[Record], counts: Mapping[str, int]
    ) -> dict[str, Any]:
        """Write a manifest list, and return the snapshot.

        Args:
            operation: Iceberg's name of the operation, such as ``append``.
            counts: What was added and deleted, such as ``added-records``.
        """
        parent = md.main_of(self.document)
        header = {
            "snapshot-id": str(self.snapshot_id),
            "parent-snapshot-id": "null" if parent is None else str(parent),
            "sequence-number": str(self.sequence),
            "format-version": "2",
        }
        path = f"metadata/snap-{self.snapshot_id}-0-{uuid.uuid4()}.avro"
        return {
            "snapshot-id": self.snapshot_id,
            **({} if parent is None else {"parent-snapshot-id": parent}),
            "sequence-number": self.sequence,
            "timestamp-ms": max(int(time.time() * 1000), int(self.document["last-updated-ms"])),
            "manifest-list": self._write(path, avro.write(list_schema(), manifests, header)),
            "summary": {"operation": operation, **self._summary(counts)},
            "schema-id": self.document["current-schema-id"],
        }

    def _write(self, path: str, content: bytes) -> str:
        self.written.append(f"{self.document['location'].rstrip('/')}/{path}")
        with self.io.new_output(self.written[-1]).create() as stream:
            stream.write(content)
        return self.written[-1]

    def _summary(self, counts: Mapping[str, int]) -> dict[str, str]:
        now = md.snapshot(self.document, md.main_of(self.document) or 0)
        kinds = ("data-files", "records", "files-size")
        deletes = ("delete-files", "position-deletes", "equality-deletes")
        # Iceberg's name of removed bytes and records differs from that of the totals.
        totals = {
            one: (md.count(now, f"total-{one}") or 0)
            + counts.get(f"added-{one}", 0)
            - counts.get(f"removed-{one}", counts.get(f"deleted-{one}", 0))
            for one in (*kinds, *deletes)
        }
        return {
            **{name: str(number) for name, number in counts.items()},
            **{f"total-{one}": str(number) for one, number in totals.items()},
        }


@lru_cache(maxsize=64)
def _layout(schema: str) -> tuple[pa.Schema, Any, Any]:
    """Return what a data file of a table with this schema is made with: columns, statistics."""
    read = Schema.model_validate_json(schema)
    plan = compute_statistics_plan(read, {})
    return schema_to_pyarrow(read), plan, parquet_path_to_id_mapping(read)


@cache
def _manifest_schema() -> Any:
    file = data_file_with_partition(StructType(), 2)
    entry = manifest_entry_schema_with_data_file(2, file)
    return _avro_schema(entry, "manifest_entry")


@cache
def list_schema() -> Any:
    """Return the Avro schema of a manifest list of format version 2."""
    return _avro_schema(MANIFEST_LIST_FILE_SCHEMAS[2], "manifest_file")


def _avro_schema(schema: Schema, name: str) -> Any:
    return fastavro.parse_schema(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name))
