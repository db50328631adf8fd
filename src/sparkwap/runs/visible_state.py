"""The state of a table or view that readers see, differences of states, and their restoration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import difference
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.planning import Differs, Load, snapshot_words
from sparkwap.catalog.pointers import Pointer
from sparkwap.core.names import is_publish_tag, publish_of_abort_tag
from sparkwap.gate.net import GONE, MAIN, NEW, REPLACED, TAGS
from sparkwap.publish.rollback import restore, with_helpers_of

_DEFINITION = ("current-schema-id", "default-spec-id", "default-sort-order-id", "location")


@dataclass(frozen=True, slots=True)
class VisibleState:
    """The state of a table or view that readers see, and the parts that the gate relies on.

    Attributes:
        identity: The UUID; for a view its metadata file, which each change of the text replaces.
        main: The current snapshot.
        definition: Schema, layout and location.
        receipts: The tags of publishes and rollbacks, with their snapshots.
        gated: Whether the table has ``write.wap.enabled``, so that runs write to audit branches.
    """

    kind: str
    identity: str
    main: int | None = None
    definition: tuple[Any, ...] = ()
    receipts: Mapping[str, int] | None = None
    gated: bool = False


def visible_state(row: Pointer, load: Load) -> VisibleState:
    """Return the state that readers see of a row."""
    if row.kind == "view":
        return VisibleState("view", row.location)
    document = load(row.location)
    receipts = {
        name: ref.snapshot_id for name, ref in md.refs_of(document).items() if _is_receipt(name)
    }
    return VisibleState(
        "table",
        md.identity(document),
        md.main_of(document),
        tuple(document.get(key) for key in _DEFINITION),
        receipts,
        md.is_gated(md.properties_of(document)),
    )


def differences(before: VisibleState | None, after: VisibleState | None) -> tuple[str, ...]:
    """Return the differences in words; new receipts and switching the gate on do not count."""
    if before is None or after is None:
        return () if before is after else (NEW if before is None else GONE,)
    if (before.kind, before.identity) != (after.kind, after.identity):
        return (REPLACED,)
    lost = {
        name
        for name, snapshot in (before.receipts or {}).items()
        if (after.receipts or {}).get(name) != snapshot
    }
    parts = {
        MAIN: before.main != after.main,
        "its schema or layout": before.definition != after.definition,
        f"{TAGS}{', '.join(sorted(lost))}": bool(lost),
        f"its property {md.WAP_ENABLED}": before.gated and not after.gated,
    }
    return tuple(part for part, differs in parts.items() if differs)


def came_to_main(old: md.Document | None, document: md.Document) -> list[md.Document]:
    """Return the new ancestors of ``main`` since ``old``, newest first.

    Snapshots that were on another branch before are included.
    """
    before = set(md.ancestor_ids(old, md.main_of(old))) if old is not None else set()
    found = []
    for snapshot in md.ancestors(document, md.main_of(document)):
        if snapshot["snapshot-id"] in before:
            break
        found.append(snapshot)
    return found


def left_main(old: md.Document, document: md.Document) -> list[md.Document]:
    """Return the snapshots that ``main`` had since the last check, and has left again."""
    there = {one["snapshot-id"] for one in (*came_to_main(None, old), *came_to_main(old, document))}
    ids = [one for one in _current_since(old, document) if one not in there]
    found = [md.snapshot(document, one) for one in dict.fromkeys(ids)]
    return [one for one in found if one is not None]


def _current_since(old: md.Document, document: md.Document) -> list[int]:
    since = int(old.get("last-updated-ms") or 0)
    log = document.get("snapshot-log") or ()
    return [int(one["snapshot-id"]) for one in log if one["timestamp-ms"] > since]


def put_back(
    identifier: Identifier, document: md.Document, old: md.Document, own: Collection[int]
) -> MetadataChange:
    """Return the change that removes a run's own changes from ``main``.

    Changes of other writers since then stay.

    Args:
        old: The metadata at the last check.
        own: The snapshots of the run on ``main``, which have to be removed.

    Raises:
        Differs: Others have written on top of these snapshots, or the former state is gone.
    """
    line = [int(one["snapshot-id"]) for one in came_to_main(old, document)]
    others = [one for one in line if one not in own]
    if others and set(line[: len(line) - len(others)]) != set(own) & set(line):
        raise Differs(
            identifier,
            md.MAIN,
            f"nothing on {snapshot_words(max(set(own) & set(line), key=line.index))}",
            f"{snapshot_words(others[0])} of another writer",
        )
    moved_definition = any(document.get(key) != old.get(key) for key in _DEFINITION)
    if moved_definition and others:
        expected = "no writes of others"
        raise Differs(identifier, "definition", expected, snapshot_words(others[0]))
    main = others[0] if others else _last_of_others(document, old, own)
    change = MetadataChange(document)
    if moved_definition:
        restored = with_helpers_of(document, restore(document, old, document))
        change = difference(document, restored)
    if main is None:
        change = change.remove_refs(md.MAIN)
    elif md.snapshot(document, main) is None:
        raise Differs(identifier, md.MAIN, snapshot_words(main), "that it has expired")
    else:
        change = change.branch(md.MAIN, main)
    for name, ref in (old.get("refs") or {}).items():
        if _is_receipt(name) and md.snapshot(document, ref["snapshot-id"]) is not None:
            change = change.tag(name, ref["snapshot-id"], ref.get("max-ref-age-ms"))
    if md.is_gated(md.properties_of(old)):
        change = change.properties({md.WAP_ENABLED: "true"})
    return change


def _last_of_others(document: md.Document, old: md.Document, own: Collection[int]) -> int | None:
    """Return the snapshot of ``main`` before a run moved it back: others' last one, or the old."""
    before = set(md.ancestor_ids(old, md.main_of(old)))
    found = [one for one in _current_since(old, document) if one not in {*before, *own}]
    return found[-1] if found else md.main_of(old)


def _is_receipt(name: str) -> bool:
    return is_publish_tag(name) or publish_of_abort_tag(name) is not None
