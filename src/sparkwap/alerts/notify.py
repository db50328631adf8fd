"""Sends the messages for events, and records the deliveries in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sparkwap.alerts import render
from sparkwap.alerts.decide import messages
from sparkwap.alerts.model import Event
from sparkwap.alerts.send import Delivery, deliver
from sparkwap.catalog.model import LedgerRows
from sparkwap.core import next_command
from sparkwap.core.redaction import redact
from sparkwap.gate.alert_settings import AlertSettings

if TYPE_CHECKING:
    from sparkwap.ledger.ledger import Ledger


_RECENT = timedelta(days=90)
"""How long a reminder has another id than the alert before it."""


def notify(
    ledger: Ledger,
    events: Sequence[Event],
    settings: AlertSettings,
    *,
    target: str,
) -> list[Delivery]:
    """Send new events, and record the deliveries, so that no process sends them again.

    If there is no record, as after a death of the process, the next one sends the events again.
    """
    if not events or not settings.routes:
        return []
    now = datetime.now(UTC)
    delivered = ledger.delivered_since(now - max(_RECENT, timedelta(hours=settings.suppress_hours)))
    due = messages(events, settings, delivered, target=target, now=now)
    if not due:
        return []
    done = deliver(
        due,
        {route.name: route for route in settings.routes},
        timeout=settings.timeout,
        tries=settings.tries,
    )
    try:
        ledger.append(LedgerRows("alerts", [row for delivery in done for row in _rows(delivery)]))
    except Exception as error:
        why = f"the ledger has no row of it ({type(error).__name__}: {redact(str(error))})"
        doubt = f"{why}, so it may be sent again"
        return [one if one.problem else replace(one, doubt=doubt) for one in done]
    return done


def safely(
    ledger: Ledger, events: Sequence[Event], settings: AlertSettings, *, target: str
) -> list[str]:
    """Call `notify` and return the lines to print; an error does not fail the run."""
    try:
        return lines_of(notify(ledger, events, settings, target=target))
    except Exception as error:
        return failure(error)


def failure(error: Exception) -> list[str]:
    """Return the lines to print if alerts themselves fail."""
    return [
        f"  alerts: not sent, by an error ({type(error).__name__}: {redact(str(error))}); the "
        "run is not affected"
    ]


def lines_of(done: Sequence[Delivery]) -> list[str]:
    """Return the lines to print about the deliveries."""
    lines = []
    for delivery in done:
        about = render.title(delivery.message).partition(" (run ")[0]
        text = f"{delivery.message.route}: {about}"
        if delivery.problem:
            lines.append(f"  alert not sent to {text}: {delivery.problem}")
        else:
            lines.append(f"  alert sent to {text}{f': {one}' if (one := delivery.doubt) else ''}")
    failed = (event for one in done if one.problem for event in one.message.events)
    if any(event.kind != "failed" for event in failed):
        lines.append(f"  To send it again: {next_command.sparkwap('alerts check')}")
    return lines


def _rows(done: Delivery) -> list[dict[str, object]]:
    now = datetime.now(UTC)
    return [
        {
            "at": now,
            "run_id": event.run_id,
            "branch": event.branch,
            "route": done.message.route,
            "kind": event.kind,
            "subject": event.subject,
            "owners": list(event.owners),
            "fingerprint": event.fingerprint,
            "outcome": "failed" if done.problem else "sent",
            "tries": done.tries,
            "message": done.problem or done.doubt or None,
        }
        for event in done.message.events
    ]
