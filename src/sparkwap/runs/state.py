"""What the last runs in this working copy left open, and which command goes on with it.

A small file in dbt's target folder, beside ``run_results.json``, lets a command go on with the
branch that another one has just filled: `dbt seed`, `dbt run` and `dbt test` then give what one
`dbt build` gives. It is a convenience: the truth is in the catalog and the ledger, and
``SPARKWAP_BRANCH`` (or the var ``wap_branch``) says the same thing by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import lease
from sparkwap.core import next_command
from sparkwap.core.errors import SparkwapError
from sparkwap.core.names import is_run_branch, short_run_id
from sparkwap.gate.facts import PARTIAL
from sparkwap.runs.rebase import downstream

if TYPE_CHECKING:
    from sparkwap.gate.settings import PublishMode
    from sparkwap.ledger.ledger import Ledger
    from sparkwap.ledger.records import LedgerPublish
    from sparkwap.publish.lake import Lake

FILE_NAME = "sparkwap_run.json"
RESULTS = "run_results.json"
UNFINISHED = "its run has not come to its end"
"""What dbt's record says of the nodes of a run that could not say more."""


_WAITING = 8
"""How many branches that wait for a command are kept on record."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """A run that this working copy has made.

    Attributes:
        run_id: dbt's invocation id.
        branch: its audit branch.
        outcome: ``open`` while it runs, ``held`` or ``rejected`` if something stays on the branch,
            ``closed``.
        command: dbt's command.
        target: dbt's target.
        at: when it was put on record, in seconds since the epoch.
        publish: its mode of publishing; ``replay`` if it read as of an earlier moment.
        settings: the environment variables that were settings of this call; a retry has them too,
            as it has the vars.
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
        """Whether something may still wait on the branch."""
        return self.outcome != "closed"

    @property
    def left(self) -> bool:
        """Whether the run came to its end and left something on the branch."""
        return self.outcome in ("held", "rejected")

    @classmethod
    def read(cls, folder: Path) -> LastRun | None:
        """The last run; None if none is on record or the record cannot be read."""
        content = _content(folder)
        return None if content is None else _parsed(content)

    @classmethod
    def waiting(cls, folder: Path, target: str) -> list[LastRun]:
        """The runs of a target on whose branches something may wait, the latest one first.

        Of each branch the last one; a run that has not come to its end is among them.
        """
        content = _content(folder) or {}
        found = [run for one in content.get("waiting") or () if (run := _parsed(one)) is not None]
        return [run for run in reversed(found) if run.target == target]

    def write(self, folder: Path, gone: Collection[str] = ()) -> None:
        """Put this run on record as the last one.

        :param gone: branches on which nothing waits any more.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE_NAME
        scratch = path.with_suffix(".tmp")
        left = {self.branch, *gone}
        before = (_content(folder) or {}).get("waiting") or ()
        kept = [one for one in before if isinstance(one, dict) and one.get("branch") not in left]
        waiting = [*kept, *([asdict(self)] if self.open else [])][-_WAITING:]
        scratch.write_text(json.dumps({**asdict(self), "waiting": waiting}))
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
    except (KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A branch that a command may go on with.

    Attributes:
        run: the run that left it.
        rows: the ledger's rows of what is on it and not published, stored failures left out.
        in_use: by whom it is in use, in words; empty for nobody.
    """

    run: LastRun
    rows: Sequence[Mapping[str, Any]]
    in_use: str = ""


