"""How many random cases a property test has: more in `make soak`."""

from __future__ import annotations

import os


def examples(number: int) -> int:
    """Return the number of cases; ten times as many in `make soak`."""
    return number * 10 if os.environ.get("SOAK") else number
