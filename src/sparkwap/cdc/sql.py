"""Small pieces of SQL text that the parts of `sparkwap.cdc` share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkwap.core.sqltext import quote as quote

PLACE = "struct(_sequence, _file_path, _row, _part)"
"""Where an event stands in the order of all events of its table."""

PLACE_TYPE = "struct<_sequence: string, _file_path: string, _row: bigint, _part: int>"

EVENT = ("_op", "_sequence", "_event_time", "_load_date", "_file_path", "_row", "_part", "_batch")
"""The log's columns that a state keeps, of the last event of a key."""


def quoted(names: Iterable[str]) -> str:
    """Column names between backticks, by comma."""
    return ", ".join(quote(name) for name in names)


def text(value: str) -> str:
    """A text literal; raw, so that a backslash is one, and a quote cannot end it."""
    return ' || "\'" || '.join(f"r'{part}'" for part in value.split("'"))


def own_columns(columns: Iterable[str]) -> list[str]:
    """The entity's own columns, of a log or of a state."""
    return [c for c in columns if not c.startswith("_") and c != "row_hash"]


def row_hash(columns: Sequence[str]) -> str:
    r"""SQL: SHA-256 (hex) of text columns, in order, that differs for rows that differ.

    The columns are joined by U+001F and a NULL is ``\N``; a backslash or U+001F inside a value is
    escaped, so that no two rows can give the same text.
    """
    parts = [
        rf"coalesce(replace(replace({quote(c)}, r'\', r'\\'), char(31), r'\u'), r'\N')"
        for c in columns
    ]
    return f"sha2(concat_ws(char(31), {', '.join(parts)}), 256)"
