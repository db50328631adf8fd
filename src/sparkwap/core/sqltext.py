"""Quotes names and texts in SQL, so that each is one identifier or one literal."""

from __future__ import annotations


def quote(name: str) -> str:
    """Return the name of a column, table or schema in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: str) -> str:
    """Return a text as a string literal of Spark."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
