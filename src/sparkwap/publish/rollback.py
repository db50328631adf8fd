"""Plans a rollback: from the present metadata back to the metadata before the publish."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog import views
from sparkwap.catalog.branches import (
    BASE_METADATA,
    BASE_SNAPSHOT,
    GUARDS,
    HELPER_PREFIX,
    empty_base,
    is_ours,
)
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.content_equality import same_rows
from sparkwap.catalog.difference import difference
from sparkwap.catalog.model import Candidate, Identifier, Kind, PublishedEntry
from sparkwap.catalog.planning import (
    Differs,
    Load,
    MovePlan,
    require_main,
    require_table,
    row_words,
    snapshot_words,
)
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.snapshot_files import Snapshot, Unreadable
from sparkwap.catalog.store import Store
from sparkwap.cdc.history import HIGHEST
from sparkwap.core.errors import MetadataFileMissing
from sparkwap.core.names import base_tag, side_schema

_CURRENT = ("current-schema-id", "default-spec-id", "default-sort-order-id", "location")
_V1_ONLY = ("schema", "partition-spec")
_AT_ONCE = 25
"""How many requests for files run at the same time."""


@dataclass(frozen=True)
class Undoer:
    """Plans the rollback of each entry of a publish.

    Attributes:
        rows: The rows of the entries that exist.
        force: Restore the state before the publish, even if tables have changed since.
    """

    store: Store
    rows: Mapping[Identifier, Pointer]
    force: bool = False

    def plan(self, entry: PublishedEntry) -> MovePlan:
        """Return the plan for one entry.

        Raises:
            Differs: The table or view has changed since the publish (without force), or its former
                state no longer exists.
        """
        live = self.rows.get(entry.identifier)
        if self.force:
            return self._forced(entry, live)
        if entry.how == "branch":
            return self._branch(entry, require_table(entry.identifier, live))
        if entry.how == "clone":
            return self._clone(entry, require_table(entry.identifier, live))
        return self._former(entry, self._unmoved(entry, live))

    def _branch(self, entry: PublishedEntry, live: Pointer) -> MovePlan:
        document = self._present(entry, live)
        return _successor(entry, live, _main_back(entry, MetadataChange(document)))

    def _clone(self, entry: PublishedEntry, live: Pointer) -> MovePlan:
        document = self._present(entry, live)
        base = self._base(entry)
        published = self._published(entry)
        expected = f"as in {entry.published_metadata_location}"
        if published is None:
            raise Differs(entry.identifier, "definition", expected, "that the file is gone")
        if md.definition(document) != md.definition(published):
            raise Differs(entry.identifier, "definition", expected, f"as in {live.location}")
        restored = difference(document, restore(document, base, published))
        return _successor(entry, live, _main_back(entry, restored))

    def _former(self, entry: PublishedEntry, live: Pointer | None) -> MovePlan:
        location = entry.base_metadata_location
        if location is None:
            return MovePlan(entry, [PointerUpdate(live, None)] if live else [], {})
        kind: Kind = "view" if md.is_view(self._base(entry)) else "table"
        former = Pointer(entry.identifier, kind, location)
        return MovePlan(entry, [PointerUpdate(live, former)], {})

    def _forced(self, entry: PublishedEntry, live: Pointer | None) -> MovePlan:
        if entry.how not in ("branch", "clone"):
            return self._former(entry, live)
        document = self.store.load(live.location) if live is not None else None
        if live is not None and document is not None and self._only_main_moves(entry, document):
            return _successor(entry, live, _main_back(entry, MetadataChange(document)))
        base = self._base(entry)
        if live is None or document is None or md.identity(document) != md.identity(base):
            # Another table or view, or nothing: restore the former table from its metadata file.
            # Its audit branches are stale; branches and tags of users stay.
            stale = [name for name in md.refs_of(base) if is_ours(base, name)]
            had = md.properties_of(base)
            helpers = dict.fromkeys(key for key in had if key.startswith(HELPER_PREFIX))
            # No later version of a history may have a number that an erasure has removed.
            kept = {**had, **md.properties_of(document or {})}.get(HIGHEST)
            gone = self._without_files(entry, base)
            stale += [name for name, ref in md.refs_of(base).items() if ref.snapshot_id in gone]
            former = MetadataChange(base).remove_refs(*stale).properties({**helpers, HIGHEST: kept})
            return self._replacement(entry, live, former.remove_snapshots(gone))
        change = MetadataChange(document)
        if entry.how == "clone" or md.definition(document) != md.definition(base):
            restored = with_helpers_of(document, restore(document, base, document))
            change = difference(document, restored)
        return _successor(entry, live, _main_back(entry, change))

    def _without_files(self, entry: PublishedEntry, document: md.Document) -> set[int]:
        """Return the snapshots of a former table that have expired since: their files are gone.

        Raises:
            Differs: The state to restore is one of them.
        """
        gone = {
            int(one["snapshot-id"])
            for one in document.get("snapshots") or ()
            if "manifest-list" in one and not self.store.files.exists(str(one["manifest-list"]))
        }
        main = md.main_of(document)
        if main is not None and (main in gone or not self._has_files(document, main)):
            raise Differs(
                entry.identifier, "base", snapshot_words(main), "that its files are deleted"
            )
        return gone

    def _has_files(self, document: md.Document, snapshot_id: int) -> bool:
        """Return whether the files of a snapshot exist: an erasure deletes them before the list."""
        snapshot = md.snapshot(document, snapshot_id)
        try:
            found = Snapshot(self.store, document, snapshot or {}).files()
        except Unreadable as error:
            return not isinstance(error.__cause__, FileNotFoundError)
        paths = {one.path for one in found.data} | {one.path for one in found.deletes}
        # Not by the store's threads, which make the plans and would wait for themselves.
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return all(threads.map(self.store.files.exists, paths))

    def _only_main_moves(self, entry: PublishedEntry, document: md.Document) -> bool:
        """Return whether the table still has the base, and its definition has not changed."""
        if entry.how != "branch" or entry.base is None or md.snapshot(document, entry.base) is None:
            return False
        published = self._published(entry)
        # A copy of a table has its snapshots, so the base alone does not identify the table.
        return (
            published is not None
            and md.identity(document) == md.identity(published)
            and md.definition(document) == md.definition(published)
        )

    def _published(self, entry: PublishedEntry) -> md.Document | None:
        try:
            return self.store.load(entry.published_metadata_location)
        except MetadataFileMissing:
            return None  # Iceberg can delete old metadata files.

    def _present(self, entry: PublishedEntry, live: Pointer) -> md.Document:
        document = self.store.load(live.location)
        _require_rows(entry, document)
        return document

    def _base(self, entry: PublishedEntry) -> md.Document:
        location = str(entry.base_metadata_location)
        with suppress(MetadataFileMissing):
            document = self.store.load(location)
            # It may have been read before a sweep has deleted the table's files.
            if self.store.files.exists(location):
                return document
        expected = f"metadata {location}"
        raise Differs(entry.identifier, "base", expected, "that the file is gone")

    def _unmoved(self, entry: PublishedEntry, live: Pointer | None) -> Pointer:
        """Return the live row if it still has the published rows, apart from branches and tags."""
        location = entry.published_metadata_location
        if live is not None and live.location == location:
            return live
        if live is not None and live.kind == "table" and entry.how != "view":
            document = self.store.load(live.location)
            log = document.get("metadata-log") or ()
            if any(step["metadata-file"] == location for step in log):
                _require_rows(entry, document)
                return live
        what = "live object"
        raise Differs(entry.identifier, what, f"metadata {location}", row_words(live))

    def _replacement(
        self, entry: PublishedEntry, live: Pointer | None, former: MetadataChange
    ) -> MovePlan:
        base = entry.base_metadata_location
        document = former.document(base)
        location = md.next_location(
            document, live.location if live is not None and live.kind == "table" else base
        )
        return MovePlan(
            entry,
            [PointerUpdate(live, Pointer(entry.identifier, "table", location))],
            {location: document},
        )


def as_before_publish(
    entry: PublishedEntry, load: Load, rows: Mapping[Identifier, Pointer]
) -> MovePlan:
    """Return a plan without changes for a table or view that is as it was before a publish.

    Raises:
        Differs: It is not.
    """
    live = rows.get(entry.identifier)
    if entry.how in ("branch", "clone"):
        live = require_table(entry.identifier, live)
        require_main(entry.identifier, load(live.location), entry.base)
    elif (live.location if live else None) != entry.base_metadata_location:
        location = entry.base_metadata_location
        expected = f"metadata {location}" if location else "nothing"
        raise Differs(entry.identifier, "live object", expected, row_words(live))
    return MovePlan(entry, [PointerUpdate(live, live)] if live else [], {})


@dataclass(frozen=True)
class Reopener:
    """Puts the candidates of a publish back on their audit branch, after its rollback.

    Attributes:
        warehouse: The parent of the folders of views.
        standing: The rows in the side schemas of the branch.
    """

    load: Load
    branch: str
    warehouse: str
    standing: Mapping[Identifier, Pointer]

    def reopen(
        self, plans: Sequence[MovePlan]
    ) -> tuple[list[MovePlan], dict[Identifier, Candidate]]:
        """Extend the plans of a rollback.

        Returns:
            The extended plans, and the candidate of each entry.

        Raises:
            Differs: A candidate no longer exists, or the branch is in use again.
        """
        sides = {
            plan.entry.identifier: side_schema(plan.entry.identifier[0], self.branch)
            for plan in plans
            if plan.entry.how != "branch"
        }
        found: dict[Identifier, Candidate] = {}
        extended = []
        for plan in plans:
            entry = plan.entry
            if entry.how == "branch":
                plan, found[entry.identifier] = self._on_branch(plan)
            else:
                plan, found[entry.identifier] = self._beside(plan, sides)
            extended.append(plan)
        return extended, found

    def _on_branch(self, plan: MovePlan) -> tuple[MovePlan, Candidate]:
        entry = plan.entry
        (swap,) = plan.swaps
        if swap.after is None or entry.candidate is None:
            raise Differs(entry.identifier, "candidate", "a snapshot", "none")
        document = self.load(swap.after.location)
        if md.snapshot(document, entry.candidate) is None:
            expected = snapshot_words(entry.candidate)
            raise Differs(entry.identifier, "candidate", expected, "that it has expired")
        if {self.branch, base_tag(self.branch)} & set(md.refs_of(document)):
            what = f"audit branch '{self.branch}'"
            raise Differs(entry.identifier, what, "no such branch", "a branch in use again")
        change = MetadataChange(document).branch(self.branch, entry.candidate)
        if entry.base is None:
            change = change.properties({empty_base(self.branch): "none"})
        else:
            change = change.tag(base_tag(self.branch), entry.base)
        reopened = _successor(entry, swap.after, change)
        (location,), token = reopened.writes, str(entry.candidate)
        candidate = Candidate(entry.identifier, self.branch, "branch", entry.base, location, token)
        return reopened, candidate

    def _beside(
        self, plan: MovePlan, sides: Mapping[Identifier, str]
    ) -> tuple[MovePlan, Candidate]:
        entry = plan.entry
        beside = (sides[entry.identifier], entry.identifier[1])
        if beside in self.standing:
            raise Differs(
                entry.identifier, "side object", "nothing", row_words(self.standing[beside])
            )
        after = next((swap.after for swap in plan.swaps), None)
        published = self._published(entry)
        location, document = entry.published_metadata_location, None
        if md.is_view(published):
            folder = f"{self.warehouse.rstrip('/')}/{beside[0]}/{beside[1]}"
            document = views.reopened(published, folder, sides, str(uuid.uuid4()))
            location = md.next_location(document, None)
        elif entry.how == "clone" and after is not None:
            changes = {
                **GUARDS,
                BASE_METADATA: after.location,
                BASE_SNAPSHOT: "" if entry.base is None else str(entry.base),
            }
            document = MetadataChange(published).properties(changes).document(location)
            location = md.next_location(document, location)
        kind: Kind = "view" if md.is_view(published) else "table"
        writes = {**plan.writes, **({location: document} if document is not None else {})}
        swaps = [*plan.swaps, PointerUpdate(None, Pointer(beside, kind, location))]
        now = after.location if after else None
        candidate = Candidate(entry.identifier, self.branch, "side", entry.base, now, location)
        return replace(plan, swaps=swaps, writes=writes), candidate

    def _published(self, entry: PublishedEntry) -> md.Document:
        try:
            return self.load(entry.published_metadata_location)
        except MetadataFileMissing as error:
            expected = f"metadata {entry.published_metadata_location}"
            found = "that the file is gone"
            raise Differs(entry.identifier, "candidate", expected, found) from error


def restore(document: md.Document, base: md.Document, published: md.Document) -> dict[str, Any]:
    """Return the present metadata with the definition and the properties of ``base``.

    The format version stays, because Iceberg cannot downgrade it. Properties that were changed
    after the publish keep their present values.
    """
    restored: dict[str, Any] = dict(document)
    for key in (*_CURRENT, *_V1_ONLY):
        if key in base:
            restored[key] = base[key]
    before, after = md.properties_of(base), md.properties_of(published)
    properties = md.properties_of(document)
    for key in {*before, *after}:
        # The gate stays on, even if it was switched on between base and publish.
        if key != md.WAP_ENABLED and properties.get(key) == after.get(key):
            properties.pop(key, None)
            if key in before:
                properties[key] = before[key]
    restored["properties"] = properties
    return restored


def with_helpers_of(document: md.Document, restored: Mapping[str, Any]) -> dict[str, Any]:
    """Return restored metadata with the present helper properties of open audit branches."""
    kept = {k: v for k, v in restored["properties"].items() if not k.startswith(HELPER_PREFIX)}
    own = {k: v for k, v in md.properties_of(document).items() if k.startswith(HELPER_PREFIX)}
    return {**restored, "properties": {**kept, **own}}


def _successor(entry: PublishedEntry, live: Pointer, change: MetadataChange) -> MovePlan:
    document = change.document(live.location)
    location = md.next_location(document, live.location)
    after = Pointer(entry.identifier, "table", location)
    return MovePlan(entry, [PointerUpdate(live, after, change)], {location: document})


def _require_rows(entry: PublishedEntry, document: md.Document) -> None:
    """Check that ``main`` still has the published rows: compactions change none."""
    if not same_rows(document, entry.candidate, md.main_of(document)):
        require_main(entry.identifier, document, entry.candidate)


def _main_back(entry: PublishedEntry, change: MetadataChange) -> MetadataChange:
    if entry.base is None:
        return change.remove_refs(md.MAIN)
    if md.snapshot(change.base, entry.base) is None:
        what = "base"
        raise Differs(entry.identifier, what, snapshot_words(entry.base), "that it has expired")
    return change.branch(md.MAIN, entry.base)
