"""``wap_status``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from sparkwap import catalog
from sparkwap.catalog import OpenBranch
from sparkwap.catalog import lease as leasing
from sparkwap.core import caller, names, next_command
from sparkwap.core.arguments import argument
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.text import age, counted
from sparkwap.runs.operations.context import Context, Operation
from sparkwap.runs.operations.found import LakeStatus, OpenBranchStatus, OpenTable
from sparkwap.runs.state import published_and_died

if TYPE_CHECKING:
    from sparkwap.catalog.leases import Lease

_REWRITTEN = "written again since its run, by a run that has not ended"
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
                f"The {row['action']} of run {names.short_run_id(row['run_id'])} has not "
                "ended: some of its tables may be live in their new state and others not. The "
                "next dbt build, wap_publish, wap_discard or wap_rollback completes or undoes it."
            )
        unreadable = {".".join(name): why for name, why in gate.lake.unreadable().items()}
        for table, fault in unreadable.items():
            yield f"{table} cannot be read, and is not shown here: {fault}"
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
        # Newest first: the last run of each branch comes last.
        runs = reversed(gate.lake.ledger.runs(self.branch) if found else [])
        last = {row["branch"]: row for row in runs}
        branches = [
            _branch(gate, one, leases.get(one.branch, (None, False))[1], last.get(one.branch, {}))
            for one in found
        ]
        interrupted = tuple(row["run_id"] for row in half_way)
        result = LakeStatus(tuple(branches), interrupted, unreadable)
        gate.found.append(CommandEnd(result=result))
        if not found:
            yield "No audit branch is open: all builds are published or discarded."
            return
        yield f"{len(found)} audit branch{'es are' if len(found) > 1 else ' is'} open:"
        for branch in branches:
            yield from self._tell_branch(branch, leases.get(branch.branch, (None, False))[0])
        if self.branch is None:
            yield f"Show one branch:  {next_command.operation(self.name, '<name>')}"

    def _tell_branch(self, one: OpenBranchStatus, lease: Lease | None) -> Iterable[str]:
        yield ""
        yield f"  {one.branch}   {counted(len(one.tables), 'table')}   {_age(one.since)}"
        if last := caller.describe(asdict(one)):
            yield f"    last run: {last}"
        if lease is not None:
            yield f"    {leasing.describe(lease, lives=one.in_use)}"
        if not one.nodes and not one.in_use:
            yield "    its run did not end, so nothing on the branch can be published as it is"
        tables = sorted(one.tables, key=lambda table: table.verdict != "rejected")
        shown = tables if self.branch is not None else tables[:_SHOWN]
        for table in shown:
            yield from _table_lines(table)
        if len(tables) > len(shown):
            yield f"    and {len(tables) - len(shown)} more tables"
        for name, reason in one.not_built.items():
            yield f"    {name}   not on the branch: {reason}"
        yield from _next_commands(one)


def _branch(
    gate: Context, one: OpenBranch, lives: bool, last: Mapping[str, Any]
) -> OpenBranchStatus:
    nodes = gate.lake.ledger.branch_history(one.branch).nodes
    rows = {(row["schema"], row["name"]): row for row in nodes}
    created = [_when(table.created_ms) for table in one.tables]
    tables = [_open_table(table, rows.get(table.identifier)) for table in one.tables]
    for side in one.side:
        schema = str(names.split_side_schema(side.identifier[0], one.branch))
        name, candidate = f"{schema}.{side.identifier[1]}", ".".join(side.identifier)
        verdict, reason = _verdict(rows.get((schema, side.identifier[1])))
        tables.append(OpenTable(name, verdict, reason, side.kind, candidate))
    there = {table.table for table in tables}
    return OpenBranchStatus(
        one.branch,
        min([*created, *(row["built_at"] for row in nodes)], default=None),
        lives,
        tuple(tables),
        tuple(row["node_id"] for row in nodes),
        tuple(row["node_id"] for row in nodes if row["verdict"] == "rejected"),
        {
            name: row["reason"] or row["status"]
            for row in nodes
            for name in (f"{row['schema']}.{row['name']}",)
            if row["verdict"] != "published" and name not in there
        },
        *(last.get(key) for key in ("project", "actor", "host")),
    )


def _open_table(table: catalog.OpenTable, row: Mapping[str, Any] | None) -> OpenTable:
    known = row is None or row["candidate_snapshot"] in (None, table.head)
    verdict, reason = _verdict(row) if known else ("rejected", _REWRITTEN)
    name, head = ".".join(table.identifier), str(table.head)
    # As text, because programs of other languages round such numbers.
    base, main = (None if one is None else str(one) for one in (table.base, table.main_now))
    return OpenTable(name, verdict, reason, "branch", head, base, main)


def _tell_last(gate: Context, half_way: Collection[str]) -> Iterable[str]:
    """Yield lines about the last run of this working copy, if it has not ended.

    Args:
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
            f"Run {names.short_run_id(last.run_id)} on {last.branch}, the last run of this "
            "target folder, has not ended: it still runs, or it died during its publish. If it "
            "died, `dbt retry` completes or undoes the publish, and builds only undone tables "
            "again."
        )
    else:
        yield (
            f"Run {names.short_run_id(last.run_id)} on {last.branch}, the last run of this "
            "target folder, has not ended: it still runs, or it died. It has published nothing. "
            "If it died:  dbt retry"
        )
    yield ""


def _table_lines(table: OpenTable) -> Iterable[str]:
    reason = f": {table.reason}" if table.reason else ""
    yield f"    {table.table}   {table.verdict or 'no verdict yet: its run has not ended'}{reason}"
    if table.where != "branch":
        yield f"        candidate is the {table.where} {table.candidate}"
        return
    moved = "" if table.main == table.base else f", and main is at {table.main} now"
    yield f"        base {table.base}, candidate {table.candidate}{moved}"


def _verdict(row: Mapping[str, Any] | None) -> tuple[str | None, str | None]:
    return (row["verdict"], row["reason"]) if row else (None, None)


def _next_commands(one: OpenBranchStatus) -> Iterable[str]:
    branch = one.branch
    if one.rejected:
        yield f"    after a fix, build again   {next_command.build((), branch)}"
    elif one.nodes:
        yield f"    audit again and publish    {next_command.dbt('test', branch=branch)}"
        yield f"    publish as audited         {next_command.operation('wap_publish', branch)}"
    else:
        yield f"    build it again             {next_command.build((), branch)}"
    yield f"    discard it                 {next_command.operation('wap_discard', branch)}"


def _when(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _age(since: datetime | None) -> str:
    if since is None:
        return "of unknown age"
    return f"{age((datetime.now(UTC) - since).total_seconds())} old"
