"""Puts the candidate of a branch on `main` after a compaction, as Iceberg's cherry-pick does.

A candidate has files of its base, so to publish it over a compaction would bring back what the
compaction has replaced. But the compaction has changed no row, so the change of files from the base
to the candidate gives the audited rows on the compacted files too, if it does not touch what was
compacted (`file_plan.transferable`), or only deletes rows of it by deletion vectors (`moved_rows`).
It becomes one snapshot after the compaction's. Iceberg's own procedure does this for appends only,
and to `main` at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import table_row
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.content_equality import between, has_grown_from, same_rows, shows_columns_of
from sparkwap.catalog.file_plan import StateFiles, transferable, without_compacted
from sparkwap.catalog.model import Candidate
from sparkwap.catalog.snapshot_files import Snapshot, Unreadable, common_manifests
from sparkwap.catalog.store import Staged, Store
from sparkwap.core.names import base_tag
from sparkwap.publish.picked_snapshot import PickedSnapshot

_VERSIONS = (2, 3)
"""Format versions of tables whose files have sequence numbers."""


@dataclass(frozen=True, slots=True)
class Picked:
    """A staged snapshot with the files written for it."""

    snapshot: Mapping[str, Any]
    files: tuple[str, ...]


def stage(store: Store, candidate: Candidate) -> Staged[Candidate | None]:
    """Stage the move of a branch's candidate to the present `main`.

    The branch and its base tag move, and `main` does not.

    Returns:
        The candidate with its new base and head; None, and nothing to commit, if `main` has not
        moved by a proven compaction, or if the candidate changes what was compacted.
    """
    row = table_row(store, candidate.identifier)
    document = store.load(row.location)
    refs, branch = md.refs_of(document), candidate.branch
    head, tag = refs.get(branch), refs.get(base_tag(branch))
    standing = head and tag and (head.snapshot_id, tag.snapshot_id)
    if standing != (candidate.head, candidate.base):
        return Staged(None)
    if not has_grown_from(document, candidate.head, candidate.base):
        # After the move, the branch has grown from `main` in any case.
        return Staged(None)
    if not shows_columns_of(document, candidate.head):
        # The snapshot of the move has the present columns in any case.
        return Staged(None)
    picked = pick(store, document, candidate.base, candidate.head)
    if picked is None:
        return Staged(None)
    main, new = md.main_of(document), int(picked.snapshot["snapshot-id"])
    assert main is not None
    change = (
        MetadataChange(document)
        .add_snapshot(picked.snapshot)
        .branch(branch, new)
        .tag(base_tag(branch), main)
    )
    # Iceberg before 1.10 or so takes files of expired snapshots that `main` has not descended from
    # for unused, and deletes them; its protection of a cherry-pick's source covers one snapshot.
    change = change.remove_snapshots(unreferenced(change.applied(0), candidate))
    swaps, files = store.grow([(row, change)])
    moved = replace(candidate, base=main, token=str(new))
    return Staged(moved, swaps, [*picked.files, *files])


def pick(store: Store, document: md.Document, base: int | None, head: int) -> Picked | None:
    """Write a snapshot with the change from ``base`` to ``head`` on the present `main`.

    Args:
        base: The snapshot of `main` that the candidate was built on.

    Returns:
        The snapshot, which is in no metadata yet; None if the change may give other rows there.
    """
    main = md.main_of(document)
    states = [md.snapshot(document, one) if one else None for one in (base, head, main)]
    if base == main or not same_rows(document, base, main):
        return None
    if int(document["format-version"]) not in _VERSIONS:
        return None
    before, built, now = (Snapshot(store, document, one) if one else None for one in states)
    if before is None or built is None or now is None:
        return None
    if md.has_row_ids(document) and _copies_own_rows(document, base, head):
        return None
    written: list[str] = []
    picked = None
    try:
        # Whatever is unusual in the manifests: the candidate is then refused, as without this.
        with suppress(Exception):
            picked = _picked(store, document, before, built, now, written)
    finally:
        if picked is None:
            store.delete(written)
    return picked


def _picked(
    store: Store,
    document: md.Document,
    before: Snapshot,
    built: Snapshot,
    now: Snapshot,
    written: list[str],
) -> Picked | None:
    if md.has_row_ids(document) and any(
        one.has_data and one.entry["first_row_id"] is None
        for state in (before, built, now)
        for one in state.manifests
    ):
        # Branch and `main` have given ids of their own to the same rows, or will.
        raise Unreadable("Rows had no ids yet in the base: the table had an older format version.")
    common = common_manifests(before, built) & common_manifests(built, now)
    audited, present = built.files(common), now.files(common)
    base = before.files(common)
    change, rows = transferable(base, audited, present), []
    if change is None:
        split = without_compacted(base, audited, present)
        if split is None:
            return None
        change, deletions = split
        new = {one.path for one in present.data} - {one.path for one in base.data}
        # Imported here, because it imports PyArrow: half a second that not every command needs.
        from sparkwap.publish.moved_rows import MovedRows

        rows = MovedRows(store, before, now).find(deletions, new)
    writing = PickedSnapshot(store, document, built, now, change, common, written)
    snapshot = writing.snapshot(rows)
    found = Snapshot(store, document, snapshot).files(common)
    expected = change.applied(audited, present)
    expected = replace(expected, deletes=(*expected.deletes, *writing.vectors))
    return Picked(snapshot, tuple(written)) if _rows(found) == _rows(expected) else None


def _copies_own_rows(document: md.Document, base: int | None, head: int) -> bool:
    """Return whether statements of a candidate may have copied rows of earlier statements of it.

    A copied row keeps the sequence number of its last change, which then would be before that of
    the compaction: whoever has read `main` after the compaction would take the row for read.
    """
    return any(
        one.get("deleted-data-files", "0") != "0" for one in between(document, base, head)[:-1]
    )


def _rows(state: StateFiles) -> tuple[Counter[Any], Counter[Any]]:
    return (
        Counter((one.path, one.rows) for one in state.data),
        Counter((one.key, one.target, one.rows) for one in state.deletes),
    )


def unreferenced(document: md.Document, candidate: Candidate) -> list[int]:
    """Return the snapshots of a candidate that no branch or tag has in its history. Pure."""
    kept = {
        one
        for ref in md.refs_of(document).values()
        for one in md.ancestor_ids(document, ref.snapshot_id)
    }
    line = md.ancestor_ids(document, candidate.head)
    own = line[: line.index(candidate.base)] if candidate.base in line else []
    return [one for one in own if one not in kept]
