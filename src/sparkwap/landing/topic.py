"""Decides which messages of a Kafka topic a run reads. Pure.

A log knows its position in a topic by the names of the ranges that it has read. The names are in
the log's ``file`` rows, so rows and position are in one commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkwap.landing.entry import Entry
from sparkwap.landing.errors import LandingError

RANGE = re.compile(r"([\w.-]+)/([\w-]{22})/(\d{5})/(\d{19})-(\d{19})", re.ASCII)
"""The name of a range: topic, id of the topic, partition, first offset, next offset. The digits are
padded, so that names sort like offsets."""

Positions = Mapping[tuple[str, int], int]
"""Id of a topic and partition -> the offset after the last message that was read."""


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


def positions(names: Iterable[str], topic: str) -> dict[tuple[str, int], int]:
    """Return the positions in a topic, by the names in the ``file`` rows of a log."""
    found: dict[tuple[str, int], int] = {}
    for name in names:
        one = read_name(name)
        if one is not None and one.topic == topic:
            place = (one.topic_id, one.partition)
            found[place] = max(found.get(place, 0), one.next)
    return found


def unread_ranges(entry: Entry, known: Positions, state: TopicState) -> list[Range]:
    """Return the ranges with the messages that a log does not have, one for each partition.

    A partition that the log does not know yet has a range even if it has no message. So the log has
    its position, and notices messages that come and are deleted before the next run.

    Args:
        entry: the landing entry.
        known: the positions of the log.
        state: what the broker has.

    Raises:
        LandingError: the topic is not the one that the log was read from, or unread messages are
            no longer in it.
    """
    _require_same_topic(entry, known, state)
    faults, found = [], []
    read = {partition: at for (topic_id, partition), at in known.items()
            if topic_id == state.topic_id}  # fmt: skip
    for partition in sorted(read.keys() - state.offsets.keys()):
        faults.append(f"partition {partition} is gone")
    for partition, (oldest, end) in sorted(state.offsets.items()):
        # The first run begins with what is there; a partition that was added later begins with 0.
        begin = 0 if read else oldest
        at = max(read.get(partition, begin), entry.skip_to.get(partition, 0))
        if at < oldest:
            gone = _messages(oldest - at)
            faults.append(
                f"partition {partition}: {gone} from offset {at} on, deleted before "
                f"{'it was' if oldest - at == 1 else 'they were'} read; the oldest message is at "
                f"offset {oldest}"
            )
        elif read.get(partition, 0) > end:
            faults.append(
                f"partition {partition}: the log has read up to offset {read[partition]}, but the "
                f"partition ends at offset {end}"
            )
        elif at < end or partition not in read:
            found.append(Range(entry.topic, state.topic_id, partition, at, max(at, end)))
    if faults:
        raise LandingError(
            f"Messages of the topic '{entry.topic}' are missing: {'; '.join(faults)}. Nothing was "
            "read; main is as it was. If they can be restored or sent again, do that first. To "
            "go on without them, set in the landing entry the offsets to read from, such as "
            f"`skip_to: {{{_example(known, state)}}}`; then: dbt retry"
        )
    return found


def _require_same_topic(entry: Entry, known: Positions, state: TopicState) -> None:
    if entry.topic_id and entry.topic_id != state.topic_id:
        raise LandingError(
            f"The topic '{entry.topic}' has the id {state.topic_id}, and the landing entry wants "
            f"{entry.topic_id}. Nothing was read; main is as it was. Correct `topic_id` in the "
            "entry, or the address of the broker, then: dbt retry"
        )
    others = sorted({topic_id for topic_id, _ in known} - {state.topic_id})
    if not others or entry.topic_id:
        return
    raise LandingError(
        f"The topic '{entry.topic}' is not the one that was read before: its id is "
        f"{state.topic_id}, not {others[0]}. It was deleted and created again, or the broker is "
        "another one, so its offsets say nothing about what was read. Nothing was read; main is "
        f"as it was. To read the new topic from its beginning too, set `topic_id: "
        f"{state.topic_id}` in the landing entry, then: dbt retry"
    )


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def _example(known: Positions, state: TopicState) -> str:
    return (
        ", ".join(
            f"{partition}: {oldest}"
            for partition, (oldest, _) in sorted(state.offsets.items())
            if known.get((state.topic_id, partition), 0) < oldest
        )
        or "0: 1500"
    )
