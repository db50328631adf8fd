"""The error of this package, and helpers for its messages."""

from __future__ import annotations

from collections.abc import Iterable

from sparkwap.core.errors import SparkwapError

AGAIN = "run the same command again (`dbt retry` for a dbt command)."
"""The end of a message about a file that the user has to correct."""


class LandingError(SparkwapError):
    """A landing folder, one of its files, or its description cannot be used."""


def any_of(values: Iterable[object]) -> str:
    """Return ``'a', 'b'``, sorted; for messages."""
    return ", ".join(f"'{v}'" for v in sorted(map(str, values)))
