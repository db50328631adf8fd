"""A replay: a run that reads all tables that it does not build as of an earlier moment.

At its start, the run resolves each table to the snapshot of ``main`` at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparkwap.catalog.history import TableHistory
from sparkwap.catalog.model import Identifier
from sparkwap.core.names import folded
from sparkwap.core.text import counted, some_of
from sparkwap.runs.main_history import RecordedChange, ReplayRefused, snapshot_at
from sparkwap.runs.replay_moment import Moment

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Outside:
    """A table or view that a run reads and does not build.

    Attributes:
        identifier: The name in the lake.
        node: The name in dbt: ``orders``, ``source:raw.events``.
        reader: The name of a node or test that reads it.
    """

    identifier: Identifier
    node: str
    reader: str

    @property
    def name(self) -> str:
        return ".".join(self.identifier)


Histories = Callable[[Iterable[Identifier]], Mapping[Identifier, TableHistory]]
"""Returns the histories of the tables and views that exist, by name."""


@dataclass
class Replay:
    """The moment of a replay, and the snapshots that the run reads.

    Attributes:
        changes: The publishes and rollbacks of each table; see `main_history.changes`.
        pins: Table -> snapshot, of all tables that are read and not built.
    """

    moment: Moment
    histories: Histories
    changes: Mapping[Identifier, Sequence[RecordedChange]]
    pins: dict[Identifier, int] = field(default_factory=dict)

    def pin(self, outside: Iterable[Outside]) -> Mapping[Identifier, int]:
        """Resolve the tables that a run reads and does not build to snapshots; all or none.

        Raises:
            ReplayRefused: Some tables cannot be read as of the moment; one message for all.
        """
        wanted = {folded(one.identifier): one for one in outside}
        there = self.histories([one.identifier for one in wanted.values()])
        histories = {folded(name): history for name, history in there.items()}
        found: dict[Identifier, int] = {}
        problems = []
        for name, one in sorted(wanted.items()):
            try:
                found[name] = self._pinned(one, histories.get(name))
            except ReplayRefused as error:
                problems.append(f"{one.name}, read by {one.reader}: {error}")
        if problems:
            raise ReplayRefused(self._refusal(problems))
        self.pins.update(found)
        return found

    def former(self, identifier: Identifier) -> int | None:
        """Return the snapshot, at the moment, of a table that the run builds; None if none.

        Raises:
            ReplayRefused: The snapshot can no longer be read.
        """
        history = self.histories([identifier]).get(identifier)
        if history is None or history.kind == "view":
            return None
        try:
            return snapshot_at(history, self.changes.get(folded(identifier), ()), self.moment.at)
        except ReplayRefused as error:
            raise ReplayRefused(self._refusal([f"{'.'.join(identifier)}: {error}"])) from None

    def _pinned(self, one: Outside, history: TableHistory | None) -> int:
        if history is None:
            raise ReplayRefused("there is no such table now, so it has no history")
        if history.kind == "view":
            way = (
                f"select it with the others (--select ... {one.node}), so that it is built from "
                "the tables as of then"
                if not one.node.startswith("source:")
                else "declare the tables that it reads as sources, and read these instead"
            )
            raise ReplayRefused(f"it is a view, and views have no history; {way}")
        changes = self.changes.get(folded(one.identifier), ())
        found = snapshot_at(history, changes, self.moment.at)
        if found is None:
            raise ReplayRefused("it did not exist then, or no rows were written to it before")
        return found

    def _refusal(self, problems: Sequence[str]) -> str:
        shown = "".join(f"\n  {one}" for one in problems[:_SHOWN])
        more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        return (
            f"The state as of {self.moment} cannot be replayed:{shown}{more}\nNothing was written. "
            "Give a later moment, or exclude the nodes and tests that read these tables."
        )

    def recorded_pins(self) -> dict[str, str]:
        """Return table -> snapshot of all pins, for the ledger."""
        return {".".join(name): str(snapshot) for name, snapshot in sorted(self.pins.items())}

    def remark(self) -> list[str]:
        """Return the lines of the summary about the replay."""
        pins = [f"{name} at {snapshot}" for name, snapshot in self.recorded_pins().items()]
        read = f": {some_of(pins, _SHOWN)}" if pins else ""
        count = counted(len(pins), "table")
        return [f"A replay as of {self.moment}; {count} read as of then{read}"]


def require(problems: Sequence[str]) -> None:
    """Check that all nodes of a replay can be built from an earlier state.

    Args:
        problems: A line for each node that cannot.
    """
    if problems:
        listed = "".join(f"\n  {one}" for one in problems)
        raise ReplayRefused(
            f"These nodes cannot be replayed:{listed}\nNothing was written. Leave them out "
            "(--exclude): other nodes then read them as of that moment."
        )
