"""The rows of a table that were added or lost since a snapshot, as private tables.

The data files that have the added rows become a private table, and those of the earlier state that
have the lost rows; a statement reads them in place of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkwap.audits.incremental import Passed, added_files, key_range, lost_files
from sparkwap.catalog import metadata as md
from sparkwap.catalog.content_equality import newest_with_same_rows
from sparkwap.catalog.file_plan import DataFile
from sparkwap.catalog.private_catalog import PrivateCatalog
from sparkwap.catalog.snapshot_files import Part, Snapshot, common_manifests
from sparkwap.core.errors import CatalogError

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.command import DbtCommand


@dataclass(frozen=True)
class ReadState:
    """A table that a test reads.

    Attributes:
        location: Its metadata file.
        head: The snapshot that the session reads.
    """

    name: str
    location: str
    document: md.Document
    head: int


class Unreadable(Exception):
    """The session cannot read private tables."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(frozen=True)
class PrivateTable:
    """A private table of some files of a state; nothing if it has no name."""

    name: str | None = None
    part: Part | None = None

    def range_of(self, key: str, document: md.Document) -> tuple[int, int] | None:
        return key_range(key, document, self.part.bounds) if self.part else None


NOTHING = PrivateTable()


class ChangedRows:
    """Makes the private tables of a batch, each once; `files` takes their files, to delete them."""

    def __init__(self, command: DbtCommand, files: list[Part]) -> None:
        self._command = command
        self._files = files
        connections, name = command.connections, command.credentials.catalog_name
        self._private = PrivateCatalog(connections.rows_of, name)
        self._histories: dict[str, list[md.Document]] = {}
        self._same: dict[str, dict[int, int]] = {}
        self._snapshots: dict[tuple[str, int], Snapshot] = {}
        self._made: dict[tuple[str, int, str | None], PrivateTable | None] = {}

    def history(self, state: ReadState) -> list[md.Document]:
        """Return the snapshot of a state and those that it grew from, newest first."""
        if state.location not in self._histories:
            found = list(md.ancestors(state.document, state.head))
            self._histories[state.location] = found
        return self._histories[state.location]

    def forwarded(self, result: Passed, states: Sequence[ReadState]) -> Passed:
        """Return a result as one of the newest snapshots with the rows that it has read.

        So a compaction, which replaces files and changes no row, leaves nothing to audit.
        """
        table, parent = states[0], states[-1]
        return replace(
            result,
            snapshot=self._same_rows(table).get(result.snapshot, result.snapshot),
            parent=result.parent and self._same_rows(parent).get(result.parent, result.parent),
        )

    def _same_rows(self, state: ReadState) -> dict[int, int]:
        if state.location not in self._same:
            self._same[state.location] = newest_with_same_rows(state.document, state.head)
        return self._same[state.location]

    def added(self, state: ReadState, base: int) -> PrivateTable | None:
        """Return the rows that were added since a snapshot; None if they are not known."""
        key = (state.location, base, None)
        if key not in self._made:
            old, new = self._snapshot(state, base), self._snapshot(state, state.head)
            common = common_manifests(old, new)
            files = added_files(old.files(common), new.files(common))
            self._made[key] = self._table(new, files, common, new)
        return self._made[key]

    def lost(
        self, state: ReadState, base: int | None, beside: ReadState | None = None
    ) -> PrivateTable | None:
        """Return the rows that are gone since a snapshot; None if they are not known.

        Args:
            beside: A table whose rows need not be read then.
        """
        if base == state.head:
            return NOTHING
        if base is None:
            return None
        key = (state.location, base, beside.location if beside else "")
        if key not in self._made:
            old, new = self._snapshot(state, base), self._snapshot(state, state.head)
            files = lost_files(old.files(), new.files())
            other = [self._snapshot(beside, beside.head)] if beside else []
            self._made[key] = self._table(old, files, set(), old, *other)
        return self._made[key]

    def _table(
        self, of: Snapshot, files: Sequence[DataFile] | None, without: set[str], *whole: Snapshot
    ) -> PrivateTable | None:
        """Return these files of a snapshot as a table; None if all of `whole` are read as soon."""
        most = max(one.count("total-records") or 0 for one in whole) / 2
        if files is None or sum(file.rows for file in files) > most:
            return None
        if not files:
            return NOTHING
        part = of.part({file.path for file in files}, without)
        self._files.append(part)
        self._command.connections.end_session_later()
        try:
            return PrivateTable(self._private.register(part.location), part)
        except Exception as error:
            # A server without SQLite's driver; the next tables would fail as this one.
            raise Unreadable(error) from error

    def _snapshot(self, state: ReadState, of: int) -> Snapshot:
        key = (state.location, of)
        if key not in self._snapshots:
            entry = md.snapshot(state.document, of)
            if entry is None:
                raise CatalogError(f"{state.name} has no snapshot {of}")
            self._snapshots[key] = Snapshot(self._command.lake.store, state.document, entry)
        return self._snapshots[key]
