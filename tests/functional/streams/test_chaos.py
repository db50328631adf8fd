"""A stream goes on while broker, Spark and dbt are killed: nothing is lost, twice or unaudited.

It takes three minutes, with SOAK=1 an hour; SPARKWAP_SECONDS sets it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import KafkaException
from helpers.catalogs import SqliteSource
from helpers.lake import Reader
from helpers.landing import LandingProject
from helpers.project import Project
from pyiceberg.table import StaticTable

from sparkwap import server

from ..conftest import INTERPRETED
from .conftest import stream

if TYPE_CHECKING:
    from helpers.kafka import Broker

SECONDS = int(os.environ.get("SPARKWAP_SECONDS") or (3600 if os.environ.get("SOAK") else 180))
EVERY = 20
BALANCED = """
select sum(cast(amount as int)) as total
from {{ ref('cdc_transfers') }}
having sum(cast(amount as int)) <> 0
"""


@dataclass
class Transfers:
    """Sends pairs of messages, a debit and its credit, some time apart."""

    broker: Broker
    sent: set[int] = field(default_factory=set)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            amount = random.randint(1, 99)
            for sign in (-1, 1):
                self._send(number, sign * amount)
                number += 1
                time.sleep(random.random() * 0.3)

    def _send(self, number: int, amount: int) -> None:
        """Send until the broker has it; what is sent twice is one row by its key."""
        message = json.dumps({"id": number, "amount": amount})
        while True:
            with suppress(KafkaException):
                self.broker.send("transfers", [message], keys=[str(number)])
                self.sent.add(number)
                return
            time.sleep(0.5)


@dataclass
class Watcher:
    """The states of ``main`` that a reader saw, with the time at which it saw each first."""

    reader: Reader
    schema: str
    seen: dict[tuple[str, str], float] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.wait(0.1):
            state = self.reader.pointers(self.schema)
            if {"raw_transfers", "cdc_transfers"} <= state.keys():
                pair = state["raw_transfers"][1], state["cdc_transfers"][1]
                self.seen.setdefault(pair, time.time())


class Stream:
    """The process of ``sparkwap stream``."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "sparkwap.cli", "stream", "--every", "1"]
        variables = {"wap_maintain": "end_of_run", "wap_maintain_budget": 5}
        with (self.project.folder / "stream.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *command, "--project-dir", str(self.project.folder),
                    "--profiles-dir", str(self.project.folder), "--vars", json.dumps(variables),
                ],
                cwd=self.project.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def end(self) -> None:
        """Kill it and the dbt process that it runs."""
        assert self.process is not None
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            for process in [*own.children(), own]:
                process.kill()
        self.process.wait(60)

    def stop(self) -> None:
        """Stop it as a service manager does."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(60) == 130

    def kill_dbt(self) -> None:
        assert self.process is not None
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):
                child.kill()


@contextmanager
def running(*loops: Transfers | Watcher) -> Iterator[None]:
    threads = [threading.Thread(target=loop.run, daemon=True) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for loop in loops:
            loop.stop.set()
        for thread in threads:
            thread.join(60)


@pytest.fixture
def own_lake(tmp_path: Path) -> Iterator[Path]:
    """A lake of this test's own, whose server it may kill."""
    lake = tmp_path / ".lake"
    yield lake
    server.stop(lake)


@pytest.mark.timeout(SECONDS + 900)
def test_nothing_is_lost_or_twice_or_unaudited(
    broker: Broker,
    own_lake: Path,
    tmp_path: Path,
    shared_jars: None,
    request: pytest.FixtureRequest,
) -> None:
    broker.create("transfers", partitions=2)
    output = {
        "type": "sparkwap", "lake": str(own_lake), "memory": "1g", "kafka": True,
        "spark_conf": INTERPRETED,
    }  # fmt: skip
    project = Project(tmp_path / "bank", "bank", output)
    entry = stream("transfers", columns={"id": "bigint", "amount": "int"})
    reader = Reader(own_lake, SqliteSource(own_lake))
    models = LandingProject(project, reader, {"transfers": entry}, broker=broker.bootstrap)
    models.write()
    project.write({"tests/transfers_are_whole.sql": BALANCED})
    own, transfers, watcher = Stream(project), Transfers(broker), Watcher(reader, "bank")

    def kill_broker() -> None:
        broker.kill()
        time.sleep(2)
        broker.start()

    def kill_server() -> None:
        status = server.status(own_lake)
        if status is not None:
            os.kill(status.endpoint.pid, signal.SIGKILL)

    def kill_stream() -> None:
        own.end()
        own.start()

    kills: list[Callable[[], None]] = [kill_broker, own.kill_dbt, kill_server, kill_stream]
    models.build().succeeded()
    own.start()
    request.addfinalizer(own.end)
    end = time.monotonic() + SECONDS
    with running(watcher):
        with running(transfers):
            number = 0
            while time.monotonic() < end:
                time.sleep(EVERY)
                kills[number % len(kills)]()
                number += 1
        until(lambda: ends(models) == broker.end_offsets("transfers"), own)
    own.stop()

    first_seen: dict[tuple[int, int], float] = {}
    for (raw, state), at in watcher.seen.items():
        for place, seconds in check(rows_at(raw), rows_at(state), at).items():
            first_seen.setdefault(place, seconds)
    rows = models.rows("cdc_transfers")
    assert {int(row["id"]) for row in rows if row["row_hash"]} == transfers.sent
    assert len(watcher.seen) > 2, "it published again and again"
    latencies = sorted(first_seen.values())
    print(
        f"{len(transfers.sent)} messages, {number} kills, {len(watcher.seen)} states of main; "
        f"from message to main: median {latencies[len(latencies) // 2]:.0f} s, "
        f"p95 {latencies[int(len(latencies) * 0.95)]:.0f} s"
    )


def check(
    raw: list[dict[str, Any]], state: list[dict[str, Any]], at: float
) -> dict[tuple[int, int], float]:
    """Check one state of ``main``; return the seconds from message to reader, by its place.

    Each offset is there once, up to the position; the state has all keys of the log, and passes
    the audit.
    """
    read = [row for row in raw if row["_kind"] != "file"]
    ages = {place(row): at - row["_message_time"].timestamp() for row in read}
    assert len(ages) == len(read)
    for partition in {one for one, _ in ages}:
        offsets = sorted(offset for one, offset in ages if one == partition)
        assert offsets == list(range(len(offsets)))
    live = [row for row in state if row["row_hash"]]
    assert sum(int(row["amount"]) for row in live) == 0
    assert {row["id"] for row in live} == {row["id"] for row in raw if row["_kind"] == "row"}
    return ages


def place(row: dict[str, Any]) -> tuple[int, int]:
    """The partition and the offset of a row of the log."""
    return int(row["_file_path"].split("/")[2]), row["_row"]


def rows_at(location: str) -> list[dict[str, Any]]:
    return StaticTable.from_metadata(location).scan().to_arrow().to_pylist()


def ends(models: LandingProject) -> dict[int, int]:
    """The positions of the published log, by partition."""
    found: dict[int, int] = {}
    for row in models.rows("raw_transfers", "file"):
        _, _, partition, offsets = row["_file_path"].split("/")
        found[int(partition)] = max(found.get(int(partition), 0), int(offsets.split("-")[1]))
    return found


def until(done: Callable[[], bool], own: Stream) -> None:
    deadline = time.monotonic() + 400
    while not done():
        log = own.project.folder / "stream.log"
        assert time.monotonic() < deadline, log.read_text()[-6000:]
        time.sleep(1)
