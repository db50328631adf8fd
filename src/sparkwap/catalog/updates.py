"""The step from one metadata document to the next, as the updates that REST catalogs take.

Pure. A SQL catalog takes a new metadata document as it is; a REST catalog writes its metadata
itself and takes *updates* under *requirements*. The two are equivalent as far as this module can
say what differs; what it cannot say, it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkwap.catalog import metadata as md

Update = Mapping[str, Any]

_REF_FIELDS = (
    "snapshot-id",
    "type",
    "max-ref-age-ms",
    "max-snapshot-age-ms",
    "min-snapshots-to-keep",
)
# Set by the server from what the updates say, or by the clock.
_DERIVED = frozenset(
    {
        "current-snapshot-id",
        "last-column-id",
        "last-partition-id",
        "last-sequence-number",
        "last-updated-ms",
        "metadata-log",
        "next-row-id",
        "partition-spec",
        "schema",
        "snapshot-log",
    }
)
_SAID = frozenset(
    {
        "current-schema-id",
        "default-sort-order-id",
        "default-spec-id",
        "format-version",
        "location",
        "partition-specs",
        "partition-statistics",
        "properties",
        "refs",
        "schemas",
        "snapshots",
        "sort-orders",
        "statistics",
        "table-uuid",
    }
)


class NotExpressible(Exception):
    """No updates lead from the one document to the other."""


@dataclass(frozen=True, slots=True)
class Change:
    """How a table's metadata changes.

    Attributes:
        requirements: What must be so for the change to be made.
        updates: What is changed, in the order in which it is applied; empty for nothing.
    """

    requirements: Sequence[Update]
    updates: Sequence[Update]


def change(before: md.Document, after: md.Document, held: Collection[str] = ()) -> Change:
    """The change from one document of a table to its successor.

    Required is that it is the same table, that ``main`` and each branch and tag that is touched
    or ``held`` are where they were, and, where the definition changes, that it is as it was. What
    else others change meanwhile is theirs, and stays.

    Raises:
        NotExpressible: Something differs that updates cannot say.
    """
    if md.identity(before) != md.identity(after):
        raise NotExpressible("it would become another table")
    unknown = [
        key
        for key in {*before, *after} - _SAID - _DERIVED
        if (before.get(key) or None) != (after.get(key) or None)
    ]
    if unknown:
        raise NotExpressible(f"no update changes {', '.join(sorted(unknown))}")
    definition = _definition(before, after)
    refs, removed = _refs(before, after)
    added, gone = _snapshots(before, after)
    updates = [
        *_properties(before, after),
        *definition,
        *added,
        *refs,
        *removed,
        *gone,
        *_statistics(before, after),
    ]
    if not updates:
        return Change([], [])
    touched = {md.MAIN, *held, *(update["ref-name"] for update in (*refs, *removed))}
    requirements = [_same_table(before), *_same_refs(before, touched)]
    if definition:
        requirements += _same_definition(before)
    return Change(requirements, updates)


def made(before: md.Document, after: md.Document, found: md.Document) -> bool:
    """Whether a table that was ``before`` has had the change to ``after``, whatever came later."""
    refs = {name for name in {*_ref_map(before), *_ref_map(after)} if _moved(before, after, name)}
    if refs:
        return all(_ref_map(found).get(name) == _ref_map(after).get(name) for name in refs)
    was, becomes, has = (md.properties_of(document) for document in (before, after, found))
    changed = {key for key in {*was, *becomes} if was.get(key) != becomes.get(key)}
    same = all(has.get(key) == becomes.get(key) for key in changed)
    return same and md.definition(found) == md.definition(after)


def view_updates(live: md.Document, document: md.Document) -> list[Update]:
    """The updates that make the current version of ``document`` that of the view ``live``.

    What the view has already, a schema or a whole version, is named rather than added: the server
    would find the two to be the same, and then say that nothing was added.
    """
    version = current_version(document)
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


def current_version(view: md.Document) -> Mapping[str, Any]:
    """The version of a view that readers see."""
    found: Mapping[str, Any] = next(
        one for one in view["versions"] if one["version-id"] == view["current-version-id"]
    )
    return found


def _properties(before: md.Document, after: md.Document) -> list[Update]:
    was, becomes = md.properties_of(before), md.properties_of(after)
    changed = {key: value for key, value in becomes.items() if was.get(key) != value}
    gone = sorted(set(was) - set(becomes))
    return [
        *([{"action": "set-properties", "updates": changed}] if changed else []),
        *([{"action": "remove-properties", "removals": gone}] if gone else []),
    ]


def _definition(before: md.Document, after: md.Document) -> list[Update]:
    updates: list[Update] = []
    if before.get("format-version") != after.get("format-version"):
        upgrade = {"action": "upgrade-format-version", "format-version": after["format-version"]}
        updates.append(upgrade)
    if before.get("location") != after.get("location"):
        updates.append({"action": "set-location", "location": after["location"]})
    updates += _listed(
        before, after, "schemas", "schema-id", lambda new: {"action": "add-schema", "schema": new}
    )
    updates += _current(before, after, "current-schema-id", "set-current-schema", "schema-id")
    updates += _listed(
        before,
        after,
        "partition-specs",
        "spec-id",
        lambda new: {"action": "add-spec", "spec": new},
    )
    updates += _current(before, after, "default-spec-id", "set-default-spec", "spec-id")
    updates += _listed(
        before,
        after,
        "sort-orders",
        "order-id",
        lambda new: {"action": "add-sort-order", "sort-order": new},
    )
    updates += _current(
        before, after, "default-sort-order-id", "set-default-sort-order", "sort-order-id"
    )
    return updates


def _listed(
    before: md.Document,
    after: md.Document,
    key: str,
    id_key: str,
    update: Callable[[Any], Update],
) -> list[Update]:
    """Additions to a list of definitions. The server counts their ids on from the highest."""
    was = {one[id_key]: one for one in before.get(key) or ()}
    becomes = {one[id_key]: one for one in after.get(key) or ()}
    changed = [one for one in was if one in becomes and _differ(was[one], becomes[one])]
    if changed or set(was) - set(becomes):
        raise NotExpressible(f"{key} can be added to only")
    added = sorted(set(becomes) - set(was))
    first = max(was, default=-1) + 1
    if added != list(range(first, first + len(added))):
        raise NotExpressible(f"{key} were added on both sides")
    return [update(becomes[one]) for one in added]


def _differ(one: Any, other: Any) -> bool:
    """Whether two definitions differ; a writer may leave out what is empty, or say it."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return any(_differ(one.get(key), other.get(key)) for key in {*one, *other})
    if isinstance(one, list) and isinstance(other, list):
        return len(one) != len(other) or any(map(_differ, one, other))
    return (one or None) != (other or None)


