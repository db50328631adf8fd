"""Durations, ages, escapes and badges."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from sparkwap.page.formats import (
    VERDICTS,
    escape_markdown,
    format_age,
    format_duration,
    format_status,
)

from .conftest import NOW


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.04, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (timedelta(seconds=59), "less than a minute old"),
        (timedelta(minutes=1), "1 minute old"),
        (timedelta(hours=25), "1 day old"),
        (timedelta(days=9), "9 days old"),
    ],
)
def test_ages(ago: timedelta, text: str) -> None:
    assert format_age(NOW - ago, NOW) == text
    assert format_age(None, NOW) == "of unknown age"


def test_markdown_in_a_text_is_escaped() -> None:
    hostile = "![x](http://evil/?q) **b** $a$ :red[c] `d` <b> # e | f"
    escaped = escape_markdown(hostile)
    assert escaped.replace("\\", "") == hostile
    for sign in "![]()*$:`<>#|/":
        assert escaped.count(f"\\{sign}") == hostile.count(sign)


def test_each_verdict_has_its_own_mark_and_colour() -> None:
    badges = [*VERDICTS.values()]
    assert len({badge.mark for badge in badges}) == len({badge.colour for badge in badges}) == 3
    # The colours also differ in brightness.
    lights = sorted(_luminance(badge.colour) for badge in badges)
    assert all(b - a > 0.07 for a, b in pairwise(lights)), lights
    assert format_status("rejected") == "✖ rejected"
    assert format_status(None) == "· unknown"


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
