"""`sparkwap metrics` on a real lake: a run that published, one rejected, one held, a new file."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.landing import LandingProject
from prometheus_client.parser import text_string_to_metric_families

from sparkwap.cli import main

if TYPE_CHECKING:
    from helpers.lake import Reader
    from helpers.project import MakeProject

ENTRY = {
    "entity": "items",
    "kind": "extract",
    "format": "json",
    "key": ["id"],
    "columns": {"id": "bigint", "price": "decimal(10,2)"},
    "files": [{"match": "*.jsonl"}],
    "threshold": 0.9,
}
TOTALS = """
    {{ config(materialized='table') }}
    select {{ var('total', 'count(*)') }} as total from {{ ref('cdc_items') }}
"""
TESTS = "models: [{name: totals, columns: [{name: total, data_tests: [not_null]}]}]"


Series = dict[tuple[tuple[str, str], ...], float]
"""Labels -> value."""


def read(project_name: str, text: str) -> dict[str, Series]:
    """Return the metrics of a project; other tests share the lake."""
    found: dict[str, Series] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            given = dict(sample.labels)
            if given.pop("project") == project_name and given.pop("target") == "test":
                name = sample.name.removeprefix("sparkwap_")
                found.setdefault(name, {})[tuple(sorted(given.items()))] = sample.value
    return found


def nonzero(series: Series) -> set[str]:
    """Return the values of the labels of the series that are not zero."""
    return {" ".join(value for _, value in labels) for labels, value in series.items() if value}


def test_runs_branches_and_landing_lag(
    make_project: MakeProject, reader: Reader, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"metered_{secrets.token_hex(2)}"
    project = make_project("metered", {}, settings={"name": name})
    story = LandingProject(project, reader, {"items": ENTRY}, bare=frozenset({"items"}))
    project.write({"models/totals.sql": TOTALS, "models/totals.yml": TESTS})
    folders = ("--project-dir", str(project.folder), "--profiles-dir", str(project.folder))
    file = tmp_path / "sparkwap.prom"

    def metrics(*arguments: str) -> dict[str, Series]:
        assert main(["metrics", "--file", str(file), *arguments, *folders]) == 0
        assert [one.name for one in tmp_path.iterdir()] == [file.name]
        return read(name, file.read_text())

    first = '{"id": 1, "price": 1.10}\n{"id": 2, "price": "much"}\n'
    delivered = story.deliver("items/load_date=2026-01-01/a.jsonl", first)
    story.write()
    assert metrics()["landing_unread_files"] == {(("model", "raw_items"),): 1}
    published = story.build().succeeded()
    rejected = project.dbt("build", "--select", "totals", total="null").failed()
    held = project.dbt("run", "--select", "totals").succeeded()
    pull_request = {"wap_branch": "pr_7", "wap_publish": "never"}
    project.dbt("build", "--select", "totals", **pull_request).succeeded()
    late = story.deliver("items/load_date=2026-01-02/a.jsonl", '{"id": 1, "price": 2}\n')

    found = metrics()
    runs = {one["run_id"]: one for one in reader.ledger("runs")}
    own, of_items = ("branch_kind", "own"), (("model", "raw_items"),)
    assert nonzero(found["part_up"]) == {
        "lake", "runs", "publishes", "verdicts", "tests", "branches", "project",
    }  # fmt: skip
    assert nonzero(found["runs_total"]) == {
        "own published", "own rejected", "own held", "named held",
    }  # fmt: skip
    assert nonzero(found["last_run_outcome"]) == {"own held", "named held"}
    ended = runs[held.run_id]["ended_at"].timestamp()
    assert found["last_run_end_timestamp_seconds"][own,] == pytest.approx(ended, abs=1e-3)
    assert found["last_run_duration_seconds"][own,] > 0
    assert found["last_run_tests"][("branch_kind", "named"), ("status", "pass")] == 1
    at = {row["published_at"] for row in reader.ledger("publishes", run_id=published.run_id)}
    assert found["last_publish_timestamp_seconds"] == {
        (own,): pytest.approx(max(at).timestamp(), abs=1e-3)
    }
    assert nonzero(found["table_last_publish_timestamp_seconds"]) == {
        f"{project.schema} {table}" for table in ("raw_items", "cdc_items", "totals")
    }
    assert not nonzero(found["table_rolled_back"])
    assert nonzero(found["table_last_unpublished_timestamp_seconds"]) == {
        f"own {project.schema} totals rejected", f"own {project.schema} totals held",
        f"named {project.schema} totals held",
    }  # fmt: skip
    assert rejected.branch != held.branch
    assert nonzero(found["open_branch_tables"]) == {
        "own rejected", "own held", "named publishing_off",
    }  # fmt: skip
    assert found["open_branches"] == {(own,): 2, (("branch_kind", "named"),): 1}
    assert found["landing_up"] == {of_items: 1}
    assert found["landing_unread_files"] == {of_items: 1}
    oldest = found["landing_oldest_unread_timestamp_seconds"][of_items]
    assert oldest == pytest.approx(late.stat().st_ctime, abs=1e-3)
    assert found["quarantined_rows"] == {of_items: 1}

    # A file whose content has changed, and a project that dbt cannot parse, are no zeros.
    delivered.write_text(first + "\n")
    broken = metrics("--own")
    assert broken["landing_up"] == {of_items: 0}
    assert "landing_unread_files" not in broken
    assert broken["quarantined_rows"] == {of_items: 1}
    assert broken["runs_total"] == found["runs_total"]
    project.write({"models/broken.sql": "select * from {{ ref('nothing') }}"})
    capsys.readouterr()
    assert main(["metrics", *folders]) == 0
    printed = capsys.readouterr()
    broken = read(name, printed.out)
    assert printed.out.startswith("# HELP sparkwap_")
    assert "project cannot be read: dbt cannot parse the project" in printed.err
    assert broken["part_up"][("part", "project"),] == 0
    assert "landing_up" not in broken
    assert broken["runs_total"] == found["runs_total"]
