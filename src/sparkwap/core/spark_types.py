"""Type names of Spark SQL: their spelling, and which types are wider."""

from __future__ import annotations

import re

SIMPLE = (
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal",
    "date", "timestamp", "timestamp_ntz", "binary",
)  # fmt: skip
_ALIASES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
_ALIASES |= {"text": "string", "varchar": "string", "numeric": "decimal", "real": "float"}
_DECIMAL = re.compile(r"decimal\((\d+)(?:,(\d+))?\)")
_WIDER = {"tinyint": "bigint", "smallint": "bigint", "int": "bigint"}
_MOST_DIGITS = 38
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_IN_PLACE = {("int", "bigint"), ("float", "double")}


def normal(text: str) -> str | None:
    """Return a type in Spark's spelling: ``INTEGER`` -> ``int``; None for an unknown type."""
    kind = re.sub(r"\s+", "", text.lower())
    kind = _ALIASES.get(kind, kind)
    kind = re.sub(r"^numeric\(", "decimal(", kind)
    if kind == "decimal":
        return "decimal(38,0)"
    if kind in SIMPLE:
        return kind
    digits = _DECIMAL.fullmatch(kind)
    if digits is None:
        return None
    precision, scale = int(digits[1]), int(digits[2] or 0)
    if not 0 < precision <= _MOST_DIGITS or scale > precision:
        return None
    return f"decimal({precision},{scale})"


def wider(kind: str) -> str | None:
    """Return the wider type of the same family; None if there is none.

    Integers widen to bigint, decimals to 38 digits. Other types accept all texts of their wider
    types with a loss of precision, so they are not widened.
    """
    digits = _DECIMAL.fullmatch(normal(kind) or "")
    if digits is None:
        return _WIDER.get(normal(kind) or "")
    return None if int(digits[1]) == _MOST_DIGITS else f"decimal({_MOST_DIGITS},{digits[2]})"


def family(kind: str) -> str:
    """Return a type without precision and scale: ``array<decimal(4,2)>`` -> ``array<decimal>``."""
    return re.sub(r"\s*\(\s*\d+\s*(,\s*\d+\s*)?\)", "", kind)


def decimal_digits(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type; None for another type."""
    digits = _DECIMAL.fullmatch(kind)
    return None if digits is None else (int(digits[1]), int(digits[2] or 0))


def exact_digits(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of an integer or decimal type; None for another type."""
    return (_DIGITS[kind], 0) if kind in _DIGITS else decimal_digits(kind)


def widens(old: str, new: str) -> bool:
    """Return whether Iceberg can change a column of type ``old`` to ``new`` in place.

    Iceberg's rules (table spec, "Schema Evolution"): int to long, float to double, a decimal to
    a decimal of greater precision and the same scale.
    """
    before, after = (normal(kind) or kind.lower().strip() for kind in (old, new))
    if before == after or (before, after) in _IN_PLACE:
        return True
    digits, new_digits = decimal_digits(before), decimal_digits(after)
    if digits is None or new_digits is None:
        return False
    return digits[1] == new_digits[1] and digits[0] <= new_digits[0]
