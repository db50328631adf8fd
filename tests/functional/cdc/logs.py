"""Change logs of the oracle as Arrow tables, with the columns and types of a raw table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from helpers.reference_model import Key, Row, state

LOG = {
    "_op": pa.string(),
    "_sequence": pa.string(),
    "_event_time": pa.timestamp("us", tz="UTC"),
    "_absent": pa.list_(pa.string()),
    "_load_date": pa.date32(),
    "_file_path": pa.string(),
    "_row": pa.int64(),
    "_part": pa.int32(),
    "_batch": pa.int64(),
    "_kind": pa.string(),
    "_error": pa.string(),
    "_load": pa.string(),
}


def log_table(rows: Iterable[Row], columns: Sequence[str]) -> pa.Table:
    """Rows of a log as they would stand in a raw table."""
    schema = pa.schema([*((c, pa.string()) for c in columns), *LOG.items()])
    return pa.Table.from_pylist([{c: row.get(c) for c in schema.names} for row in rows], schema)


def assert_true(
    found: Iterable[dict[str, Any]], log: Iterable[Row], key: Sequence[str], columns: Sequence[str]
) -> None:
    """A state is, row by row, the one that the oracle makes of the log."""
    truth, rows = state(log, key, columns), by_key(found, key)
    assert set(rows) == set(truth)
    for of_key, true in truth.items():
        seen = {c: rows[of_key][c] for c in true}
        assert seen == true, of_key


def by_key(found: Iterable[dict[str, Any]], key: Sequence[str]) -> dict[Key, dict[str, Any]]:
    """Rows of a state by key, which must not come twice."""
    rows: dict[Key, dict[str, Any]] = {}
    for row in found:
        of_key = tuple(row[c] for c in key)
        assert of_key not in rows, f"{of_key} is there twice"
        rows[of_key] = row
    return rows


def said(row: dict[str, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    """What a row of a state says, without where it was read."""
    return tuple(row[c] for c in (*columns, "_op", "_is_deleted", "_sequence", "row_hash"))
