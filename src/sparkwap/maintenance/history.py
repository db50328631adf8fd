"""Decides which snapshots and receipts of a table are no longer needed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from sparkwap.catalog import metadata as md
from sparkwap.catalog.content_equality import same_rows, same_rows_as
from sparkwap.core.names import is_publish_tag
from sparkwap.maintenance.rules import keeps_files

_MAX_AGE = "history.expire.max-snapshot-age-ms"
_MIN_KEPT = "history.expire.min-snapshots-to-keep"


@dataclass(frozen=True, slots=True)
class Outdated:
    """What of a table's history is no longer needed.

    Attributes:
        tags: Receipts of publishes that can no longer be rolled back then.
        snapshots: Ids of snapshots.
        metadata_files: Metadata files of former states, the oldest first.
    """

    tags: tuple[str, ...] = ()
    snapshots: tuple[int, ...] = ()
    metadata_files: tuple[str, ...] = ()


def outdated(
    document: md.Document,
    now_ms: int,
    *,
    keep_ms: int,
    keep_publishes: int,
    bases: Mapping[str, Collection[int]],
) -> Outdated:
    """Return the receipts and snapshots of a table that may go.

    What stays: each branch and tag; the history of branches other than `main`; all states that
    `main` has had since ``keep_ms``, and as many snapshots as the table's own properties and the
    settings of `main` ask for; each publish of that time, the latest ``keep_publishes`` publishes,
    before these the last one of each day (in UTC), and for each of them the state to roll back to,
    and the compactions of others from its rows to `main`, or to the state to roll back to.

    Args:
        now_ms: The time from which ages count, in milliseconds since the epoch.
        keep_ms: For how long all of the history stays.
        keep_publishes: How many of the latest publishes stay.
        bases: Receipt -> the snapshots that a rollback of its publish needs.
    """
    if keeps_files(document):
        return Outdated()
    snapshots = {int(one["snapshot-id"]): one for one in document.get("snapshots") or ()}
    asked = _asked(document, keep_ms)
    if asked is None:
        return Outdated()
    keep_ms, least = asked
    since = now_ms - keep_ms
    until = _current_until(document)
    tags = _thinned(document, snapshots, since, keep_publishes)
    kept: set[int] = set()
    receipts: set[int] = set()
    heads = {md.main_of(document)}
    for name, ref in md.refs_of(document).items():
        if name in tags:
            continue
        kept.add(ref.snapshot_id)
        if ref.type == "tag":
            kept |= set(bases.get(name, ()))
            heads |= set(bases.get(name, ()))
            receipts |= {ref.snapshot_id} if is_publish_tag(name) else set()
            continue
        for number, one in enumerate(md.ancestors(document, ref.snapshot_id)):
            young = until.get(int(one["snapshot-id"]), now_ms) >= since
            if name != md.MAIN or young or number < least:
                kept.add(int(one["snapshot-id"]))
    for head in heads:
        kept |= _proof(document, head, receipts)
    of_main = set(md.ancestor_ids(document, md.main_of(document)))
    gone = [
        number
        for number, one in snapshots.items()
        if number not in kept
        and until.get(number, int(one["timestamp-ms"])) < since
        # Other tools may have staged a snapshot without a branch.
        and (number in of_main or "wap_run" in (one.get("summary") or {}))
    ]
    return Outdated(tuple(sorted(tags)), tuple(sorted(gone)))


def _proof(document: md.Document, head: int | None, receipts: Collection[int]) -> set[int]:
    """Return the snapshots that show that ``head`` has the rows of a receipt; empty if not."""
    found: set[int] = set()
    for one in md.ancestors(document, head):
        number, parent = int(one["snapshot-id"]), one.get("parent-snapshot-id")
        if number in receipts:
            return found
        found.add(number)
        if not set(same_rows_as(one)).isdisjoint(receipts):
            return found
        if parent is None or not same_rows(document, int(parent), number):
            break
    return set()


def _current_until(document: md.Document) -> dict[int, int]:
    """Return snapshot -> when it was last replaced as the state of `main`, for those that were.

    A snapshot that was never `main`, but is an ancestor of it, counts until its successor.
    """
    found: dict[int, int] = {}
    newer: md.Document | None = None
    for one in md.ancestors(document, md.main_of(document)):
        if newer is not None:
            found[int(one["snapshot-id"])] = int(newer["timestamp-ms"])
        newer = one
    log = list(document.get("snapshot-log") or ())
    for entry, following in pairwise(log):
        number = int(entry["snapshot-id"])
        found[number] = max(found.get(number, 0), int(following["timestamp-ms"]))
    return found


def _asked(document: md.Document, keep_ms: int) -> tuple[int, int] | None:
    """Return the age and the number of snapshots of `main` that stay, with the table's settings.

    None if a setting is no number.
    """
    main = md.raw_refs(document).get(md.MAIN) or {}
    properties = md.properties_of(document)
    ages = [main.get("max-snapshot-age-ms"), properties.get(_MAX_AGE)]
    numbers = [main.get("min-snapshots-to-keep"), properties.get(_MIN_KEPT), 1]
    try:
        return (
            max([keep_ms, *(int(one) for one in ages if one is not None)]),
            max(int(one) for one in numbers if one is not None),
        )
    except ValueError:
        return None


def _thinned(
    document: md.Document, snapshots: Mapping[int, md.Document], since: int, keep: int
) -> set[str]:
    """Return the receipts that go: older ones, but for the last of each day."""
    refs, main = md.refs_of(document), md.main_of(document)
    receipts = sorted(
        (
            (int(snapshots[ref.snapshot_id]["timestamp-ms"]), name)
            for name, ref in refs.items()
            if ref.type == "tag" and is_publish_tag(name) and ref.snapshot_id in snapshots
        ),
        reverse=True,
    )
    days = set()
    gone = set()
    for at, name in receipts[keep:]:
        day = datetime.fromtimestamp(at / 1000, UTC).date()
        if at < since and day in days and not same_rows(document, refs[name].snapshot_id, main):
            gone.add(name)
        days.add(day)
    return gone
