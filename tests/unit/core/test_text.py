"""Short texts for messages."""

from __future__ import annotations

import pytest

from sparkwap.core.text import age


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "less than a minute"), (59, "less than a minute"), (60, "1 minute"),
     (3 * 3600 + 5, "3 hours"), (2 * 86400, "2 days")],
)  # fmt: skip
def test_ages(seconds: float, said: str) -> None:
    assert age(seconds) == said
