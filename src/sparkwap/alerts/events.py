"""Makes the events of runs, rollbacks, branches and quarantines, without dbt, Spark or catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sparkwap.alerts.model import Event, FailedRows, FailedTest, NextCommand
from sparkwap.alerts.project import Project, trouble
from sparkwap.core import next_command
from sparkwap.core.names import short_run_id
from sparkwap.core.text import counted
from sparkwap.gate.alert_settings import Kind
from sparkwap.gate.verdicts import PUBLISHING_OFF
from sparkwap.maintenance.decision import words
from sparkwap.runs.summary import TOGETHER, readers

if TYPE_CHECKING:
    from sparkwap.ledger.records import LedgerPublish
    from sparkwap.runs.types import RunEnd

_REASONS = 3
_LONGEST = 300
_NEXT: Mapping[Kind, tuple[str, str]] = {
    "rejected": ("build", "after a fix"),
    "refused": ("build", "build on main as it is"),
    "held": ("test", "audit and publish"),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that did not pass.

    Attributes:
        reads: Ids of the nodes whose rows it reads.
        failures: Number of failed rows; None if unknown.
    """

    test_id: str
    name: str
    reads: frozenset[str]
    failures: int | None = None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The quarantine of a raw table.

    Attributes:
        name: Its name, ``schema.table``.
        bad: Rows in quarantine that no replay has accepted.
        rows: Rows of the raw table.
    """

    node_id: str
    name: str
    bad: int
    rows: int


def of_run(
    closing: RunEnd,
    failures: Sequence[Failure],
    *,
    run_id: str,
    branch: str,
    at: datetime,
    project: Project,
    ways: Sequence[tuple[str, str]],
    samples: Mapping[str, FailedRows],
) -> list[Event]:
    """Return the events of a run: tables that were rejected or refused by the catalog.

    Tables that are held because of these get no events of their own.

    Args:
        failures: The tests of this invocation that did not pass.
        ways: Purpose and command of the next steps, as in the summary.
        samples: Rows that failed a test, by its id.
    """
    verdicts = closing.decision.verdicts
    names = {node.node_id: node.name for node in closing.nodes}
    commands = tuple(NextCommand(purpose, command) for purpose, command in ways)
    live = closing.published
    state = f"Nothing was published{readers(closing)}"
    if live:
        state = f"{counted(live, 'table')} {'was' if live == 1 else 'were'} published."

    def event(kind: Kind, node_id: str, reasons: Sequence[str]) -> Event:
        tests = [f for f in failures if node_id in f.reads] if kind == "rejected" else []
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
            # The ledger has only the first reason of a refusal.
            key=trouble(reasons if kind == "rejected" else reasons[:1]),
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
    """Return the event of a run that the gate could not close, for the owners of all its nodes."""
    status = NextCommand("see which tables are published", next_command.operation("wap_status"))
    return Event(
        kind="failed",
        subject=subject,
        run_id=run_id,
        at=at,
        owners=project.owners(node_ids),
        reasons=(_shown(message),),
        branch=branch,
        commands=(status, NextCommand("continue; nothing is done twice", "dbt retry")),
        state=TOGETHER,
        key=trouble([message]),
    )


def of_rollback(
    publishes: Sequence[LedgerPublish],
    *,
    run_id: str,
    at: datetime,
    project: Project,
    node_ids: Mapping[str, str],
) -> list[Event]:
    """Return an event for each table that a rollback has put back.

    Args:
        run_id: The invocation that rolled back.
        node_ids: Node by table name.
    """
    found = []
    for publish in publishes:
        short = short_run_id(publish.run_id)
        again = next_command.operation("wap_rollback", run=short, reopen=True)
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
    """Return the events of tables on an audit branch that are rejected, or held too long.

    Args:
        rows: The latest row of each of its nodes, from the ledger.
        standing: Tables that have a candidate on the branch, ``schema.table``.
    """
    candidates = set(standing)
    see = NextCommand("see why", next_command.operation("wap_status", branch))
    drop = NextCommand("discard it", next_command.operation("wap_discard", branch))
    found = []
    for row in rows:
        name, verdict = f"{row['schema']}.{row['name']}", row["verdict"]
        kind: Kind = "held"
        if verdict == "rejected":
            kind = "refused" if row.get("refusal") else "rejected"
        age = now - row["built_at"]
        waits = verdict == "held" and name in candidates and row["reason"] != PUBLISHING_OFF
        if not (verdict == "rejected" or (waits and age >= held_for)):
            continue
        verb, purpose = _NEXT[kind]
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
                state="Readers of main do not see the candidate.",
                key=trouble([given]),
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
    """Return an event for each raw table with more rows in quarantine than ``threshold`` allows."""
    if threshold is None:
        return []
    return [
        Event(
            kind="quarantine",
            subject=table.name,
            run_id=run_id,
            at=at,
            owners=project.owners([table.node_id]),
            reasons=(
                f"{counted(table.bad, 'row')} of {table.rows + table.bad:,} in quarantine; "
                f"{_limit(threshold)} allowed",
            ),
            commands=(
                NextCommand("see the rows", next_command.sparkwap("quarantine list")),
                NextCommand(
                    "after a fix of the landing entry", next_command.sparkwap("quarantine replay")
                ),
            ),
            state="The good rows are published; the rows in quarantine are not.",
        )
        for table in found
        if over(table, threshold)
    ]


def over(table: Quarantined, threshold: float) -> bool:
    """Return whether a quarantine exceeds a number of rows, or (below 1) a share of all rows."""
    if threshold >= 1 or threshold == 0:
        return table.bad > threshold
    return table.bad > threshold * (table.bad + table.rows)


def example(*, run_id: str, at: datetime) -> Event:
    """Return the event that `sparkwap alerts test` sends: a rejection that is marked as a test."""
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
        commands=(NextCommand("send the test again", next_command.sparkwap("alerts test")),),
        state="Readers of main see no change.",
    )


def _reasons(reasons: Iterable[str], node_id: str, project: Project) -> tuple[str, ...]:
    lines = [_shown(project.harmless(reason, node_id)) for reason in reasons]
    more = len(lines) - _REASONS
    return (*lines[:_REASONS], *([f"and {more} more"] if more > 0 else []))


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 4] + " ..."


def _limit(threshold: float) -> str:
    if 0 < threshold < 1:
        return f"{threshold:.2%} is"
    return f"{threshold:g} {'is' if threshold == 1 else 'are'}"
