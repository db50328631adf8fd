"""Mail over TLS, with a certificate that openssl makes."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime

import pytest
from helpers.endpoints import MailServer, mail_server

from sparkwap.alerts.model import Event, Message
from sparkwap.alerts.send import Delivery, deliver
from sparkwap.gate.alert_settings import parse


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that nobody has signed, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    found = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x",
         "-addext", "subjectAltName=IP:127.0.0.1", "-out", found[0], "-keyout", found[1]],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return found


def send(server: MailServer) -> list[Delivery]:
    given = {
        "name": "r",
        "type": "email",
        "host": "127.0.0.1",
        "port": server.port,
        "security": "starttls",
        "user": "dbt",
        "password": "{{ env_var('PW') }}",
        "from": "dbt@example.com",
        "to": ["data@example.com"],
    }
    event = Event(
        kind="rejected", subject="shop.orders", run_id="r1", at=datetime.now(UTC), branch="b"
    )
    message = Message(route="r", events=(event,), run_id="r1", target="prod", owners=())
    return deliver([message], {"r": parse({"routes": [given]}).routes[0]}, timeout=5, tries=4)


def test_starttls_and_login(certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "correct horse")
    with mail_server(certificate) as server:
        (done,) = send(server)
        assert done.problem == "the mail server's TLS cannot be verified"
        assert (done.tries, server.logins) == (1, [])
        monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
        (done,) = send(server)
        assert (done.problem, len(server.received)) == ("", 1)
        assert server.logins == [("dbt", "correct horse")]
        monkeypatch.setenv("PW", "wrong wrong wrong")
        (done,) = send(server)
        assert done.problem == "the mail server refused user and password"
        assert done.tries == 1
