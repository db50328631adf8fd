"""Names and texts in SQL: whatever they hold, they stay one identifier or one literal."""

from __future__ import annotations


def quote(name: str) -> str:
    """A name of a column, table or schema, in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: str) -> str:
    """A text as a string literal of Spark."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
