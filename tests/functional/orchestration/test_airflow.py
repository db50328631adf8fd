"""The DAGs of `examples/airflow` in a real Airflow with Cosmos: what it says is what main has."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

DAGS = Path(__file__).parents[3] / "examples" / "airflow"


@dataclass(frozen=True)
class DagRun:
    """A run of a DAG, as Airflow's database has it.

    Attributes:
        state: of the run.
        tasks: the state of each task.
        xcom: the XCom `sparkwap` of the task that publishes; None if there is none.
        events: the extra of each asset's event, by the asset's URI.
    """

    state: str
    tasks: dict[str, str]
    xcom: dict[str, Any] | None
    events: dict[str, dict[str, Any]]
    text: str


class Airflow:
    """An Airflow with a home of its own and the DAGs of the example."""

    def __init__(self, programs: Path, home: Path, gated: Any) -> None:
        self.programs, self.home, self.gated = programs, home, gated
        self("db", "migrate").check_returncode()

    def __call__(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.programs / "airflow"), *arguments],
            env=self.gated.environment(
                AIRFLOW_HOME=str(self.home),
                AIRFLOW__CORE__DAGS_FOLDER=str(DAGS),
                AIRFLOW__CORE__LOAD_EXAMPLES="False",
                AIRFLOW__COSMOS__ENABLE_TELEMETRY="False",
                PROFILE="shop",
                TARGET="test",
                RETRY_DELAY="0.1",
                PYTHONDONTWRITEBYTECODE="1",
                **more,
            ),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    def run(self, dag: str, **more: str) -> DagRun:
        """Run a DAG; its exit code is that of the run's state."""
        ran = self("dags", "test", dag, **more)
        with closing(sqlite3.connect(self.home / "airflow.db")) as database:
            found = database.execute(
                "select run_id, state from dag_run where dag_id = ? order by id desc", (dag,)
            ).fetchone()
            assert found is not None, ran.stdout + ran.stderr
            run_id, state = found
            assert (ran.returncode == 0) == (state == "success"), ran.stdout + ran.stderr
            of_run = "dag_id = ? and run_id = ?"
            tasks = database.execute(
                f"select task_id, state from task_instance where {of_run}", (dag, run_id)
            ).fetchall()
            values = database.execute(
                f"select value from xcom where key = 'sparkwap' and {of_run}", (dag, run_id)
            ).fetchall()
            events = database.execute(
                "select a.uri, e.extra from asset_event e join asset a on a.id = e.asset_id"
                " where e.source_dag_id = ? and e.source_run_id = ?",
                (dag, run_id),
            ).fetchall()
        assert len(values) <= 1
        return DagRun(
            state=state,
            tasks=dict(tasks),
            xcom=json.loads(values[0][0]) if values else None,
            events={uri: json.loads(extra) for uri, extra in events},
            text=ran.stdout + ran.stderr,
        )


@pytest.fixture
def programs(installed: Any) -> Path:
    """Skips before a server is started."""
    found: Path = installed("airflow")
    return found


@pytest.fixture
def airflow(programs: Path, tmp_path: Path, gated: Any) -> Airflow:
    return Airflow(programs, tmp_path, gated)


def require_published(run: DagRun, gated: Any) -> None:
    """Airflow says that both tables were published, and they were, by this publish."""
    assert run.xcom is not None, run.text
    schema = gated.project.schema
    assert gated.new() == {"orders", "totals"}
    assert run.xcom["outcome"] == "published"
    assert run.xcom["tables"] == {f"{schema}.orders": "published", f"{schema}.totals": "published"}
    told = {"publish_id": run.xcom["publish_id"], "run_id": run.xcom["run_id"]}
    # One publish has both.
    assert gated.published(told["publish_id"]) == {
        (t, told["run_id"]) for t in ("orders", "totals")
    }
    assert run.events == {f"sparkwap://{schema}/{name}": told for name in ("orders", "totals")}


