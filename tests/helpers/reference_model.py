"""Change logs: what they mean (`state`, `history`), and how to make and deliver dirty ones.

Plain Python, without Spark and without sparkwap. A log is a list of dicts with the columns of a
raw table: the entity's own columns as text, and `_op`, `_sequence` and so on.

The meaning of a log:

- Its events are in a total order: (`_sequence`, `_file_path`, `_row`, `_part`).
- Events of one key with one `_sequence` that say the same are one message, delivered more than
  once. It counts where it stands in the first of its files, by name (there at its last row).
  All deletes of one key and sequence say the same.
- An event gives its key the values that it states; a column in its `_absent` keeps its value.
  A delete clears all of them.
- A truncate clears all keys whose last event is before it. So does a full load whose least
  sequence is above the last event; the files of one load date are one load.

>>> events = event_set(seed=1)
>>> log = rows_of(deliver(events, seed=2, batches=5))
>>> truth = state(log, events.key, events.columns)
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

Row = dict[str, Any]
Key = tuple[str, ...]
Place = tuple[str, str, int, int]

START = datetime(2024, 1, 1, tzinfo=UTC)
SHARE_DELETES = 0.20
SHARE_DUPLICATES = 0.15
SHARE_NULLS = 0.25
# What careless joining, trimming, casting or sorting would change.
TEXTS = ("a", "b", "A", "01", "1E6", "NA", "null", r"\N", "\\", "|", "a|b", "x\x1fy", " pad ", "ü")


# ---------------------------------------------------------------- what a log means


@dataclass(frozen=True)
class Version:
    """One version of a key's row.

    Attributes:
        key: the values of the key columns.
        number: 1, 2, ... for each key, by time.
        valid_from: when it began.
        valid_to: when it ended, exclusive; None while it is current.
        closed_by: ``update``, ``delete`` (also a truncate or absence), or None.
        values: the own columns.
    """

    key: Key
    number: int
    valid_from: datetime
    valid_to: datetime | None
    closed_by: str | None
    values: Row = field(hash=False)

    @property
    def is_current(self) -> bool:
        """Whether it is the key's present row."""
        return self.valid_to is None


@dataclass(frozen=True)
class _Reset:
    """What clears all keys with a last event before ``place``, but those in ``spared``."""

    place: Place
    event_time: datetime
    spared: frozenset[Key]


def state(log: Iterable[Row], key: Sequence[str], columns: Sequence[str]) -> dict[Key, Row]:
    """The last state of each key that a log names, deleted ones included.

    A row has the own columns and `_op`, `_is_deleted`, `_sequence`, `_event_time`, `_file_path`,
    `_row`, `_part`, `_batch` of the key's last event. A deleted row has its key, and NULL in all
    other own columns.

    Args:
        log: the rows of a raw table, in any order.
        key: the key columns.
        columns: all own columns, the key's included.
    """
    log = list(log)
    found = {}
    for of_key, events in _by_key(log, key).items():
        row: Row | None = None
        last: Row = {}
        for step in _with_resets(of_key, events, _resets(log, key)):
            if isinstance(step, _Reset):
                row = None
            else:
                row, last = _applied(row, step, columns), step
        values = dict.fromkeys(columns) | dict(zip(key, of_key, strict=True))
        found[of_key] = {
            **(row or values),
            "_op": last["_op"],
            "_is_deleted": row is None,
            **{c: last[c] for c in ("_sequence", "_event_time", "_file_path", "_row", "_part")},
            "_batch": last["_batch"],
        }
    return found


def history(
    log: Iterable[Row],
    key: Sequence[str],
    columns: Sequence[str],
    *,
    tracked: Sequence[str] | None = None,
    grain: str = "timestamp",
) -> dict[Key, list[Version]]:
    """The versions of each key by event time, oldest first; keys without one are left out.

    Of several events at one time (or one day) the last counts. A version goes on as long as its
    tracked columns stay the same; it has the values of its first moment. An event that is later in
    the order and earlier in time happened at the time of its predecessor.

    Args:
        log: the rows of a raw table, in any order.
        key: the key columns.
        columns: all own columns, the key's included.
        tracked: the columns whose change makes a version; all, if absent.
        grain: ``timestamp``, or ``date`` for versions from UTC day to UTC day.
    """
    log, tracked = list(log), tuple(tracked or columns)
    resets = _resets(log, key)
    found = {}
    for of_key, events in _by_key(log, key).items():
        moments: dict[datetime, Row | None] = {}
        row: Row | None = None
        now = datetime.min.replace(tzinfo=UTC)
        for step in _with_resets(of_key, events, resets):
            if isinstance(step, _Reset):
                if row is None:
                    continue
                row, at = None, step.event_time
            else:
                row, at = _applied(row, step, columns), step["_event_time"]
            now = max(now, _grained(at, grain))
            moments[now] = row
        versions = _versions(of_key, moments, tracked)
        if versions:
            found[of_key] = versions
    return found


