"""The var ``wap_alerts``: which alerts go where.

.. code-block:: yaml

    vars:
      wap_alerts:
        suppress_hours: 24
        routes:
          - {name: team, type: slack, url: "{{ env_var('SLACK_WEBHOOK') }}", owners: [data-team]}

dbt leaves Jinja in vars alone, so an ``env_var`` is looked up right before a message is sent: no
secret is ever in the manifest, in dbt's logs, or in this module's objects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, cast, get_args

from sparkwap.core.errors import ConfigError

Kind = Literal["rejected", "refused", "failed", "held", "quarantine", "rolled_back"]
Severity = Literal["warning", "error"]
RouteType = Literal["slack", "teams", "email", "webhook"]
Security = Literal["starttls", "ssl", "none"]

SEVERITY: Mapping[Kind, Severity] = {
    "rejected": "error",
    "refused": "error",
    "failed": "error",
    "held": "warning",
    "quarantine": "warning",
    "rolled_back": "warning",
}
"""Kind of event -> how bad it is."""
OWNER = "owner"
"""In ``to``: those owners of the tables that are mail addresses."""

_PORTS: Mapping[Security, int] = {"starttls": 587, "ssl": 465, "none": 25}
_ENV_VAR = re.compile(r"\{\{\s*env_var\(\s*(['\"])(?P<name>\w+)\1\s*\)\s*\}\}")
_ENV_RULE = "\"{{ env_var('NAME') }}\""
_COMMON = ("name", "type", "events", "severity", "owners", "targets")
_OF_TYPE: Mapping[RouteType, tuple[str, ...]] = {
    "slack": ("url",),
    "teams": ("url",),
    "webhook": ("url", "secret"),
    "email": ("host", "port", "security", "user", "password", "from", "to"),
}
_TOP = ("held_hours", "quarantine", "suppress_hours", "timeout", "tries", "sample_rows", "routes")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Value:
    """A text of the settings: itself, or the name of the environment variable that holds it."""

    text: str = ""
    variable: str = ""

    def read(self, environment: Mapping[str, str] | None = None) -> str:
        """The text.

        Raises:
            ConfigError: The variable is not set, or empty.
        """
        if not self.variable:
            return self.text
        found = (os.environ if environment is None else environment).get(self.variable, "")
        if not found:
            raise ConfigError(
                f"The environment variable {self.variable} is not set. Nothing was sent. Set it, "
                "then: sparkwap alerts test"
            )
        return found


@dataclass(frozen=True, slots=True)
class Mail:
    """How mail is sent: the server, and from whom to whom.

    Attributes:
        host: The SMTP server.
        port: Its port.
        security: ``starttls``, ``ssl``, or ``none``.
        user: Who logs in; None for nobody.
        password: The password; None for none.
        sender: The address that it comes from.
        to: Addresses; `OWNER` stands for the owners that are addresses.
    """

    host: Value
    port: int
    security: Security
    user: Value | None
    password: Value | None
    sender: Value
    to: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """Where messages go, and which.

    Attributes:
        name: Its name, for people and for the ledger.
        type: Slack, Teams, mail, or a webhook that takes JSON.
        events: Kinds of events that it takes.
        severity: The least severity that it takes.
        owners: Owners whose tables it takes, lower case; empty for all, and for nobody's.
        targets: dbt's targets whose runs it takes; empty for all.
        url: Of a webhook.
        secret: With which a webhook's messages are signed; None for no signature.
        mail: Of mail.
    """

    name: str
    type: RouteType
    events: frozenset[Kind] = frozenset(SEVERITY)
    severity: Severity = "warning"
    owners: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()
    url: Value | None = None
    secret: Value | None = None
    mail: Mail | None = None


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """All of ``wap_alerts``.

    Attributes:
        routes: Where messages go; without any, nothing is looked for and nothing is sent.
        held_hours: Hours that a candidate may be held before `sparkwap alerts check` tells of it.
        quarantine: Rows of a raw table that may wait in quarantine; below 1 a share of its rows.
            None for no alert.
        suppress_hours: Hours in which the same trouble is told once per route; 0 for each time.
        timeout: Seconds that sending may take in all; then the run goes on.
        tries: How often a message is tried, within that time.
        sample_rows: Rows of a failed test that are sent along; never of personal columns.
    """

    routes: tuple[Route, ...] = ()
    held_hours: float = 24.0
    quarantine: float | None = None
    suppress_hours: float = 24.0
    timeout: float = 15.0
    tries: int = 4
    sample_rows: int = 0

    def route(self, name: str) -> Route:
        """The route of a name.

        Raises:
            ConfigError: There is none.
        """
        for route in self.routes:
            if route.name == name:
                return route
        known = ", ".join(route.name for route in self.routes) or "none"
        raise ConfigError(f"No route is called {name!r}. Nothing was sent. There are: {known}.")


def parse(value: object) -> AlertSettings:
    """Read the var.

    Raises:
        ValueError: It cannot be used; one message with all that is wrong.
    """
    problems: list[str] = []
    given = _mapping(value, "wap_alerts", _TOP, problems)
    read = _Fields(given, "", problems)
    settings = AlertSettings(
        routes=_routes(given.get("routes"), problems),
        held_hours=read.number("held_hours", 24.0, least=0.0),
        quarantine=read.number("quarantine", None, least=0.0),
        suppress_hours=read.number("suppress_hours", 24.0, least=0.0),
        timeout=read.number("timeout", 15.0, least=0.1, most=300.0),
        tries=int(read.number("tries", 4.0, least=1.0, most=20.0)),
        sample_rows=int(read.number("sample_rows", 0.0, least=0.0, most=20.0)),
    )
    if problems:
        raise ValueError("; ".join(problems))
    return settings


def _routes(value: object, problems: list[str]) -> tuple[Route, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        problems.append("routes: it is a list of routes, each with name and type")
        return ()
    found = [_route(one, f"routes[{number}]", problems) for number, one in enumerate(value)]
    routes = [route for route in found if route is not None]
    names = [route.name for route in routes]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems += [f"routes: two are called {name!r}" for name in twice]
    return tuple(routes)


def _route(value: object, place: str, problems: list[str]) -> Route | None:
    before = len(problems)
    raw = value if isinstance(value, Mapping) else {}
    kind = raw.get("type")
    if kind not in get_args(RouteType):
        problems.append(f"{place}.type: {kind!r}; legal: {', '.join(get_args(RouteType))}")
        return None
    given = _mapping(value, place, (*_COMMON, *_OF_TYPE[cast(RouteType, kind)]), problems)
    read = _Fields(given, f"{place}.", problems)
    route_type = cast(RouteType, kind)
    mail = _mail(read) if route_type == "email" else None
    url = None if route_type == "email" else read.value("url", secret=True)
    severity = read.choice("severity", ("warning", "error"), "warning")
    name = read.text("name")
    events = read.names("events", tuple(SEVERITY))
    route = Route(
        name=name,
        type=route_type,
        events=frozenset(cast(tuple[Kind, ...], events) or SEVERITY),
        severity=cast(Severity, severity),
        owners=frozenset(owner.casefold() for owner in read.names("owners")),
        targets=frozenset(read.names("targets")),
        url=url,
        secret=read.value("secret", secret=True, needed=False),
        mail=mail,
    )
    return route if len(problems) == before else None


def _mail(read: _Fields) -> Mail:
    security = cast(Security, read.choice("security", get_args(Security), "starttls"))
    password = read.value("password", secret=True, needed=False)
    user = read.value("user", needed=False)
    if password is not None and user is None:
        read.complain("password", "there is no user that it belongs to")
    if password is not None and security == "none":
        read.complain("security", "none would send the password in clear; legal: starttls, ssl")
    to = read.values("to")
    if not to:
        read.complain("to", f"it is a list of mail addresses, and {OWNER} for those of the owners")
    return Mail(
        host=read.value("host") or Value(),
        port=int(read.number("port", float(_PORTS[security]), least=1, most=65535)),
        security=security,
        user=user,
        password=password,
        sender=read.value("from") or Value(),
        to=to,
    )


class _Fields:
    """Reads the fields of one mapping, and keeps the complaints."""

    def __init__(self, given: Mapping[str, Any], place: str, problems: list[str]) -> None:
        self._given = given
        self._place = place
        self._problems = problems

    def complain(self, key: str, problem: str) -> None:
        self._problems.append(f"{self._place}{key}: {problem}")

    def text(self, key: str) -> str:
        """A text that must be there."""
        value = self._given.get(key)
        if not isinstance(value, str) or not value.strip():
            self.complain(key, "it is missing")
            return ""
        return value.strip()

    def value(self, key: str, *, secret: bool = False, needed: bool = True) -> Value | None:
        """A text or ``env_var``; a secret by ``env_var`` alone."""
        given = self._given.get(key)
        if given is None and not needed:
            return None
        text = given.strip() if isinstance(given, str) else ""
        found = _ENV_VAR.fullmatch(text)
        if found is not None:
            return Value(variable=found["name"])
        if secret:
            # Not what was given: it may be the secret itself.
            self.complain(key, f"it is a secret, so it is given as {_ENV_RULE}")
        elif not text or "{{" in text:
            self.complain(key, f"it is missing, or neither a text nor {_ENV_RULE}")
        return Value(text)

    def values(self, key: str) -> tuple[Value, ...]:
        """A text, or a list of them."""
        given = self._given.get(key)
        parts = given if isinstance(given, list | tuple) else [] if given is None else [given]
        reads = (_Fields({key: part}, self._place, self._problems).value(key) for part in parts)
        return tuple(read for read in reads if read is not None)

    def names(self, key: str, legal: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A name, or a list of them."""
        given = self._given.get(key)
        parts = given if isinstance(given, list | tuple) else [] if given is None else [given]
        names = tuple(str(part) for part in parts)
        wrong = [name for name in names if legal and name not in legal]
        if wrong:
            self.complain(key, f"{', '.join(wrong)}; legal: {', '.join(legal)}")
        return names

    def choice(self, key: str, legal: tuple[str, ...], default: str) -> str:
        """One of some words."""
        value = self._given.get(key, default)
        if value not in legal:
            self.complain(key, f"{value!r}; legal: {', '.join(legal)}")
            return default
        return str(value)

    def number(self, key: str, default: _T, *, least: float, most: float = 1e9) -> float | _T:
        """A number within limits."""
        value = self._given.get(key)
        if value is None:
            return default
        try:
            # A bool is a number to Python, and none to people.
            number = float(value) if not isinstance(value, bool) else float("nan")
        except (TypeError, ValueError):
            number = float("nan")
        if not least <= number <= most:
            self.complain(key, f"{value!r}; legal: a number from {least:g} to {most:g}")
            return default
        return number


def _mapping(
    value: object, place: str, legal: tuple[str, ...], problems: list[str]
) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        problems.append(f"{place}: it is a mapping; legal keys: {', '.join(legal)}")
        return {}
    for key in value:
        if key not in legal:
            close = get_close_matches(str(key), legal, n=1)
            hint = f"did you mean {close[0]}?" if close else f"legal: {', '.join(legal)}"
            problems.append(f"{place}: there is no setting {key!r}; {hint}")
    return value
