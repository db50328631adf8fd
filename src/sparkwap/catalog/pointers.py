"""Pointers of the catalog, and what may go wrong when they are changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.model import Identifier, Kind, SideObject
from sparkwap.core.errors import ConfigError

Fate = Literal["made", "not made", "unknown"]
"""What happened to a commit that was not answered."""


class Conflict(Exception):
    """A row was not as expected, so the transaction was rolled back.

    Attributes:
        swap: The change that did not apply; None where the database itself asked for a retry.
    """

    def __init__(self, swap: PointerUpdate | None, reason: str) -> None:
        super().__init__(reason)
        self.swap = swap


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a name of the catalog points to: a metadata file."""

    identifier: Identifier
    kind: Kind
    location: str


@dataclass(frozen=True, slots=True)
class PointerUpdate:
    """Put ``after`` in the place of ``before``; None stands for no pointer.

    Attributes:
        before: The row that has to be there.
        after: The row that takes its place.
        change: How the metadata of ``after`` grows out of that of ``before``; None where ``after``
            is something else, or an earlier state. SQL catalogs need not know.
    """

    before: Pointer | None
    after: Pointer | None
    change: MetadataChange | None = None


class Unanswered(Exception):
    """The catalog failed while it made changes.

    Attributes:
        reason: In the catalog's words.
        lost: True where the connection broke, so that the changes may still be made.
    """

    def __init__(self, reason: str, *, lost: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lost = lost


def require_side_schema(schema: str, branch: str | None, marked: str | None) -> None:
    """Refuse a schema that stands already, unless it is the side schema that is asked for.

    A schema of the user's may be called like one (``shop__staging``, and a branch ``staging``):
    what is built there would be live, and a discard would drop it with all that the user has in it.

    Args:
        schema: Its name.
        branch: The audit branch; None if it is to be no side schema.
        marked: The branch whose side schema it is; None if it is none.

    Raises:
        ConfigError: It is another one's.
    """
    if branch is None or marked == branch:
        return
    raise ConfigError(
        f"The branch {branch} would build in the schema {schema}, which is there already and is "
        f"{f'that of the branch {marked}' if marked else 'no schema of sparkwap'}. Nothing was "
        "changed. Give the branch another name (wap_branch or SPARKWAP_BRANCH)."
    )


def side_objects(rows: Sequence[Pointer]) -> tuple[SideObject, ...]:
    """Return the objects of side schemas, by name."""
    return tuple(
        SideObject(row.identifier, row.kind) for row in sorted(rows, key=lambda row: row.identifier)
    )
