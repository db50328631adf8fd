"""Spark sessions: opened once per thread, used by one node after another.

dbt-spark opens a Thrift session for each node, and each session of the server keeps a catalog
client of its own for ever. Here a node borrows an idle session and gives it back as it found it.
A node with a Python model borrows a Spark Connect session instead, as its frames live there.
"""

from __future__ import annotations

import random
import re
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

from sparkwap.core import checkpoints, retry
from sparkwap.core.checkpoints import checkpoint
from sparkwap.core.redaction import redact
from sparkwap.gate.session_changes import END_SESSION, session_changes, undo_statements

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.connect import GuardedSession


class _Logger(AdapterLogger):
    """dbt's log, which secrets do not reach."""

    def debug(self, msg: str, *args: Any) -> None:
        super().debug(redact(msg), *args)

    def info(self, msg: str, *args: Any) -> None:
        super().info(redact(msg), *args)


logger = _Logger("Sparkwap")

# Server-side parameters reach a session of Spark's Thrift server only under this prefix; without
# it they are dropped without a word.
CONF_PREFIX = "set:hiveconf:"

# dbt-spark calls them types of anything.
_LOST_BY = cast("tuple[type[Exception], ...]", CONNECTION_LOST_EXCEPTIONS)

_FIXED = {
    # A full overwrite that keeps old partitions would be a wrong table; the server's default, or
    # the profile, may say so.
    "spark.sql.sources.partitionOverwriteMode": "static",
    # Spark puts settings, and its environment, in the place of `${...}` anywhere in a statement,
    # also within names and texts of data, and nothing where it knows none. dbt has Jinja for that.
    "spark.sql.variable.substitute": "false",
}


def base_settings(catalog: str, own: Mapping[str, str]) -> dict[str, str]:
    """The settings of each session of sparkwap, beside those of a run.

    :param catalog: the catalog's name in Spark.
    :param own: the profile's ``server_side_parameters``.
    """
    return {
        **own,
        **_FIXED,
        # Branches are made and moved beside Spark, and by other sessions: one that keeps a table
        # for 30 seconds would audit it as it was before. The server's default is to keep it, for
        # each session by itself, so each can do without.
        f"spark.sql.catalog.{catalog}.cache-enabled": "false",
    }


# The server wraps each error, and tells its class twice.
_WRAPPING = re.compile(
    r"org\.apache\.hive\.service\.cli\.HiveSQLException: (?:Error running query: )?"
    r"(?:\[[\w.]+\] [\w.$]+:\s+(?=\[))?"
)
_STACK_TRACE = re.compile(r"\n\s*at [\w.$]+\(|\n\tat |\n\nJVM stacktrace:")

LOST = (
    "The connection to Spark was lost in the middle of a statement, so nobody can say whether it "
    "took effect; it is not sent again. The run writes to its audit branch; if main has moved all "
    "the same, the summary at the end of the run says so. See `sparkwap server status` and "
    "`sparkwap server logs`, then go on with `dbt retry`."
)

CANCELLED = "Cancelled, as the command was interrupted."


def short_error(message: str) -> str:
    """A Spark error without what the server wraps it in, and the Java stack trace behind it."""
    if "StatusCode.UNAVAILABLE" in message:  # what gRPC says when Spark Connect is gone
        return LOST
    return redact(_WRAPPING.sub("", _STACK_TRACE.split(message, maxsplit=1)[0]).strip())


class ConnectCursor:
    """Runs SQL in a Spark Connect session, in the shape of a DB-API cursor."""

    def __init__(self, spark: GuardedSession | None) -> None:
        self._spark: Any = spark
        self._frame: Any = None

    def execute(self, sql: str) -> None:
        """Send a statement that has been checked."""
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
"""In the place of the cursor of a statement that was done though it ended with an error."""

Watch = Callable[[str], Callable[[], retry.Fate]]


def watch_nothing(sql: str) -> Callable[[], retry.Fate]:
    """For sessions outside of a run: nothing is sent again."""
    return lambda: "unknown"


