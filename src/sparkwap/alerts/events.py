"""What there is to tell: of a run that ended, of a rollback, of branches and quarantines as they
are. Free of dbt, Spark and catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from sparkwap.alerts.model import Event, FailedRows, FailedTest, NextCommand
from sparkwap.alerts.project import Project, trouble
from sparkwap.core import next_command
from sparkwap.core.names import short_run_id
from sparkwap.gate.alert_settings import Kind
from sparkwap.gate.facts import BuiltNode
from sparkwap.gate.verdicts import PUBLISHING_OFF, Decision
from sparkwap.maintenance.decision import words

UNCHANGED = "Readers of main see the state before this run."
_REASONS = 3
_GO_ON: Mapping[Kind, tuple[str, str]] = {
    "rejected": ("build", "after a fix"),
    "refused": ("build", "build on main as it is"),
    "held": ("test", "audit and publish"),
}


class EndedRun(Protocol):
    """How a run ended, as `sparkwap.runs.types.RunEnd` has it."""

    @property
    def decision(self) -> Decision: ...
    @property
    def nodes(self) -> Sequence[BuiltNode]: ...
    @property
    def published(self) -> int: ...
    @property
    def refused(self) -> str | None: ...
    @property
    def refusals(self) -> Mapping[str, Sequence[str]]: ...
    @property
    def gave_up(self) -> str: ...


class PastPublish(Protocol):
    """A publish, as `sparkwap.ledger.records.LedgerPublish` has it."""

    @property
    def publish_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def published_at(self) -> datetime: ...
    @property
    def entries(self) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that did not pass.

    Attributes:
        test_id: dbt's unique id.
        name: Its name.
        reads: Ids of the nodes whose rows it reads.
        failures: Number of rows; None if unknown.
    """

    test_id: str
    name: str
    reads: frozenset[str]
    failures: int | None = None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A raw table's quarantine: its bad rows that no replay has brought back, of so many rows."""

    node_id: str
    name: str
    bad: int
    rows: int


def of_run(
    closing: EndedRun,
    failures: Sequence[Failure],
    *,
    run_id: str,
    branch: str,
    at: datetime,
    project: Project,
    ways: Sequence[tuple[str, str]],
    samples: Mapping[str, FailedRows],
) -> list[Event]:
    """The tables of a run that were rejected, and those whose publish the catalog refused.

    What is held because of them is no news of its own.

    Args:
        closing: How the run ended.
        failures: The tests of this invocation that did not pass.
        run_id: dbt's invocation id.
        branch: The audit branch.
        at: When it ended.
        project: Owners and personal columns.
        ways: The next steps, as the summary has them.
        samples: Rows that failed a test, by its id.
    """
    verdicts = closing.decision.verdicts
    names = {node.node_id: node.name for node in closing.nodes}
    commands = tuple(NextCommand(purpose, command) for purpose, command in ways)
    state = UNCHANGED if not closing.published else f"{_tables(closing.published)} published."

    def event(kind: Kind, node_id: str, reasons: Sequence[str]) -> Event:
        bad = [failure for failure in failures if node_id in failure.reads]
        tests = [] if kind != "rejected" else bad
        return Event(
            kind=kind,
            subject=names[node_id],
            run_id=run_id,
            at=at,
            owners=project.owners([node_id, *(test.test_id for test in tests)]),
            reasons=_reasons(reasons, node_id, project),
            tests=tuple(
                FailedTest(t.test_id, t.name, t.failures, samples.get(t.test_id)) for t in tests
            ),
            branch=branch,
            commands=commands,
            state=state,
            key=trouble(reasons) if kind == "rejected" else "",
        )

    found = [
        event("rejected", node_id, verdict.reasons)
        for node_id, verdict in verdicts.items()
        if verdict.outcome == "rejected"
    ]
    if closing.refused is not None:
        stopped = [key for key in closing.refusals if key in names] or closing.decision.publish
        why = [closing.refused, *([closing.gave_up] if closing.gave_up else [])]
        found += [event("refused", node_id, why) for node_id in stopped]
    return found


def broken_down(
    message: str,
    node_ids: Iterable[str],
    *,
    subject: str,
    run_id: str,
    branch: str,
    at: datetime,
    project: Project,
) -> Event:
    """A run that the gate could not bring to its end; it concerns all who own something of it."""
    status = NextCommand("see which tables are published", "dbt run-operation wap_status")
    return Event(
        kind="failed",
        subject=subject,
        run_id=run_id,
        at=at,
        owners=project.owners(node_ids),
        reasons=(_shown(message),),
        branch=branch,
        commands=(status, NextCommand("go on; nothing is done twice", "dbt retry")),
        state="All tables of the run are published, or none.",
    )


