"""The last runs in this working copy, and whether a command continues their branches.

A small file in dbt's target folder, beside ``run_results.json``, lets a command continue the branch
of an earlier command, so that `dbt seed`, `dbt run` and `dbt test` give the result of one
`dbt build`. The file is a convenience: catalog and ledger decide, and ``SPARKWAP_BRANCH`` (or the
var ``wap_branch``) selects a branch by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import lease
from sparkwap.core import next_command
from sparkwap.core.errors import SparkwapError
from sparkwap.core.names import is_run_branch, short_run_id
from sparkwap.core.text import age, counted
from sparkwap.gate.facts import PARTIAL
from sparkwap.runs.rebase import downstream

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier
    from sparkwap.gate.settings import PublishMode
    from sparkwap.ledger.ledger import Ledger
    from sparkwap.ledger.records import LedgerPublish
    from sparkwap.publish.lake import Lake

FILE_NAME = "sparkwap_run.json"
RESULTS = "run_results.json"
UNFINISHED = "its run has not come to its end"
"""The message in ``run_results.json`` for the nodes of a run that has not ended."""


_ELSEWHERE = "its node has another table in this project now, or none"
_WAITING = 8
"""The maximum number of waiting branches in the file."""

_REPLACED = "that a build on a part of the rows would replace, or their inputs"
"""The end of a reason for which no command is shown."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """A run of this working copy.

    Attributes:
        outcome: ``open`` while it runs, ``held`` or ``rejected`` if candidates stay on the branch,
            else ``closed``.
        at: The time of this record, in seconds since the epoch.
        publish: The mode of publishing; ``replay`` for a replay.
        settings: The environment variables with settings of this run; a retry uses them and the
            vars again.
    """

    run_id: str
    branch: str
    outcome: str
    command: str = ""
    target: str = ""
    at: float = 0.0
    publish: str = "run"
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether the branch may still have candidates."""
        return self.outcome != "closed"

    @classmethod
    def read(cls, folder: Path) -> LastRun | None:
        """Return the last run; None if there is no record or it cannot be read."""
        content = _content(folder)
        return None if content is None else _parsed(content)

    @classmethod
    def waiting(cls, folder: Path, target: str) -> list[LastRun]:
        """Return the runs of a target whose branches may have candidates, the latest run first.

        Only the last run of each branch is returned, even if it has not ended.
        """
        content = _content(folder) or {}
        found = [run for one in content.get("waiting") or () if (run := _parsed(one)) is not None]
        return [run for run in reversed(found) if run.target == target]

    @classmethod
    def last_branch(cls, folder: Path, target: str) -> str | None:
        """Return the branch of the last run of a target; None if there is no record."""
        branches = (_content(folder) or {}).get("branches")
        return branches.get(target) if isinstance(branches, dict) else None

    def write(self, folder: Path, gone: Collection[str] = ()) -> None:
        """Record this run as the last one.

        Args:
            gone: Branches without candidates, which are removed from the record.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE_NAME
        scratch = path.with_suffix(".tmp")
        left = {self.branch, *gone}
        content = _content(folder) or {}
        before = content.get("waiting") or ()
        kept = [one for one in before if isinstance(one, dict) and one.get("branch") not in left]
        waiting = [*kept, *([asdict(self)] if self.open else [])][-_WAITING:]
        branches = {**(content.get("branches") or {}), self.target: self.branch}
        record = {**asdict(self), "waiting": waiting, "branches": branches}
        scratch.write_text(json.dumps(record))
        scratch.replace(path)


def _content(folder: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((folder / FILE_NAME).read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _parsed(content: Mapping[str, Any]) -> LastRun | None:
    try:
        known = {one.name: content[one.name] for one in fields(LastRun) if one.name in content}
        return LastRun(**known)
    except TypeError:
        return None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A branch that a command may continue.

    Attributes:
        rows: The ledger's rows of its unpublished nodes, without stored failures.
        in_use: The run that uses the branch, in words; empty if there is none.
        is_last: Whether the last run of this working copy and target was on the branch.
    """

    run: LastRun
    rows: Sequence[Mapping[str, Any]]
    in_use: str = ""
    is_last: bool = False


