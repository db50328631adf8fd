"""The names of a run that are in a side schema, or that are read as of an earlier time.

A process runs one dbt invocation at a time. dbt creates relations without access to the run, so
they get the overlay of the present run from this module.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from sparkwap.catalog.model import Identifier


class Overlay:
    """Names ``(schema, table)`` that are read and written in another schema during a run.

    Names are case-sensitive, as in the catalog. Safe for use by several threads.
    """

    def __init__(self) -> None:
        self._side: dict[Identifier, str] = {}
        self._pins: dict[Identifier, int] = {}
        self._lock = threading.Lock()

    def add(self, identifier: Identifier, side_schema: str) -> None:
        """Record that ``identifier`` is in ``side_schema``."""
        with self._lock:
            self._side[identifier] = side_schema

    def remove(self, identifier: Identifier) -> None:
        """Record that ``identifier`` is in its own schema again."""
        with self._lock:
            self._side.pop(identifier, None)

    def side_schema(self, identifier: Identifier) -> str | None:
        """Return the side schema of ``identifier``; None if it is in its own schema."""
        return self._side.get(identifier)

    def schema_of(self, schema: str, name: str) -> str:
        """Return the schema that has ``schema.name`` in this run."""
        return self._side.get((schema, name), schema)

    def pin(self, pins: Mapping[Identifier, int]) -> None:
        """Record that these names are read at a snapshot instead of ``main``."""
        with self._lock:
            self._pins.update(pins)

    def pinned(self, identifier: Identifier) -> int | None:
        """Return the snapshot at which ``identifier`` is read; None for its present state.

        Side objects are never pinned, because the run has built them.
        """
        return None if identifier in self._side else self._pins.get(identifier)

    def members(self) -> dict[Identifier, str]:
        """Return all names in side schemas -> side schema."""
        with self._lock:
            return dict(self._side)


_active = Overlay()


def active() -> Overlay:
    """Return the overlay of the present run; an empty overlay outside a run."""
    return _active


def activate(overlay: Overlay | None) -> None:
    """Set the overlay of the present run; None ends it."""
    global _active
    _active = overlay if overlay is not None else Overlay()
