"""Delivers messages within a time limit, also to slow endpoints.

Each route has a thread of its own, so a slow route does not delay the others. At the time limit,
the caller continues; threads that still wait do not keep the process from ending. A failure does
not contain the error texts of HTTP libraries, because these quote the address, which is a secret.
"""

from __future__ import annotations

import smtplib
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sparkwap import __version__
from sparkwap.alerts import render
from sparkwap.alerts.model import Message
from sparkwap.core.errors import SparkwapError
from sparkwap.core.redaction import redact, remember
from sparkwap.gate.alert_settings import OWNER, PORTS, Chat, Mail, Route, Webhook

if TYPE_CHECKING:
    import tenacity

_CONNECT_SECONDS, _MARGIN_SECONDS = 5.0, 0.1
_UNANSWERED = "it did not answer in time, so it may not have got the alert"
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0
_SECRET_LENGTH = 16
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(eq=False)
class Undelivered(Exception):
    """A try that failed.

    Attributes:
        problem: The reason, without secrets.
        again: Whether another try may succeed.
        wait: Seconds to wait by the endpoint's ``Retry-After``; None if it has none.
    """

    problem: str
    again: bool
    wait: float | None = None


class Unanswered(Exception):
    """A try that sent the whole message and got no answer, so another try may send it twice."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of sending a message.

    Attributes:
        problem: Why it was not delivered; empty if it was.
        doubt: Why a message that was sent may arrive never or twice; empty if it has arrived.
    """

    message: Message
    tries: int
    problem: str = ""
    doubt: str = ""


def deliver(
    messages: Sequence[Message],
    routes: Mapping[str, Route],
    *,
    timeout: float,
    tries: int,
) -> list[Delivery]:
    """Return a delivery for each message, in their order, after ``timeout`` seconds at most."""
    deadline = time.monotonic() + timeout
    done: dict[int, Delivery] = {}
    begun: Counter[int] = Counter()
    lock = threading.Lock()

    def work(mine: Sequence[tuple[int, Message]]) -> None:
        for index, message in mine:
            route = routes[message.route]
            delivery = _try(route, message, deadline, tries, partial(begun.update, [index]))
            with lock:
                done[index] = delivery

    by_route: dict[str, list[tuple[int, Message]]] = {}
    for index, message in enumerate(messages):
        by_route.setdefault(message.route, []).append((index, message))
    threads = [
        threading.Thread(target=work, args=(mine,), name=f"sparkwap-alert-{name}", daemon=True)
        for name, mine in by_route.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"not delivered within {timeout:g} s"
    with lock:
        return [
            done.get(index) or Delivery(message, begun[index], late)
            for index, message in enumerate(messages)
        ]


def _try(
    route: Route, message: Message, deadline: float, tries: int, begin: Callable[[], object]
) -> Delivery:
    # Imported here because most runs send nothing.
    import tenacity

    count = 0

    def once() -> None:
        nonlocal count
        left = deadline - time.monotonic()
        if left <= 0:
            raise Undelivered("the time limit was reached", again=False)
        count += 1
        begin()
        attempt(route, message, left)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda e: isinstance(e, Undelivered) and e.again),
        wait=_wait,
        stop=tenacity.stop_any(
            tenacity.stop_after_attempt(tries),
            tenacity.stop_before_delay(max(0.0, deadline - time.monotonic())),
        ),
        reraise=True,
    )
    try:
        retrying(once)
    except Undelivered as error:
        return Delivery(message, count, redact(error.problem))
    except Unanswered:
        return Delivery(message, count, doubt=_UNANSWERED)
    except SparkwapError as error:
        return Delivery(message, count, str(error))
    except Exception as error:
        # Without its text, which may quote an address.
        return Delivery(message, count, f"an unexpected error ({type(error).__name__})")
    return Delivery(message, count)


def _wait(state: tenacity.RetryCallState) -> float:
    """Return the seconds to wait: doubled each time, with jitter; at least ``Retry-After``."""
    import tenacity

    error = state.outcome.exception() if state.outcome else None
    requested = error.wait if isinstance(error, Undelivered) and error.wait is not None else 0.0
    jitter = _FIRST_WAIT / 2
    own = tenacity.wait_exponential_jitter(_FIRST_WAIT, _LONGEST_WAIT, jitter=jitter)(state)
    return max(own, requested)


# --- one try ------------------------------------------------------------------------------------


def attempt(route: Route, message: Message, seconds: float) -> None:
    """Make one try, by the type of the route."""
    if isinstance(route, Mail):
        _mail(route, message, seconds)
    elif isinstance(route, Chat | Webhook):
        _post(route, message, seconds)


_BODIES: Mapping[str, Callable[[Message], bytes]] = {
    "slack": render.slack,
    "teams": render.teams,
    "webhook": render.webhook,
}


