"""Plans a publish: from audited candidates to the metadata that readers get.

Pure: a `Publisher` reads rows and metadata documents, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog import views
from sparkwap.catalog.branches import (
    BASE_TABLE,
    GUARDS,
    HELPER_PREFIX,
    clone_base,
    cloned_identity,
    empty_base,
    is_clone,
)
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.content_equality import (
    follows_compaction,
    has_grown_from,
    same_rows,
    shows_columns_of,
)
from sparkwap.catalog.difference import difference
from sparkwap.catalog.model import Candidate, How, Identifier, PublishedEntry
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
from sparkwap.core.errors import MetadataFileMissing
from sparkwap.core.names import base_tag


@dataclass(frozen=True)
class Publisher:
    """Plans the publish of each candidate.

    Attributes:
        rows: The existing rows among the live names and side names of the publish.
        tag: The receipt on each published snapshot.
        tag_max_age_ms: How long the tag keeps its snapshot; None for ever.
        schemas: Side schema -> schema, for all side schemas of the audit branch.
    """

    load: Load
    rows: Mapping[Identifier, Pointer]
    branch: str
    tag: str
    tag_max_age_ms: int | None
    schemas: Mapping[str, str]

    def plan(self, candidate: Candidate) -> MovePlan:
        """Return the plan for one candidate.

        Raises:
            Differs: The catalog does not have the audited candidate or its base any more.
        """
        if candidate.how == "branch":
            return self._branch(candidate)
        side = self.rows.get(candidate.place)
        if side is None or side.location != candidate.token:
            expected = f"metadata {candidate.token}"
            raise Differs(candidate.identifier, "side object", expected, row_words(side), "side")
        document = self.load(side.location)
        if side.kind == "view":
            return self._view(candidate, side, document)
        if is_clone(document):
            return self._clone(candidate, side, document)
        return self._table(candidate, side, document)

    def _branch(self, candidate: Candidate) -> MovePlan:
        identifier, branch, base = candidate.identifier, candidate.branch, candidate.base
        wanted = candidate.head
        live = require_table(identifier, self.rows.get(identifier))
        document = self.load(live.location)
        if not follows_compaction(document, base, document, wanted):
            require_main(identifier, document, base)
        ref = md.refs_of(document).get(branch)
        head = ref.snapshot_id if ref is not None and ref.type == "branch" else None
        if head != wanted:
            what = f"audit branch '{branch}'"
            expected = snapshot_words(wanted)
            found = "no such branch" if head is None else snapshot_words(head)
            raise Differs(identifier, what, expected, found, "branch")
        if not has_grown_from(document, wanted, base):
            what = f"history of audit branch '{branch}'"
            expected = f"a history that starts from {snapshot_words(base)}"
            raise Differs(identifier, what, expected, "another history", "history")
        # Without a new snapshot there are no audited rows that `main` does not have yet.
        if wanted != base and not shows_columns_of(document, wanted):
            found = f"other columns in {live.location}"
            raise Differs(identifier, "definition", "the audited columns", found, "definition")
        # A discard or a sweep drops the tag with the branch. If the run writes again afterwards,
        # Spark creates the branch again, without the earlier rows of the run.
        tag = md.refs_of(document).get(base_tag(branch))
        opened = empty_base(branch) in md.properties_of(document)
        if (tag is None or tag.snapshot_id != base) and not (opened and base is None):
            what = f"base of audit branch '{branch}'"
            found = "no base tag" if tag is None else snapshot_words(tag.snapshot_id)
            raise Differs(identifier, what, snapshot_words(base), found, "branch")
        properties = md.properties_of(document)
        if not md.is_gated(properties):
            gated = properties.get(md.WAP_ENABLED)
            # Without it the writes of a session go to `main`, not to the branch.
            raise Differs(identifier, f"property {md.WAP_ENABLED}", "true", str(gated), "branch")
        change = (
            MetadataChange(document)
            .branch(md.MAIN, wanted)
            .remove_refs(branch, base_tag(branch))
            .properties({md.WAP_ENABLED: "true", empty_base(branch): None})
        )
        return self._table_plan(identifier, "branch", live, None, change, document)

    def _table(self, candidate: Candidate, side: Pointer, document: md.Document) -> MovePlan:
        live = self._expected(candidate)
        change = MetadataChange(document).properties({md.WAP_ENABLED: "true"})
        how: How = "new" if live is None else "replace"
        base = self.load(live.location) if live is not None else None
        return self._table_plan(candidate.identifier, how, live, side, change, base)

    def _clone(self, candidate: Candidate, side: Pointer, document: md.Document) -> MovePlan:
        identifier = candidate.identifier
        live = require_table(identifier, self.rows.get(identifier))
        present = self.load(live.location)
        base_location, base_snapshot = clone_base(document)
        identity = cloned_identity(md.properties_of(document), md.identity(document))
        if md.identity(present) != identity:
            expected = f"table {identity}"
            raise Differs(identifier, "table", expected, f"table {md.identity(present)}", "table")
        head = md.main_of(document)
        if head is None or not follows_compaction(present, base_snapshot, document, head):
            require_main(identifier, present, base_snapshot)
        try:
            base = self.load(base_location)
        except MetadataFileMissing as error:
            found = "that the file is gone"
            raise Differs(
                identifier, "definition", f"as in {base_location}", found, "definition"
            ) from error
        if md.definition(base) != md.definition(present):
            expected = f"as in {base_location}"
            found = f"as in {live.location}"
            raise Differs(identifier, "definition", expected, found, "definition")
        if head is None and base_snapshot is not None:
            raise Differs(identifier, "side object", "a snapshot on main", "no snapshot", "side")
        merged = merge_clone(document, present, base, self.branch)
        change = difference(present, merged)
        if head is not None:
            change = change.branch(md.MAIN, head)
        return self._table_plan(identifier, "clone", live, side, change, present)

    def _view(self, candidate: Candidate, side: Pointer, document: md.Document) -> MovePlan:
        live = self._expected(candidate)
        live_view = self.load(live.location) if live is not None and live.kind == "view" else None
        published = views.publishable(document, live_view, self.schemas)
        unaudited = views.reads_unaudited(published, self.schemas, {self.branch})
        if unaudited is not None:
            wanted = "a text that reads published tables"
            raise Differs(candidate.identifier, "view", wanted, f"a text that {unaudited}", "side")
        location = md.next_location(published, live.location if live else side.location)
        how: How = "replace" if live is not None and live.kind == "table" else "view"
        base = self.load(live.location) if live is not None else None
        entry = PublishedEntry(
            candidate.identifier,
            how,
            md.main_of(base) if base is not None else None,
            live.location if live else None,
            None,
            location,
        )
        after = Pointer(candidate.identifier, "view", location)
        return MovePlan(entry, _swaps(live, side, after), {location: published})

    def _expected(self, candidate: Candidate) -> Pointer | None:
        live = self.rows.get(candidate.identifier)
        base = candidate.base_metadata
        if (live.location if live else None) != base and not self._is_as_good(base, live):
            expected = f"metadata {base}" if base else "nothing"
            found = row_words(live)
            raise Differs(candidate.identifier, "live object", expected, found, "standing")
        return live

    def _is_as_good(self, base: str | None, live: Pointer | None) -> bool:
        """Return whether the table to be replaced still has the expected rows and definition.

        Another run's branch or tag, or a compaction, does not stop the publish, because the
        replacement shares no files with the table.
        """
        if live is None or live.kind != "table" or base is None:
            return False
        try:
            before = self.load(base)
        except MetadataFileMissing:
            return False  # The file was deleted, so nothing proves the earlier state.
        now = self.load(live.location)
        return (
            not md.is_view(before)
            and md.identity(before) == md.identity(now)
            and md.definition(before) == md.definition(now)
            and same_rows(now, md.main_of(before), md.main_of(now))
        )

    def _table_plan(
        self,
        identifier: Identifier,
        how: How,
        live: Pointer | None,
        side: Pointer | None,
        change: MetadataChange,
        base: md.Document | None,
    ) -> MovePlan:
        candidate = md.main_of(change.applied(0))
        if candidate is not None:
            change = self._with_receipt(identifier, change, candidate)
        grown_from = live if how in ("branch", "clone") else side
        former = grown_from.location if grown_from else None
        document = change.document(former)
        location = md.next_location(document, former)
        entry = PublishedEntry(
            identifier,
            how,
            md.main_of(base) if base is not None else None,
            live.location if live else None,
            candidate,
            location,
        )
        after = Pointer(identifier, "table", location)
        if how in ("branch", "clone"):
            swaps = [
                PointerUpdate(live, after, change),
                *([PointerUpdate(side, None)] if side else []),
            ]
        else:
            swaps = _swaps(live, side, after)
        return MovePlan(entry, swaps, {location: document})

    def _with_receipt(
        self, identifier: Identifier, change: MetadataChange, candidate: int
    ) -> MetadataChange:
        present = md.refs_of(change.applied(0)).get(self.tag)
        if present is not None and present.type == "branch":
            raise Differs(identifier, f"tag '{self.tag}'", "a tag or nothing", "a branch", "tag")
        return change.tag(self.tag, candidate, self.tag_max_age_ms)


def merge_clone(
    clone: md.Document, live: md.Document, base: md.Document, branch: str
) -> dict[str, Any]:
    """Return the live table's metadata with the definition and the new snapshots of its clone.

    Both started from ``base``. Changes of the live table since then stay: branches and tags,
    snapshots (new on other audit branches, or expired), properties. ``main`` stays where the live
    table has it; the caller then moves it to the clone's `main`, which is one entry in the history
    that readers see.

    The two sides may have assigned equal sequence numbers and row ids. Iceberg compares them only
    along one line of snapshots. New ones start after the higher of the two counters.
    """
    known = {entry["snapshot-id"] for entry in base.get("snapshots") or ()}
    own = [entry for entry in clone.get("snapshots") or () if entry["snapshot-id"] not in known]
    snapshots = md.union_by("snapshot-id", live.get("snapshots"), own)
    present = {entry["snapshot-id"] for entry in snapshots}
    base_refs = base.get("refs") or {}
    gained = {name: ref for name, ref in (clone.get("refs") or {}).items() if name not in base_refs}
    dropped = {branch, base_tag(branch)}
    refs = {**gained, **(live.get("refs") or {})}
    main = md.main_of(live)
    merged: dict[str, Any] = {
        **clone,
        "snapshots": sorted(snapshots, key=_age),
        "refs": {name: ref for name, ref in refs.items() if name not in dropped},
        "snapshot-log": list(live.get("snapshot-log") or ()),
        "metadata-log": list(live.get("metadata-log") or ()),
        "properties": merge_properties(clone, live, base, branch),
        "last-updated-ms": max(clone["last-updated-ms"], live["last-updated-ms"]),
    }
    if BASE_TABLE in md.properties_of(clone):
        # Identity and folder are the clone's own.
        merged |= {key: live[key] for key in ("table-uuid", "location")}
        others = [*md.folders_of(live)[1:], str(clone["location"])]
        merged["properties"] = {**merged["properties"], **md.other_folders(others)}
    merged.pop("current-snapshot-id", None)
    if main is not None:
        merged["current-snapshot-id"] = main
    else:
        merged["refs"].pop(md.MAIN, None)
    for counter in ("last-sequence-number", "next-row-id"):
        numbers = [doc[counter] for doc in (clone, live) if doc.get(counter) is not None]
        if numbers:
            merged[counter] = max(numbers)
    for kind in ("statistics", "partition-statistics"):
        both = md.union_by("snapshot-id", live.get(kind), clone.get(kind))
        kept = [entry for entry in both if entry["snapshot-id"] in present]
        if kept or kind in clone or kind in live:
            merged[kind] = kept
    return merged


def merge_properties(
    clone: md.Document, live: md.Document, base: md.Document, branch: str
) -> dict[str, str]:
    """Return the clone's properties with the live table's changes since the base.

    Properties that sparkwap sets for its own use are the live table's.
    """
    ours, theirs, before = (md.properties_of(document) for document in (clone, live, base))
    merged = dict(ours)
    for key in {*theirs, *before}:
        if theirs.get(key) != before.get(key) and ours.get(key) == before.get(key):
            _take(merged, key, theirs)
    for key in {*GUARDS, *(key for key in {*ours, *theirs} if key.startswith(HELPER_PREFIX))}:
        _take(merged, key, theirs)
    merged.pop(empty_base(branch), None)
    return {**merged, md.WAP_ENABLED: "true"}


def _take(target: dict[str, str], key: str, source: Mapping[str, str]) -> None:
    if key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)


def _age(snapshot: md.Document) -> tuple[int, int]:
    return int(snapshot.get("sequence-number") or 0), int(snapshot["timestamp-ms"])


def _swaps(live: Pointer | None, side: Pointer | None, after: Pointer) -> list[PointerUpdate]:
    """Return the updates that remove the live row, if any, and move the side row to its name."""
    return [*([PointerUpdate(live, None)] if live else []), PointerUpdate(side, after)]
