"""The entries of ``dbt docs generate`` for tables and views, from the lake's catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkwap.catalog import TableState

_STATS = (
    ("row_count", "Rows", "total-records", "Rows as the snapshot counts them"),
    ("bytes", "Bytes", "total-files-size", "Size of the snapshot's data files"),
)


def catalog_rows(
    state: TableState, published_as: tuple[str, str], summary: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the rows of dbt's catalog table for one relation, one per column.

    Args:
        state: The table or view, which may be in a side schema.
    """
    schema, name = published_as
    table = {
        "table_database": None,
        "table_schema": schema,
        "table_name": name,
        "table_type": state.kind,
        "table_comment": state.comment,
        "table_owner": state.properties.get("owner"),
        **_stats(summary),
    }
    return [
        {
            **table,
            "column_index": index,
            "column_name": column.name,
            "column_type": column.type,
            "column_comment": column.doc,
        }
        for index, column in enumerate(state.columns, start=1)
    ]


def _stats(summary: Mapping[str, str]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for key, label, source, description in _STATS:
        figure = summary.get(source)
        cells |= {
            f"stats:{key}:label": label,
            f"stats:{key}:value": int(figure) if figure else None,
            f"stats:{key}:description": description,
            f"stats:{key}:include": figure is not None,
        }
    return cells
