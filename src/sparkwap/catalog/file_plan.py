"""Which files of a table differ between its states, and what follows from that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

FileKey = tuple[str, int | None]
"""The location of a file, and the offset of a deletion vector in it; None for a whole file."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A live data file of a state.

    Attributes:
        sequence: Its data sequence number; only later deletes apply to it.
        rows: The number of its rows, deleted rows included.
        partition: Its partition, as text; files of the same partition have the same text.
    """

    path: str
    sequence: int = 0
    rows: int = 0
    size: int = 0
    partition: str = ""


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A live delete file, or one deletion vector in a file of several.

    Attributes:
        offset: The offset of a deletion vector in its file; None for a delete file.
        target: The only data file whose rows it deletes; None if there may be several.
        equality: Whether it identifies rows by their values instead of their positions.
        rows: The number of rows that it deletes.
    """

    path: str
    offset: int | None = None
    target: str | None = None
    equality: bool = False
    sequence: int = 0
    rows: int = 0

    @property
    def key(self) -> FileKey:
        """What tells it from all other files and deletion vectors."""
        return self.path, self.offset


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The files of a state; files of common manifests may be left out."""

    data: tuple[DataFile, ...] = ()
    deletes: tuple[DeleteFile, ...] = ()


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The files to read.

    Attributes:
        read: ``nothing``: all rows are equal. ``parts``: the files below. ``whole``: both states,
            because deletes differ that may apply to any file.
        removed: Data files that only the old state has.
        added: Data files that only the new state has.
        touched: Data files of both states whose deletes differ. Rows that only the new state
            deletes are removed; rows that only the old state deletes are added.
    """

    read: Literal["nothing", "parts", "whole"]
    removed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    touched: frozenset[str] = frozenset()


NOTHING = FilePlan("nothing")
WHOLE = FilePlan("whole")


def plan_files(before: StateFiles, after: StateFiles) -> FilePlan:
    """Return the files to read to find the rows that differ between two states.

    A data file never changes, so the same path has the same rows except for its deletes. If a
    delete file that differs may apply to several data files, both states are read as a whole.
    """
    old, new = set(before.data), set(after.data)
    differing = set(before.deletes) ^ set(after.deletes)
    if any(delete.equality or delete.target is None for delete in differing):
        return WHOLE
    removed, added = _paths(old - new), _paths(new - old)
    targets = {delete.target for delete in differing if delete.target is not None}
    # The deletes of a file that only one state has are read with this file.
    touched = frozenset(targets - removed - added)
    if not (removed or added or touched):
        return NOTHING
    return FilePlan("parts", removed, added, touched)


@dataclass(frozen=True, slots=True)
class FileChange:
    """The files that a change of rows has removed and added.

    Attributes:
        removed: Paths of data files.
        added: Paths of data files.
        removed_deletes: Delete files and deletion vectors, which the change has replaced.
        added_deletes: Delete files and deletion vectors.
    """

    removed: frozenset[str]
    added: frozenset[str]
    removed_deletes: frozenset[FileKey] = frozenset()
    added_deletes: frozenset[FileKey] = frozenset()

    def applied(self, built: StateFiles, main: StateFiles) -> StateFiles:
        """Return the files of ``main`` after the change, which ``built`` has on another base."""
        data = [one for one in main.data if one.path not in self.removed]
        deletes = [one for one in main.deletes if one.key not in self.removed_deletes]
        return StateFiles(
            (*data, *(one for one in built.data if one.path in self.added)),
            (*deletes, *(one for one in built.deletes if one.key in self.added_deletes)),
        )


def transferable(base: StateFiles, built: StateFiles, main: StateFiles) -> FileChange | None:
    """Return the change from ``base`` to ``built`` if it gives the same rows on ``main``.

    ``main`` must have the rows of ``base`` in other files. The change gives the same rows there if
    all files that it has removed, or whose deletes it has changed, are in ``main`` with the same
    deletes as in ``base``.

    Args:
        main: The files of another state with the rows of ``base``. Files that all three states
            have may be left out of them.

    Returns:
        The change; None if it may give other rows, if its deletes may apply to several files, or if
        a state lists a file twice.
    """
    if not all(map(_lists_each_file_once, (base, built, main))):
        return None
    old, now = ({one.path: one for one in state.data} for state in (base, main))
    removed, added = (
        _paths(set(base.data) - set(built.data)),
        _paths(set(built.data) - set(base.data)),
    )
    before, after = set(base.deletes), set(built.deletes)
    if any(not _has_one_target(one) for one in before ^ after):
        return None
    changed = removed | {str(one.target) for one in before ^ after} - added
    # A file that neither lists was left out: all three states have it.
    if added & (old.keys() | now.keys()) or any(old.get(path) != now.get(path) for path in changed):
        return None
    if changed and any(
        not _has_one_target(one) or one.target in changed for one in before ^ set(main.deletes)
    ):
        return None
    gone, gained = (_keys(deletes) for deletes in (before - after, after - before))
    return None if gone & gained else FileChange(removed, added, gone, gained)


@dataclass(frozen=True, slots=True)
class Deletion:
    """New deletions of rows in one data file by a deletion vector.

    Attributes:
        before: The vector of the file so far; None if it had none.
        after: The vector that has replaced it.
    """

    before: DeleteFile | None
    after: DeleteFile


def without_compacted(
    base: StateFiles, built: StateFiles, main: StateFiles
) -> tuple[FileChange, Mapping[str, Deletion]] | None:
    """Split a change into deletions of rows in compacted files, and the `transferable` rest.

    Returns:
        The rest, and the deletions by the path of the file of ``base`` that ``main`` has compacted;
        None if there are none, or if the rest may give other rows on ``main``.
    """
    compacted = {one.path for one in base.data} - {one.path for one in main.data}
    old, new = (
        [one for one in state.deletes if one.target in compacted] for state in (base, built)
    )
    before, after = ({str(one.target): one for one in deletes} for deletes in (old, new))
    # A data file has at most one vector.
    if (len(before), len(after)) != (len(old), len(new)) or not before.keys() <= after.keys():
        return None
    if any(one.offset is None for one in (*old, *new)):
        return None
    deletions = {
        path: Deletion(before.get(path), one)
        for path, one in after.items()
        if before.get(path) != one
    }
    former, later = (
        StateFiles(state.data, tuple(one for one in state.deletes if one.target not in deletions))
        for state in (base, built)
    )
    change = transferable(former, later, main) if deletions else None
    return None if change is None else (change, deletions)


def _lists_each_file_once(state: StateFiles) -> bool:
    return len(_paths(state.data)) == len(state.data) and (
        len(_keys(state.deletes)) == len(state.deletes)
    )


def _has_one_target(delete: DeleteFile) -> bool:
    """Return whether all rows that a delete file deletes are in one known data file."""
    return not delete.equality and delete.target is not None


def _paths(files: Iterable[DataFile]) -> frozenset[str]:
    return frozenset(file.path for file in files)


def _keys(deletes: Iterable[DeleteFile]) -> frozenset[FileKey]:
    return frozenset(delete.key for delete in deletes)
