"""Read a table with pandas, in Arrow's types: integers with NULLs stay integers."""

from __future__ import annotations

import pandas as pd
from lake import arguments, find
from pyiceberg.table import Table


def read(table: Table, snapshot: int) -> pd.DataFrame:
    """Its rows."""
    rows = table.scan(snapshot_id=snapshot).to_arrow()
    return rows.to_pandas(types_mapper=pd.ArrowDtype)


if __name__ == "__main__":
    print(read(*find(arguments())).to_string())
