"""Badges of verdicts and statuses, and formats of times, counts and texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sparkwap.core.text import age

_MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&@/])")


@dataclass(frozen=True, slots=True)
class Badge:
    """The mark and the colour of a verdict or status; colour is never the only difference.

    Attributes:
        mark: A symbol before the word.
        colour: The colour of bars and words. The colours also differ in brightness, so people who
            cannot see red or green can distinguish them.
    """

    mark: str
    colour: str


VERDICTS: Mapping[str, Badge] = {
    "published": Badge("✔", "#0072B2"),
    "held": Badge("◆", "#E69F00"),
    "rejected": Badge("✖", "#8C1D40"),
}
"""The verdicts of the gate, in the order of drawing."""

OUTCOMES: Mapping[str, Badge] = {
    **VERDICTS,
    "partial": Badge("◐", "#56B4E9"),
    "discarded": Badge("⊘", "#7F7F7F"),
    "died": Badge("†", "#4D4D4D"),
    "rolled back": Badge("↩", "#5E4FA2"),
    "partly rolled back": Badge("↩", "#9E9AC8"),
}
"""The outcomes of runs."""

STATUSES: Mapping[str, Badge] = {
    "pass": Badge("✔", "#0072B2"),
    "warn": Badge("▲", "#E69F00"),
    "fail": Badge("✖", "#8C1D40"),
    "error": Badge("✹", "#CC79A7"),
    "skipped": Badge("–", "#A6A6A6"),
}
"""dbt's statuses of tests."""

_PLAIN = Badge("·", "#7F7F7F")


def badge_of(word: str | None) -> Badge:
    """Return the badge of a verdict, outcome or status; a neutral badge for other words."""
    return {**STATUSES, **OUTCOMES}.get(word or "", _PLAIN)


def format_status(word: str | None) -> str:
    """Return a verdict, outcome or status with its symbol."""
    return f"{badge_of(word).mark} {word or 'unknown'}"


def format_time(at: datetime | None) -> str:
    """Return a time as text, in UTC."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def format_age(since: datetime | None, now: datetime) -> str:
    """Return an age as text: ``3 days old``."""
    return f"{age((now - since).total_seconds())} old" if since else "of unknown age"


def format_duration(seconds: float | None) -> str:
    """Return a duration as text: ``1 min 15 s``."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def escape_markdown(text: str) -> str:
    """Escape a text for Markdown: images, links, formulas and markup have no effect."""
    return _MARKUP.sub(r"\\\1", text)


def shorten(text: str | None, limit: int = 160) -> str:
    """Return a text on one line, cut after ``limit`` characters."""
    line = " ".join((text or "").split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def format_value(value: Any) -> str:
    """Return a value as text."""
    return "NULL" if value is None else str(value)