def of_rollback(
    publishes: Sequence[PastPublish],
    *,
    run_id: str,
    at: datetime,
    project: Project,
    node_ids: Mapping[str, str],
) -> list[Event]:
    """The tables that a rollback has put back.

    Args:
        publishes: The publish that was undone, and those that went with it.
        run_id: The invocation that rolled back.
        at: When.
        project: Owners.
        node_ids: Node by table name.
    """
    found = []
    for publish in publishes:
        short = short_run_id(publish.run_id)
        again = f"dbt run-operation wap_rollback --args '{{run: {short}, reopen: true}}'"
        for entry in publish.entries:
            name = ".".join(entry.identifier)
            found.append(
                Event(
                    kind="rolled_back",
                    subject=name,
                    run_id=run_id,
                    at=at,
                    owners=project.owners([node_ids[name]] if name in node_ids else []),
                    reasons=(
                        f"the publish of run {short} at {publish.published_at:%Y-%m-%d %H:%M} UTC "
                        "was undone",
                    ),
                    branch=publish.branch,
                    commands=(NextCommand("audit it again", again),),
                    state="Readers of main see the state before that publish.",
                    key=publish.publish_id,
                )
            )
    return found


def of_branch(
    branch: str,
    rows: Iterable[Mapping[str, Any]],
    standing: Iterable[str],
    *,
    held_for: timedelta,
    now: datetime,
    project: Project,
) -> list[Event]:
    """What stands on an audit branch: rejected, or held too long.

    Args:
        branch: The branch.
        rows: The latest row of each node on it, from the ledger.
        standing: Tables with a candidate on it, ``schema.table``.
        held_for: How long a candidate may be held.
        now: The time.
        project: Owners and personal columns.
    """
    there = set(standing)
    see = NextCommand("see why", next_command.operation("wap_status", branch))
    drop = NextCommand("discard it", next_command.operation("wap_discard", branch))
    found = []
    for row in rows:
        name, verdict = f"{row['schema']}.{row['name']}", row["verdict"]
        kind: Kind = "held" if verdict != "rejected" else "rejected"
        if verdict == "rejected" and row.get("refusal"):
            kind = "refused"
        age = now - row["built_at"]
        waits = verdict == "held" and name in there and row["reason"] != PUBLISHING_OFF
        if not (verdict == "rejected" or (waits and age >= held_for)):
            continue
        verb, purpose = _GO_ON[kind]
        given = row["reason"] or "no reason was given"
        reason = _reasons([given], row["node_id"], project)
        found.append(
            Event(
                kind=kind,
                subject=name,
                run_id=row["run_id"],
                at=row["built_at"],
                owners=project.owners([row["node_id"]]),
                reasons=(*reason, f"{verdict} for {words(age)}"),
                branch=branch,
                commands=(see, NextCommand(purpose, next_command.dbt(verb, branch=branch)), drop),
                state="Readers of main do not see it.",
                key=trouble([given]) if kind == "rejected" else "",
            )
        )
    return found


def of_quarantine(
    found: Iterable[Quarantined],
    threshold: float | None,
    *,
    run_id: str,
    at: datetime,
    project: Project,
) -> list[Event]:
    """The raw tables with more rows in quarantine than the threshold allows."""
    if threshold is None:
        return []
    return [
        Event(
            kind="quarantine",
            subject=one.name,
            run_id=run_id,
            at=at,
            owners=project.owners([one.node_id]),
            reasons=(
                f"{_rows(one.bad)} of {one.rows + one.bad:,} in quarantine, and "
                f"{_limit(threshold)} allowed",
            ),
            commands=(
                NextCommand("see them", "sparkwap quarantine list"),
                NextCommand("after mending the entry", "sparkwap quarantine replay"),
            ),
            state="The good rows are published; those in quarantine are in no table.",
        )
        for one in found
        if over(one, threshold)
    ]


def over(one: Quarantined, threshold: float) -> bool:
    """Whether a quarantine is beyond a threshold: rows, or below 1 a share of all rows."""
    if threshold >= 1 or threshold == 0:
        return one.bad > threshold
    return one.bad > threshold * (one.bad + one.rows)


def example(*, run_id: str, at: datetime) -> Event:
    """What `sparkwap alerts test` sends: like a rejection, and said to be none."""
    return Event(
        kind="rejected",
        subject="example.orders",
        run_id=run_id,
        at=at,
        reasons=("this is a test of the route; nothing was rejected",),
        tests=(
            FailedTest(
                "test.example.orders_are_unique",
                "orders_are_unique",
                2,
                FailedRows(("order_id", "n_records"), (("17", "2"), ("23", "2"))),
            ),
        ),
        branch="wap_00000000",
        commands=(NextCommand("nothing is to be done", "sparkwap alerts test"),),
        state="Readers of main see no change.",
    )


def _reasons(reasons: Iterable[str], node_id: str, project: Project) -> tuple[str, ...]:
    told = [_shown(project.harmless(reason, node_id)) for reason in reasons]
    more = len(told) - _REASONS
    return (*told[:_REASONS], *([f"and {more} more"] if more > 0 else []))


_LONGEST = 300


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 4] + " ..."


def _tables(count: int) -> str:
    return f"{count:,} table{' was' if count == 1 else 's were'}"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _limit(threshold: float) -> str:
    if 0 < threshold < 1:
        return f"{threshold:.2%} is"
    return f"{threshold:g} {'is' if threshold == 1 else 'are'}"
