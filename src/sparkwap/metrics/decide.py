"""The facts about a lake, and the samples of all metrics that they make. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from sparkwap.catalog import Identifier
from sparkwap.core.names import is_run_branch
from sparkwap.gate.facts import NOT_RUN
from sparkwap.gate.verdicts import PUBLISHING_OFF
from sparkwap.ledger.records import is_end_of_run, latest, time_of
from sparkwap.ledger.rollback_plan import undone_entries, undone_key

Row = Mapping[str, Any]

PARTS = ("lake", "runs", "publishes", "verdicts", "tests", "branches", "project")
"""What is read separately: the lake as a whole, four parts of its ledger, the open branches with
the list of tables, and the dbt project."""

OUTCOMES = ("published", "partial", "held", "rejected", "nothing", "died")
"""The outcomes of runs. Other rows of the ledger's ``runs`` are operations, such as a discard."""

STATUSES = ("pass", "warn", "fail", "error", "not_run")
STATES = ("held", "rejected", "publishing_off", "in_use", "no_verdict")
"""The states of tables on open audit branches."""

OWN, NAMED, REPLAY = "own", "named", "replay"
"""The kinds of branches."""


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """An open audit branch.

    Attributes:
        tables: The live names of the tables that have a candidate on it.
        nodes: The latest row of each of its nodes in the ledger.
        since: The time of its first write; None if that is unknown.
        in_use: Whether a run is at work on it.
    """

    name: str
    tables: tuple[Identifier, ...] = ()
    nodes: tuple[Row, ...] = ()
    since: datetime | None = None
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class CatalogFacts:
    """The catalog's part of the facts.

    Attributes:
        existing: The tables and views that exist on ``main``.
        unreadable: How many tables and views have unreadable metadata.
    """

    branches: tuple[BranchFacts, ...] = ()
    existing: Collection[Identifier] = ()
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class RawModelFacts:
    """How far a raw model has read its landing folder or topic.

    Attributes:
        model: Its name, or schema and table if several models have this name.
        unread_files: The number of unread files; None for a topic, or if it is unknown.
        oldest: The change time of the unread file that has waited longest, in seconds since the
            epoch; None if no file is unread.
        unread_messages: The number of unread messages; None for files, or if it is unknown.
        quarantined: The number of rows in quarantine; None if it is unknown.
        faults: Why something is unknown.
    """

    model: str
    unread_files: int | None = None
    oldest: float | None = None
    unread_messages: int | None = None
    quarantined: int | None = None
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts. A part that could not be read is None, and is in ``faults``.

    Attributes:
        seconds: How long it took to gather them.
        runs: All rows of the ledger's ``runs``.
        publishes: All rows of ``publishes``.
        verdicts: The rows of ``nodes`` whose verdict is held or rejected.
        tests: The rows of ``tests`` of the last runs.
        faults: Part, or raw model -> why it could not be read.
    """

    project: str
    target: str
    at: datetime
    seconds: float = 0.0
    lake_exists: bool = True
    runs: Sequence[Row] | None = ()
    publishes: Sequence[Row] | None = ()
    verdicts: Sequence[Row] | None = ()
    tests: Sequence[Row] | None = ()
    catalog: CatalogFacts | None = CatalogFacts()
    raw_models: Sequence[RawModelFacts] | None = ()
    faults: Mapping[str, str] = field(default_factory=dict)


class Key(NamedTuple):
    """Where a run belongs; empty texts are unknown."""

    project: str
    target: str
    branch_kind: str


class Sample(NamedTuple):
    """A value of a metric; ``labels`` has the values of its labels, in their order."""

    metric: str
    labels: tuple[str, ...]
    value: float


def samples(facts: Facts, *, own: bool = False) -> list[Sample]:
    """Return the samples of all metrics; ``own`` leaves out those of other projects and targets."""
    place = (facts.project, facts.target)
    found = [*_of_snapshot(facts, place)]
    known = Runs(facts.runs or ())
    if facts.runs is not None:
        found += _of_runs(known, facts.tests)
        if facts.publishes is not None:
            found += _of_publishes(known, facts.publishes, _shown(facts))
        if facts.verdicts is not None:
            found += _of_verdicts(known, facts.verdicts, _shown(facts))
    if facts.catalog is not None:
        found += _of_branches(known, facts.catalog)
        found.append(Sample("sparkwap_unreadable_tables", place, facts.catalog.unreadable))
    for model in facts.raw_models or ():
        found += _of_raw_model(model, place)
    return [one for one in found if not own or one.labels[:2] == place]


class Runs:
    """The runs of the ledger, by where they belong.

    Attributes:
        ended: The rows of runs; rebuilds belong to the runs that they were made for.
        last: The row of the run that ended last, by where it belongs.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        rows = sorted(filter(is_end_of_run, rows), key=lambda row: time_of(row["ended_at"]))
        # Rows of runs that died, or that a later command has completed, do not name the project.
        named = [row for row in rows if row.get("project")]
        self._of_branch = {row["branch"]: row for row in named}
        self._of_run = {row["run_id"]: row for row in [*rows, *named]}
        self._rebuilds = [row for row in rows if row.get("rebuild_of")]
        self.ended = [
            row
            for row in rows
            if row["outcome"] in OUTCOMES
            and not row.get("rebuild_of")
            # An operation, such as `wap_publish`, builds and tests nothing.
            and not str(row.get("command") or "").startswith("wap_")
        ]
        self.last = {self.key(row["run_id"], row["branch"]): row for row in self.ended}

    @property
    def of_last(self) -> dict[str, str]:
        """The id of each last run and of its rebuilds -> the id of the last run."""
        last = {row["run_id"]: row["run_id"] for row in self.last.values()}
        rebuilds = {row["run_id"]: row["rebuild_of"] for row in self._rebuilds}
        return last | {own: run_id for own, run_id in rebuilds.items() if run_id in last}

    def key(self, run_id: str | None, branch: str | None) -> Key:
        """Return where a run or a branch belongs; ``run_id`` is None for a branch alone."""
        row = self._of_run.get(run_id or "") or {}
        if not row.get("project"):
            row = {**self._of_branch.get(branch or "", {}), **{k: v for k, v in row.items() if v}}
        kind = OWN if is_run_branch(branch or "") else NAMED
        return Key(
            row.get("project") or "",
            row.get("target") or "",
            REPLAY if row.get("as_of") else kind,
        )