def _post(route: Chat | Webhook, message: Message, seconds: float) -> None:
    import requests

    url = route.url.read()
    parts = urlsplit(url)
    remember(url, *secrets_of(url))
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise Undelivered("its url does not begin with http or https", again=False)
    connect = min(_CONNECT_SECONDS, seconds / 2)
    body = _BODIES[route.type](message)
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": f"sparkwap/{__version__}",
    }
    if isinstance(route, Webhook):
        headers[render.MESSAGE_ID] = message.message_id
        if route.secret is not None:
            secret = route.secret.read()
            remember(secret)
            headers[render.SIGNATURE] = render.signature(body, secret, int(time.time()))
    try:
        with requests.post(
            url,
            data=body,
            headers=headers,
            # Ends before `deliver` does, which would count the message as not sent.
            timeout=(connect, max(seconds - connect - _MARGIN_SECONDS, _MARGIN_SECONDS)),
            # A redirect could send the message and its signature to any address.
            allow_redirects=False,
            # Only the status is needed; the body may never end.
            stream=True,
        ) as answer:
            code, wait = answer.status_code, answer.headers.get("Retry-After", "")
    except requests.exceptions.ReadTimeout as error:
        raise Unanswered from error
    except requests.exceptions.Timeout as error:
        raise Undelivered("it cannot be reached in time", again=True) from error
    except requests.exceptions.SSLError as error:
        raise Undelivered("its TLS certificate cannot be verified", again=False) from error
    except requests.exceptions.ConnectionError as error:
        raise Undelivered("it cannot be reached", again=True) from error
    except requests.exceptions.RequestException as error:
        raise Undelivered(f"the request failed ({type(error).__name__})", again=False) from error
    if not 200 <= code < 300:
        raise Undelivered(f"it answered {code}", again=code in _AGAIN, wait=_seconds(wait))


def _seconds(retry_after: str) -> float | None:
    """Return the seconds of a ``Retry-After``, which is a number or a date."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def secrets_of(url: str) -> list[str]:
    """Return the secret parts of a webhook's address.

    Errors quote these parts without the host. A short part such as ``alerts`` is no secret, and
    must not be removed from all texts.
    """
    parts = urlsplit(url)
    found = [parts.path, parts.query, *parts.path.split("/")]
    return [part for part in (text.strip("/") for text in found) if len(part) >= _SECRET_LENGTH]


def _mail(mail: Mail, message: Message, seconds: float) -> None:
    to = recipients(mail, message)
    if not to:
        raise Undelivered("no owner is a mail address", again=False)
    password = mail.password.read() if mail.password is not None else None
    remember(password)
    text = render.mail(message, mail.sender.read(), to)
    deadline, may_have_it = time.monotonic() + seconds, False

    def data(content: bytes) -> tuple[int, bytes]:
        nonlocal may_have_it
        may_have_it = True
        # Ends before `deliver` does, which would count the message as not sent.
        _wait_for(server, deadline - time.monotonic() - _MARGIN_SECONDS)
        return smtplib.SMTP.data(server, content)

    try:
        with closing(_connect(mail, seconds)) as server:
            if mail.user is not None and password is not None:
                server.login(mail.user.read(), password)
            server.data = data  # type: ignore[assignment, method-assign]
            refused = server.send_message(text)
            with suppress(OSError, smtplib.SMTPException):
                _wait_for(server, _MARGIN_SECONDS)
                server.quit()
    except smtplib.SMTPAuthenticationError as error:
        raise Undelivered("the mail server refused user and password", again=False) from error
    except smtplib.SMTPRecipientsRefused as error:
        codes = {code for code, _ in error.recipients.values()}
        raise Undelivered(
            "the mail server refused all recipients", again=all(code < 500 for code in codes)
        ) from error
    except smtplib.SMTPNotSupportedError as error:
        raise Undelivered("the mail server does not support this security", again=False) from error
    except smtplib.SMTPResponseException as error:
        code = error.smtp_code
        raise Undelivered(f"the mail server answered {code}", again=code < 500) from error
    except ssl.SSLError as error:
        raise Undelivered("the mail server's TLS cannot be verified", again=False) from error
    except (OSError, smtplib.SMTPException) as error:
        if may_have_it:
            raise Unanswered from error
        timed_out = isinstance(error, TimeoutError)
        why = "did not answer in time" if timed_out else "cannot be reached"
        raise Undelivered(f"the mail server {why}", again=True) from error
    if refused:
        count = len(refused)
        raise Undelivered(f"the mail server refused {count} of the recipients", again=False)


def _wait_for(server: smtplib.SMTP, seconds: float) -> None:
    if server.sock is not None:
        server.sock.settimeout(max(seconds, _MARGIN_SECONDS))


def recipients(mail: Mail, message: Message) -> list[str]:
    """Return the addresses of a message; ``owner`` becomes the owners that are addresses."""
    found: list[str] = []
    for value in mail.to:
        text = value.read()
        if text == OWNER:
            found += [owner for owner in message.owners if "@" in owner]
        else:
            found += [part.strip() for part in text.split(",") if part.strip()]
    return list(dict.fromkeys(found))


def _connect(mail: Mail, seconds: float) -> smtplib.SMTP:
    host, port = mail.host.read(), mail.port or PORTS[mail.security]
    if mail.security == "ssl":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(host, port, timeout=seconds, context=context)
    server = smtplib.SMTP(host, port, timeout=seconds)
    if mail.security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server
