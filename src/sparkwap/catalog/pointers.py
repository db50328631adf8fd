"""Pointers of the catalog, their updates, and the errors of updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.model import Identifier, Kind, SideObject
from sparkwap.core.errors import CatalogError, ConfigError

SIDE_OF = "wap.branch"
"""The property of a side schema: its audit branch."""

Fate = Literal["made", "not made", "unknown"]
"""Whether an interrupted commit was made."""


class Conflict(Exception):
    """A row was not as expected, so the transaction was rolled back.

    Attributes:
        swap: The change that did not apply; None if the database itself requires a retry.
        unclear: True if an earlier try of the same change has no answer, so that it may be made.
    """

    def __init__(self, swap: PointerUpdate | None, reason: str, *, unclear: bool = False) -> None:
        super().__init__(reason)
        self.swap = swap
        self.unclear = unclear


@dataclass(frozen=True, slots=True)
class Pointer:
    """A row of the catalog: a name, and the metadata file that it points to."""

    identifier: Identifier
    kind: Kind
    location: str


@dataclass(frozen=True, slots=True)
class PointerUpdate:
    """Replaces the row ``before`` by ``after``; None stands for no row.

    Attributes:
        before: The required present row.
        change: The change of the metadata from ``before`` to ``after``; None if ``after`` is
            another object or an earlier state. SQL catalogs do not need it.
    """

    before: Pointer | None
    after: Pointer | None
    change: MetadataChange | None = None


class Unanswered(Exception):
    """The catalog failed while it made changes.

    If the connection broke (``lost``), the changes may still be made.
    """

    def __init__(self, reason: str, *, lost: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lost = lost


class CannotShare(CatalogError):
    """The catalog does not take a table that has the identity or files of another one."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The catalog does not take {name} as a table ({reason}). Its identity, its folder or "
            "its files are those of another table, or its folder is not where the catalog allows "
            "it; see docs/catalogs/rest.md#polaris-lakekeeper-and-others. This request changed "
            "nothing."
        )
        self.reason = reason


def require_rows(
    found: Mapping[Identifier, Pointer], requires: Mapping[Identifier, Pointer | None]
) -> None:
    """Check that rows are as required; None stands for no row."""
    for identifier, row in requires.items():
        if found.get(identifier) != row:
            raise Conflict(None, f"{'.'.join(identifier)} changed meanwhile")


def dropped_rows(done: Sequence[PointerUpdate]) -> list[Pointer]:
    """Return the rows that changes have removed."""
    return [one.before for one in done if one.before and not one.after]


def changed_names(done: Sequence[PointerUpdate]) -> set[Identifier]:
    """Return the names of the rows that changes have left or made."""
    return {one.after.identifier for one in done if one.after}


def require_side_schema(schema: str, branch: str | None, marked: str | None) -> None:
    """Check that an existing schema is the side schema of an audit branch.

    A user's schema may have the name of a side schema (``shop__staging`` for a branch
    ``staging``). Tables built there would be live, and a discard would drop the user's tables.

    Args:
        branch: The audit branch; None if no side schema is needed.
        marked: The branch whose side schema it is; None if it is no side schema.
    """
    if branch is None or marked == branch:
        return
    raise ConfigError(
        f"The branch {branch} needs the side schema {schema}. A schema of this name exists and is "
        f"{f'the side schema of {marked}' if marked else 'no schema of sparkwap'}. Nothing was "
        "changed. Give the branch another name (wap_branch or SPARKWAP_BRANCH)."
    )


def side_objects(rows: Sequence[Pointer]) -> tuple[SideObject, ...]:
    """Return the objects of side schemas, by name."""
    return tuple(
        SideObject(row.identifier, row.kind) for row in sorted(rows, key=lambda row: row.identifier)
    )
