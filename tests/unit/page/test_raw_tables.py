"""Rows in quarantine, and how far published logs are behind their topics."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sparkwap.core.errors import SparkwapError
from sparkwap.landing.raw_models import BadRow
from sparkwap.page import raw_tables


def test_reasons_are_counted_without_quoted_values() -> None:
    rows = [
        BadRow("b.csv", 9, "amount is not a decimal(12,2): Ann", "x"),
        BadRow("a.csv", 3, "amount is not a decimal(12,2): Bob", "y"),
        BadRow("a.csv", 4, 'operation "Cy: 1" is not one of I, U, D', "z"),
    ]
    found = raw_tables.group_reasons(rows)
    assert found == [
        {
            "reason": "amount is not a decimal(12,2)",
            "rows": 2,
            "files": 2,
            "first": "a.csv, line 3",
        },
        {
            "reason": "operation … is not one of I, U, D",
            "rows": 1,
            "files": 1,
            "first": "a.csv, line 4",
        },
    ]


def test_topics_are_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=20)

    def unread(_: object, model: Any) -> int:
        both.wait()
        if model.name == "b":
            raise SparkwapError("no broker")
        return 3

    monkeypatch.setattr(raw_tables, "unread_messages", unread)
    models: Any = [
        SimpleNamespace(name=name, table=("s", name), entry=SimpleNamespace(topic=topic))
        for name, topic in (("a", "t"), ("b", "u"), ("files", None))
    ]
    lake: Any = SimpleNamespace(open=lambda: None)
    assert raw_tables.topic_lags(lake, models) == [
        raw_tables.TopicLag("a", "t", None, 3),
        raw_tables.TopicLag("b", "u", None, None, "no broker"),
    ]
