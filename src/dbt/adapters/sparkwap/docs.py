"""The entries of ``dbt docs generate`` for tables and views, from the lake's catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dbt_common.clients.agate_helper import build_type_tester
from dbt_common.contracts.metadata import (
    CatalogTable,
    ColumnMetadata,
    StatsItem,
    TableMetadata,
)

from sparkwap.catalog import TableState

if TYPE_CHECKING:
    import agate

# Text columns: agate must not convert a name such as `2024` or a comment such as `true`.
_TEXTS = (
    "table_database",
    "table_schema",
    "table_name",
    "table_type",
    "table_comment",
    "table_owner",
    "column_name",
    "column_type",
    "column_comment",
)
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
        published_as: The schema and name to show.
        summary: The summary of the shown snapshot; empty for a view.
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


def catalog_table(rows: Sequence[Mapping[str, Any]]) -> agate.Table:
    """Return dbt's catalog table of these rows."""
    import agate

    return agate.Table.from_object(list(rows), column_types=build_type_tester(_TEXTS))


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


def single_table(
    state: TableState, published_as: tuple[str, str], summary: Mapping[str, str]
) -> CatalogTable:
    """Return dbt's catalog entry of one relation; parameters as in :func:`catalog_rows`."""
    schema, name = published_as
    figures = {key: summary.get(source) for key, _, source, _ in _STATS}
    stats = {
        key: StatsItem(key, label, int(figures[key] or 0), True, description)
        for key, label, _, description in _STATS
        if figures[key] is not None
    }
    stats["has_stats"] = StatsItem(
        "has_stats",
        "Has Stats?",
        bool(stats),
        False,
        "Indicates whether there are statistics for this table",
    )
    return CatalogTable(
        metadata=TableMetadata(
            state.kind, schema, name, None, state.comment, state.properties.get("owner")
        ),
        columns={
            column.name: ColumnMetadata(column.type, index, column.name, column.doc)
            for index, column in enumerate(state.columns, start=1)
        },
        stats=stats,
    )
