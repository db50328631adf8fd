import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkwap.runs.state import (
    UNFINISHED,
    Continuation,
    LastRun,
    RetryRecord,
    Waiting,
    find_continuation,
    is_unfinished,
    pending,
    unfinished_run,
    why_not,
)


def results(folder: Path, run_id: str) -> Path:
    path = folder / "run_results.json"
    path.write_text(json.dumps({"metadata": {"invocation_id": run_id}}))
    return path


def test_the_last_run_is_read_back(tmp_path: Path) -> None:
    assert LastRun.read(tmp_path / "none") is None
    LastRun("r1", "dev", "held").write(tmp_path / "target")
    last = LastRun.read(tmp_path / "target")
    assert last == LastRun("r1", "dev", "held")
    assert last is not None and last.open
    assert not LastRun("r1", "dev", "closed").open


def test_a_record_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "sparkwap_run.json").write_text("{")
    assert LastRun.read(tmp_path) is None


def test_other_commands_keep_the_record_of_an_open_run(tmp_path: Path) -> None:
    LastRun("r1", "dev", "held").write(tmp_path)
    path = results(tmp_path, "r1")
    record = RetryRecord(tmp_path)
    results(tmp_path, "show")
    record.put_back("show")
    assert json.loads(path.read_text())["metadata"]["invocation_id"] == "r1"


def test_the_record_of_a_closed_run_or_another_invocation_is_not_restored(tmp_path: Path) -> None:
    LastRun("r1", "dev", "closed").write(tmp_path)
    path = results(tmp_path, "r1")
    record = RetryRecord(tmp_path)
    results(tmp_path, "show")
    record.put_back("show")
    assert json.loads(path.read_text())["metadata"]["invocation_id"] == "show"
    LastRun("show", "dev", "held").write(tmp_path)
    record = RetryRecord(tmp_path)
    results(tmp_path, "newer run")
    record.put_back("other")
    assert json.loads(path.read_text())["metadata"]["invocation_id"] == "newer run"


def test_a_run_is_unfinished_until_dbt_has_recorded_its_end(tmp_path: Path) -> None:
    assert unfinished_run(tmp_path) is None
    LastRun("r1", "dev", "open").write(tmp_path)
    assert unfinished_run(tmp_path) == LastRun("r1", "dev", "open")
    # It has closed, and died before dbt replaced our record.
    LastRun("r1", "dev", "closed").write(tmp_path)
    path = results(tmp_path, "r1")
    record = json.loads(path.read_text()) | {"results": [{"message": UNFINISHED}]}
    path.write_text(json.dumps(record))
    assert unfinished_run(tmp_path) == LastRun("r1", "dev", "closed")
    # Other commands do not remove it.
    kept = RetryRecord(tmp_path)
    results(tmp_path, "r2")
    kept.put_back("r2")
    assert is_unfinished(path)
    # The final record of dbt does.
    results(tmp_path, "r1")
    assert unfinished_run(tmp_path) is None


SEED = LastRun("r1", "wap_1a2b3c4d", "held", "seed", "dev", 100.0)
PR = LastRun("r2", "pr_7", "held", "run", "dev", 200.0)
PROD = LastRun("r3", "wap_00000003", "held", "run", "prod", 300.0)


def test_a_branch_waits_until_its_last_run_has_closed(tmp_path: Path) -> None:
    for run in (SEED, PROD, PR):
        run.write(tmp_path)
    # Runs on another branch or for another target do not change this.
    LastRun("r4", "wap_00000004", "closed", "build", "dev").write(tmp_path)
    assert LastRun.waiting(tmp_path, "dev") == [PR, SEED]
    assert LastRun.waiting(tmp_path, "prod") == [PROD]
    later = LastRun("r5", SEED.branch, "open", "run", "dev")
    later.write(tmp_path, gone=["pr_7"])
    assert LastRun.waiting(tmp_path, "dev") == [later]
    LastRun("r5", SEED.branch, "closed", "run", "dev").write(tmp_path)
    assert LastRun.waiting(tmp_path, "dev") == []
    assert LastRun.waiting(tmp_path / "none", "dev") == []
    # The last run of a target is not that of the folder.
    PROD.write(tmp_path)
    assert LastRun.last_branch(tmp_path, "dev") == SEED.branch
    assert LastRun.last_branch(tmp_path, "prod") == PROD.branch
    assert LastRun.last_branch(tmp_path, "ci") is None


def test_a_record_of_an_older_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "sparkwap_run.json").write_text(
        json.dumps({"run_id": "r1", "branch": "dev", "outcome": "held"})
    )
    assert LastRun.read(tmp_path) == LastRun("r1", "dev", "held")
    assert LastRun.waiting(tmp_path, "") == []


def row(node_id: str, **more: Any) -> dict[str, Any]:
    usual = {"verdict": "held", "resource_type": "model", "status": "built", "parents": []}
    return {"node_id": node_id, "schema": "shop", "name": node_id, **usual, **more}


def asked(run: LastRun, *rows: dict[str, Any], **more: Any) -> str | None:
    in_use = more.pop("in_use", "")
    usual: dict[str, Any] = {
        "command": "run",
        "publish": "run",
        "selected": ["orders"],
        "known": {node_id: ("shop", node_id) for node_id in ("raw", "orders")},
    }
    waiting = Waiting(run, rows, in_use, is_last=more.pop("is_last", True))
    return why_not(waiting, **{**usual, **more})


@pytest.mark.parametrize("command", ["seed", "run", "snapshot", "test", "build"])
def test_a_command_continues_a_held_branch(command: str) -> None:
    assert asked(SEED, row("raw"), command=command) is None


