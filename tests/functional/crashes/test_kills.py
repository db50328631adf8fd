"""The kill matrix inside dbt, with Spark: a build dies at a step, and the next commands go on.

The steps of the catalog have their cells in ``tests/integration/crashes/test_kill_matrix.py``;
here are all that only dbt reaches, and some of the others. SOAK=1 tries every step that a build
reaches.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.crashes.cells import AGAIN, AGAIN_SOAK, ALL, EVERYTHING, NAMED, REPRESENTATIVE, SIGNALS
from helpers.crashes.injector import LAKE_VARIABLE, STRIKES
from helpers.lake import Reader
from helpers.project import Project

from sparkwap import server
from sparkwap.core import checkpoints, command_end

FILES = {
    "models/log.sql": """
        {{ config(materialized='incremental', incremental_strategy='append') }}
        select {{ env_var('CRASH_N') }} as n from range(1)
        where reflect('java.lang.Thread', 'sleep', {{ env_var('CRASH_SLEEP', '0') }}L) <> ''
    """,
    "models/total.sql": """
        {{ config(materialized='table') }} select sum(n) as n from {{ ref('log') }}
    """,
    "models/properties.yml": """
        models:
          - {name: log, columns: [{name: n, data_tests: [not_null, unique]}]}
          - {name: total, columns: [{name: n, data_tests: [not_null]}]}
    """,
}
TESTS = str(Path(__file__).parents[2])
BEFORE_RECORD = ("run.opening",)
"""Steps at which dbt knows nothing of the run yet: the command is simply given again."""


@dataclass
class Log:
    """A project whose log gets one row from each build, and its lake."""

    project: Project
    reader: Reader

    def rows(self) -> list[int]:
        """What a reader sees of the log; the total must be of the same rows."""
        tables = self.reader.look(self.project.schema)
        found = [int(row["n"]) for row in tables["log"].rows]
        assert [int(row["n"]) for row in tables["total"].rows] == [sum(found)]
        return sorted(found)

    def published(self, run_id: str) -> int:
        """Rows that the ledger has of a run's publishes."""
        return len(self.reader.ledger("publishes", run_id=run_id))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    folder = tmp_path_factory.mktemp("crashes")
    lake = folder / ".lake"
    output = {"type": "sparkwap", "lake": str(lake), "memory": "768m"}
    log = Log(Project(folder / "project", "s", output).write(FILES), Reader(lake))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRASH_N", "0")
        log.project.dbt("build").succeeded()
    yield log
    server.stop(lake)


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def fresh(log: Log, numbers: Iterator[int], monkeypatch: pytest.MonkeyPatch) -> int:
    """The row that this test's build adds."""
    number = next(numbers)
    monkeypatch.setenv("CRASH_N", str(number))
    return number


@pytest.mark.parametrize(("step", "action", "occurrence"), EVERYTHING if ALL else REPRESENTATIVE)
def test_a_build_dies(
    log: Log,
    fresh: int,
    step: str,
    action: str,
    occurrence: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _try(log, fresh, f"{step}:{action}:{occurrence}", monkeypatch)


@pytest.mark.parametrize(("step", "action"), AGAIN_SOAK if ALL else AGAIN)
def test_a_retry_dies(
    log: Log, fresh: int, step: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build before it has left a candidate, which the retry forgets."""
    code, _ = _crash(log, "audit.begins:kill-process:1", monkeypatch)
    assert code == -9
    _try(log, fresh, f"{step}:{action}:1", monkeypatch, command="retry")


@pytest.mark.parametrize("step", NAMED)
def test_a_build_on_a_named_branch_dies(
    log: Log, fresh: int, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _try(log, fresh, f"{step}:kill-process:1", monkeypatch, wap_branch="march")


def _try(
    log: Log,
    fresh: int,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    command: str = "build",
    **variables: str,
) -> None:
    step, action, _ = fault.split(":")
    before = log.rows()
    after = sorted([*before, fresh])
    code, states = _crash(log, fault, monkeypatch, command, **variables)
    # Readers: the old state or the new one, of both tables, at every moment.
    published = log.rows() == after
    assert log.rows() in (before, after)
    assert states <= 2
    if action == "kill-process":
        assert code == -9
        assert published == (checkpoints.CHECKPOINTS[step].readers == "after")
    else:
        # An exit code of 0 is told only where all is published.
        assert (code == 0) <= published
    if (document := command_end.read(log.project.document)) and step not in BEFORE_RECORD:
        # Programs are told of a publish only where there is one.
        assert published or document["outcome"] in ("failed", "rejected", "held")
        assert document["outcome"] != "published" or document["result"]["publish_id"]
    _go_on(log, after, published=published, ended=code == 0, recorded=step not in BEFORE_RECORD)


def _crash(
    log: Log,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    command: str = "build",
    **variables: str,
) -> tuple[int, int]:
    with monkeypatch.context() as patch, log.reader.polling("s") as poller:
        patch.setenv(LAKE_VARIABLE, str(log.reader.lake))
        first = (
            f"import sys; sys.path.append({TESTS!r}); from helpers.crashes.injector import inject"
        )
        first += f"; inject({fault!r})"
        build = log.project.start(command, "--threads", "1", first=first, **variables)
        code = build.wait(timeout=120)
    told = log.project.errors.read_text()
    assert f"{STRIKES} {fault.partition(':')[0]}" in told, "the step was not reached"
    return code, len(poller.states)


def _go_on(log: Log, after: list[int], *, published: bool, ended: bool, recorded: bool) -> None:
    status = log.project.operation("wap_status").succeeded()
    if published and not ended:
        # An exception that comes when all is on record leaves nothing to tell.
        assert "has completed its publish of 2 tables" in status.text or _ended(log)
        again = log.project.dbt("retry")
        # Refused, or dbt itself finds nothing to do; what it must not do is seen in the rows.
        assert again.ok or "So there is nothing to retry, and nothing was run" in again.text
    elif not published:
        word = "has not ended" if not _ended(log) else "audit branch"
        assert word in status.text or not recorded
        log.project.dbt("retry" if recorded else "build").succeeded()
    assert log.rows() == after
    # Nothing is left open: no branch, no side schema.
    assert _branches(log) == {"main"}
    assert not [name for (name,) in log.reader.catalog.list_namespaces() if "__" in name]
    doubles = [row["publish_id"] for row in log.reader.ledger("publishes", name="log")]
    assert len(doubles) == len(after)


def _ended(log: Log) -> bool:
    record: Any = (log.project.folder / "target/sparkwap_run.json").read_text()
    return '"open"' not in record


@pytest.mark.smoke
@pytest.mark.parametrize("by", SIGNALS)
def test_a_build_ends_while_spark_is_writing(
    log: Log, fresh: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may go on with the statement, and commit it to the branch of the retry."""
    before = log.rows()
    branches = _branches(log)
    with monkeypatch.context() as patch:
        patch.setenv("CRASH_SLEEP", "5000")
        build = log.project.start("build")
        deadline = time.monotonic() + 600
        while _branches(log) <= branches and build.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2)  # it is in the middle of its insert
        build.send_signal(signal.Signals[by])
        assert build.wait(timeout=600) != 0
    assert log.rows() == before
    again = log.project.dbt("retry")
    if not again.ok:
        assert "was still running on the server" in again.text
        log.project.dbt("retry").succeeded()
    assert log.rows() == sorted([*before, fresh])


def _branches(log: Log) -> set[str]:
    refs = log.reader.metadata(log.project.schema, "log")["refs"]
    return {name for name, ref in refs.items() if ref["type"] == "branch"}
