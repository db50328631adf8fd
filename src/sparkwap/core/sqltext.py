"""Quotes names and texts in SQL, so that each is one identifier or one literal."""

from __future__ import annotations

from collections.abc import Sequence


def quote(name: str) -> str:
    """Return the name of a column, table or schema in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: str) -> str:
    """Return a text as a string literal of Spark."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fingerprint(query: str, columns: Sequence[str]) -> str:
    """Return the query for the number of rows of a query, and sum and parity of their hashes.

    Two queries with the same rows, in any order, have the same result.
    """
    row = ", ".join(map(quote, columns))
    # As JSON, because Spark cannot hash maps; with nulls and microseconds, which JSON leaves out.
    options = {
        "ignoreNullFields": "false",
        "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
    }
    given = ", ".join(literal(part) for one in options.items() for part in one)
    text = f"to_json(struct({row}), map({given}))"
    return (
        "select count(*), coalesce(sum(cast(h as decimal(38, 0))), 0), coalesce(bit_xor(h), 0) "
        f"from (select xxhash64({text}) as h from ({query}))"
    )
