"""What a publish and a rollback have in common: rows and documents in, plans or mismatches out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import Difference, Identifier, Mismatch, PublishedEntry
from sparkwap.catalog.pointers import Pointer, PointerUpdate

Load = Callable[[str], md.Document]


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What is to be done for one table or view.

    Attributes:
        entry: What the receipt will say.
        swaps: The row changes.
        writes: The metadata files to write, by location.
    """

    entry: PublishedEntry
    swaps: Sequence[PointerUpdate]
    writes: Mapping[str, md.Document]


class Differs(Exception):
    """Something is not as it has to be."""

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
    """A snapshot in the words of a message."""
    return "no snapshot" if snapshot_id is None else f"snapshot {snapshot_id}"


def row_words(row: Pointer | None) -> str:
    """A row in the words of a message."""
    return "nothing" if row is None else f"a {row.kind} at {row.location}"


def require_table(identifier: Identifier, row: Pointer | None) -> Pointer:
    """The row, if it is a table's.

    Raises:
        Differs: It is not.
    """
    if row is None or row.kind != "table":
        raise Differs(identifier, "table", "a table", row_words(row), "table")
    return row


def require_main(identifier: Identifier, document: md.Document, expected: int | None) -> None:
    """Check where ``main`` is.

    Raises:
        Differs: It is elsewhere.
    """
    main = md.main_of(document)
    if main != expected:
        raise Differs(identifier, "main", snapshot_words(expected), snapshot_words(main), "main")
