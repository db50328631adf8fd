"""The facts of a lake and of landing folders; nothing that is broken hides the rest."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from sparkwap.catalog.model import LedgerRows
from sparkwap.core.dbt_cli import DbtCall, LakePlace
from sparkwap.core.errors import SparkwapError
from sparkwap.metrics.decide import CatalogFacts, Facts, RawModelFacts
from sparkwap.metrics.gather import gather
from sparkwap.publish.lake import Lake

NOW = datetime.now(UTC)
ENTRY = {
    "entity": "items", "kind": "extract", "format": "json", "key": ["id"],
    "columns": {"id": "bigint"}, "files": [{"match": "*.jsonl"}],
}  # fmt: skip


@dataclass
class Call:
    """The part of a `DbtCall` that the metrics use, without dbt."""

    project_dir: Path
    entries: dict[str, Any] = field(default_factory=dict)
    broken: bool = False
    target_path: Path = Path("target")

    def lake(self) -> LakePlace:
        uri = f"sqlite:///{self.project_dir}/catalog.db"
        properties = {"type": "sql", "uri": uri, "warehouse": f"{self.project_dir}/warehouse"}
        return LakePlace("lake", properties, "prod")

    def manifest(self, again: str) -> dict[str, Any]:
        if self.broken:
            print("Compilation Error")
            raise SparkwapError(f"dbt cannot parse the project, then: {again}")
        return {"nodes": {name: self._node(name) for name in self.entries}}

    def _node(self, name: str) -> dict[str, Any]:
        meta = {"landing": self.entries[name], "drop": {"root": "landing"}}
        return {"name": name.partition(".v")[0], "alias": name, "resource_type": "model",
                "schema": "raw", "config": {"meta": meta}}  # fmt: skip

    def facts(self) -> Facts:
        return gather(cast(DbtCall, self))

    def open(self) -> Lake:
        place = self.lake()
        return Lake(place.name, dict(place.properties))


@pytest.fixture
def call(tmp_path: Path) -> Call:
    (tmp_path / "dbt_project.yml").write_text("name: shop\nversion: '1.0'\nprofile: shop\n")
    return Call(tmp_path)


def test_a_lake_that_does_not_exist_is_not_created(call: Call) -> None:
    found = call.facts()
    assert (found.project, found.target, found.lake_exists) == ("shop", "prod", False)
    assert (found.runs, found.catalog, found.faults) == ([], CatalogFacts(), {})
    assert not (call.project_dir / "catalog.db").exists()


def test_a_lake_without_tables_has_no_faults(call: Call) -> None:
    call.open().close()
    found = call.facts()
    assert found.lake_exists
    assert (found.runs, found.tests, found.faults) == ([], [], {})
    assert found.catalog is not None and not found.catalog.branches


def test_the_ledger_and_the_open_branches_are_read(call: Call) -> None:
    lake = call.open()
    lake.ensure_schema("s")
    ids = pa.table({"id": pa.array([1], pa.int64())})
    lake.catalog.create_table(("s", "orders"), ids.schema).append(ids)
    lake.branches.open(("s", "orders"), "pr_1")
    ended = {"ended_at": NOW, "started_at": NOW - timedelta(minutes=1), "branch": "pr_1"}
    lake.ledger.append([
        LedgerRows("runs", [{"run_id": "a", "outcome": "held", "project": "shop",
                             "target": "prod", **ended}]),
        LedgerRows("nodes", [
            {"run_id": "a", "branch": "pr_1", "node_id": f"model.shop.{name}", "schema": "s",
             "name": name, "verdict": text, "built_at": NOW, "resource_type": "model"}
            for name, text in (("orders", "held"), ("other", "published"))
        ]),
        LedgerRows("tests", [
            {"run_id": name, "test_id": "t", "status": "pass", "executed_at": NOW}
            for name in ("a", "of_an_earlier_run")
        ]),
        LedgerRows("publishes", [{"publish_id": "p", "run_id": "a", "branch": "pr_1", "schema": "s",
                                  "name": "other", "action": "publish", "published_at": NOW}]),
    ])  # fmt: skip
    lake.close()
    found = call.facts()
    assert found.faults == {}
    assert [row["run_id"] for row in found.runs or ()] == ["a"]
    assert [row["name"] for row in found.verdicts or ()] == ["orders"]
    assert [row["run_id"] for row in found.tests or ()] == ["a"]
    assert [row["name"] for row in found.publishes or ()] == ["other"]
    assert found.catalog is not None
    assert found.catalog.existing == {("s", "orders")}
    (branch,) = found.catalog.branches
    assert (branch.name, branch.tables, branch.in_use) == ("pr_1", (("s", "orders"),), False)
    assert {row["name"] for row in branch.nodes} == {"orders", "other"}
    assert branch.since is not None


def test_a_catalog_that_cannot_be_opened_does_not_hide_the_project(call: Call) -> None:
    (call.project_dir / "catalog.db").write_text("this is no database, but a text of some length")
    call.entries = {"raw_bad": {**ENTRY, "key": 3}}
    found = call.facts()
    assert found.runs is None and found.catalog is None
    assert {"runs", "branches"} <= set(found.faults)
    assert [one.model for one in found.raw_models or ()] == ["raw_bad"]


def test_an_unreadable_table_of_the_ledger_does_not_hide_the_others(call: Call) -> None:
    lake = call.open()
    for name, time in (("runs", "ended_at"), ("publishes", "published_at")):
        lake.ledger.append(LedgerRows(name, [{"run_id": "a", time: NOW}]))
    lake.close()
    for file in (call.project_dir / "warehouse").rglob("publishes/data/*.parquet"):
        file.write_bytes(b"broken")
    found = call.facts()
    assert (found.publishes, set(found.faults)) == (None, {"publishes"})
    assert len(found.runs or ()) == 1


def test_landing_folders_are_read_and_broken_ones_are_faults(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = call.project_dir / "landing/items/load_date=2026-01-01"
    folder.mkdir(parents=True)
    file = folder / "a.jsonl"
    file.write_text('{"id": 1}\n')
    call.entries = {
        "raw_items": ENTRY,
        "raw_lost": {**ENTRY, "entity": "lost"},
        "raw_wrong": {**ENTRY, "kind": "no such kind"},
        "raw_topic": {**ENTRY, "kind": "stream", "topic": "t", "files": None},
    }
    found = call.facts()
    models = {one.model: one for one in found.raw_models or ()}
    items = models["raw_items"]
    assert items == RawModelFacts("raw_items", 1, file.stat().st_ctime_ns / 1e9, None, 0)
    for name in ("raw_lost", "raw_wrong", "raw_topic"):
        assert models[name].unread_files is None and models[name].faults, name
        assert found.faults[f"raw model {name}"]
    assert "no folder 'lost'" in found.faults["raw model raw_lost"]

    call.entries = {"raw_items.v1": ENTRY, "raw_items.v2": ENTRY, "raw_lost": ENTRY}
    labels = [one.model for one in call.facts().raw_models or ()]
    assert labels == ["raw.raw_items.v1", "raw.raw_items.v2", "raw_lost"]

    call.broken = True
    found = call.facts()
    assert found.raw_models is None
    assert "sparkwap metrics" in found.faults["project"]
    # Standard output is for the metrics.
    out, err = capsys.readouterr()
    assert out == "" and "Compilation Error" in err
    assert sys.stdout is not sys.stderr
