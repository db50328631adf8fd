"""Undoing publishes: what a rollback has to take with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from sparkwap.catalog.model import Identifier, PublishedEntry


class Published(Protocol):
    """A publish, as `sparkwap.ledger.records.LedgerPublish` has it."""

    @property
    def publish_id(self) -> str: ...
    @property
    def published_at(self) -> datetime: ...
    @property
    def left(self) -> tuple[PublishedEntry, ...]: ...


P = TypeVar("P", bound=Published)

Undone = tuple[str, str, str]
"""A publish id, and schema and name of a table."""


def later_on_the_same(publish: P, publishes: Iterable[P]) -> list[P]:
    """The later publishes that would be left half if ``publish`` alone were undone.

    What was rolled back already counts for nothing. A publish is all or nothing, so one that shares
    a table with what is undone, and came after it, goes as a whole; and then those that came after
    that one on any of its tables.

    Args:
        publish: The publish to undo.
        publishes: All publishes.

    Returns:
        The others, oldest first.
    """
    standing = sorted((one for one in publishes if one.publish_id != publish.publish_id), key=_time)
    since = {entry.identifier: publish.published_at for entry in publish.left}
    found: list[P] = []
    # In order of time, as what is taken along can only pull in what is later still.
    for one in standing:
        names = [entry.identifier for entry in one.left]
        if any(name in since and since[name] < one.published_at for name in names):
            found.append(one)
            for name in names:
                since.setdefault(name, one.published_at)
    return found


def entries_before(publishes: Sequence[Published]) -> tuple[PublishedEntry, ...]:
    """For each table of some publishes the entry of the earliest: what was before all of them."""
    found: dict[Identifier, PublishedEntry] = {}
    for publish in sorted(publishes, key=_time):
        for entry in publish.left:
            found.setdefault(entry.identifier, entry)
    return tuple(found[name] for name in sorted(found))


def undone_entries(publishes: Iterable[Mapping[str, Any]]) -> set[Undone]:
    """The tables of publishes that were rolled back.

    Table by table, as a rollback by a series leaves those that others have moved on meanwhile.

    Args:
        publishes: Rows of the ledger's ``publishes``.
    """
    return {undone_key(row) for row in publishes if row["action"] == "rollback"}


def undone_key(row: Mapping[str, Any]) -> Undone:
    """Which table of which publish a row of ``publishes`` is about."""
    return row["publish_id"], row["schema"], row["name"]


def _time(publish: Published) -> tuple[datetime, str]:
    return publish.published_at, publish.publish_id
