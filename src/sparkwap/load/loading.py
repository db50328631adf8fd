"""A load, from the file to the verdict.

It is a run of one node: what dies on the way leaves `main` as it is, and the same command once
more begins anew from `main`, or finds that all is done.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from sparkwap import lease, steps
from sparkwap.catalog import Identifier, Lake, LedgerRows
from sparkwap.errors import SparkwapError
from sparkwap.load.audits import Audits, Tally, tally
from sparkwap.load.errors import LoadError
from sparkwap.load.files import Drop, fitted, misfits
from sparkwap.names import audit_branch
from sparkwap.plan import Desired
from sparkwap.run import Closing, NodeFact, Run, Target, TestSeen
from sparkwap.settings import GateSettings
from sparkwap.steps import reached
from sparkwap.undo import undone_entries, undone_key

TRIES = 3
COMMAND = "load"
SHA256, FILE = "wap_load_sha256", "wap_load_file"
"""Properties of the snapshot that a load writes."""

Outcome = Literal["published", "held", "rejected", "already"]


@dataclass(frozen=True)
class Request:
    """What to load.

    Attributes:
        table: Schema and name.
        drop: The file.
        audits: What has to hold.
        publish: Publish it, if all of that does; else it stays on the branch.
        branch: The audit branch; None for one that goes by the file's content.
        create: Make the table, if there is none.
        again: Load it although it was loaded before.
        project: dbt's project, for the ledger.
        target_name: dbt's target, for the ledger.
        settings: The gate's settings; how to publish is told by ``publish``.
    """

    table: Identifier
    drop: Drop
    audits: Audits
    publish: bool = False
    branch: str | None = None
    create: bool = False
    again: bool = False
    project: str = ""
    target_name: str = ""
    settings: GateSettings = field(default_factory=GateSettings)

    @property
    def name(self) -> str:
        return ".".join(self.table)

    @property
    def audit_branch(self) -> str:
        """The branch; the same for the same file, so that what a dead load left is found."""
        return audit_branch(self.drop.sha256, self.branch or self.settings.branch)


@dataclass(frozen=True)
class Loaded:
    """What became of a load.

    Attributes:
        outcome: ``published``; ``held`` on the branch, clean as far as was looked; ``rejected``,
            on the branch too; ``already`` published by an earlier load.
        run_id: The run; of ``already`` that which published it.
        branch: The audit branch.
        reasons: Why it is not published.
        tallies: What the audits counted.
        tries: How often it was written.
        beside: What else is on the branch and keeps a clean file there, with the reasons.
    """

    outcome: Outcome
    run_id: str
    branch: str
    reasons: tuple[str, ...] = ()
    tallies: tuple[Tally, ...] = ()
    tries: int = 1
    beside: tuple[str, ...] = ()


def load(lake: Lake, request: Request, tell: Callable[[str], None] = lambda _: None) -> Loaded:
    """Load a file behind the gate.

    If ``main`` moves meanwhile it is written again on top of it, three times at most.

    Args:
        lake: The catalog.
        request: What to load.
        tell: Takes lines of progress.

    Raises:
        LoadError: The file does not fit; nothing was written.
        SparkwapError: The catalog failed; `main` is as it was, unless the message says otherwise.
    """
    for line in lake.recover():
        tell(line)
    before = None if request.again else earlier(lake, request)
    if before is not None:
        return before
    _require_fit(lake, request)
    for tried in range(1, TRIES + 1):
        done, moved = _load_once(lake, request)
        if not moved or tried == TRIES:
            return replace(done, tries=tried)
        tell(f"main of {request.name} moved meanwhile; loading on top of it, try {tried + 1}")
    raise AssertionError("unreachable")


def earlier(lake: Lake, request: Request) -> Loaded | None:
    """The load that has published this file's content to this table; None if there is none."""
    publishes = lake.ledger.rows("publishes")
    undone = undone_entries(publishes)
    live = {
        (row["schema"], row["name"], row["candidate_snapshot"])
        for row in publishes
        if row["action"] == "publish" and undone_key(row) not in undone
    }
    for row in lake.ledger.rows("loads"):
        at = (row["schema"], row["name"], row["snapshot"])
        if row["sha256"] == request.drop.sha256 and at[:2] == request.table and at in live:
            return Loaded("already", row["run_id"], row["branch"])
    return None