def pending(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return a branch's rows of ``nodes`` that are not published, without stored failures."""
    return [
        row for row in rows if row["verdict"] != "published" and row["resource_type"] != "failures"
    ]


def why_not(
    waiting: Waiting,
    *,
    command: str,
    publish: PublishMode,
    selected: Collection[str],
    known: Mapping[str, Identifier | None],
    part: str | None = None,
) -> str | None:
    """Return why a command does not continue a branch by itself, in words; None if it does.

    The nodes of the command read the candidates on the branch. So the project must be able to
    build the same candidates now: none that was rejected, or built for another purpose. `dbt test`
    builds nothing, and audits the present candidates, also rejected ones that the last run left.

    Args:
        selected: Ids of the nodes and tests that the command runs.
        known: The nodes of the project -> schema and name of the table; None for none.
        part: ``empty`` or ``sample`` if the command builds a part of the rows only.
    """
    if waiting.in_use:
        return f"is {waiting.in_use}"
    if waiting.run.outcome == "open":
        return "has not come to its end"
    if waiting.run.publish == "replay":
        return "read as of an earlier moment"
    if waiting.run.publish == "never" != publish:
        return "was not to be published (wap_publish: never)"
    if not is_run_branch(waiting.run.branch):
        return "was named by hand"
    for row in waiting.rows:
        table = (row["schema"], row["name"])
        if known.get(row["node_id"], table) != table:
            name = ".".join(table)
            return f"has {name}, and {_ELSEWHERE}"
    audits_again = command == "test" and waiting.is_last
    if any(row["verdict"] == "rejected" for row in waiting.rows) and not audits_again:
        return "was rejected"
    if command == "test":
        return None
    parents = {row["node_id"]: row["parents"] or () for row in waiting.rows}
    replaced = downstream(selected, parents) if part else ()
    for row in waiting.rows:
        if row["node_id"] in replaced and row["status"] not in PARTIAL:
            return f"has rows of {row['schema']}.{row['name']} {_REPLACED}"
    partly = [row["node_id"] for row in waiting.rows if row["status"] in PARTIAL]
    if not part and not downstream(partly, parents) <= set(selected):
        return "has tables built with --empty or --sample"
    strange = [row for row in waiting.rows if row["node_id"] not in known]
    if strange:
        return f"has {strange[0]['schema']}.{strange[0]['name']}, which is not in this project now"
    return None


@dataclass(frozen=True, slots=True)
class Continuation:
    """The branch that a command continues.

    Attributes:
        run: The run that left the branch; None if the command opens a new branch.
        gone: Branches without candidates.
    """

    run: LastRun | None = None
    line: str | None = None
    gone: tuple[str, ...] = ()


def find_continuation(
    lake: Lake,
    runs: Iterable[LastRun],
    now: float,
    *,
    command: str,
    publish: PublishMode,
    selected: Collection[str],
    known: Callable[[], Mapping[str, Identifier | None]],
    last: str | None,
    part: str | None = None,
) -> Continuation:
    """Find the branch that a command continues, by the present state of the lake.

    A branch without whole tables has nothing to publish: every other one goes first.

    Args:
        runs: The runs of `LastRun.waiting`.
        now: Seconds since the epoch.
        command: See `why_not`, as for the other arguments.
        last: The branch of the last run of this working copy and target.
    """
    line, gone, partly = None, [], Continuation()
    leases = {one.branch: one for one in lease.living(lake.leases)}
    for run in runs:
        rows = pending(lake.ledger.branch_history(run.branch).nodes)
        if not rows:
            # Published, discarded or swept meanwhile.
            gone.append(run.branch)
            continue
        holder = leases.get(run.branch)
        in_use = lease.describe(holder, lives=True) if holder else ""
        waiting = Waiting(run, rows, in_use, is_last=last == run.branch)
        why = why_not(
            waiting, command=command, publish=publish, selected=selected, known=known(), part=part
        )
        shown = f"{run.branch} (dbt {run.command}, {age(now - run.at)} ago)"
        if why is None:
            found = Continuation(run, f"sparkwap  continues {shown}", tuple(gone))
            if part or any(row["status"] not in PARTIAL for row in rows):
                return found
            partly = partly if partly.run else found
            continue
        way = f"; to do so: {next_command.dbt(command, branch=run.branch)}"
        if why.endswith(_ELSEWHERE):
            way = f"; to drop it: {next_command.operation('wap_discard', run.branch)}"
        elif why.endswith(_REPLACED):
            way = ""
        line = line or f"sparkwap  does not continue {shown}, which {why}{way}"
    return replace(partly, line=partly.line or line, gone=tuple(gone))


def unfinished_run(folder: Path) -> LastRun | None:
    """Return the last run if it has not ended: it still runs, or it died.

    Decided by its own record, or by dbt's, which is written last.
    """
    last = LastRun.read(folder)
    if last is None or last.outcome == "open":
        return last
    results = folder / RESULTS
    return last if run_of(results) == last.run_id and is_unfinished(results) else None


def is_unfinished(results: Path) -> bool:
    """Return whether a ``run_results.json`` was written before the end of its run."""
    try:
        found = json.loads(results.read_text())["results"]
        return any(UNFINISHED in str(one["message"]) for one in found)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def require_unpublished(ledger: Ledger, last: LastRun) -> None:
    """Check that a run that died has not published; a retry would add the same rows again."""
    done = ledger.standing_publishes(last.run_id)
    if done:
        undo = next_command.operation("wap_rollback", run=short_run_id(done[0].run_id))
        raise SparkwapError(
            f"{published_and_died(last, done)} So there is nothing to retry, and nothing was run. "
            "`dbt run-operation wap_status` shows what is still on its branch. To undo the "
            f"publish: {undo}"
        )


def published_and_died(last: LastRun, done: Sequence[LedgerPublish]) -> str:
    """Return the message about a run that died after its publish."""
    tables = sum(len(publish.entries) for publish in done)
    return (
        f"Run {short_run_id(last.run_id)} (branch {last.branch}), the last run of this target "
        f"folder, has completed its publish of {counted(tables, 'table')}, and died before it "
        "could report this."
    )


class RetryRecord:
    """Keeps dbt's record of an open run while another command runs.

    `dbt show` and `dbt run-operation` also write ``run_results.json``, so that a later `dbt retry`
    would have nothing to retry. While the last run is open, its record is restored.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS
        self._kept: str | None = None
        last = LastRun.read(folder)
        waits = last is not None and (last.open or is_unfinished(self._path))
        if last is not None and waits and run_of(self._path) == last.run_id:
            self._kept = self._path.read_text()

    def put_back(self, run_id: str) -> None:
        """Restore the record if the invocation ``run_id`` has overwritten it."""
        if self._kept is not None and run_of(self._path) == run_id:
            self._path.write_text(self._kept)


def run_of(results: Path) -> str | None:
    """Return the run id in a ``run_results.json``; None if it cannot be read."""
    try:
        return str(json.loads(results.read_text())["metadata"]["invocation_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
