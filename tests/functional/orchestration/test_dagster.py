"""`examples/dagster` in a real Dagster: an asset is materialized if its table was published."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

DEFINITIONS = Path(__file__).parents[3] / "examples" / "dagster" / "definitions.py"
# Reads the last run from Dagster's own storage.
READ = """
import json
from dagster import DagsterEventType, DagsterInstance

def plain(told):
    return {name: value.value for name, value in told.metadata.items()}

with DagsterInstance.get() as instance:
    run = instance.get_runs(limit=1)[0]
    found = {"status": run.status.value, "materialized": {}, "observed": {}, "checks": {}}
    failures = []
    for entry in instance.all_logs(run.run_id):
        event = entry.dagster_event
        if event is None:
            continue
        if event.event_type == DagsterEventType.ASSET_MATERIALIZATION:
            told = event.event_specific_data.materialization
            found["materialized"][told.asset_key.to_user_string()] = plain(told)
        elif event.event_type == DagsterEventType.ASSET_OBSERVATION:
            told = event.event_specific_data.asset_observation
            found["observed"][told.asset_key.to_user_string()] = plain(told)
        elif event.event_type == DagsterEventType.ASSET_CHECK_EVALUATION:
            told = event.event_specific_data
            found["checks"][told.check_name] = told.passed
        elif event.event_type == DagsterEventType.STEP_FAILURE:
            failures.append(event.event_specific_data.error_display_string)
print(json.dumps({**found, "failures": failures}))
"""


@dataclass(frozen=True)
class Run:
    """A run of the job, as Dagster's storage has it.

    Attributes:
        status: ``SUCCESS`` or ``FAILURE``.
        materialized: the metadata of each materialized asset.
        observed: the metadata of each observed asset.
        checks: whether each asset check passed.
        failures: the errors of steps.
    """

    status: str
    materialized: dict[str, dict[str, Any]]
    observed: dict[str, dict[str, Any]]
    checks: dict[str, bool]
    failures: list[str]


class Dagster:
    """A Dagster with a home of its own and the definitions of the example."""

    def __init__(self, programs: Path, home: Path, gated: Any) -> None:
        self.programs, self.home, self.gated = programs, home, gated
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")

    def __call__(self, program: str, *arguments: str, **more: str) -> tuple[int, str]:
        ran = subprocess.run(
            [str(self.programs / program), *arguments],
            env=self.gated.environment(DAGSTER_HOME=str(self.home), **more),
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if program == "dagster" else None,
            text=True,
            timeout=900,
            check=False,
        )
        return ran.returncode, ran.stdout

    def run(self, **more: str) -> Run:
        """Run the job; its exit code is that of the run."""
        code, text = self(
            "dagster", "job", "execute", "-f", str(DEFINITIONS), "-j", "lake_job", **more
        )
        read, document = self("python", "-c", READ)
        assert read == 0
        run = Run(**json.loads(document))
        assert (code == 0) == (run.status == "SUCCESS"), text
        assert run.status in ("SUCCESS", "FAILURE"), text
        return run


@pytest.fixture
def programs(installed: Any) -> Path:
    """Skips before a server is started."""
    found: Path = installed("dagster")
    return found


@pytest.fixture
def dagster(programs: Path, tmp_path: Path, gated: Any) -> Dagster:
    return Dagster(programs, tmp_path, gated)


def verdicts(told: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {asset: metadata["verdict"] for asset, metadata in told.items()}


def test_an_asset_is_materialized_if_its_table_was_published(dagster: Dagster, gated: Any) -> None:
    gated.deliver()
    run = dagster.run()
    assert run.status == "SUCCESS", run
    assert gated.new() == {"orders", "totals"} == set(run.materialized)
    assert run.observed == {}
    assert run.checks == {"ids_are_unique": True, "totals_are_known": True}
    told = run.materialized["totals"]
    assert gated.published(told["publish_id"]) == {
        ("orders", told["run_id"]),
        ("totals", told["run_id"]),
    }
    assert told["table"] == f"{gated.project.schema}.totals"
    assert (told["verdict"], told["tests"]) == ("published", "1/1")
    assert told["unique_id"] == "model.shop.totals", "what dagster-dbt says of a model"

    # dbt has built both, which dagster-dbt alone takes for materializations.
    gated.deliver(total="cast(null as bigint)")
    run = dagster.run()
    assert run.status == "FAILURE"
    assert gated.new() == set() == set(run.materialized)
    assert verdicts(run.observed) == {"orders": "held", "totals": "rejected"}
    assert run.checks == {"ids_are_unique": True, "totals_are_known": False}
    assert "totals_are_known" in run.failures[0]

    # Some tables of a rejected run are published, if the project says so.
    run = dagster.run(SPARKWAP_PUBLISH="lineage")
    assert run.status == "FAILURE"
    assert gated.new() == {"orders"} == set(run.materialized)
    assert verdicts(run.observed) == {"totals": "rejected"}

    # A test does not run: nothing failed, and nothing is published.
    gated.deliver(tested=False)
    gated.project.clear("target")  # the assets and checks come from the manifest
    run = dagster.run()
    assert run.status == "SUCCESS"
    assert gated.new() == set() == set(run.materialized)
    assert verdicts(run.observed) == {"orders": "held", "totals": "held"}
    refs = gated.reader.metadata(gated.project.schema, "orders")["refs"]
    assert run.observed["orders"]["branch"] in refs

    # dbt ends before its run begins.
    gated.project.write({"models/broken.sql": "{{ ref('nothing') }}"})
    run = dagster.run()
    assert run.status == "FAILURE"
    assert gated.new() == set() == set(run.materialized)
    assert run.observed == {}
