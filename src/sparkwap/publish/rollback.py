"""Rolling a publish back: the metadata that readers had before, grown out of today's.

Pure, as `publish` is.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog import views
from sparkwap.catalog.branches import (
    BASE_METADATA,
    BASE_SNAPSHOT,
    GUARD_VALUES,
    HELPER_PREFIX,
    empty_base,
    is_ours,
)
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import difference
from sparkwap.catalog.model import Identifier, Kind, PublishedEntry
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
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import base_tag, side_schema

_CURRENT = ("current-schema-id", "default-spec-id", "default-sort-order-id", "location")
_V1_ONLY = ("schema", "partition-spec")


@dataclass(frozen=True)
class Undoer:
    """Plans the rollback of each entry of a publish.

    Attributes:
        load: Reads a metadata document.
        rows: The rows of the entries that exist.
        force: Put everything back, whatever has come since.
    """

    load: Load
    rows: Mapping[Identifier, Pointer]
    force: bool = False

    def plan(self, entry: PublishedEntry) -> MovePlan:
        """The plan for one entry.

        Raises:
            Differs: The table or view moved on since the publish, and it is not forced; or what
                it was before is there no more.
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
        return self._successor(entry, live, _main_back(entry, MetadataChange(document)))

    def _clone(self, entry: PublishedEntry, live: Pointer) -> MovePlan:
        document = self._present(entry, live)
        base = self._base(entry)
        published = self.load(entry.published_metadata_location)
        if md.definition(document) != md.definition(published):
            expected = f"as in {entry.published_metadata_location}"
            raise Differs(entry.identifier, "definition", expected, f"as in {live.location}")
        restored = difference(document, restore(document, base, published))
        return self._successor(entry, live, _main_back(entry, restored))

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
        document = self.load(live.location) if live is not None else None
        if live is not None and document is not None and self._same_rows_can_come(entry, document):
            return self._successor(entry, live, _main_back(entry, MetadataChange(document)))
        base = self._base(entry)
        if live is None or document is None or md.identity(document) != md.identity(base):
            # Another table or view, or nothing: the former table comes back as it was.
            # Its audit branches of then are stale; what users have made stays.
            stale = [name for name in md.refs_of(base) if is_ours(base, name)]
            helpers = {key: None for key in md.properties_of(base) if key.startswith(HELPER_PREFIX)}
            former = MetadataChange(base).remove_refs(*stale).properties(helpers)
            return self._replacement(entry, live, former)
        change = MetadataChange(document)
        if entry.how == "clone" or md.definition(document) != md.definition(base):
            restored = with_helpers_of(document, restore(document, base, document))
            change = difference(document, restored)
        return self._successor(entry, live, _main_back(entry, change))

    def _same_rows_can_come(self, entry: PublishedEntry, document: md.Document) -> bool:
        """Whether nothing but `main` has to move: the table has the base, and is as it was then."""
        if entry.how != "branch" or entry.base is None or md.snapshot(document, entry.base) is None:
            return False
        published = self._published(entry)
        return published is None or md.definition(document) == md.definition(published)

    def _published(self, entry: PublishedEntry) -> md.Document | None:
        try:
            return self.load(entry.published_metadata_location)
        except CatalogError:
            # Logs of metadata are cut; a snapshot is found in no table but its own.
            return None

    def _present(self, entry: PublishedEntry, live: Pointer) -> md.Document:
        document = self.load(live.location)
        require_main(entry.identifier, document, entry.candidate)
        return document

    def _base(self, entry: PublishedEntry) -> md.Document:
        try:
            return self.load(str(entry.base_metadata_location))
        except CatalogError as error:
            expected = f"metadata {entry.base_metadata_location}"
            raise Differs(entry.identifier, "base", expected, "that it is gone") from error

    def _unmoved(self, entry: PublishedEntry, live: Pointer | None) -> Pointer:
        """The row, if it is the published one: for tables, with new branches or tags at most."""
        location = entry.published_metadata_location
        if live is not None and live.location == location:
            return live
        if live is not None and live.kind == "table" and entry.how != "view":
            document = self.load(live.location)
            log = document.get("metadata-log") or ()
            if any(step["metadata-file"] == location for step in log):
                require_main(entry.identifier, document, entry.candidate)
                return live
        what = "what stands there"
        raise Differs(entry.identifier, what, f"metadata {location}", row_words(live))

    def _successor(self, entry: PublishedEntry, live: Pointer, change: MetadataChange) -> MovePlan:
        document = change.document(live.location)
        location = md.next_location(document, live.location)
        after = Pointer(entry.identifier, "table", location)
        return MovePlan(entry, [PointerUpdate(live, after, change)], {location: document})

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


