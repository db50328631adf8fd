"""Reads how far the published logs of Kafka topics are behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table import Table

from sparkwap.core.dbt_cli import LakePlace
from sparkwap.core.errors import SparkwapError
from sparkwap.landing.raw_models import RawModel, published, unread_messages

_MESSAGE_TIME = "_message_time"


@dataclass(frozen=True, slots=True)
class TopicLag:
    """How far ``main`` has a topic.

    Attributes:
        model: The raw model.
        topic: The topic.
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
    """Return the lags of the raw models that read topics, by name.

    Args:
        lake: The lake.
        models: Raw models; those of files are left out.
    """
    streams = [model for model in models if model.entry.topic]
    catalog = lake.open() if streams else None
    found = []
    for model in streams:
        table = published(catalog, model.table) if catalog is not None else None
        newest = newest_message(table) if table is not None else None
        try:
            lag = TopicLag(model.name, model.entry.topic, newest, unread_messages(lake, model))
        except SparkwapError as error:
            lag = TopicLag(model.name, model.entry.topic, newest, None, str(error))
        found.append(lag)
    return found


def newest_message(table: Table) -> datetime | None:
    """Return the time of the newest message of a log, by the bounds in its manifests (UTC)."""
    metrics = table.inspect.files()["readable_metrics"].to_pylist()
    bounds = [(one.get(_MESSAGE_TIME) or {}).get("upper_bound") for one in metrics]
    return max((bound for bound in bounds if bound is not None), default=None)