def _current(
    before: md.Document, after: md.Document, key: str, action: str, field: str
) -> list[Update]:
    if before.get(key) == after.get(key):
        return []
    return [{"action": action, field: after[key]}]


def _snapshots(before: md.Document, after: md.Document) -> tuple[list[Update], list[Update]]:
    was = {one["snapshot-id"]: one for one in before.get("snapshots") or ()}
    becomes = {one["snapshot-id"]: one for one in after.get("snapshots") or ()}
    if any(_differ(was[one], becomes[one]) for one in was if one in becomes):
        raise NotExpressible("a snapshot would change")
    added = sorted((becomes[one] for one in set(becomes) - set(was)), key=_age)
    last = int(before.get("last-sequence-number") or 0)
    if any(_age(one)[0] <= last and one.get("parent-snapshot-id") for one in added):
        # The catalog takes only snapshots that are newer than all that the table has.
        raise NotExpressible("the table got other snapshots since")
    gone = sorted(set(was) - set(becomes))
    return (
        [{"action": "add-snapshot", "snapshot": one} for one in added],
        [{"action": "remove-snapshots", "snapshot-ids": gone}] if gone else [],
    )


def _age(snapshot: md.Document) -> tuple[int, int]:
    return int(snapshot.get("sequence-number") or 0), int(snapshot["timestamp-ms"])


def _refs(before: md.Document, after: md.Document) -> tuple[list[Update], list[Update]]:
    was, becomes = _ref_map(before), _ref_map(after)
    changed = sorted(name for name in becomes if was.get(name) != becomes[name])
    return (
        [{"action": "set-snapshot-ref", "ref-name": name, **becomes[name]} for name in changed],
        [
            {"action": "remove-snapshot-ref", "ref-name": name}
            for name in sorted(set(was) - set(becomes))
        ],
    )


def _statistics(before: md.Document, after: md.Document) -> list[Update]:
    present = {one["snapshot-id"] for one in after.get("snapshots") or ()}
    for key in ("statistics", "partition-statistics"):
        was = {one["snapshot-id"]: one for one in before.get(key) or ()}
        becomes = {one["snapshot-id"]: one for one in after.get(key) or ()}
        lost = [one for one in was if one in present and one not in becomes]
        if lost or any(was.get(one) not in (None, becomes[one]) for one in becomes):
            raise NotExpressible(f"{key} would change")
    action = {"statistics": "set-statistics", "partition-statistics": "set-partition-statistics"}
    updates: list[Update] = []
    for key in action:
        was_ids = {one["snapshot-id"] for one in before.get(key) or ()}
        for one in after.get(key) or ():
            if one["snapshot-id"] not in was_ids:
                updates.append({"action": action[key], key: one})
    return updates


def _ref_map(document: md.Document) -> dict[str, dict[str, Any]]:
    found = {
        name: {key: ref[key] for key in _REF_FIELDS if ref.get(key) is not None}
        for name, ref in (document.get("refs") or {}).items()
    }
    main = md.main_of(document)
    if main is not None:
        found.setdefault(md.MAIN, {"snapshot-id": main, "type": "branch"})
    return found


def _moved(before: md.Document, after: md.Document, name: str) -> bool:
    return _ref_map(before).get(name) != _ref_map(after).get(name)


def _same_table(before: md.Document) -> Update:
    return {"type": "assert-table-uuid", "uuid": md.identity(before)}


def _same_refs(before: md.Document, names: set[str]) -> list[Update]:
    refs = _ref_map(before)
    return [
        {
            "type": "assert-ref-snapshot-id",
            "ref": name,
            "snapshot-id": refs[name]["snapshot-id"] if name in refs else None,
        }
        for name in sorted(names)
    ]


def _same_definition(before: md.Document) -> list[Update]:
    wanted = (
        ("assert-current-schema-id", "current-schema-id", "current-schema-id"),
        ("assert-default-spec-id", "default-spec-id", "default-spec-id"),
        ("assert-default-sort-order-id", "default-sort-order-id", "default-sort-order-id"),
        ("assert-last-assigned-field-id", "last-assigned-field-id", "last-column-id"),
        ("assert-last-assigned-partition-id", "last-assigned-partition-id", "last-partition-id"),
    )
    return [
        {"type": kind, field: before[key]}
        for kind, field, key in wanted
        if before.get(key) is not None
    ]
