"""Sends OpenLineage events within a time limit; never fails a run.

OpenLineage's client is configured its own ways: ``OPENLINEAGE_URL``, ``openlineage.yml``, ... The
time limit is kept by a thread that does not keep the process from ending, because a transport may
retry, wait for a broker, or have no limit at all.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkwap.core import next_command
from sparkwap.core.errors import ConfigError
from sparkwap.core.redaction import redact, remember
from sparkwap.core.text import counted, first_line

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

_SECONDS = 10.0
_SECONDS_OF_AN_EVENT = 0.05
_LONGEST_TEXT = 200
_STATE = "The run is not affected; the next one sends its own events (docs/openlineage.md)."


class NotConfigured(Exception):
    """The client has no transport."""


def require_client() -> None:
    """Refuse the setting if OpenLineage's client is not installed."""
    try:
        found = importlib.util.find_spec("openlineage.client")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise ConfigError(
            "wap_openlineage: end_of_run needs OpenLineage's client, which is not installed. "
            f"Nothing was run. Install it: {next_command.install('openlineage')}, or set "
            "wap_openlineage: never."
        )


def end_of_run(
    make: Callable[[], Sequence[RunEvent]],
    *,
    connect: Callable[[], OpenLineageClient] | None = None,
    seconds: float | None = None,
) -> list[str]:
    """Send the events of a run; returns the lines to print. Raises nothing.

    Args:
        connect: Makes the client; the default is that of the environment.
        seconds: The time limit, to which 0.05 seconds are added for each event; None for 10.
    """
    try:
        events = make()
    except Exception as error:
        return [_not_sent(_text(error))]
    sending = _Sending(events, connect or _client)
    thread = threading.Thread(target=sending.run, name="sparkwap-openlineage", daemon=True)
    limit = (_SECONDS if seconds is None else seconds) + _SECONDS_OF_AN_EVENT * len(events)
    thread.start()
    thread.join(limit)
    sending.stopped.set()
    if thread.is_alive():
        return [_not_sent(f"{sending.part()} sent within {limit:g} s")]
    if sending.problem is not None:
        return [_not_sent(sending.problem)]
    return [f"  OpenLineage: {counted(sending.sent, 'event')} sent"] if sending.sent else []


class _Sending:
    """Sends events one after the other, in a thread, until ``stopped``: nobody waits any more."""

    def __init__(
        self, events: Sequence[RunEvent], connect: Callable[[], OpenLineageClient]
    ) -> None:
        self._events = events
        self._connect = connect
        self.sent = 0
        self.problem: str | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            self._send()
        except Exception as error:
            # The next event would wait as long.
            sent = f" ({self.part()} sent)" if self.sent else ""
            self.problem = _text(error) + sent

    def part(self) -> str:
        return f"{self.sent:,} of {counted(len(self._events), 'event')}"

    def _send(self) -> None:
        client = self._connect()
        if client.transport.kind == "noop":
            return
        for event in self._events:
            if self.stopped.is_set():
                return
            client.emit(event)
            self.sent += 1
        # Early versions have none, and no transport that needs it.
        close: Callable[..., Any] = getattr(client, "close", lambda *_: True)
        if not close(_SECONDS):
            raise TimeoutError("the transport did not send all events")


def _client() -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    remember(os.environ.get("OPENLINEAGE_API_KEY"))
    client = OpenLineageClient()
    _remember(client.config.transport)
    # The client's own default, which prints to a log that nobody has asked for.
    if client.transport.kind == "console" and not (client.config.transport or {}).get("type"):
        raise NotConfigured(
            "no transport is configured: set OPENLINEAGE_URL, or OPENLINEAGE_CONFIG to the path of "
            "an openlineage.yml"
        )
    return client


def _remember(settings: Any) -> None:
    """Register the secrets of a transport, which has settings within settings."""
    if isinstance(settings, Mapping):
        remember({key: one for key, one in settings.items() if not isinstance(one, Mapping)})
        for one in settings.values():
            _remember(one)


def _not_sent(problem: str) -> str:
    return f"  OpenLineage: not sent: {problem}. {_STATE}"


def _text(error: Exception) -> str:
    text = redact(first_line(str(error)))
    text = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
    return (
        text.rstrip(".") if isinstance(error, NotConfigured) else f"{type(error).__name__}: {text}"
    )
