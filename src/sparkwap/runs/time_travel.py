"""A replay: a run that reads everything it does not build as readers saw it at an earlier moment.

Each table is resolved once, when the run begins, to the snapshot that ``main`` was then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparkwap.catalog.history import TableHistory
from sparkwap.catalog.model import Identifier
from sparkwap.runs.main_history import RecordedChange, ReplayRefused, key_of, snapshot_at
from sparkwap.runs.replay_moment import Moment

_SHOWN = 10


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
    changes: Mapping[Identifier, Sequence[RecordedChange]]
    pins: dict[Identifier, int] = field(default_factory=dict)

    def pin(self, outside: Iterable[Outside]) -> Mapping[Identifier, int]:
        """Resolve what a run reads and does not build; all of it, or nothing.

        Raises:
            ReplayRefused: Some of it cannot be read as of then; one message for all.
        """
        wanted = {key_of(one.identifier): one for one in outside}
        histories = {key_of(k): v for k, v in self.histories(_names(wanted)).items()}
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
            return snapshot_at(history, self.changes.get(key_of(identifier), ()), self.moment.at)
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
        changes = self.changes.get(key_of(one.identifier), ())
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
