"""Publish, rollback and leases on PostgreSQL; skipped without its server programs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.crashes.injector import Injector
from helpers.documents import ROOT, blocks
from helpers.postgres import running_postgres

from sparkwap.catalog import LedgerRows, PublishRefused, sql_database
from sparkwap.catalog import lease as leasing
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.refusals import WriteDenied
from sparkwap.catalog.store import Store
from sparkwap.core import checkpoints
from sparkwap.core.errors import CatalogError
from sparkwap.gate.settings import Limits
from sparkwap.maintenance.sweeper import Sweeper
from sparkwap.publish.lake import Lake

Bench = Any


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start a PostgreSQL server; returns the URI of its database."""
    with running_postgres() as database:
        yield database.uri


@pytest.fixture
def pg(server: str, tmp_path: Path, bench: Bench) -> Iterator[Bench]:
    """An empty bench on the server."""
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
    pg.lake.publishing.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert [pg.read(name) for name in "ac"] == [[1], [1]]
    assert pg.lake.relations("s") == {"a": "table", "c": "table"}
    assert pg.lake.ledger.publish(receipt.publish_id)[0].rolled_back
    pg.lake.branches.open(("s", "a"), "other")
    assert pg.lake.branches.discard("other").tables == (("s", "a"),)


def test_leases_and_a_sweep(pg: Bench) -> None:
    pg.table("a", 1)
    pg.candidate("a", 2)
    pg.new("n", 3)
    holding = leasing.hold(
        pg.lake.leases, run_id="1a2b3c4d-0000", branch="pr_1", command="build", every=0.01
    )
    (first,) = pg.lake.leases.all()
    assert abs(first.since - time.time()) < 60
    work = Sweeper(pg.lake, run_id="5e5e5e5e", limits=Limits(0, 0, 1), retention_days=90)
    assert work.sweep().plan.branches == ()
    assert pg.lake.leases.all()[0].renewed >= first.renewed
    holding.release()
    report = work.sweep()
    assert (report.problems, [one.name for one in report.plan.branches]) == ([], ["pr_1"])
    assert pg.lake.branches.all() == []
    assert pg.lake.relations("s") == {"a": "table"}
    assert pg.read("a") == [1]


