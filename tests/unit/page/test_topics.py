"""How far published logs are behind their topics."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sparkwap.core.errors import SparkwapError
from sparkwap.page import topics


def test_topics_are_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=20)

    def unread(_: object, model: Any) -> int:
        both.wait()
        if model.name == "b":
            raise SparkwapError("no broker")
        return 3

    monkeypatch.setattr(topics, "unread_messages", unread)
    models: Any = [
        SimpleNamespace(name=name, table=("s", name), entry=SimpleNamespace(topic=topic))
        for name, topic in (("a", "t"), ("b", "u"), ("files", None))
    ]
    lake: Any = SimpleNamespace(open=lambda: None)
    assert topics.topic_lags(lake, models) == [
        topics.TopicLag("a", "t", None, 3),
        topics.TopicLag("b", "u", None, None, "no broker"),
    ]
