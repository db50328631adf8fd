"""Spark Connect sessions of Python models, each with a guard on its channel.

What a model asks goes by the channel, however it got at it: `session`, `spark`, the active session,
a frame's own session, the client, its stub. A client that a model makes by itself has a channel of
its own, and so has what it starts in other processes: the guard does not see those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from dbt_common.exceptions import DbtRuntimeError
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession as ConnectSession

from sparkwap.core.errors import GateError
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
    """Sees each request of a session before it is sent.

    Attributes:
        check: called with a request, and may refuse it; None while the session is nobody's.
        changes: what undoes the changes that requests have made.
    """

    def __init__(self) -> None:
        self.check: Check | None = None
        self.changes: list[str] = []
        self._trusted = threading.local()
        self._unanswered = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Gatekeeper:
        # PySpark copies the channel's builder for a clone of a session.
        return self

    @contextmanager
    def trusting(self) -> Iterator[None]:
        """Let requests of this thread pass: the adapter's own, whose SQL was checked already."""
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
        """Ask the server to let go of results or of the session, within a limit.

        PySpark asks in other threads, and waits for all of them when it stops a session: without a
        limit for each request, and it asks again for ten minutes where the server is gone. What is
        not released the server lets go of by itself, later.
        """
        if not self._unanswered or request.DESCRIPTOR.name == "ReleaseSessionRequest":
            call = continuation(details._replace(timeout=_RELEASE_SECONDS), request)
            error = call.exception()
            if not isinstance(error, grpc.Call) or error.code() not in _NO_ANSWER:
                return call
            self._unanswered = True
        # An error of gRPC's would be asked again.
        raise GateError(f"Spark has not answered a {request.DESCRIPTOR.name}.")

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        self._pass(request)
        return continuation(details, request)

    def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        # Read here: what fails in the thread that sends is told as a call that was cancelled.
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
                "The session of a Python model was used after its node had ended. Nothing was sent "
                "to Spark. Do all work within model()."
            )
        try:
            self.check(request)
        except DbtRuntimeError as error:
            raise GateError(str(error.msg)) from error
        self.changes += connect_guard.changes(request)


class GuardedSession(ConnectSession):
    """A Spark Connect session whose requests pass a :class:`Gatekeeper` first.

    Opened by its constructor, so that it is not the default session of other threads.
    """

    def __init__(self, url: str) -> None:
        channel, self.gatekeeper = DefaultChannelBuilder(url), Gatekeeper()
        channel.add_interceptor(self.gatekeeper)
        super().__init__(channel)


_QUIET = frozenset({"create_dataframe_view", "register_function", "checkpoint_command"})


def statement_of(request: connect_guard.Message) -> str | None:
    """A request of Spark Connect as a statement; None where it can change nothing but a frame.

    SQL is given as it is, a write by what it does and to which table, a change of settings as
    ``set`` with their names.
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
