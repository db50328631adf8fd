"""A change of a table's metadata, as requirements and updates of Iceberg's REST protocol.

A SQL catalog takes a whole metadata document, so the updates are applied here (`document`). A REST
catalog writes its metadata itself, so the updates are posted (`requirements`, `posted`). The action
``set-field`` is not part of the protocol. It sets a field that no update can set. Its reason says
why a REST catalog cannot make the change; it has no reason if a REST catalog derives the field.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.sparksql import inner_fields

Update = Mapping[str, Any]

DERIVED_BY_SERVER: str | None = None
"""The reason of a ``set-field`` that a REST catalog does not need."""

_MAX_LOG = "write.metadata.previous-versions-max"
_MAX_LOG_DEFAULT = 100
_REF_FIELDS = (
    "snapshot-id", "type", "max-ref-age-ms", "max-snapshot-age-ms", "min-snapshots-to-keep",
)  # fmt: skip
_DEFINITION_UPDATES = frozenset(
    {
        "upgrade-format-version", "set-location", "add-schema", "set-current-schema", "add-spec",
        "set-default-spec", "add-sort-order", "set-default-sort-order",
    }
)  # fmt: skip
_REQUIRED_DEFINITION = (
    ("assert-current-schema-id", "current-schema-id", "current-schema-id"),
    ("assert-default-spec-id", "default-spec-id", "default-spec-id"),
    ("assert-default-sort-order-id", "default-sort-order-id", "default-sort-order-id"),
    ("assert-last-assigned-field-id", "last-assigned-field-id", "last-column-id"),
    ("assert-last-assigned-partition-id", "last-assigned-partition-id", "last-partition-id"),
)


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """A change of the metadata of one table.

    Attributes:
        updates: The updates, in the order in which they are applied.
        held: Branches and tags that must be as in ``base``, although no update names them.
    """

    base: md.Document
    updates: tuple[Update, ...] = ()
    held: frozenset[str] = frozenset()

    # Adding updates

    def branch(self, name: str, snapshot_id: int) -> MetadataChange:
        """Point a branch to a snapshot, and keep its retention."""
        former = self._ref(name) or {}
        kept = former if former.get("type") == "branch" else {}
        return self._set_ref(name, {**kept, "snapshot-id": snapshot_id, "type": "branch"})

    def tag(self, name: str, snapshot_id: int, max_age_ms: int | None = None) -> MetadataChange:
        """Set a tag, which expires ``max_age_ms`` after its snapshot was written."""
        age = {} if max_age_ms is None else {"max-ref-age-ms": max_age_ms}
        return self._set_ref(name, {"snapshot-id": snapshot_id, "type": "tag", **age})

    def remove_refs(self, *names: str) -> MetadataChange:
        """Remove branches and tags that exist; without ``main`` the table is empty."""
        gone = [name for name in dict.fromkeys(names) if self._ref(name) is not None]
        return self.then(*({"action": "remove-snapshot-ref", "ref-name": name} for name in gone))

    def properties(self, changes: Mapping[str, str | None]) -> MetadataChange:
        """Set properties; None removes one."""
        was = md.properties_of(self.applied(0))
        changed = {k: v for k, v in changes.items() if v is not None and was.get(k) != v}
        gone = sorted(key for key, value in changes.items() if value is None and key in was)
        return self.then(
            *([{"action": "set-properties", "updates": changed}] if changed else []),
            *([{"action": "remove-properties", "removals": gone}] if gone else []),
        )

    def add_snapshot(self, snapshot: md.Document) -> MetadataChange:
        """Add a snapshot, without moving a branch."""
        return self.then({"action": "add-snapshot", "snapshot": snapshot})

    def remove_snapshots(self, snapshot_ids: Collection[int]) -> MetadataChange:
        """Remove snapshots that no branch or tag names, with their statistics."""
        if not snapshot_ids:
            return self
        return self.then({"action": "remove-snapshots", "snapshot-ids": sorted(snapshot_ids)})

    def holding(self, *names: str) -> MetadataChange:
        """Return the change with the requirement that these branches or tags have not changed."""
        return replace(self, held=self.held | set(names))

    def then(self, *updates: Update) -> MetadataChange:
        """Return the change with more updates at the end."""
        return replace(self, updates=(*self.updates, *updates))

    def _set_ref(self, name: str, ref: Mapping[str, Any]) -> MetadataChange:
        if self._ref(name) == ref:
            return self
        return self.then({"action": "set-snapshot-ref", "ref-name": name, **ref})

    def _ref(self, name: str) -> dict[str, Any] | None:
        return ref_map(self.applied(0)).get(name)

    # For a REST catalog

    @property
    def requirements(self) -> list[Update]:
        """The conditions of the change.

        The table is the same; ``main`` and all changed or held branches and tags are as in
        ``base``; if the definition or ``main`` changes, so is the present definition.
        """
        refs = ref_map(self.base)
        touched = {update["ref-name"] for update in self.updates if "ref-name" in update}
        requirements: list[Update] = [
            {"type": "assert-table-uuid", "uuid": md.identity(self.base)},
            *(
                {
                    "type": "assert-ref-snapshot-id",
                    "ref": name,
                    "snapshot-id": refs[name]["snapshot-id"] if name in refs else None,
                }
                for name in sorted({md.MAIN, *self.held, *touched})
            ),
        ]
        if md.MAIN in touched or any(u["action"] in _DEFINITION_UPDATES for u in self.updates):
            requirements += [
                {"type": kind, field: self.base[key]}
                for kind, field, key in _REQUIRED_DEFINITION
                if self.base.get(key) is not None
            ]
        return requirements

    @property
    def posted(self) -> list[Update]:
        """The updates for a REST catalog; empty if nothing changes there."""
        return [update for update in self.updates if update["action"] != "set-field"]

    @property
    def refusal(self) -> str | None:
        """The reason why a REST catalog cannot make the change; None if it can."""
        reasons = [u["reason"] for u in self.updates if u["action"] == "set-field"]
        return next((reason for reason in reasons if reason is not DERIVED_BY_SERVER), None)

    def is_made(self, found: md.Document) -> bool | None:
        """Return whether the document ``found`` includes the change, even if others followed.

        None if it does not show: others have changed the same branches and properties since.
        """
        after = self.applied(0)
        was, becomes, has = (_snapshots(document) for document in (self.base, after, found))
        added = becomes.keys() - was.keys()
        if added:
            # Others may have moved the branch on. Those who add many snapshots remove old ones.
            if added <= has.keys():
                return True
            number = max(becomes[one] for one in added)
            return False if any(other <= number for other in has.values()) else None
        removed = was.keys() - becomes.keys()
        if removed & has.keys():
            return False
        for signs in (ref_map, _other_signs):
            old, new, now = (signs(document) for document in (self.base, after, found))
            changed = [key for key in {*old, *new} if old.get(key) != new.get(key)]
            if changed and all(now.get(key) == new.get(key) for key in changed):
                return True
            if changed:
                same = all(now.get(key) == old.get(key) for key in changed)
                return False if same else None
        return True if removed or not self.posted else None

    # For a SQL catalog

    def document(self, metadata_location: str | None) -> md.Document:
        """Return the metadata document after the change.

        Args:
            metadata_location: The file of the present document, which becomes the last entry of
                the metadata log; None to leave the log unchanged.
        """
        # The clocks of writers differ, but Iceberg requires the logs in order of time.
        now = max(int(time.time() * 1000), int(self.base.get("last-updated-ms") or 0))
        document = self.applied(now)
        former = int(document.get("last-updated-ms") or now)
        log = _in_order(document.get("snapshot-log") or ())
        if log:
            document["snapshot-log"] = log
        times = [now, former, *(one["timestamp-ms"] for one in log[-1:])]
        document["last-updated-ms"] = max(times)
        if metadata_location is not None:
            limit = max(1, int(md.properties_of(document).get(_MAX_LOG, _MAX_LOG_DEFAULT)))
            entry = {"metadata-file": metadata_location, "timestamp-ms": former}
            document["metadata-log"] = [*(document.get("metadata-log") or ()), entry][-limit:]
        return document

    def applied(self, now: int) -> dict[str, Any]:
        """Return ``base`` with the updates, without a new time and metadata log entry.

        Args:
            now: The time for the snapshot log if ``main`` moves, in milliseconds.
        """
        document = dict(self.base)
        for update in self.updates:
            _APPLY[update["action"]](document, update, now)
        return document


def set_field(field: str, value: Any, reason: str | None) -> Update:
    """Return the update that sets a field, or removes it if ``value`` is None; see the module."""
    return {"action": "set-field", "field": field, "value": value, "reason": reason}


def ref_map(document: md.Document) -> dict[str, dict[str, Any]]:
    """Return branches and tags in the protocol's form; always with ``main`` if it exists."""
    return {
        name: {key: ref[key] for key in _REF_FIELDS if ref.get(key) is not None}
        for name, ref in md.raw_refs(document).items()
    }


