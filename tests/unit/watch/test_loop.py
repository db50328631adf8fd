"""The loop of `sparkwap watch`: with real files, locks, signals and processes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sparkwap.cli import main
from sparkwap.errors import SparkwapError
from sparkwap.watch.command import one_at_a_time
from sparkwap.watch.decision import Job, Settings
from sparkwap.watch.loop import Watch, list_folders, run_until, to_stream


class Work:
    """Stands for dbt: builds end with the codes that it is given, then well."""

    def __init__(self, *codes: int, known: bool = False) -> None:
        self.codes = list(codes)
        self.known = known
        self.done: list[str] = []

    def unread(self) -> bool:
        return not self.known

    def build(self) -> int:
        self.done.append("build")
        return self.codes.pop(0) if self.codes else 0

    def discard(self) -> None:
        self.done.append("discard")

    def call(self, job: Job) -> int:
        self.done.append(job)
        return 0


class Log:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __call__(self, event: str, **facts: Any) -> None:
        self.lines.append({"event": event, **facts})

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]


RULES = Settings(poll=0.01, settle=0.03, retry_wait=0.01, upkeep=())


def once(work: Work, folder: Path, rules: Settings = RULES) -> tuple[int, Log]:
    log = Log()
    watch = Watch(work, lambda: list_folders([folder]), rules, Event(), log)
    return watch.once(), log


def test_a_build_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    work = Work()
    code, log = once(work, tmp_path)
    assert (code, work.done) == (0, ["build"])
    assert log.events() == ["waiting", "building", "built"]
    assert log.lines[1]["reason"] == "new files"
    assert log.lines[1]["files"] == 1


def test_files_that_the_lake_has_are_not_built_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    code, log = once(work := Work(known=True), tmp_path)
    assert (code, work.done, log.events()) == (0, [], ["waiting", "known"])


def test_tries_again_after_dropping_what_the_first_try_has_left(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    code, log = once(work := Work(1, 2), tmp_path)
    assert (code, work.done) == (0, ["build", "discard", "build", "discard", "build"])
    assert [line["attempt"] for line in log.lines if line["event"] == "building"] == [1, 2, 3]
    assert [line["code"] for line in log.lines if line["event"] == "failed"] == [1, 2]


def test_gives_up_and_keeps_the_last_try_to_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    code, log = once(work := Work(1, 1, 7, 9), tmp_path)
    assert (code, work.done[-1], work.done.count("build")) == (7, "build", 3)
    assert log.lines[-1] | {"seconds": 0} == {
        "event": "gave up",
        "seconds": 0,
        "code": 7,
        "attempt": 3,
        "message": None,
        "next": "dbt run-operation wap_status",
    }


def test_an_error_of_the_project_counts_as_a_try(tmp_path: Path) -> None:
    class Broken(Work):
        def unread(self) -> bool:
            raise SparkwapError("dbt cannot parse the project")

    (tmp_path / "a.csv").write_text("x")
    code, log = once(Broken(), tmp_path, Settings(poll=0.01, settle=0.01, tries=1, upkeep=()))
    assert code == 1
    assert log.lines[-1]["message"] == "dbt cannot parse the project"


def test_upkeep(tmp_path: Path) -> None:
    rules = Settings(poll=0.01, settle=0.01, upkeep=(("sweep", 0.02), ("alerts", 3600)))
    log, stop, work = Log(), Event(), Work()

    def listing() -> Any:
        if "sweep" in work.done:
            stop.set()
        return list_folders([tmp_path])

    assert Watch(work, listing, rules, stop, log).forever() == 0
    assert work.done == ["sweep"]


def test_what_is_in_a_folder(tmp_path: Path) -> None:
    for name in ("a.csv", "load_date=2024-01-31/b.csv", ".hidden", "_SUCCESS", "c.csv._COPYING_"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "d.csv").write_text("x")
    names = {Path(path).name for path, _, _ in list_folders([tmp_path, tmp_path / "gone"])}
    assert names == {"a.csv", "b.csv"}
    before = list_folders([tmp_path])
    (tmp_path / "a.csv").write_text("more")
    assert list_folders([tmp_path]) != before


class TestProcesses:
    def test_its_exit_code(self) -> None:
        assert run_until([sys.executable, "-c", "raise SystemExit(3)"], Event(), 0.01) == 3

    def test_it_is_interrupted_with_all_that_it_has_started(self, tmp_path: Path) -> None:
        """As `sparkwap build` and the dbt that it calls: both end in their own way."""
        inner = f"""
            import pathlib, time
            try:
                pathlib.Path({str(tmp_path / "up")!r}).touch()
                time.sleep(60)
            except KeyboardInterrupt:
                time.sleep(0.3)
                pathlib.Path({str(tmp_path / "clean")!r}).touch()
        """
        outer = f"""
            import os, sys
            from sparkwap.build import _patiently
            _patiently([sys.executable, "-c", {textwrap.dedent(inner)!r}], os.environ)
        """
        stop = Event()

        class Up(Event):
            def is_set(self) -> bool:
                return stop.is_set() or (tmp_path / "up").exists()

        code = run_until([sys.executable, "-c", textwrap.dedent(outer)], Up(), 0.02)
        assert code != 0
        assert (tmp_path / "clean").exists()


def test_one_at_a_time(tmp_path: Path) -> None:
    with (
        one_at_a_time(tmp_path),
        pytest.raises(SparkwapError, match=rf"process {os.getpid()}\).*Nothing was built"),
        one_at_a_time(tmp_path),
    ):
        pass
    with one_at_a_time(tmp_path):
        pass


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_well(tmp_path: Path, sent: signal.Signals) -> None:
    code = """
        import sys
        from threading import Event
        from sparkwap.watch.command import stopped_by_signals
        from sparkwap.watch.decision import Settings
        from sparkwap.watch.loop import Watch, to_stream
        stop = Event()
        with stopped_by_signals(stop):
            tell = to_stream(sys.stderr)
            tell("started")
            watch = Watch(None, frozenset, Settings(poll=60, upkeep=()), stop, tell)
            raise SystemExit(watch.forever())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert json.loads(child.stderr.readline())["event"] == "started"
        assert json.loads(child.stderr.readline())["reason"] == "nothing is due"
        began = time.monotonic()
        child.send_signal(sent)
        assert child.wait(20) == 0
        assert time.monotonic() - began < 15


def test_log_lines_are_json_without_secrets() -> None:
    stream = io.StringIO()
    to_stream(stream)("failed", message="token=abcdefgh", code=1, next=None)
    line = json.loads(stream.getvalue())
    assert line["at"].endswith("Z")
    assert {key: line[key] for key in line if key != "at"} == {
        "event": "failed",
        "message": "token=***",
        "code": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--every", "soon"], "'soon' is no duration, such as 90s"),
        (["--at", "25:00"], "--at:"),
        (["--tries", "0"], "--tries is 0; legal: 1 or more"),
    ],
)
def test_wrong_options(arguments: list[str], complaint: str, capsys: Any) -> None:
    try:
        code = main(["watch", *arguments])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code != 0
    assert complaint in capsys.readouterr().err
