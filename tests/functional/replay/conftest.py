"""What a replay has built, as a reader of its branch sees it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from helpers.lake import Reader
from pyiceberg.exceptions import NoSuchTableError


@dataclass(frozen=True)
class Rows:
    """The rows of a table: its columns with their types, and the bytes of all rows once sorted."""

    columns: tuple[tuple[str, str], ...]
    data: bytes
    rows: tuple[dict[str, object], ...]


def sorted_rows(table: pa.Table) -> Rows:
    keys = [repr(row) for row in table.to_pylist()]
    ordered = table.take(sorted(range(len(keys)), key=keys.__getitem__))
    whole = ordered.combine_chunks().replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        for batch in whole.to_batches():
            writer.write_batch(batch)
    columns = tuple((field.name, str(field.type)) for field in whole.schema)
    return Rows(columns, sink.getvalue().to_pybytes(), tuple(whole.to_pylist()))


@dataclass(frozen=True)
class BranchReader:
    """Reads what stands on audit branches, by PyIceberg and the catalog alone."""

    reader: Reader
    schema: str

    def main(self, name: str) -> Rows:
        return sorted_rows(self.reader.catalog.load_table((self.schema, name)).scan().to_arrow())

    def branch(self, name: str, branch: str) -> Rows:
        """A table on a branch, or beside it where its columns are others."""
        catalog = self.reader.catalog
        try:
            beside = catalog.load_table((f"{self.schema}__{branch}", name))
            return sorted_rows(beside.scan().to_arrow())
        except NoSuchTableError:
            table = catalog.load_table((self.schema, name))
            snapshot = table.metadata.refs[branch].snapshot_id
            return sorted_rows(table.scan(snapshot_id=snapshot).to_arrow())


@pytest.fixture(scope="session")
def branch_reader(reader: Reader) -> type[BranchReader]:
    return BranchReader
