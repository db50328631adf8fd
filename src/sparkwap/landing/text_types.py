"""Guesses the type of a column from its texts."""

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
    """Return the narrowest type that keeps all texts exactly; string if there are no texts."""
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
    """Return a decimal if the texts show its scale, else double if it keeps every digit, else None.

    The texts show a scale if all have the same number of places and one ends in a zero. Texts such
    as 0.5 and 0.25 do not limit the places of later values.
    """
    # 007 is a code, and 1E6 usually is one too.
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
