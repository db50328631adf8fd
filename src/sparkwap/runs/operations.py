"""What people do with audit branches by hand: look, publish, discard, roll back.

Each operation returns the lines to print. dbt's run-operations of the same names (with the prefix
``wap_``) call them.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sparkwap.audits.metrics import exact_rows
from sparkwap.catalog import (
    Identifier,
    LedgerRows,
    OpenBranch,
    RollbackRefused,
    RollbackTorn,
    UndonePublish,
)
from sparkwap.catalog import lease as leasing
from sparkwap.catalog.leases import Lease
from sparkwap.core import names, next_command
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.gate import summary
from sparkwap.gate.settings import GateSettings, Limits
from sparkwap.gate.thresholds import accepting
from sparkwap.ledger import undo
from sparkwap.ledger.ledger import LedgerPublish
from sparkwap.ledger.manifests import Packed
from sparkwap.publish.lake import Lake
from sparkwap.publish.rollback import Candidate
from sparkwap.runs import moved
from sparkwap.runs.run import Run
from sparkwap.runs.state import LastRun, age, published_and_died
from sparkwap.runs.types import DAY, Invocation, TestFact

LEGAL: Mapping[str, Mapping[str, str]] = {
    "wap_status": {"branch": "an audit branch, to see its tables; all branches if left out"},
    "wap_publish": {
        "branch": "the audit branch to publish",
        "mode": "run (all of its tables or none, the default) or lineage",
    },
    "wap_accept": {
        "branch": "the audit branch whose test failed",
        "test": "the failing test's name, as the summary tells it, or its id",
        "reason": "why its rows are right as they are",
        "by": "who says so; the user of this machine if left out",
        "until": "the last day (YYYY-MM-DD, UTC) on which as many rows are accepted on any branch; "
        "this branch only, until it is published or dropped, if left out",
    },
    "wap_discard": {
        "branch": "the audit branch to drop",
        "force": "true to drop it under a run that is at work on it",
    },
    "wap_sweep": {
        "older_than": "days since anything happened on a run's own audit branch; 7 if left out",
        "named_older_than": "days, for branches that users have named, such as pr_123; 30 if left "
        "out, and no less than older_than",
        "files_older_than": "days since a file was written that nothing refers to, 1 or more; 3 if "
        "left out",
        "dry_run": "true to be told, without any change; false, the default, to do it",
    },
    "wap_rollback": {
        "run": "the run, or publish, to undo: its id, or the first eight digits",
        "force": "true to undo what came to its tables since, too; without it, that stops it",
        "reopen": "true to put its candidates on the audit branch again, to be audited anew; also "
        "after the rollback",
    },
}
"""The arguments of each operation, with their legal values in words."""

_OF_TEST = ("branch", "test_id", "test_name", "severity", "failures", "audited")
_REWRITTEN = "rejected: written anew since its run, by one that did not come to its end"
_SHOWN = 10
_SELECTED = 3


class NotPublished(SparkwapError):
    """Not all of a branch was published; the message is the summary."""


class NotSwept(SparkwapError):
    """Not all that was to go could be taken away; the message is the report."""


class Operations:
    """The operations on one lake.

    :param tests: all tests of the project, which a publish needs to know what was expected.
    :param known: ids of what is in the project: the tests of all else are not among ``tests``.
    :param stands: tells schema and name of the table that a node is; None for none.
    :param manifest: tells the project's code, which a publish puts on record.
    :param unfinished: the last run of this working copy, if it has not come to its end.
    :param width: columns that a line of a summary may have; None for no limit.
    :param next_steps: whether a summary tells the commands that go on.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        run_id: str,
        settings: GateSettings,
        project: str,
        target_name: str,
        tests: Callable[[], Sequence[TestFact]],
        known: Callable[[], Collection[str]],
        unfinished: LastRun | None = None,
        manifest: Callable[[], Packed] | None = None,
        stands: Callable[[str], Identifier | None] = lambda node_id: None,
        width: int | None = None,
        next_steps: bool = True,
    ) -> None:
        self._lake = lake
        self._run_id = run_id
        self._settings = settings
        self._project = project
        self._target_name = target_name
        self._tests = tests
        self._known = known
        self._table_of = stands
        self._unfinished = unfinished
        self._manifest = manifest
        self._width = width
        self._next_steps = next_steps
        self._leases: dict[str, tuple[Lease, bool]] = {}
        self.rolled_back: list[LedgerPublish] = []
        """The publishes that this call has undone, for those who want to know."""

    def call(self, operation: str, arguments: Mapping[str, Any]) -> list[str]:
        """Check the arguments and run an operation.

        :raises ConfigError: an argument is unknown, lacks or has an illegal value; the message
            names the legal ones.
        """
        legal = LEGAL[operation]
        given = {key: value for key, value in arguments.items() if value is not None}
        unknown = sorted(set(given) - set(legal))
        if unknown:
            raise ConfigError(_usage(operation, f"unknown argument: {', '.join(unknown)}"))
        method = getattr(self, "_" + operation.removeprefix("wap_"))
        # What a process that died has left half-way: a look must not change anything.
        found = [] if operation == "wap_status" else self._lake.publishing.recover()
        return [*found, *method(**{key: str(value) for key, value in given.items()})]

    # -- wap_status ------------------------------------------------------------------------------

    def _status(self, branch: str | None = None) -> Iterable[str]:
        half_way = self._lake.publishing.on_their_way()
        for row in half_way:
            yield (
                f"The {row['action']} of run {names.short_run_id(row['run_id'])} has not come to "
                "its end: some of its tables may be moved and others not. The next dbt build, "
                "wap_publish, wap_discard or wap_rollback completes or undoes it."
            )
        for table, fault in self._lake.unreadable().items():
            yield f"{'.'.join(table)} cannot be read, and is left out here: {fault}"
        found = self._lake.branches.all()
        if branch is not None:
            found = [self._branch_of(found, "wap_status", branch)]
        else:
            yield from self._tell_last({row["run_id"] for row in half_way})
        now, leases = self._lake.leases.now(), self._lake.leases.all()
        self._leases = {
            lease.branch: (lease, leasing.alive(lease, now))
            for lease in sorted(leases, key=lambda lease: leasing.alive(lease, now))
        }
        if not found:
            yield "No audit branch is open: all that was built is published or discarded."
            return
        yield f"{len(found)} audit branch{'es are' if len(found) > 1 else ' is'} open:"
        for one in found:
            yield from self._tell_branch(one, whole=branch is not None)
        if branch is None:
            yield "See one whole:  dbt run-operation wap_status --args '{branch: <name>}'"

    def _tell_last(self, half_way: Collection[str]) -> Iterable[str]:
        """What became of the last run, if it has not said so itself.

        :param half_way: the runs whose publish may have moved some tables and others not.
        """
        last = self._unfinished
        if last is None:
            return
        done = self._lake.ledger.standing_publishes(last.run_id)
        if done:
            yield published_and_died(last, done)
        elif last.run_id in half_way:
            yield (
                f"Run {names.short_run_id(last.run_id)} on {last.branch}, the last one here, has "
                "not come to its end: it is still on, or it died in the middle of its publish. If "
                "it died, `dbt retry` completes or undoes the publish, and builds again only what "
                "was undone."
            )
        else:
            yield (
                f"Run {names.short_run_id(last.run_id)} on {last.branch}, the last one here, has "
                "not come to its end: it is still on, or it died. Nothing of it is published. "
                "If it died:  dbt retry"
            )
        yield ""

    def _tell_branch(self, one: OpenBranch, *, whole: bool) -> Iterable[str]:
        history = self._lake.ledger.branch_history(one.branch)
        reasons = {(r["schema"], r["name"]): r for r in history.nodes}
        created = [table.created_ms for table in one.tables]
        built = [r["built_at"] for r in history.nodes]
        since = min([*map(_when, created), *built], default=None)
        count = len(one.tables) + len(one.side)
        yield ""
        yield f"  {one.branch}   {count} table{'s' if count != 1 else ''}   {_age(since)}"
        lease, lives = self._leases.get(one.branch, (None, False))
        if lease is not None:
            yield f"    {leasing.told(lease, lives=lives)}"
        if not history.nodes and not lives:
            yield "    its run did not come to an end, so nothing of it can be published as it is"
        told = [*self._tables_told(one, reasons), *self._side_told(one, reasons)]
        told.sort(key=lambda lines: "   rejected" not in lines[0])
        shown = told if whole else told[:_SHOWN]
        for lines in shown:
            yield from lines
        if len(told) > len(shown):
            yield f"    and {len(told) - len(shown)} more tables"
        yield from _ways_on(one.branch, history.nodes)

    @staticmethod
    def _tables_told(
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

    @staticmethod
    def _side_told(
        one: OpenBranch, reasons: Mapping[tuple[str, str], Mapping[str, Any]]
    ) -> Iterable[tuple[str, str]]:
        for side in one.side:
            schema = names.split_side_schema(side.identifier[0], one.branch)
            row = reasons.get((str(schema), side.identifier[1]))
            yield (
                f"    {schema}.{side.identifier[1]}   {_verdict(row)}",
                f"        candidate is the {side.kind} {'.'.join(side.identifier)}",
            )

    # -- wap_publish -----------------------------------------------------------------------------

    def _publish(self, branch: str | None = None, mode: str = "run") -> Iterable[str]:
        if mode not in ("run", "lineage"):
            raise ConfigError(_usage("wap_publish", f"mode is {mode!r}"))
        one = self._branch_of(self._lake.branches.all(), "wap_publish", branch)
        run = Run(
            self._lake,
            Invocation(
                run_id=self._run_id,
                branch=one.branch,
                settings=replace(self._settings, publish="lineage" if mode == "lineage" else "run"),
                command="wap_publish",
                project=self._project,
                target_name=self._target_name,
            ),
            manifest=self._manifest,
            stands=self._table_of,
        )
        run.candidates.load_side_schemas()
        run.watch_main()
        with self._held(one.branch, "wap_publish"):
            closing = run.close([], self._tests(), [], self._known())
        if all(node.kind == summary.LEFTOVER for node in closing.nodes):
            raise ConfigError(
                f"The ledger knows of nothing on {one.branch} that could be published: its run "
                "did not come to an end. Nothing has changed. Build it again: "
                f"{next_command.dbt('build', branch=one.branch)}, or drop it: "
                f"{next_command.operation('wap_discard', one.branch)}"
            )
        lines = summary.lines(
            closing,
            run_id=self._run_id,
            branch=one.branch,
            width=self._width,
            next_steps=self._next_steps,
        )
        if closing.refused or closing.decision.failed or not closing.published:
            raise NotPublished("\n".join(lines))
        return lines

    @contextmanager
    def _held(self, branch: str, command: str) -> Iterator[None]:
        """Hold a branch while something is done with it."""
        holding = leasing.hold(
            self._lake.leases, run_id=self._run_id, branch=branch, command=command
        )
        try:
            yield
        finally:
            holding.release()

    # -- wap_accept ------------------------------------------------------------------------------

    def _accept(
        self,
        branch: str | None = None,
        test: str | None = None,
        reason: str = "",
        by: str = "",
        until: str | None = None,
    ) -> Iterable[str]:
        one = self._branch_of(self._lake.branches.all(), "wap_accept", branch)
        history = self._lake.ledger.branch_history(one.branch)
        row = _failing_test(history.tests, test)
        reason = " ".join(reason.split())
        if not reason:
            raise ConfigError(_usage("wap_accept", "reason is missing"))
        who = by.strip() or getpass.getuser()
        now = datetime.now(UTC)
        accepted = {
            **{key: row[key] for key in _OF_TEST},
            "run_id": self._run_id,
            "accepted_by": who,
            "reason": reason,
            "accepted_at": now,
            "until": _end_of(until, now),
            "tables": {
                node["node_id"]: f"{node['schema']}.{node['name']}"
                for node in history.nodes
                if node["node_id"] in dict(row["audited"] or ())
            },
        }
        self._lake.ledger.append(LedgerRows("acceptances", [accepted]))
        rows = f"{row['failures']:,} failing row{'s' if row['failures'] != 1 else ''}"
        where = f"on any branch until {until}" if until else f"on {one.branch}"
        yield (
            f"Accepted by {who}: up to {rows} of test {row['test_name']}, {where}. Readers of "
            "main see no change yet."
        )
        if all(node["status"] == "built" for node in history.nodes):
            publish = next_command.operation("wap_publish", one.branch)
            yield f"  Next: publish it as audited   {publish}"
        else:
            yield "  Next: build what was skipped, where the run was made   dbt retry"
            again = next_command.dbt("build", branch=one.branch)
            yield f"        or anywhere else                                 {again}"

    # -- wap_discard -----------------------------------------------------------------------------

    def _discard(self, branch: str | None = None, force: str = "false") -> Iterable[str]:
        forced = _flag("wap_discard", "force", force)
        one = self._branch_of(self._lake.branches.all(), "wap_discard", branch)
        now = self._lake.leases.now()
        for lease in self._lake.leases.all():
            if lease.branch == one.branch and not forced and leasing.alive(lease, now):
                raise SparkwapError(
                    f"{one.branch} is {leasing.told(lease, lives=True)}. Nothing was discarded. "
                    "Wait for that run, or end it; if it is dead and this machine cannot know, its "
                    "lease expires within 15 minutes. To drop the branch under it: dbt "
                    f"run-operation wap_discard --args '{{branch: {one.branch}, force: true}}'. "
                    "The run then publishes nothing."
                )
        gone = self._lake.branches.discard(one.branch, self._run_id)
        count = len(gone.tables) + len(gone.side)
        yield (
            f"Discarded {gone.branch} with {count} table{'s' if count != 1 else ''} on it; readers "
            "of main see no change."
        )
        for schema in gone.kept:
            yield f"Left alone: the schema {schema}, which is named like a side schema but is none."

    # -- wap_sweep -------------------------------------------------------------------------------

    def _sweep(
        self,
        older_than: str | None = None,
        named_older_than: str | None = None,
        files_older_than: str | None = None,
        dry_run: str = "false",
    ) -> Iterable[str]:
        # Here, as it brings PyArrow along: half a second that not every command needs.
        from sparkwap.maintenance import sweeper

        given = {
            "older_than": older_than,
            "named_older_than": named_older_than,
            "files_older_than": files_older_than,
        }
        days = {key: _whole("wap_sweep", key, value) for key, value in given.items() if value}
        default = self._settings.sweep_limits
        run_days = days.get("older_than", default.run_days)
        limits = Limits(
            run_days,
            days.get("named_older_than", max(default.named_days, run_days)),
            days.get("files_older_than", default.file_days),
            default.manifest_days,
        )
        if limits.file_days < 1:
            problem = "files_older_than is 0: a job that is at work would lose its files"
            raise ConfigError(_usage("wap_sweep", problem))
        dry = _flag("wap_sweep", "dry_run", dry_run)
        work = sweeper.Sweeper(
            self._lake,
            run_id=self._run_id,
            limits=limits,
            retention_days=self._settings.tag_retention_days,
        )
        arguments = ", ".join(f"{key}: {value}" for key, value in days.items())
        again = "dbt run-operation wap_sweep" + (f" --args '{{{arguments}}}'" if days else "")
        report = work.look() if dry else work.sweep()
        told = sweeper.lines(report, again)
        if report.problems:
            raise NotSwept("\n".join(told))
        return told

    # -- wap_rollback ----------------------------------------------------------------------------

    def _rollback(
        self, run: str | None = None, force: str = "false", reopen: str = "false"
    ) -> Iterable[str]:
        forced = _flag("wap_rollback", "force", force)
        reopened = _flag("wap_rollback", "reopen", reopen)
        done = self._publish_of(run, rolled_back=reopened)
        if reopened:
            self._require_free(done)
        if not done.rolled_back:
            yield from self._undo(done, forced)
        if reopened:
            yield from self._reopen(done)
        else:
            yield (
                f"  Next: audit it again   dbt run-operation wap_rollback --args "
                f"'{{run: {names.short_run_id(done.run_id)}, reopen: true}}'"
            )

    def _undo(self, done: LedgerPublish, force: bool) -> Iterable[str]:
        later = undo.later_on_the_same(done, self._lake.ledger.publishes())
        publishes = [done, *later] if force else [done]
        entries = undo.entries_before(publishes)
        passed = self._written_past(publishes) if force else []
        try:
            self._lake.publishing.rollback(
                entries,
                run_id=self._run_id,
                publish_id=done.publish_id,
                branch=done.branch,
                force=force,
                undone=[UndonePublish(p.publish_id, p.branch, p.left) for p in publishes],
            )
        except RollbackRefused as refused:
            raise refused.told(self._why_not(done, later, refused, force)) from refused
        except RollbackTorn as torn:
            raise torn.told(self._what_stays(done, torn)) from torn
        self.rolled_back = [replace(one, entries=one.left) for one in publishes]
        with_it = f", and with it {_count(later, 'later publish')}" if force and later else ""
        atomic = self._lake.store.rows.atomic
        how = "in one transaction" if atomic else "by a journal, one table after the other"
        yield (
            f"Rolled back the publish of run {names.short_run_id(done.run_id)}{with_it}, {how}; "
            "readers of main see again:"
        )
        longest = max((len(".".join(entry.identifier)) for entry in entries), default=0)
        for entry in entries:
            yield f"  {'.'.join(entry.identifier):<{longest}}   {self._stands(entry.identifier)}"
        if force:
            yield from (f"  undone with it: {_publish_told(one)}" for one in later)
            yield from (f"  lost to readers: {text}" for text in passed)

    def _stands(self, identifier: Identifier) -> str:
        """What readers of main see of a table now: how many rows, of when."""
        state = self._lake.state(identifier)
        if state is None:
            return "not there, as before"
        if state.kind == "view":
            return "the view as before"
        if state.main is None:
            return "no rows yet"
        rows = exact_rows(self._lake.snapshot_summary(identifier, state.main))
        count = "its rows" if rows is None else f"{rows:,} row{'s' if rows != 1 else ''}"
        changed = self._lake.last_change(identifier)
        return f"{count} of {changed:%Y-%m-%d %H:%M:%S} UTC" if changed else count

    def _why_not(
        self,
        done: LedgerPublish,
        later: Sequence[LedgerPublish],
        refused: RollbackRefused,
        force: bool,
    ) -> str:
        """Which tables moved on, by whose hand, and the ways on."""
        by_candidate = {
            (entry.identifier, entry.candidate): one for one in later for entry in one.entries
        }
        told = [f"Nothing was rolled back: tables moved on since {_publish_told(done)}."]
        for mismatch in refused.mismatches:
            told.append(f"  {mismatch}")
            steps = self._steps_since(done, mismatch.identifier)
            publishes = [one for one in later if _touches(one, mismatch.identifier)]
            told += [f"      then came {_publish_told(one)}" for one in publishes]
            told += [
                f"      then came {_step_told(step)}"
                for step in reversed(steps)
                if (mismatch.identifier, step.snapshot_id) not in by_candidate
                and step.run_id is None
            ]
            if not publishes and not steps:
                told.append("      the ledger does not know by whose hand")
        told.append("All tables stand as they were.")
        if force:
            told.append("What they were before is there no more, so force cannot bring it back.")
            return "\n".join(told)
        short = names.short_run_id(done.run_id)
        if later:
            newest = names.short_run_id(later[-1].run_id)
            told.append(
                "  Next: roll back the later ones first, the newest one before all   dbt "
                f"run-operation wap_rollback --args '{{run: {newest}}}'"
            )
        told.append(
            "        or undo all that came since in one transaction   dbt run-operation "
            f"wap_rollback --args '{{run: {short}, force: true}}'"
        )
        told.append(
            "        force puts every table back as it was before this publish, none keeps newer "
            "rows, and it undoes with it:"
        )
        told += [f"          {_publish_told(one)}: {_tables_of(one)}" for one in later]
        told += [f"          {text}" for text in self._written_past([done, *later])]
        return "\n".join(told)

    def _what_stays(self, done: LedgerPublish, torn: RollbackTorn) -> str:
        """What a rollback by a series has moved back and what not, and the ways on."""
        told = [
            f"Rolled back in part: others moved tables on while {_publish_told(done)} was being "
            "undone. Readers of main see as before it:",
            *(f"  {'.'.join(name)}" for name in torn.back),
            "Not rolled back, so that readers see what was published, and what came since:",
        ]
        for mismatch in torn.mismatches:
            told.append(f"  {mismatch}")
            told += [
                f"      then came {_step_told(step)}"
                for step in reversed(self._steps_since(done, mismatch.identifier))
            ]
        run = f"dbt run-operation wap_rollback --args '{{run: {done.publish_id}"
        told += [
            f"  Next: see the ways on for what is left   {run}}}'",
            f"        or undo what came since, too       {run}, force: true}}'",
        ]
        return "\n".join(told)

    def _steps_since(self, done: LedgerPublish, identifier: Identifier) -> list[moved.Step]:
        found = [entry for entry in done.entries if entry.identifier == identifier]
        return [step for entry in found for step in moved.steps_since(self._lake, entry)]

    def _written_past(self, publishes: Sequence[LedgerPublish]) -> list[str]:
        """What was written past the gate to the tables of some publishes, since the first one."""
        return [
            f"{'.'.join(entry.identifier)}: {_step_told(step)}"
            for entry in undo.entries_before(publishes)
            for step in reversed(moved.steps_since(self._lake, entry))
            if step.run_id is None
        ]

    def _require_free(self, done: LedgerPublish) -> None:
        if any(one.branch == done.branch for one in self._lake.branches.all()):
            raise ConfigError(
                f"The audit branch {done.branch} is open again, so the candidates of "
                f"{_publish_told(done)} cannot be put there. Nothing has changed. Publish or drop "
                f"it first: dbt run-operation wap_discard --args '{{branch: {done.branch}}}'"
            )

    def _reopen(self, done: LedgerPublish) -> Iterable[str]:
        rows = self._lake.ledger.published_nodes(done)

        def record(found: Mapping[Identifier, Candidate]) -> list[LedgerRows]:
            tokens = {row["node_id"]: _token(found[row["schema"], row["name"]]) for row in rows}
            return [LedgerRows("nodes", [self._held_row(row, found, tokens) for row in rows])]

        found = self._lake.publishing.reopen(done.entries, branch=done.branch, record=record)
        yield (
            f"Opened {done.branch} again with {_count(found, 'table')}, as published; readers of "
            "main see no change."
        )
        yield f"  Next: audit it again         {next_command.dbt('test', branch=done.branch)}"
        yield f"        publish it as audited  {next_command.operation('wap_publish', done.branch)}"
        yield f"        drop it                {next_command.operation('wap_discard', done.branch)}"

    def _held_row(
        self,
        row: Mapping[str, Any],
        found: Mapping[Identifier, Candidate],
        tokens: Mapping[str, str],
    ) -> dict[str, Any]:
        candidate = found[row["schema"], row["name"]]
        return {
            **row,
            "run_id": self._run_id,
            "how": candidate.how,
            "base_snapshot": candidate.base,
            "base_metadata": candidate.base_metadata,
            "candidate_snapshot": candidate.snapshot,
            "candidate_metadata": candidate.metadata,
            "built_on": {
                key: tokens.get(key, token) for key, token in dict(row["built_on"] or ()).items()
            },
            "verdict": "held",
            "reason": "its publish was rolled back",
            "built_at": datetime.now(UTC),
        }

    def _publish_of(self, run: str | None, *, rolled_back: bool) -> LedgerPublish:
        """The publish that is meant; ``rolled_back`` if one that was rolled back will do."""
        ledger = self._lake.ledger
        named = ledger.publish(run or "")
        found = [p for p in named if not p.rolled_back]
        if rolled_back and not found and named:
            return named[0]
        if len(found) == 1:
            return found[0]
        if run is None:
            problem = "run is missing"
        elif not found:
            problem = f"there is no publish of {run!r} that is not rolled back already"
        else:
            problem = f"{run!r} means {len(found)} publishes; give the whole publish id"
        recent = found or [p for p in ledger.publishes(limit=_SHOWN) if not p.rolled_back]
        known = [
            f"  {names.short_run_id(p.run_id)}   publish {p.publish_id}   "
            f"{p.published_at:%Y-%m-%d %H:%M:%S} UTC   {_count(p.left or p.entries, 'table')}"
            for p in recent
        ]
        raise ConfigError("\n".join([_usage("wap_rollback", problem), "Publishes:", *known]))

    # -- arguments -------------------------------------------------------------------------------

    def _branch_of(
        self, found: Sequence[OpenBranch], operation: str, branch: str | None
    ) -> OpenBranch:
        for one in found:
            if one.branch == branch:
                return one
        problem = "branch is missing" if branch is None else f"there is no open branch {branch!r}"
        open_ones = ", ".join(one.branch for one in found) or "none"
        raise ConfigError(f"{_usage(operation, problem)}\nOpen branches: {open_ones}")


def _failing_test(tests: Iterable[Mapping[str, Any]], name: str | None) -> Mapping[str, Any]:
    """The one test of a branch that failed and is meant, by its name or id."""
    failing = [
        row
        for row in tests
        if row["status"] == "fail" and accepting(row["severity"], row["failures"] or 0) is not None
    ]
    found = [row for row in failing if name in (row["test_name"], row["test_id"])]
    if len(found) == 1:
        return found[0]
    if name is None:
        problem = "test is missing"
    elif found:
        problem = f"{name!r} means {len(found)} tests; give the whole id"
    else:
        problem = f"no test {name!r} has failed on this branch by a number of rows"
    known = [f"  {row['test_id']}" for row in found or failing] or ["  none"]
    raise ConfigError(
        "\n".join([_usage("wap_accept", problem), "Tests that failed and can be accepted:", *known])
    )


def _end_of(day: str | None, now: datetime) -> datetime | None:
    """The end of a day, which is not over yet."""
    if day is None:
        return None
    try:
        end = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) + DAY
    except ValueError:
        raise ConfigError(_usage("wap_accept", f"until is {day!r}, and no YYYY-MM-DD")) from None
    if end <= now:
        raise ConfigError(_usage("wap_accept", f"until is {day}, which is over"))
    return end


