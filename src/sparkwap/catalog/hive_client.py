"""Connections to a Hive metastore, its table locks, and PyIceberg's catalog of it.

Importing this module needs the package ``thrift``, which `sparkwap.catalog.hive_metastore` checks.
"""

from __future__ import annotations

import getpass
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlparse

from hive_metastore import ThriftHiveMetastore, ttypes
from hive_metastore.ttypes import Table
from pyiceberg.catalog.hive import (
    HIVE_KERBEROS_AUTH,
    HIVE_KERBEROS_SERVICE_NAME,
    HIVE_KERBEROS_SERVICE_NAME_DEFAULT,
    HiveCatalog,
    _HiveClient,
)
from pyiceberg.io import PY_IO_IMPL
from thrift.protocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport import TSocket, TTransport

from sparkwap.catalog.files import FILE_IO
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Conflict
from sparkwap.core.errors import CatalogError
from sparkwap.core.text import first_line

R = TypeVar("R")

BROKEN = (TTransport.TTransportException, OSError, EOFError)
"""Errors after which a connection cannot be used any more."""

FAILED = (TException, *BROKEN)
"""All errors of the Thrift client."""

LOCK_SECONDS = 180.0
"""The longest wait for the lock of a table; Iceberg waits as long."""

_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 300
# A load balancer may forget a connection that rests.
_IDLE_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
_OWN_LOCKS = 64
_DEFAULT_PORT = 9083


class Client(ThriftHiveMetastore.Client):  # type: ignore[misc]
    """A client whose requests Hive 2.3 and later know; Hive 4 has lost two that PyIceberg sends."""

    def get_table(self, dbname: str, tbl_name: str) -> Table:
        """Return an entry."""
        request = ttypes.GetTableRequest(dbname, tbl_name, ttypes.ClientCapabilities([]))
        return self.get_table_req(request).table

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[Table]:
        """Return the entries that exist."""
        request = ttypes.GetTablesRequest(dbname, tbl_names, ttypes.ClientCapabilities([]))
        return list(self.get_table_objects_by_name_req(request).tables)


