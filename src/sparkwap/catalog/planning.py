"""Shared parts of the plans of a publish and of a rollback."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import Difference, Identifier, Mismatch, PublishedEntry
from sparkwap.catalog.pointers import Pointer, PointerUpdate

Load = Callable[[str], md.Document]


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The changes of one table or view, and the metadata files to write, by location."""

    entry: PublishedEntry
    swaps: Sequence[PointerUpdate]
    writes: Mapping[str, md.Document]


class Differs(Exception):
    """The state of a table or view differs from the expected state."""

    def __init__(
        self,
        identifier: Identifier,
        what: str,
        expected: str,
        found: str,
        kind: Difference = "other",
    ) -> None:
        self.mismatch = Mismatch(identifier, what, expected, found, kind)
        super().__init__(str(self.mismatch))


def snapshot_words(snapshot_id: int | None) -> str:
    """Return a snapshot in words, for messages."""
    return "no snapshot" if snapshot_id is None else f"snapshot {snapshot_id}"


def row_words(row: Pointer | None) -> str:
    """Return a row in words, for messages."""
    return "nothing" if row is None else f"a {row.kind} at {row.location}"


def require_table(identifier: Identifier, row: Pointer | None) -> Pointer:
    """Return the row if it is that of a table."""
    if row is None or row.kind != "table":
        raise Differs(identifier, "table", "a table", row_words(row), "table")
    return row


def require_main(identifier: Identifier, document: md.Document, expected: int | None) -> None:
    """Check that ``main`` is at a snapshot."""
    main = md.main_of(document)
    if main != expected:
        raise Differs(identifier, "main", snapshot_words(expected), snapshot_words(main), "main")
