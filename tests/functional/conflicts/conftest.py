"""A log that grows, what is made of it, and another writer who comes in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pytest
from dbt_common.events.base_types import EventMsg
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project

FILES = {
    "models/log.sql": """
        {{ config(
            materialized='incremental',
            incremental_strategy='append',
            tblproperties={'commit.retry.num-retries': env_var('LOG_RETRIES', '10')},
        ) }}
        select {{ env_var('LOG_N') }} as n
    """,
    "models/totals.sql": """
        {{ config(materialized='table') }}
        select count(*) as entries, sum(n) as total from {{ ref('log') }}
    """,
    "models/notes.sql": "{{ config(materialized='table') }} select {{ env_var('LOG_N') }} as n",
    "models/properties.yml": """
        models:
          - name: log
            columns: [{name: n, data_tests: [{not_null: {name: log_is_known}}]}]
          - name: totals
            columns: [{name: total, data_tests: [{not_null: {name: totals_are_known}}]}]
    """,
}
"""log -> totals; notes, which has nothing to do with them."""


@contextmanager
def when_built(project: Project, node: str, action: Callable[[], None]) -> Iterator[None]:
    """Act once, as soon as dbt has told that a node of a project is built."""
    left = [action]

    def listen(event: EventMsg) -> None:
        done = event.info.name in ("LogModelResult", "LogTestResult")
        if done and event.data.node_info.node_name == node and left:
            left.pop()()

    project.listeners.append(listen)
    try:
        yield
    finally:
        project.listeners.remove(listen)
    assert not left, f"dbt did not tell of {node}"


@dataclass
class Log:
    """The project, and what a reader of main sees of it."""

    project: Project
    reader: Reader
    monkeypatch: pytest.MonkeyPatch

    def build(self, n: int, *arguments: str, **variables: object) -> Outcome:
        """A `dbt build` that adds ``n`` to the log; the wait before a rebuild is short."""
        self.monkeypatch.setenv("LOG_N", str(n))
        return self.project.dbt("build", *arguments, wap_rebuild_wait=0.1, **variables)

    def append(self, n: int) -> None:
        """Another writer adds to main of the log, and asks nobody."""
        rows = pa.table({"n": pa.array([n], pa.int32())})
        self.reader.catalog.load_table((self.project.schema, "log")).append(rows)

    def when(self, node: str, action: Callable[[], None]) -> AbstractContextManager[None]:
        """Act once, as soon as dbt has told that a node is built."""
        return when_built(self.project, node, action)

    def entries(self) -> list[int]:
        """What is in the log, in order."""
        return sorted(row["n"] for row in self.reader.table(self.project.schema, "log").rows)

    def totals(self) -> tuple[int, int]:
        """What the totals say of the log."""
        (row,) = self.reader.table(self.project.schema, "totals").rows
        return row["entries"], row["total"]

    def branches(self) -> set[str]:
        """The branches of the log."""
        refs = self.reader.metadata(self.project.schema, "log")["refs"]
        return {name for name, ref in refs.items() if ref["type"] == "branch"}

    def writer(self, name: str) -> str:
        """The run that wrote what readers see of a table."""
        document = self.reader.metadata(self.project.schema, name)
        main = document["refs"]["main"]["snapshot-id"]
        (found,) = (s for s in document["snapshots"] if s["snapshot-id"] == main)
        return str(found["summary"]["wap_run"])


@pytest.fixture(scope="module")
def built_log(make_project: MakeProject) -> Project:
    project = make_project("conflicts", FILES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOG_N", "1")
        project.dbt("build").succeeded()
    return project


@pytest.fixture
def log(built_log: Project, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> Log:
    """The log as the tests before have left it."""
    return Log(built_log, reader, monkeypatch)
