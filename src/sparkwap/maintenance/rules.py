"""The rules by which a table is maintained: ``wap_maintain`` in the config of its node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.core.errors import ConfigError

MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rules:
    """How a table is maintained.

    Attributes:
        compact: False to leave its files alone.
        target_mb: The size of the files to write; None for a size that fits the table.
        min_files: The fewest small files of a partition to merge; the largest of them has at most
            this part of their bytes.
        delete_ratio: The part of a file's rows that are deleted at which it is rewritten.
        sort: The order of rewritten rows: ``a desc, b`` or ``zorder(a, b)``; None for the table's.
        keep_days: Days for which `main` keeps its whole history; None for the project's setting.
        keep_publishes: The latest publishes that can be rolled back; likewise.
        readings_per_day: Readings of it that the ledger does not know.
    """

    compact: bool = True
    target_mb: int | None = None
    min_files: int = 8
    delete_ratio: float = 0.3
    sort: str | None = None
    keep_days: int | None = None
    keep_publishes: int | None = None
    readings_per_day: float = 1.0

    @classmethod
    def of(cls, given: Any, table: str) -> Rules:
        """Return the rules in a config; ``false`` stands for ``compact: false``."""
        if given is None or isinstance(given, bool):
            return cls(compact=given is not False)
        problem = None
        if not isinstance(given, dict):
            problem = f"{given!r} is not a mapping"
        elif unknown := sorted(set(given) - {field.name for field in fields(cls)}):
            problem = f"unknown: {', '.join(map(str, unknown))}"
        else:
            for key, value in given.items():
                if value is not None and not _LEGAL[key][0](value):
                    problem = f"{key} is {value!r}; legal: {_LEGAL[key][1]}"
                    break
        if problem is not None:
            known = ", ".join(field.name for field in fields(cls))
            raise ConfigError(
                f"wap_maintain in the config of {table}: {problem}. Nothing was changed. It is "
                f"false, or a mapping with any of: {known}."
            )
        return cls(**{key: value for key, value in given.items() if value is not None})


def keeps_files(document: md.Document) -> bool:
    """Return whether a table has ``gc.enabled=false``: it may share files, so none is deleted."""
    return md.properties_of(document).get(md.GC_ENABLED, "true").lower() == "false"


def _number(
    least: float, most: float = float("inf"), kind: Any = int | float
) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, kind) and not isinstance(value, bool) and least <= value <= most
    )


def _whole(least: int) -> tuple[Callable[[Any], bool], str]:
    return _number(least, kind=int), f"a whole number of {least} or more"


_LEGAL: dict[str, tuple[Callable[[Any], bool], str]] = {
    "compact": (lambda value: isinstance(value, bool), "true, false"),
    "target_mb": _whole(1),
    "min_files": _whole(2),
    "delete_ratio": (_number(0.01, 1), "a number from 0.01 to 1"),
    "sort": (lambda value: isinstance(value, str) and bool(value.strip()), "a text"),
    "keep_days": _whole(1),
    "keep_publishes": _whole(1),
    "readings_per_day": (_number(0), "a number of 0 or more"),
}