REJECTED = row("orders", verdict="rejected")
EMPTY = row("orders", status="empty")
REPLACED = "that a build on a part of the rows would replace, or their inputs"


@pytest.mark.parametrize(
    ("run", "rows", "why"),
    [
        (SEED, [row("raw"), REJECTED], "was rejected"),
        (PR, [row("raw")], "was named by hand"),
        (LastRun("r", "wap_1a2b3c4d", "open"), [row("raw")], "has not come to its end"),
        (
            LastRun("r", "wap_1a2b3c4d", "held", publish="never"),
            [row("raw")],
            "was not to be published (wap_publish: never)",
        ),
        (
            LastRun("r", "wap_1a2b3c4d", "held", publish="replay"),
            [row("raw")],
            "read as of an earlier moment",
        ),
        (SEED, [row("raw"), row("gone")], "has shop.gone, which is not in this project now"),
        (
            SEED,
            [EMPTY, row("raw", parents=["orders"])],
            "has tables built with --empty or --sample",
        ),
    ],
)
def test_a_command_does_not_continue_an_unsuitable_branch(
    run: LastRun, rows: list[dict[str, Any]], why: str
) -> None:
    assert asked(run, *rows) == why


def test_a_branch_built_with_empty_is_continued_if_all_of_it_is_built_again() -> None:
    assert asked(SEED, row("raw"), EMPTY) is None


@pytest.mark.parametrize("part", ["empty", "sample"])
def test_a_build_on_a_part_of_the_rows_continues_where_it_replaces_no_rows(part: str) -> None:
    assert asked(SEED, row("raw"), part=part) is None
    assert asked(SEED, row("raw"), EMPTY, part=part) is None
    assert asked(SEED, EMPTY, row("raw", status="empty", parents=["orders"]), part=part) is None
    why = asked(SEED, row("raw"), row("orders"), part=part)
    assert why == f"has rows of shop.orders {REPLACED}"
    # The command would leave them on rows that are not on the branch any more.
    why = asked(SEED, row("raw", parents=["orders"]), part=part)
    assert why == f"has rows of shop.raw {REPLACED}"


def found(command: str, nodes: dict[str, list[dict[str, Any]]], **more: Any) -> Continuation:
    """The branch that a command continues; ``nodes`` are the rows by branch, the latest first."""
    history = {branch: SimpleNamespace(nodes=rows) for branch, rows in nodes.items()}
    lake: Any = SimpleNamespace(
        leases=SimpleNamespace(now=float, all=list),
        ledger=SimpleNamespace(branch_history=history.get),
    )
    return find_continuation(
        lake,
        [LastRun(branch, branch, "held", "run") for branch in nodes],
        60.0,
        command=command,
        publish="run",
        selected=["orders"],
        known=lambda: {"orders": ("shop", "orders")},
        last=next(iter(nodes)),
        **more,
    )


@pytest.mark.parametrize("command", ["build", "test"])
def test_a_branch_without_whole_tables_goes_last(command: str) -> None:
    empty, whole = {"wap_00000001": [EMPTY]}, {"wap_00000002": [row("orders")]}
    for nodes in (empty | whole, whole | empty):
        run = found(command, nodes).run
        assert run is not None and run.branch == "wap_00000002"
    gone = {"wap_00000003": [row("orders", verdict="published")]}
    only = found(command, empty | gone)
    assert only.run is not None and only.run.branch == "wap_00000001"
    assert only.line is not None and "continues wap_00000001" in only.line
    assert only.gone == ("wap_00000003",)


def test_a_build_on_a_part_of_the_rows_tells_the_branch_that_it_does_not_continue() -> None:
    sampled = {"wap_00000001": [row("orders", status="sample")]}
    whole = {"wap_00000002": [row("orders")]}
    run = found("build", sampled | whole, part="sample").run
    assert run is not None and run.branch == "wap_00000001"
    other = found("build", whole, part="sample")
    assert other.run is None and other.line is not None
    assert other.line.endswith(f"shop.orders {REPLACED}")


def test_a_branch_in_use_is_not_continued() -> None:
    assert asked(SEED, row("raw"), command="test", in_use="in use by run r9") == (
        "is in use by run r9"
    )


@pytest.mark.parametrize("command", ["build", "test"])
@pytest.mark.parametrize("now", [("shop", "new_name"), ("new_schema", "raw"), None])
def test_a_branch_with_a_table_under_a_former_name_is_not_continued(
    command: str, now: tuple[str, str] | None
) -> None:
    why = asked(SEED, row("raw"), command=command, known={"raw": now})
    assert why == "has shop.raw, and its node has another table in this project now, or none"


def test_dbt_test_continues_any_candidates() -> None:
    assert asked(SEED, row("raw"), REJECTED, command="test") is None
    # But a rejected branch is not the state of the project any more after another command.
    assert asked(SEED, REJECTED, command="test", is_last=False) == "was rejected"
    assert asked(PR, row("raw"), command="test") == "was named by hand"
    # And a branch built with wap_publish: never needs a decision of the user.
    never = LastRun("r", "wap_1a2b3c4d", "held", publish="never")
    assert asked(never, row("raw"), command="test") is not None
    assert asked(never, row("raw"), command="test", publish="never") is None


def test_published_nodes_are_not_pending() -> None:
    left = [row("a"), row("b", verdict="published"), row("c", resource_type="failures")]
    assert [one["node_id"] for one in pending(left)] == ["a"]
