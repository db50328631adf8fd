"""A replay: a run that reads everything it does not build as readers saw it at an earlier moment.

A moment is a time, or a publish by its tag or id. For each table it is resolved once, when the run
begins, to the snapshot that ``main`` was then. What the ledger says of a publish goes before what
the table says of itself: all tables of one publish changed at one time, and what a clone was built
from in several steps was never seen. Tables that others write have their snapshot log alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Literal

from sparkwap.catalog.history import TableHistory
from sparkwap.catalog.model import Identifier
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.core.names import is_publish_tag

VARIABLE = "as_of"
"""The dbt var, on the command line only."""

LEGAL = (
    "a time with its offset from UTC, such as 2024-01-31T18:00:00Z or 2024-01-31T19:00:00+01:00; "
    "the tag of a publish, wap_pub_1a2b3c4d; or the id of a publish or of the run that made it, "
    "its first eight digits at least"
)

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")
_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")
_SHOWN = 10


class ReplayRefused(SparkwapError):
    """A moment cannot be replayed; nothing was written."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of a replay.

    Attributes:
        at: It, in UTC; what happened at that very time has happened.
        publish_id: The publish that was named, or None for a time.
    """

    at: datetime
    publish_id: str | None = None

    def __str__(self) -> str:
        text = self.at.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return f"{text} (publish {self.publish_id})" if self.publish_id else text


@dataclass(frozen=True, slots=True)
class MainChange:
    """A publish or rollback of one table, as the ledger has it.

    Attributes:
        at: When, in UTC.
        action: Which of the two.
        publish_id: The publish, or that which was rolled back.
        base: Snapshot of ``main`` before the publish; None where nothing stood there.
        candidate: Snapshot that was published; None for a view or an empty table.
    """

    at: datetime
    action: Literal["publish", "rollback"]
    publish_id: str
    base: int | None
    candidate: int | None


@dataclass(frozen=True, slots=True)
class Outside:
    """A table or view that a run reads and does not build.

    Attributes:
        identifier: Its name in the lake.
        node: dbt's name for it: ``orders``, ``source:raw.events``.
        reader: Name of a node or test that reads it.
    """

    identifier: Identifier
    node: str
    reader: str

    @property
    def name(self) -> str:
        return ".".join(self.identifier)


# ---------------------------------------------------------------- which moment


def asked(value: object, now: datetime) -> Moment | str | None:
    """What ``as_of`` asks for.

    Args:
        value: The var's value, as YAML has read it.
        now: The present.

    Returns:
        A moment; the beginning of a publish's or run's id; None where the var has no value.

    Raises:
        ConfigError: It is neither, has no offset from UTC, or lies in the future.
    """
    if value is None or value == "":
        return None
    # YAML makes a time of what looks like one, also without quotes, and a date of a date.
    if isinstance(value, datetime):
        return _moment(value, now)
    if isinstance(value, date):
        raise _illegal(value, "a day has many moments; say the time, too")
    if not isinstance(value, str):
        raise _illegal(value, "it is not text; put it in quotes")
    text = value.strip()
    if _TIME.fullmatch(text):
        if len(text) == len("2024-01-31"):
            raise _illegal(value, "a day has many moments; say the time, too")
        try:
            return _moment(datetime.fromisoformat(text), now)
        except ValueError as error:
            raise _illegal(value, f"it is no time: {error}") from None
    name = text.lower()
    if is_publish_tag(name):
        return name.rpartition("_")[2]
    if not _ID.fullmatch(name):
        raise _illegal(value, "it is none of these")
    return name


def _moment(time: datetime, now: datetime) -> Moment:
    if time.tzinfo is None:
        raise _illegal(time.isoformat(), "it lacks its offset from UTC; add Z for UTC")
    if time > now:
        raise _illegal(time.isoformat(), "it lies in the future, so it could not be repeated")
    return Moment(time.astimezone(UTC))


def _illegal(value: object, why: str) -> ConfigError:
    return ConfigError(
        f"{VARIABLE}: {value!s} is not allowed: {why}. Nothing was run. Legal: {LEGAL}."
    )


def named(given: str, rows: Iterable[Mapping[str, Any]]) -> Moment:
    """The moment of a publish.

    Args:
        given: The beginning of its id, or of the id of its run.
        rows: The ledger's ``publishes``.

    Raises:
        ConfigError: There is none, or there are several.
    """
    found = {
        row["publish_id"]: row
        for row in rows
        if row["action"] == "publish" and given in _beginnings(row, len(given))
    }
    if not found:
        raise ConfigError(
            f"{VARIABLE}: the ledger knows of no publish '{given}'. Nothing was run. Its publishes "
            "are in wap_ledger.publishes, and the tags of a table in its metadata table `refs`."
        )
    if len(found) > 1:
        told = ", ".join(f"{one} at {row['published_at']}" for one, row in sorted(found.items()))
        raise ConfigError(
            f"{VARIABLE}: '{given}' names {len(found)} publishes: {told}. Nothing was run. Give "
            "more digits of the one that is meant."
        )
    ((publish_id, row),) = found.items()
    return Moment(row["published_at"].astimezone(UTC), publish_id)


def _beginnings(row: Mapping[str, Any], length: int) -> set[str]:
    return {str(row[key])[:length] for key in ("publish_id", "run_id")}


# ---------------------------------------------------------------- which snapshot


def changes(rows: Iterable[Mapping[str, Any]]) -> dict[Identifier, list[MainChange]]:
    """The publishes and rollbacks of each table, oldest first.

    Args:
        rows: The ledger's ``publishes``; one that is there twice counts once.
    """
    found: dict[Identifier, set[MainChange]] = {}
    for row in rows:
        change = MainChange(
            row["published_at"].astimezone(UTC),
            row["action"],
            row["publish_id"],
            row["base_snapshot"],
            row["candidate_snapshot"],
        )
        found.setdefault(_key((row["schema"], row["name"])), set()).add(change)
    return {
        name: sorted(those, key=lambda one: (one.at, one.action, one.publish_id))
        for name, those in found.items()
    }


@dataclass(frozen=True, slots=True)
class _Since:
    """From ``at`` on ``main`` was ``snapshot_id``; None for nothing."""

    at: datetime
    snapshot_id: int | None
    change: MainChange | None = None


def snapshot_at(history: TableHistory, changes: Sequence[MainChange], at: datetime) -> int | None:
    """The snapshot that readers of ``main`` saw at a moment.

    Args:
        history: The table's own past.
        changes: Its publishes and rollbacks, oldest first.
        at: The moment, in UTC.

    Returns:
        The snapshot's id; None if there was no such table, or one without a snapshot.

    Raises:
        ReplayRefused: It can no longer be read, or nobody knows any more what it was.
    """
    line = _timeline(history, changes)
    before = [one for one in line if one.at <= at]
    later = next((one for one in line if one.at > at), None)
    if not before:
        _require_beginning(history, later)
        return None
    found = before[-1]
    if found.snapshot_id is None:
        return None
    if not history.has(found.snapshot_id):
        raise ReplayRefused(f"its snapshot {found.snapshot_id} of then has expired")
    if found.change is not None and not _proven(history, found, later):
        raise ReplayRefused(
            "its own log no longer reaches back to then, so that nobody knows whether others wrote "
            f"to it after the publish of {_text(found.at)}"
        )
    return found.snapshot_id


def _timeline(history: TableHistory, changes: Sequence[MainChange]) -> list[_Since]:
    """Since when ``main`` was what, oldest first: by the ledger, and by the log where others
    wrote."""
    published_at = {one.publish_id: one.at for one in changes if one.action == "publish"}
    line = [_Since(one.at, one.candidate, one) for one in changes if one.action == "publish"]
    for at in sorted({one.at for one in changes if one.action == "rollback"}):
        undone = [one for one in changes if one.action == "rollback" and one.at == at]
        # One rollback may undo several publishes: it leads to what was before the first of them.
        first = min(undone, key=lambda one: published_at.get(one.publish_id, at))
        line.append(_Since(at, first.base, first))
    private = _written_by(history, changes)
    others = [_Since(at, one) for at, one in history.log if one not in private]
    return sorted([*line, *others], key=lambda one: one.at)


def _written_by(history: TableHistory, changes: Sequence[MainChange]) -> set[int]:
    """The snapshots that publishes brought, the steps before each candidate included."""
    parents, found = history.parents or {}, set()
    for one in changes:
        step = one.candidate if one.action == "publish" else None
        # A table that replaces another one has none of its snapshots, and does not meet the base.
        while step is not None and step != one.base and step not in found:
            found.add(step)
            step = parents.get(step)
    return found


def _require_beginning(history: TableHistory, later: _Since | None) -> None:
    """Check that what is known of a table first is its beginning."""
    if later is None:
        return
    if history.cut if later.change is None else later.change.base is not None:
        raise ReplayRefused(
            f"what it was then has expired; its past is known from {_text(later.at)} on"
        )


def _proven(history: TableHistory, found: _Since, later: _Since | None) -> bool:
    """Whether nobody can have written to the table between a change and what is known next.

    A log loses its beginning when snapshots expire, and with it what others wrote meanwhile.
    """
    if later is None and history.main == found.snapshot_id:
        return True
    if later is not None and later.change is not None and later.change.base == found.snapshot_id:
        return True
    if any(one == found.snapshot_id for _, one in history.log):
        return True
    return bool(history.log) and history.log[0][0] <= found.at


def _text(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


# ---------------------------------------------------------------- the pins of a run

Histories = Callable[[Iterable[Identifier]], Mapping[Identifier, TableHistory]]
"""Gives the pasts of those tables and views that exist, by their names."""


@dataclass
class Replay:
    """The moment of a run, and what it reads as of then.

    Attributes:
        moment: The moment.
        histories: How to learn of a table's past.
        changes: The publishes and rollbacks of each table, see `changes`.
        pins: Table -> snapshot, of all that is read and not built.
    """

    moment: Moment
    histories: Histories
    changes: Mapping[Identifier, Sequence[MainChange]]
    pins: dict[Identifier, int] = field(default_factory=dict)

    def pin(self, outside: Iterable[Outside]) -> Mapping[Identifier, int]:
        """Resolve what a run reads and does not build; all of it, or nothing.

        Raises:
            ReplayRefused: Some of it cannot be read as of then; one message for all.
        """
        wanted = {_key(one.identifier): one for one in outside}
        histories = {_key(k): v for k, v in self.histories(_names(wanted)).items()}
        found: dict[Identifier, int] = {}
        problems = []
        for name, one in sorted(wanted.items()):
            try:
                found[name] = self._pinned(one, histories.get(name))
            except ReplayRefused as error:
                problems.append(f"{one.name}, read by {one.reader}: {error}")
        if problems:
            raise ReplayRefused(self._told(problems))
        self.pins.update(found)
        return found

    def former(self, identifier: Identifier) -> int | None:
        """What a table was then that the run builds itself; None if it was not there.

        Raises:
            ReplayRefused: It can no longer be read.
        """
        history = self.histories([identifier]).get(identifier)
        if history is None or history.kind == "view":
            return None
        try:
            return snapshot_at(history, self.changes.get(_key(identifier), ()), self.moment.at)
        except ReplayRefused as error:
            raise ReplayRefused(self._told([f"{'.'.join(identifier)}: {error}"])) from None

    def _pinned(self, one: Outside, history: TableHistory | None) -> int:
        if history is None:
            raise ReplayRefused("there is no such table now, so it has no past that could be read")
        if history.kind == "view":
            way = (
                f"select it with the others (--select ... {one.node}), so that it is built from "
                "the tables as of then"
                if not one.node.startswith("source:")
                else "declare the tables behind it as sources, and read those"
            )
            raise ReplayRefused(f"it is a view, and views have no history; {way}")
        changes = self.changes.get(_key(one.identifier), ())
        found = snapshot_at(history, changes, self.moment.at)
        if found is None:
            raise ReplayRefused("it did not exist then, or had no rows ever written to it")
        return found

    def _told(self, problems: Sequence[str]) -> str:
        shown = "".join(f"\n  {one}" for one in problems[:_SHOWN])
        more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        return (
            f"The state as of {self.moment} cannot be replayed:{shown}{more}\nNothing was written. "
            "Name a later moment, or leave what reads them out of the selection."
        )

    def told(self) -> dict[str, str]:
        """What was read as of then, for the ledger: table -> snapshot."""
        return {".".join(name): str(one) for name, one in sorted(self.pins.items())}

    def remark(self) -> list[str]:
        """The lines of the summary that tell what was read."""
        told = [f"{name} at {one}" for name, one in self.told().items()]
        more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        read = f": {', '.join(told[:_SHOWN])}{more}" if told else ""
        count = f"{len(told)} table{'' if len(told) == 1 else 's'}"
        return [f"A replay as of {self.moment}; {count} read as of then{read}"]


def require(problems: Sequence[str]) -> None:
    """Refuse a replay of nodes that cannot be built anew from an earlier state.

    Raises:
        ReplayRefused: There are such nodes.
    """
    if problems:
        listed = "".join(f"\n  {one}" for one in problems)
        raise ReplayRefused(
            f"These cannot be replayed:{listed}\nNothing was written. Leave them out (--exclude): "
            "what reads them then reads them as of then."
        )


def _names(wanted: Mapping[Identifier, Outside]) -> list[Identifier]:
    return [one.identifier for one in wanted.values()]


def _key(identifier: Identifier) -> Identifier:
    return identifier[0].lower(), identifier[1].lower()


def literal(at: datetime) -> str:
    """A moment as a Spark SQL literal, the same in every time zone of a session."""
    return f"timestamp '{at.astimezone(UTC).strftime('%Y-%m-%d %H:%M:%S.%f')}Z'"


__all__ = [
    "LEGAL",
    "VARIABLE",
    "MainChange",
    "Moment",
    "Outside",
    "Replay",
    "ReplayRefused",
    "asked",
    "changes",
    "literal",
    "named",
    "require",
    "snapshot_at",
]
