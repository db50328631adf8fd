"""SQL text for the rules of change data that states and histories share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkwap.core.sqllex import tokens
from sparkwap.core.sqltext import literal
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


def absent_column(name: str, expression: str) -> str:
    """Return SQL for a column's name if its event omits a column of the expression; else NULL."""
    made_of = ", ".join(map(literal, sorted(_column_names(expression)) or [""]))
    return f"if(exists(_absent, one -> lower(one) in ({made_of})), {literal(name)}, null)"


def _column_names(expression: str) -> set[str]:
    """Return the names in SQL that may be columns, in lower case: no types, functions, literals."""
    found = [*tokens(expression)]
    names, depth = set[str](), 0  # the brackets around a place in the type or alias after `as`
    for at, token in enumerate(found):
        following = found[at + 1] if found[at + 1 :] else None
        if depth:
            opens = token.text in ("(", "<")
            ends = token.text in (")", ">") or (token.text == "," and depth == 1)
            depth += opens - ends
        elif token.is_word("as"):
            depth = 1
        elif token.kind == "quoted":
            names.add(token.value.lower())
        elif (
            token.kind == "word"
            and not token.text.isdigit()
            and not (following and (following.text == "(" or following.kind == "string"))
            and [one.text for one in found[max(at - 2, 0) : at]] != [":", ":"]
        ):
            names.add(token.text.lower())
    return names
