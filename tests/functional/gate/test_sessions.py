"""Spark sessions: their settings, how many there are, and what the server keeps of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.catalogs import RunningCatalog
from helpers.lake import Reader
from helpers.project import MakeProject, Project
from pyhive import hive

NODES = 150
MODELS = {
    "models/zone.sql": """
        {{ config(materialized='table') }}
        select current_timezone() as zone, cast('x' as int) as number
    """,
    "models/sets.sql": """
        {{ config(materialized='table', pre_hook="set spark.sql.session.timeZone = UTC",
                  sql_header="set spark.sql.shuffle.partitions = 7; declare q = 1;") }}
        select current_timezone() as zone from {{ ref('zone') }}
    """,
    "models/after.sql": """
        {{ config(materialized='table') }}
        select current_timezone() as zone from {{ ref('sets') }}
    """,
    "models/after_py.py": """
        def model(dbt, session):
            dbt.config(materialized="table")
            dbt.ref("after")
            return session.sql("select current_timezone() as zone")
    """,
}


@pytest.mark.smoke
def test_settings_reach_every_session_and_one_node_s_do_not_reach_the_next(
    make_project: MakeProject, reader: Reader
) -> None:
    parameters = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.ansi.enabled": "false"}
    project = make_project(
        "zones", MODELS, output={"threads": 1, "server_side_parameters": parameters}
    )
    project.dbt("build").succeeded()
    look = reader.look(project.schema)
    assert look["zone"].rows == ({"zone": "Asia/Tokyo", "number": None},)
    assert look["sets"].values("zone") == ["UTC"]
    assert look["after"].values("zone") == ["Asia/Tokyo"]
    assert look["after_py"].values("zone") == ["Asia/Tokyo"]


ORDERS = """
    {{ config(materialized='table') }} select explode(array({{ var('ids') }})) as id
"""
# dbt calls the hooks of packages by their names; this one's come after the gate's own.
AFTER = """
    name: zeta
    version: "1.0"
    config-version: 2
    on-run-end:
      - "create table if not exists {{ target.schema }}.seen (orders bigint)"
      - "insert into {{ target.schema }}.seen select count(*) from {{ target.schema }}.orders"
      - >-
        {% if var('more', false) %}insert into {{ target.schema }}.orders values (9){% endif %}
"""


def test_hooks_after_the_gate_s_own_read_and_write_main(
    make_project: MakeProject, reader: Reader
) -> None:
    files = {"models/orders.sql": ORDERS, "dbt_packages/zeta/dbt_project.yml": AFTER}
    project = make_project("after", files)
    project.dbt("build", ids="1, 2").succeeded()
    assert reader.table(project.schema, "seen").values("orders") == [2]
    held = project.dbt("build", ids="1, 2, 3", wap_publish="never")
    assert "held" in held.text
    assert reader.table(project.schema, "seen").values("orders") == [2, 2]
    refused = project.dbt("build", ids="4", more=True).failed()
    assert "would reach readers of main without an audit" in refused.text
    assert reader.table(project.schema, "orders").values("id") == [4]
    assert reader.table(project.schema, "seen").values("orders") == [1, 2, 2]


def test_a_hook_that_fails_before_the_gate(make_project: MakeProject, reader: Reader) -> None:
    hook = "{% if var('fails', false) %}select * from nothing_here{% endif %}"
    project = make_project("before", {"models/orders.sql": ORDERS}, settings={"on-run-end": hook})
    failed = project.dbt("build", ids="1", fails=True).failed()
    assert "A hook failed before the gate decided, so nothing was published." in failed.text
    assert reader.look(project.schema) == {}
    assert f"SPARKWAP_BRANCH={failed.branch} dbt build" in failed.text
    project.dbt("build", ids="1", wap_branch=failed.branch).succeeded()
    assert reader.table(project.schema, "orders").values("id") == [1]


def test_ansi_mode_is_on_by_default(make_project: MakeProject, reader: Reader) -> None:
    cast = "{{ config(materialized='table') }} select cast('x' as int) as number"
    project = make_project("ansi", {"models/number.sql": cast})
    failed = project.dbt("build").failed()
    assert "CAST_INVALID_INPUT" in failed.text
    assert reader.look(project.schema) == {}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The settings of each Thrift session that is opened."""
    sessions: list[dict[str, Any]] = []
    connect = hive.connect

    def counted(*args: Any, **kwargs: Any) -> hive.Connection:
        sessions.append(kwargs["configuration"])
        return connect(*args, **kwargs)

    monkeypatch.setattr(hive, "connect", counted)
    return sessions


def test_sessions_are_pooled_and_descriptors_stay_flat(
    make_project: MakeProject,
    lake_dir: Path,
    running: RunningCatalog,
    opened: list[dict[str, Any]],
) -> None:
    process = running.process(lake_dir)
    project = many_tests(make_project("many", {}))
    project.dbt("test", "--select", "nothing_1*").succeeded()
    before = process.num_fds()
    opened.clear()
    done = project.dbt("test").succeeded()
    assert len(done.statuses) >= NODES
    # One for each thread, and one for dbt's main thread.
    assert 1 <= len(opened) <= 3 + 1
    for settings in opened:
        assert settings["set:hiveconf:spark.wap.branch"] == f"wap_{done.run_id[:8]}"
        key = "set:hiveconf:spark.sql.iceberg.snapshot-property.wap_run"
        assert settings[key] == done.run_id
    # A session for each node would leave some 15 descriptors each. What Spark keeps open for its
    # own sake comes and goes with its garbage collector; `make soak` watches for longer.
    assert process.num_fds() - before < 2 * NODES


def many_tests(project: Project) -> Project:
    files = {f"tests/nothing_{n}.sql": f"select {n} as n limit 0" for n in range(NODES)}
    return project.write(files)
