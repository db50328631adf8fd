"""Delivery to real servers: formats, tries, time limits, and no secrets in error texts."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from helpers.endpoints import Endpoint, MailServer, dead_address, endpoint, mail_server

from sparkwap.alerts import render
from sparkwap.alerts import send as send_module
from sparkwap.alerts.model import Message
from sparkwap.alerts.send import Delivery, deliver, secrets_of
from sparkwap.core.redaction import redact
from sparkwap.gate.alert_settings import Chat, Route, Value, Webhook, parse

from .conftest import message

SECRET = "T0SECRETPATH"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkwap.alerts.send._FIRST_WAIT", 0.02)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def send(
    *messages: Message, routes: dict[str, Route], timeout: float = 5, tries: int = 4
) -> list[Delivery]:
    return deliver(list(messages), routes, timeout=timeout, tries=tries)


def web(
    monkeypatch: pytest.MonkeyPatch, url: str, kind: str = "webhook", **more: Any
) -> dict[str, Route]:
    monkeypatch.setenv("HOOK", url)
    route = {"name": "r", "type": kind, "url": "{{ env_var('HOOK') }}", **more}
    return {"r": parse({"routes": [route]}).routes[0]}


class TestHttp:
    @pytest.mark.parametrize("kind", ["slack", "teams", "webhook"])
    def test_each_type_sends_its_body(
        self, hook: Endpoint, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        given = message()
        (done,) = send(given, routes=web(monkeypatch, hook.url, kind))
        assert (done.problem, done.tries) == ("", 1)
        (request,) = hook.received
        assert request.body == getattr(render, kind)(given)
        assert request.headers["Content-Type"].startswith("application/json")
        assert (request.headers.get(render.MESSAGE_ID) == given.message_id) == (kind == "webhook")

    def test_a_webhook_with_a_key_is_signed(
        self, hook: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KEY", "a long key")
        send(message(), routes=web(monkeypatch, hook.url, secret=Value(variable="KEY")))
        (request,) = hook.received
        given = request.headers[render.SIGNATURE]
        at = int(given.partition(",")[0].removeprefix("t="))
        assert abs(at - time.time()) < 60
        assert given == render.signature(request.body, "a long key", at)

    @pytest.mark.parametrize("answers", [[500], [503, 429, 502], [202], [204]])
    def test_a_temporary_error_is_tried_again(
        self, hook: Endpoint, monkeypatch: pytest.MonkeyPatch, answers: list[float]
    ) -> None:
        hook.answers = list(answers)
        again = [code for code in answers if code >= 300]
        (done,) = send(message(), routes=web(monkeypatch, hook.url))
        assert (done.problem, done.tries) == ("", len(again) + 1)
        # The id is the same in each try, so the receiver can recognize the message.
        assert len({request.json["id"] for request in hook.received}) == 1
        assert len(hook.received) == len(again) + 1

    @pytest.mark.parametrize("code", [301, 307, 400, 401, 403, 404, 410])
    def test_a_permanent_error_is_not_tried_again(
        self, hook: Endpoint, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        hook.answers, hook.headers = [code] * 9, {"Location": hook.url + "/elsewhere"}
        (done,) = send(message(), routes=web(monkeypatch, hook.url))
        assert (done.problem, done.tries) == (f"it answered {code}", 1)
        assert len(hook.received) == 1

    def test_the_last_try_ends_the_delivery(
        self, hook: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hook.answers = [500] * 9
        (done,) = send(message(), routes=web(monkeypatch, hook.url), tries=3)
        assert (done.problem, done.tries, len(hook.received)) == ("it answered 500", 3, 3)

    def test_a_delivery_waits_as_long_as_retry_after_says(
        self, hook: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hook.answers, hook.headers = [429], {"Retry-After": "1"}
        began = time.monotonic()
        (done,) = send(message(), routes=web(monkeypatch, hook.url))
        assert (done.problem, done.tries) == ("", 2)
        assert time.monotonic() - began >= 1
        later = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
        hook.answers, hook.headers = [429], {"Retry-After": later}
        began = time.monotonic()
        (done,) = send(message(), routes=web(monkeypatch, hook.url))
        assert (done.problem, time.monotonic() - began > 0.5) == ("", True)
        hook.answers, hook.headers = [429], {"Retry-After": "3600"}
        (done,) = send(message(), routes=web(monkeypatch, hook.url), timeout=1)
        assert done.problem == "it answered 429"

    def test_a_slow_endpoint_gets_a_message_once(
        self, hook: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sparkwap.alerts.send._CONNECT_SECONDS", 0.3)
        hook.answers = [-1]
        (done,) = send(message(), routes=web(monkeypatch, hook.url))
        assert (done.problem, done.doubt, done.tries) == ("", "", 1)
        hook.answers = [-5]
        (done,) = send(message(), routes=web(monkeypatch, hook.url), timeout=1)
        assert (done.problem, done.tries, len(hook.received)) == ("", 1, 2)
        assert "did not answer in time" in done.doubt

    def test_an_endpoint_that_cannot_be_reached(self, monkeypatch: pytest.MonkeyPatch) -> None:
        (done,) = send(message(), routes=web(monkeypatch, dead_address()))
        assert (done.problem, done.tries) == ("it cannot be reached", 4)

    @pytest.mark.parametrize("url", ["file:///etc/passwd", "example.com/x", "ftp://example.com/"])
    def test_a_url_without_http_is_refused(self, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        (done,) = send(message(), routes=web(monkeypatch, url))
        assert done.problem == "its url does not begin with http or https"

    def test_an_unset_variable_is_named(self) -> None:
        (done,) = send(
            message(), routes={"r": Chat(name="r", type="slack", url=Value(variable="NOT_SET"))}
        )
        assert "variable NOT_SET is not set" in done.problem

    def test_no_text_has_the_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for url in (dead_address(), f"file:///{SECRET}", f"http://127.0.0.1:1/{SECRET}"):
            (done,) = send(message(), routes=web(monkeypatch, url), tries=1)
            assert SECRET not in done.problem
            assert SECRET not in redact(f"Max retries exceeded with url: /services/{SECRET} (x)")

    def test_the_long_parts_of_an_address_are_secrets(self) -> None:
        token = "XXXXXXXXXXXXXXXXXXXXXXXX"
        assert secrets_of(f"https://hooks.slack.com/services/T000/B000/{token}") == [
            f"services/T000/B000/{token}",
            token,
        ]
        assert secrets_of("http://pager.internal/alerts?kind=dbt") == []


class TestTime:
    def test_a_slow_route_delays_neither_the_caller_nor_the_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with endpoint() as slow, endpoint() as quick:
            slow.answers = [-60] * 9
            monkeypatch.setenv("SLOW", slow.url)
            monkeypatch.setenv("QUICK", quick.url)
            routes = {
                name: Webhook(name=name, type="webhook", url=Value(variable=name.upper()))
                for name in ("slow", "quick")
            }
            began = time.monotonic()
            done = send(
                message(route="slow"),
                message(route="slow"),
                message(route="quick"),
                routes=routes,
                timeout=0.8,
            )
            assert time.monotonic() - began < 20
            assert [sent.message.route for sent in done] == ["slow", "slow", "quick"]
            assert [bool(sent.problem or sent.doubt) for sent in done] == [True, True, False]
            assert len(quick.received) == 1

    def test_an_endless_answer_ends_at_the_time_limit(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each read gets a byte in time, so only the limit of the whole delivery ends it."""
        import socket

        listener = socket.create_server(("127.0.0.1", 0))
        over = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                while not over.wait(0.05):
                    connection.sendall(b"X")

        threading.Thread(target=drip, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        began = time.monotonic()
        (done,) = send(message(), routes=web(monkeypatch, url), timeout=0.7)
        over.set()
        listener.close()
        assert time.monotonic() - began < 20
        assert (done.problem, done.tries) == ("not delivered within 0.7 s", 1)

    def test_the_threads_are_daemons(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[bool] = []

        def attempt(*_: object) -> None:
            seen.append(threading.current_thread().daemon)

        monkeypatch.setattr(send_module, "attempt", attempt)
        deliver([message()], {"r": Route(name="r")}, timeout=1, tries=1)
        assert seen == [True]


def mail_route(server: MailServer, **more: Any) -> dict[str, Route]:
    given = {
        "name": "r",
        "type": "email",
        "host": "127.0.0.1",
        "port": server.port,
        "security": "none",
        "from": "dbt@example.com",
        "to": ["owner", "data@example.com"],
        **more,
    }
    return {"r": parse({"routes": [given]}).routes[0]}


class TestMail:
    def test_a_mail_reaches_the_owners_and_the_addresses(self) -> None:
        with mail_server() as server:
            owned = message(owners=("jane@example.com", "data-team"))
            (done,) = send(owned, routes=mail_route(server))
            assert (done.problem, done.tries) == ("", 1)
            assert server.recipients == [["jane@example.com", "data@example.com"]]
            (mail,) = server.received
            assert mail["Subject"] == "[sparkwap] 1 table rejected (run 1a2b3c4d on prod)"
            assert [part.get_content_type() for part in mail.iter_parts()] == [
                "text/plain",
                "text/html",
            ]

    def test_only_a_temporary_refusal_is_tried_again(self) -> None:
        with mail_server() as server:
            server.answers = ["451 come back later"]
            (done,) = send(message(), routes=mail_route(server))
            assert (done.problem, done.tries, len(server.received)) == ("", 2, 1)
            server.answers = ["550 go away"]
            (done,) = send(message(), routes=mail_route(server))
            assert (done.problem, done.tries) == ("the mail server answered 550", 1)

    def test_a_server_that_takes_a_mail_and_answers_late_gets_it_once(self) -> None:
        with mail_server() as server:
            server.late = 3
            (done,) = send(message(), routes=mail_route(server), timeout=1)
            assert (done.problem, done.tries, len(server.received)) == ("", 1, 1)
            assert "did not answer in time" in done.doubt

    def test_without_an_address_of_an_owner_nothing_is_sent(self) -> None:
        with mail_server() as server:
            (done,) = send(message(owners=("data-team",)), routes=mail_route(server, to="owner"))
            assert done.problem == "no owner is a mail address"

    def test_a_server_that_cannot_be_reached(self) -> None:
        with mail_server() as server:
            routes = mail_route(server)
        (done,) = send(message(), routes=routes, tries=2)
        assert (done.problem, done.tries) == ("the mail server cannot be reached", 2)

    def test_a_server_without_starttls_gets_no_mail(self) -> None:
        with mail_server() as server:
            (done,) = send(message(), routes=mail_route(server, security="starttls"))
            assert done.problem == "the mail server does not support this security"
            assert server.received == []
