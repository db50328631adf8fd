"""Undoing publishes: what a rollback has to take with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from sparkwap.catalog.model import Identifier, PublishedEntry


class Published(Protocol):
    """A publish, as `sparkwap.ledger.LedgerPublish` tells it."""

    @property
    def publish_id(self) -> str: ...
    @property
    def published_at(self) -> datetime: ...
    @property
    def entries(self) -> tuple[PublishedEntry, ...]: ...
    @property
    def rolled_back(self) -> bool: ...


P = TypeVar("P", bound=Published)


def later_on_the_same(publish: P, publishes: Iterable[P]) -> list[P]:
    """The later publishes that would be left half if ``publish`` alone were undone.

    A publish is all or nothing, so one that shares a table with what is undone, and came after it,
    goes as a whole; and then those that came after that one on any of its tables.

    Args:
        publish: The publish to undo.
        publishes: All publishes; those that are rolled back count for nothing.

    Returns:
        The others, oldest first.
    """
    standing = sorted(
        (one for one in publishes if not one.rolled_back and one.publish_id != publish.publish_id),
        key=_time,
    )
    since = {entry.identifier: publish.published_at for entry in publish.entries}
    found: list[P] = []
    # In order of time, as what is taken along can only pull in what is later still.
    for one in standing:
        names = [entry.identifier for entry in one.entries]
        if any(name in since and since[name] < one.published_at for name in names):
            found.append(one)
            for name in names:
                since.setdefault(name, one.published_at)
    return found


def entries_before(publishes: Sequence[Published]) -> tuple[PublishedEntry, ...]:
    """For each table of some publishes the entry of the earliest: what was before all of them."""
    found: dict[Identifier, PublishedEntry] = {}
    for publish in sorted(publishes, key=_time):
        for entry in publish.entries:
            found.setdefault(entry.identifier, entry)
    return tuple(found[name] for name in sorted(found))


def _time(publish: Published) -> tuple[datetime, str]:
    return publish.published_at, publish.publish_id
