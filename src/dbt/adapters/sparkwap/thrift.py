"""Sessions of Spark's Thrift server that another thread may cancel."""

from __future__ import annotations

import threading
from typing import Any

from dbt.adapters.spark.connections import PyhiveConnectionWrapper
from dbt_common.exceptions import DbtDatabaseError
from TCLIService import ttypes

from dbt.adapters.sparkwap.sessions import CANCELLED, logger


class TurnTaking:
    """A Thrift client that two threads may call.

    One thread waits for a statement. dbt cancels the statement from another thread, and on a second
    interrupt closes the session from there. A lock gives each call the transport exclusively:
    two threads that read it at once wait forever, each for the other's reply. After :meth:`cancel`
    the waiting thread itself cancels its statement at its next status request, and sends no
    further statements. So an interrupt between two statements is not lost.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._turn = threading.RLock()
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def ExecuteStatement(self, request: Any) -> Any:  # noqa: N802 - a call of the protocol
        with self._turn:
            if self._cancelled:
                raise DbtDatabaseError(CANCELLED)
            return self._client.ExecuteStatement(request)

    def GetOperationStatus(self, request: Any) -> Any:  # noqa: N802 - a call of the protocol
        with self._turn:
            if self._cancelled:
                self._client.CancelOperation(ttypes.TCancelOperationReq(request.operationHandle))
            return self._client.GetOperationStatus(request)

    # Spark 3.5 describes a statement without a result by None, where PyHive expects a list.

    def GetResultSetMetadata(self, request: Any) -> Any:  # noqa: N802 - a call of the protocol
        with self._turn:
            reply = self._client.GetResultSetMetadata(request)
        if reply.schema is not None:
            reply.schema.columns = reply.schema.columns or []
        return reply

    def FetchResults(self, request: Any) -> Any:  # noqa: N802 - a call of the protocol
        with self._turn:
            reply = self._client.FetchResults(request)
        if reply.results is not None:
            reply.results.columns = reply.results.columns or []
        return reply

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def exclusive(*args: Any) -> Any:
            with self._turn:
                return call(*args)

        return exclusive


class ThriftSession(PyhiveConnectionWrapper):
    """A Thrift session that sends each statement once and frees its handle on the server."""

    def __init__(self, handle: Any, **options: Any) -> None:
        super().__init__(handle, **options)
        self._turns = handle._client = TurnTaking(handle._client)

    def cancel(self) -> None:
        self._turns.cancel()

    def cursor(self) -> ThriftSession:
        self._free()
        self._cursor = self.handle.cursor()
        return self

    def execute(self, sql: str, bindings: list[Any] | None = None) -> None:
        self._execute_with_polling(sql.strip().removesuffix(";"), bindings)

    def close(self) -> None:
        self._free()
        self.handle.close()

    def _free(self) -> None:
        if self._cursor is not None:
            try:
                self._cursor.close()
            except Exception as error:
                logger.debug(f"statement handle not freed: {error}")
            self._cursor = None
