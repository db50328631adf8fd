"""``wap_rollback``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from sparkwap.audits.metrics import exact_rows
from sparkwap.catalog import Identifier, LedgerRows, RollbackRefused, RollbackTorn, UndonePublish
from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import PublishedEntry
from sparkwap.core import names, next_command
from sparkwap.core.arguments import argument
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.errors import ConfigError
from sparkwap.core.text import counted, some_of
from sparkwap.ledger import rollback_plan
from sparkwap.ledger.records import candidate_columns, token_of
from sparkwap.runs.operations.context import Context, Operation
from sparkwap.runs.operations.found import PublishRecord, RollbackResult

if TYPE_CHECKING:
    from sparkwap.catalog import Candidate
    from sparkwap.ledger.records import LedgerPublish
    from sparkwap.publish.lake import Lake

_SHOWN = 10
_ERASURES = ("wap_erase", "wap_rectify")


@dataclass(frozen=True, slots=True)
class _LaterSnapshot:
    """A snapshot on `main` after a publish.

    Attributes:
        operation: Iceberg's operation: ``append``, ``overwrite``, ``delete``, ``replace``.
        run_id: The run that wrote it; None for a writer that bypasses the gate.
    """

    snapshot_id: int
    at: datetime
    operation: str
    run_id: str | None


@dataclass(frozen=True, kw_only=True)
class Rollback(Operation):
    """Undo a publish, with all of its tables."""

    name: ClassVar = "wap_rollback"
    run: str | None = argument(
        "the run or publish to undo: its id, or the first eight digits", default=None
    )
    force: bool = argument(
        "also undo later changes of its tables; by default, such changes stop it",
        default=False,
    )
    reopen: bool = argument(
        "put its candidates on the audit branch again, to audit them again; also possible "
        "after the rollback",
        default=False,
    )

    def operate(self, gate: Context) -> Iterable[str]:
        done = self._publish(gate)
        if self.reopen:
            _require_free(gate, done)
        if not done.rolled_back:
            yield from self._undo(gate, done)
        if self.reopen:
            yield from _reopen(gate, done)
        else:
            again = next_command.operation(self.name, run=_short(done), reopen=True)
            yield f"  Next: audit it again   {again}"

    def _undo(self, gate: Context, done: LedgerPublish) -> Iterable[str]:
        later = rollback_plan.later_on_the_same(done, gate.lake.ledger.publishes())
        publishes = [done, *later] if self.force else [done]
        entries = rollback_plan.entries_before(publishes)
        bypasses = _written_past(gate.lake, publishes) if self.force else []
        try:
            gate.lake.publishing.rollback(
                entries,
                run_id=gate.run_id,
                publish_id=done.publish_id,
                branch=done.branch,
                force=self.force,
                undone=[UndonePublish(p.publish_id, p.branch, p.left) for p in publishes],
            )
        except RollbackRefused as refused:
            raise refused.with_message(self._why_not(gate.lake, done, later, refused)) from refused
        except RollbackTorn as torn:
            raise torn.with_message(_format_partial(gate.lake, done, torn)) from torn
        gate.rolled_back[:] = [replace(one, entries=one.left) for one in publishes]
        undone = tuple(
            PublishRecord(
                one.publish_id,
                one.run_id,
                one.branch,
                one.published_at,
                tuple(".".join(entry.identifier) for entry in one.left),
            )
            for one in publishes
        )
        gate.found.append(CommandEnd(result=RollbackResult(undone)))
        noun = "later publish" if len(later) == 1 else "later publishes"
        with_it = f", and with it {len(later)} {noun}" if self.force and later else ""
        how = _how(gate.lake)
        yield (
            f"Rolled back the publish of run {_short(done)}{with_it}, {how}; "
            "readers of main see again:"
        )
        longest = max((len(".".join(entry.identifier)) for entry in entries), default=0)
        for entry in entries:
            rows = _format_rows(gate.lake, entry.identifier)
            yield f"  {'.'.join(entry.identifier):<{longest}}   {rows}"
        if self.force:
            yield from (f"  undone with it: {_format_publish(one)}" for one in later)
            yield from (f"  lost to readers: {text}" for text in bypasses)

    def _why_not(
        self,
        lake: Lake,
        done: LedgerPublish,
        later: Sequence[LedgerPublish],
        refused: RollbackRefused,
    ) -> str:
        """Return the refusal with the later changes of each table, and the next commands."""
        by_candidate = {
            (entry.identifier, entry.candidate): one for one in later for entry in one.entries
        }
        lines = [f"Nothing was rolled back: tables have changed since {_format_publish(done)}."]
        for mismatch in refused.mismatches:
            lines.append(f"  {mismatch}")
            steps = _snapshots_since(lake, done, mismatch.identifier)
            publishes = [one for one in later if _touches(one, mismatch.identifier)]
            lines += [f"      then came {_format_publish(one)}" for one in publishes]
            lines += [
                f"      then came {_format_snapshot(step)}"
                for step in reversed(steps)
                if (mismatch.identifier, step.snapshot_id) not in by_candidate
                and step.run_id is None
            ]
            if not publishes and not steps:
                lines.append("      the ledger does not have the writer")
        lines.append("All tables are as they were.")
        runs = lake.ledger.runs()
        erasures = {r["run_id"]: r["command"] for r in runs if r["command"] in _ERASURES}
        if erasing := [one for one in (done, *later) if one.run_id in erasures]:
            which = some_of([f"run {_short(one)} ({erasures[one.run_id]})" for one in erasing])
            lines.append(
                f"The former states of tables that held erased values were deleted by {which}. No "
                "rollback restores them, also no forced one."
            )
            return "\n".join(lines)
        if self.force:
            lines.append("Their former state no longer exists, so force cannot restore it.")
            return "\n".join(lines)
        if later:
            newest = next_command.operation(self.name, run=_short(later[-1]))
            lines.append(
                f"  Next: roll back the later publishes first, starting with the newest   {newest}"
            )
        forced = next_command.operation(self.name, run=_short(done), force=True)
        begin = "        or" if later else "  Next:"
        lines.append(f"{begin} undo all later changes {_how(lake)}   {forced}")
        lines.append(
            "        force restores every table as it was before this publish, without newer rows. "
            "It also undoes:"
        )
        for one in later:
            tables = [".".join(entry.identifier) for entry in one.entries]
            lines.append(f"          {_format_publish(one)}: {some_of(tables, _SHOWN)}")
        lines += [f"          {text}" for text in _written_past(lake, [done, *later])]
        return "\n".join(lines)

    def _publish(self, gate: Context) -> LedgerPublish:
        """Return the publish with the given id; to reopen, it may be rolled back already.

        Raises:
            ConfigError: There is no such publish, or several; the message lists publishes.
        """
        ledger, run = gate.lake.ledger, self.run
        named = ledger.publish(run or "")
        found = [p for p in named if not p.rolled_back]
        if self.reopen and not found and named:
            return named[0]
        if len(found) == 1:
            return found[0]
        if run is None:
            problem = "run is missing"
        elif not found:
            problem = f"{run!r} has no publish, or its publish is already rolled back"
        else:
            problem = f"{len(found)} publishes have the id {run!r}; give the whole publish id"
        recent = found or [p for p in ledger.publishes(limit=_SHOWN) if not p.rolled_back]
        known = [
            f"  {_short(p)}   publish {p.publish_id}   "
            f"{p.published_at:%Y-%m-%d %H:%M:%S} UTC   {counted(len(p.left or p.entries), 'table')}"
            + (f"   {p.by}" if p.by else "")
            for p in recent
        ]
        raise ConfigError("\n".join([str(self.refused(problem)), "Publishes:", *known]))


def _later_snapshots(lake: Lake, entry: PublishedEntry) -> list[_LaterSnapshot]:
    """Return the snapshots of `main` after a publish, newest first.

    Returns:
        An empty list for views, for dropped or replaced tables, and if `main` was set back.
    """
    row = lake.store.backend.get(entry.identifier)
    if row is None or row.kind == "view" or entry.candidate is None:
        return []
    document = lake.store.load(row.location)
    found: list[_LaterSnapshot] = []
    for snapshot in md.ancestors(document, md.main_of(document)):
        if snapshot["snapshot-id"] == entry.candidate:
            return found
        at = datetime.fromtimestamp(int(snapshot["timestamp-ms"]) / 1000, UTC)
        summary = snapshot.get("summary") or {}
        operation = str(summary.get("operation", "write"))
        number = int(snapshot["snapshot-id"])
        found.append(_LaterSnapshot(number, at, operation, summary.get("wap_run")))
        if snapshot.get("parent-snapshot-id") == entry.candidate:
            return found  # It may have expired.
    return []


def _format_rows(lake: Lake, identifier: Identifier) -> str:
    """Return the number and the time of the rows that readers of main see now, in words."""
    state = lake.state(identifier)
    if state is None:
        return "no table, as before"
    if state.kind == "view":
        return "the view as before"
    if state.main is None:
        return "no rows yet"
    rows = exact_rows(lake.snapshot_summary(identifier, state.main))
    count = "its rows" if rows is None else counted(rows, "row")
    changed = lake.last_change(identifier)
    return f"{count} of {changed:%Y-%m-%d %H:%M:%S} UTC" if changed else count


def _format_partial(lake: Lake, done: LedgerPublish, torn: RollbackTorn) -> str:
    """Return which tables a sequential rollback has undone and which not, and the next commands."""
    lines = [
        f"Rolled back in part: others changed tables while {_format_publish(done)} was being "
        "undone. Readers of main see these tables as before it:",
        *(f"  {'.'.join(name)}" for name in torn.back),
        "These are not rolled back, so that readers see the publish and later changes:",
    ]
    for mismatch in torn.mismatches:
        lines.append(f"  {mismatch}")
        lines += [
            f"      then came {_format_snapshot(step)}"
            for step in reversed(_snapshots_since(lake, done, mismatch.identifier))
        ]
    choices = next_command.operation("wap_rollback", run=done.publish_id)
    forced = next_command.operation("wap_rollback", run=done.publish_id, force=True)
    lines += [
        f"  Next: see the choices for these tables   {choices}",
        f"        or also undo the later changes     {forced}",
    ]
    return "\n".join(lines)


def _snapshots_since(
    lake: Lake, done: LedgerPublish, identifier: Identifier
) -> list[_LaterSnapshot]:
    found = [entry for entry in done.entries if entry.identifier == identifier]
    return [step for entry in found for step in _later_snapshots(lake, entry)]


def _how(lake: Lake) -> str:
    return "in one transaction" if lake.store.backend.atomic else "one table after the other"


def _written_past(lake: Lake, publishes: Sequence[LedgerPublish]) -> list[str]:
    """Return the writes that bypassed the gate, to tables of the publishes since the first one."""
    return [
        f"{'.'.join(entry.identifier)}: {_format_snapshot(step)}"
        for entry in rollback_plan.entries_before(publishes)
        for step in reversed(_later_snapshots(lake, entry))
        if step.run_id is None
    ]


def _require_free(gate: Context, done: LedgerPublish) -> None:
    if any(one.branch == done.branch for one in gate.lake.branches.all()):
        raise ConfigError(
            f"The audit branch {done.branch} is open again, so the candidates of "
            f"{_format_publish(done)} cannot be put there. Nothing was changed. Publish it "
            f"first ({next_command.operation('wap_publish', done.branch)}), or discard it "
            f"({next_command.operation('wap_discard', done.branch)})"
        )


def _reopen(gate: Context, done: LedgerPublish) -> Iterable[str]:
    rows = gate.lake.ledger.published_nodes(done)

    def record(found: Mapping[Identifier, Candidate]) -> list[LedgerRows]:
        at = gate.lake.ledger.time_on(done.branch)
        held = [_held_row(gate.run_id, row, found[row["schema"], row["name"]], at) for row in rows]
        tokens = {row["node_id"]: token_of(row) for row in held}
        for row in held:
            built_on = dict(row["built_on"] or ())
            row["built_on"] = {key: tokens.get(key, token) for key, token in built_on.items()}
        return [LedgerRows("nodes", held)]

    found = gate.lake.publishing.reopen(done.entries, branch=done.branch, record=record)
    yield (
        f"Opened {done.branch} again with {counted(len(found), 'table')}, as published; readers of "
        "main see no change."
    )
    yield f"  Next: audit it again         {next_command.dbt('test', branch=done.branch)}"
    yield f"        publish it as audited  {next_command.operation('wap_publish', done.branch)}"
    yield f"        discard it             {next_command.operation('wap_discard', done.branch)}"


def _held_row(
    run_id: str, row: Mapping[str, Any], candidate: Candidate, at: datetime
) -> dict[str, Any]:
    return {
        **row,
        "run_id": run_id,
        **candidate_columns(candidate),
        "verdict": "held",
        "reason": "its publish was rolled back",
        "built_at": at,
    }


def _short(publish: LedgerPublish) -> str:
    return names.short_run_id(publish.run_id)


def _format_publish(publish: LedgerPublish) -> str:
    return f"the publish of run {_short(publish)} at {publish.published_at:%Y-%m-%d %H:%M:%S} UTC"


def _format_snapshot(step: _LaterSnapshot) -> str:
    what = "a compaction, which changes no row" if step.operation == "replace" else step.operation
    return f"{what}, written past the gate at {step.at:%Y-%m-%d %H:%M:%S} UTC"


def _touches(publish: LedgerPublish, identifier: Identifier) -> bool:
    return any(entry.identifier == identifier for entry in publish.entries)
