"""Sessions of Spark's Thrift server, which another thread may cancel."""

from __future__ import annotations

import threading
from typing import Any

from dbt.adapters.spark.connections import PyhiveConnectionWrapper
from dbt_common.exceptions import DbtDatabaseError
from TCLIService import ttypes

from dbt.adapters.sparkwap.sessions import CANCELLED, logger


class TurnTaking:
    """A Thrift client that two threads may call: dbt cancels a statement, and on a second interrupt
    closes the session, from another thread than the one that waits for the statement.

    Each call has the transport for itself, as two threads that read it wait for ever for what the
    other one got. After :meth:`cancel` the thread that waits has its statement cancelled when it
    asks for its state, and can send no other one; so there is no moment between two statements at
    which an interrupt is lost.
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

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def in_turn(*args: Any) -> Any:
            with self._turn:
                return call(*args)

        return in_turn


class ThriftSession(PyhiveConnectionWrapper):
    """One Thrift session. A statement is sent once, and its handle on the server is freed."""

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
