"""How tables are read and written, from the ledger and from their histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.content_equality import is_whole
from sparkwap.core.names import publish_tag
from sparkwap.maintenance.choice import HORIZON_DAYS

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

DAY_MS = 24 * 60 * 60 * 1000
_PUBLISHES_FOR_PACE = 10


@dataclass(frozen=True)
class TableUse:
    """How tables are used, by ``schema.name``.

    Attributes:
        readings: Readings in a day.
        paces: Days between two publishes.
        slower: How much longer compactions took than expected.
        waited: Days since a compaction first did not fit the budget.
        bases: Receipt -> the snapshots that a rollback needs.
    """

    readings: Mapping[str, float]
    paces: Mapping[str, float]
    slower: Mapping[str, float]
    waited: Mapping[str, float]
    bases: Mapping[str, Mapping[str, Collection[int]]]


def table_use(lake: Lake, now: datetime) -> TableUse:
    """Return how the tables of a lake are used, by its ledger.

    Args:
        now: The end of the time that counts.
    """
    ledger, since = lake.ledger, now - timedelta(days=HORIZON_DAYS)
    nodes, tests = ledger.recent("nodes", since), ledger.recent("tests", since)
    publishes = ledger.publishes()
    bases: dict[str, dict[str, set[int]]] = {}
    times: dict[str, list[datetime]] = {}
    for publish in publishes:
        for entry in publish.entries:
            name = ".".join(entry.identifier)
            times.setdefault(name, []).append(publish.published_at)
            if entry.base is not None:
                tags = bases.setdefault(name, {})
                tags.setdefault(publish_tag(publish.run_id), set()).add(entry.base)
    rows = ledger.recent("maintenance", now - timedelta(days=90))
    return TableUse(
        readings_by_table(nodes, tests, now),
        {name: _pace(found) for name, found in times.items() if len(found) > 1},
        slower(rows),
        waited(rows, now),
        bases,
    )


def readings_by_table(
    nodes: Iterable[Mapping[str, Any]], tests: Iterable[Mapping[str, Any]], now: datetime
) -> dict[str, float]:
    """Return the readings of each table in a day, by the builds and tests of the horizon. Pure.

    A build reads the tables of its parents and those that it has read from `main`. Tests that a
    shared statement has answered are one reading of each of their tables.

    Args:
        now: The end of the horizon.
    """
    nodes = list(nodes)
    table_of = {row["node_id"]: f"{row['schema']}.{row['name']}" for row in nodes}
    found: Counter[str] = Counter()
    first = now
    for row in nodes:
        if row["status"] != "built":
            continue
        first = min(first, row["built_at"])
        read = {table_of[one] for one in row["parents"] or () if one in table_of}
        found.update(read | set(dict(row["reads"] or ())))
    shared = set()
    for row in tests:
        read = {table_of[one] for one in dict(row["audited"] or ()) if one in table_of}
        read |= set(dict(row["reads"] or ()))
        first = min(first, row["executed_at"])
        if row["answered"] == "alone":
            found.update(read)
        else:
            shared |= {(row["run_id"], one) for one in read}
    found.update(one for _, one in shared)
    days = min(HORIZON_DAYS, max(1.0, (now - first).total_seconds() / 86400))
    return {name: count / days for name, count in found.items()}


def slower(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return by which factor compactions took longer than expected; that of all as ``""``. Pure."""
    factors: dict[str, list[float]] = {}
    for row in rows:
        if row["outcome"] == "done" and row["expected_seconds"] and row["seconds"]:
            factor = min(20.0, max(0.1, row["seconds"] / row["expected_seconds"]))
            for name in ("", f"{row['schema']}.{row['name']}"):
                factors.setdefault(name, []).append(factor)
    return {name: median(found[-5:]) for name, found in factors.items()}


def waited(rows: Iterable[Mapping[str, Any]], now: datetime) -> dict[str, float]:
    """Return for how many days the compaction of a table has not fitted the budget. Pure."""
    since: dict[str, datetime] = {}
    for row in sorted(rows, key=lambda one: one["at"]):
        name = f"{row['schema']}.{row['name']}"
        if row["outcome"] == "waits":
            since.setdefault(name, row["at"])
        elif row["action"] == "compact":
            since.pop(name, None)
    return {name: (now - at).total_seconds() / 86400 for name, at in since.items()}


def _pace(times: Sequence[datetime]) -> float:
    """Return the mean days between the latest of some times, which are newest first."""
    latest = times[:_PUBLISHES_FOR_PACE]
    return (latest[0] - latest[-1]).total_seconds() / 86400 / (len(latest) - 1)


def overwritten_after(document: md.Document, pace: float | None) -> float | None:
    """Return the days until the next overwrite of a table that each change replaces; else None.

    Pure.

    Args:
        pace: The days between its publishes, for a table that each of them replaces by a new one.
    """
    changes = [
        one
        for one in md.ancestors(document, md.main_of(document))
        if (one.get("summary") or {}).get("operation") != "replace"
    ][:_PUBLISHES_FOR_PACE]
    if not all(map(is_whole, changes[:3])):
        return None
    times = [datetime.fromtimestamp(one["timestamp-ms"] / 1000, UTC) for one in changes]
    return _pace(times) if len(times) > 1 else pace


def cold_sequence(document: md.Document, now: datetime) -> int:
    """Return the highest sequence number that is older than a day; -1 if none is known."""
    before = int(now.timestamp() * 1000) - DAY_MS
    numbers = [
        int(one.get("sequence-number") or 0)
        for one in md.ancestors(document, md.main_of(document))
        if int(one["timestamp-ms"]) < before
    ]
    return max(numbers, default=-1)
