"""Reads how far the published logs of Kafka topics are behind."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table import Table

from sparkwap.core.dbt_cli import LakePlace
from sparkwap.core.errors import SparkwapError
from sparkwap.landing.raw_models import RawModel, published, unread_messages

_MESSAGE_TIME = "_message_time"
_AT_ONCE = 8
"""Topics that are asked together: that a broker is down takes 15 seconds to notice."""


@dataclass(frozen=True, slots=True)
class TopicLag:
    """How far ``main`` has a topic.

    Attributes:
        newest: The time of the newest published message; None if there is none.
        unread: The number of messages that are not published; None if it is unknown.
        problem: Why it is unknown; empty if it is known.
    """

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
