"""Nodes borrow sessions one after the other, and return them with their settings restored."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError
from pyhive import hive
from pyspark.sql.connect.client.reattach import (
    ExecutePlanResponseReattachableIterator as ResponseIterator,
)
from pyspark.sql.connect.proto import ExecutePlanRequest
from TCLIService import ttypes
from TCLIService.ttypes import TOperationState as ThriftState

from dbt.adapters.sparkwap.connect import GuardedSession
from dbt.adapters.sparkwap.sessions import (
    PooledHandle,
    SessionPool,
    base_settings,
)
from dbt.adapters.sparkwap.spark_errors import LOST, short_error
from dbt.adapters.sparkwap.thrift import ThriftSession
from sparkwap.core import retry
from sparkwap.core.retry import Fate


class Session:
    """A session that records its statements."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self.sent: list[str] = []
        self.closed = False
        self.fails: Exception | None = None
        self.heals_after = 10**6

    def cursor(self) -> Session:
        return self

    def execute(self, sql: str, bindings: Any = None) -> None:
        self.sent.append(sql)
        if self.fails is not None and len(self.sent) <= self.heals_after:
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


def test_the_fixed_settings_override_the_profile() -> None:
    settings = base_settings("lake", {"a": "1"})
    assert settings == {
        "a": "1",
        "spark.sql.sources.partitionOverwriteMode": "static",
        "spark.sql.variable.substitute": "false",
        "spark.sql.catalog.lake.cache-enabled": "false",
    }
    own = {"spark.sql.variable.substitute": "true", "spark.sql.catalog.lake.cache-enabled": "true"}
    settings = base_settings("lake", own)
    # Spark must run the text that the guard has read.
    assert settings["spark.sql.variable.substitute"] == "false"
    # With the cache, a test could read an older state of a table.
    assert settings["spark.sql.catalog.lake.cache-enabled"] == "false"


def test_nodes_reuse_a_session(pool: SessionPool, opened: list[Session]) -> None:
    for _ in range(3):
        handle = borrow(pool)
        handle.execute("select 1")
        handle.close()
    assert len(opened) == 1
    assert opened[0].settings == {"a": "1"}
    pool.close()
    assert opened[0].closed


def test_new_settings_open_a_new_session_also_for_a_borrower(opened: list[Session]) -> None:
    def open_sql(settings: Mapping[str, str]) -> Any:
        opened.append(Session(settings))
        return opened[-1]

    told = {"spark.wap.branch": "b"}
    pool = SessionPool(open_sql, lambda settings: pytest.fail("no Connect here"), lambda: told)
    idle, held = borrow(pool), borrow(pool)
    idle.close()
    held.execute("set x = 1")
    told = {}
    pool.renew()
    assert opened[0].closed
    assert not opened[1].closed
    assert len(opened) == 2  # no further session is opened
    held.execute("select 2")
    assert opened[1].closed
    assert (opened[2].settings, opened[2].sent) == ({}, ["select 2"])
    held.close()
    borrow(pool).execute("select 3")
    assert opened[2].sent == ["select 2", "select 3"]


def test_a_session_with_old_settings_is_not_reused(
    pool: SessionPool, opened: list[Session]
) -> None:
    handle = borrow(pool)
    pool.renew()
    handle.close()
    assert opened[0].closed
    borrow(pool)
    assert len(opened) == 2


def test_concurrent_nodes_have_separate_sessions(pool: SessionPool, opened: list[Session]) -> None:
    borrow(pool), borrow(pool)
    assert len(opened) == 2


def test_the_settings_of_a_node_are_undone(pool: SessionPool, opened: list[Session]) -> None:
    handle = borrow(pool)
    for sql in ("set b = 2", "set a = 9", "create temporary view v as select 1"):
        handle.execute(sql)
    handle.close()
    assert opened[0].sent[3:] == [
        "create or replace temporary view v as select 1 as nothing",
        "drop view if exists v",
        "set `a`=1",
        "reset b",
    ]


def test_a_change_that_cannot_be_undone_ends_the_session(
    pool: SessionPool, opened: list[Session]
) -> None:
    handle = borrow(pool)
    handle.execute("use other")
    handle.close()
    assert opened[0].closed
    borrow(pool)
    assert len(opened) == 2