@dataclass(frozen=True)
class StandsBefore:
    """Plans nothing for the entries of a publish that was rolled back before.

    Attributes:
        load: Reads a metadata document.
        rows: The rows of the entries that exist.
    """

    load: Load
    rows: Mapping[Identifier, Pointer]

    def plan(self, entry: PublishedEntry) -> MovePlan:
        """A plan without changes.

        Raises:
            Differs: The table or view is not what it was before the publish.
        """
        live = self.rows.get(entry.identifier)
        if entry.how in ("branch", "clone"):
            live = require_table(entry.identifier, live)
            document = self.load(live.location)
            require_main(entry.identifier, document, entry.base)
        elif (live.location if live else None) != entry.base_metadata_location:
            location = entry.base_metadata_location
            expected = f"metadata {location}" if location else "nothing"
            raise Differs(entry.identifier, "what stands there", expected, row_words(live))
        return MovePlan(entry, [PointerUpdate(live, live)] if live else [], {})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate that can be audited again.

    Attributes:
        how: ``branch``, or ``side``.
        base: What ``main`` is now.
        base_metadata: Metadata file at the live name now; None for nothing.
        snapshot: For a branch, its head.
        metadata: For a side object, its metadata file.
    """

    how: str
    base: int | None
    base_metadata: str | None
    snapshot: int | None
    metadata: str | None


@dataclass(frozen=True)
class Reopener:
    """Puts the candidates of a publish back on their audit branch, after its rollback.

    Attributes:
        load: Reads a metadata document.
        branch: The audit branch.
        warehouse: Where folders of views go.
        standing: Rows that stand in the side schemas of the branch.
    """

    load: Load
    branch: str
    warehouse: str
    standing: Mapping[Identifier, Pointer]

    def reopen(
        self, plans: Sequence[MovePlan]
    ) -> tuple[list[MovePlan], dict[Identifier, Candidate]]:
        """Extend the plans of a rollback.

        Args:
            plans: What the rollback does, by entry.

        Returns:
            The plans, and for each entry its candidate.

        Raises:
            Differs: A candidate is there no more, or the branch is in use again.
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
            raise Differs(entry.identifier, what, "no such branch", "one that is in use again")
        change = MetadataChange(document).branch(self.branch, entry.candidate)
        if entry.base is None:
            change = change.properties({empty_base(self.branch): "none"})
        else:
            change = change.tag(base_tag(self.branch), entry.base)
        grown = change.document(swap.after.location)
        location = md.next_location(grown, swap.after.location)
        after = Pointer(entry.identifier, "table", location)
        candidate = Candidate("branch", entry.base, location, entry.candidate, None)
        return MovePlan(
            entry, [PointerUpdate(swap.before, after, change)], {location: grown}
        ), candidate

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
                **GUARD_VALUES,
                BASE_METADATA: after.location,
                BASE_SNAPSHOT: "" if entry.base is None else str(entry.base),
            }
            document = MetadataChange(published).properties(changes).document(location)
            location = md.next_location(document, location)
        kind: Kind = "view" if md.is_view(published) else "table"
        writes = {**plan.writes, **({location: document} if document is not None else {})}
        swaps = [*plan.swaps, PointerUpdate(None, Pointer(beside, kind, location))]
        now = after.location if after else None
        candidate = Candidate("side", entry.base, now, None, location)
        return replace(plan, swaps=swaps, writes=writes), candidate

    def _published(self, entry: PublishedEntry) -> md.Document:
        try:
            return self.load(entry.published_metadata_location)
        except CatalogError as error:
            expected = f"metadata {entry.published_metadata_location}"
            raise Differs(entry.identifier, "candidate", expected, "that it is gone") from error


def restore(document: md.Document, base: md.Document, published: md.Document) -> dict[str, Any]:
    """Today's metadata with the definition and the properties that it had in ``base``.

    The format version stays, as Iceberg cannot go back in it. Properties that were changed after
    the publish keep their present values.
    """
    restored: dict[str, Any] = dict(document)
    for key in (*_CURRENT, *_V1_ONLY):
        if key in base:
            restored[key] = base[key]
    before, after = md.properties_of(base), md.properties_of(published)
    properties = md.properties_of(document)
    for key in {*before, *after}:
        # The audit branch was opened between the two: the gate stays on.
        if key != md.WAP_ENABLED and properties.get(key) == after.get(key):
            properties.pop(key, None)
            if key in before:
                properties[key] = before[key]
    restored["properties"] = properties
    return restored


def with_helpers_of(document: md.Document, restored: Mapping[str, Any]) -> dict[str, Any]:
    """Restored metadata with what the present one notes of its open audit branches."""
    kept = {k: v for k, v in restored["properties"].items() if not k.startswith(HELPER_PREFIX)}
    own = {k: v for k, v in md.properties_of(document).items() if k.startswith(HELPER_PREFIX)}
    return {**restored, "properties": {**kept, **own}}


def _main_back(entry: PublishedEntry, change: MetadataChange) -> MetadataChange:
    if entry.base is None:
        return change.remove_refs(md.MAIN)
    if md.snapshot(change.base, entry.base) is None:
        what = "base"
        raise Differs(entry.identifier, what, snapshot_words(entry.base), "that it has expired")
    return change.branch(md.MAIN, entry.base)
