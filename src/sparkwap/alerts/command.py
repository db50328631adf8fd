"""``sparkwap alerts``: test the routes, and check the lake for tables that are held too long."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sparkwap.alerts import events
from sparkwap.alerts.model import Message
from sparkwap.core import next_command
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import DbtCall, add_dbt_options, call_of
from sparkwap.core.errors import ConfigError
from sparkwap.gate.alert_settings import AlertSettings
from sparkwap.gate.settings import settings_of

if TYPE_CHECKING:
    from sparkwap.alerts.send import Delivery
    from sparkwap.core.dbt_cli import Commands

_HOW = "See docs/alerts.md: vars of dbt_project.yml, wap_alerts, routes."


@dataclass(frozen=True)
class SentAlert:
    """A message to a route: its events (``kind subject``), and why it may be lost or come twice."""

    route: str
    events: tuple[str, ...]
    problem: str | None


@dataclass(frozen=True)
class AlertsSent:
    """The messages that were sent, or tried; empty if there was nothing new."""

    messages: tuple[SentAlert, ...]


def register_alerts(commands: Commands) -> None:
    """Add ``sparkwap alerts test|check``."""
    text = "send alerts about rejected, held and rolled back tables, and about quarantines"
    alerts = commands.add_parser("alerts", help=text, description=text)
    actions = alerts.add_subparsers(title="actions", metavar="action", required=True)
    handlers = {
        "test": (_test, "send a sample to each route"),
        "check": (_check, "report tables that are held too long, and quarantines; for a scheduler"),
    }
    for name, (handler, help_) in handlers.items():
        parser = actions.add_parser(name, help=help_, description=help_)
        if name == "test":
            parser.add_argument("route", nargs="*", help="names of routes (default: all)")
        add_dbt_options(parser)
        parser.set_defaults(handler=handler)


def samples(settings: AlertSettings, names: Sequence[str], target: str) -> list[Message]:
    """Return the messages of a test: one for each route, or for each named route."""
    if not settings.routes:
        raise ConfigError(f"There are no routes, so nothing was sent. {_HOW}")
    routes = [settings.route(name) for name in names] or list(settings.routes)
    run_id = str(uuid.uuid4())
    event = events.example(run_id=run_id, at=datetime.now(UTC))
    return [
        # With `to: owner`, the owners of the route are the mail addresses.
        Message(route.name, run_id, target, tuple(sorted(route.owners)), (event,))
        for route in routes
    ]


def test_lines(done: Sequence[Delivery], settings: AlertSettings) -> list[str]:
    """Return the lines to print after a test."""
    lines = [
        f"{sent.message.route}: {f'not sent: {sent.problem}' if sent.problem else 'sent'}"
        f"{f': {sent.doubt}' if sent.doubt else ''}"
        for sent in done
    ]
    if all(route.owners for route in settings.routes):
        lines.append(
            "note: every route names owners, so no route gets the events of other owners' tables; "
            "a route without owners gets all events"
        )
    return lines


def _settings(call: DbtCall) -> AlertSettings:
    from dbt.config.project import load_raw_project

    raw = load_raw_project(str(call.project_dir))
    return settings_of(raw, call.variables).alerts


def _test(arguments: argparse.Namespace) -> CommandEnd:
    from sparkwap.alerts.send import deliver

    call = call_of(arguments)
    settings = _settings(call)
    done = deliver(
        samples(settings, arguments.route, arguments.target or ""),
        {route.name: route for route in settings.routes},
        timeout=settings.timeout,
        tries=settings.tries,
    )
    print("\n".join(test_lines(done, settings)))
    return _end(done)


def _end(done: Sequence[Delivery]) -> CommandEnd:
    sent = tuple(
        SentAlert(
            one.message.route,
            tuple(f"{event.kind} {event.subject}" for event in one.message.events),
            one.problem or one.doubt or None,
        )
        for one in done
    )
    failed = any(one.problem or one.doubt for one in done)
    return CommandEnd("failed" if failed else "done", AlertsSent(sent))


def _check(arguments: argparse.Namespace) -> CommandEnd:
    call = call_of(arguments)
    settings = _settings(call)
    if not settings.routes:
        raise ConfigError(f"There are no routes, so nothing was checked. {_HOW}")
    return check(call, settings)


def check(call: DbtCall, settings: AlertSettings) -> CommandEnd:
    """Check the lake and send what is new."""
    # Imported here because they import PyArrow, which is slow.
    from sparkwap.alerts.look import everything
    from sparkwap.alerts.notify import lines_of, notify
    from sparkwap.alerts.project import of_manifest
    from sparkwap.publish.lake import Lake

    manifest, found = call.manifest(next_command.sparkwap("alerts check")), call.lake()
    if not found.exists:
        print("There is no lake yet, so there is nothing to check.")
        return _end([])
    with closing(Lake(found.name, dict(found.properties))) as lake:
        news = everything(lake, settings, manifest, of_manifest(manifest), str(uuid.uuid4()))
        done = notify(lake.ledger, news, settings, target=found.target)
    print("\n".join(lines_of(done)) or "There is nothing new.")
    return _end(done)