def _snapshots(document: md.Document) -> dict[int, int]:
    """Return the id and the sequence number of each snapshot."""
    found = document.get("snapshots") or ()
    return {one["snapshot-id"]: int(one.get("sequence-number") or 0) for one in found}


def _other_signs(document: md.Document) -> dict[Any, Any]:
    """Return what an update can change beside snapshots, branches and tags, by its name."""
    found = {("property", key): text for key, text in md.properties_of(document).items()}
    found |= {("definition", key): value for key, value in md.definition(document).items()}
    for kind in ("statistics", "partition-statistics"):
        for one in document.get(kind) or ():
            found[kind, one["snapshot-id"]] = one.get("statistics-path", "")
    return found


# -- each of these applies one update to a document in place --------------------------------------

_Apply = Callable[[dict[str, Any], Update, int], None]


def _set_properties(document: dict[str, Any], update: Update, now: int) -> None:
    document["properties"] = {**md.properties_of(document), **update["updates"]}


def _remove_properties(document: dict[str, Any], update: Update, now: int) -> None:
    kept = md.properties_of(document).items()
    document["properties"] = {k: v for k, v in kept if k not in update["removals"]}


def _set_ref(document: dict[str, Any], update: Update, now: int) -> None:
    name, snapshot_id = update["ref-name"], update["snapshot-id"]
    ref = {key: update[key] for key in _REF_FIELDS if update.get(key) is not None}
    document["refs"] = {**md.raw_refs(document), name: ref}
    if name == md.MAIN and md.main_of(document) != snapshot_id:
        document["current-snapshot-id"] = snapshot_id
        # Time travel by timestamp reads this log.
        entry = {"snapshot-id": snapshot_id, "timestamp-ms": now}
        document["snapshot-log"] = [*(document.get("snapshot-log") or ()), entry]