def _versions(
    key: Key, moments: Mapping[datetime, Row | None], tracked: Sequence[str]
) -> list[Version]:
    found: list[Version] = []
    open_from: datetime | None = None
    values: Row = {}

    def close(at: datetime | None, by: str | None) -> None:
        if open_from is not None:
            found.append(Version(key, len(found) + 1, open_from, at, by, values))

    for at, row in moments.items():
        if row is None:
            close(at, "delete")
            open_from = None
        elif open_from is None or any(row[c] != values[c] for c in tracked):
            close(at, "update")
            open_from, values = at, row
    close(None, None)
    return found


def _grained(at: datetime, grain: str) -> datetime:
    if grain == "timestamp":
        return at
    if grain == "date":
        return datetime.combine(at.date(), time(), at.tzinfo)
    raise ValueError(f"grain '{grain}' is none of 'timestamp', 'date'")


def place(event: Row) -> Place:
    """Where an event stands in the total order."""
    return event["_sequence"], event["_file_path"], event["_row"], event["_part"]


def _by_key(log: Sequence[Row], key: Sequence[str]) -> dict[Key, list[Row]]:
    """The distinct messages of each key, in their order."""
    rows: dict[Key, list[Row]] = defaultdict(list)
    own = sorted(_own_columns(log))
    for row in log:
        if row["_kind"] == "row" and row["_op"] != "truncate":
            rows[tuple(row[k] for k in key)].append(row)
    return {of_key: _distinct(found, own) for of_key, found in rows.items()}


def _own_columns(log: Iterable[Row]) -> set[str]:
    return {c for row in log for c in row if not c.startswith("_")}


def _distinct(events: Iterable[Row], own: Sequence[str]) -> list[Row]:
    copies: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for event in events:
        said: tuple[Any, ...] = ()
        if event["_op"] not in ("delete", "truncate"):
            absent = tuple(sorted(event.get("_absent") or ()))
            said = (absent, *(None if c in absent else event.get(c) for c in own))
        copies[event["_sequence"], event["_op"], said].append(event)
    return sorted((_that_counts(found) for found in copies.values()), key=place)


def _that_counts(copies: Sequence[Row]) -> Row:
    first = min(copy["_file_path"] for copy in copies)
    return max((c for c in copies if c["_file_path"] == first), key=place)


def _resets(log: Sequence[Row], key: Sequence[str]) -> list[_Reset]:
    truncates = [r for r in log if r["_kind"] == "row" and r["_op"] == "truncate"]
    found = [
        _Reset(place(event), event["_event_time"], frozenset())
        for event in _distinct(truncates, ())
    ]
    loads: dict[date, list[Row]] = defaultdict(list)
    for row in log:
        # A file with an error is a copy of another one, and was not read.
        if row["_load"] == "full" and row["_kind"] in ("row", "file") and not row.get("_error"):
            loads[row["_load_date"]].append(row)
    for load_date, rows in loads.items():
        least = [
            r["_sequence"] for r in rows if r["_kind"] == "file" and r["_sequence"] is not None
        ]
        if least:
            midnight = datetime.combine(load_date, time(), UTC)
            held = frozenset(tuple(r[k] for k in key) for r in rows if r["_kind"] == "row")
            found.append(_Reset((min(least), "", 0, 0), midnight, held))
    return sorted(found, key=lambda reset: reset.place)


def _with_resets(
    key: Key, events: Sequence[Row], resets: Sequence[_Reset]
) -> Iterator[Row | _Reset]:
    """Events and resets in their order.

    A full load that holds the key clears what was before it too, but at the moment of its row.
    """
    waiting = list(resets)
    for event in events:
        while waiting and waiting[0].place < place(event):
            reset = waiting.pop(0)
            at = event["_event_time"] if key in reset.spared else reset.event_time
            yield _Reset(reset.place, at, reset.spared)
        yield event
    yield from waiting


def _applied(row: Row | None, event: Row, columns: Sequence[str]) -> Row | None:
    if event["_op"] == "delete":
        return None
    absent = event.get("_absent") or ()
    before = row or dict.fromkeys(columns)
    return {c: before[c] if c in absent else event.get(c) for c in columns}


# ---------------------------------------------------------------- what happened at the source


Message = tuple[Row, ...]
"""One message of a source: one event, or the two of an update that changes the key."""


