"""Builders of events and messages, and an endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers.endpoints import Endpoint, endpoint

from sparkwap.alerts.model import Event, FailedRows, FailedTest, Message

NOW = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)
RUN = "1a2b3c4d-0000-4000-8000-000000000000"


def event(subject: str = "shop.orders", **more: Any) -> Event:
    given = {"kind": "rejected", "run_id": RUN, "at": NOW, "branch": "wap_1a2b3c4d", **more}
    return Event(subject=subject, **given)


def message(*events: Event, route: str = "r", **more: Any) -> Message:
    given = {"run_id": RUN, "target": "prod", "owners": (), **more}
    return Message(route=route, events=events or (event(),), **given)


def failed(name: str = "orders_have_ids", **more: Any) -> FailedTest:
    return FailedTest(f"test.shop.{name}", name, **more)


def sample(*rows: tuple[str, ...], columns: tuple[str, ...] = ("id",)) -> FailedRows:
    return FailedRows(columns, rows)


@pytest.fixture
def hook() -> Iterator[Endpoint]:
    with endpoint() as found:
        yield found
