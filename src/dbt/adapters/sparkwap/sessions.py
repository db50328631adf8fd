"""A pool of Spark sessions, which the nodes of a command reuse.

dbt-spark opens a Thrift session for each node, and the server never frees the catalog client of a
session. Here a node borrows an idle session and returns it with its settings restored. A Python
model borrows a Spark Connect session instead, because its frames belong to that session.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.spark.connections import (
    CONNECTION_LOST_EXCEPTIONS,
    SparkConnectionWrapper,
)
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from dbt.adapters.sparkwap.spark_errors import CANCELLED, LOST, short_error
from sparkwap.core import checkpoints, retry
from sparkwap.core.checkpoints import checkpoint
from sparkwap.core.redaction import redact
from sparkwap.gate.session_changes import END_SESSION, session_changes, undo_statements

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.connect import GuardedSession


class _Logger(AdapterLogger):
    """dbt's logger, with secrets removed from the messages."""

    def debug(self, msg: str, *args: Any) -> None:
        super().debug(redact(msg), *args)

    def info(self, msg: str, *args: Any) -> None:
        super().info(redact(msg), *args)


logger = _Logger("Sparkwap")

# Spark's Thrift server applies the settings of a session only if they have this prefix. It silently
# ignores the others.
CONF_PREFIX = "set:hiveconf:"

# dbt-spark annotates them as types of Any.
_LOST_BY = cast("tuple[type[Exception], ...]", CONNECTION_LOST_EXCEPTIONS)

BRANCH = "spark.wap.branch"
# SET cuts a key off at a hyphen, so the property has an underscore.
RUN_ID = "spark.sql.iceberg.snapshot-property.wap_run"
OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"

_FIXED = {
    # A full overwrite must not keep old partitions, as it does in the dynamic mode that the server
    # or the profile may have set.
    OVERWRITE_MODE: "static",
    # Spark replaces `${...}` anywhere in a statement, also within names and literals, by a setting
    # or an environment variable, or by nothing if there is none. dbt has Jinja for that.
    "spark.sql.variable.substitute": "false",
}


