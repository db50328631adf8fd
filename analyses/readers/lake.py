"""What the readers of this folder share: which table, and which state of it.

    python analyses/readers/with_polars.py insurance.dim_policies
    python analyses/readers/with_polars.py insurance.dim_policies --branch pr_123
    python analyses/readers/with_polars.py insurance.dim_policies --tag wap_pub_1a2b3c4d
    python analyses/readers/with_polars.py insurance.dim_policies --as-of 2024-01-31T18:00:00+00:00

No Spark, no JVM, nothing of sparkwap: the catalog is asked through PyIceberg.
"""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", help="schema.table")
    parser.add_argument("--lake", type=Path, default=Path(os.environ.get("LAKE", ".lake")))
    state = parser.add_mutually_exclusive_group()
    state.add_argument("--branch", help="as an audit branch has it")
    state.add_argument("--tag", help="as it was published, by the receipt's tag")
    state.add_argument("--as-of", type=datetime.fromisoformat, help="as main was then")
    return parser.parse_args(given)


def catalog(lake: Path) -> Catalog:
    """The catalog of an embedded lake; of a cluster, the `catalog` of its profile."""
    folder = lake.resolve()
    return load_catalog(
        "lake",
        type="sql",
        uri=f"sqlite:///{folder}/catalog.db",
        warehouse=f"file://{folder}/warehouse",
    )


def find(asked: argparse.Namespace) -> tuple[Table, int]:
    """The table that is asked for, and the snapshot to read.

    What a branch cannot hold (a new table, changed columns) stands beside, in `<schema>__<branch>`.
    A name that the table does not have is an error, never a silent look at `main`.
    """
    lake, (schema, name) = catalog(asked.lake), asked.table.split(".")
    beside = (f"{schema}__{asked.branch}", name)
    if asked.branch and lake.table_exists(beside):
        table = lake.load_table(beside)
        return table, _id(table.current_snapshot(), asked)
    table = lake.load_table((schema, name))
    if asked.branch or asked.tag:
        return table, _id(table.snapshot_by_name(asked.branch or asked.tag), asked)
    if asked.as_of:
        # By the log of main: a snapshot's own time is when it was written, on its branch.
        moment = int(asked.as_of.timestamp() * 1000)
        return table, _id(table.snapshot_as_of_timestamp(moment), asked)
    return table, _id(table.current_snapshot(), asked)


def _id(snapshot: object, asked: argparse.Namespace) -> int:
    if snapshot is None:
        raise SystemExit(f"{asked.table} has no such state: {asked.branch or asked.tag or 'main'}")
    return int(snapshot.snapshot_id)  # type: ignore[attr-defined]
