"""Computes the change from one metadata document to another. Pure.

For changes that are easier to build as a whole document: the merge of a clone into its table, a
restored definition, an append by PyIceberg.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import DERIVED_BY_SERVER, MetadataChange, Update, ref_map, set_field

_KNOWN = frozenset(
    {
        # A REST catalog derives them from the updates, or from its clock.
        "current-snapshot-id", "last-column-id", "last-partition-id", "last-sequence-number",
        "last-updated-ms", "metadata-log", "next-row-id", "partition-spec", "schema",
        "snapshot-log",
        # Updates set them, so they can now differ in their order only.
        "current-schema-id", "default-sort-order-id", "default-spec-id", "format-version",
        "location", "partition-specs", "partition-statistics", "properties", "schemas",
        "snapshots", "sort-orders", "statistics",
    }
)  # fmt: skip
# A list of definitions, the id in it, and the two parts of the name of the present one.
_DEFINITIONS = (
    ("schemas", "schema-id", "current", "schema"),
    ("partition-specs", "spec-id", "default", "spec"),
    ("sort-orders", "order-id", "default", "sort-order"),
)


def difference(before: md.Document, after: md.Document) -> MetadataChange:
    """Return the change from one document of a table to its successor.

    The change includes all differences, so that `MetadataChange.document` returns ``after``, apart
    from the time of the change. For differences that no update can express, see
    `MetadataChange.refusal`.
    """
    change = MetadataChange(
        before,
        (
            *_properties(before, after),
            *_definition(before, after),
            *_snapshots_and_refs(before, after),
            *_statistics(before, after),
        ),
    )
    return change.then(*_remaining(change.applied(0), after))


def _remaining(grown: md.Document, after: md.Document) -> list[Update]:
    """Return updates for the fields that still differ after all other updates."""
    differing = [
        key
        for key in sorted({*grown, *after})
        if key != "refs" and _differ(grown.get(key), after.get(key))
    ]
    return [set_field(key, after.get(key), _reason(key)) for key in differing]


def _reason(field: str) -> str | None:
    if field == "table-uuid":
        return "it would become another table"
    return DERIVED_BY_SERVER if field in _KNOWN else f"no update changes {field}"


def view_updates(live: md.Document, document: md.Document) -> list[Update]:
    """Return the updates that give the view ``live`` the current version of ``document``.

    A schema or version that the view already has is referred to by its id. If it were added again,
    the server would notice that it exists, and fail because nothing was added.
    """
    version = md.current_version(document)
    schema = next(one for one in document["schemas"] if one["schema-id"] == version["schema-id"])
    updates = _properties(live, document)
    known = next((one for one in live["schemas"] if _same_but(one, schema, "schema-id")), None)
    if known is None:
        updates.append({"action": "add-schema", "schema": schema})
    schema_id = -1 if known is None else known["schema-id"]
    fresh = {**version, "schema-id": schema_id}
    before = [
        one for one in live["versions"] if _same_but(one, fresh, "version-id", "timestamp-ms")
    ]
    if before:
        wanted = before[-1]["version-id"]
    else:
        highest = max(one["version-id"] for one in live["versions"])
        fresh["version-id"], wanted = highest + 1, -1
        updates.append({"action": "add-view-version", "view-version": fresh})
    if wanted != live["current-version-id"]:
        updates.append({"action": "set-current-view-version", "view-version-id": wanted})
    return updates


def _same_but(one: md.Document, other: md.Document, *keys: str) -> bool:
    left, right = ({k: v for k, v in d.items() if k not in keys} for d in (one, other))
    return not _differ(left, right)


def _properties(before: md.Document, after: md.Document) -> list[Update]:
    gone = dict.fromkeys(md.properties_of(before))
    return [*MetadataChange(before).properties({**gone, **md.properties_of(after)}).updates]


def _definition(before: md.Document, after: md.Document) -> list[Update]:
    updates: list[Update] = []
    verbs = {"format-version": "upgrade-format-version", "location": "set-location"}
    for field, action in verbs.items():
        if before.get(field) != after.get(field):
            updates.append({"action": action, field: after[field]})
    for key, id_key, present, noun in _DEFINITIONS:
        updates += _listed(before, after, key, id_key, noun)
        field = f"{present}-{noun}-id"
        if before.get(field) != after.get(field):
            updates.append({"action": f"set-{present}-{noun}", f"{noun}-id": after[field]})
    return updates


def _listed(
    before: md.Document, after: md.Document, key: str, id_key: str, noun: str
) -> list[Update]:
    """Return the additions to a list of definitions; the server assigns the next free ids."""
    was = {one[id_key]: one for one in before.get(key) or ()}
    becomes = {one[id_key]: one for one in after.get(key) or ()}
    changed = [one for one in was if one in becomes and _differ(was[one], becomes[one])]
    if changed or set(was) - set(becomes):
        return [set_field(key, after.get(key), f"entries of {key} can only be added")]
    added = sorted(set(becomes) - set(was))
    first = max(was, default=-1) + 1
    if added != list(range(first, first + len(added))):
        return [set_field(key, after.get(key), f"{key} were added on both sides")]
    return [{"action": f"add-{noun}", noun: becomes[one]} for one in added]


def _differ(one: Any, other: Any) -> bool:
    """Return whether two definitions differ; an empty value equals a missing one."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return any(_differ(one.get(key), other.get(key)) for key in {*one, *other})
    if isinstance(one, list) and isinstance(other, list):
        return len(one) != len(other) or any(map(_differ, one, other))
    return (one or None) != (other or None)


