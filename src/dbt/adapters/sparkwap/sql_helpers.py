"""Functions for macros that need no lake: lists, names in backquotes, types, casts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlparse
from dbt.adapters.base.meta import available
from dbt.adapters.spark.impl import SparkAdapter

from dbt.adapters.sparkwap.seeds import column_types, seed_sql
from sparkwap.cdc.event_sql import absent_column
from sparkwap.core.spark_types import family
from sparkwap.core.sqltext import quote
from sparkwap.landing.row_sql import checked, plain_cast


class SqlHelpers:
    """The functions for names, types and texts; also available while dbt parses."""

    @available
    def list(self, value: Any) -> Sequence[str] | None:
        """Return a config that is one text or several as a list; None stays None."""
        if value is None:
            return None
        values = value if isinstance(value, list | tuple) else [value]
        return [str(item) for item in values if str(item).strip()]

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
        return seed_sql(column_types(columns, inferred, given), rows, quote=quote)
