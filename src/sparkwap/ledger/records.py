"""Records that are made from rows of the ledger. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, get_args

from sparkwap.catalog.model import Candidate, How, PublishedEntry
from sparkwap.core import caller
from sparkwap.ledger.rollback_plan import Undone, undone_entries

Row = TypeVar("Row", bound=Mapping[str, Any])

LOADED = "load."
"""Prefix of the node ids of tables that a program other than dbt has written."""

CLOCKS_DIFFER = timedelta(days=1)
"""By how much the clocks of machines that write rows may differ at most."""


@dataclass(frozen=True, slots=True)
class BranchHistory:
    """The nodes and tests of an audit branch since it was last discarded.

    Attributes:
        nodes: The latest row of each node.
        tests: The latest row of each test; ``audited`` is a dict.
        last: The time of the latest row, or of the discard; None without one.
    """

    nodes: tuple[dict[str, Any], ...]
    tests: tuple[dict[str, Any], ...]
    last: datetime | None = None


@dataclass(frozen=True, slots=True)
class LedgerPublish:
    """A publish that the ledger has.

    Attributes:
        entries: All tables and views of the publish.
        left: The entries that were not rolled back.
        manifest_hash: The manifest of the published code; None if it is not stored.
        by: Project, actor and host in words; empty if they are not recorded.
    """

    publish_id: str
    run_id: str
    branch: str
    published_at: datetime
    entries: tuple[PublishedEntry, ...]
    left: tuple[PublishedEntry, ...]
    manifest_hash: str | None = None
    by: str = ""

    @property
    def rolled_back(self) -> bool:
        """Whether all entries were rolled back."""
        return not self.left


@dataclass(frozen=True, slots=True)
class KeptManifest:
    """A stored manifest without its content; ``stored_at`` is UTC."""

    hash: str
    project: str
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class DeliveredAlert:
    """An alert that was delivered."""

    route: str
    fingerprint: str
    at: datetime


def token_of(node: Mapping[str, Any]) -> str | None:
    """Return the token of the candidate in a row of ``nodes``, as in ``tests.audited``."""
    snapshot = node["candidate_snapshot"]
    return str(snapshot) if snapshot is not None else node["candidate_metadata"]


def candidates_digest(nodes: Iterable[Mapping[str, Any]]) -> str:
    """Return a digest of the candidates in rows of ``nodes``."""
    found = sorted([row["node_id"], token_of(row) or ""] for row in nodes)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def candidate_of(node: Mapping[str, Any]) -> Candidate:
    """Return the candidate in a row of ``nodes``."""
    return Candidate(
        (node["schema"], node["name"]),
        node["branch"],
        "side" if node["how"] == "side" else "branch",
        base=node["base_snapshot"],
        base_metadata=node["base_metadata"],
        token=token_of(node),
        problem=node["problem"],
    )


def candidate_columns(candidate: Candidate | None) -> dict[str, Any]:
    """Return the columns of ``nodes`` from which `candidate_of` reads where a candidate is."""
    if candidate is None:
        return dict.fromkeys(_CANDIDATE_COLUMNS)
    head = candidate.token if candidate.how == "branch" else None
    return {
        "how": candidate.how,
        "base_snapshot": candidate.base,
        "base_metadata": candidate.base_metadata,
        "candidate_snapshot": int(head) if head else None,
        "candidate_metadata": candidate.token if candidate.how == "side" else None,
    }


_CANDIDATE_COLUMNS = (
    "how", "base_snapshot", "base_metadata", "candidate_snapshot", "candidate_metadata",
)  # fmt: skip


def is_end_of_run(row: Mapping[str, Any]) -> bool:
    """Return whether a row of ``runs`` tells the end of its run.

    A run also writes rows about other branches: that of a probe, and those that it discards.
    """
    return not (row["command"] == "probe" or row["outcome"] == "discarded")


def ended_otherwise(
    runs: Iterable[Mapping[str, Any]], publishes: Iterable[LedgerPublish]
) -> dict[str, str]:
    """Return later outcomes of runs that have ended, by run id.

    ``discarded``: the audit branch was dropped later, with all unpublished tables.
    ``rolled back`` and ``partly rolled back``: the publish was undone.
    """
    runs = list(runs)
    dropped: dict[str, datetime] = {}
    for row in runs:
        if row["outcome"] == "discarded" and row["branch"]:
            dropped[row["branch"]] = max(
                time_of(row["ended_at"]), dropped.get(row["branch"], time_of(None))
            )
    # A run that sweeps at its end has a row for each branch that it drops, which are not its own.
    own = {row["run_id"] for row in runs if row["outcome"] != "discarded"}
    published = {row["run_id"] for row in runs if row["publish_id"]}
    found = {
        row["run_id"]: "discarded"
        for row in runs
        if row["run_id"] not in published
        and time_of(row["ended_at"]) <= dropped.get(row["branch"], time_of(None))
        and (row["outcome"] != "discarded" or row["run_id"] not in own)
    }
    undone = [one for one in publishes if len(one.left) < len(one.entries)]
    return found | {
        one.run_id: "rolled back" if one.rolled_back else "partly rolled back" for one in undone
    }


def own_rows(runs: Iterable[Row]) -> list[Row]:
    """Return rows of ``runs`` without others that have the id of a run that has a row itself.

    These are of the check of its server, of a sweep at its end, and of its presumed death.
    """
    runs = list(runs)
    own = sorted(filter(is_end_of_run, runs), key=lambda row: time_of(row["ended_at"]))
    last = {row["run_id"]: row for row in own}
    return [row for row in runs if row is last.get(row["run_id"], row)]


def group_publishes(rows: Sequence[Mapping[str, Any]]) -> list[LedgerPublish]:
    """Return the publishes that rows of ``publishes`` describe, newest first."""
    undone = undone_entries(rows)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["action"] == "publish":
            groups.setdefault(row["publish_id"], []).append(row)
    found = [_publish(group, undone) for group in groups.values()]
    return sorted(found, key=lambda publish: publish.published_at, reverse=True)


def _publish(rows: Sequence[Mapping[str, Any]], undone: Collection[Undone]) -> LedgerPublish:
    first = rows[0]
    entries = {
        (row["schema"], row["name"]): PublishedEntry(
            (row["schema"], row["name"]),
            _how(row["how"]),
            row["base_snapshot"],
            row["base_metadata"],
            row["candidate_snapshot"],
            row["published_metadata"],
        )
        # The ledger may have a row twice, if two commands complete the same journal at once.
        for row in rows
    }
    names = sorted(entries)
    return LedgerPublish(
        first["publish_id"],
        first["run_id"],
        first["branch"],
        first["published_at"],
        tuple(entries[name] for name in names),
        tuple(entries[name] for name in names if (first["publish_id"], *name) not in undone),
        first.get("manifest_hash"),
        caller.describe(first),
    )


def _how(text: str) -> How:
    how: How = next(known for known in get_args(How) if known == text)
    return how


def latest(rows: Iterable[dict[str, Any]], key: str, time: str) -> tuple[dict[str, Any], ...]:
    """Return the row with the latest ``time`` for each value of ``key``, sorted by key."""
    latest: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = latest.get(row[key])
        if known is None or time_of(known[time]) <= time_of(row[time]):
            latest[row[key]] = row
    return tuple(latest[name] for name in sorted(latest))


def time_after(last: datetime | None) -> datetime:
    """Return the present time, but later than ``last``, which another clock may have given."""
    return max(datetime.now(UTC), time_of(last) + timedelta(microseconds=1))


def time_of(value: datetime | None) -> datetime:
    """Return the time; the earliest possible time for None."""
    return value or datetime.min.replace(tzinfo=UTC)