def test_a_moved_main_stops_the_whole_publish(pg: Bench) -> None:
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
            lake.publishing.publish(
                items[::order], run_id="x", tag="t", tag_max_age_ms=None, branch="pr_1"
            )
            outcomes.append("published")
        except PublishRefused:
            outcomes.append("refused")
        finally:
            lake.close()

    def branch(name: str) -> None:
        pg.lake.branches.open(("s", name), "other")

    threads = [threading.Thread(target=publish, args=(order,)) for order in (1, -1, 1)]
    threads += [threading.Thread(target=branch, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["published", "refused", "refused"]
    assert all(pg.read(name) == [1, 2] for name in names)
    assert all("other" in pg.state(("s", name)).refs for name in names)


def test_two_publishes_that_read_each_others_table(pg: Bench) -> None:
    for name in "ab":
        pg.table(name, 1)
    items = [pg.candidate(name, 2) for name in "ab"]
    read = pg.lake.read([("s", name) for name in "ab"])
    pg.lake.ledger.ensure({"publishes"})
    outcomes: list[str] = []

    def publish(mine: int) -> None:
        lake = Lake("lake", pg.properties)
        told: dict[str, Any] = {"run_id": "x", "tag": "t", "tag_max_age_ms": None}
        try:
            lake.publishing.publish(
                [items[mine]], branch="pr_1", read=[read[1 - mine]], strict_reads=True, **told
            )
            outcomes.append("published")
        except PublishRefused:
            outcomes.append("refused")
        finally:
            lake.close()

    threads = [threading.Thread(target=publish, args=(mine,)) for mine in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A deadlock may happen, and is retried.
    assert sorted(outcomes) == ["published", "refused"]


def test_lakes_may_start_at_once(pg: Bench, server: str) -> None:
    from sqlalchemy import text

    with pg.lake.store.backend.engine.begin() as connection:
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


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_in_progress_is_waited_for(pg: Bench, committed: bool) -> None:
    """The client has lost its connection, and the server still executes the transaction."""
    row = pg.lake.store.backend.get(pg.table("a", 1))
    moved = PointerUpdate(row, Pointer(row.identifier, "table", f"{row.location}.new"))
    holding, ending = threading.Event(), threading.Event()

    def in_flight() -> None:
        with suppress(ZeroDivisionError), pg.lake.store.backend.transaction() as connection:
            pg.lake.store.backend._apply_one(connection, moved)
            holding.set()
            ending.wait(10)
            if not committed:
                raise ZeroDivisionError

    thread = threading.Thread(target=in_flight)
    thread.start()
    holding.wait(10)
    threading.Timer(0.5, ending.set).start()
    assert pg.lake.store.backend.fate([moved]) == ("made" if committed else "not made")
    thread.join()


def test_a_connection_that_is_cut_in_the_transaction(pg: Bench) -> None:
    for name in "ab":
        pg.table(name, 1)
    items = [pg.candidate(name, 2) for name in "ab"]
    pg.lake.ledger.ensure({"publishes"})
    before, files = pg.pointers(), pg.files()
    end = checkpoints.listen(Injector("publish.rows_changed", "lost-network"))
    try:
        with pytest.raises(CatalogError, match="Nothing was changed"):
            pg.publish(*items)
    finally:
        end()
    assert (pg.pointers(), pg.files()) == (before, files)
    pg.publish(*items)
    assert [pg.read(name) for name in "ab"] == [[1, 2], [1, 2]]


def test_publishes_of_many_runs_take_turns(pg: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All append to the ledger's tables; without turns most would be staged many times."""
    names = [f"t{number}" for number in range(12)]
    items = {}
    for name in names:
        pg.table(name, 1)
        items[name] = pg.candidate(name, 2)
    pg.lake.ledger.ensure({"publishes"})
    staged: list[str] = []
    real = Store._apply

    def counted(store: Store, *arguments: Any) -> None:
        staged.append(threading.current_thread().name)
        real(store, *arguments)

    monkeypatch.setattr(Store, "_apply", counted)

    def publish(name: str) -> None:
        lake = Lake("lake", pg.properties)
        lake.publishing.publish(
            [items[name]], run_id=name, tag="t", tag_max_age_ms=None, branch="pr_1"
        )
        lake.close()

    threads = [threading.Thread(target=publish, args=(name,), name=name) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(staged) == sorted(names)
    assert all(pg.read(name) == [1, 2] for name in names)
    assert sorted(row["run_id"] for row in pg.lake.ledger.rows("publishes")) == sorted(names)


@pytest.mark.parametrize(
    ("limit", "hangs_at"),
    [
        ("_LONGEST_TURN_SECONDS", "publish.files_written"),
        ("_LONGEST_WAIT_SECONDS", "publish.files_written"),
        ("_LONGEST_TURN_SECONDS", "publish.rows_changed"),
    ],
)
def test_a_writer_that_hangs_stops_no_other(
    pg: Bench, monkeypatch: pytest.MonkeyPatch, limit: str, hangs_at: str
) -> None:
    monkeypatch.setattr(sql_database, limit, 1)
    for name in "ab":
        pg.table(name, 1)
    items = {name: pg.candidate(name, 2) for name in "ab"}
    pg.lake.ledger.ensure({"publishes"})
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(step: checkpoints.Checkpoint, facts: Any) -> None:
        if step.name == hangs_at and facts["run_id"] == "slow" and not hangs.is_set():
            hangs.set()
            goes_on.wait(30)

    errors: list[CatalogError] = []

    def publish(name: str, run_id: str) -> None:
        lake = Lake("lake", pg.properties)
        try:
            lake.publishing.publish(
                [items[name]], run_id=run_id, tag="t", tag_max_age_ms=None, branch="pr_1"
            )
        except CatalogError as error:
            errors.append(error)
        finally:
            lake.close()

    end = checkpoints.listen(hang)
    try:
        slow = threading.Thread(target=publish, args=("a", "slow"))
        slow.start()
        assert hangs.wait(10)
        publish("b", "fast")
        assert (pg.read("a"), pg.read("b")) == ([1], [1, 2])
        goes_on.set()
        slow.join()
    finally:
        end()
    if hangs_at == "publish.rows_changed":
        # The database has ended the transaction.
        assert "Nothing was changed" in str(errors.pop())
        publish("a", "again")
    assert errors == []
    assert (pg.read("a"), pg.read("b")) == ([1, 2], [1, 2])


def test_a_killed_writer_keeps_no_turn(pg: Bench) -> None:
    child = os.fork()
    if child == 0:
        try:
            with Lake("lake", pg.properties).store.backend.turn():
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)  # else it would go on as a second pytest, and end what is shared
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    pg.table("a", 1)
    item = pg.candidate("a", 2)
    started = time.monotonic()
    pg.publish(item)
    assert pg.read("a") == [1, 2]
    assert time.monotonic() - started < sql_database._LONGEST_TURN_SECONDS / 2


def test_roles_that_do_not_own_the_tables(pg: Bench, server: str, tmp_path: Path) -> None:
    from sqlalchemy import create_engine, text

    _, grants = blocks(ROOT / "docs/catalogs/postgresql.md", "sql")
    engine = create_engine(server)
    with engine.begin() as connection:
        connection.execute(text("create role lake_writer login; create role lake_reader login"))
        connection.execute(text(grants))
    engine.dispose()
    writer = type(pg)(pg.folder, server.replace("lake@", "lake_writer@"))
    reader = Lake("lake", {**pg.properties, "uri": server.replace("lake@", "lake_reader@")})
    writer.table("a", 1)
    first = writer.publish(writer.candidate("a", 2))
    candidate = writer.candidate("a", 3)
    before, files = writer.pointers(), writer.files()
    began = time.monotonic()
    with pytest.raises(WriteDenied, match="The user lake_reader may not write"):
        reader.publishing.publish(
            [candidate], run_id="x", tag="t", tag_max_age_ms=None, branch="pr_1"
        )
    with pytest.raises(WriteDenied):
        reader.publishing.rollback(first.entries, run_id="y", publish_id=first.publish_id)
    with pytest.raises(WriteDenied):
        reader.ledger.append(LedgerRows("alerts", [{"run_id": "x"}]))  # a table that is missing
    # The same for anybody on a replica.
    replica = f"{server}?options=-c%20default_transaction_read_only%3Don"
    standby = Lake("lake", {**pg.properties, "uri": replica})
    with pytest.raises(WriteDenied, match=r"The user lake may not write.*read-only transaction"):
        leasing.hold(standby.leases, run_id="r", branch="pr_1", command="build")
    standby.close()
    # A commit of an unknown fate would be looked at for eight seconds.
    assert time.monotonic() - began < 5
    assert (writer.pointers(), writer.files()) == (before, files)
    assert not reader.ledger.rows("alerts")
    writer.publish(candidate)
    assert writer.read("a") == [1, 2, 3]
    writer.lake.close()
    reader.close()
