"""Makes rows for a table and bars for a plot from the versions of a key. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sparkwap.page.formats import format_time, format_value

Row = Mapping[str, Any]

_OPEN_ENDS = ("9999", "2999")
_TECHNICAL = re.compile(
    r"(_|dbt_).*|is_current|version|change_flag|row_hash|version_key|loaded_at|as_of"
)
"""The columns that describe the version, not the entity."""


@dataclass(frozen=True, slots=True)
class KeyVersion:
    """One version of a key.

    Attributes:
        number: Its number, from 1, oldest first.
        start: Its beginning; None if not known.
        end: Its end; None if it is current.
        changed: The shown columns that differ from the version before.
    """

    number: int
    start: datetime | None
    end: datetime | None
    changed: tuple[str, ...]
    values: Mapping[str, str]

    @property
    def what(self) -> str:
        """The reason for this version: the columns that changed."""
        if self.number == 1:
            return "first version"
        return f"changed: {', '.join(self.changed)}" if self.changed else "no shown column changed"


def versions(
    rows: Sequence[Row], start: str, end: str, hidden: Collection[str]
) -> list[KeyVersion]:
    """Return the versions of a key.

    Args:
        rows: Its rows, oldest first.
        hidden: Columns, in lower case, whose values are not shown.
    """
    found: list[KeyVersion] = []
    before: Mapping[str, str] | None = None
    for number, row in enumerate(rows, start=1):
        values = {
            name: format_value(value)
            for name, value in row.items()
            if name not in (start, end)
            and name.lower() not in hidden
            and not _TECHNICAL.fullmatch(name)
        }
        changed = tuple(n for n, v in values.items() if before is not None and before.get(n) != v)
        found.append(KeyVersion(number, _moment(row[start]), _end(row[end]), changed, values))
        before = values
    return found


def timeline(found: Sequence[KeyVersion], now: datetime) -> list[dict[str, Any]]:
    """Return the bars of versions; the bar of a current version ends now."""
    begun = [version.start for version in found if version.start is not None]
    earliest = min(begun, default=now)
    return [
        {
            "version": f"version {version.number}",
            "number": version.number,
            "start": (version.start or earliest).isoformat(),
            "end": max(version.end or now, version.start or earliest).isoformat(),
            "valid_from": format_time(version.start) or "unknown",
            "valid_to": format_time(version.end) or "now (current)",
            "state": "ended" if version.end else "current",
            "what": version.what,
        }
        for version in found
    ]


def _moment(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str):
        try:
            return _moment(datetime.fromisoformat(value))
        except ValueError:
            return None
    return None


def _end(value: Any) -> datetime | None:
    # Some tables write a far date instead of NULL for the end of a current version.
    return None if str(value).startswith(_OPEN_ENDS) else _moment(value)
