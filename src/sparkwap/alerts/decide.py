"""Decides which messages go to which route: selects, suppresses and groups events. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sparkwap.alerts.model import Event, Message
from sparkwap.gate.alert_settings import AlertSettings, Route
from sparkwap.ledger.records import DeliveredAlert

_WORST_FIRST = ("error", "warning")


def takes(route: Route, event: Event, target: str) -> bool:
    """Return whether a route gets an event of a run on dbt's target ``target``."""
    if event.kind not in route.events or (route.targets and target not in route.targets):
        return False
    if _WORST_FIRST.index(event.severity) > _WORST_FIRST.index(route.severity):
        return False
    return not route.owners or bool(route.owners & {owner.casefold() for owner in event.owners})


def messages(
    events: Sequence[Event],
    settings: AlertSettings,
    delivered: Collection[DeliveredAlert],
    *,
    target: str,
    now: datetime,
) -> list[Message]:
    """Return the messages to send: one for each route, run and set of owners with a new event.

    An event with several owners is in one message for all of them, so a route that takes all
    events gets each event once.
    """
    found = []
    unique = list({event.fingerprint: event for event in events}.values())
    since = now - timedelta(hours=settings.suppress_hours)
    suppressed = {(alert.route, alert.fingerprint) for alert in delivered if alert.at > since}
    for route in settings.routes:
        taken = [event for event in unique if takes(route, event, target)]
        for run_id, owners in dict.fromkeys((event.run_id, event.owners) for event in taken):
            group = [e for e in taken if (e.run_id, e.owners) == (run_id, owners)]
            new = [e for e in group if (route.name, e.fingerprint) not in suppressed]
            if new:
                ordered = sorted(new, key=lambda e: (_WORST_FIRST.index(e.severity), e.subject))
                known = len(group) - len(new)
                message = Message(route.name, run_id, target, owners, tuple(ordered), known)
                keys = {(route.name, event.fingerprint) for event in new}
                before = [one.at for one in delivered if (one.route, one.fingerprint) in keys]
                found.append(replace(message, reminds_of=max(before, default=None)))
    return found
