"""``sparkwap stream``: when it builds, what, and when it looks again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.cli import main, stream
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import DbtEnd
from sparkwap.core.errors import ConfigError


@given(st.floats(0.01, 600), st.integers(0, 5000))
def test_the_pause_grows_with_failures_and_has_a_limit(every: float, failures: int) -> None:
    found = stream.pause(every, failures)
    assert every <= found <= max(every, stream.LONGEST_WAIT_SECONDS)
    assert stream.pause(every, 0) == every
    assert stream.pause(every, failures + 1) >= found


class Enough(BaseException):
    """Ends the loop."""


class Topics:
    """A project whose topics have these unread messages at each look; whether builds publish."""

    def __init__(self, looks: list[dict[str, int]], publishes: list[bool]) -> None:
        self.looks, self.publishes = iter(looks), iter(publishes)
        self.position, self.parsed = 0, 0
        self.found: list[Any] = []
        self.builds: list[tuple[str, ...]] = []
        self.lines: list[str] = []
        self.ends: list[CommandEnd] = []
        self.pauses: list[float] = []
        self.faults: list[str] = []

    def call(self, arguments: list[str]) -> Any:
        def run(*command: str) -> DbtEnd:
            self.builds.append(command)
            self.position += next(self.publishes)
            return DbtEnd(0)

        return SimpleNamespace(
            build=tuple(arguments),
            variables={},
            manifest=lambda _again: {},
            project_dir=Path(),
            lake=lambda: None,
            run=run,
        )

    def models(self, *_: Any) -> list[Any]:
        self.parsed += 1
        return self.found

    def look(self, *_: Any) -> tuple[dict[str, int], list[str]]:
        try:
            return next(self.looks), self.faults
        except StopIteration:
            raise Enough from None

    def run(self, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Topics:
        model = SimpleNamespace(name="raw_a", entry=SimpleNamespace(topic="a"))
        files = SimpleNamespace(name="raw_b", entry=SimpleNamespace(topic=""))
        monkeypatch.setattr(stream, "parse_call", self.call)
        monkeypatch.setattr(stream, "raw_models", self.models)
        self.found = [model, files]
        monkeypatch.setattr(stream, "unread_topics", self.look)
        monkeypatch.setattr(stream, "position", lambda *_: self.position)
        with pytest.raises(Enough):
            stream.stream(
                5, list(arguments), self.ends.append, self.lines.append, self.pauses.append
            )
        return self


def test_only_what_has_messages_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Topics([{}, {"raw_a": 2}, {}], [True]).run(monkeypatch, "--threads", "2")
    assert ran.builds == [("build", "--threads", "2", "--select", "raw_a+")]
    assert ran.lines == ["watching a, every 5 s; Ctrl-C stops", "raw_a has 2 unread messages"]
    assert ran.pauses == [5, 5, 5]
    (end,) = ran.ends
    assert end.result == stream.StreamBuild(("raw_a",), {"raw_a": 2}, None)


def test_it_waits_longer_after_each_build_that_is_not_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = Topics([{"raw_a": 1}] * 4, [False, False, True, False]).run(monkeypatch)
    assert ran.pauses == [10, 20, 5, 10]
    assert ran.lines.count("the last try failed, or was not published; next try in 10 s") == 2


def test_what_is_not_published_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mart may be rejected after its raw table was published: then no message is unread."""
    ran = Topics([{"raw_a": 1}, {}, {}], [False, True]).run(monkeypatch)
    assert ran.builds == [("build", "--select", "raw_a+")] * 2
    assert "again: raw_a" in ran.lines
    assert ran.parsed == 2, "the project may have been corrected"


def test_an_error_of_the_catalog_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics([{}, {}], [])
    looked = topics.look

    def look(*_: Any) -> Any:
        found = looked()
        if len(topics.pauses) == 0:
            raise OSError("no catalog")
        return found

    monkeypatch.setattr(topics, "look", look)
    ran = topics.run(monkeypatch)
    assert "OSError: no catalog" in ran.lines
    assert ran.pauses[0] == 10


def test_a_fault_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics([{}, {}, {}], [])
    topics.faults = ["no broker"]
    assert topics.run(monkeypatch).lines[1:] == ["no broker"]


def test_it_selects_the_nodes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "parse_call", Topics([], []).call)
    with pytest.raises(ConfigError, match="takes no --select"):
        stream.stream(5, ["--select", "x"], print)


def test_a_project_without_topics_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "parse_call", Topics([], []).call)
    monkeypatch.setattr(stream, "raw_models", lambda *_: [])
    with pytest.raises(ConfigError, match="No raw model reads a topic"):
        stream.stream(5, [], print)


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "601"])
def test_seconds_that_make_no_sense_are_refused(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["stream", "--every", seconds])
    told = f"argument --every: '{seconds}' is not a number of seconds above 0 and up to 600"
    assert told in capsys.readouterr().err
