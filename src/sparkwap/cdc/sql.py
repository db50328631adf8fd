"""The rules of change data that states and histories share, as SQL text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkwap.core.sqltext import quote as quote

PLACE_TYPE = "struct<_sequence: string, _file_path: string, _row: bigint, _part: int>"

EVENT = ("_op", "_sequence", "_event_time", "_load_date", "_file_path", "_row", "_part", "_batch")
"""The log's columns that a state keeps, of the last event of a key."""


def place(
    sequence: str = "_sequence", file: str = "_file_path", row: str = "_row", part: str = "_part"
) -> str:
    """SQL: where an event stands in the order of all events of its table."""
    return (
        f"struct({sequence} as _sequence, {file} as _file_path, "
        f"cast({row} as bigint) as _row, cast({part} as int) as _part)"
    )


def copy_number(message: str, at: str = "") -> str:
    """SQL: 1 for the copy of a message that counts: where it stands in the first of its files.

    Args:
        message: SQL of the columns that are equal for copies.
        at: prefix of the columns of the place.
    """
    order = f"{at}_file_path, {at}_row desc, {at}_part desc"
    return f"row_number() over (partition by {message} order by {order})"


def said(message: str) -> str:
    """SQL: what an event says; all deletes of one sequence say the same, whatever row they show."""
    return f"if(_op = 'delete', '', {message})"


def at_grain(time: str, grain: str) -> str:
    """SQL: a time at a grain, timestamp or date; days are those of UTC in any session."""
    if grain == "date":
        return f"cast(to_utc_timestamp({time}, current_timezone()) as date)"
    return time


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
