"""Badges of verdicts and statuses, and how times, counts and texts are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_SHORT_TEXT = 160
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&@/])")


@dataclass(frozen=True, slots=True)
class Badge:
    """How a verdict or status is drawn: with a mark and a colour, never by colour alone.

    Attributes:
        mark: A symbol before the word.
        colour: Of bars and words. The colours differ in brightness too, and people who cannot see
            red or green can tell them apart.
    """

    mark: str
    colour: str


VERDICTS: Mapping[str, Badge] = {
    "published": Badge("✔", "#0072B2"),
    "held": Badge("◆", "#E69F00"),
    "rejected": Badge("✖", "#8C1D40"),
}
"""The verdicts of the gate, in the order in which they are drawn."""

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
    """The badge of a verdict, outcome or status; a neutral one for any other word."""
    return {**STATUSES, **OUTCOMES}.get(word or "", _PLAIN)


def format_status(word: str | None) -> str:
    """A verdict, outcome or status with its symbol."""
    return f"{badge_of(word).mark} {word or 'unknown'}"


def format_time(at: datetime | None) -> str:
    """A time, in UTC."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def format_age(since: datetime | None, now: datetime) -> str:
    """The age of something: ``3 days old``."""
    if since is None:
        return "of unknown age"
    seconds = int((now - since).total_seconds())
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{format_count(seconds // length, unit)} old"
    return "less than a minute old"


def format_duration(seconds: float | None) -> str:
    """A duration: ``1 min 15 s``."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def format_count(count: int, noun: str) -> str:
    """A count with its noun: ``1 row``, ``2 rows``."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def escape_markdown(text: str) -> str:
    """Escape a text for Markdown, so that no image, link, formula or markup in it has an effect."""
    return _MARKUP.sub(r"\\\1", text)


def shorten(text: str | None, limit: int = _SHORT_TEXT) -> str:
    """A text on one line, cut after some characters."""
    one = " ".join((text or "").split())
    return one if len(one) <= limit else one[: limit - 1] + "…"


def format_value(value: Any) -> str:
    return "NULL" if value is None else str(value)
