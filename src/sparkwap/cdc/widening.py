"""Wider types for columns whose values, texts of a log or of a state, need one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sparkwap.core.spark_types import wider


class Cast(NamedTuple):
    """A text that becomes a column of some type.

    Attributes:
        text: SQL of the text.
        kind: The type.
        column: The column that the cast makes.
    """

    text: str
    kind: str
    column: str


def widened(
    casts: Mapping[str, Cast],
    standing: Mapping[str, str],
    count: Callable[[str], Sequence[int]],
) -> tuple[dict[str, str], list[str]]:
    """The wider types, by name of the cast, and what to tell of those that are new.

    Args:
        casts: The casts by name.
        standing: The types of the table's columns; one that is wider stays so.
        count: Answers a select list of counts over the values; called only where there are some.
    """
    types = {name: wide for name, cast in casts.items() if (wide := wider(cast.kind))}
    asked = {n: casts[n] for n in types if standing.get(casts[n].column) != types[n]}
    misfits = ", ".join(
        f"count_if({text} is not null and try_cast({text} as {kind}) is null)"
        for text, kind, _ in asked.values()
    )
    notices = []
    for (name, cast), number in zip(asked.items(), count(misfits) if asked else (), strict=True):
        if number:
            notices.append(
                f"column {name}: {number} values are no {cast.kind}; its type is now {types[name]}"
            )
        else:
            del types[name]
    return types, notices
