"""The structured log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sparkwap.core import checkpoints, steplog
from sparkwap.core.checkpoints import CHECKPOINTS, checkpoint
from sparkwap.core.errors import ConfigError
from sparkwap.gate.settings import GateSettings


def _log(lines: list[str], times: list[float]) -> steplog.StepLog:
    return steplog.StepLog(lines.append, "r1", clock=lambda: times.pop(0))


def test_a_line_for_each_step_of_the_gate_with_the_seconds_since_the_one_before() -> None:
    lines: list[str] = []
    log = _log(lines, [10.0, 11.0, 14.5, 15.0, 16.0]).start()
    try:
        checkpoint(checkpoints.RUN_OPENED, run_id="r1", branch="b")
        checkpoint(
            checkpoints.NODE_PLACED, run_id="r1", branch="b", table="s.t", node_id="model.p.t"
        )
        checkpoint(checkpoints.STATEMENT_SENDING, sql="select 'secret'")
        checkpoint(
            checkpoints.NODE_RECORDED, run_id="r1", branch="b", table="s.t", node_id="model.p.t"
        )
        log.tell("held", branch="b", table="s.t", reason="a test failed")
    finally:
        log.stop()
    checkpoint(checkpoints.CLOSED, run_id="r1", branch="b")
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    told = [(line["event"], line["table"], line["seconds"]) for line in found]
    assert told == [
        ("opened", None, 1.0),
        ("placed", "s.t", 3.5),
        ("built", "s.t", 0.5),
        ("held", "s.t", 1.0),
    ]
    assert {line["run_id"] for line in found} == {"r1"}
    assert found[3]["reason"] == "a test failed"
    assert "secret" not in "".join(lines)


def test_every_event_has_a_checkpoint() -> None:
    assert set(steplog.EVENTS) <= set(CHECKPOINTS)


def test_the_file_is_appended_to_and_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steplog, "ROTATE_BYTES", 10)
    write = steplog.to_file(tmp_path / "target")
    for line in ("first line", "second", "third line"):
        write(line)
    assert (tmp_path / "target/sparkwap.jsonl").read_text() == "second\nthird line\n"
    assert (tmp_path / "target/sparkwap.jsonl.1").read_text() == "first line\n"


def test_an_unwritable_log_does_not_end_a_run(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("a file")
    steplog.to_file(tmp_path / "target")("line")


def test_where_it_goes_is_a_setting() -> None:
    assert GateSettings.from_vars({}).log == "file"
    assert GateSettings.from_vars({"wap_log": "dbt"}).log == "dbt"
    with pytest.raises(ConfigError, match="wap_log"):
        GateSettings.from_vars({"wap_log": "syslog"})


def test_only_the_owner_can_read_the_log_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for name in (steplog.FILE_NAME, f"{steplog.FILE_NAME}.1", "other"):
            (tmp_path / name).touch()
        steplog.to_file(tmp_path)("{}")
        (tmp_path / steplog.FILE_NAME).unlink()
        steplog.to_file(tmp_path)("{}")
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert found == {steplog.FILE_NAME: 0o600, f"{steplog.FILE_NAME}.1": 0o600, "other": 0o666}
