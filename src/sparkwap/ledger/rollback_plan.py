"""Which later publishes a rollback has to undo, too. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from sparkwap.catalog.model import Identifier, PublishedEntry


class Published(Protocol):
    """The part of `sparkwap.ledger.records.LedgerPublish` that is needed here."""

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
    """Return the later publishes that a rollback of ``publish`` has to undo too, oldest first.

    A publish is undone as a whole. So a later publish that shares a table with ``publish`` is
    undone too, and so are the publishes that came after it on any of its tables. Entries that were
    rolled back before do not count.
    """
    others = sorted((p for p in publishes if p.publish_id != publish.publish_id), key=_time)
    since = {entry.identifier: publish.published_at for entry in publish.left}
    found: list[P] = []
    # One pass in order of time is enough: a publish can only require later ones.
    for other in others:
        names = [entry.identifier for entry in other.left]
        if any(name in since and since[name] < other.published_at for name in names):
            found.append(other)
            for name in names:
                since.setdefault(name, other.published_at)
    return found


def entries_before(publishes: Sequence[Published]) -> tuple[PublishedEntry, ...]:
    """Return the entry of the earliest publish for each table: the state before all of them."""
    found: dict[Identifier, PublishedEntry] = {}
    for publish in sorted(publishes, key=_time):
        for entry in publish.left:
            found.setdefault(entry.identifier, entry)
    return tuple(found[name] for name in sorted(found))


def undone_entries(publishes: Iterable[Mapping[str, Any]]) -> set[Undone]:
    """Return the tables of publishes that were rolled back, by the rows of ``publishes``.

    Table by table, as a sequential rollback leaves tables that another writer has changed.
    """
    return {undone_key(row) for row in publishes if row["action"] == "rollback"}


def undone_key(row: Mapping[str, Any]) -> Undone:
    """Return the publish id and the table of a row of ``publishes``."""
    return row["publish_id"], row["schema"], row["name"]


def _time(publish: Published) -> tuple[datetime, str]:
    return publish.published_at, publish.publish_id