class Connections:
    """A pool of connections to a metastore; safe for use by several threads.

    Args:
        properties: PyIceberg's catalog properties: ``uri`` (several, separated by commas, are
            tried in order), ``ugi``, ``hive.kerberos-authentication``,
            ``hive.kerberos-service-name``.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.uris = [uri.strip() for uri in properties["uri"].split(",") if uri.strip()]
        self._ugi = (properties.get("ugi") or "").split(":") if properties.get("ugi") else []
        self._kerberos = properties.get(HIVE_KERBEROS_AUTH, "false").lower() == "true"
        self._service = properties.get(
            HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT
        )
        self._idle: list[tuple[float, Any, Client]] = []
        self._lock = threading.Lock()
        self._own = [threading.RLock() for _ in range(_OWN_LOCKS)]

    def read(self, function: Callable[[Client], R]) -> R:
        """Return the answer to requests that change nothing; they are repeated once."""
        try:
            return self.use(function)
        except BROKEN:
            self.close()
        try:
            return self.use(function)
        except BROKEN as error:
            raise self.silent(error) from error

    # These are no context managers of contextlib: it sets the traceback of exceptions, and those of
    # the Thrift client are immutable.

    def use(self, function: Callable[[Client], R]) -> R:
        """Call a function with a client that no other thread uses."""
        transport, client = self._take()
        try:
            result = function(client)
        except BaseException as error:
            if isinstance(error, (TException, Conflict)) and not isinstance(error, BROKEN):
                self._give(transport, client)
            else:
                transport.close()  # an answer may still be on its way
            raise
        self._give(transport, client)
        return result

    def locked(self, client: Client, identifier: Identifier, function: Callable[[], R]) -> R:
        """Call a function under the lock of a table, which Iceberg's writers take to commit.

        Raises:
            CatalogError: The lock is not free, or the metastore has no locks; nothing was changed.
        """
        # Threads of one process need not wait for each other in the metastore.
        with self._own[hash(identifier) % len(self._own)]:
            return self._locked(client, identifier, function)

    def _locked(self, client: Client, identifier: Identifier, function: Callable[[], R]) -> R:
        name = ".".join(identifier)
        request = ttypes.LockRequest(
            component=[
                ttypes.LockComponent(ttypes.LockType.EXCLUSIVE, ttypes.LockLevel.TABLE, *identifier)
            ],
            user=user(),
            hostname=socket.gethostname(),
            agentInfo=f"sparkwap-{uuid.uuid4()}",
        )
        try:
            answer = client.lock(request)
        except BROKEN as error:
            self._unlock_by_agent(identifier, request.agentInfo)
            raise self.silent(error) from error
        except TException as error:
            raise CatalogError(
                f"The Hive metastore {self.shown} gave no lock for {name}: {said(error)}. Nothing "
                "was changed. If it has no tables for locks, set `hive.lock-enabled: false` in "
                "`catalog` of the profile, and `iceberg.engine.hive.lock-enabled` for all engines; "
                "that needs Hive 4."
            ) from error
        try:
            self._wait(client, answer.lockid, answer.state, name)
            return function()
        finally:
            self._unlock(client, answer.lockid)

    def _wait(self, client: Client, lock_id: int, state: int, name: str) -> None:
        end = time.monotonic() + LOCK_SECONDS
        pause = _FIRST_PAUSE
        while state != ttypes.LockState.ACQUIRED:
            if state != ttypes.LockState.WAITING or time.monotonic() > end:
                raise CatalogError(
                    f"The lock of {name} in the Hive metastore was not free for "
                    f"{LOCK_SECONDS:.0f} seconds. Nothing was changed. Another writer holds it; "
                    "one that died loses it after `hive.txn.timeout` (five minutes). Then run the "
                    "same command again."
                )
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            try:
                state = client.check_lock(ttypes.CheckLockRequest(lockid=lock_id)).state
            except BROKEN as error:
                raise self.silent(error) from error
            except TException as error:
                raise self.refused(error, f"the lock of {name}") from error

    def _unlock(self, client: Client, lock_id: int) -> None:
        """Release a lock; one that stays ends by itself."""
        try:
            client.unlock(ttypes.UnlockRequest(lock_id))
        except BROKEN:
            self._try(lambda other: other.unlock(ttypes.UnlockRequest(lock_id)))
        except TException:
            pass

    def _unlock_by_agent(self, identifier: Identifier, agent: str) -> None:
        """Release a lock whose number is not known, because the answer was lost."""

        def unlock(client: Client) -> None:
            schema, name = identifier
            for one in client.show_locks(
                ttypes.ShowLocksRequest(dbname=schema, tablename=name)
            ).locks:
                if one.agentInfo == agent:
                    client.unlock(ttypes.UnlockRequest(one.lockid))

        self._try(unlock)

    def _try(self, function: Callable[[Client], object]) -> None:
        try:
            self.use(function)
        except (CatalogError, *FAILED):
            pass

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, transport, _ in idle:
            transport.close()

    @property
    def shown(self) -> str:
        """The addresses, for messages."""
        return ", ".join(self.uris)

    def silent(self, error: BaseException) -> CatalogError:
        """Return the error of a metastore that does not answer."""
        return CatalogError(
            f"The Hive metastore {self.shown} does not answer ({said(error)}). Nothing was "
            "changed. Check it, then run the same command again."
        )

    def refused(self, error: BaseException, what: str) -> CatalogError:
        """Return the error of a request that the metastore refuses."""
        return CatalogError(
            f"The Hive metastore {self.shown} refused a request ({what}): {said(error)}. This "
            "request changed nothing. Check `catalog` of the profile and the rights in Hive."
        )

    def _take(self) -> tuple[Any, Client]:
        with self._lock:
            idle, self._idle = self._idle, []
            now = time.monotonic()
            usable = [one for one in idle if now - one[0] < _IDLE_SECONDS]
            found = usable.pop() if usable else None
            self._idle = usable
        for one in idle:
            if one is not found and one not in usable:
                one[1].close()
        # This notices that the metastore has closed the connection.
        if found is not None and found[1].isOpen():
            return found[1], found[2]
        return self._open()

    def _give(self, transport: Any, client: Client) -> None:
        with self._lock:
            self._idle.append((time.monotonic(), transport, client))

    def _open(self) -> tuple[Any, Client]:
        errors: list[BaseException] = []
        for uri in self.uris:
            try:
                return self._connect(uri)
            except FAILED as error:
                errors.append(error)
        raise self.silent(errors[0]) from errors[0]

    def _connect(self, uri: str) -> tuple[Any, Client]:
        address = urlparse(uri)
        connection = TSocket.TSocket(address.hostname, address.port or _DEFAULT_PORT)
        connection.setTimeout(_CONNECT_SECONDS * 1000)
        if self._kerberos:
            transport = TTransport.TSaslClientTransport(
                connection, host=address.hostname, service=self._service
            )
        else:
            transport = TTransport.TBufferedTransport(connection)
        transport.open()
        connection.setTimeout(_ANSWER_SECONDS * 1000)
        client = Client(TBinaryProtocol.TBinaryProtocol(transport))
        if self._ugi:
            client.set_ugi(self._ugi[0], self._ugi[1:])
        return transport, client


class Hive4Catalog(HiveCatalog):
    """PyIceberg's catalog, with requests that Hive 4 knows too. One thread may use it at a time."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **{PY_IO_IMPL: FILE_IO, **properties})

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        return _PyIcebergClient(Connections(properties))


class _PyIcebergClient(_HiveClient):
    """Opens a connection for each operation, as PyIceberg's own does."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def __enter__(self) -> Client:
        self._transport, client = self._connections._open()
        return client


def said(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return first_line(str(getattr(error, "message", None) or error)) or type(error).__name__


def user() -> str:
    """Return the name of the user, for owners and locks."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "sparkwap"
