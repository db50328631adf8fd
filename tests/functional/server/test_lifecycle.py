"""One server per lake: found, shared, survived by, killed, stopped, left idle."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyhive import hive
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from sparkwap.core.errors import ServerError
from sparkwap.server import (
    CATALOG_NAME,
    Endpoint,
    ServerConfig,
    catalog_properties,
    ensure,
    logs,
    register_client,
    status,
    stop,
)

# One task thread and little memory: these tests look at processes, not at data.
SMALL: dict[str, Any] = {"memory": "512m", "cores": 1}

# What dbt does: it makes sure of the server, and ends.
CALLER = """
import json, sys
from pathlib import Path
from sparkwap.server import ServerConfig, ensure
settings = json.loads(sys.argv[1])
lake = Path(settings.pop("lake"))
lines = []
endpoint = ensure(ServerConfig(lake=lake, **settings), lines.append)
print(json.dumps({"endpoint": vars(endpoint), "lines": lines}))
"""


def call(cwd: Path, lake: Path, **settings: Any) -> subprocess.Popen[str]:
    """Begin ``ensure`` in a process of its own, whose working directory is ``cwd``."""
    arguments = json.dumps({"lake": str(lake), **SMALL, **settings})
    command = [sys.executable, "-c", CALLER, arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd)


def answer(caller: subprocess.Popen[str]) -> tuple[Endpoint, list[str]]:
    output, _ = caller.communicate(timeout=240)
    assert caller.returncode == 0
    found = json.loads(output)
    return Endpoint(**found["endpoint"]), found["lines"]


def query(endpoint: Endpoint, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in one Thrift session; return the rows of the last."""
    with hive.connect(endpoint.host, endpoint.thrift_port) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def started(
    config: ServerConfig, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Endpoint, list[str]]]:
    """What four callers at once are told; all have ended by then."""
    cwd = tmp_path_factory.mktemp("cwd")
    callers = [call(cwd, config.lake, idle_minutes=10) for _ in range(4)]
    answers = [answer(caller) for caller in callers]
    assert list(cwd.iterdir()) == [], "the server writes into its lake only"
    return answers


@pytest.fixture
def endpoint(started: list[tuple[Endpoint, list[str]]], config: ServerConfig) -> Endpoint:
    return ensure(config, lambda _line: None)


def test_callers_at_once_end_with_one_server(started: list[tuple[Endpoint, list[str]]]) -> None:
    assert len({endpoint for endpoint, _ in started}) == 1
    starts = [lines for _, lines in started if "starting the server" in lines]
    assert len(starts) == 1
    assert starts[0][-1].startswith("the server is up")
    waits = [lines[0] for _, lines in started if lines and lines not in starts]
    assert all("waiting for another process" in line for line in waits)


@pytest.mark.smoke
def test_the_server_outlives_its_callers(
    started: list[tuple[Endpoint, list[str]]], endpoint: Endpoint
) -> None:
    assert endpoint == started[0][0]
    assert os.getsid(endpoint.pid) != os.getsid(0)
    assert query(endpoint, "select current_catalog(), current_database()") == [("lake", "default")]


def test_spark_and_pyiceberg_share_the_catalog(endpoint: Endpoint, config: ServerConfig) -> None:
    query(
        endpoint,
        "create schema s",
        "create table s.t as select 1 as id, timestamp'2024-07-01 12:00:00' as at",
        "create view s.v as select id from s.t",
        "select * from s.v",
    )
    catalog = SqlCatalog(CATALOG_NAME, **catalog_properties(config))
    (row,) = catalog.load_table("s.t").scan().to_arrow().to_pylist()
    assert (row["id"], row["at"].isoformat()) == (1, "2024-07-01T12:00:00+00:00")
    catalog.create_namespace("from_python")
    assert ("from_python",) in query(endpoint, "show namespaces")


@contextmanager
def connect(url: str) -> Iterator[SparkSession]:
    """A Spark Connect session, ended while its server lives: PySpark looks for a dead one long."""
    session = SparkSession.builder.remote(url).create()
    try:
        yield session
    finally:
        session.stop()


