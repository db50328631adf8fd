"""What the last run in this working copy left open.

A small file in dbt's target folder, beside ``run_results.json``, lets `dbt test` go on with the
branch that `dbt run` has just filled. It is a convenience: the truth is in the catalog and the
ledger, and ``--vars 'wap_branch: ...'`` says the same thing by hand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkwap.errors import SparkwapError
from sparkwap.names import short_run_id

if TYPE_CHECKING:
    from sparkwap.ledger import Ledger, LedgerPublish

FILE_NAME = "sparkwap_run.json"
RESULTS = "run_results.json"
UNFINISHED = "its run has not come to its end"
"""What dbt's record says of the nodes of a run that could not say more."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last run.

    Attributes:
        run_id: dbt's invocation id.
        branch: its audit branch.
        outcome: ``open`` while it runs, ``held`` if something stays on the branch, ``closed``.
    """

    run_id: str
    branch: str
    outcome: str

    @property
    def open(self) -> bool:
        """Whether something may still wait on the branch."""
        return self.outcome != "closed"

    @property
    def held(self) -> bool:
        """Whether the run came to its end and left something on the branch."""
        return self.outcome == "held"

    @classmethod
    def read(cls, folder: Path) -> LastRun | None:
        """The last run; None if none is on record or the record cannot be read."""
        try:
            content = json.loads((folder / FILE_NAME).read_text())
            return cls(str(content["run_id"]), str(content["branch"]), str(content["outcome"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, folder: Path) -> None:
        """Put this run on record."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE_NAME
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(asdict(self)))
        scratch.replace(path)


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
