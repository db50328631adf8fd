"""What people do with audit branches by hand: look, publish, discard, roll back.

Each operation returns the lines to print. dbt's run-operations of the same names (with the prefix
``wap_``) call them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sparkwap import names, summary
from sparkwap.catalog import Lake, OpenBranch
from sparkwap.errors import ConfigError, SparkwapError
from sparkwap.ledger import LedgerPublish
from sparkwap.run import Run, TestFact
from sparkwap.settings import GateSettings
from sparkwap.state import LastRun, published_and_died

LEGAL: Mapping[str, Mapping[str, str]] = {
    "wap_status": {"branch": "an audit branch, to see its tables; all branches if left out"},
    "wap_publish": {
        "branch": "the audit branch to publish",
        "mode": "run (all of its tables or none, the default) or lineage",
    },
    "wap_discard": {"branch": "the audit branch to drop"},
    "wap_rollback": {"run": "the run, or publish, to undo: its id, or the first eight digits"},
}
"""The arguments of each operation, with their legal values in words."""

_REWRITTEN = "rejected: written anew since its run, by one that did not come to its end"
_SHOWN = 10
_SELECTED = 3


class NotPublished(SparkwapError):
    """Not all of a branch was published; the message is the summary."""


class Operations:
    """The operations on one lake.

    :param tests: all tests of the project, which a publish needs to know what was expected.
    :param unfinished: the last run of this working copy, if it has not come to its end.
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
        unfinished: LastRun | None = None,
    ) -> None:
        self._lake = lake
        self._run_id = run_id
        self._settings = settings
        self._project = project
        self._target_name = target_name
        self._tests = tests
        self._unfinished = unfinished

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
        found = [] if operation == "wap_status" else self._lake.recover()
        return [*found, *method(**{key: str(value) for key, value in given.items()})]

    # -- wap_status ------------------------------------------------------------------------------

    def _status(self, branch: str | None = None) -> Iterable[str]:
        for row in self._lake.on_their_way():
            yield (
                f"The {row['action']} of run {names.short_run_id(row['run_id'])} has not come to "
                "its end: some of its tables may be moved and others not. The next dbt build, "
                "wap_publish, wap_discard or wap_rollback completes or undoes it."
            )
        found = self._lake.open_branches()
        if branch is not None:
            found = [self._branch_of(found, "wap_status", branch)]
        else:
            yield from self._tell_last()
        if not found:
            yield "No audit branch is open: all that was built is published or discarded."
            return
        yield f"{len(found)} audit branch{'es are' if len(found) > 1 else ' is'} open:"
        for one in found:
            yield from self._tell_branch(one, whole=branch is not None)
        if branch is None:
            yield "See one whole:  dbt run-operation wap_status --args '{branch: <name>}'"

    def _tell_last(self) -> Iterable[str]:
        """What became of the last run, if it has not said so itself."""
        last = self._unfinished
        if last is None:
            return
        done = [p for p in self._lake.ledger.publish(last.run_id) if not p.rolled_back]
        if done:
            yield published_and_died(last, done)
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
        age = min([*map(_when, created), *built], default=None)
        count = len(one.tables) + len(one.side)
        yield ""
        yield f"  {one.branch}   {count} table{'s' if count != 1 else ''}   {_age(age)}"
        if not history.nodes:
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
        one = self._branch_of(self._lake.open_branches(), "wap_publish", branch)
        run = Run(
            self._lake,
            run_id=self._run_id,
            branch=one.branch,
            settings=replace(self._settings, publish="lineage" if mode == "lineage" else "run"),
            command="wap_publish",
            project=self._project,
            target_name=self._target_name,
        )
        run.load_side_schemas()
        closing = run.close([], self._tests(), [])
        if not closing.nodes:
            raise ConfigError(
                f"The ledger knows of nothing on {one.branch} that could be published: its run "
                "did not come to an end. Nothing has changed. Build it again with "
                f"--vars 'wap_branch: {one.branch}', or drop it: dbt run-operation wap_discard "
                f"--args '{{branch: {one.branch}}}'"
            )
        lines = summary.lines(closing, run_id=self._run_id, branch=one.branch)
        if closing.refused or closing.decision.failed or not closing.published:
            raise NotPublished("\n".join(lines))
        return lines

    # -- wap_discard -----------------------------------------------------------------------------

    def _discard(self, branch: str | None = None) -> Iterable[str]:
        one = self._branch_of(self._lake.open_branches(), "wap_discard", branch)
        gone = self._lake.discard(one.branch, self._run_id)
        count = len(gone.tables) + len(gone.side)
        yield (
            f"Discarded {gone.branch} with {count} table{'s' if count != 1 else ''} on it; readers "
            "of main see no change."
        )
        for schema in gone.kept:
            yield f"Left alone: the schema {schema}, which is named like a side schema but is none."

    # -- wap_rollback ----------------------------------------------------------------------------

    def _rollback(self, run: str | None = None) -> Iterable[str]:
        done = self._publish_of(run)
        self._lake.rollback(
            done.entries, run_id=self._run_id, publish_id=done.publish_id, branch=done.branch
        )
        atomic = self._lake.store.rows.atomic
        how = "in one transaction" if atomic else "by a journal, one table after the other"
        yield (
            f"Rolled back the publish of run {names.short_run_id(done.run_id)} {how}; readers of "
            "main see again:"
        )
        for entry in done.entries:
            before = entry.base if entry.base is not None else entry.base_metadata_location
            yield f"  {'.'.join(entry.identifier)}   {before or 'not there, as before'}"

    def _publish_of(self, run: str | None) -> LedgerPublish:
        ledger = self._lake.ledger
        found = [p for p in ledger.publish(run or "") if not p.rolled_back]
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
            f"{p.published_at:%Y-%m-%d %H:%M:%S} UTC   {len(p.entries)} tables"
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


def _usage(operation: str, problem: str) -> str:
    lines = [f"{operation}: {problem}. Nothing has changed. Arguments (--args '{{key: value}}'):"]
    lines += [f"  {key}: {meaning}" for key, meaning in LEGAL[operation].items()]
    return "\n".join(lines)


def _verdict(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "unknown to the ledger"
    return f"{row['verdict']}: {row['reason']}" if row["reason"] else str(row["verdict"])


def _ways_on(branch: str, nodes: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """The commands that go on from a branch; ``nodes`` are its rows in the ledger."""
    arguments, on_branch = f"--args '{{branch: {branch}}}'", f"--vars 'wap_branch: {branch}'"
    rejected = [
        node["node_id"].split(".", 2)[-1] for node in nodes if node["verdict"] == "rejected"
    ]
    if rejected:
        selected = " ".join(f"+{name}+" for name in rejected[:_SELECTED])
        more = selected if len(rejected) <= _SELECTED else ""
        select = f" --select {more}" if more else ""
        yield f"    after a fix, build again   dbt build{select} {on_branch}"
    elif nodes:
        yield f"    audit again and publish    dbt test {on_branch}"
        yield f"    publish as audited         dbt run-operation wap_publish {arguments}"
    else:
        yield f"    build it again             dbt build {on_branch}"
    yield f"    drop it                    dbt run-operation wap_discard {arguments}"


def _when(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _age(since: datetime | None) -> str:
    if since is None:
        return "of unknown age"
    seconds = int((datetime.now(UTC) - since).total_seconds())
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = seconds // length
            return f"{count} {unit}{'s' if count != 1 else ''} old"
    return "less than a minute old"
