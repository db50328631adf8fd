"""Decides which messages of a Kafka topic a run reads. Pure.

A log knows its position in a topic by the names of the ranges that it has read. The names are in
the log's ``file`` rows, so rows and position are in one commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkwap.core.text import counted
from sparkwap.landing.entry import Entry
from sparkwap.landing.errors import LandingError

TOPIC_ID = re.compile(r"[\w-]{22}", re.ASCII)
RANGE = re.compile(rf"([\w.-]+)/({TOPIC_ID.pattern})/(\d{{5,}})/(\d{{19}})-(\d{{19}})", re.ASCII)
"""The name of a range: topic, id of the topic, partition, first offset, next offset. The digits are
padded, so that names sort like offsets."""

OFFSET = "kafka.offset"
"""The name of the offset of a message in a landing entry."""


@dataclass(frozen=True)
class Known:
    """What a log has of a topic.

    Attributes:
        positions: id of the topic and partition -> the offset after the last message that was read.
        others: whether the log also has files or other topics.
    """

    positions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    others: bool = False


@dataclass(frozen=True)
class TopicState:
    """What a broker has of a topic.

    Attributes:
        topic_id: the id that Kafka gave the topic when it was created, as Kafka's tools show it.
        offsets: partition -> the offset of its oldest message, and the offset after its newest
            committed one.
    """

    topic_id: str
    offsets: Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Range:
    """Messages of one partition, from the offset ``first`` to the one before ``next``."""

    topic: str
    topic_id: str
    partition: int
    first: int
    next: int

    @property
    def name(self) -> str:
        """The name in the log; see `RANGE`."""
        place = f"{self.topic}/{self.topic_id}/{self.partition:05d}"
        return f"{place}/{self.first:019d}-{self.next:019d}"


def read_name(name: str) -> Range | None:
    """Return the range of a name in a log; None for the name of a file."""
    match = RANGE.fullmatch(name)
    if match is None:
        return None
    topic, topic_id, *numbers = match.groups()
    return Range(topic, topic_id, *map(int, numbers))


def known_of(names: Iterable[str], topic: str) -> Known:
    """Return what a log has of a topic, by the names in its ``file`` rows."""
    found: dict[tuple[str, int], int] = {}
    others = False
    for name in names:
        one = read_name(name)
        if one is None or one.topic != topic:
            others = True
            continue
        place = (one.topic_id, one.partition)
        found[place] = max(found.get(place, 0), one.next)
    return Known(found, others)


def unread_ranges(entry: Entry, known: Known, state: TopicState) -> list[Range]:
    """Return the ranges with the messages that a log does not have, one for each partition.

    A partition that the log does not know yet has a range even if it has no message. So the log has
    its position, and notices messages that come and are deleted before the next run.

    Raises:
        LandingError: the topic is not the one that the log was read from, its messages cannot be
            ordered after those of the log, or unread messages are no longer in it.
    """
    _require_same_topic(entry, known, state)
    read = {partition: at for (topic_id, partition), at in known.positions.items()
            if topic_id == state.topic_id}  # fmt: skip
    _require_order(entry, known, sorted(state.offsets.keys() - read.keys()) if read else [])
    skips = entry.skip_to.get(state.topic_id, {})
    _require_skips_inside(entry, skips, read, state)
    gone = [f"partition {partition} is gone" for partition in sorted(read.keys() - state.offsets)]
    deleted, oldest_of, found = [], {}, []
    for partition, (oldest, end) in sorted(state.offsets.items()):
        # The first run begins with what is there; what was added later begins with 0.
        at = max(read.get(partition, 0 if known.positions else oldest), skips.get(partition, 0))
        if at < oldest:
            oldest_of[partition] = oldest
            lost = counted(oldest - at, "message")
            deleted.append(
                f"partition {partition}: {lost} from offset {at} on, deleted before "
                f"{'it was' if oldest - at == 1 else 'they were'} read; the oldest message is at "
                f"offset {oldest}"
            )
        elif read.get(partition, 0) > end:
            gone.append(
                f"partition {partition}: the log has read up to offset {read[partition]}, but the "
                f"partition ends at offset {end}"
            )
        elif at < end or partition not in read:
            found.append(Range(entry.topic, state.topic_id, partition, at, end))
    if gone:
        raise LandingError(
            f"The topic '{entry.topic}' has lost what was read from it: {'; '.join(gone)}. So it "
            "is unknown which of its messages are new. Nothing was read; main is as it was. "
            "Restore the topic; or create it again and send what is missing, and then follow the "
            "message of the next run"
        )
    if deleted:
        offsets = ", ".join(f"{p}: {at}" for p, at in sorted({**skips, **oldest_of}.items()))
        raise LandingError(
            f"Messages of the topic '{entry.topic}' are missing: {'; '.join(deleted)}. Nothing was "
            "read; main is as it was. If they can be sent again, do that first. To go on without "
            "them, set in the landing entry the offsets to read from: "
            f"`skip_to: {{{state.topic_id}: {{{offsets}}}}}`; then: dbt retry"
        )
    return found


def _require_skips_inside(
    entry: Entry, skips: Mapping[int, int], read: Mapping[int, int], state: TopicState
) -> None:
    """Check that no skip leads past messages that are not there yet."""
    ends = {partition: end for partition, (_, end) in state.offsets.items()}
    beyond = [
        f"partition {partition} to offset {offset}"
        + (f", and it ends at {ends[partition]}" if partition in ends else ", which is not there")
        for partition, offset in sorted(skips.items())
        if offset > max(ends.get(partition, -1), read.get(partition, -1))
    ]
    if beyond:
        raise LandingError(
            f"`skip_to` skips messages of the topic '{entry.topic}' that do not exist yet: "
            f"{'; '.join(beyond)}. Nothing was read; main is as it was. Correct it in the landing "
            "entry, then: dbt retry"
        )


def _require_same_topic(entry: Entry, known: Known, state: TopicState) -> None:
    if entry.topic_id and entry.topic_id != state.topic_id:
        raise LandingError(
            f"The topic '{entry.topic}' has the id {state.topic_id}, and the landing entry wants "
            f"{entry.topic_id}. Nothing was read; main is as it was. Correct `topic_id` in the "
            "entry, or the address of the broker, then: dbt retry"
        )
    others = sorted({topic_id for topic_id, _ in known.positions} - {state.topic_id})
    if not others or entry.topic_id:
        return
    way_on = (
        _NEW_MODEL
        if orders_by_offset(entry)
        else "To read the new topic from its beginning too, set `topic_id: "
        f"{state.topic_id}` in the landing entry, then: dbt retry"
    )
    raise LandingError(
        f"The topic '{entry.topic}' is not the one that was read before: its id is "
        f"{state.topic_id}, not {others[0]}. It was deleted and created again, or the broker is "
        "another one, so its offsets say nothing about what was read. Nothing was read; main is "
        f"as it was. {way_on}"
    )


def _require_order(entry: Entry, known: Known, added: list[int]) -> None:
    """Check that the offset alone still orders the messages of a key."""
    if not _needs_order(entry):
        return
    why = ""
    if known.others:
        why = "the log has rows of files or of other topics, whose order is another one"
    elif added:
        listed = ", ".join(map(str, added))
        why = f"partition {listed} was added, so keys may have moved to another partition"
    if why:
        raise LandingError(
            f"The offset does not order the messages of the topic '{entry.topic}' after those of "
            f"the log: {why}. Nothing was read; main is as it was. {_NEW_MODEL}"
        )


def _needs_order(entry: Entry) -> bool:
    return orders_by_offset(entry) and entry.layouts[0].load != "inserts"


def needs_keys(entry: Entry, partitions: int) -> bool:
    """Return whether messages need keys: Kafka may put others of an entity in any partition."""
    return partitions > 1 and _needs_order(entry)


def orders_by_offset(entry: Entry) -> bool:
    """Return whether offsets order the events of an entry."""
    return bool(entry.sequence) and entry.sequence[0][0] == OFFSET


_NEW_MODEL = (
    "The offset orders the events of this log (`sequence`), and a log keeps its order. Make a new "
    "raw model for the topic as it is now, with a `sequence` by a column of the source if it has "
    "one, and combine both downstream"
)
