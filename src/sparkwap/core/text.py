"""Short texts for messages."""

import re
from collections.abc import Sequence


def some_of(names: Sequence[str], limit: int = 3) -> str:
    """Return the first names and the number of the others: `a, b, c and 5 more`."""
    shown, more = ", ".join(names[:limit]), len(names) - limit
    return f"{shown} and {more:,} more" if more > 0 else shown


def without_partitions(path: str) -> str:
    """Return a path without the values of its partitions, which may be personal data."""
    return re.sub("/([^/=]+)=[^/]*", r"/\1=...", path)


def first_line(text: str | None) -> str:
    """Return the first line of a text; empty if there is none."""
    lines = (text or "").strip().splitlines()
    return lines[0].strip() if lines else ""


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 table`, `2 tables`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def age(seconds: float) -> str:
    """Return a time span in words: `2 minutes`, `less than a minute`."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return "less than a minute"


def listed(value: object) -> list[str]:
    """Return a config value, which may be a text or a list of texts, as a list without blanks."""
    values = value if isinstance(value, list | tuple) else [value]
    return [str(item) for item in values if item is not None and str(item).strip()]
