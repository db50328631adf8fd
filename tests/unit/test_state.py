import json
from pathlib import Path

from sparkwap.state import (
    UNFINISHED,
    LastRun,
    RetryRecord,
    is_unfinished,
    unfinished_run,
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
    assert not LastRun("r1", "dev", "open").held


def test_a_record_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "sparkwap_run.json").write_text("{")
    assert LastRun.read(tmp_path) is None


def test_looking_around_leaves_the_record_of_an_open_run(tmp_path: Path) -> None:
    LastRun("r1", "dev", "held").write(tmp_path)
    path = results(tmp_path, "r1")
    record = RetryRecord(tmp_path)
    results(tmp_path, "show")
    record.put_back("show")
    assert json.loads(path.read_text())["metadata"]["invocation_id"] == "r1"


def test_the_record_of_a_closed_run_or_of_another_invocation_is_left(tmp_path: Path) -> None:
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
    # It has closed, and died before dbt wrote its record over ours.
    LastRun("r1", "dev", "closed").write(tmp_path)
    path = results(tmp_path, "r1")
    record = json.loads(path.read_text()) | {"results": [{"message": UNFINISHED}]}
    path.write_text(json.dumps(record))
    assert unfinished_run(tmp_path) == LastRun("r1", "dev", "closed")
    # Looking around does not take it away.
    kept = RetryRecord(tmp_path)
    results(tmp_path, "r2")
    kept.put_back("r2")
    assert is_unfinished(path)
    # What dbt writes in the end does.
    results(tmp_path, "r1")
    assert unfinished_run(tmp_path) is None
