"""The same on PostgreSQL, where its server programs are on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vocabulary.postgres import running_postgres

from sparkwap.catalog import Lake, LedgerRows, PublishRefused

Bench = Any


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL server of our own; the URI of its database."""
    with running_postgres() as uri:
        yield uri


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
            lake.publish(
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
    # A deadlock is one of the things that may happen on the way, and is tried again.
    assert sorted(outcomes) == ["published", "refused"]


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
