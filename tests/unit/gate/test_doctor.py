"""The findings of `sparkwap doctor`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkwap.catalog.model import RefState, TableState
from sparkwap.gate.doctor import LakeFacts, client_problem, examine, lines, safe
from sparkwap.gate.isolation_check import IsolationCheck, problem

GOOD = LakeFacts(
    embedded=False,
    dbt="1.11.16",
    atomicity="transaction",
    default_namespace=True,
    warehouse="s3://lake",
    spark="4.1.4 abc",
    iceberg="1.12.0",
    dropped={},
    overwrite_mode="static",
    server_overwrite_mode="static",
    cache="false",
    probe="",
    stamped=True,
    clones="",
    connect_url=True,
    connect_dropped={},
    connect_sees_table=True,
)


def test_everything_is_safe() -> None:
    findings = examine(GOOD)
    assert {finding.level for finding in findings} == {"ok"}
    assert safe(findings)
    assert list(lines(findings))[-1].startswith("Safe:")


@pytest.mark.parametrize(
    ("change", "told", "mend"),
    [
        ({"dbt": "1.12.0"}, "dbt-core is 1.12.0", "pip install"),
        ({"dbt": "1.10.9"}, "dbt-core is 1.10.9", "pip install"),
        ({"spark": "3.4.4"}, "Spark is 3.4.4", "upgrade Spark"),
        ({"iceberg": "1.10.1"}, "Iceberg in Spark is 1.10.1", "upgrade Iceberg"),
        ({"catalog_error": "refused"}, "cannot be opened from this machine: refused", "`catalog`"),
        ({"warehouse_error": "403"}, "s3://lake cannot be read and written", "keys"),
        ({"sql_error": "refused"}, "no SQL session: refused", "`host`"),
        ({"dropped": {"spark.wap.branch": ""}}, "spark.wap.branch is not set", "settings"),
        ({"dropped": None}, "could not check whether", "fix the other findings"),
        ({"overwrite_mode": "dynamic"}, "partitionOverwriteMode is dynamic", "remove it"),
        ({"overwrite_mode": None}, "partitionOverwriteMode is unknown", "remove it"),
        ({"probe": "rows land on main"}, "rows land on main", "same catalog"),
        ({"probe": None}, "could not check whether", "can write to the catalog"),
        ({"probe": None, "probe_error": "no space"}, "audit branch: no space", "can write to"),
        ({"connect_dropped": {"a": "b"}}, "Connect sessions: a is b", "settings"),
        ({"connect_sees_table": False}, "different catalogs", "one Spark server"),
    ],
)
def test_not_safe(change: dict[str, Any], told: str, mend: str) -> None:
    findings = examine(replace(GOOD, **change))
    wrong = [finding for finding in findings if finding.level == "not safe"]
    assert len(wrong) == 1
    assert told in wrong[0].what
    assert mend in wrong[0].mend
    assert wrong[0].meaning
    assert not safe(findings)
    assert list(lines(findings))[-1].startswith("Not safe")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"atomicity": "journal, together"}, "multi-table commits, whose result"),
        ({"atomicity": "journal, one by one"}, "one table at a time"),
        ({"atomicity": None}, "one table at a time"),
        ({"default_namespace": False}, "no namespace `default`"),
        ({"cache": ""}, "cache is on"),
        ({"cache": "true"}, "cache is on"),
        ({"stamped": False}, "does not carry the id"),
        ({"clones": "403: no"}, "refuses clones of tables: 403: no"),
        ({"connect_url": False}, "has no Spark Connect"),
        ({"connect_error": "refused"}, "Spark Connect cannot be used: refused"),
        ({"spark": None}, "the version of Spark is unknown"),
    ],
)
def test_warnings(change: dict[str, Any], told: str) -> None:
    findings = examine(replace(GOOD, **change))
    wrong = [finding for finding in findings if finding.level == "warning"]
    assert len(wrong) == 1
    assert told in wrong[0].what
    assert wrong[0].meaning and wrong[0].mend
    assert safe(findings)


def test_a_store_that_cannot_be_reached_is_told_once() -> None:
    facts = replace(
        GOOD,
        warehouse_error="status 503",
        probe=None,
        probe_error="status 503",
        connect_dropped=None,
        connect_sees_table=None,
    )
    told = list(lines(examine(facts)))
    assert len([line for line in told if "status 503" in line]) == 1
    assert not any("Connect" in line or "`catalog_name`" in line for line in told)


@pytest.mark.parametrize(
    ("server", "client", "told"),
    [
        ("4.1.4", "4.1.4", None),
        ("4.2.0", "4.1.4", None),
        ("4.0.5 b472", "4.0.1", None),
        ("4.0.5", "4.1.4", "pyspark-client~=4.0.0"),
        ("3.5.7", "4.1.4", "need a server with Spark 4.0"),
        ("3.5.7", "3.5.7", "need a server with Spark 4.0"),
        ("?", "4.1.4", None),
    ],
)
def test_a_client_may_not_be_newer_than_the_server(
    server: str, client: str, told: str | None
) -> None:
    found = client_problem(server, client)
    assert found is None if told is None else told in str(found)


def test_unknown_facts_are_never_safe() -> None:
    assert not safe(examine(LakeFacts(embedded=False, dbt="1.11.16")))


PROBE = IsolationCheck("the server a:1", "1a2b3c4d-0000", "lake")


def _state(main: int | None, branch: int | None) -> TableState:
    refs = {"main": RefState(main, "branch")} if main else {}
    refs |= {PROBE.branch: RefState(branch, "branch")} if branch else {}
    return TableState(PROBE.table, "table", "u", "m", "l", main, refs, (), (), (), {}, 2, None)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (_state(None, 1), None),
        (_state(1, None), "ignores Iceberg branches"),
        (_state(1, 1), "writes to main beside the branch"),
        (_state(None, None), "nowhere"),
        (None, "not use the same catalog"),
    ],
)
def test_the_problem_of_a_probe(state: TableState | None, told: str | None) -> None:
    found = problem(PROBE, state)
    assert (found is None) == (told is None)
    assert told is None or told in str(found)


def test_each_server_has_its_own_branch() -> None:
    assert PROBE.branch != replace(PROBE, server="the server b:1").branch
    assert PROBE.branch == replace(PROBE, run_id="another0").branch
