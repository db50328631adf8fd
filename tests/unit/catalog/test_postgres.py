"""The same on PostgreSQL, where its server programs are on this machine."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkwap.catalog import Lake, LedgerRows, PublishRefused

Bench = Any
_USERS = ("postgres", "nobody")


def _user() -> str | None:
    """Whom to run the server as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in _USERS if name in known), None)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL server of our own; the URI of its database."""
    if not (shutil.which("initdb") and shutil.which("postgres")):
        pytest.skip("initdb and postgres are not on this machine")
    pytest.importorskip("psycopg2")
    user = _user()
    if user is None:
        pytest.skip("PostgreSQL refuses to run as root, and there is no other user for it")
    folder = Path(tempfile.mkdtemp(prefix="wap-pg-"))
    as_user: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.geteuid() == 0:
        shutil.chown(folder, user)
        as_user |= {"user": user, "env": {**os.environ, "HOME": str(folder)}}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = str(folder / "data")
    initdb = ["initdb", "-D", data, "-A", "trust", "-U", "lake", "--no-sync", "-E", "UTF8"]
    subprocess.run(initdb, check=True, cwd=folder, **as_user)
    options = ["-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1", "-F"]
    process = subprocess.Popen(["postgres", "-D", data, *options], cwd=folder, **as_user)
    try:
        _wait(port)
        yield f"postgresql+psycopg2://lake@127.0.0.1:{port}/postgres"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(port: int) -> None:
    import psycopg2

    for _ in range(100):
        try:
            psycopg2.connect(host="127.0.0.1", port=port, user="lake", dbname="postgres").close()
            return
        except psycopg2.OperationalError:
            time.sleep(0.1)
    pytest.fail("PostgreSQL did not start")


@pytest.fixture
def pg(server: str, tmp_path: Path, bench: Bench) -> Iterator[Bench]:
    """A bench on the server, emptied before."""
    from sqlalchemy import create_engine, text

    engine = create_engine(server)
    with engine.begin() as connection:
        for table in ("iceberg_tables", "iceberg_namespace_properties"):
            connection.execute(text(f"drop table if exists {table}"))
    engine.dispose()
    bench = type(bench)(tmp_path / "pg", server)
    yield bench
    bench.lake.close()


def test_publish_rollback_and_discard(pg: Bench) -> None:
    for name in "ac":
        pg.table(name, 1)
    items = [pg.candidate("a", 2), pg.changed("c", 3), pg.new("n", 4)]
    pg.view("v", "select * from s__pr_1.c")
    receipt = pg.publish(*items, pg.side("v"), appends=[LedgerRows("runs", [{"run_id": "x"}])])
    assert [pg.read(name) for name in "acn"] == [[1, 2], [3], [4]]
    assert pg.lake.relations("s")["v"] == "view"
    pg.lake.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert [pg.read(name) for name in "ac"] == [[1], [1]]
    assert pg.lake.relations("s") == {"a": "table", "c": "table"}
    assert pg.lake.ledger.publish(receipt.publish_id)[0].rolled_back
    pg.lake.open_branch(("s", "a"), "other")
    assert pg.lake.discard("other").tables == (("s", "a"),)


def test_a_moved_main_stops_all(pg: Bench) -> None:
    for name in "ab":
        pg.table(name, 1)
    items = [pg.candidate(name, 2) for name in "ab"]
    pg.write(("s", "b"), 9, branch="main")
    before = pg.pointers()
    with pytest.raises(PublishRefused):
        pg.publish(*items)
    assert pg.pointers() == before


def test_publishers_and_other_writers_at_once(pg: Bench) -> None:
    names = [f"t{number}" for number in range(4)]
    for name in names:
        pg.table(name, 1)
    items = [pg.candidate(name, 2) for name in names]
    pg.lake.ledger.ensure({"publishes"})
    outcomes: list[str] = []

    def publish(order: int) -> None:
        lake = Lake("lake", pg.properties)
        try:
            lake.publish(items[::order], run_id="x", tag="t", tag_max_age_ms=None, branch="pr_1")
            outcomes.append("published")
        except PublishRefused:
            outcomes.append("refused")
        finally:
            lake.close()

    def branch(name: str) -> None:
        pg.lake.open_branch(("s", name), "other")

    threads = [threading.Thread(target=publish, args=(order,)) for order in (1, -1, 1)]
    threads += [threading.Thread(target=branch, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["published", "refused", "refused"]
    assert all(pg.read(name) == [1, 2] for name in names)
    assert all("other" in pg.state(("s", name)).refs for name in names)


def test_lakes_may_start_at_once(pg: Bench, server: str) -> None:
    from sqlalchemy import text

    with pg.lake.store.rows.engine.begin() as connection:
        connection.execute(text("drop table iceberg_tables"))
        connection.execute(text("drop table iceberg_namespace_properties"))
    failures: list[Exception] = []

    def start() -> None:
        try:
            Lake("lake", pg.properties).close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