def _remove_ref(document: dict[str, Any], update: Update, now: int) -> None:
    gone = update["ref-name"]
    document["refs"] = {name: ref for name, ref in md.raw_refs(document).items() if name != gone}
    if gone == md.MAIN:
        document.pop("current-snapshot-id", None)


def _add_snapshot(document: dict[str, Any], update: Update, now: int) -> None:
    snapshot = update["snapshot"]
    document["snapshots"] = [*(document.get("snapshots") or ()), snapshot]
    if "sequence-number" in snapshot:
        last = int(document.get("last-sequence-number") or 0)
        document["last-sequence-number"] = max(last, int(snapshot["sequence-number"]))
    if snapshot.get("first-row-id") is not None:
        following = int(snapshot["first-row-id"]) + int(snapshot.get("added-rows") or 0)
        document["next-row-id"] = max(int(document.get("next-row-id") or 0), following)


def _remove_snapshots(document: dict[str, Any], update: Update, now: int) -> None:
    gone = set(update["snapshot-ids"])
    # Like Iceberg, restart the snapshot log after a removed snapshot: with a gap in the log, time
    # travel would show a wrong state.
    log: list[Any] = []
    for entry in document.get("snapshot-log") or ():
        log = [] if entry["snapshot-id"] in gone else [*log, entry]
    document["snapshot-log"] = log
    for kind in ("snapshots", "statistics", "partition-statistics"):
        if kind in document:
            document[kind] = [one for one in document[kind] if one["snapshot-id"] not in gone]


def _set_value(field: str, key: str) -> _Apply:
    def apply(document: dict[str, Any], update: Update, now: int) -> None:
        document[field] = update[key]

    return apply


def _add_to(field: str, key: str) -> _Apply:
    def apply(document: dict[str, Any], update: Update, now: int) -> None:
        document[field] = [*(document.get(field) or ()), update[key]]

    return apply


def _add_schema(document: dict[str, Any], update: Update, now: int) -> None:
    _add_to("schemas", "schema")(document, update, now)
    _count_on(document, "last-column-id", _field_ids(update["schema"]))


def _add_spec(document: dict[str, Any], update: Update, now: int) -> None:
    _add_to("partition-specs", "spec")(document, update, now)
    ids = (field["field-id"] for field in update["spec"].get("fields") or ())
    _count_on(document, "last-partition-id", ids)


def _count_on(document: dict[str, Any], counter: str, ids: Iterable[int]) -> None:
    highest = max(ids, default=0)
    if highest > int(document.get(counter) or 0):
        document[counter] = highest


def _field_ids(kind: Any) -> Iterable[int]:
    """Yield the ids of all fields of a type, including nested fields."""
    for number, _, inner, _ in inner_fields(kind):
        yield number
        yield from _field_ids(inner)


def _set_field(document: dict[str, Any], update: Update, now: int) -> None:
    if update["value"] is None:
        document.pop(update["field"], None)
    else:
        document[update["field"]] = update["value"]


_APPLY: Mapping[str, _Apply] = {
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "set-snapshot-ref": _set_ref,
    "remove-snapshot-ref": _remove_ref,
    "add-snapshot": _add_snapshot,
    "remove-snapshots": _remove_snapshots,
    "set-statistics": _add_to("statistics", "statistics"),
    "set-partition-statistics": _add_to("partition-statistics", "partition-statistics"),
    "upgrade-format-version": _set_value("format-version", "format-version"),
    "set-location": _set_value("location", "location"),
    "add-schema": _add_schema,
    "set-current-schema": _set_value("current-schema-id", "schema-id"),
    "add-spec": _add_spec,
    "set-default-spec": _set_value("default-spec-id", "spec-id"),
    "add-sort-order": _add_to("sort-orders", "sort-order"),
    "set-default-sort-order": _set_value("default-sort-order-id", "sort-order-id"),
    "set-field": _set_field,
}


def _in_order(log: Iterable[md.Document]) -> list[md.Document]:
    """Return the snapshot log with no entry earlier than the entry before it.

    PyIceberg writes the time of its clock, which may have been set back. Spark refuses a table
    whose log goes back by more than a minute.
    """
    latest = 0
    found: list[md.Document] = []
    for entry in log:
        latest = max(latest, entry["timestamp-ms"])
        found.append({**entry, "timestamp-ms": latest})
    return found