def _of_snapshot(facts: Facts, place: tuple[str, str]) -> Iterator[Sample]:
    yield Sample("sparkwap_metrics_timestamp_seconds", place, facts.at.timestamp())
    yield Sample("sparkwap_metrics_duration_seconds", place, facts.seconds)
    yield Sample("sparkwap_lake_exists", place, facts.lake_exists)
    for part in PARTS:
        yield Sample("sparkwap_part_up", (*place, part), part not in facts.faults)


def _of_runs(known: Runs, tests: Sequence[Row] | None) -> Iterator[Sample]:
    # Each outcome of a run counts once: a counter must not decrease when a row is added.
    ended = {
        (known.key(r["run_id"], r["branch"]), r["outcome"], r["run_id"]): r for r in known.ended
    }
    counts = Counter((key, outcome) for key, outcome, _ in ended)
    for key in sorted(known.last):
        own = [row for (other, _, _), row in ended.items() if other == key]
        rebuilds, waited = (
            sum(row.get(column) or 0 for row in own) for column in ("tries", "waited_seconds")
        )
        yield Sample("sparkwap_rebuilds_total", key, rebuilds)
        yield Sample("sparkwap_rebuild_wait_seconds_total", key, waited)
        yield from _of_last_run(key, known.last[key])
        for outcome in OUTCOMES:
            yield Sample("sparkwap_runs_total", (*key, outcome), counts[key, outcome])
    if tests is not None:
        yield from _of_tests(known, tests)


def _of_last_run(key: Key, row: Row) -> Iterator[Sample]:
    start, end = row["started_at"], row["ended_at"]
    if end is not None:
        yield Sample("sparkwap_last_run_end_timestamp_seconds", key, end.timestamp())
    if start is not None and end is not None:
        seconds = (end - start).total_seconds()
        yield Sample("sparkwap_last_run_duration_seconds", key, seconds)
    for outcome in OUTCOMES:
        yield Sample("sparkwap_last_run_outcome", (*key, outcome), row["outcome"] == outcome)


def _of_tests(known: Runs, tests: Sequence[Row]) -> Iterator[Sample]:
    of_last = known.of_last
    by_run: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in tests:
        by_run[of_last.get(row["run_id"], "")].append(dict(row))
    for key, run in sorted(known.last.items()):
        rows = latest(by_run[run["run_id"]], "test_id", "executed_at")
        counts = Counter("not_run" if r["status"] in NOT_RUN else r["status"] for r in rows)
        for status in STATUSES:
            yield Sample("sparkwap_last_run_tests", (*key, status), counts[status])


def _shown(facts: Facts) -> Collection[tuple[str, str]] | None:
    """Return the tables that exist or are on an open branch; None if the catalog is unknown.

    The ledger also has tables that were dropped, and those of closed pull requests.
    """
    if facts.catalog is None:
        return None
    on_branches = {table for branch in facts.catalog.branches for table in branch.tables}
    return {*facts.catalog.existing, *on_branches}


