"""Functions for macros that need no lake: lists, names in backquotes, types, casts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import sqlparse
from dbt.adapters.base.meta import available
from dbt.adapters.spark.impl import SparkAdapter

from sparkwap.cdc.event_sql import absent_column
from sparkwap.core.spark_types import family
from sparkwap.core.sqltext import literal, quote
from sparkwap.core.text import listed
from sparkwap.landing.row_sql import checked, plain_cast

ROWS_PER_TEXT = 5000


class SqlHelpers:
    """The functions for names, types and texts; also available while dbt parses."""

    @available
    def list(self, value: Any) -> Sequence[str] | None:
        """Return a config that is one text or several as a list; None stays None."""
        return None if value is None else listed(value)

    @available
    def quoted(self, columns: Sequence[str]) -> Sequence[str]:
        """Return column names in backquotes."""
        return [quote(str(name)) for name in columns]

    @available
    def intersect(self, columns: Sequence[str], given: Sequence[str]) -> Sequence[str]:
        """Return the ``columns`` that are in ``given`` (lower case), in their order."""
        return [name for name in columns if name.lower() in given]

    @available
    def split_statements(self, text: str) -> Sequence[str]:
        """Split a text into its SQL statements."""
        return [part.strip().rstrip(";") for part in sqlparse.split(text) if part.strip(" ;\n\t")]

    @available
    def type_family(self, column_type: str) -> str:
        """Return a type without the size, precision and scale of its parts."""
        return family(column_type)

    @available
    def checked_cast(self, value: str, column_type: str, column: str) -> str:
        """Return SQL that casts a text, and fails on a value that is invalid or needs rounding."""
        return checked(value, column_type, column)

    @available
    def plain_cast(self, expression: str) -> tuple[str, str] | None:
        """Return column and type if the SQL is only a cast of a column; None otherwise."""
        return plain_cast(expression)

    @available
    def absent_column(self, name: str, expression: str) -> str:
        """Return SQL for the name of a column that an event omits; NULL if it has the column."""
        return absent_column(name, expression)

    @available.parse(lambda *a, **k: "")
    def seed_sql(self, table: Any, given: Mapping[str, str], quote: bool = True) -> str:
        """Return a query that returns the rows of a seed's table."""
        columns = [str(name) for name in table.column_names]
        inferred = [SparkAdapter.convert_type(table, i) or "string" for i in range(len(columns))]
        rows = [[*row] for row in table.rows]
        return seed_sql(column_types(columns, inferred, given), rows, quoted=quote)


def seed_sql(
    columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], *, quoted: bool = True
) -> str:
    """Return a query that returns the rows of a seed: a few JSON texts, which Spark parses.

    dbt-spark inserts seeds with one bound value per cell, in a time that is quadratic in the rows.

    Args:
        columns: Name and Spark type of each column, in order.
        rows: Python values; None is null.
    """
    casts = ", ".join(
        f"cast(c{i} as {kind}) as {quote(name) if quoted else name}"
        for i, (name, kind) in enumerate(columns)
    )
    fields = ", ".join(f"c{i}: string" for i in range(len(columns)))
    schema = f"array<struct<{fields}>>"
    texts = [
        json.dumps(
            [
                {f"c{i}": _text(value) for i, value in enumerate(row) if value is not None}
                for row in rows[start : start + ROWS_PER_TEXT]
            ],
            ensure_ascii=False,
        )
        for start in range(0, len(rows), ROWS_PER_TEXT)
    ] or ["[]"]
    parts = [f"select inline(from_json({literal(text)}, '{schema}'))" for text in texts]
    union = "\nunion all\n".join(parts)
    return f"select {casts} from (\n{union}\n)"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def column_types(
    names: Sequence[str], inferred: Sequence[str], given: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return each column with its configured type, or else with its inferred type."""
    overrides = {name.lower(): kind for name, kind in given.items()}
    return [
        (name, overrides.get(name.lower(), kind))
        for name, kind in zip(names, inferred, strict=True)
    ]
