"""dbt's own adapter suite on one lake, with the gate on.

Each class of ``dbt-tests-adapter`` writes a small project, runs dbt in this process and looks at
what readers of main see: ``project.run_sql`` goes through an adapter that has no run open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlparse
import yaml
from dbt.cli.main import dbtRunner, dbtRunnerResult
from dbt.tests.fixtures import project as fixtures
from dbt.tests.fixtures.project import *  # noqa: F403

ADAPTER = Path(__file__).parent


# Not marked `long`: one class for each thing that can go wrong by itself.
QUICK = frozenset(
    {
        "TestSimpleMaterializations",
        "TestSingularTestsEphemeral",
        "TestIncremental",
        "TestSnapshotCheckCols",
        "TestMergeExcludeColumns",
        "TestOnSchemaChangeMerge",
        "TestIncrementalPredicatesDeleteInsert",
        "TestMicrobatchHiddenPartition",
        "TestNewRecordTimestampMode",
        "TestNewRecordDbtValidToCurrent",
        "TestNewColumnWithDeletes",
        "TestMultiUniqueKey",
        "TestPythonIncremental",
        "TestDataFrames",
        "TestChangeRelationType",
        "TestClonePossible",
        "TestDocsGenerate",
        "TestTableRollback",
        "TestPersistDocs",
        "TestGrants",
        "TestColumnTypes",
        "TestConcurrency",
        "TestMetadataWithEmptyFlag",
        "TestSampleMode",
        "TestDebug",
        "TestHookRefs",
        "TestSeedSpecificFormats",
        "TestStoreTestFailures",
        "TestListagg",
        "TestSafeCast",
        "TestDateDiff",
    }
)

# Also part of `make test`: set-up, build, read and clean-up of a suite's class.
SMOKE = "TestSimpleMaterializations"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if ADAPTER in item.path.parents:
            item.add_marker(pytest.mark.conformance)
            own = item.path.name == "test_beyond.py"
            if not own and not (getattr(item, "cls", None) and item.cls.__name__ in QUICK):
                item.add_marker(pytest.mark.long)
            if getattr(item, "cls", None) and item.cls.__name__ == SMOKE:
                item.add_marker(pytest.mark.smoke)


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


def _version_key(match: re.Match[str]) -> str:
    """A snapshot's key as this adapter makes it, for PostgreSQL's md5 of values joined by '|'."""
    values = re.split(r"\s*\|\|\s*'\|'\s*\|\|\s*", match[1])
    fields = ", ".join(
        f"cast({value.removesuffix('::text')} as string) as c{number}"
        for number, value in enumerate(values, start=1)
    )
    return f"sha2(to_json(struct({fields})), 256)"


# The suite's projects and set-up statements are written for PostgreSQL.
_TO_SPARK = [
    (re.compile(r"timestamp without time zone", re.IGNORECASE), "timestamp"),
    (re.compile(r"::text\b", re.IGNORECASE), "::string"),
    (re.compile(r"\{\{\s*target\.database\s*\}\}\."), ""),
]
_SETUP_TO_SPARK = [
    (re.compile(r"md5\((.+?)\) as", re.IGNORECASE), lambda match: _version_key(match) + " as"),
    *_TO_SPARK,
    # Iceberg's columns have no default in Spark.
    (re.compile(r"\s+default\s+(null|'\w+')", re.IGNORECASE), ""),
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


def _translated(text: str, rules: list[tuple[re.Pattern[str], Any]]) -> str:
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


@pytest.fixture(scope="session", autouse=True)
def _own_statements() -> Iterator[None]:
    """Let the suite send its own statements, which are no command's, past the guard."""
    last = fixtures.TestProjInfo.adapter.fget

    def unguarded(self: Any) -> Any:
        adapter = last(self)
        adapter.connections.check_statement = lambda sql: None
        return adapter

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixtures.TestProjInfo, "adapter", property(unguarded))
        yield


def _is_our_hook(result: Any) -> bool:
    return getattr(getattr(result, "node", None), "package_name", None) == "dbt_sparkwap"


@pytest.fixture(scope="class")
def dbt_profile_target(lake_dir: Path) -> dict[str, Any]:
    return {"type": "sparkwap", "lake": str(lake_dir), "threads": 2}


@pytest.fixture(scope="class")
def dbt_project_yml(
    request: pytest.FixtureRequest, prefix: str, project_root: Path, project_config_update: Any
) -> dict[str, Any]:
    """The project's file, with what the class says in ``changes`` beside what its base says.

    Classes whose tests fail on purpose say ``one_branch``: nothing of theirs is published, and they
    look at what stays on the branch.
    """
    given = project_config_update
    config = {
        "name": "test",
        "profile": "test",
        "flags": {"send_anonymous_usage_stats": False},
        **(yaml.safe_load(given) if isinstance(given, str) else given or {}),
    }
    for key, value in getattr(request.cls, "changes", {}).items():
        config[key] = {**config.get(key, {}), **value}
    if getattr(request.cls, "one_branch", False):
        config["vars"] = {**config.get("vars", {}), "wap_branch": f"suite_{prefix}"}
    fixtures.write_file(yaml.safe_dump(config), project_root, "dbt_project.yml")
    return config


@pytest.fixture(scope="class")
def profile_user() -> str:
    return "dbt"


@pytest.fixture(scope="class")
def logs_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = str(tmp_path_factory.mktemp("logs"))
    os.environ["DBT_LOG_PATH"] = folder
    yield folder
    del os.environ["DBT_LOG_PATH"]