def test_one_task_says_what_main_has(airflow: Airflow, gated: Any) -> None:
    schema = gated.project.schema
    gated.deliver()
    run = airflow.run("lake")
    assert (run.state, run.tasks) == ("success", {"build": "success"}), run.text
    require_published(run, gated)

    # A test fails, also at the second try.
    gated.deliver(total="cast(null as bigint)")
    run = airflow.run("lake")
    assert gated.new() == set()
    assert (run.state, run.tasks, run.events) == ("failed", {"build": "failed"}, {}), run.text
    assert run.xcom is not None
    assert run.xcom["outcome"] == "rejected"
    assert run.xcom["publish_id"] is None
    assert run.xcom["tables"] == {f"{schema}.orders": "held", f"{schema}.totals": "rejected"}
    assert "totals_are_known" in run.xcom["reasons"][f"{schema}.totals"][0]
    assert "rejected: " in run.text

    # Some tables of a rejected run are published, if the project says so: a failure all the same.
    run = airflow.run("lake", SPARKWAP_PUBLISH="lineage")
    assert gated.new() == {"orders"}
    assert (run.state, run.tasks, run.events) == ("failed", {"build": "failed"}, {}), run.text
    assert run.xcom is not None
    assert run.xcom["tables"] == {f"{schema}.orders": "published", f"{schema}.totals": "rejected"}

    # A test does not run: nothing failed, and nothing is published.
    gated.deliver(tested=False)
    run = airflow.run("lake")
    assert gated.new() == set()
    assert (run.tasks, run.events) == ({"build": "skipped"}, {}), run.text
    assert run.xcom is not None
    assert run.xcom["outcome"] == "held"
    assert set(run.xcom["tables"].values()) == {"held"}
    branch = run.xcom["branch"]
    assert branch in gated.reader.metadata(schema, "orders")["refs"]

    # dbt ends before its run begins.
    gated.project.write({"models/broken.sql": "{{ ref('nothing') }}"})
    run = airflow.run("lake")
    assert gated.new() == set()
    assert (run.state, run.tasks, run.events, run.xcom) == ("failed", {"build": "failed"}, {}, None)


def test_a_task_for_each_node_shares_a_branch_and_the_last_one_publishes(
    airflow: Airflow, gated: Any
) -> None:
    # It holds only where both tables are of the same delivery.
    tests = f"nodes.{gated.project.folder.name}_test"
    total = "select sum(amount) from {{ ref('orders') }}"
    add_up = f"select * from {{{{ ref('totals') }}}} where total <> ({total})"
    gated.project.write({"tests/totals_add_up.sql": add_up})
    for _ in range(2):
        gated.deliver()
        gated.project.dbt("parse").succeeded()
        run = airflow.run("lake_by_node")
        built = {"nodes.orders_run", "nodes.totals_run"}
        assert set(run.tasks) == {*built, tests, "publish"}
        assert (run.state, set(run.tasks.values())) == ("success", {"success"}), run.text
        require_published(run, gated)

    gated.deliver(total="cast(null as bigint)")
    run = airflow.run("lake_by_node")
    assert gated.new() == set()
    states = {name: state for name, state in run.tasks.items() if state != "success"}
    assert states == {tests: "failed", "publish": "upstream_failed"}, run.text
    assert (run.state, run.events, run.xcom) == ("failed", {}, None)
    refs = gated.reader.metadata(gated.project.schema, "orders")["refs"]
    assert any(name.startswith("airflow_") for name in refs), "what was built waits on a branch"

    # A test that does not run holds the branch: its task succeeds, and `publish` tells.
    gated.deliver(tested=False)
    gated.project.dbt("parse").succeeded()
    run = airflow.run("lake_by_node")
    assert gated.new() == set()
    states = {name: state for name, state in run.tasks.items() if state != "success"}
    assert (states, run.events) == ({"publish": "skipped"}, {}), run.text
    assert run.xcom is not None
    assert run.xcom["outcome"] == "held"
