"""`sparkwap watch`: landing files in, published tables out; a signal ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from vocabulary import MakeProject, Reader
from vocabulary.landing import LandingProject, make_landing_project

from sparkwap.names import is_run_branch

READINGS: dict[str, Any] = {
    "entity": "readings",
    "kind": "extract",
    "format": "csv",
    "key": ["id"],
    "columns": {"id": "bigint", "value": "bigint"},
    "files": [{"match": "*.csv"}],
}
OPTIONS = ("--poll", "0.3s", "--settle", "1s", "--tries", "2", "--retry-wait", "0.1s")


class Watching:
    """A `sparkwap watch` in a process of its own, and what it has logged."""

    def __init__(self, made: LandingProject) -> None:
        folder = str(made.project.folder)
        command = [sys.executable, "-m", "sparkwap.cli", "watch", *OPTIONS, "--sweep", "never"]
        command += ["--", "--project-dir", folder, "--profiles-dir", folder]
        command += ["--exclude", "cdc_readings"]
        self.log = made.project.folder / "watch.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.DEVNULL, stderr=log
            )

    def events(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"at"')]

    def wait_for(self, event: str, count: int = 1) -> None:
        deadline = time.monotonic() + 600
        while sum(one["event"] == event for one in self.events()) < count:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)


def values(made: LandingProject) -> list[str]:
    return sorted(row["value"] for row in made.rows("raw_readings", "row"))


def branches(made: LandingProject) -> set[str]:
    refs = made.reader.metadata(made.project.schema, "raw_readings")["refs"]
    return {ref for ref in refs if is_run_branch(ref)}


@contextmanager
def watching(made: LandingProject) -> Iterator[Watching]:
    """A watch of a project, which is ended by a request, as a service is."""
    found = Watching(made)
    try:
        yield found
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(60) == 0
        told = [one["event"] for one in found.events()]
        assert (told[0], told[-1]) == ("started", "stopped")
    finally:
        found.process.kill()
        found.process.wait()


@pytest.fixture
def made(make_project: MakeProject, reader: Reader) -> LandingProject:
    entries = {"readings": READINGS}
    made = make_landing_project(make_project, reader, "watch", entries, bare=["readings"])
    made.write()
    made.deliver("readings/load_date=2024-01-31/all.csv", "id,value\n1,10\n")
    return made


def test_from_landing_files_to_published_tables(made: LandingProject) -> None:
    with watching(made) as watch:
        watch.wait_for("built")
        assert values(made) == ["10"]


@pytest.mark.skipif(not os.environ.get("SOAK"), reason="long: make soak")
def test_a_bad_drop_and_the_corrected_one(made: LandingProject) -> None:
    with watching(made) as watch:
        watch.wait_for("built")

        # A bad drop is tried again, then left alone. Readers see none of it, and of its tries the
        # last one stays, to be looked at.
        made.deliver("readings/load_date=2024-02-29/all.csv", "id,value\n2,ten\n")
        watch.wait_for("gave up")
        assert values(made) == ["10"]
        assert len(branches(made)) == 1

        # It waits for a change, such as the corrected file.
        made.deliver("readings/load_date=2024-02-29/all.csv", "id,value\n2,20\n")
        watch.wait_for("built", 2)
        assert values(made) == ["10", "20"]
    assert [one["attempt"] for one in watch.events() if one["event"] == "failed"] == [1]
