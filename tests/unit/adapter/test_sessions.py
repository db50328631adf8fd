"""Sessions are lent to one node after another, and come back as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from dbt.adapters.sparkwap.sessions import LOST, PooledHandle, SessionPool, short_error


class Session:
    """A session that remembers its statements."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self.sent: list[str] = []
        self.closed = False
        self.fails: Exception | None = None

    def cursor(self) -> Session:
        return self

    def execute(self, sql: str, bindings: Any = None) -> None:
        self.sent.append(sql)
        if self.fails is not None:
            raise self.fails

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened() -> list[Session]:
    return []


@pytest.fixture
def pool(opened: list[Session]) -> SessionPool:
    def open_sql(settings: Mapping[str, str]) -> Any:
        opened.append(Session(settings))
        return opened[-1]

    return SessionPool(
        open_sql, lambda settings: pytest.fail("no Connect here"), lambda: {"a": "1"}
    )


def borrow(pool: SessionPool) -> PooledHandle:
    return pool.borrow(lambda sql: None)


def test_a_session_serves_one_node_after_another(pool: SessionPool, opened: list[Session]) -> None:
    for _ in range(3):
        handle = borrow(pool)
        handle.execute("select 1")
        handle.close()
    assert len(opened) == 1
    assert opened[0].settings == {"a": "1"}
    pool.close()
    assert opened[0].closed


def test_two_nodes_at_once_have_two_sessions(pool: SessionPool, opened: list[Session]) -> None:
    borrow(pool), borrow(pool)
    assert len(opened) == 2


def test_what_a_node_sets_is_undone(pool: SessionPool, opened: list[Session]) -> None:
    handle = borrow(pool)
    for sql in ("set b = 2", "set a = 9", "create temporary view v as select 1"):
        handle.execute(sql)
    handle.close()
    assert opened[0].sent[3:] == ["drop view if exists v", "set `a`=1", "reset b"]


def test_what_cannot_be_undone_ends_the_session(pool: SessionPool, opened: list[Session]) -> None:
    handle = borrow(pool)
    handle.execute("use other")
    handle.close()
    assert opened[0].closed
    borrow(pool)
    assert len(opened) == 2


def test_a_lost_connection_is_told_and_nothing_is_sent_again(
    pool: SessionPool, opened: list[Session]
) -> None:
    handle = borrow(pool)
    opened[0].fails = ConnectionResetError("gone")
    with pytest.raises(DbtDatabaseError, match="is not sent again"):
        handle.execute("insert into t values (1)")
    handle.close()
    assert opened[0].sent == ["insert into t values (1)"]
    assert opened[0].closed


def test_a_refused_statement_is_not_sent(pool: SessionPool, opened: list[Session]) -> None:
    def refuse(sql: str) -> None:
        raise DbtRuntimeError("no")

    handle = pool.borrow(refuse)
    with pytest.raises(DbtRuntimeError):
        handle.execute("drop table t")
    assert opened[0].sent == []


def test_errors_are_told_without_java() -> None:
    assert short_error("[X] no such table\n\tat org.apache.spark.Y.z(Y.scala:1)") == (
        "[X] no such table"
    )
    assert short_error("<... status = StatusCode.UNAVAILABLE ...>") == LOST
