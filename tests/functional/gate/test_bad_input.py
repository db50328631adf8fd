"""What goes wrong gives one clear error with the way on, a non-zero exit, and an untouched main."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.lake import Reader
from helpers.project import Project

from sparkwap import server

TABLE = "{{ config(materialized='table') }} "


class TestSettings:
    """Wrong settings are told before anything runs, all at once."""

    @pytest.mark.parametrize(
        ("variables", "complaints"),
        [
            (
                {"wap_publish": "maybe", "wap_warnings": "ignore"},
                ["wap_publish: 'maybe' is not allowed; legal: run, lineage, never", "wap_warnings"],
            ),
            ({"wap_publsh": "run"}, ["wap_publsh: there is no such setting", "wap_publish?"]),
            (
                {"wap_branch": "main"},
                ["'main' is the branch that readers see", "a lower-case letter"],
            ),
            ({"wap_branch": "PR-7"}, ["'PR-7' is not allowed", "legal: a lower-case letter"]),
        ],
    )
    def test_wrong_var(self, shop: Any, variables: dict[str, str], complaints: list[str]) -> None:
        done = shop.dbt("build", **variables).failed()
        for complaint in [*complaints, "nothing was run", "run again"]:
            assert complaint in done.text
        assert done.statuses == {}
        assert shop.new() == set()


class TestModels:
    def test_each_broken_model_says_what_is_wrong_with_it(self, shop: Any) -> None:
        shop.project.write(
            {
                "models/as_delta.sql": "{{ config(file_format='delta') }} select 1 as x",
                "models/granted.sql": TABLE.replace(")", ", grants={'select': ['bob']})", 1)
                + "select 1 as x",
                "models/no_sql.sql": TABLE + "selec 1 as x fro y",
                "models/python_error.py": """
                    def model(dbt, session):
                        dbt.config(materialized="table")
                        return {}["nope"]
                """,
                "models/no_frame.py": """
                    def model(dbt, session):
                        dbt.config(materialized="table")
                        return 42
                """,
                "models/dropped.sql": "{{ config(materialized='table', pre_hook='drop table '"
                " ~ target.schema ~ '.notes') }} select 1 as x",
            }
        )
        expected = {
            "as_delta": ["file_format is 'delta'", "Remove the config, or set it to 'iceberg'"],
            "granted": ["no GRANT", "Remove the config"],
            "no_sql": ["[PARSE_SYNTAX_ERROR] Syntax error at or near"],
            "python_error": ["models/python_error.py, line 3: KeyError: 'nope'"],
            "no_frame": ["models/no_frame.py", "int", "frame"],
            "dropped": ["The guard refused drop table", "is live"],
        }
        done = shop.dbt("build", "--select", *expected).failed()
        for name, words in expected.items():
            assert done.verdict(name) == "rejected"
            for word in words:
                assert word in done.reason(name), done.reason(name)
            assert "HiveSQLException" not in done.reason(name)
        assert "dbt retry" in done.text
        assert shop.new() == set()

    def test_no_table_is_built_outside_the_gate(self, shop: Any) -> None:
        own = """
            {% materialization sneaky, default %}
                {% set place = this.incorporate(type="table") %}
                {% call statement("main") %}
                    create table if not exists {{ place }} using iceberg as {{ sql }}
                {% endcall %}
                {{ return({"relations": [place]}) }}
            {% endmaterialization %}
        """
        shop.project.write(
            {
                "macros/sneaky.sql": own,
                "models/aside.sql": "{{ config(materialized='sneaky') }} select 1 as x",
            }
        )
        done = shop.dbt("build", "--select", "aside").failed()
        assert "The guard refused create table" in done.reason("aside")
        assert shop.new() == set()
        done = shop.dbt("build", wap_guard=False).failed()
        assert done.verdict("aside") == "rejected"
        assert "does not go through the gate" in done.reason("aside")
        # What the materialization itself wrote is taken off main again.
        assert shop.new() == set()


def test_dbt_killed_in_the_middle_of_a_run(shop: Any) -> None:
    waits = """
        import time

        def model(dbt, session):
            dbt.config(materialized="table")
            time.sleep(300)
            return dbt.ref("customers")
    """
    shop.project.write({"models/waits.py": waits})
    place = (shop.reader, shop.project.schema, "customers")
    others = _heads(*place)
    killed = shop.project.start("build")
    _wait_until(lambda: killed.poll() is not None or _heads(*place) > others)
    assert killed.poll() is None, (shop.project.folder / "logs/dbt.log").read_text()
    killed.kill()
    killed.wait()
    assert shop.new() == set()
    # What is left is found, told and dropped; the next build does not care.
    (branch,) = _heads(*place) - others
    status = shop.project.operation("wap_status", branch=branch).succeeded()
    assert "its run did not end, so nothing on the branch can be published" in status.text
    refused = shop.project.operation("wap_publish", branch=branch).failed()
    assert "its run did not end. Nothing was changed." in refused.text
    shop.project.operation("wap_discard", branch=branch).succeeded()
    assert _heads(*place) == others
    assert shop.new() == set()
    shop.restore()
    shop.dbt("build").succeeded()
    assert shop.look()["customers"].values("v") == [shop.v] * 3


@pytest.fixture
def own_lake(tmp_path: Path) -> Iterator[Path]:
    lake = tmp_path / ".lake"
    yield lake
    server.stop(lake)


def test_server_killed_in_the_middle_of_a_model(own_lake: Path, tmp_path: Path) -> None:
    output = {"type": "sparkwap", "lake": str(own_lake), "memory": "768m"}
    project = Project(tmp_path / "project", "s", output).write(
        {
            "models/quick.sql": TABLE + "select {{ var('v') }} as v",
            "models/slow.sql": TABLE
            + """
                select {{ var('v') }} as v, count(*) as n from range(10) as a
                {% if var('slow', false) %}
                cross join range(1000000) as b cross join range(1000000) as c
                {% endif %}
            """,
            "models/properties.yml": """
                models:
                  - {name: slow, columns: [{name: v, data_tests: [not_null]}]}
                  - {name: quick, columns: [{name: v, data_tests: [not_null]}]}
            """,
        }
    )
    reader = Reader(own_lake)
    project.dbt("build", v=1).succeeded()
    before = reader.look("s")
    with killing_the_server_once_a_branch_is_written(reader, "quick"):
        killed = project.dbt("build", v=2, slow=True).failed()
    assert killed.verdict("slow") == "rejected"
    assert "The connection to Spark was lost in the middle of a statement" in killed.text
    assert "dbt retry" in killed.text
    assert {n: k.seen() for n, k in reader.look("s").items()} == {
        n: k.seen() for n, k in before.items()
    }
    # A new server is started, and the same branch goes on.
    slow = project.folder / "models/slow.sql"
    slow.write_text(slow.read_text().replace("var('slow', false)", "false"))
    again = project.dbt("retry").succeeded()
    assert again.branch == killed.branch
    assert reader.table("s", "slow").values("v") == reader.table("s", "quick").values("v") == [2]


@contextmanager
def killing_the_server_once_a_branch_is_written(reader: Reader, name: str) -> Iterator[None]:
    thread = threading.Thread(target=_kill, args=(reader, name), daemon=True)
    thread.start()
    yield
    thread.join(timeout=600)


def _kill(reader: Reader, name: str) -> None:
    _wait_until(lambda: bool(_heads(reader, "s", name)))
    time.sleep(1)  # the other model is in the middle of its statement
    status = server.status(reader.lake)
    assert status is not None
    os.kill(status.endpoint.pid, signal.SIGKILL)


def _wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not done():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


def _heads(reader: Reader, schema: str, name: str) -> set[str]:
    """The audit branches of a table that hold rows of their own."""
    refs = reader.metadata(schema, name)["refs"]
    main = refs["main"]["snapshot-id"]
    return {
        key for key, ref in refs.items() if ref["type"] == "branch" and ref["snapshot-id"] != main
    }
