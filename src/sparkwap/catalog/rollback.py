"""Rolling a publish back: the metadata that readers had before, grown out of today's.

Pure, as `publish` is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import Identifier, Kind, PublishedEntry
from sparkwap.catalog.planning import (
    Differs,
    Load,
    Plan,
    require_main,
    require_table,
    row_words,
    snapshot_words,
)
from sparkwap.catalog.rows import Row, Swap

_CURRENT = ("current-schema-id", "default-spec-id", "default-sort-order-id", "location")
_V1_ONLY = ("schema", "partition-spec")


@dataclass(frozen=True)
class Undoer:
    """Plans the rollback of each entry of a publish.

    Attributes:
        load: Reads a metadata document.
        rows: The rows of the entries that exist.
    """

    load: Load
    rows: Mapping[Identifier, Row]

    def plan(self, entry: PublishedEntry) -> Plan:
        """The plan for one entry.

        Raises:
            Differs: The table or view moved on since the publish.
        """
        live = self.rows.get(entry.identifier)
        if entry.how == "branch":
            return self._branch(entry, require_table(entry.identifier, live))
        if entry.how == "clone":
            return self._clone(entry, require_table(entry.identifier, live))
        return self._former(entry, self._unmoved(entry, live))

    def _branch(self, entry: PublishedEntry, live: Row) -> Plan:
        document = self._present(entry, live)
        edit = _main_back(entry, md.Edit(document, live.location), document)
        return self._successor(entry, live, edit)

    def _clone(self, entry: PublishedEntry, live: Row) -> Plan:
        document = self._present(entry, live)
        base = self.load(str(entry.base_metadata_location))
        published = self.load(entry.published_metadata_location)
        if md.definition(document) != md.definition(published):
            expected = f"as in {entry.published_metadata_location}"
            raise Differs(entry.identifier, "definition", expected, f"as in {live.location}")
        restored = restore(document, base, published)
        edit = _main_back(entry, md.Edit(restored, live.location), document)
        return self._successor(entry, live, edit)

    def _former(self, entry: PublishedEntry, live: Row) -> Plan:
        location = entry.base_metadata_location
        if location is None:
            return Plan(entry, [Swap(live, None)], {})
        kind: Kind = "view" if md.is_view(self.load(location)) else "table"
        former = Row(entry.identifier, kind, location)
        return Plan(entry, [Swap(live, former, replaces=True)], {})

    def _present(self, entry: PublishedEntry, live: Row) -> md.Document:
        document = self.load(live.location)
        require_main(entry.identifier, document, entry.candidate)
        return document

    def _unmoved(self, entry: PublishedEntry, live: Row | None) -> Row:
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

    def _successor(self, entry: PublishedEntry, live: Row, edit: md.Edit) -> Plan:
        document = edit.build()
        location = md.next_location(document, live.location)
        after = Row(entry.identifier, "table", location)
        return Plan(entry, [Swap(live, after)], {location: document})


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


def _main_back(entry: PublishedEntry, edit: md.Edit, document: md.Document) -> md.Edit:
    if entry.base is None:
        return edit.remove_ref(md.MAIN)
    if md.snapshot(document, entry.base) is None:
        what = "base"
        raise Differs(entry.identifier, what, snapshot_words(entry.base), "that it has expired")
    return edit.branch(md.MAIN, entry.base)
