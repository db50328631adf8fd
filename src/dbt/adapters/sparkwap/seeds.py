"""A seed's rows as one SQL query.

dbt-spark inserts seeds with one bound value per cell, in a time that is quadratic in the rows. Here
the query contains the rows as a few JSON texts, which Spark parses, and builds the seed like a
model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sparkwap.core import sqltext

ROWS_PER_TEXT = 5000


def seed_sql(
    columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], *, quote: bool = True
) -> str:
    """Return a query that returns the rows of a seed.

    Args:
        columns: Name and Spark type of each column, in order.
        rows: Python values; None is null.
    """
    casts = ", ".join(
        f"cast(c{i} as {kind}) as {sqltext.quote(name) if quote else name}"
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
    parts = [f"select inline(from_json({sqltext.literal(text)}, '{schema}'))" for text in texts]
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