def test_a_lost_connection_is_reported_and_nothing_is_sent_again(
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


def test_errors_have_no_java_stack_trace() -> None:
    assert short_error("[X] no such table\n\tat org.apache.spark.Y.z(Y.scala:1)") == (
        "[X] no such table"
    )
    assert short_error("<... status = StatusCode.UNAVAILABLE ...>") == LOST


BUSY = "UncheckedSQLException: Unknown failure: [SQLITE_BUSY] The database file is locked"
UNKNOWN = "CommitStateUnknownException: Cannot determine whether the commit was successful"


@pytest.mark.parametrize(
    ("message", "fate", "sent", "ends_well"),
    [
        (BUSY, "not made", 3, True),
        (BUSY, "no table", 3, True),
        (BUSY, "made", 1, True),
        (BUSY, "unknown", 1, False),
        (UNKNOWN, "made", 1, True),
        (UNKNOWN, "not made", 1, False),
        ("[DIVIDE_BY_ZERO] Division by zero", "not made", 1, False),
    ],
)
def test_a_temporary_conflict_is_sent_again_after_a_check(
    pool: SessionPool,
    opened: list[Session],
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    fate: Fate,
    sent: int,
    ends_well: bool,
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    handle = pool.borrow(lambda sql: None, lambda sql: lambda: fate)
    opened[0].fails = DbtRuntimeError(message)
    opened[0].heals_after = 2
    try:
        handle.execute("insert into t values (1)")
        assert ends_well
    except DbtDatabaseError as error:
        assert not ends_well
        assert message in str(error)
    assert len(opened[0].sent) == sent
    if fate == "made" and ends_well:
        assert handle.fetchall() == []
        assert list(handle.description) == []


def test_the_tries_of_a_statement_are_limited(
    pool: SessionPool, opened: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    handle = pool.borrow(lambda sql: None, lambda sql: lambda: "not made")
    opened[0].fails = DbtRuntimeError(BUSY)
    with pytest.raises(DbtDatabaseError, match="SQLITE_BUSY"):
        handle.execute("insert into t values (1)")
    assert len(opened[0].sent) == retry.TRIES


def test_nothing_is_sent_again_if_the_fate_is_unknown(
    pool: SessionPool, opened: list[Session]
) -> None:
    handle = borrow(pool)
    opened[0].fails = DbtRuntimeError(BUSY)
    with pytest.raises(DbtDatabaseError):
        handle.execute("insert into t values (1)")
    assert len(opened[0].sent) == 1


def test_a_connect_session_ends_although_the_server_answers_no_release(
    pool: SessionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbt.adapters.sparkwap.connect._RELEASE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        session = GuardedSession(f"sc://127.0.0.1:{silent.getsockname()[1]}")
        results = ResponseIterator(
            ExecutePlanRequest(), session.client._stub, session.client._retrying, []
        )
        results.close()
        pool.give_back_connect(session, reusable=True)
        closing = threading.Thread(target=pool.close, daemon=True)
        closing.start()
        closing.join(60)
        assert session.is_stopped


class Wire:
    """A Thrift client that, like the real one, two threads must not call at the same time."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self.shared = False
        self.calls: list[str] = []
        self.asked = threading.Event()

    def _call(self, name: str) -> Any:
        alone = self.busy.acquire(blocking=False)
        self.shared |= not alone
        self.calls.append(name)
        self.asked.set()
        time.sleep(0.02)
        if alone:
            self.busy.release()
        state = (
            ThriftState.CANCELED_STATE
            if "CancelOperation" in self.calls
            else ThriftState.RUNNING_STATE
        )
        status = SimpleNamespace(statusCode=ttypes.TStatusCode.SUCCESS_STATUS)
        handle = SimpleNamespace(hasResultSet=False)
        return SimpleNamespace(
            status=status, operationHandle=handle, operationState=state, errorMessage=None
        )

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self._call(name)


@pytest.mark.parametrize("twice", [False, True], ids=["interrupt", "two-interrupts"])
@pytest.mark.parametrize("moment", [0, 0.01, 0.03, 0.05])
def test_an_interrupt_cancels_at_every_moment(moment: float, twice: bool) -> None:
    """dbt cancels from another thread; a second interrupt closes sessions that are in use."""
    wire = Wire()
    connection: Any = SimpleNamespace(_client=wire, sessionHandle=None, close=lambda: None)
    connection.cursor = lambda: hive.Cursor(connection)
    session = ThriftSession(connection, poll_interval=0.001)
    connection.client = connection._client
    handle = SessionPool(
        lambda settings: session, lambda settings: pytest.fail("no Connect here"), dict
    ).borrow(lambda sql: None)
    errors: list[Exception] = []

    def work() -> None:
        for _ in range(2):
            try:
                handle.execute("insert into t select 1")
            except Exception as error:
                errors.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    assert wire.asked.wait(5)
    time.sleep(moment)
    handle.cancel()
    if twice:
        handle.close()
    worker.join(timeout=10)
    assert not worker.is_alive()
    assert len(errors) == 2
    assert not wire.shared
    assert wire.calls.count("ExecuteStatement") == 1
    if not twice:
        assert "CancelOperation" in wire.calls
        assert all(isinstance(error, DbtRuntimeError) for error in errors), errors


class Wire35(Wire):
    """A Thrift server of Spark 3.5, which describes a statement without a result by None."""

    def _call(self, name: str) -> Any:
        reply = super()._call(name)
        reply.operationHandle.hasResultSet = True
        reply.operationState = ThriftState.FINISHED_STATE
        reply.schema = SimpleNamespace(columns=None)
        reply.results = SimpleNamespace(columns=None, rows=[])
        return reply


def test_a_statement_without_a_result_of_spark_35() -> None:
    connection: Any = SimpleNamespace(_client=Wire35(), sessionHandle=None, close=lambda: None)
    connection.client = connection._client
    connection.cursor = lambda: hive.Cursor(connection)
    session = ThriftSession(connection, poll_interval=0.001)
    connection.client = connection._client
    session.cursor().execute("create table t (i int)")
    assert session.fetchall() == []
    assert list(session.description) == []


def test_the_end_of_one_session_object_does_not_stop_the_others() -> None:
    pool = ResponseIterator._get_or_create_release_thread_pool()
    GuardedSession("sc://127.0.0.1:1").__del__()
    assert ResponseIterator._release_thread_pool_instance is pool
    assert not pool._shutdown