def _require_fit(lake: Lake, request: Request) -> None:
    """Check all that can be checked before anything is written.

    Raises:
        LoadError: The file does not fit, or the publish that is asked for could not come.
    """
    columns = _columns(lake, request)
    wrong = misfits(request.drop.schema, columns) if columns is not None else []
    names = columns.names if columns is not None else request.drop.schema.names
    wrong += [
        f"the audit {one.name} is on {one.column}, which is no column"
        for one in request.audits.audits
        if one.column not in names
    ]
    if wrong:
        listed = "".join(f"\n  {one}" for one in wrong)
        raise LoadError(
            f"{request.drop.path} does not fit {request.name}:{listed}\nNothing was loaded. "
            "Correct the file; columns of a table are changed by who builds it."
        )
    stranger = _tests_of(lake, request)
    if request.publish and stranger is not None:
        raise LoadError(
            f"{request.name} is built by {stranger}, whose tests are not known here, so it is not "
            "published. Nothing was loaded. Load the file from that project, or leave --publish "
            "out: it then stays on a branch, where it can be looked at."
        )
    if request.publish and not request.audits.tests:
        raise LoadError(
            f"No audit looks at {request.name}, so it is not published. Nothing was loaded. Say "
            "what has to hold (--not-null, --unique, --accepted, --between, --audits), or leave "
            "--publish out: it then stays on a branch."
        )


def _tests_of(lake: Lake, request: Request) -> str | None:
    """Who builds the table, if it is nobody whose tests this project has."""
    builder = lake.ledger.builder(request.table)
    if builder is None or builder[0] == request.audits.node_id:
        return None
    node_id, project = builder
    # A project that has left its model off and loads the table knows what it does.
    return None if project and project == request.project else f"{node_id} of project {project}"


def _columns(lake: Lake, request: Request) -> pa.Schema | None:
    """The columns of the table as Arrow's; None for one that is to be made."""
    state = lake.state(request.table)
    if state is None and request.create:
        return None
    if state is None or state.kind == "view":
        what = "does not exist" if state is None else "is a view"
        way = "--create makes it from the file's columns" if state is None else "Name a table"
        raise LoadError(f"{request.name} {what}. Nothing was loaded. {way}.")
    return _arrow_schema(lake.catalog.load_table(request.table))


def _arrow_schema(table: Table) -> pa.Schema:
    return schema_to_pyarrow(table.schema(), include_field_ids=False)


def _load_once(lake: Lake, request: Request) -> tuple[Loaded, bool]:
    """Write, audit and close; tells whether main moved away under it, too."""
    run = Run(
        lake,
        run_id=str(uuid.uuid4()),
        branch=request.audit_branch,
        settings=replace(request.settings, publish="run" if request.publish else "never"),
        command=COMMAND,
        project=request.project,
        target_name=request.target_name,
    )
    with _held(lake, run):
        run.load_side_schemas()
        run.watch_main([request.table])
        run.begin(request.audits.node_id, request.table)
        target = _write(run, request)
        tallies = _audit(run, request, target)
        closing = _close(run, request, target, tallies)
    loaded = _loaded(run, request, closing, tallies)
    return loaded, closing.refused is not None and bool(closing.refusals)


@contextmanager
def _held(lake: Lake, run: Run) -> Iterator[None]:
    holding = lease.hold(lake.leases, run_id=run.run_id, branch=run.branch, command=run.command)
    try:
        yield
    finally:
        holding.release()


