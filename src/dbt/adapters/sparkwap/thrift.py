"""Sessions of Spark's Thrift server that another thread may cancel."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

from dbt.adapters.spark.connections import PyhiveConnectionWrapper
from dbt_common.exceptions import DbtDatabaseError
from TCLIService import ttypes
from thrift.transport.TSSLSocket import TSSLSocket
from thrift.transport.TTransport import TBufferedTransport

from dbt.adapters.sparkwap.sessions import logger
from dbt.adapters.sparkwap.spark_errors import CANCELLED, short_error

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.credentials import SparkWapCredentials

_SYSTEM = "system"
"""Of ``ssl_ca``: the certificate authorities of this machine."""


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

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def exclusive(*args: Any) -> Any:
            with self._turn:
                reply = call(*args)
            # Spark 3.5 describes a statement without a result by None, where PyHive expects a list.
            for part in (getattr(reply, "schema", None), getattr(reply, "results", None)):
                if part is not None:
                    part.columns = part.columns or []
            return reply

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


class VerifiedSocket(TSSLSocket):
    """A TLS socket whose errors have their reason; Thrift's only logs why it does not connect."""

    def open(self) -> None:
        plain = socket.create_connection((self.host, self.port))
        self.setHandle(self.ssl_context.wrap_socket(plain, server_hostname=self.host))


def verified_transport(creds: SparkWapCredentials) -> Any:
    """Return a TLS transport that checks name and certificate of the server.

    dbt-spark's own checks neither, so anybody between could read the password.
    """
    import thrift_sasl
    from pyhive.hive import get_installed_sasl

    authority = None if creds.ssl_ca == _SYSTEM else creds.ssl_ca
    context = ssl.create_default_context(cafile=authority)
    connection = VerifiedSocket(creds.host, creds.port, ssl_context=context)
    if creds.auth == "NOSASL":
        return TBufferedTransport(connection)
    mechanism = "GSSAPI" if creds.auth == "KERBEROS" else "PLAIN"

    def client() -> Any:
        return get_installed_sasl(
            host=creds.host,
            sasl_auth=mechanism,
            service=creds.kerberos_service_name,
            username=creds.user,
            password=creds.password or "x",  # it must not be empty
        )

    return thrift_sasl.TSaslClientTransport(client, mechanism, connection)


def refusal(creds: SparkWapCredentials, error: BaseException) -> str:
    """Return why a server of the user's own has opened no session, and what to check."""
    cause = error.__cause__ or error
    if isinstance(cause, AttributeError) and cause.__context__:
        cause = cause.__context__  # PyHive has closed a socket that never opened
    reason, server = short_error(str(cause)) or type(cause).__name__, f"{creds.host}:{creds.port}"
    if "Error validating the login" in reason:
        return (
            f"The Spark server {server} refuses the login of {creds.user} (auth: "
            f"{creds.auth or 'NONE'}). The statement was not sent. Check `user`, `password` and "
            "`auth` in the profile; `auth` is the server's hive.server2.authentication."
        )
    if isinstance(cause, ssl.SSLCertVerificationError):
        advice = "Check `host` and `ssl_ca` in the profile."
    elif creds.use_ssl:
        advice = "Check `host` and `port` in the profile, and that the server has TLS (`use_ssl`)."
    else:
        advice = (
            "Check `host`, `port` and `auth` in the profile. A server with TLS closes connections "
            "without it: set `use_ssl: true`."
        )
    return (
        f"The Spark server {server} opens no session: {reason.rstrip('.')}. The statement was not "
        f"sent. {advice}"
    )
