"""Which later publishes a forced rollback undoes, too."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sparkwap.catalog.model import PublishedEntry
from sparkwap.ledger.rollback_plan import entries_before, later_on_the_same, undone_entries

START = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Publish:
    publish_id: str
    published_at: datetime
    entries: tuple[PublishedEntry, ...]
    left: tuple[PublishedEntry, ...]


def publish(at: int, tables: str, *, back: str = "") -> Publish:
    """A publish of some tables, of which some were rolled back."""
    entries = tuple(
        PublishedEntry(("s", t), "branch", at, f"base {at}", at, f"file {at}") for t in tables
    )
    left = tuple(entry for entry in entries if entry.identifier[1] not in back)
    return Publish(f"p{at}", START + timedelta(hours=at), entries, left)


def ids(found: list[Publish]) -> list[str]:
    return [one.publish_id for one in found]


def test_later_publishes_on_the_same_tables_are_undone_too() -> None:
    first = publish(1, "ab")
    history = [publish(0, "a"), first, publish(2, "c"), publish(3, "bd"), publish(4, "a")]
    assert ids(later_on_the_same(first, history)) == ["p3", "p4"]


def test_publishes_are_undone_as_a_whole_with_their_successors() -> None:
    first = publish(1, "a")
    # 4 shares nothing with the first, but came after 3 on d.
    history = [first, publish(2, "d"), publish(3, "ad"), publish(4, "d")]
    assert ids(later_on_the_same(first, history)) == ["p3", "p4"]
    before = {e.identifier[1]: e.base for e in entries_before([first, history[2], history[3]])}
    # d returns to its state before 3, which 2 has published.
    assert before == {"a": 1, "d": 3}


def test_entries_that_were_rolled_back_do_not_count() -> None:
    first = publish(1, "a")
    assert later_on_the_same(first, [first, publish(2, "a", back="a")]) == []
    # After a sequential rollback, only the remaining entries count.
    half = publish(2, "ab", back="a")
    assert later_on_the_same(first, [first, half, publish(3, "b")]) == []
    assert ids(later_on_the_same(publish(1, "ab", back="a"), [half, publish(3, "a")])) == ["p2"]
    assert [entry.base for entry in entries_before([publish(1, "ab", back="a"), half])] == [1]


def test_tables_are_rolled_back_one_by_one() -> None:
    row = {"publish_id": "p", "schema": "s", "name": "a", "action": "rollback"}
    rows = [row, {**row, "name": "b", "action": "publish"}]
    assert undone_entries(rows) == {("p", "s", "a")}


histories = st.lists(
    st.tuples(st.text("abcd", min_size=1, max_size=3), st.booleans()), min_size=1, max_size=8
).map(
    lambda drawn: [
        publish(at, "".join(sorted(set(tables))), back=tables if gone and at > 0 else "")
        for at, (tables, gone) in enumerate(drawn)
    ]
)


@given(histories, st.data())
def test_no_publish_is_left_half_undone(history: list[Publish], data: st.DataObject) -> None:
    standing = [one for one in history if one.left]
    first = data.draw(st.sampled_from(standing))
    undone = [first, *later_on_the_same(first, history)]
    left = [one for one in standing if one not in undone]
    back_to = {entry.identifier: entry.base for entry in entries_before(undone)}
    for one in left:
        for entry in one.entries:
            # A publish that stays is older than the restored state of its tables.
            at = back_to.get(entry.identifier)
            assert at is None or (entry.candidate is not None and entry.candidate < at)
    assert all(one.published_at >= first.published_at for one in undone)
