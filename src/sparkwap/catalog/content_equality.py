"""Proofs from metadata: a compaction has changed no row; an overwrite has kept no file; a change of
columns has changed none of those before.

Pure. Everything here fails closed: an expired snapshot, or a summary without figures, proves
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.history import schema_at
from sparkwap.catalog.sparksql import current_schema, inner_fields

_NO_PROOF = -1

SAME_ROWS_AS = "wap_same_rows_as"
"""The entry in the summary of a snapshot that sparkwap's own maintenance has published: the ids of
the snapshots before it with the same rows, newest first. See `sparkwap.maintenance.compaction`."""

ROWS_SINCE = "wap_rows_since"
"""The entry in such a summary with the time of the last change of rows, in milliseconds since the
epoch: the snapshot of that change may expire."""


def same_rows(document: md.Document, old: int | None, new: int | None) -> bool:
    """Return whether all snapshots after ``old`` up to ``new`` have changed no row.

    Such a snapshot is either marked by sparkwap's maintenance, which has compared the rows
    (`SAME_ROWS_AS`), or has the operation ``replace`` (its writer says that it only rewrote files),
    and its counts agree: equal numbers of records were added and deleted, and the total is as
    before. Records that dropped deletion vectors had deleted may be missing. A compaction of others
    that applies delete files of other kinds drops a number of records that is not known.

    Args:
        old: A snapshot of ``main``; None if there was none.
        new: A later snapshot.
    """
    if old is None or new is None:
        return old == new
    current = new
    while current != old:
        snapshot = md.snapshot(document, current)
        known = same_rows_as(snapshot)
        if old in known:
            return True
        parent = snapshot.get("parent-snapshot-id") if snapshot else None
        before = md.snapshot(document, parent) if parent is not None else None
        if snapshot is None or before is None:
            return False
        if parent not in known and not _only_rewrote(snapshot, before):
            return False
        current = int(before["snapshot-id"])
    return True


def same_rows_as(snapshot: md.Document | None) -> tuple[int, ...]:
    """Return the earlier snapshots that a snapshot says to have the rows of, newest first.

    Only a snapshot of a rewrite can say so: a statement may set any entry of its summary, but not
    the operation.
    """
    if ((snapshot or {}).get("summary") or {}).get("operation") != "replace":
        return ()
    text = str(((snapshot or {}).get("summary") or {}).get(SAME_ROWS_AS, ""))
    return tuple(int(one) for one in text.split(",") if one.isdecimal())


def shows_columns_of(document: md.Document, snapshot_id: int) -> bool:
    """Return whether a table still shows the columns that it had when a snapshot was written."""
    return keeps_columns(schema_at(document, snapshot_id), current_schema(document))


def keeps_columns(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether all columns of a schema are the same in a later schema.

    The order, comments, defaults and new columns do not count. A new column with the name of a
    former one is another column.
    """
    return _fields(before).items() <= _fields(now).items()


def _fields(kind: Any) -> dict[int, tuple[str, str, bool]]:
    """Return the name, the type, and whether it is required, of all fields of a type, by id."""
    found: dict[int, tuple[str, str, bool]] = {}
    for number, name, of, required in inner_fields(kind):
        shown = of.replace(" ", "") if isinstance(of, str) else of["type"]
        found |= {number: (name, shown, required), **_fields(of)}
    return found


def newest_with_same_rows(document: md.Document, head: int | None) -> dict[int, int]:
    """Return snapshot -> the newest one on the way from it to ``head`` that has the same rows.

    Of the ancestors of ``head``, itself, and the expired ones that maintenance has named.
    """
    found: dict[int, int] = {}
    newest = later = None
    for snapshot in md.ancestors(document, head):
        one = int(snapshot["snapshot-id"])
        if newest is None or not same_rows(document, one, later):
            newest = one
        later, found[one] = one, newest
        for expired in same_rows_as(snapshot):
            found.setdefault(expired, newest)
    return found


