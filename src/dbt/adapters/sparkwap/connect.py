"""Spark Connect sessions of Python models, with a guard on the gRPC channel.

All requests of a model pass the channel, whether through `session`, `spark`, the active session, a
frame's session, the client or its stub. A client that a model creates itself, and other processes
that it starts, have other channels, which the guard does not see.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from dbt_common.exceptions import DbtRuntimeError
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession as ConnectSession

from sparkwap.core.errors import GateError
from sparkwap.core.redaction import redact
from sparkwap.gate import connect_guard

Check = Callable[[connect_guard.Message], None]

_RELEASE_SECONDS = 10.0
_RELEASES = frozenset({"ReleaseExecuteRequest", "ReleaseSessionRequest"})
_NO_ANSWER = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)


class Gatekeeper(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
):
    """Checks each request of a session before it is sent.

    Attributes:
        check: Called with a request; raises to refuse it. None while no node uses the session.
        changes: The changes of the session by requests, to undo them.
    """

    def __init__(self) -> None:
        self.check: Check | None = None
        self.changes: list[str] = []
        self._trusted = threading.local()
        self._unanswered = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Gatekeeper:
        # PySpark copies the channel's builder when it clones a session.
        return self

    @contextmanager
    def trusting(self) -> Iterator[None]:
        """Let requests of this thread pass: those of the adapter, whose SQL is checked already."""
        self._trusted.on = True
        try:
            yield
        finally:
            self._trusted.on = False

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        self._pass(request)
        if request.DESCRIPTOR.name in _RELEASES:
            return self._release(continuation, details, request)
        return continuation(details, request)

    def _release(self, continuation: Any, details: Any, request: connect_guard.Message) -> Any:
        """Request the release of results or of the session, with a timeout.

        PySpark sends these requests in other threads without a timeout, and waits for all of them
        when it stops a session. If the server is gone, it retries for ten minutes. The server
        itself releases the rest later.
        """
        if not self._unanswered or request.DESCRIPTOR.name == "ReleaseSessionRequest":
            call = continuation(details._replace(timeout=_RELEASE_SECONDS), request)
            error = call.exception()
            if not isinstance(error, grpc.Call) or error.code() not in _NO_ANSWER:
                return call
            self._unanswered = True
        # PySpark would retry after a gRPC error.
        raise GateError(f"Spark did not answer a {request.DESCRIPTOR.name}.")

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        self._pass(request)
        return continuation(details, request)

    def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        # Read here, because gRPC reports an error of its sending thread as a cancelled call.
        read = list(requests)
        for request in read:
            self._pass(request)
        return continuation(details, iter(read))

    def _pass(self, request: connect_guard.Message) -> None:
        if getattr(self._trusted, "on", False):
            return
        if self.check is None:
            if request.DESCRIPTOR.name in connect_guard.HARMLESS_REQUESTS:
                return
            raise GateError(
                "The session of a Python model was used after the end of its node. Nothing was "
                "sent to Spark. Finish all work within model()."
            )
        try:
            self.check(request)
        except DbtRuntimeError as error:
            raise GateError(str(error.msg)) from error
        self.changes += connect_guard.changes(request)


class GuardedSession(ConnectSession):
    """A Spark Connect session whose requests a :class:`Gatekeeper` checks first.

    Its constructor opens it, so that it does not become the default session of other threads.
    """

    def __init__(self, url: str) -> None:
        channel, self.gatekeeper = DefaultChannelBuilder(url), Gatekeeper()
        channel.add_interceptor(self.gatekeeper)
        super().__init__(channel)

    def __del__(self) -> None:
        # PySpark's closes the client, also that of a session that is closed, and so ends the thread
        # pool of all sessions. In one of its threads, it would wait for itself while it holds a
        # lock that all statements need. The adapter closes its sessions itself.
        pass


_QUIET = frozenset({"create_dataframe_view", "register_function", "checkpoint_command"})


def statement_of(request: connect_guard.Message) -> str | None:
    """Return a Spark Connect request as a statement; None if it can change only a frame.

    SQL is returned unchanged, a write as ``insert into`` or ``create or replace`` of its table, a
    change of settings as ``set`` with their names.
    """
    kind = request.DESCRIPTOR.name
    if kind == "ExecutePlanRequest" and request.plan.HasField("command"):
        return _command(request.plan.command)
    if kind == "ConfigRequest":
        operation = request.operation
        keys = [*(pair.key for pair in operation.set.pairs), *operation.unset.keys]
        return f"set {' '.join(keys)}" if keys else None
    return None


def _command(command: Any) -> str | None:
    kind = command.WhichOneof("command_type")
    if kind in _QUIET:
        return None
    if kind == "sql_command":
        given = command.sql_command
        return str(given.input.sql.query or given.sql)
    if kind == "write_operation":
        return f"insert into {command.write_operation.table.table_name}"
    if kind == "write_operation_v2":
        operation = command.write_operation_v2
        creates = operation.mode in (
            operation.MODE_CREATE,
            operation.MODE_REPLACE,
            operation.MODE_CREATE_OR_REPLACE,
        )
        verb = "create or replace table" if creates else "insert into"
        return f"{verb} {operation.table_name}"
    return str(command)


def connect_refusal(error: Exception) -> str:
    """Return why an endpoint has opened no session, and what to check."""
    found = re.search(r'details = "(.*)"', str(error))
    reason = redact((found[1] if found else str(error)).strip().rstrip("."))
    if "UNAUTHENTICATED" in str(error):
        advice = "Check the token of `connect_url` in the profile: sc://host:port/;token=..."
        return f"refuses the token: {reason}. The model was not run. {advice}"
    return (
        f"opens no session: {reason}. The model was not run. Check `connect_url` in the profile. "
        "With use_ssl=true, and with a token for another host than localhost, the client uses "
        "TLS: Spark itself has none, so a proxy in front of it must take it."
    )
