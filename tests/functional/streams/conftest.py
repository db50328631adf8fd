"""A Kafka broker, and projects whose raw models read its topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from helpers.kafka import Broker
from helpers.landing import LandingProject, make_landing_project

if TYPE_CHECKING:
    from helpers.lake import Reader
    from helpers.project import MakeProject

MakeStreams = Callable[..., LandingProject]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for the whole session."""
    with Broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def make_streams(broker: Broker, make_project: MakeProject, reader: Reader) -> MakeStreams:
    """Makes a project of streams, by the names of their models; their topics must be there."""

    def make(entries: dict[str, dict[str, Any]], **more: Any) -> LandingProject:
        return make_landing_project(
            make_project, reader, "streams", entries, broker=broker.bootstrap, **more
        )

    return make


def stream(topic: str, **settings: Any) -> dict[str, Any]:
    """A landing entry of JSON messages with the columns ``id`` and ``state``."""
    return {
        "entity": topic,
        "kind": "stream",
        "format": "json",
        "topic": topic,
        "key": ["id"],
        "columns": {"id": "bigint", "state": "string"},
        **settings,
    }
