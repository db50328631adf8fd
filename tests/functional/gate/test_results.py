"""The results that commands leave for programs, beside what readers of main see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkwap.cli import main
from sparkwap.core.command_end import EXIT_CODES


def command(shop: Any, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Call a command of sparkwap; return its document."""
    folder = str(shop.project.folder)
    capsys.readouterr()
    code = main([*arguments, "--output", "json", "--project-dir", folder, "--profiles-dir", folder])
    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert (found["exit_code"], found["command"]) == (code, arguments[0])
    return found


@pytest.mark.smoke
def test_a_held_branch_is_seen_published_and_rolled_back_by_programs(
    shop: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    held = shop.dbt("build", wap_publish="never").succeeded()
    assert held.document["outcome"] == "held"
    assert {test["status"] for test in held.document["result"]["tests"]} == {"pass"}
    assert shop.new() == set()

    status = command(shop, capsys, "status")
    assert (status["outcome"], status["exit_code"]) == ("done", 0)
    branches = {one["branch"]: one for one in status["result"]["found"]["branches"]}
    branch = branches[held.branch]
    orders = next(one for one in branch["tables"] if one["table"].endswith(".orders"))
    assert orders["verdict"] == "held"
    assert not branch["in_use"]

    # A relative file is that of the caller, also where the project is in another folder.
    monkeypatch.chdir(tmp_path)
    compared = command(
        shop, capsys, "diff", "--branch", held.branch, "--format", "markdown", "--file", "diff.md"
    )
    changes = {one["table"]: one for one in compared["result"]["found"]["tables"]}
    orders = changes[orders["table"]]
    assert orders["change"] == "changed"
    assert "orders" in (tmp_path / "diff.md").read_text()

    done = command(shop, capsys, "publish", "--branch", held.branch)
    assert done["outcome"] == "published"
    publish = done["result"]["found"]["publish_id"]
    assert (
        publish
        == shop.reader.ledger("publishes", run_id=done["result"]["found"]["run_id"])[0][
            "publish_id"
        ]
    )
    assert "orders" in shop.new()
    before, after = ({*map(repr, look["orders"].rows)} for look in (shop.before, shop.look()))
    told = (orders["added"] + orders["changed"], orders["removed"] + orders["changed"])
    assert told == (len(after - before), len(before - after))

    undone = command(shop, capsys, "rollback", "--run", publish)
    assert [one["publish_id"] for one in undone["result"]["found"]["undone"]] == [publish]
    assert shop.new() == set()


def test_a_rejected_run_names_its_tests_and_the_next_commands(
    shop: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    without_ids = "select cast(null as int) as id, cast(1 as bigint) as amount"
    table = "{{ config(materialized='table') }} "
    shop.project.write({"models/orders.sql": table + without_ids})
    done = shop.dbt("build").failed()
    assert done.document["outcome"] == "rejected"
    result = done.document["result"]
    failed = [test["name"] for test in result["tests"] if test["status"] == "fail"]
    assert failed == ["orders_have_ids"]
    assert result["publish_id"] is None
    assert any("wap_discard" in step["command"] for step in result["next"])
    assert shop.new() == set()
    wrong = command(shop, capsys, "publish", "--branch", "nowhere")
    assert (wrong["outcome"], wrong["exit_code"]) == ("usage", EXIT_CODES["usage"])
    assert "there is no open branch" in wrong["message"]
    refused = command(shop, capsys, "publish", "--branch", done.branch)
    assert refused["outcome"] == "rejected"
    assert shop.new() == set()
    swept = command(shop, capsys, "sweep", "--dry-run")
    assert swept["result"]["found"]["done"] is False


def test_a_failed_test_of_no_table_is_named(shop: Any) -> None:
    shop.project.write({"tests/ones_are_wrong.sql": "select 1 as one"})
    done = shop.dbt("build").failed()
    # It reads no table, so none waits for it.
    assert "orders" in shop.new()
    document = done.document
    assert document["outcome"] == "rejected"
    assert document["message"] == "These failed, and belong to no table of the run: ones_are_wrong."
    assert {one["outcome"] for one in document["result"]["tables"]} == {"published"}
