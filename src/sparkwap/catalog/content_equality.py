"""What metadata proves about rows: that a compaction changed none, that an overwrite kept none.

Pure. Everything here fails closed: a snapshot that has expired, or a summary without its figures,
proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkwap.catalog import metadata as md

_NO_PROOF = -1


def same_rows(document: md.Document, old: int | None, new: int | None) -> bool:
    """True if ``new`` is ``old``, or only snapshots that changed no row lie between the two.

    Such a snapshot is of the operation ``replace`` (files were rewritten, by its writer's word),
    and its counts agree with that word: as many records were added as were deleted, and as many
    are there as before. A compaction that applies merge-on-read deletes on its way drops records,
    so it proves nothing.

    Args:
        document: The table's metadata, with both snapshots in it.
        old: A snapshot of ``main``; None where it had none.
        new: A later one.
    """
    if old is None or new is None:
        return old == new
    current = new
    while current != old:
        snapshot = md.snapshot(document, current)
        parent = snapshot.get("parent-snapshot-id") if snapshot else None
        before = md.snapshot(document, parent) if parent is not None else None
        if snapshot is None or before is None or not _only_rewrote(snapshot, before):
            return False
        current = int(before["snapshot-id"])
    return True


def stands_alone(document: md.Document, candidate: int, base: int | None) -> bool:
    """True if no file of ``base`` is part of ``candidate``, which grew out of it.

    So it is if some snapshot from the base to the candidate consists of nothing but what it added
    itself: ``insert overwrite`` of the whole table.
    """
    for snapshot in md.ancestors(document, candidate):
        if snapshot["snapshot-id"] == base:
            return False
        if _is_whole(snapshot):
            return True
    return False


def follows_compaction(
    live: md.Document, base: int | None, built: md.Document, candidate: int
) -> bool:
    """True if a candidate built on ``base`` may be published over a compaction of ``base``.

    The rows that it was built from are those of ``main`` now, and it has no file of the base, so
    that publishing it does not bring files back that the compaction has replaced.

    Args:
        live: The live table's metadata.
        base: Where ``main`` was when the build began.
        built: Metadata that has the candidate: the live table's, or its clone's.
        candidate: What was audited.
    """
    main = md.main_of(live)
    return main != base and same_rows(live, base, main) and stands_alone(built, candidate, base)


def between(document: md.Document, old: int | None, new: int | None) -> list[Mapping[str, str]]:
    """The summaries of the snapshots from ``new`` back to ``old``, which is not among them.

    Back to the first one that is known, where ``old`` is not in the line.
    """
    found: list[Mapping[str, str]] = []
    for snapshot in md.ancestors(document, new):
        if snapshot["snapshot-id"] == old:
            break
        found.append(dict(snapshot.get("summary") or {}))
    return found


def _only_rewrote(snapshot: md.Document, before: md.Document) -> bool:
    summary, earlier = snapshot.get("summary") or {}, before.get("summary") or {}
    total = _count(summary, "total-records")
    return (
        summary.get("operation") == "replace"
        and total != _NO_PROOF
        and total == _count(earlier, "total-records")
        and _count(summary, "added-records", 0) == _count(summary, "deleted-records", 0)
        # Without these, records that a delete file hides could stay while it goes.
        and _same_deletes(summary, earlier)
    )


def _same_deletes(summary: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    kinds = ("total-position-deletes", "total-equality-deletes")
    return all(_count(summary, kind, 0) == _count(earlier, kind, 0) for kind in kinds)


def _is_whole(snapshot: md.Document) -> bool:
    summary = snapshot.get("summary") or {}
    files = _count(summary, "total-data-files")
    return files != _NO_PROOF and files == _count(summary, "added-data-files", 0)


def _count(summary: Mapping[str, Any], key: str, default: int = _NO_PROOF) -> int:
    try:
        return int(summary.get(key, default))
    except ValueError:
        return _NO_PROOF
