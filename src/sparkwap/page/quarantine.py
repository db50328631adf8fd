"""Reads the rows in quarantine from the raw tables, and groups them by reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sparkwap.landing.raw_models import BadRow, RawModel, open_rows
from sparkwap.page.queries import published_tables
from sparkwap.publish.lake import Lake

_RAW_COLUMNS = {"_kind", "_raw", "_error", "_file_path", "_row", "_batch"}
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The published bad rows of a raw model that no replay has accepted; ``good`` is a count."""

    model: str
    table: str
    rows: tuple[BadRow, ...]
    good: int
    columns: tuple[str, ...]


def quarantines(lake: Lake, models: Sequence[RawModel]) -> list[Quarantine]:
    """Return the quarantines of all raw tables on ``main``, by name.

    Raw tables are recognised by their columns, because dbt's manifest has only one project.
    """
    named = {model.table: model.name for model in models}
    found = []
    for identifier, state in sorted(published_tables(lake).items()):
        columns = tuple(column.name for column in state.columns)
        if set(columns) >= _RAW_COLUMNS:
            table = lake.catalog.load_table(identifier)
            good = table.scan("_kind = 'row'").count()
            name = named.get((identifier[0], identifier[1]), identifier[1])
            rows = tuple(sorted(open_rows(table)))
            found.append(Quarantine(name, ".".join(identifier), rows, good, columns))
    return found


def group_reasons(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the rows in quarantine by reason, the most frequent first.

    Reasons are shown without the values that they quote, because these may be personal and differ
    in each row.
    """
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(_reason(row.reason or "unknown"), []).append(row)
    found = [
        {
            "reason": reason,
            "rows": len(own),
            "files": len({row.file for row in own}),
            "first": f"{min(own).file}, line {min(own).line}",
        }
        for reason, own in groups.items()
    ]
    return sorted(found, key=lambda group: (-group["rows"], group["reason"]))


def _reason(text: str) -> str:
    # "amount is not a decimal(12,2): 12,x": the value comes after the colon. A quotation may have
    # a colon, too.
    return _QUOTED.sub("…", text).partition(": ")[0]
