"""The selection of the ledger's rows for the report."""

from __future__ import annotations

from sparkwap.report.history import rows_of_project, with_last_runs, with_rollbacks

from .conftest import MANIFEST, ORDERS, RAW, node, row


def test_runs_of_other_projects_and_schemas_are_left_out() -> None:
    here = MANIFEST["nodes"][ORDERS]["schema"]
    tables = {
        "runs": [
            row("runs", 1, run_id="mine", project="shop"),
            row("runs", 1, run_id="of a developer", project="shop"),
            row("runs", 1, run_id="of another branch", project="shop"),
            row("runs", 1, run_id="of another", project="web"),
        ],
        "nodes": [
            row("nodes", 1, run_id="mine", node_id=ORDERS, schema=here),
            row("nodes", 1, run_id="mine", node_id="model.shop.dropped", schema="elsewhere"),
            row("nodes", 1, run_id="of a developer", node_id=ORDERS, schema="dev_ann"),
            row("nodes", 1, run_id="of another branch", node_id="model.shop.n", schema="dev_bob"),
        ],
    }
    tables["tests"] = [row("tests", 1, run_id=one["run_id"]) for one in tables["runs"]]
    found = rows_of_project(MANIFEST, tables, "prod")
    for rows in found.values():
        assert {one["run_id"] for one in rows} == {"mine"}
    assert len(found["nodes"]) == 2


def test_disabled_nodes_are_shown_as_in_their_last_run() -> None:
    off = {
        "model.shop.off": [node("model.shop.off", tags=["x"])],
        "test.shop.off": [node("test.shop.off", above=[])],
        "model.shop.never": [node("model.shop.never")],
    }
    tables = {
        "runs": [
            row("runs", 1, run_id="mine", project="shop", target="prod"),
            row("runs", 1, run_id="of a developer", project="shop", target="dev"),
        ],
        "nodes": [
            row("nodes", 2, run_id="mine", node_id="model.shop.off", schema="before"),
            row("nodes", 1, run_id="mine", node_id="model.shop.off", schema="sensors"),
            row("nodes", 0, run_id="of a developer", node_id="model.shop.off", schema="ann"),
        ],
        "tests": [
            row("tests", 1, run_id="mine", test_id="test.shop.off", audited={"model.shop.off": "7"})
        ],
    }
    found = with_last_runs({**MANIFEST, "disabled": off}, tables, "prod")["nodes"]
    assert found.keys() - MANIFEST["nodes"].keys() == {"model.shop.off", "test.shop.off"}
    assert (found["model.shop.off"]["schema"], found["model.shop.off"]["tags"]) == (
        "sensors",
        ["x"],
    )
    assert found["test.shop.off"]["depends_on"] == {"nodes": ["model.shop.off"]}
    given = with_last_runs({**MANIFEST, "disabled": off}, tables, "dev")["nodes"]
    assert given["model.shop.off"]["schema"] == "ann"


def test_with_all_schemas_the_schemas_of_the_manifest_do_not_count() -> None:
    """The manifest has another schema, in which nothing was built."""
    runs = [
        row("runs", days, run_id=f"r{days}", project="shop", target=target)
        for days, target in ((3, "prod"), (2, "prod"), (1, "dev"))
    ]
    nodes = [
        row("nodes", days, run_id=f"r{days}", node_id=ORDERS, schema=schema)
        for days, schema in ((3, "sensors"), (2, "airports"), (1, "ann"))
    ]
    tables = {"runs": runs, "nodes": nodes, "tests": []}
    shown = with_last_runs(MANIFEST, tables, "prod", all_schemas=True)
    assert shown["nodes"][ORDERS]["schema"] == "airports"
    assert shown["nodes"][RAW] == MANIFEST["nodes"][RAW]
    found = rows_of_project(shown, tables, "prod", all_schemas=True)
    assert [one["schema"] for one in found["nodes"]] == ["sensors", "airports"]
    # Another developer may have a target of this name with another schema.
    assert with_last_runs(MANIFEST, tables, "prod")["nodes"] == MANIFEST["nodes"]
    assert rows_of_project(MANIFEST, tables, "prod")["nodes"] == []


def test_tables_of_a_rolled_back_publish_are_held() -> None:
    rows = [
        row("nodes", 1, run_id="r", schema="s", name=name, verdict=verdict, reason=None)
        for name, verdict in (("a", "published"), ("b", "published"), ("c", "rejected"))
    ]
    found = with_rollbacks(rows, {("r", "s", "a"), ("r", "s", "c"), ("other", "s", "b")})
    assert [one["verdict"] for one in found] == ["held", "published", "rejected"]
    assert found[0]["reason"] == "its publish was rolled back"
