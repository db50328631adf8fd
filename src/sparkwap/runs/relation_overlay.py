"""Which names of a run stand in a side schema, and which are read as of an earlier moment.

One process runs one dbt invocation at a time, and dbt creates relations far from any object of
ours, so the overlay of the present run is found through this module.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

Identifier = tuple[str, str]


class Overlay:
    """Names ``(schema, table)`` that are read and written in another schema during a run.

    Names are the catalog's, to the letter. Safe for use by several threads.
    """

    def __init__(self) -> None:
        self._side: dict[Identifier, str] = {}
        self._pins: dict[Identifier, int] = {}
        self._lock = threading.Lock()

    def add(self, identifier: Identifier, side_schema: str) -> None:
        """From now on ``identifier`` stands in ``side_schema``."""
        with self._lock:
            self._side[identifier] = side_schema

    def remove(self, identifier: Identifier) -> None:
        """From now on ``identifier`` stands at its own place again."""
        with self._lock:
            self._side.pop(identifier, None)

    def side_schema(self, identifier: Identifier) -> str | None:
        """The side schema that holds ``identifier``, None if it stands at its own place."""
        return self._side.get(identifier)

    def schema_of(self, schema: str, name: str) -> str:
        """The schema in which ``schema.name`` is found in this run."""
        return self._side.get((schema, name), schema)

    def pin(self, pins: Mapping[Identifier, int]) -> None:
        """From now on these names are read at a snapshot, whatever ``main`` is."""
        with self._lock:
            self._pins.update(pins)

    def pinned(self, identifier: Identifier) -> int | None:
        """The snapshot at which ``identifier`` is read; None for the state that the run sees.

        What stands in a side schema was built in the run, and is read as it was built.
        """
        return None if identifier in self._side else self._pins.get(identifier)

    def members(self) -> dict[Identifier, str]:
        """All names in side schemas, with their side schema."""
        with self._lock:
            return dict(self._side)


_active = Overlay()


def active() -> Overlay:
    """The overlay of the present run; an empty one outside a run."""
    return _active


def activate(overlay: Overlay | None) -> None:
    """Make ``overlay`` the present run's; None ends it."""
    global _active
    _active = overlay if overlay is not None else Overlay()
