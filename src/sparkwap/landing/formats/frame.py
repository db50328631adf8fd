"""Builds the frame of a format, with one row for each future row of the log.

============== ============= ======================================================================
``_path``      string        the file's path; in a replay, its name
``_line``      bigint        position in the file, from 1, header not counted
``_part``      int           0; 1 for the second half of a change of keys
``_text``      string        the row as in the file
``_own``       struct        the entity's own columns, as texts; an empty text is NULL
``_code``      string        operation code, or NULL
``_order``     array<string> the texts of the sequence columns
``_time``      string        the text of the event time
``_absent``    array<string> columns that the row does not have, or NULL
``_broken``    string        the reason why the text cannot be parsed, or NULL
``_skip``      string        the reason why the row is counted but not read, or NULL
============== ============= ======================================================================

The rows of a topic also have the columns `sparkwap.landing.messages.COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sparkwap.landing import messages
from sparkwap.landing.formats.base import Group
from sparkwap.landing.formats.json_sql import message_value
from sparkwap.landing.row_sql import TOMBSTONE, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NULL = "cast(null as string)"


def flat(
    parsed: DataFrame,
    group: Group,
    fields: Mapping[str, str],
    broken: str,
    absent: str | None = None,
) -> DataFrame:
    """Return the frame of rows of which each gives one row of the log.

    Args:
        parsed: the rows, with ``_path``, ``_line``, ``_text``.
        fields: published column to SQL of its text.
        absent: SQL of ``_absent``; None for NULL.
    """
    entry = group.entry
    fields = {**fields, **(messages.FIELDS if entry.topic else {})}
    code = fields.get(group.layout.operation or "", NULL)
    order = ", ".join(fields.get(name, NULL) for name, _ in entry.sequence) or NULL
    # Without a value, a message is a row only if its key says what it is about.
    is_empty = f"{message_value()} = {text(TOMBSTONE)}"
    skipped = NULL
    if group.layout.load == "upserts":
        code = f"if({is_empty}, 'delete', 'update')"
    elif entry.topic:
        skipped = f"if({is_empty}, 'tombstone', {NULL})"
    return parsed.selectExpr(
        "_path",
        "_line",
        "0 as _part",
        "_text",
        f"{columns_struct(group.sources, fields)} as _own",
        f"{code} as _code",
        f"array({order}) as _order",
        f"{fields.get(entry.event_time[0], NULL) if entry.event_time else NULL} as _time",
        f"{absent or 'cast(null as array<string>)'} as _absent",
        f"{broken} as _broken",
        f"{skipped} as _skip",
        *(messages.COLUMNS if entry.topic else ()),
    )


def refused_names(keys: str, group: Group) -> str:
    """Return the case of SQL for rows with columns that the table cannot have; empty for none.

    Args:
        keys: SQL for the array of the columns of a row.
    """
    if not group.refused:
        return ""
    refused = ", ".join(map(text, group.refused))
    return (
        f"when arrays_overlap({keys}, array({refused})) then "
        "'a column has a name that the table cannot have, or one that differs in case only'"
    )


def numbered(columns: Sequence[str]) -> dict[str, str]:
    """Return SQL for the texts of the published columns, numbered in ``_v``: any name is legal."""
    return {name: f"nullif(_v.f{i}, '')" for i, name in enumerate(columns)}


def columns_struct(sources: Mapping[str, Sequence[str]], fields: Mapping[str, str]) -> str:
    """Return SQL for the entity's own columns as a struct of texts."""
    items = []
    for column, names in sources.items():
        given = [fields[name] for name in names if name in fields]
        value = f"coalesce({', '.join(given)})" if given else NULL
        items.append(f"{text(column)}, {value}")
    return f"named_struct({', '.join(items)})"


def absent_columns(
    sources: Mapping[str, Sequence[str]],
    keys: str,
    unavailable: Callable[[str], str] = lambda _: "false",
) -> str:
    """Return SQL for the columns of the log that an object does not have; NULL if it has all.

    Args:
        sources: column of the log to published columns.
        keys: SQL for the array of the object's columns.
        unavailable: column of the log to SQL for whether the object only names it.
    """
    items = []
    for column, names in sources.items():
        known = ", ".join(map(text, names))
        there = f"arrays_overlap({keys}, array({known}))" if names else "false"
        items.append(f"if({there} and not ({unavailable(column)}), {NULL}, {text(column)})")
    listed = f"filter(array({', '.join(items)}), c -> c is not null)"
    return f"if(cardinality({listed}) = 0, cast(null as array<string>), {listed})"
