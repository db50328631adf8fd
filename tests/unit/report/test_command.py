"""The Python that the command uses, and the runs and stored rows that it reads."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sparkwap.catalog.model import LedgerRows
from sparkwap.core.dbt_cli import DbtCall, LakePlace
from sparkwap.core.errors import ConfigError
from sparkwap.publish.lake import Lake
from sparkwap.report import command

from .conftest import IDS, MANIFEST, NOW, VOLUME, metric, result, row, verdict


def test_without_elementary_the_error_has_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(command.PYTHON, raising=False)
    with pytest.raises(ConfigError, match=r"pip install '<checkout of sparkwap>\[elementary\]'"):
        command.find_python(None)
    with pytest.raises(ConfigError, match="There is no /nowhere/python"):
        command.find_python(Path("/nowhere/python"))
    monkeypatch.setenv(command.PYTHON, sys.executable)
    assert command.find_python(None) == Path(sys.executable)


@pytest.mark.parametrize(("given", "days"), [("7", 7), ("1000000", 36_500)])
def test_more_days_than_there_are_dates_are_all_of_history(given: str, days: int) -> None:
    parser = argparse.ArgumentParser()
    command.register_report(parser.add_subparsers())
    assert parser.parse_args(["report", "--days", given]).days == days


def test_stored_rows_are_read_only_on_request(tmp_path: Path) -> None:
    import pyarrow as pa

    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"{tmp_path}/w"}
    lake = Lake("lake", properties)
    lake.ensure_schema("audit__b", "b")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    lake.catalog.create_table(("audit__b", "ids"), rows.schema).append(rows)
    kept: Sequence[dict[str, Any]] = [
        {
            "resource_type": "failures",
            "node_id": key,
            "schema": "audit",
            "name": name,
            "branch": "b",
            "verdict": "held",
            "built_at": NOW,
        }
        for key, name in ((IDS, "ids"), (VOLUME, "discarded"))
    ]
    assert command.stored_rows(lake, kept, 0) == {}
    assert command.stored_rows(lake, kept, 2) == {IDS: [{"id": 1}, {"id": 2}]}
    lake.close()


def test_the_runs_of_a_discarded_branch_are_left_out(tmp_path: Path) -> None:
    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"{tmp_path}/w"}
    lake = Lake("lake", properties)
    own = {"project": "shop", "target": "t"}

    def run(days_ago: float, branch: str, outcome: str) -> dict[str, Any]:
        found = row("runs", days_ago, run_id=f"r{days_ago}", branch=branch, outcome=outcome, **own)
        return {**found, "ended_at": found["started_at"]}

    runs = [run(4, "pr_1", "held"), run(3, "pr_1", "discarded")]
    # A row of the check of a server with the id of the run.
    runs.append({**run(2, "wap_probe", "safe"), "command": "probe"})
    # The same branch, opened again.
    runs += [run(2, "pr_1", "rejected"), run(1, "dev", "held")]
    days = (4, 2, 1)
    lake.ledger.append(
        [
            LedgerRows("runs", runs),
            LedgerRows("nodes", [verdict(day, "held") for day in days]),
            LedgerRows("tests", [result(day, "fail") for day in days]),
            LedgerRows("metrics", [metric(day, 9.0) for day in days]),
        ]
    )
    lake.close()
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    call = Mock(spec=DbtCall)
    call.lake.return_value = LakePlace("lake", properties, "t")
    found = command.collect(call, tmp_path, days=30, samples=0)
    shown = (found.runs, found.nodes, found.tests, found.metrics)
    assert [{one["run_id"] for one in rows} for rows in shown] == [{"r2", "r1"}] * 4
    assert sorted(one["outcome"] for one in found.runs) == ["held", "rejected"]