def rows_since(document: md.Document, snapshot_id: int | None) -> int | None:
    """Return the time when the rows of a snapshot last changed, in milliseconds since the epoch.

    Compactions change no rows, nor does an append of no row. If the change has expired, that of the
    oldest snapshot left of them. None without a snapshot.
    """
    snapshot = md.snapshot(document, snapshot_id) if snapshot_id is not None else None
    while snapshot is not None:
        summary = snapshot.get("summary") or {}
        rewritten = summary.get("operation") == "replace"
        noted = md.count(snapshot, ROWS_SINCE) if rewritten else None
        if noted is not None:
            return noted
        before = md.snapshot(document, snapshot.get("parent-snapshot-id") or -1)
        if before is None or not (rewritten or _is_empty(summary)):
            return int(snapshot["timestamp-ms"])
        snapshot = before
    return None


def _is_empty(summary: Mapping[str, Any]) -> bool:
    """Return whether a commit has added and removed nothing; False without its figures."""
    changed = (
        n for key, n in summary.items() if key.startswith(("added-", "deleted-", "removed-"))
    )
    return "total-records" in summary and all(str(number) == "0" for number in changed)


def has_grown_from(document: md.Document, head: int, base: int | None) -> bool:
    """Return whether a candidate may have grown from its base, or from a state of the same rows."""
    return md.grew_from(document, head, base) or any(
        same_rows(document, int(one["snapshot-id"]), base) for one in md.ancestors(document, head)
    )


def shares_no_files(document: md.Document, candidate: int, base: int | None) -> bool:
    """Return whether ``candidate``, a descendant of ``base``, has no file of ``base``.

    This is so if a snapshot between them has only files that it added itself, as after an
    ``insert overwrite`` of the whole table.
    """
    for snapshot in md.ancestors(document, candidate):
        if snapshot["snapshot-id"] == base:
            return False
        if is_whole(snapshot):
            return True
    return False


def follows_compaction(
    live: md.Document, base: int | None, built: md.Document, candidate: int
) -> bool:
    """Return whether a candidate built on ``base`` may be published over a compaction of ``base``.

    The compaction has changed no row, and the candidate has no file of the base, so the publish
    does not restore files that the compaction has replaced.

    Args:
        base: The snapshot of ``main`` when the build began.
        built: The metadata with the candidate: the live table's, or its clone's.
        candidate: The audited snapshot.
    """
    main = md.main_of(live)
    return main != base and same_rows(live, base, main) and shares_no_files(built, candidate, base)


def between(document: md.Document, old: int | None, new: int | None) -> list[Mapping[str, str]]:
    """Return the summaries of the snapshots from ``new`` back to, but without, ``old``.

    If ``old`` is not an ancestor, all known ancestors are returned.
    """
    found: list[Mapping[str, str]] = []
    for snapshot in md.ancestors(document, new):
        if snapshot["snapshot-id"] == old:
            break
        found.append(dict(snapshot.get("summary") or {}))
    return found


def _only_rewrote(snapshot: md.Document, before: md.Document) -> bool:
    summary, earlier = snapshot.get("summary") or {}, before.get("summary") or {}
    total, former = _count(summary, "total-records"), _count(earlier, "total-records")
    applied = _applied(summary)
    return (
        summary.get("operation") == "replace"
        and _NO_PROOF not in (total, former)
        and total + applied == former
        and _count(summary, "added-records", 0) + applied == _count(summary, "deleted-records", 0)
        # If the compaction drops other deletes, deleted records may appear again.
        and _deletes(summary, "position") + applied == _deletes(earlier, "position")
        and _deletes(summary, "equality") == _deletes(earlier, "equality")
    )


def _applied(summary: Mapping[str, Any]) -> int:
    """Return how many deletes a rewrite has applied and dropped, so that it wrote fewer records.

    Only deletion vectors count: each deletes exactly its number of records of one data file. The
    same record may be in several delete files.
    """
    vectors = _count(summary, "removed-dvs", 0)
    alone = vectors > 0 and vectors == _count(summary, "removed-delete-files", 0)
    return _count(summary, "removed-position-deletes", 0) if alone else 0


def _deletes(summary: Mapping[str, Any], kind: str) -> int:
    return _count(summary, f"total-{kind}-deletes", 0)


def is_whole(snapshot: md.Document) -> bool:
    """Return whether a snapshot has only files that it has added itself."""
    summary = snapshot.get("summary") or {}
    files = _count(summary, "total-data-files")
    return files != _NO_PROOF and files == _count(summary, "added-data-files", 0)


def _count(summary: Mapping[str, Any], key: str, default: int = _NO_PROOF) -> int:
    try:
        return int(summary.get(key, default))
    except ValueError:
        return _NO_PROOF
