"""Reads the raw tables: their rows in quarantine, and how far they are behind Kafka topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyiceberg.table import Table

from sparkwap.core.dbt_cli import LakePlace
from sparkwap.core.errors import SparkwapError
from sparkwap.landing.raw_models import BadRow, RawModel, open_rows, published, unread_messages
from sparkwap.page.queries import published_tables
from sparkwap.publish.lake import Lake

_RAW_COLUMNS = {"_kind", "_raw", "_error", "_file_path", "_row", "_batch"}
_MESSAGE_TIME = "_message_time"
_AT_ONCE = 8
"""Topics that are asked together: that a broker is down takes 15 seconds to notice."""
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


@dataclass(frozen=True, slots=True)
class TopicLag:
    """How far ``main`` has a topic; ``problem`` says why ``unread`` is not known."""

    model: str
    topic: str
    newest: datetime | None
    unread: int | None
    problem: str = ""


def topic_lags(lake: LakePlace, models: Sequence[RawModel]) -> list[TopicLag]:
    """Return the lags of the raw models that read topics, by name."""
    streams = [model for model in models if model.entry.topic]
    catalog = lake.open() if streams else None
    tables = [published(catalog, one.table) if catalog is not None else None for one in streams]
    newest = [newest_message(table) if table is not None else None for table in tables]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        unread = threads.map(lambda model: _unread(lake, model), streams)
        return [
            TopicLag(model.name, model.entry.topic, at, *found)
            for model, at, found in zip(streams, newest, unread, strict=True)
        ]


def _unread(lake: LakePlace, model: RawModel) -> tuple[int | None, str]:
    try:
        return unread_messages(lake, model), ""
    except SparkwapError as error:
        return None, str(error)


def newest_message(table: Table) -> datetime | None:
    """Return the time of the newest message of a log, by the bounds in its manifests (UTC)."""
    metrics = table.inspect.files()["readable_metrics"].to_pylist()
    bounds = [(one.get(_MESSAGE_TIME) or {}).get("upper_bound") for one in metrics]
    return max((bound for bound in bounds if bound is not None), default=None)
