"""Servers on loopback that take alerts: HTTP endpoints that answer as told, a mail server."""

from __future__ import annotations

import asyncio
import email
import email.policy
import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass
class Received:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Endpoint:
    """A webhook.

    Attributes:
        url: its address; the path is the secret of it.
        answers: status codes of the next requests, 200 after them; a number of seconds that is
            negative is slept before an answer of 200.
        received: what came.
        headers: sent with each answer.
    """

    url: str
    answers: list[float] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.received.append(Received(self.path, dict(self.headers), body))
            answer = found.answers.pop(0) if found.answers else 200
            if answer < 0:
                time.sleep(-answer)
                answer = 200
            self.send_response(int(answer))
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Endpoint(f"http://127.0.0.1:{server.server_port}/services/T0SECRETPATH")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


def dead_address() -> str:
    """An address of loopback on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/services/T0SECRETPATH"


@dataclass
class MailServer:
    """A mail server.

    Attributes:
        port: where it listens.
        answers: what it says to the next mails instead of taking them, such as ``451 later``.
        received: the mails that it took.
        recipients: of each of them.
        logins: user and password of each login.
        late: seconds until it says that it has taken a mail.
    """

    port: int = 0
    answers: list[str] = field(default_factory=list)
    received: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)
    late: float = 0.0

    async def handle_DATA(self, _: SMTP, __: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.answers:
            return self.answers.pop(0)
        content = cast(bytes, envelope.content)
        parsed = email.message_from_bytes(content, policy=email.policy.default)
        self.received.append(cast(EmailMessage, parsed))
        self.recipients.append(list(envelope.rcpt_tos))
        await asyncio.sleep(self.late)
        return "250 taken"

    def authenticate(self, _: Any, __: Any, ___: Any, ____: Any, given: Any) -> AuthResult:
        login = cast(LoginPassword, given)
        self.logins.append((login.login.decode(), login.password.decode()))
        return AuthResult(success=login.password == b"correct horse", handled=False)


class _AnyPort(Controller):
    """Takes a free port; it asks its own port whether it is up, so it has to know it by then."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextmanager
def mail_server(certificate: tuple[str, str] | None = None, **more: Any) -> Iterator[MailServer]:
    """A mail server; with a certificate (file, key) it wants STARTTLS and a login."""
    found = MailServer()
    secured: dict[str, Any] = {}
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        secured = {
            "tls_context": context,
            "require_starttls": True,
            "auth_required": True,
            "authenticator": found.authenticate,
        }
    controller = _AnyPort(found, hostname="127.0.0.1", port=0, **{**secured, **more})
    controller.start()
    try:
        found.port = controller.port
        yield found
    finally:
        controller.stop()