def _snapshots_and_refs(before: md.Document, after: md.Document) -> list[Update]:
    """Return the updates of snapshots and refs.

    Snapshots are added before the refs that name them, and removed after them.
    """
    refs = _refs(before, after)
    was = {one["snapshot-id"]: one for one in before.get("snapshots") or ()}
    becomes = {one["snapshot-id"]: one for one in after.get("snapshots") or ()}
    if any(_differ(was[one], becomes[one]) for one in was if one in becomes):
        return [set_field("snapshots", after["snapshots"], "a snapshot would change"), *refs]
    added = sorted((becomes[one] for one in set(becomes) - set(was)), key=_age)
    last = int(before.get("last-sequence-number") or 0)
    if any(_age(one)[0] <= last and one.get("parent-snapshot-id") for one in added):
        # A REST catalog takes only snapshots that are newer than all that the table has.
        reason = "the table got other snapshots since"
        return [set_field("snapshots", after["snapshots"], reason), *refs]
    gone = sorted(set(was) - set(becomes))
    return [
        *({"action": "add-snapshot", "snapshot": one} for one in added),
        *refs,
        *([{"action": "remove-snapshots", "snapshot-ids": gone}] if gone else []),
    ]


def _age(snapshot: md.Document) -> tuple[int, int]:
    return int(snapshot.get("sequence-number") or 0), int(snapshot["timestamp-ms"])


def _refs(before: md.Document, after: md.Document) -> list[Update]:
    was, becomes = ref_map(before), ref_map(after)
    changed = sorted(name for name in becomes if was.get(name) != becomes[name])
    gone = sorted(set(was) - set(becomes))
    return [
        *({"action": "set-snapshot-ref", "ref-name": name, **becomes[name]} for name in changed),
        *({"action": "remove-snapshot-ref", "ref-name": name} for name in gone),
    ]


def _statistics(before: md.Document, after: md.Document) -> list[Update]:
    present = {one["snapshot-id"] for one in after.get("snapshots") or ()}
    updates: list[Update] = []
    for key in ("statistics", "partition-statistics"):
        was = {one["snapshot-id"]: one for one in before.get(key) or ()}
        becomes = {one["snapshot-id"]: one for one in after.get(key) or ()}
        lost = [one for one in was if one in present and one not in becomes]
        if lost or any(was.get(one) not in (None, becomes[one]) for one in becomes):
            updates.append(set_field(key, after.get(key), f"{key} would change"))
        else:
            updates += [
                {"action": f"set-{key}", key: becomes[one]} for one in becomes if one not in was
            ]
    return updates
