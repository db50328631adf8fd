"""Quotes names and texts in SQL, so that each is one identifier or one literal."""

from __future__ import annotations

from collections.abc import Sequence


def quote(name: str) -> str:
    """Return the name of a column, table or schema in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: str) -> str:
    """Return a text as a string literal of Spark."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def json_text(columns: Sequence[str], nulls: bool = True) -> str:
    """Return SQL for the columns of a row as JSON, which differs for different rows.

    Args:
        columns: the columns; none give one text for all rows.
        nulls: whether NULLs are written, so that a further column that is NULL changes the text.
    """
    row = ", ".join(map(quote, columns)) or "1 as one"
    # By default, times have milliseconds.
    options = {
        "ignoreNullFields": str(not nulls).lower(),
        "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
    }
    given = ", ".join(literal(part) for one in options.items() for part in one)
    return f"to_json(struct({row}), map({given}))"


def fingerprint(query: str, columns: Sequence[str]) -> str:
    """Return the query for the number of rows of a query, and sum and parity of their hashes.

    Two queries with the same rows, in any order, have the same result.
    """
    # As JSON, because Spark cannot hash maps.
    return (
        "select count(*), coalesce(sum(cast(h as decimal(38, 0))), 0), coalesce(bit_xor(h), 0) "
        f"from (select xxhash64({json_text(columns)}) as h from ({query}))"
    )
