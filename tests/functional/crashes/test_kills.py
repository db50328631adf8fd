"""The kill matrix inside dbt, with Spark: a build dies at a step, and the next commands go on.

The steps of the catalog have their cells in ``tests/unit/test_crashes.py``; here are all that only
dbt reaches, and some of the others. SOAK=1 tries every step that a build reaches.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from vocabulary import Project, Reader

from sparkwap import server, steps

FILES = {
    "models/log.sql": """
        {{ config(materialized='incremental', incremental_strategy='append') }}
        select {{ env_var('CRASH_N') }} as n
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
BEFORE_RECORD = ("run.opening",)
"""Steps at which dbt knows nothing of the run yet: the command is simply given again."""

REPRESENTATIVE = [
    *((step.name, "kill-dbt", 1) for step in steps.STEPS.values() if step.where == "dbt"),
    ("node.placed", "kill-dbt", 1),
    ("node.checking", "kill-dbt", 2),
    ("publish.rows_changed", "kill-dbt", 1),
    ("publish.committed", "kill-dbt", 1),
    ("node.placed", "kill-server", 2),
    ("audit.begins", "kill-server", 1),
    ("publish.committed", "kill-server", 1),
    ("run.decided", "raise", 1),
    ("publish.committed", "raise", 1),
    ("statement.sending", "lost-network", 2),
]
# What a build of these models does not do: clones, copies, rollbacks, and the like.
REACHED = ("run", "node", "statement", "audit", "metadata", "open_branch", "forget", "publish",
           "record", "results")  # fmt: skip
EVERYTHING = [
    (name, action, 1)
    for name in steps.STEPS
    if name.partition(".")[0] in REACHED and name not in ("forget.purging", "forget.purged")
    and name not in ("publish.purging", "publish.purged")
    for action in ("kill-dbt", "kill-server", "raise")
]  # fmt: skip
CELLS = EVERYTHING if os.environ.get("SOAK") else REPRESENTATIVE


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


@pytest.mark.parametrize(("step", "action", "occurrence"), CELLS)
def test_a_build_dies(
    log: Log,
    fresh: int,
    step: str,
    action: str,
    occurrence: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = log.rows()
    after = sorted([*before, fresh])
    code, states = _crash(log, f"{step}:{action}:{occurrence}", monkeypatch)
    # Readers: the old state or the new one, of both tables, at every moment.
    published = log.rows() == after
    assert log.rows() in (before, after)
    assert states <= 2
    if action == "kill-dbt":
        assert code == -9
        assert published == (steps.STEPS[step].readers == "after")
    else:
        # An exit code of 0 is told only where all is published.
        assert (code == 0) <= published
    _go_on(log, after, published=published, ended=code == 0, recorded=step not in BEFORE_RECORD)


def _crash(log: Log, fault: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    with monkeypatch.context() as patch, log.reader.polling("s") as poller:
        patch.setenv("SPARKWAP_FAULT", fault)
        patch.setenv("SPARKWAP_FAULT_LAKE", str(log.reader.lake))
        code = log.project.start("build", "--threads", "1").wait(timeout=120)
    return code, len(poller.states)


def _go_on(log: Log, after: list[int], *, published: bool, ended: bool, recorded: bool) -> None:
    status = log.project.operation("wap_status").succeeded()
    if published and not ended:
        assert "has published 2 tables" in status.text
        again = log.project.dbt("retry").failed()
        assert "So there is nothing to retry, and nothing was run" in again.text
    elif not published:
        word = "has not come to its end" if not _ended(log) else "audit branch"
        assert word in status.text or not recorded
        log.project.dbt("retry" if recorded else "build").succeeded()
    assert log.rows() == after
    assert "No audit branch is open" in log.project.operation("wap_status").succeeded().text
    doubles = [row["publish_id"] for row in log.reader.ledger("publishes", name="log")]
    assert len(doubles) == len(after)


def _ended(log: Log) -> bool:
    record: Any = (log.project.folder / "target/sparkwap_run.json").read_text()
    return '"open"' not in record


def test_faults_are_off_without_their_variable() -> None:
    assert "SPARKWAP_FAULT" not in os.environ
    assert Path(steps.__file__).exists()
    assert steps._listeners is None
