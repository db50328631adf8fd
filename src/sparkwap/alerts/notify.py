"""From events to what was sent: decide, deliver, keep a record in the ledger. Never raises."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sparkwap.alerts import render
from sparkwap.alerts.decide import messages
from sparkwap.alerts.model import Event, Message
from sparkwap.alerts.send import Delivery, Transport, deliver
from sparkwap.catalog.model import LedgerRows
from sparkwap.core.redaction import redact
from sparkwap.gate.alert_settings import AlertSettings

if TYPE_CHECKING:
    from sparkwap.ledger.ledger import Ledger


def notify(
    ledger: Ledger,
    events: Sequence[Event],
    settings: AlertSettings,
    *,
    target: str,
    transport: Transport | None = None,
) -> list[Delivery]:
    """Send what is new, and write down what was delivered, so that it is not sent twice.

    A process that dies in between sends the same once more; nothing is lost.

    Args:
        ledger: The ledger, whose table ``alerts`` holds the interval of suppression between
            processes.
        events: What happened.
        settings: The routes.
        target: dbt's target.
        transport: Tries once to deliver; by the type of the route if left out.

    Raises:
        SparkwapError: The ledger cannot be read or written.
    """
    if not events or not settings.routes:
        return []
    now = datetime.now(UTC)
    told = ledger.delivered_since(now - timedelta(hours=settings.suppress_hours))
    due = messages(events, settings, told, target=target, now=now)
    if not due:
        return []
    done = deliver(
        due,
        {route.name: route for route in settings.routes},
        timeout=settings.timeout,
        tries=settings.tries,
        transport=transport,
    )
    ledger.append(LedgerRows("alerts", [row for one in done for row in _rows(one)]))
    return done


def safely(
    ledger: Ledger, events: Sequence[Event], settings: AlertSettings, *, target: str
) -> list[str]:
    """`notify` at the end of a run, which never fails by it; returns the lines to print."""
    try:
        return told(notify(ledger, events, settings, target=target))
    except Exception as error:
        return failure(error)


def failure(error: Exception) -> list[str]:
    """What is printed when alerts themselves fail."""
    return [
        f"  alerts: something went wrong ({type(error).__name__}: {redact(str(error))}); what the "
        "gate did stands"
    ]


def told(done: Sequence[Delivery]) -> list[str]:
    """What is printed of the deliveries."""
    lines = []
    for one in done:
        what = f"{one.message.route}: {_about(one.message)}"
        if one.problem:
            lines.append(f"  alert not sent to {what}: {one.problem}")
        else:
            lines.append(f"  alert sent to {what}")
    if any(one.problem for one in done):
        lines.append("  Next: try again   sparkwap alerts check")
    return lines


def _about(message: Message) -> str:
    return render.title(message).partition(" (run ")[0]


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
            "message": done.problem or None,
        }
        for event in done.message.events
    ]