def base_settings(catalog: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that all sessions of sparkwap have, inside and outside a run."""
    return {
        **own,
        **_FIXED,
        # PyIceberg and other sessions create and move branches. Spark caches a table for 30 seconds
        # by default, so a test could read an older state. The cache belongs to the session, so
        # each session can disable it.
        f"spark.sql.catalog.{catalog}.cache-enabled": "false",
    }


class ConnectCursor:
    """A DB-API cursor that runs SQL in a Spark Connect session."""

    def __init__(self, spark: GuardedSession | None) -> None:
        self._spark: Any = spark
        self._frame: Any = None

    def execute(self, sql: str) -> None:
        """Send a statement that the guard has checked."""
        with self._spark.gatekeeper.trusting():
            self._frame = self._spark.sql(sql)

    @property
    def description(self) -> Sequence[tuple[Any, ...]]:
        if self._frame is None:
            return []
        return [
            (f.name, f.dataType.simpleString(), None, None, None, None, f.nullable)
            for f in self._frame.schema.fields
        ]

    def fetchall(self) -> list[Any]:
        return [] if self._frame is None else [tuple(row) for row in self._frame.collect()]

    def fetchmany(self, size: int) -> list[Any]:
        return [] if self._frame is None else [tuple(row) for row in self._frame.take(size)]

    def close(self) -> None:
        self._frame = None


DONE: Any = ConnectCursor(None)
"""Replaces the cursor of a statement that took effect although it returned an error."""

Watch = Callable[[str], Callable[[], retry.Fate]]


def watch_nothing(sql: str) -> Callable[[], retry.Fate]:
    """Return a function whose result forbids a second try; for sessions outside a run."""
    return lambda: "unknown"


class PooledHandle(SparkConnectionWrapper):
    """The connection of a node: a borrowed session, which :meth:`close` returns to the pool.

    Args:
        check: Called with each statement before it is sent; raises to refuse it.
        watch: Called with each statement before it is sent; returns a function that determines
            after an error whether the statement took effect.
        check_request: Like ``check``, for each Spark Connect request of a Python model.
    """

    def __init__(
        self,
        pool: SessionPool,
        check: Callable[[str], None],
        watch: Watch,
        check_request: Callable[[Any], None],
    ) -> None:
        self._pool = pool
        self._sql, self._age = pool.take()
        self._check = check
        self._watch = watch
        self._check_request = check_request
        # Changes of the SQL session to undo; the gatekeeper has those of the Connect session.
        self._undo: list[str] = []
        self._connect: GuardedSession | None = None
        self._cursor: Any = None
        self._broken = False
        self._cancelled = False

    @property
    def is_changed(self) -> bool:
        """Whether statements have changed the session since it was borrowed."""
        return bool(self._undo) or self._connect is not None

    def end_later(self) -> None:
        """Close the session, instead of returning it to the pool."""
        self._undo.append(END_SESSION)

    # -- Spark Connect ---------------------------------------------------------------------------

    def connect_session(self) -> GuardedSession:
        """Return the Spark Connect session of this node, and from now on run its SQL there too."""
        self._renew()
        if self._connect is None:
            self._connect = self._pool.borrow_connect()
            self._connect.gatekeeper.check = self._check_request
        return self._connect

    # -- dbt-spark's connection wrapper ----------------------------------------------------------

    def cursor(self) -> PooledHandle:
        return self

    def execute(self, sql: str, bindings: list[Any] | None = None) -> None:
        if self._cancelled:
            raise DbtDatabaseError(CANCELLED)
        self._check(sql)
        self._renew()
        tried = 0
        while True:
            fate = self._watch(sql)
            tried += 1
            try:
                self._send(sql, bindings)
                return
            except Exception as error:
                if not self._may_continue(error, fate, tried):
                    raise
            if self._cursor is DONE:
                return
            time.sleep(retry.wait_seconds(tried, random.random()))

    def _renew(self) -> None:
        """Take a new session if the settings of the pool's sessions have changed."""
        if self._age == self._pool.age:
            return
        self.close()
        self._broken = False
        self._sql, self._age = self._pool.take()

    def _may_continue(self, error: Exception, fate: Callable[[], retry.Fate], tried: int) -> bool:
        """Return whether a failed statement took effect nevertheless or may be sent again."""
        # The shortened message does not have the error's class; its cause does.
        rule = retry.rule_of(error)
        if self._broken or rule in ("fail", "rebuild"):
            return False
        step = retry.step(rule, fate(), tried)
        if step == "done":
            logger.info("sparkwap: the statement failed, but it wrote its snapshot; continuing")
            self._cursor = DONE
        elif step == "send":
            logger.info(f"sparkwap: temporary conflict ({rule}); sending the statement again")
        return step != "raise"

    def _send(self, sql: str, bindings: list[Any] | None) -> None:
        try:
            checkpoint(checkpoints.STATEMENT_SENDING, sql=sql)
            if self._connect is not None:
                self._cursor = ConnectCursor(self._connect)
                self._cursor.execute(sql.strip().removesuffix(";"))
            else:
                self._cursor = self._sql.cursor()
                self._cursor.execute(sql, bindings)
            checkpoint(checkpoints.STATEMENT_DONE, sql=sql)
        except _LOST_BY as error:
            self._broken = True
            raise DbtDatabaseError(f"{LOST}\n({type(error).__name__}: {error})") from error
        except DbtRuntimeError as error:
            raise DbtDatabaseError(short_error(str(error.msg))) from error
        except Exception as error:
            if self._connect is not None:
                raise DbtDatabaseError(short_error(str(error))) from error
            raise
        finally:
            change = session_changes(sql)
            if change is not None:
                here = self._undo if self._connect is None else self._connect.gatekeeper.changes
                here.append(change)

    def fetchall(self) -> list[Any]:
        rows = self._cursor.fetchall()
        return [] if rows is None else list(rows)

    def fetchone(self) -> Any:
        rows = self.fetchall()
        return rows[0] if rows else None

    def fetchmany(self, size: int) -> list[Any]:
        if isinstance(self._cursor, ConnectCursor):
            return self._cursor.fetchmany(size)
        fetch = getattr(getattr(self._cursor, "_cursor", None), "fetchmany", None)
        if fetch is not None:
            return list(fetch(size))
        return self.fetchall()[:size]

    @property
    def description(self) -> Sequence[Any]:
        return self._cursor.description if self._cursor is not None else []

    def cancel(self) -> None:
        """Cancel the statement that another thread waits for; this node sends no further ones."""
        self._broken = self._cancelled = True
        if self._connect is not None:
            self._connect.interruptAll()
        else:
            self._sql.cancel()

    def rollback(self, *args: Any, **kwargs: Any) -> None:
        logger.debug("Spark has no transactions: nothing to roll back")

    def close(self) -> None:
        """Return the sessions to the pool, with the changes of the node undone."""
        usable = not self._broken and self._age == self._pool.age
        spark, self._connect = self._connect, None
        if spark is not None:
            keeper = spark.gatekeeper
            changes, keeper.check, keeper.changes = keeper.changes, None, []
            with keeper.trusting():
                kept = usable and self._as_opened(spark.sql, changes)
            self._pool.give_back_connect(spark, reusable=kept)
        changes, self._undo = self._undo, []
        kept = usable and self._as_opened(lambda sql: self._sql.cursor().execute(sql), changes)
        self._pool.give_back(self._sql, reusable=kept)

    def _as_opened(self, send: Callable[[str], object], changes: list[str]) -> bool:
        """Undo a node's changes of a session; returns whether all of them are undone."""
        try:
            for statement in undo_statements(changes, self._pool.settings):
                send(statement)
        except Exception as error:
            logger.debug(f"session not reused: {error}")
            return False
        return END_SESSION not in changes


class SessionPool:
    """The idle sessions of one dbt invocation, which all have the same settings.

    Args:
        settings: Returns the settings; called for the first session, and for the first session
            after :meth:`renew`.
    """

    def __init__(
        self,
        open_sql: Callable[[Mapping[str, str]], SparkConnectionWrapper],
        open_connect: Callable[[Mapping[str, str]], GuardedSession],
        settings: Callable[[], Mapping[str, str]],
    ) -> None:
        self._open_sql = open_sql
        self._open_connect = open_connect
        self._read_settings = settings
        self._idle: list[SparkConnectionWrapper] = []
        self._idle_connect: list[GuardedSession] = []
        self._lock = threading.Lock()
        # The number of changes of the settings; a session of another age is not used again.
        self.age = 0

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """The settings of every session of this invocation."""
        return dict(self._read_settings())

    def borrow(
        self,
        check: Callable[[str], None],
        watch: Watch = watch_nothing,
        check_request: Callable[[Any], None] = lambda request: None,
    ) -> PooledHandle:
        return PooledHandle(self, check, watch, check_request)

    def take(self) -> tuple[SparkConnectionWrapper, int]:
        """Return a session, idle or new, and its age."""
        with self._lock:
            wrapper, age = self._idle.pop() if self._idle else None, self.age
        return wrapper or self._open_sql(self.settings), age

    def renew(self) -> None:
        """Close the idle sessions and read the settings again for later ones."""
        with self._lock:
            self.age += 1
        self.close()

    def give_back(self, wrapper: SparkConnectionWrapper, *, reusable: bool) -> None:
        if reusable:
            with self._lock:
                self._idle.append(wrapper)
            return
        _close(wrapper.close)

    def borrow_connect(self) -> GuardedSession:
        with self._lock:
            session = self._idle_connect.pop() if self._idle_connect else None
        return session or self._open_connect(self.settings)

    def give_back_connect(self, session: GuardedSession, *, reusable: bool) -> None:
        if reusable:
            with self._lock:
                self._idle_connect.append(session)
        else:
            _close(session.stop)

    def close(self) -> None:
        """Close all idle sessions on the server."""
        with self._lock:
            idle, self._idle = self._idle, []
            connect, self._idle_connect = self._idle_connect, []
            # Later sessions belong to no run or to the next one, so read the settings again.
            self.__dict__.pop("settings", None)
        for end in (*(one.close for one in idle), *(one.stop for one in connect)):
            _close(end)


def _close(end: Callable[[], object]) -> None:
    """End a session on the server, which may be gone."""
    try:
        end()
    except Exception as error:
        logger.debug(f"session not closed: {error}")
