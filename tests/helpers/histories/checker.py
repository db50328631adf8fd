"""Whether what readers saw could have come from audited runs, one after the other.

Pure: takes what was seen and what the ledger says, gives faults in words. In the spirit of Jepsen's
checkers (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
Observations", VLDB 2020): the rows are made so that they tell which run wrote them, and on what.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType


@dataclass(frozen=True, order=True)
class Fact:
    """A row.

    Attributes:
        by: The run that wrote it; ``noise-...`` for a writer that knows no gate.
        number: One more than the greatest number that the run found; 0 of noise.
        ok: False if no audit can have passed it.
    """

    by: str
    number: int
    ok: bool

    @property
    def of_run(self) -> bool:
        """Whether a run wrote it."""
        return not self.by.startswith("noise")


Version = Mapping[str, frozenset[Fact]]
"""Table -> rows, of all tables at one moment."""


def faults(
    versions: Sequence[Version],
    published: Sequence[str],
    told: Iterable[str],
    builds: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> list[str]:
    """What no serial order of audited runs explains; empty if there is nothing.

    Args:
        versions: What readers saw, in the order in which they saw it; the last one is the end.
        published: The runs whose publishes the ledger has, oldest first.
        told: The runs that were told that they have published.
        builds: The tables that a run writes to; all of them for one that is not named.
    """
    found: list[str] = []
    known = set(published)
    for at, version in enumerate(versions):
        found += [f"version {at}: {word}" for word in _seen(version, known, builds)]
    for at, (before, after) in enumerate(pairwise(versions)):
        for table, rows in before.items():
            gone = rows - after.get(table, frozenset())
            if gone:
                found.append(f"version {at + 1}: {table} lost {sorted(gone)[:3]}")
    found += [f"told of a publish that is not in the ledger: {r}" for r in set(told) - known]
    if versions:
        found += _end(versions[-1], published, builds)
    return found


def _seen(
    version: Version, published: set[str], builds: Mapping[str, Collection[str]]
) -> Iterable[str]:
    runs = {table: {row.by for row in rows if row.of_run} for table, rows in version.items()}
    for table, rows in version.items():
        bad = [row for row in rows if not row.ok]
        if bad:
            yield f"{table} has rows that no audit passed: {sorted(bad)[:3]}"
        if runs[table] - published:
            yield f"{table} has rows of runs that never published: {runs[table] - published}"
    torn = {
        run
        for run in set().union(*runs.values())
        if any(run not in runs.get(table, ()) for table in builds.get(run, version))
    }
    if torn:
        yield f"not whole: {sorted(torn)} are in some of its tables only"


def _end(
    last: Version, published: Sequence[str], builds: Mapping[str, Collection[str]]
) -> Iterable[str]:
    for table, rows in last.items():
        numbers = [(row.by, row.number) for row in rows if row.of_run]
        if len(dict(numbers)) < len(numbers):
            yield f"{table} has a run twice: {sorted(numbers)}"
        number = dict(numbers)
        runs = [run for run in published if table in builds.get(run, last)]
        lost = [run for run in runs if run not in number]
        if lost:
            yield f"{table} lost publishes: {lost}"
        order = [number[run] for run in runs if run in number]
        # Each run added one to what it read, so any other order has read what was not there yet,
        # or missed what was.
        if order != list(range(1, len(order) + 1)):
            yield f"{table} is not what any serial order gives: {order}"
