"""Read a table with PyIceberg, as Arrow."""

from __future__ import annotations

import pyarrow as pa
from lake import arguments, find
from pyiceberg.table import Table


def read(table: Table, snapshot: int) -> pa.Table:
    """Its rows, with the columns of that snapshot; `row_filter` and `selected_fields` push down."""
    return table.scan(snapshot_id=snapshot).to_arrow()


if __name__ == "__main__":
    print(read(*find(arguments())).to_pandas().to_string())
