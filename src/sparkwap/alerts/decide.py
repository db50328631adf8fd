"""Which message goes to which route: choosing, suppressing, grouping. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from sparkwap.alerts.model import Event, Message
from sparkwap.gate.alert_settings import AlertSettings, Route
from sparkwap.ledger.records import DeliveredAlert

_WORST_FIRST = ("error", "warning")


def takes(route: Route, event: Event, target: str) -> bool:
    """Whether a route takes an event of a run on dbt's target ``target``."""
    if event.kind not in route.events or (route.targets and target not in route.targets):
        return False
    if _WORST_FIRST.index(event.severity) > _WORST_FIRST.index(route.severity):
        return False
    return not route.owners or bool(route.owners & {owner.casefold() for owner in event.owners})


def suppressed(
    route: Route,
    event: Event,
    told: Collection[DeliveredAlert],
    suppress_hours: float,
    now: datetime,
) -> bool:
    """Whether the route was told of the same trouble within the interval."""
    since = now - timedelta(hours=suppress_hours)
    return any(
        one.route == route.name and one.fingerprint == event.fingerprint and one.at > since
        for one in told
    )


def messages(
    events: Sequence[Event],
    settings: AlertSettings,
    told: Collection[DeliveredAlert],
    *,
    target: str,
    now: datetime,
) -> list[Message]:
    """What to send now: a message for each route, run and set of owners with something new.

    An event of several owners is in one message for all of them, so that a channel that takes
    everything gets nothing twice.

    Args:
        events: What happened.
        settings: The routes, and the interval of suppression.
        told: What was delivered before.
        target: dbt's target.
        now: The time.
    """
    found = []
    for route in settings.routes:
        mine = [event for event in _unique(events) if takes(route, event, target)]
        for run_id, owners in dict.fromkeys((event.run_id, event.owners) for event in mine):
            group = [e for e in mine if (e.run_id, e.owners) == (run_id, owners)]
            new = [
                event
                for event in group
                if not suppressed(route, event, told, settings.suppress_hours, now)
            ]
            if new:
                ordered = sorted(new, key=lambda e: (_WORST_FIRST.index(e.severity), e.subject))
                known = len(group) - len(new)
                found.append(Message(route.name, run_id, target, owners, tuple(ordered), known))
    return found


def _unique(events: Iterable[Event]) -> list[Event]:
    return list({event.fingerprint: event for event in events}.values())
