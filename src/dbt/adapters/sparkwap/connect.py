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
        return continuation(details, request)

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
