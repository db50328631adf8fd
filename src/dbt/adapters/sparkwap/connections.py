"""dbt's connection manager with pooled Spark sessions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dbt.adapters.contracts.connection import Connection, ConnectionState
from dbt.adapters.exceptions.connection import FailedToConnectError
from dbt.adapters.spark.connections import (
    PyodbcConnectionWrapper,
    SparkConnectionManager,
    SparkConnectionWrapper,
)
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from dbt.adapters.sparkwap.credentials import SparkWapCredentials
from dbt.adapters.sparkwap.sessions import (
    CONF_PREFIX,
    PooledHandle,
    SessionPool,
    Watch,
    logger,
    watch_nothing,
)
from dbt.adapters.sparkwap.spark_errors import server_message
from dbt.adapters.sparkwap.thrift import ThriftSession, refusal, verified_transport
from sparkwap import server
from sparkwap.core import next_command
from sparkwap.core.errors import SparkwapError
from sparkwap.core.redaction import redact
from sparkwap.gate.net import Application

if TYPE_CHECKING:
    from multiprocessing.context import SpawnContext

    from dbt.adapters.contracts.connection import AdapterRequiredConfig

    from dbt.adapters.sparkwap.connect import GuardedSession

# A lost Connect call is tried four times, within five seconds.
CONNECT_RETRIES = 4


class SparkWapConnectionManager(SparkConnectionManager):
    TYPE = "sparkwap"

    def __init__(self, config: AdapterRequiredConfig, mp_context: SpawnContext) -> None:
        super().__init__(config, mp_context)
        self.project_root = str(getattr(config, "project_root", Path.cwd()))
        self._endpoint: server.Endpoint | None = None
        self._endpoint_lock = threading.Lock()
        # The adapter sets the settings of the sessions and the guard of the statements.
        self.session_settings: Callable[[], Mapping[str, str]] = dict
        self.pool = SessionPool(self.open_sql, self.open_connect, lambda: self.session_settings())
        self.check_statement: Callable[[str], None] = lambda sql: None
        self.check_request: Callable[[Any], None] = lambda request: None
        self.watch_statement: Watch = watch_nothing

    @property
    def credentials(self) -> SparkWapCredentials:
        return cast(SparkWapCredentials, self.profile.credentials)

    # -- dbt's protocol --------------------------------------------------------------------------

    def open(self, connection: Connection) -> Connection:  # type: ignore[override]
        """Lend a session of the pool to ``connection``."""
        if connection.state == ConnectionState.OPEN:
            return connection
        connection.handle = self.pool.borrow(
            self.check_statement, self.watch_statement, self.check_request
        )
        connection.state = ConnectionState.OPEN
        return connection

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        """Raise errors with their own message; dbt-spark would wrap errors of dbt once more."""
        try:
            yield
        except DbtRuntimeError:
            raise
        except Exception as error:
            logger.debug(f"Error while running:\n{sql}\n{error}")
            raise DbtDatabaseError(redact(server_message(error) or str(error))) from error

    def cleanup_all(self) -> None:
        super().cleanup_all()
        self.pool.close()

    def connect_session(self) -> GuardedSession:
        """Return the Spark Connect session of this thread's node."""
        handle = self.get_thread_connection().handle
        return cast(PooledHandle, handle).connect_session()

    # -- sessions --------------------------------------------------------------------------------

    def endpoint(self) -> server.Endpoint:
        """Return the embedded server, and start it if necessary."""
        with self._endpoint_lock:
            if self._endpoint is None:
                config = self.credentials.server_config(self.project_root)
                try:
                    self._endpoint = server.ensure(config, logger.info)
                    server.register_client(config.lake, os.getpid())
                except SparkwapError as error:
                    raise FailedToConnectError(str(error)) from error
            return self._endpoint

    def application(self, *, guarded: bool) -> Application | None:
        """Return the Spark application that runs this command's statements.

        Args:
            guarded: Whether the guard is on. It sends no write to a live table, so a snapshot
                there without a run's id is not taken for one of this run.
        """
        session = self.pool.borrow(lambda sql: None)
        try:
            session.execute("set spark.app.id")
            named = session.fetchall()
            marks = guarded
            if not guarded:
                session.execute("select version()")
                marks = not str(session.fetchall()[0][0]).startswith("3.")
        finally:
            session.close()
        return Application(str(named[0][1]), marks) if named else None

    def query_types(self, sql: str) -> list[tuple[str, str]]:
        """Return name and type of a query's columns."""
        # The Thrift protocol reports ARRAY_TYPE for every array, but contracts compare full types.
        _, cursor = self.add_select_query(f"describe query {sql}")
        return [(str(row[0]), str(row[1])) for row in cursor.fetchall()]

    def rows_of(self, statement: str) -> Sequence[Sequence[Any]]:
        """Run a statement in the session of this thread, and return its rows."""
        with self.exception_handler(statement):
            cursor = self.get_thread_connection().handle.cursor()
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def end_session_later(self) -> None:
        """Let no later node use the session of this thread."""
        self.get_thread_connection().handle.end_later()

    def open_sql(self, settings: Mapping[str, str]) -> SparkConnectionWrapper:
        """Open a session for SQL with these settings."""
        opener = self._open_embedded if self.credentials.embedded else self._open_remote
        wrapper: SparkConnectionWrapper = opener(settings)
        logger.debug(f"session opened with settings of {', '.join(settings)}")
        return wrapper

    def _open_embedded(self, settings: Mapping[str, str]) -> ThriftSession:
        from pyhive import hive

        endpoint = self.endpoint()
        try:
            handle = hive.connect(
                host=endpoint.host,
                port=endpoint.thrift_port,
                username=self.credentials.user,
                auth="NONE",
                configuration={CONF_PREFIX + key: value for key, value in settings.items()},
            )
        except Exception as error:
            layout = self.credentials.server_config(self.project_root).layout
            raise FailedToConnectError(
                f"The Spark server of this lake (pid {endpoint.pid}, port {endpoint.thrift_port}) "
                f"does not answer: {redact(str(error))}. Nothing was run. See "
                f"`{layout.command('status')}` and `{layout.command('logs')}`. To start a new "
                f"server, run `{layout.command('stop')}` and repeat the command."
            ) from error
        return self._thrift(handle)

    def _open_remote(self, settings: Mapping[str, str]) -> SparkConnectionWrapper:
        """Let dbt-spark open the session, with settings that the server does not ignore."""
        creds = self.credentials
        prefix = CONF_PREFIX if str(creds.method) in ("thrift", "http") else ""
        parameters = {prefix + key: value for key, value in settings.items()}
        shell = Connection(
            type="spark",  # type: ignore[arg-type]
            name="pool",
            state=ConnectionState.INIT,
            transaction_open=False,
            handle=None,
            credentials=creds.replace(server_side_parameters=parameters),
        )
        thrift = str(creds.method) == "thrift"
        try:
            if thrift and creds.ssl_ca:
                from pyhive import hive

                transport = verified_transport(creds)
                return self._thrift(
                    hive.connect(thrift_transport=transport, configuration=parameters)
                )
            handle = SparkConnectionManager.open(shell).handle
        except Exception as error:
            if not thrift:
                raise
            raise FailedToConnectError(refusal(creds, error)) from error
        if isinstance(handle, PyodbcConnectionWrapper) or not hasattr(handle, "poll_interval"):
            return cast(SparkConnectionWrapper, handle)
        return self._thrift(handle.handle)

    def _thrift(self, handle: Any) -> ThriftSession:
        creds = self.credentials
        return ThriftSession(
            handle,
            poll_interval=creds.poll_interval,
            query_timeout=creds.query_timeout,
            query_retries=0,
        )

    def open_connect(self, settings: Mapping[str, str]) -> GuardedSession:
        """Open a Spark Connect session with these settings."""
        creds = self.credentials
        url = self.endpoint().connect_url if creds.embedded else creds.connect_url
        if not url:
            raise DbtRuntimeError(
                "Python models need Spark Connect, but the profile has no endpoint. The model was "
                "not run. Set `connect_url: sc://host:port` beside `host`."
            )
        # Without this variable, functions of pyspark.sql need a SparkContext in this process.
        os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")
        try:
            import pyspark
            from pyspark.sql.connect.client.retries import DefaultPolicy

            from dbt.adapters.sparkwap.connect import GuardedSession, connect_refusal
            from sparkwap.gate.doctor import client_problem
        except ImportError as error:
            raise DbtRuntimeError(
                "Python models need the Spark Connect client of Spark 4.0 or later, which is not "
                f"installed ({error}). The model was not run. "
                f"Run: {next_command.install('connect')}"
            ) from error
        spark = GuardedSession(url)
        where = f"Spark Connect at {url.partition(';')[0].rstrip('/')}"
        # By default, the client retries each call of a dead server for ten minutes.
        spark.client.set_retry_policies([DefaultPolicy(max_retries=CONNECT_RETRIES)])
        with spark.gatekeeper.trusting():
            try:
                version = spark.version
            except Exception as error:
                raise DbtRuntimeError(f"{where} {connect_refusal(error)}") from error
            problem = None if creds.embedded else client_problem(version, pyspark.__version__)
            if problem:
                spark.stop()
                raise DbtRuntimeError(f"{problem} The model was not run.")
            for key, value in settings.items():
                try:
                    spark.conf.set(key, value)
                except Exception as error:
                    if "CANNOT_MODIFY" not in str(error):
                        raise
                    logger.debug(f"{key} is fixed when Spark starts")
        return spark
