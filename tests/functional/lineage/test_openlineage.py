"""A build sends OpenLineage events, in which only what readers of main see is published."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.endpoints import endpoint
from helpers.lake import Reader
from helpers.project import MakeProject, Project

from sparkwap.lineage import send

FILES = {
    "models/base.sql": "{{ config(materialized='table') }} select id from range(1, 4)",
    "models/recent.sql": "{{ config(materialized='ephemeral') }} select id from {{ ref('base') }}",
    "models/orders.sql": """
        {{ config(materialized='table') }}
        select id, {{ env_var('LINEAGE_V') }} as amount from {{ ref('recent') }}
        {% if env_var('LINEAGE_BAD') == 'yes' %} union all select 2, 7 {% endif %}
    """,
    "models/properties.yml": """
        models:
          - name: orders
            description: The orders.
            columns:
              - name: id
                data_type: bigint
                data_tests: [{unique: {name: orders_are_unique}}]
    """,
}


@pytest.fixture(scope="module")
def project(make_project: MakeProject) -> Iterator[Project]:
    settings = {"vars": {"wap_openlineage": "end_of_run"}}
    with pytest.MonkeyPatch.context() as patch:
        for name in [one for one in os.environ if one.startswith("OPENLINEAGE")]:
            patch.delenv(name)
        patch.setenv("LINEAGE_V", "1")
        patch.setenv("LINEAGE_BAD", "no")
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield make_project("lineage", FILES, settings=settings)
        # The client itself adds some.
        for name in [one for one in os.environ if one.startswith("OPENLINEAGE")]:
            del os.environ[name]


def ends(log: Path) -> dict[str, Any]:
    """The last event of each job, by its name; deletes them."""
    found = [json.loads(line) for line in log.read_text().splitlines()]
    log.unlink()
    assert [event["eventType"] for event in found].count("START") == len(found) / 2
    assert not any(event["outputs"] for event in found if event["eventType"] == "START")
    return {event["job"]["name"]: event for event in found}


def test_a_catalog_is_told_what_readers_see(
    project: Project, reader: Reader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(log), "append": True}
    (tmp_path / "openlineage.yml").write_text(json.dumps({"transport": transport}))
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "openlineage.yml"))
    base, orders = f"{project.schema}.base", f"{project.schema}.orders"

    done = project.dbt("build").succeeded()
    assert "OpenLineage: 8 events sent" in done.text
    found = ends(log)
    built = found["model.shop.orders"]
    assert built["eventType"] == "COMPLETE"
    assert built["run"]["facets"]["parent"]["run"]["runId"] == done.run_id
    # Through the ephemeral model.
    assert [one["name"] for one in built["inputs"]] == [base]
    (output,) = built["outputs"]
    assert output["name"] == orders
    main = reader.metadata(project.schema, "orders")["current-snapshot-id"]
    assert output["facets"]["version"]["datasetVersion"] == str(main)
    assert output["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    assert [one["name"] for one in output["facets"]["schema"]["fields"]] == ["id"]
    (tested,) = found["model.shop.orders.test"]["inputs"]
    (assertion,) = tested["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (assertion["assertion"], assertion["column"]) == ("orders_are_unique", "id")
    assert found["dbt-run-shop"]["run"]["facets"]["sparkwap_gate"]["outcome"] == "published"

    monkeypatch.setenv("LINEAGE_BAD", "yes")
    failed = project.dbt("build").failed()
    found = ends(log)
    assert reader.metadata(project.schema, "orders")["current-snapshot-id"] == main
    assert {name: one["eventType"] for name, one in found.items()} == {
        "model.shop.base": "ABORT",
        "model.shop.orders": "FAIL",
        "dbt-run-shop": "FAIL",
    }
    assert not any(event["outputs"] for event in found.values())
    gate = found["model.shop.orders"]["run"]["facets"]["sparkwap_gate"]
    assert gate["reasons"] == ["test orders_are_unique failed (1 row)"]
    assert gate["branch"] == failed.branch
    project.operation("wap_discard", branch=failed.branch).succeeded()

    # A held branch has no versions until it is published.
    monkeypatch.setenv("LINEAGE_BAD", "no")
    held = project.dbt("build", wap_publish="never").succeeded()
    found = ends(log)
    assert found["model.shop.orders"]["eventType"] == "ABORT"
    assert found["dbt-run-shop"]["eventType"] == "COMPLETE"
    assert not any(event["outputs"] for event in found.values())
    project.operation("wap_publish", branch=held.branch).succeeded()
    found = ends(log)
    (output,) = found["model.shop.orders"]["outputs"]
    present = reader.metadata(project.schema, "orders")["current-snapshot-id"]
    assert present != main
    assert output["facets"]["version"]["datasetVersion"] == str(present)


def test_a_slow_receiver_does_not_stop_a_publish(
    project: Project, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "_SECONDS", 1)
    monkeypatch.setenv("LINEAGE_V", "2")
    with endpoint() as receiver:
        receiver.answers = [-100] * 9
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        began = time.monotonic()
        done = project.dbt("build").succeeded()
        assert time.monotonic() - began < 60
    assert "OpenLineage: not sent: 0 of 8 events sent within 1.4 s" in done.text
    assert done.verdict("orders") == "published"
    assert set(reader.table(project.schema, "orders").values("amount")) == {2}


def test_a_missing_client_is_an_error_before_anything_is_built(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    done = project.dbt("build").failed()
    assert "pip install '<checkout of sparkwap>[openlineage]'" in done.text
    assert "Nothing was run." in done.text
    assert done.verdicts == {}