class PooledHandle(SparkConnectionWrapper):
    """What dbt holds while a node runs: a borrowed session, given back by :meth:`close`.

    ``check`` is called with each statement before it is sent and may refuse it, ``check_request``
    likewise with what a Python model asks by Spark Connect; ``watch`` is called with a statement
    too, and returns what tells its fate after an error.
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
        # What undoes the changes of the session for SQL; the other one's gatekeeper keeps its own.
        self._undo: list[str] = []
        self._connect: GuardedSession | None = None
        self._cursor: Any = None
        self._broken = False
        self._cancelled = False

    # -- Spark Connect ---------------------------------------------------------------------------

    def connect_session(self) -> GuardedSession:
        """The Spark Connect session of this node; from now on its SQL runs there too."""
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
            look = self._watch(sql)
            tried += 1
            try:
                self._send(sql, bindings)
                return
            except Exception as error:
                if not self._passes(error, look, tried):
                    raise
            if self._cursor is DONE:
                return
            time.sleep(retry.wait_seconds(tried, random.random()))

    def _renew(self) -> None:
        """Go on in a new session, where the settings of the pool's sessions have changed."""
        if self._age == self._pool.age:
            return
        self.close()
        self._broken = False
        self._sql, self._age = self._pool.take()

    def _passes(self, error: Exception, look: Callable[[], retry.Fate], tried: int) -> bool:
        """Whether a statement that failed is done all the same, or may be sent again."""
        # The message for people has lost the class, which its cause still has.
        rule = retry.rule_of(error)
        if self._broken or rule in ("fail", "rebuild"):
            return False
        step = retry.step(rule, look(), tried)
        if step == "done":
            logger.info("sparkwap: the statement failed, but its snapshot is there; going on")
            self._cursor = DONE
        elif step == "send":
            logger.info(f"sparkwap: a conflict that passes ({rule}); sending the statement again")
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
        """End the statement that another thread waits for; this node sends no other one."""
        self._broken = self._cancelled = True
        if self._connect is not None:
            self._connect.interruptAll()
        else:
            self._sql.cancel()

    def rollback(self, *args: Any, **kwargs: Any) -> None:
        logger.debug("Spark has no transactions: nothing to roll back")

    def close(self) -> None:
        """Give the sessions back, without what the node has set in them."""
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
        """Undo what a node has changed in a session; whether it is now as it was opened."""
        try:
            for statement in undo_statements(changes, self._pool.settings):
                send(statement)
        except Exception as error:
            logger.debug(f"session not reused: {error}")
            return False
        return END_SESSION not in changes


class SessionPool:
    """Idle sessions of one dbt invocation; all of them carry the same settings.

    :param open_sql: opens a session for SQL with the settings that it is given.
    :param open_connect: opens a Spark Connect session likewise.
    :param settings: tells the settings; asked when the first session is opened, and when the first
        one is after :meth:`renew`.
    """

    def __init__(
        self,
        open_sql: Callable[[Mapping[str, str]], SparkConnectionWrapper],
        open_connect: Callable[[Mapping[str, str]], GuardedSession],
        settings: Callable[[], Mapping[str, str]],
    ) -> None:
        self._open_sql = open_sql
        self._open_connect = open_connect
        self._ask_settings = settings
        self._idle: list[SparkConnectionWrapper] = []
        self._idle_connect: list[GuardedSession] = []
        self._lock = threading.Lock()
        # How often the settings have changed; a session of another age is not used again.
        self.age = 0

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """What every session of this invocation is opened with."""
        return dict(self._ask_settings())

    def borrow(
        self,
        check: Callable[[str], None],
        watch: Watch = watch_nothing,
        check_request: Callable[[Any], None] = lambda request: None,
    ) -> PooledHandle:
        return PooledHandle(self, check, watch, check_request)

    def take(self) -> tuple[SparkConnectionWrapper, int]:
        """A session, idle or new, and its age."""
        with self._lock:
            wrapper, age = self._idle.pop() if self._idle else None, self.age
        return wrapper or self._open_sql(self.settings), age

    def renew(self) -> None:
        """Let all work from here on have new sessions, with the settings that are told then."""
        with self._lock:
            self.age += 1
        self.close()

    def give_back(self, wrapper: SparkConnectionWrapper, *, reusable: bool) -> None:
        if reusable:
            with self._lock:
                self._idle.append(wrapper)
            return
        try:
            wrapper.close()
        except Exception as error:
            logger.debug(f"broken session not closed: {error}")

    def borrow_connect(self) -> GuardedSession:
        with self._lock:
            session = self._idle_connect.pop() if self._idle_connect else None
        return session or self._open_connect(self.settings)

    def give_back_connect(self, session: GuardedSession, *, reusable: bool) -> None:
        if reusable:
            with self._lock:
                self._idle_connect.append(session)
        else:
            _stop(session)

    def close(self) -> None:
        """Close all idle sessions on the server."""
        with self._lock:
            idle, self._idle = self._idle, []
            connect, self._idle_connect = self._idle_connect, []
            # What is opened from here on belongs to no run, or to the next one.
            self.__dict__.pop("settings", None)
        for session in idle:
            try:
                session.close()
            except Exception as error:
                logger.debug(f"session not closed: {error}")
        for spark in connect:
            _stop(spark)


def _stop(session: GuardedSession) -> None:
    try:
        session.stop()
    except Exception as error:
        logger.debug(f"Connect session not closed: {error}")
