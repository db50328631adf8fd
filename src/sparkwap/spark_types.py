"""Type texts of Spark SQL, as far as schema evolution needs to understand them."""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_WIDER = {("int", "bigint"), ("float", "double")}


def widens(old: str, new: str) -> bool:
    """Whether Iceberg can change a column of type ``old`` to ``new`` in place.

    Iceberg's rules (table spec, "Schema Evolution"): int to long, float to double, a decimal to
    one of greater precision and the same scale.
    """
    before, after = old.lower().strip(), new.lower().strip()
    if before == after or (before, after) in _WIDER:
        return True
    old_decimal, new_decimal = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(after)
    if old_decimal is None or new_decimal is None:
        return False
    same_scale = old_decimal[2] == new_decimal[2]
    return same_scale and int(new_decimal[1]) >= int(old_decimal[1])