def _usage(operation: str, problem: str) -> str:
    lines = [f"{operation}: {problem}. Nothing has changed. Arguments (--args '{{key: value}}'):"]
    lines += [f"  {key}: {meaning}" for key, meaning in LEGAL[operation].items()]
    return "\n".join(lines)


def _whole(operation: str, key: str, value: str) -> int:
    if not value.isdecimal():
        raise ConfigError(_usage(operation, f"{key} is {value!r}, and no whole number of days"))
    return int(value)


def _flag(operation: str, key: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ConfigError(_usage(operation, f"{key} is {value!r}, and neither true nor false"))
    return value.lower() == "true"


def _publish_told(publish: LedgerPublish) -> str:
    return (
        f"the publish of run {names.short_run_id(publish.run_id)} at "
        f"{publish.published_at:%Y-%m-%d %H:%M:%S} UTC"
    )


def _step_told(step: moved.Step) -> str:
    what = "a compaction, which changes no row" if step.operation == "replace" else step.operation
    return f"{what}, written past the gate at {step.at:%Y-%m-%d %H:%M:%S} UTC"


def _tables_of(publish: LedgerPublish) -> str:
    shown = [".".join(entry.identifier) for entry in publish.entries[:_SHOWN]]
    more = len(publish.entries) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _touches(publish: LedgerPublish, identifier: Identifier) -> bool:
    return any(entry.identifier == identifier for entry in publish.entries)


def _count(things: Sized, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("sh") else f"{noun}s"
    return f"{len(things)} {noun if len(things) == 1 else plural}"


def _verdict(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "unknown to the ledger"
    return f"{row['verdict']}: {row['reason']}" if row["reason"] else str(row["verdict"])


def _ways_on(branch: str, nodes: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """The commands that go on from a branch; ``nodes`` are its rows in the ledger."""
    rejected = [
        node["node_id"].split(".", 2)[-1] for node in nodes if node["verdict"] == "rejected"
    ]
    if rejected:
        selected = " ".join(f"+{name}+" for name in rejected[:_SELECTED])
        more = selected if len(rejected) <= _SELECTED else ""
        select = f" --select {more}" if more else ""
        yield f"    after a fix, build again   {next_command.dbt(f'build{select}', branch=branch)}"
    elif nodes:
        yield f"    audit again and publish    {next_command.dbt('test', branch=branch)}"
        yield f"    publish as audited         {next_command.operation('wap_publish', branch)}"
    else:
        yield f"    build it again             {next_command.dbt('build', branch=branch)}"
    yield f"    drop it                    {next_command.operation('wap_discard', branch)}"


def _when(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _age(since: datetime | None) -> str:
    if since is None:
        return "of unknown age"
    return f"{age((datetime.now(UTC) - since).total_seconds())} old"


def _token(candidate: Candidate) -> str:
    return str(candidate.metadata if candidate.snapshot is None else candidate.snapshot)