def test_connect_asks_for_the_token(endpoint: Endpoint) -> None:
    with connect(endpoint.connect_url) as session:
        assert session.sql("select 1 as one").toArrow().to_pylist() == [{"one": 1}]
    bare, _, _ = endpoint.connect_url.partition(";")
    for url in (bare, f"{bare};token=wrong"):
        with pytest.raises(PySparkException, match="authentication token"), connect(url) as session:
            session.sql("select 1").collect()


@pytest.mark.smoke
def test_only_loopback_is_listened_on(endpoint: Endpoint) -> None:
    process = psutil.Process(endpoint.pid)
    listening = [c.laddr for c in process.net_connections("inet") if c.status == "LISTEN"]
    assert {endpoint.thrift_port, endpoint.connect_port} <= {address.port for address in listening}
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_files_are_the_owners_only(endpoint: Endpoint, config: ServerConfig) -> None:
    layout = config.layout
    secrets = [path for path in layout.server.rglob("*") if path.is_file() and path != layout.tmp]
    holding = [path for path in secrets if endpoint.token.encode() in path.read_bytes()]
    assert layout.state in holding
    assert all(path.stat().st_mode & 0o077 == 0 for path in [*holding, layout.lake, layout.server])


def test_a_closed_session_does_not_wait_for_a_metastore(endpoint: Endpoint) -> None:
    connection = hive.connect(endpoint.host, endpoint.thrift_port)
    began = time.monotonic()
    connection.close()
    assert time.monotonic() - began < 5


def test_status_tells_what_runs(endpoint: Endpoint, config: ServerConfig) -> None:
    found = status(config.lake)
    assert found is not None and found.endpoint == endpoint and found.ready
    assert found.clients == [os.getpid()]
    assert found.rss > 100_000_000 and found.descriptors > 10


def test_a_killed_server_is_started_again(endpoint: Endpoint, config: ServerConfig) -> None:
    driver = psutil.Process(endpoint.pid)
    driver.kill()
    assert wait_until(lambda: not driver.is_running() or driver.status() == "zombie", 10)
    again = ensure(config, lambda _line: None)
    assert again.pid != endpoint.pid and again.token != endpoint.token
    assert query(again, "select 1") == [(1,)]


def test_stop_ends_it_and_says_so_once(endpoint: Endpoint, config: ServerConfig) -> None:
    assert stop(config.lake) is True
    assert not psutil.pid_exists(endpoint.pid)
    assert status(config.lake) is None
    assert stop(config.lake) is False


def test_an_idle_server_stops_on_its_own(other_lake: Path, tmp_path: Path) -> None:
    endpoint, _ = answer(call(tmp_path, other_lake, idle_minutes=0.05))
    with socket.create_connection((endpoint.host, endpoint.connect_port)):
        time.sleep(6)  # a program that we know nothing of, such as a BI tool
        assert status(other_lake) is not None
    client = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(6)"])
    register_client(other_lake, client.pid)
    client.wait()
    assert status(other_lake) is not None
    assert wait_until(lambda: status(other_lake) is None, 30)
    assert "stopping the server: idle" in logs(other_lake).read_text()


def test_a_server_whose_lake_was_deleted_ends(other_lake: Path, tmp_path: Path) -> None:
    endpoint, _ = answer(call(tmp_path, other_lake))
    shutil.rmtree(other_lake)
    assert wait_until(lambda: not psutil.pid_exists(endpoint.pid), 30)


def test_a_server_that_does_not_start_says_why(other_lake: Path) -> None:
    config = ServerConfig(lake=other_lake, spark_conf={"spark.serializer": "no.Such"}, **SMALL)
    with pytest.raises(ServerError) as caught:
        ensure(config, lambda _line: None)
    assert "could not be started: it ended during the start" in str(caught.value)
    assert "no.Such" in str(caught.value)
    assert f"sparkwap server logs --lake {other_lake}" in str(caught.value)
    assert status(other_lake) is None