def _write(run: Run, request: Request) -> Target:
    rows = request.drop.read()
    target = _placed(run, request, rows.schema)
    about = {"run_id": run.run_id, "branch": run.branch, "table": request.name}
    table = _table(run, target)
    stamp = {
        "wap_run": run.run_id,
        SHA256: request.drop.sha256,
        FILE: request.drop.path.name,
    }
    reached(steps.LOAD_WRITING, **about)
    rows = fitted(rows, _arrow_schema(table))
    try:
        table.append(rows, branch=_ref(run, target), snapshot_properties=stamp)
    except (NotImplementedError, ValueError, OSError) as error:
        raise SparkwapError(
            f"PyIceberg could not write {request.name}: {error}. main is as it was. What it can "
            "write is in docs/load.md; land the file for a raw model instead (docs/landing.md)."
        ) from error
    reached(steps.LOAD_WRITTEN, **about)
    return run.built(request.audits.node_id, request.table, must_write=True)


def _placed(run: Run, request: Request, schema: pa.Schema) -> Target:
    if run.lake.state(request.table) is not None:
        return run.place_table(request.table, Desired())
    target = run.place_beside(request.table)
    place = str(target.side_schema), request.table[1]
    run.lake.catalog.create_table(place, schema, location=run.location(request.table))
    return target


def _table(run: Run, target: Target) -> Table:
    schema = target.side_schema if target.how == "side" else target.identifier[0]
    return run.lake.catalog.load_table((str(schema), target.identifier[1]))


def _ref(run: Run, target: Target) -> str:
    return "main" if target.how == "side" else run.branch


def _audit(run: Run, request: Request, target: Target) -> tuple[Tally, ...]:
    """What the audits say of the candidate: all rows that readers would see."""
    audits = request.audits.audits
    if not audits:
        return ()
    reached(steps.LOAD_AUDITING, run_id=run.run_id, branch=run.branch, table=request.name)
    columns = tuple(dict.fromkeys(one.column for one in audits))
    table = _table(run, target)
    head = table.metadata.refs[_ref(run, target)].snapshot_id
    batches = table.scan(snapshot_id=head, selected_fields=columns).to_arrow_batch_reader()
    return tuple(tally(audits, batches))


def _close(run: Run, request: Request, target: Target, tallies: Sequence[Tally]) -> Closing:
    node_id = request.audits.node_id
    failed = [one for one in tallies if one.failures and one.audit.severity == "error"]
    if failed:
        # Its audits are not in the project, so that nothing else would keep it from a wap_publish.
        run.fault(request.table, "; ".join(_failure(one) for one in failed))
    head = _table(run, target).metadata.refs[_ref(run, target)].snapshot_id
    run.record(LedgerRows("loads", [_row(run, request, head)]))
    stranger = _tests_of(run.lake, request)
    node = NodeFact(
        node_id, request.table, COMMAND, "success", None, frozenset(), tests_of=stranger
    )
    return run.close([node], request.audits.tests, [_seen(one) for one in tallies])


def _failure(one: Tally) -> str:
    return f"{one.audit.name} failed ({one.failures:,})"


def _seen(one: Tally) -> TestSeen:
    failing = "warn" if one.audit.severity == "warn" else "fail"
    return TestSeen(one.audit.test_id, failing if one.failures else "pass", one.failures, None)


def _row(run: Run, request: Request, snapshot: int) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "branch": run.branch,
        "schema": request.table[0],
        "name": request.table[1],
        "file": request.drop.path.name,
        "sha256": request.drop.sha256,
        "bytes": request.drop.bytes,
        "rows": request.drop.rows,
        "snapshot": snapshot,
        "loaded_at": datetime.now(UTC),
    }


def _loaded(run: Run, request: Request, closing: Closing, tallies: tuple[Tally, ...]) -> Loaded:
    node_id = request.audits.node_id
    verdict = closing.decision.verdicts[node_id]
    outcome: Outcome = verdict.outcome
    reasons = verdict.reasons
    if closing.refused is not None:
        outcome, reasons = "held", (closing.refused,)
    beside = tuple(
        f"{node.name} is {found.outcome}: {'; '.join(found.reasons)}"
        for node in closing.nodes
        if request.publish
        and node.node_id != node_id
        and (found := closing.decision.verdicts[node.node_id]).outcome != "published"
    )
    return Loaded(outcome, run.run_id, run.branch, reasons, tallies, beside=beside)