def _of_publishes(
    known: Runs, rows: Sequence[Row], shown: Collection[tuple[str, str]] | None
) -> Iterator[Sample]:
    undone = undone_entries(rows)
    published = [row for row in rows if row["action"] == "publish"]
    keys = {row["publish_id"]: known.key(row["run_id"], row["branch"]) for row in published}
    standing: dict[Key, float] = {}
    for row in published:
        if undone_key(row) not in undone:
            _keep_last(standing, keys[row["publish_id"]], row["published_at"])
    for key in sorted(set(keys.values())):
        # 0 where all publishes are rolled back, so that an alert on old publishes fires.
        yield Sample("sparkwap_last_publish_timestamp_seconds", key, standing.get(key, 0.0))
    all_, back = Counter(keys.values()), {publish_id for publish_id, _, _ in undone}
    for key in sorted({*all_, *known.last}):
        rolled_back = sum(keys.get(publish_id) == key for publish_id in back)
        yield Sample("sparkwap_publishes_total", key, all_[key])
        yield Sample("sparkwap_rollbacks_total", key, rolled_back)
    yield from _of_tables(rows, keys, shown)


def _of_tables(
    rows: Sequence[Row], keys: Mapping[str, Key], shown: Collection[tuple[str, str]] | None
) -> Iterator[Sample]:
    undone = undone_entries(rows)
    last: dict[tuple[str, ...], float] = {}
    standing: dict[tuple[str, ...], float] = {}
    rollbacks: dict[tuple[str, ...], float] = {}
    for row in rows:
        table, key = (row["schema"], row["name"]), keys.get(row["publish_id"])
        if key is None or (shown is not None and table not in shown):
            continue
        labels = (key.project, key.target, *table)
        _keep_last(last if row["action"] == "publish" else rollbacks, labels, row["published_at"])
        if row["action"] == "publish" and undone_key(row) not in undone:
            _keep_last(standing, labels, row["published_at"])
    for place, at in sorted(last.items()):
        yield Sample("sparkwap_table_rolled_back", place, standing.get(place) != at)
    for name, found in (("publish", standing), ("rollback", rollbacks)):
        for place, at in sorted(found.items()):
            yield Sample(f"sparkwap_table_last_{name}_timestamp_seconds", place, at)


def _of_verdicts(
    known: Runs, rows: Sequence[Row], shown: Collection[tuple[str, str]] | None
) -> Iterator[Sample]:
    found: dict[tuple[str, ...], float] = {}
    for row in rows:
        table = (row["schema"], row["name"])
        if row["resource_type"] != "failures" and (shown is None or table in shown):
            key = known.key(row["run_id"], row["branch"])
            _keep_last(found, (*key, *table, row["verdict"]), row["built_at"])
    for labels, at in sorted(found.items()):
        yield Sample("sparkwap_table_last_unpublished_timestamp_seconds", labels, at)


def _of_branches(known: Runs, catalog: CatalogFacts) -> Iterator[Sample]:
    branches: defaultdict[Key, list[BranchFacts]] = defaultdict(list)
    for branch in catalog.branches:
        branches[known.key(None, branch.name)].append(branch)
    for key in sorted({*branches, *known.last}):
        yield Sample("sparkwap_open_branches", key, len(branches[key]))
        oldest = min((one.since.timestamp() for one in branches[key] if one.since), default=None)
        if oldest is not None:
            yield Sample("sparkwap_open_branches_oldest_timestamp_seconds", key, oldest)
        tables = [state for branch in branches[key] for state in _states(branch)]
        for state in STATES:
            times = [at for other, at in tables if other == state]
            yield Sample("sparkwap_open_branch_tables", (*key, state), len(times))
            if since := [at for at in times if at is not None]:
                name = "sparkwap_open_branch_tables_oldest_timestamp_seconds"
                yield Sample(name, (*key, state), min(since))


def _states(branch: BranchFacts) -> Iterator[tuple[str, float | None]]:
    """Yield the state of each table of a branch that is not published, and since when."""
    since = branch.since.timestamp() if branch.since else None
    if branch.in_use:
        yield from (("in_use", since) for _ in branch.tables)
        return
    for row in branch.nodes:
        at = row["built_at"].timestamp()
        if row["verdict"] == "rejected":
            yield "rejected", at
        elif row["verdict"] == "held" and (row["schema"], row["name"]) in branch.tables:
            yield "publishing_off" if row["reason"] == PUBLISHING_OFF else "held", at
    judged = {(row["schema"], row["name"]) for row in branch.nodes}
    yield from (("no_verdict", since) for table in branch.tables if table not in judged)


def _of_raw_model(model: RawModelFacts, place: tuple[str, str]) -> Iterator[Sample]:
    labels = (*place, model.model)
    yield Sample("sparkwap_landing_up", labels, not model.faults)
    for name, value in (
        ("landing_unread_files", model.unread_files),
        ("landing_oldest_unread_timestamp_seconds", model.oldest),
        ("landing_unread_messages", model.unread_messages),
        ("quarantined_rows", model.quarantined),
    ):
        if value is not None:
            yield Sample(f"sparkwap_{name}", labels, value)


def _keep_last(found: dict[Any, float], key: object, at: Any) -> None:
    found[key] = max(found.get(key, 0.0), at.timestamp())