def pending(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of a branch's rows in the ledger that wait for a command.

    Tables of stored failures wait for nothing by themselves.
    """
    return [
        row for row in rows if row["verdict"] != "published" and row["resource_type"] != "failures"
    ]


def why_not(
    waiting: Waiting,
    *,
    command: str,
    publish: PublishMode,
    selected: Collection[str],
    known: Collection[str],
) -> str | None:
    """Why a command does not go on with a branch by itself, in words; None if it does.

    What it builds reads the branch. So what is there has to be what the project would build now,
    as far as anybody knows: nothing that was rejected, or built for another purpose. A `dbt test`
    builds nothing, and audits what is there.

    :param command: dbt's command.
    :param publish: its mode of publishing.
    :param selected: ids of what it builds and tests.
    :param known: ids of what the project has.
    """
    if waiting.in_use:
        return f"is {waiting.in_use}"
    if waiting.run.outcome == "open":
        return "has not come to its end"
    if waiting.run.publish == "replay":
        return "read as of an earlier moment"
    if waiting.run.publish == "never" != publish:
        return "was not to be published (wap_publish: never)"
    if command == "test":
        return None
    if not is_run_branch(waiting.run.branch):
        return "was named by hand"
    if any(row["verdict"] == "rejected" for row in waiting.rows):
        return "was rejected"
    partly = [row["node_id"] for row in waiting.rows if row["status"] in PARTIAL]
    parents = {row["node_id"]: row["parents"] or () for row in waiting.rows}
    if not downstream(partly, parents) <= set(selected):
        return "has tables built with --empty or --sample"
    strange = [row for row in waiting.rows if row["node_id"] not in known]
    if strange:
        return f"has {strange[0]['schema']}.{strange[0]['name']}, which is not in this project now"
    return None


@dataclass(frozen=True, slots=True)
class GoingOn:
    """Which branch a command goes on with.

    Attributes:
        run: the run that left it; None for a branch of the command's own.
        line: what to tell of it; None for nothing.
        gone: branches on which nothing waits any more.
    """

    run: LastRun | None = None
    line: str | None = None
    gone: tuple[str, ...] = ()


def going_on(
    lake: Lake,
    runs: Iterable[LastRun],
    now: float,
    *,
    command: str,
    publish: PublishMode,
    selected: Collection[str],
    known: Callable[[], Collection[str]],
) -> GoingOn:
    """Find the branch that a command goes on with, by what the lake knows of it now.

    :param runs: what :meth:`LastRun.waiting` says.
    :param now: seconds since the epoch; the rest is as in :func:`why_not`.
    """
    line, gone = None, []
    leases = {one.branch: one for one in lease.living(lake.leases)}
    for run in runs:
        rows = pending(lake.ledger.branch_history(run.branch).nodes)
        if not rows:
            # Published, discarded or swept meanwhile, by whomever.
            gone.append(run.branch)
            continue
        holder = leases.get(run.branch)
        in_use = lease.told(holder, lives=True) if holder else ""
        waiting = Waiting(run, rows, in_use)
        why = why_not(waiting, command=command, publish=publish, selected=selected, known=known())
        told = f"{run.branch} (dbt {run.command}, {age(now - run.at)} ago)"
        if why is None:
            return GoingOn(run, f"sparkwap  goes on with {told}", tuple(gone))
        line = line or (
            f"sparkwap  does not go on with {told}, which {why}; "
            f"to do so: {next_command.dbt(command, branch=run.branch)}"
        )
    return GoingOn(None, line, tuple(gone))


def age(seconds: float) -> str:
    """A time span in words: `2 minutes`, `less than a minute`."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return "less than a minute"


def unfinished_run(folder: Path) -> LastRun | None:
    """The last run, if it has not come to its end: it is still on, or it died.

    By its own record, or by dbt's, which is written last.
    """
    last = LastRun.read(folder)
    if last is None or last.outcome == "open":
        return last
    results = folder / RESULTS
    return last if run_of(results) == last.run_id and is_unfinished(results) else None


def is_unfinished(results: Path) -> bool:
    """Whether a ``run_results.json`` was written before its run came to its end."""
    try:
        found = json.loads(results.read_text())["results"]
        return any(UNFINISHED in str(one["message"]) for one in found)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def require_unpublished(ledger: Ledger, last: LastRun) -> None:
    """Refuse to retry a run that died after its publish: it would add the same rows once more.

    :param last: a run that has not come to its end.
    :raises SparkwapError: the ledger has a publish of it, or of a build that followed main for it.
    """
    done = ledger.standing_publishes(last.run_id)
    if done:
        raise SparkwapError(
            f"{published_and_died(last, done)} So there is nothing to retry, and nothing was run. "
            "What is still on its branch, if anything, is shown by `dbt run-operation wap_status`; "
            "undo the publish by `dbt run-operation wap_rollback --args "
            f"'{{run: {short_run_id(done[0].run_id)}}}'`."
        )


def published_and_died(last: LastRun, done: Sequence[LedgerPublish]) -> str:
    """What is told of a run that has published, and did not come to its end."""
    tables = sum(len(publish.entries) for publish in done)
    return (
        f"Run {short_run_id(last.run_id)}, the last one here, has published {tables} "
        f"table{'s' if tables != 1 else ''} on {last.branch}, all of its publish, and died before "
        "it could say so."
    )


class RetryRecord:
    """Keeps dbt's record of an open run while another command looks around.

    `dbt show` and `dbt run-operation` write ``run_results.json`` too, and `dbt retry` after them
    would find nothing to retry. While the last run is open, its record is put back.

    :param folder: dbt's target folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS
        self._kept: str | None = None
        last = LastRun.read(folder)
        waits = last is not None and (last.open or is_unfinished(self._path))
        if last is not None and waits and run_of(self._path) == last.run_id:
            self._kept = self._path.read_text()

    def put_back(self, run_id: str) -> None:
        """Put the record back if the invocation ``run_id`` has written over it."""
        if self._kept is not None and run_of(self._path) == run_id:
            self._path.write_text(self._kept)


def run_of(results: Path) -> str | None:
    """The run id in a ``run_results.json``; None if there is none that can be read."""
    try:
        return str(json.loads(results.read_text())["metadata"]["invocation_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
