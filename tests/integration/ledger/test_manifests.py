"""Stored manifests: they have the parts that dbt compares, and the same hash for the same code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dbt.adapters.factory import reset_adapters
from dbt.cli.main import dbtRunner

from dbt.adapters.sparkwap.dbt_nodes import calls as calls_of
from sparkwap.core.errors import SparkwapError
from sparkwap.ledger import manifests
from sparkwap.ledger.code import digests

FILES = {
    "dbt_project.yml": """
        name: shop
        version: "1.0"
        profile: shop
        flags: {send_anonymous_usage_stats: false}
        models:
          shop: {+meta: {until: "{{ var('until', '') }}"}}
    """,
    "profiles.yml": """
        shop:
          target: test
          outputs: {test: {type: sparkwap, lake: .lake, schema: shop, threads: 1}}
    """,
    "models/orders.sql": "select {{ rate() }} as rate",
    "models/totals.sql": "select * from {{ ref('orders') }}",
    "models/notes.sql": "select 1 as id",
    "models/described.sql": "{{ config(persist_docs={'relation': true}) }} select 1 as id",
    "models/idle.sql": "{{ config(enabled=false) }} select 1 as id",
    "models/idle.yml": """
        models:
          - name: idle
            columns: [{name: id, data_tests: [unique]}]
    """,
    "models/models.yml": """
        models:
          - name: notes
            description: "{{ doc('notes') }}"
            columns: [{name: id, data_tests: [not_null]}]
          - {name: described, description: "{{ doc('described') }}"}
        unit_tests:
          - name: totals_are_orders
            model: totals
            given: [{input: ref('orders'), rows: [{rate: 20251}]}]
            expect: {rows: [{rate: 20251}]}
    """,
    "models/docs.md": """
        {% docs notes %}Notes.{% enddocs %}
        {% docs described %}Before.{% enddocs %}
    """,
    "macros/rate.sql": "{% macro rate() %}{{ factor() }}{% endmacro %}",
    "macros/factor.sql": "{% macro factor() %}2{% endmacro %}",
    "seeds/codes.csv": "id\n1\n",
}
CHANGES = {
    "models/notes.sql": "select 2 as id",
    "macros/factor.sql": "{% macro factor() %}3{% endmacro %}",
    "seeds/codes.csv": "id\n2\n",
    "models/docs.md": "{% docs notes %}Other.{% enddocs %} {% docs described %}After.{% enddocs %}",
}
CHANGED = {"model.shop.notes", "model.shop.orders", "seed.shop.codes", "model.shop.described"}


class Project:
    """A project that is only parsed, so that it needs no server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(FILES)

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [line.removeprefix(" " * 8) for line in text.lstrip("\n").splitlines()]
            path.write_text("\n".join(lines) + "\n")

    def dbt(self, *command: str, manifest: Any = None) -> Any:
        folder = str(self.folder)
        place = ["--project-dir", folder, "--profiles-dir", folder, "--log-path", f"{folder}/logs"]
        ended = dbtRunner(manifest).invoke(["--quiet", *command, *place])
        reset_adapters()
        assert ended.success, ended.exception
        return ended.result

    def parsed(self, *options: str) -> dict[str, Any]:
        self.dbt("parse", *options)
        found: dict[str, Any] = json.loads((self.folder / "target/manifest.json").read_text())
        return found


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A project parsed three times, in another folder and with other variables, then changed."""
    project = Project(tmp_path_factory.mktemp("first"))
    elsewhere = Project(tmp_path_factory.mktemp("second"))
    told = {
        "first": project.parsed(),
        "again": project.parsed(),
        "elsewhere": elsewhere.parsed("--vars", "{until: 2024-01-31}"),
    }
    state = project.folder / "state"
    state.mkdir()
    kept = manifests.unpack(manifests.pack(told["first"]))
    (state / "manifest.json").write_text(json.dumps(kept))
    ls = ["ls", "--output", "json", "--output-keys", "unique_id", "--state", str(state)]
    ls += ["--indirect-selection", "empty"]  # not the tests of what is modified
    told["unchanged"] = project.dbt(*ls, "--select", "state:modified")
    project.write(CHANGES)
    told["changed"] = project.dbt(*ls, "--select", "state:modified")
    told["after"] = project.parsed()
    told["whole"] = project.parsed("--no-partial-parse")
    return told


def test_the_same_code_has_the_same_hash(story: dict[str, Any]) -> None:
    hashes = {manifests.pack(story[name]).hash for name in ("first", "again", "elsewhere")}
    assert len(hashes) == 1
    assert manifests.pack(story["after"]).hash not in hashes


def test_partial_and_full_parse_give_the_same_hash(story: dict[str, Any]) -> None:
    off = [key for key in story["whole"]["nodes"] if ".unique_idle_id." in key]
    assert off and not set(off) & story["after"]["nodes"].keys(), "dbt has it in one of the two"
    assert manifests.pack(story["whole"]).hash == manifests.pack(story["after"]).hash
    assert digests(story["whole"]) == digests(story["after"])


def test_dbt_finds_only_real_modifications(story: dict[str, Any]) -> None:
    assert story["unchanged"] == []
    assert {json.loads(one)["unique_id"] for one in story["changed"]} == CHANGED


def test_an_unpacked_manifest_can_be_packed_again(story: dict[str, Any]) -> None:
    packed = manifests.pack(story["first"])
    assert manifests.pack(manifests.unpack(packed)) == packed


def test_rows_of_unit_tests_and_compiled_code_are_not_stored(story: dict[str, Any]) -> None:
    kept = json.dumps(manifests.reduced(story["first"]))
    assert "20251" in json.dumps(story["first"])
    assert "20251" not in kept
    compiled = {**story["first"]["nodes"]["model.shop.notes"], "compiled_code": "select 77123"}
    nodes = {**story["first"]["nodes"], "model.shop.notes": compiled}
    again = manifests.pack({**story["first"], "nodes": nodes})
    assert again.hash == manifests.pack(story["first"]).hash


def test_macros_that_a_run_adds_to_a_node_are_not_stored(story: dict[str, Any]) -> None:
    parsed = story["first"]
    ran = {
        key: {
            **node,
            "depends_on": {**node["depends_on"], "macros": [*_calls(node), "macro.dbt.run_query"]},
            "index": 1,
        }
        for key, node in parsed["nodes"].items()
        if "macros" in node["depends_on"]
    }
    calls = {key: _calls(node) for key, node in parsed["nodes"].items()}
    after = {**parsed, "nodes": {**parsed["nodes"], **ran}}
    assert manifests.pack(after).hash != manifests.pack(parsed).hash
    assert manifests.pack(after, calls).hash == manifests.pack(parsed).hash
    assert digests(manifests.reduced(after, calls)) == digests(parsed)


def test_dbt_adds_macros_to_a_node_during_a_run(tmp_path: Path) -> None:
    project = Project(tmp_path)
    manifest = project.dbt("parse")
    calls = calls_of(manifest)
    parsed = manifests.pack(manifest.writable_manifest().to_dict(omit_none=False), calls)
    # `compile` adds the same macros as a build, and needs no server.
    project.dbt("compile", "--no-introspect", "--no-populate-cache", manifest=manifest)
    assert calls_of(manifest) != calls
    ran = manifest.writable_manifest().to_dict(omit_none=False)
    assert manifests.pack(ran).hash != parsed.hash
    assert manifests.pack(ran, calls).hash == parsed.hash


def _calls(node: dict[str, Any]) -> list[str]:
    return list(node["depends_on"]["macros"])


def test_a_damaged_manifest_is_refused(story: dict[str, Any]) -> None:
    packed = manifests.pack(story["first"])
    for content in (packed.content[:-9], b"", manifests.pack(story["after"]).content):
        with pytest.raises(SparkwapError, match="damaged"):
            manifests.unpack(manifests.Packed(packed.hash, content))


def test_digests_differ_if_dbt_reports_a_modification(story: dict[str, Any]) -> None:
    before, after = digests(story["first"]), digests(story["after"])
    assert before.keys() == after.keys()
    assert {key for key in before if before[key] != after[key]} == CHANGED
    assert digests(story["elsewhere"]) == before


def test_a_digest_covers_tests(story: dict[str, Any]) -> None:
    nodes = story["first"]["nodes"]
    (key,) = (key for key in nodes if key.startswith("test.") and "notes" in key)
    assert key in digests(story["first"])
    softer = {**nodes[key], "config": {**nodes[key]["config"], "severity": "warn"}}
    changed = digests({**story["first"], "nodes": {**nodes, key: softer}})
    assert changed[key] != digests(story["first"])[key]
    assert "unit_test.shop.totals.totals_are_orders" in changed


def test_what_a_unit_test_expects_is_its_code(story: dict[str, Any]) -> None:
    key, first = "unit_test.shop.totals.totals_are_orders", story["first"]
    test = first["unit_tests"][key]
    found = set()
    for meta in ({}, {"owner": "finance"}, {"wap_expect": "table"}, {"wap_expect": "snp"}):
        changed = {**test, "config": {**test["config"], "meta": meta}}
        found.add(digests({**first, "unit_tests": {key: changed}})[key])
    assert len(found) == 3
    assert digests(first)[key] in found
