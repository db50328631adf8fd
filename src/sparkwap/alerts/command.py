"""``sparkwap alerts``: try the routes, and look for what waits too long."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sparkwap.alerts import events
from sparkwap.alerts.model import Message
from sparkwap.core.dbt_cli import DbtCall, add_dbt_options, call_of
from sparkwap.core.errors import ConfigError
from sparkwap.gate.alert_settings import AlertSettings
from sparkwap.gate.settings import settings_of

if TYPE_CHECKING:
    from sparkwap.alerts.send import Delivery

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_HOW = "See docs/alerts.md: vars of dbt_project.yml, wap_alerts, routes."


def register_alerts(commands: Commands) -> None:
    """``sparkwap alerts test|check``."""
    text = "who is told of rejected, held and rolled back tables, and of quarantine"
    alerts = commands.add_parser("alerts", help=text, description=text)
    actions = alerts.add_subparsers(title="actions", metavar="action", required=True)
    what = {
        "test": (_test, "send a sample to each route"),
        "check": (_check, "tell of what is held too long and of quarantine; for a scheduler"),
    }
    for name, (handler, help_) in what.items():
        parser = actions.add_parser(name, help=help_, description=help_)
        if name == "test":
            parser.add_argument("route", nargs="*", help="names of routes (default: all)")
        add_dbt_options(parser)
        parser.set_defaults(handler=handler)


# ---------------------------------------------------------------- decisions


def samples(settings: AlertSettings, names: Sequence[str], target: str) -> list[Message]:
    """The messages of a test: one for each route, or for those that are named.

    Raises:
        ConfigError: There are no routes, or none of such a name.
    """
    if not settings.routes:
        raise ConfigError(f"There are no routes, so nothing was sent. {_HOW}")
    routes = [settings.route(name) for name in names] or list(settings.routes)
    run_id = str(uuid.uuid4())
    event = events.example(run_id=run_id, at=datetime.now(UTC))
    return [
        # A route's owners may be mail addresses that `to: owner` stands for.
        Message(route.name, run_id, target, tuple(sorted(route.owners)), (event,))
        for route in routes
    ]


def test_lines(done: Sequence[Delivery], settings: AlertSettings) -> list[str]:
    """What is printed after a test."""
    lines = [
        f"{one.message.route}: {f'not sent: {one.problem}' if one.problem else 'sent'}"
        for one in done
    ]
    if all(route.owners for route in settings.routes):
        lines.append(
            "note: every route names owners, so what belongs to nobody else is told to nobody; a "
            "route without owners takes all"
        )
    return lines


# ---------------------------------------------------------------- the commands


def _settings(call: DbtCall) -> AlertSettings:
    from dbt.config.project import load_raw_project

    raw = load_raw_project(str(call.project_dir))
    return settings_of(raw, call.variables).alerts


def _test(arguments: argparse.Namespace) -> int:
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
    return 1 if any(one.problem for one in done) else 0


def _check(arguments: argparse.Namespace) -> int:
    call = call_of(arguments)
    settings = _settings(call)
    if not settings.routes:
        raise ConfigError(f"There are no routes, so nothing was looked for. {_HOW}")
    return check(call, settings)


def check(call: DbtCall, settings: AlertSettings) -> int:
    """Look at the lake and send what is new; returns 1 if something could not be sent."""
    # Here, as they bring PyArrow along.
    from sparkwap.alerts.look import everything
    from sparkwap.alerts.notify import notify, told
    from sparkwap.alerts.project import of_manifest
    from sparkwap.publish.lake import Lake

    manifest, found = call.manifest(), call.lake()
    if found.open() is None:
        print("There is no lake yet, so there is nothing to tell.")
        return 0
    lake = Lake(found.name, dict(found.properties))
    try:
        news = everything(lake, settings, manifest, of_manifest(manifest), str(uuid.uuid4()))
        done = notify(lake.ledger, news, settings, target=found.target)
    finally:
        lake.close()
    print("\n".join(told(done)) or "Nothing new to tell.")
    return 1 if any(one.problem for one in done) else 0