@dataclass(frozen=True)
class Events:
    """What happened to one table of a source.

    Attributes:
        key: the key columns.
        columns: all own columns, the key's first.
        messages: changes in the order in which they happened.
        loads: the rows of full loads, by load date.
        table: what is in the source's table in the end: the payload of each key.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    messages: tuple[Message, ...]
    loads: Mapping[date, tuple[Row, ...]]
    table: Mapping[Key, Row]


def event_set(
    seed: int,
    *,
    keys: int = 30,
    changes: int = 300,
    key: Sequence[str] = ("id",),
    payload: Sequence[str] = ("a", "b", "c"),
    partial: bool = False,
    truncates: int = 1,
    loads: int = 1,
    tied: bool = False,
) -> Events:
    """A seeded table's life: one insert, update or delete after the other.

    About 20 % of the changes are deletes, 25 % of the values NULL, 20 % happen at the time of
    their predecessor. There are re-inserts, updates that change nothing, ghosts (a key inserted
    and deleted at once), keys that change.

    Args:
        seed: the same seed and arguments give the same events.
        keys: how many keys there can be, ghosts aside.
        changes: how many changes, about.
        key: names of the key columns, one or two.
        payload: names of the other columns.
        partial: let some updates state only some columns.
        truncates: how often the table is truncated.
        loads: how many full loads there are; the first comes before all changes.
        tied: give some events the sequence of their predecessor. Then their order is that of
            their files and rows, and they must be delivered in order (``deliver(shuffle=False)``).
    """
    return _Source(random.Random(seed), tuple(key), tuple(payload), partial, tied).live(
        keys, changes, truncates, loads
    )


class _Source:
    def __init__(
        self,
        rng: random.Random,
        key: tuple[str, ...],
        payload: tuple[str, ...],
        partial: bool,
        tied: bool,
    ) -> None:
        self.rng, self.key, self.payload = rng, key, payload
        self.partial, self.tied = partial, tied
        self.table: dict[Key, Row] = {}
        self.messages: list[Message] = []
        self.number, self.now = 0, START

    def live(self, keys: int, changes: int, truncates: int, loads: int) -> Events:
        pool = [self._key(n) for n in range(keys)]
        for of_key in pool[: keys // 2]:
            self.table[of_key] = self._values()
        due = set(self.rng.sample(range(changes), min(truncates, changes)))
        load_due = {-1} if loads else set()
        load_due |= set(self.rng.sample(range(changes), min(max(loads - 1, 0), changes)))
        dumps: dict[date, tuple[Row, ...]] = {}
        if not loads:
            for of_key in self.table:
                self._emit(self._event("insert", of_key))
        for n in range(-1, changes):
            if n in load_due and self.table:
                dumps |= self._load()
            if n in due:
                self.table.clear()
                self.number += 1
                self._emit({**self._event("truncate", (None,) * len(self.key)), "_absent": None})
            if n >= 0:
                self._change(pool)
        columns = (*self.key, *self.payload)
        return Events(self.key, columns, tuple(self.messages), dumps, dict(self.table))

    def _key(self, n: int) -> Key:
        # Two keys of two columns that look the same when they are joined by a bar.
        return (str(n),) if len(self.key) == 1 else (f"{n // 4}|", f"|{n % 4}")

    def _values(self) -> Row:
        return {c: self._value() for c in self.payload}

    def _value(self) -> str | None:
        return None if self.rng.random() < SHARE_NULLS else self.rng.choice(TEXTS)

    def _change(self, pool: Sequence[Key]) -> None:
        self._tick()
        of_key, dice = self.rng.choice(pool), self.rng.random()
        if dice < 0.03:
            self._ghost()
        elif of_key not in self.table:
            self.table[of_key] = self._values()
            self._emit(self._event("insert", of_key))
        elif dice < 0.03 + SHARE_DELETES * 1.5:  # about a third of the draws are inserts
            self._emit(self._event("delete", of_key))
            del self.table[of_key]
        elif dice < 0.40:
            self._move(of_key, self.rng.choice(pool))
        elif dice < 0.45:
            self._emit(self._event("update", of_key))
        else:
            self._update(of_key)

    def _update(self, of_key: Key) -> None:
        stated = self.payload
        if self.partial and self.rng.random() < 0.5:
            stated = tuple(c for c in self.payload if self.rng.random() < 0.5)
        self.table[of_key] = self.table[of_key] | {c: self._value() for c in stated}
        event = self._event("update", of_key)
        if len(stated) < len(self.payload):
            absent = [c for c in self.payload if c not in stated]
            event |= {"_absent": absent, **dict.fromkeys(absent)}
        self._emit(event)

    def _ghost(self) -> None:
        of_key = tuple(f"ghost{self.number}" for _ in self.key)
        self.table[of_key] = self._values()
        self._emit(self._event("insert", of_key))
        self._tick()
        self._emit(self._event("delete", of_key))
        del self.table[of_key]

    def _move(self, old: Key, new: Key) -> None:
        if new in self.table:
            return
        gone = self._event("delete", old)
        self.table[new] = self.table.pop(old)
        self._emit(gone, {**self._event("insert", new), "_part": 1})

    def _load(self) -> dict[date, tuple[Row, ...]]:
        self.now = datetime.combine(self.now.date() + timedelta(days=1), time(), UTC)
        self.number += 1
        load_date = self.now.date()
        extra = {"_load": "full", "_load_date": load_date}
        rows = tuple({**self._event("load", of_key), **extra} for of_key in self.table)
        self.number += 1  # no change is tied with a load
        return {load_date: rows}

    def _tick(self) -> None:
        if not self.tied or self.rng.random() < 0.7:
            self.number += 1
            if self.rng.random() >= 0.2:
                self.now += timedelta(minutes=self.rng.choice((1, 7, 600)))

    def _event(self, op: str, of_key: Sequence[str | None]) -> Row:
        values = self.table.get(tuple(of_key), dict.fromkeys(self.payload))  # type: ignore[arg-type]
        return {
            **dict(zip(self.key, of_key, strict=True)),
            **values,
            "_op": op,
            "_sequence": f"{self.number:020d}",
            "_event_time": self.now,
            "_absent": None,
            "_part": 0,
            "_kind": "row",
            "_load": "changes",
        }

    def _emit(self, *events: Row) -> None:
        self.messages.append(events)


# ---------------------------------------------------------------- how it arrives


def deliver(
    events: Events,
    seed: int,
    *,
    batches: int = 1,
    shuffle: bool = True,
    duplicates: float = SHARE_DUPLICATES,
    files_per_batch: int = 2,
) -> list[list[Row]]:
    """The log rows of each batch, in the order of the batches.

    Args:
        events: what happened.
        seed: the same seed and arguments give the same delivery.
        batches: how many loads bring it. Which load brings which file is left to chance (so a
            delete may come long before its insert), unless there is one only.
        shuffle: put messages into any file and row. Without it they keep their order over file
            names and rows, and copies come in later files.
        duplicates: share of the messages that are delivered more than once.
        files_per_batch: files of changes for each load. A full load is a file of its own.
    """
    rng = random.Random(seed)
    count = max(1, batches * files_per_batch)
    files: list[list[Message]] = [[] for _ in range(count)]
    for n, message in enumerate(events.messages):
        home = rng.randrange(count) if shuffle else n * count // len(events.messages)
        files[home].append(message)
        while rng.random() < duplicates:
            first = 0 if shuffle else home + 1
            if first < count:
                files[rng.randrange(first, count)].append(message)
    if shuffle:
        for file in files:
            rng.shuffle(file)
    found = [_file(f"t/changes_{n:04d}.csv", START.date(), file) for n, file in enumerate(files)]
    for load_date, rows in events.loads.items():
        found.append(_file(f"t/load_{load_date}.csv", load_date, [(r,) for r in rows], full=True))
    if batches > 1:
        rng.shuffle(found)
    result: list[list[Row]] = [[] for _ in range(batches)]
    for n, file_rows in enumerate(found):
        # The first ones one each, so that no batch is empty.
        batch = n if n < batches else rng.randrange(batches)
        result[batch] += [{**row, "_batch": batch + 1} for row in file_rows]
    return result


def in_order(events: Events) -> list[list[Row]]:
    """The same events delivered as well as can be: once, sorted, in one batch."""
    return deliver(events, 0, shuffle=False, duplicates=0, files_per_batch=1)


def attempts(batches: Sequence[list[Row]], seed: int) -> Iterator[tuple[list[Row], bool]]:
    """Batches as they come when some loads are discarded: (rows, whether the load was kept).

    A load that was discarded is read again under the same number, it or more of it: first some of
    its files were there, now all are.
    """
    rng = random.Random(seed)
    for batch in batches:
        if rng.random() < 0.4:
            names = sorted({row["_file_path"] for row in batch})
            there = set(names[: rng.randrange(1, len(names) + 1)])
            yield [row for row in batch if row["_file_path"] in there], False
        yield batch, True


def rows_of(batches: Iterable[Iterable[Row]]) -> list[Row]:
    """The log that batches make."""
    return [row for batch in batches for row in batch]


def _file(name: str, load_date: date, messages: Sequence[Message], full: bool = False) -> list[Row]:
    rows = [
        {"_load_date": load_date, **event, "_file_path": name, "_row": n}
        for n, message in enumerate(messages, start=1)
        for event in message
    ]
    least = min(r["_sequence"] for r in rows) if full else None
    mark = {
        "_op": None,
        "_sequence": least,
        "_event_time": datetime.combine(load_date, time(), UTC),
        "_absent": None,
        "_load_date": load_date,
        "_file_path": name,
        "_row": None,
        "_part": 0,
        "_kind": "file",
        "_load": "full" if full else "changes",
    }
    return [*rows, mark]
