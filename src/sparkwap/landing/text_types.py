"""The type that a column of texts has, by all of its texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?")
_LEAST_DIGITS, _MOST_DIGITS = 18, 38


def text_kind(values: Iterable[str]) -> str:
    """The narrowest type that takes all of some texts as they are; string for none."""
    found = list(values)
    if not found:
        return "string"
    if all(_INTEGER.fullmatch(v) for v in found):
        return "bigint"
    if all(v.lower() in ("true", "false") for v in found):
        return "boolean"
    if all(_DATE.fullmatch(v) for v in found):
        return "date"
    if all(_TIME.fullmatch(v) for v in found):
        return "timestamp"
    return _number_kind(found) or "string"


def _number_kind(values: Sequence[str]) -> str | None:
    """A decimal where the texts prove its scale, else double if it keeps every digit.

    A scale is proven by a fixed number of places: all have as many, and one ends in a zero that
    would not be written otherwise. 0.5 and 0.25 say nothing of what comes later.
    """
    # 007 is a name, and so is 1E6 more often than not.
    if not all(_NUMBER.fullmatch(value) for value in values):
        return None
    places = {len(value.partition(".")[2]) for value in values}
    whole_numbers = places == {0}  # too long for a bigint
    fixed = len(places) == 1 and (whole_numbers or any(v.endswith("0") for v in values))
    if fixed:
        (scale,) = places
        whole = max(len(v.partition(".")[0].lstrip("-")) for v in values)
        precision = _MOST_DIGITS if whole_numbers else max(whole + scale, _LEAST_DIGITS)
        return f"decimal({precision},{scale})" if whole + scale <= _MOST_DIGITS else None
    return "double" if all(Decimal(v) == Decimal(repr(float(v))) for v in values) else None
