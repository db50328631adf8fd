"""SQL text for the rules of change data that states and histories share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkwap.core.sqltext import quote as quote

PLACE_TYPE = "struct<_sequence: string, _file_path: string, _row: bigint, _part: int>"

EVENT = ("_op", "_sequence", "_event_time", "_load_date", "_file_path", "_row", "_part", "_batch")
"""The log's columns that a state keeps for the last event of a key."""


def place(
    sequence: str = "_sequence", file: str = "_file_path", row: str = "_row", part: str = "_part"
) -> str:
    """Return SQL for an event's place in the order of all events of its table."""
    return (
        f"struct({sequence} as _sequence, {file} as _file_path, "
        f"cast({row} as bigint) as _row, cast({part} as int) as _part)"
    )


def copy_number(message: str, at: str = "") -> str:
    """Return SQL that is 1 for the copy of a message that counts: the copy in the first file.

    Args:
        message: SQL of the columns that are equal for copies.
        at: prefix of the columns of the place.
    """
    order = f"{at}_file_path, {at}_row desc, {at}_part desc"
    return f"row_number() over (partition by {message} order by {order})"


def event_content(message: str) -> str:
    """Return SQL for the content of an event; deletes have no content, so their rows may differ."""
    return f"if(_op = 'delete', '', {message})"


def at_grain(time: str, grain: str) -> str:
    """Return SQL for a time at a grain, timestamp or date; days are UTC in any session."""
    if grain == "date":
        return f"cast(to_utc_timestamp({time}, current_timezone()) as date)"
    return time


def quoted(names: Iterable[str]) -> str:
    """Return column names in backticks, separated by commas."""
    return ", ".join(quote(name) for name in names)


def text(value: str) -> str:
    """Return a text literal of raw strings, without escapes; quotes are concatenated."""
    return ' || "\'" || '.join(f"r'{part}'" for part in value.split("'"))


def own_columns(columns: Iterable[str]) -> list[str]:
    """Return the entity's own columns of a log or a state."""
    return [c for c in columns if not c.startswith("_") and c != "row_hash"]


def row_hash(columns: Sequence[str]) -> str:
    r"""Return SQL for the SHA-256 (hex) of text columns, in order, which differs for other rows.

    The columns are joined by U+001F and a NULL is ``\N``; a backslash or U+001F inside a value is
    escaped, so that no two rows can give the same text.
    """
    parts = [
        rf"coalesce(replace(replace({quote(c)}, r'\', r'\\'), char(31), r'\u'), r'\N')"
        for c in columns
    ]
    return f"sha2(concat_ws(char(31), {', '.join(parts)}), 256)"
