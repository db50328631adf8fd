"""``wap_status``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from sparkwap.catalog import OpenBranch
from sparkwap.catalog import lease as leasing
from sparkwap.core import names, next_command
from sparkwap.core.arguments import argument
from sparkwap.core.text import age
from sparkwap.runs.operations.context import Context, Operation
from sparkwap.runs.state import published_and_died

if TYPE_CHECKING:
    from sparkwap.catalog.leases import Lease

_REWRITTEN = "rejected: written again since its run, by a run that has not ended"
_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Status(Operation):
    """Show the open audit branches: base, candidate, age, and why each table is held."""

    name: ClassVar = "wap_status"
    only_reads: ClassVar = True
    branch: str | None = argument(
        "an audit branch, to show all its tables; by default, all branches", default=None
    )

    def operate(self, gate: Context) -> Iterable[str]:
        half_way = gate.lake.publishing.on_their_way()
        for row in half_way:
            yield (
                f"The {row['action']} of run {names.short_run_id(row['run_id'])} has not come to "
                "its end: some of its tables may be moved and others not. The next dbt build, "
                "wap_publish, wap_discard or wap_rollback completes or undoes it."
            )
        for table, fault in gate.lake.unreadable().items():
            yield f"{'.'.join(table)} cannot be read, and is not shown here: {fault}"
        found = gate.lake.branches.all()
        if self.branch is not None:
            found = [self.open_branch(found, self.branch)]
        else:
            yield from _tell_last(gate, {row["run_id"] for row in half_way})
        now, all_leases = gate.lake.leases.now(), gate.lake.leases.all()
        leases = {
            lease.branch: (lease, leasing.alive(lease, now))
            for lease in sorted(all_leases, key=lambda lease: leasing.alive(lease, now))
        }
        if not found:
            yield "No audit branch is open: all builds are published or discarded."
            return
        yield f"{len(found)} audit branch{'es are' if len(found) > 1 else ' is'} open:"
        for one in found:
            yield from self._tell_branch(gate, one, *leases.get(one.branch, (None, False)))
        if self.branch is None:
            yield f"Show one branch:  {next_command.operation(self.name, '<name>')}"

    def _tell_branch(
        self, gate: Context, one: OpenBranch, lease: Lease | None, lives: bool
    ) -> Iterable[str]:
        history = gate.lake.ledger.branch_history(one.branch)
        reasons = {(r["schema"], r["name"]): r for r in history.nodes}
        created = [table.created_ms for table in one.tables]
        built = [r["built_at"] for r in history.nodes]
        since = min([*map(_when, created), *built], default=None)
        count = len(one.tables) + len(one.side)
        yield ""
        yield f"  {one.branch}   {count} table{'s' if count != 1 else ''}   {_age(since)}"
        if lease is not None:
            yield f"    {leasing.describe(lease, lives=lives)}"
        if not history.nodes and not lives:
            yield "    its run did not end, so nothing on the branch can be published as it is"
        blocks = [*_table_lines(one, reasons), *_side_lines(one, reasons)]
        blocks.sort(key=lambda lines: "   rejected" not in lines[0])
        shown = blocks if self.branch is not None else blocks[:_SHOWN]
        for lines in shown:
            yield from lines
        if len(blocks) > len(shown):
            yield f"    and {len(blocks) - len(shown)} more tables"
        yield from _next_commands(one.branch, history.nodes)


def _tell_last(gate: Context, half_way: Collection[str]) -> Iterable[str]:
    """Yield lines about the last run of this working copy, if it has not ended.

    Args:
        gate: The context.
        half_way: The runs with an interrupted sequential publish.
    """
    last = gate.unfinished
    if last is None:
        return
    done = gate.lake.ledger.standing_publishes(last.run_id)
    if done:
        yield published_and_died(last, done)
    elif last.run_id in half_way:
        yield (
            f"Run {names.short_run_id(last.run_id)} on {last.branch}, the last one here, has "
            "not come to its end: it still runs, or it died during its publish. If it died, `dbt "
            "retry` completes or undoes the publish, and builds only undone tables again."
        )
    else:
        yield (
            f"Run {names.short_run_id(last.run_id)} on {last.branch}, the last one here, has "
            "not come to its end: it still runs, or it died. It has published nothing. "
            "If it died:  dbt retry"
        )
    yield ""


def _table_lines(
    one: OpenBranch, reasons: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Iterable[tuple[str, str]]:
    for table in one.tables:
        moved = "" if table.main_now == table.base else f", and main is at {table.main_now} now"
        row = reasons.get(table.identifier)
        known = row is None or row["candidate_snapshot"] in (None, table.head)
        yield (
            f"    {'.'.join(table.identifier)}   {_verdict(row) if known else _REWRITTEN}",
            f"        base {table.base}, candidate {table.head}{moved}",
        )


def _side_lines(
    one: OpenBranch, reasons: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Iterable[tuple[str, str]]:
    for side in one.side:
        schema = names.split_side_schema(side.identifier[0], one.branch)
        row = reasons.get((str(schema), side.identifier[1]))
        yield (
            f"    {schema}.{side.identifier[1]}   {_verdict(row)}",
            f"        candidate is the {side.kind} {'.'.join(side.identifier)}",
        )


def _verdict(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not in the ledger"
    return f"{row['verdict']}: {row['reason']}" if row["reason"] else str(row["verdict"])


def _next_commands(branch: str, nodes: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Yield the next commands for a branch; ``nodes`` are its rows in the ledger."""
    rejected = [node["node_id"] for node in nodes if node["verdict"] == "rejected"]
    if rejected:
        again = next_command.build(rejected, branch, upstream=True)
        yield f"    after a fix, build again   {again}"
    elif nodes:
        yield f"    audit again and publish    {next_command.dbt('test', branch=branch)}"
        yield f"    publish as audited         {next_command.operation('wap_publish', branch)}"
    else:
        yield f"    build it again             {next_command.build((), branch)}"
    yield f"    drop it                    {next_command.operation('wap_discard', branch)}"


def _when(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _age(since: datetime | None) -> str:
    if since is None:
        return "of unknown age"
    return f"{age((datetime.now(UTC) - since).total_seconds())} old"
