"""The demo and the example projects: what their YAML has to say of each table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.documents import ROOT

from sparkwap import cdc

EXAMPLES = [ROOT / "examples" / name for name in ("airports", "sensors")]
PROJECTS = [ROOT, *EXAMPLES]
# A column of a staging query: alone in its line, or behind its cast.
COLUMN = re.compile(r"^ +(?:.+ as )?(\w+),?$", re.MULTILINE)

# The table of the module's docstring.
EVENT_COLUMNS = re.findall(r"^``(\w+)``", str(cdc.__doc__), re.MULTILINE)

every_project = pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)


def files(project: Path, *folders: str) -> list[Path]:
    """The YAML files of some layers."""
    found = [path for folder in folders for path in sorted((project / folder).rglob("*.yml"))]
    assert found, f"{project} has no YAML in {folders}"
    return found


def entries(project: Path, kind: str, *folders: str) -> dict[str, dict[str, Any]]:
    """The models, snapshots, sources or exposures that the YAML files have, by name."""
    documents = (yaml.safe_load(path.read_text()) for path in files(project, *folders))
    return {one["name"]: one for document in documents for one in document.get(kind, ())}


@every_project
def test_each_model_and_each_listed_column_is_described(project: Path) -> None:
    models = entries(project, "models", "models")
    built = [p for p in (project / "models").rglob("*.*") if p.suffix in (".sql", ".py")]
    assert models.keys() == {path.stem for path in built}
    snapshots = [p for p in [project / "snapshots"] if p.exists()]
    for path in snapshots:
        models |= entries(project, "snapshots", path.name)
    silent = [name for name, one in models.items() if not one.get("description")]
    silent += [f"{name}.{column['name']}" for name, one in models.items()
               for column in one.get("columns", ()) if not column.get("description")]  # fmt: skip
    assert silent == []


@every_project
def test_each_column_of_staging_is_listed(project: Path) -> None:
    models = entries(project, "models", "models/staging")
    queries = sorted((project / "models/staging").rglob("stg_*.sql"))
    assert queries
    for path in queries:
        selected = set(COLUMN.findall(path.read_text())) - {"select"}
        assert selected == {column["name"] for column in models[path.stem]["columns"]}, path.stem


@every_project
def test_each_column_of_a_state_is_listed(project: Path) -> None:
    models = entries(project, "models", "models/staging")
    logs = entries(project, "models", "models/raw")
    states = {name: one for name, one in models.items() if name.startswith("cdc_")}
    assert states
    for name, state in states.items():
        entry = logs[name.replace("cdc_", "raw_", 1)]["config"]["meta"]["landing"]
        expected = {*entry["columns"], *EVENT_COLUMNS}
        assert expected == {column["name"] for column in state["columns"]}, name


@every_project
def test_each_mart_has_an_owner_and_a_contract(project: Path) -> None:
    settings = yaml.safe_load((project / "dbt_project.yml").read_text())
    assert settings["models"][settings["name"]]["marts"]["+contract"] == {"enforced": True}
    marts = entries(project, "models", "models/marts")
    for name, mart in marts.items():
        assert mart["config"]["meta"]["owner"], name
        assert "contract" not in mart["config"], f"{name} is left out of the contracts"
        assert all(column["data_type"] for column in mart["columns"]), name


@pytest.mark.parametrize("layer", ["models/history", "snapshots"])
def test_each_history_of_the_demo_lists_its_columns(layer: str) -> None:
    made = {"valid_from", "valid_to"}
    kind = "models" if layer.startswith("models") else "snapshots"
    for name, one in entries(ROOT, kind, layer).items():
        prefix = "dbt_" if kind == "snapshots" else ""
        assert {f"{prefix}{c}" for c in made} <= {c["name"] for c in one["columns"]}, name


def test_an_exposure_has_all_marts_upstream() -> None:
    exposures = entries(ROOT, "exposures", "models/marts")
    marts = {f"ref('{name}')" for name in entries(ROOT, "models", "models/marts")}
    assert exposures
    assert all(one["owner"]["email"] and one["description"] for one in exposures.values())
    assert marts <= {one for exposure in exposures.values() for one in exposure["depends_on"]}


def test_the_freshness_of_each_landed_table_is_known() -> None:
    (source,) = entries(ROOT, "sources", "models/raw").values()
    assert source["config"]["freshness"]["warn_after"]
    landed = {table["identifier"] for table in source["tables"]}
    assert landed == entries(ROOT, "models", "models/raw").keys()
    assert all(table["description"] for table in source["tables"])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda project: project.name)
def test_an_example_has_the_layers_of_the_demo(example: Path) -> None:
    demo = yaml.safe_load((ROOT / "dbt_project.yml").read_text())["models"]["sparkwap_demo"]
    own = yaml.safe_load((example / "dbt_project.yml").read_text())["models"][example.name]
    demo["raw"]["+meta"]["drop"]["root"] = own["raw"]["+meta"]["drop"]["root"]
    assert own == {layer: settings for layer, settings in demo.items() if layer in own}
