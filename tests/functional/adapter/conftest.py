"""dbt's own adapter suite on one lake, with the gate on.

Each class of ``dbt-tests-adapter`` writes a small project, runs dbt in this process and looks at
what readers of main see: ``project.run_sql`` goes through an adapter that has no run open.

``SPARKWAP_TEST_LAKE=<dir>`` keeps the lake and its server for the next call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlparse
from dbt.cli.main import dbtRunner, dbtRunnerResult
from dbt.tests.fixtures import project as fixtures
from dbt.tests.fixtures.project import *  # noqa: F403

from sparkwap import server

ADAPTER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if ADAPTER in item.path.parents:
            item.add_marker(pytest.mark.suite)


@pytest.fixture(scope="session")
def lake_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake for the whole session; its server is started by the first connection."""
    kept = os.environ.get("SPARKWAP_TEST_LAKE")
    lake = Path(kept) if kept else tmp_path_factory.mktemp("suite") / "lake"
    yield lake
    if not kept:
        server.stop(lake)


@pytest.fixture(scope="session", autouse=True)
def _without_our_hooks() -> Iterator[None]:
    """Leave the adapter's own two hooks out of what ``run_dbt`` returns.

    dbt lists hooks among the results, and the suite's classes count results.
    """
    invoke = dbtRunner.invoke

    def filtered(self: dbtRunner, args: list[str], **kwargs: Any) -> dbtRunnerResult:
        outcome = invoke(self, args, **kwargs)
        results = getattr(outcome.result, "results", None)
        if isinstance(results, list):
            results[:] = [r for r in results if not _is_our_hook(r)]
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dbtRunner, "invoke", filtered)
        yield


# The suite's projects and set-up statements are written for PostgreSQL.
_TO_SPARK = [
    (re.compile(r"timestamp without time zone", re.IGNORECASE), "timestamp"),
    (re.compile(r"::text\b", re.IGNORECASE), "::string"),
    (re.compile(r"\{\{\s*target\.database\s*\}\}\."), ""),
]
_SETUP_TO_SPARK = [
    *_TO_SPARK,
    (re.compile(r"\btext\b", re.IGNORECASE), "string"),
    (re.compile(r"\bserial\b", re.IGNORECASE), "int"),
    (re.compile(r'"(\w+)"'), r"`\1`"),
    # Spark stores no text in a date or a timestamp column.
    (re.compile(r"(?<!date )'(\d{4}-\d\d-\d\d)'", re.IGNORECASE), r"date '\1'"),
    (
        re.compile(r"(?<!timestamp )'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)'", re.IGNORECASE),
        r"timestamp '\1'",
    ),
    (re.compile(r"(\{database\}|None|`None`)\."), ""),
]


def _translated(text: str, rules: list[tuple[re.Pattern[str], str]]) -> str:
    for pattern, spark in rules:
        text = pattern.sub(spark, text)
    return text


@pytest.fixture(scope="session", autouse=True)
def _spark_dialect() -> Iterator[None]:
    """Let the suite's PostgreSQL reach Spark as Spark SQL, one statement at a time."""
    run_sql = fixtures.TestProjInfo.run_sql
    write_file = fixtures.write_file

    def translated_run(self: Any, sql: str, fetch: str | None = None) -> Any:
        result = None
        for part in sqlparse.split(_translated(sql, _SETUP_TO_SPARK)):
            statement = sqlparse.format(part, strip_comments=True).strip().rstrip(";")
            if statement:
                result = run_sql(self, statement, fetch)
        return result

    def translated_write(contents: str, *paths: Any) -> None:
        is_sql = str(paths[-1]).endswith(".sql")
        write_file(_translated(contents, _TO_SPARK) if is_sql else contents, *paths)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixtures.TestProjInfo, "run_sql", translated_run)
        patch.setattr(fixtures, "write_file", translated_write)
        yield


def _is_our_hook(result: Any) -> bool:
    return getattr(getattr(result, "node", None), "package_name", None) == "dbt_sparkwap"


@pytest.fixture(scope="class")
def dbt_profile_target(lake_dir: Path) -> dict[str, Any]:
    return {"type": "sparkwap", "lake": str(lake_dir), "threads": 2}


@pytest.fixture(scope="class")
def profile_user() -> str:
    return "dbt"


@pytest.fixture(scope="class")
def logs_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = str(tmp_path_factory.mktemp("logs"))
    os.environ["DBT_LOG_PATH"] = folder
    yield folder
    del os.environ["DBT_LOG_PATH"]
