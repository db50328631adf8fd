"""Chooses which tables to compact: reading time saved for each second of rewriting. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sparkwap.maintenance.file_choice import COSTS, Compaction

HORIZON_DAYS = 7.0
"""For how many days of readings a compaction may pay off."""

_SMALL_SHARE = 0.05
_STATES = 500
"""Sums of seconds, of choices of whole tables, that are told apart."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A table, for the choice.

    Attributes:
        name: ``schema.name``.
        work: What could be rewritten; None if nothing.
        readings: Expected readings until its files are replaced anyway, or the horizon.
        slower: How much longer its earlier compactions took than expected.
        waited_days: For how long its work has not fitted the budget.
        reason: Why it is not to be touched now, in words; None if it may be.
    """

    name: str
    work: Compaction | None
    readings: float = 0.0
    slower: float = 1.0
    waited_days: float = 0.0
    reason: str | None = None

    @property
    def seconds(self) -> float:
        """The expected duration of its compaction."""
        return self.work.seconds * self.slower if self.work else 0.0

    @property
    def saved(self) -> float:
        """The seconds that its readers save."""
        return self.work.saved * self.readings if self.work else 0.0

    @property
    def worth(self) -> float:
        """The seconds saved, which count for more with each day of waiting."""
        return self.saved * (1 + self.waited_days)

    @property
    def score(self) -> float:
        """Seconds saved for each second of work."""
        return self.saved / self.seconds if self.work else 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """What is decided about a table.

    Attributes:
        seconds: How long that may take.
        max_files: The most files to rewrite, where the budget is too small for all; None for all.
        reason: Why not, or why only in part, in words.
        waits: Whether it is only the budget that stops it.
    """

    fact: Fact
    compact: bool
    seconds: float = 0.0
    max_files: int | None = None
    reason: str = ""
    waits: bool = False


def choose(
    facts: Iterable[Fact], budget: float | None = None, *, everything: bool = False
) -> list[Choice]:
    """Decide which tables to compact: those that save most for each second, within the budget.

    A table that did not fit gets a higher rank with each day. If the budget does not suffice for
    all files of a table, a part of them is rewritten; or other tables are taken as a whole, if
    these save more together, as a part has the whole cost of its start.

    Args:
        budget: Seconds; None for no limit.
        everything: Compact whatever can be compacted, even if it does not pay off.
    """
    ranked = sorted(facts, key=lambda one: (-one.score * (1 + one.waited_days), one.name))
    if budget is None:
        return _fill(ranked, math.inf, everything)
    found = _fill(ranked, budget, everything)
    cut = [one.fact for one in found if one.waits or one.max_files is not None]
    # What small ones leave of the budget is little.
    if all(fact.seconds <= budget * _SMALL_SHARE for fact in cut):
        return found
    whole = _knapsack([one.fact for one in found if one.compact or one.waits], budget)
    ranked.sort(key=lambda one: one.name not in whole)
    return max((found, _fill(ranked, budget, everything)), key=_gain)


def _fill(facts: Iterable[Fact], left: float, everything: bool) -> list[Choice]:
    """Take tables in their order, as long as the budget suffices."""
    found = []
    for fact in facts:
        one = _choice(fact, left, everything)
        left -= one.seconds
        found.append(one)
    return found


def _gain(choices: Iterable[Choice]) -> float:
    total = 0.0
    for one in choices:
        if one.compact and one.fact.work is not None:
            part = 1.0 if one.max_files is None else one.max_files / one.fact.work.files
            total += one.fact.worth * part
    return total


def _knapsack(facts: Iterable[Fact], budget: float) -> frozenset[str]:
    """Return the names of the tables that together save most, if each is taken as a whole.

    Method: the Pareto front of seconds and savings, which grows table by table (Nemhauser and
    Ullmann, 1969), thinned to `_STATES` sums.
    """
    front: list[tuple[float, float, frozenset[str]]] = [(0.0, 0.0, frozenset())]
    step = max(budget, COSTS.start) / _STATES
    for fact in facts:
        grown = [
            (seconds + fact.seconds, saved + fact.worth, names | {fact.name})
            for seconds, saved, names in front
            if seconds + fact.seconds <= budget
        ]
        best, cell = -1.0, -1.0
        kept: list[tuple[float, float, frozenset[str]]] = []
        for one in sorted([*front, *grown], key=lambda one: (one[0], -one[1])):
            if one[1] > best:
                if len(kept) > 1 and one[0] // step == cell:
                    kept.pop()
                best, cell = one[1], one[0] // step
                kept.append(one)
        front = kept
    return front[-1][2]


def _choice(fact: Fact, left: float, everything: bool) -> Choice:
    work = fact.work
    if work is None:
        return Choice(fact, False, reason=fact.reason or "nothing to merge")
    if fact.reason is not None:
        return Choice(fact, False, reason=fact.reason)
    if not everything and fact.score < 1:
        takes, saves = _seconds(fact.seconds), _seconds(fact.saved)
        return Choice(fact, False, reason=f"does not pay off: takes {takes}, saves {saves}")
    if fact.seconds <= left:
        return Choice(fact, True, fact.seconds)
    start = COSTS.start * fact.slower
    part = (left - start) / (fact.seconds - start) if fact.seconds > start else 0.0
    files = int(work.files * part)
    if files < 2 * work.min_files:
        reason = f"needs {_seconds(fact.seconds)}, and {_seconds(max(0.0, left))} are left"
        return Choice(fact, False, reason=reason, waits=True)
    reason = f"{files} of {work.files} files, for which the budget suffices"
    return Choice(fact, True, left, files, reason)


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 10 else f"{value:,.0f} s"


def readings(per_day: float, replaced_after_days: float | None) -> float:
    """Return the expected readings of a table's files within the horizon.

    Args:
        replaced_after_days: Days after which a whole overwrite replaces all files; None for never.
    """
    after = HORIZON_DAYS if replaced_after_days is None else replaced_after_days
    return per_day * min(HORIZON_DAYS, after)
