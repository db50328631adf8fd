"""The var ``wap_alerts``: the alerts and their routes.

.. code-block:: yaml

    vars:
      wap_alerts:
        suppress_hours: 24
        routes:
          - {name: team, type: slack, url: "{{ env_var('SLACK_WEBHOOK') }}", owners: [data-team]}

dbt does not render Jinja in vars, so an ``env_var`` is read only when a message is sent. So no
secret is in the manifest, in dbt's logs, or in this module's objects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from sparkwap.core.errors import ConfigError

Kind = Literal["rejected", "refused", "failed", "held", "quarantine", "rolled_back"]
Severity = Literal["warning", "error"]
Security = Literal["starttls", "ssl", "none"]

SEVERITY: Mapping[Kind, Severity] = {
    "rejected": "error",
    "refused": "error",
    "failed": "error",
    "held": "warning",
    "quarantine": "warning",
    "rolled_back": "warning",
}
"""The severity of each kind of event."""
OWNER = "owner"
"""In ``to``: the owners of the tables, as far as they are mail addresses."""
PORTS: Mapping[Security, int] = {"starttls": 587, "ssl": 465, "none": 25}
"""The usual port for each security."""

_MOST_HOURS = 876_000
"""A hundred years: no date before the first one of the calendar comes out."""
_ENV_VAR = re.compile(r"\{\{\s*env_var\(\s*(['\"])(?P<name>\w+)\1\s*\)\s*\}\}")
_ENV_RULE = "\"{{ env_var('NAME') }}\""


@dataclass(frozen=True, slots=True)
class Value:
    """A setting: the text itself, or the name of an environment variable that contains it."""

    text: str = ""
    variable: str = ""

    def read(self, environment: Mapping[str, str] | None = None) -> str:
        """Return the text."""
        if not self.variable:
            return self.text
        found = (os.environ if environment is None else environment).get(self.variable, "")
        if not found:
            raise ConfigError(
                f"The environment variable {self.variable} is not set. Nothing was sent. Set it, "
                "then run: sparkwap alerts test"
            )
        return found


def _value(given: object) -> Value:
    if isinstance(given, Value):
        return given
    text = given.strip() if isinstance(given, str) else ""
    if found := _ENV_VAR.fullmatch(text):
        return Value(variable=found["name"])
    if not text or "{{" in text:
        raise ValueError(f"it is missing, or neither text nor {_ENV_RULE}")
    return Value(text)


def _secret(given: object) -> Value:
    """Parse an ``env_var``; no message repeats another value, because it may be the secret."""
    if isinstance(given, str) and not _ENV_VAR.fullmatch(given.strip()):
        raise ValueError(f"it is a secret, so it must be {_ENV_RULE}")
    return _value(given)


def _listed(given: object) -> object:
    return [given] if isinstance(given, str) else given


def _number(least: float, most: float = 1e9) -> BeforeValidator:
    def check(given: Any) -> float:
        try:
            # A bool is a number in Python, but an error here.
            number = float("nan" if isinstance(given, bool) else given)
        except (TypeError, ValueError):
            number = float("nan")
        if not least <= number <= most:
            raise ValueError(f"{given!r}; legal: a number from {least:g} to {most:g}")
        return number

    return BeforeValidator(check)


Text = Annotated[Value, BeforeValidator(_value)]
Secret = Annotated[Value, BeforeValidator(_secret)]
Names = Annotated[frozenset[str], BeforeValidator(_listed)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, given: object) -> object:
        """Drop settings without a value."""
        if not isinstance(given, Mapping):
            raise ValueError(f"it must be a mapping; legal keys: {', '.join(_keys(cls))}")
        return {key: value for key, value in given.items() if value is not None}


class Route(_Settings):
    """A destination of messages, and the messages that it gets.

    Attributes:
        severity: The minimum severity of its events.
        owners: The owners of its tables, in lower case; empty for all tables, also without owner.
        targets: The dbt targets of its runs; empty for all.
    """

    name: Annotated[str, Field(min_length=1)]
    events: Annotated[frozenset[Kind], BeforeValidator(_listed)] = frozenset(SEVERITY)
    severity: Severity = "warning"
    owners: Names = frozenset()
    targets: Names = frozenset()

    @field_validator("owners")
    @classmethod
    def _lower(cls, owners: frozenset[str]) -> frozenset[str]:
        return frozenset(owner.casefold() for owner in owners)


class Chat(Route):
    """A webhook of Slack or Teams."""

    type: Literal["slack", "teams"]
    url: Secret


class Webhook(Route):
    """A webhook for JSON; with a secret, messages are signed."""

    type: Literal["webhook"]
    url: Secret
    secret: Secret | None = None


class Mail(Route):
    """A mail server with sender and recipients.

    Attributes:
        port: Its port; None for the usual port.
        to: The recipients' addresses, or `OWNER`.
    """

    type: Literal["email"]
    host: Text
    security: Security = "starttls"
    port: Annotated[int | None, _number(1, 65535)] = None
    user: Text | None = None
    password: Secret | None = None
    sender: Text = Field(alias="from")
    to: Annotated[tuple[Text, ...], BeforeValidator(_listed)]

    @field_validator("password")
    @classmethod
    def _belongs(cls, password: Value, fields: ValidationInfo) -> Value:
        if fields.data.get("user") is None:
            raise ValueError("there is no user for it")
        if fields.data.get("security") == "none":
            raise ValueError("security none would send it unencrypted; legal: starttls, ssl")
        return password

    @field_validator("to")
    @classmethod
    def _not_empty(cls, to: tuple[Value, ...]) -> tuple[Value, ...]:
        if not to:
            raise ValueError(f"it must be a list of mail addresses, or of {OWNER} for the owners'")
        return to


class AlertSettings(_Settings):
    """All of ``wap_alerts``.

    Attributes:
        routes: The destinations; without routes, sparkwap collects and sends no events.
        held_hours: Hours that a candidate may be held before `sparkwap alerts check` reports it.
        quarantine: Maximum number of a raw table's rows in quarantine, or below 1 a share of its
            rows; None for no alert.
        suppress_hours: Hours in which a route gets the same problem only once; 0 for every time.
        timeout: Maximum seconds for all messages; then the run continues.
        tries: Maximum number of tries of a message within this time.
        sample_rows: Number of sample rows of a failed test; never with personal columns.
    """

    routes: tuple[Annotated[Chat | Mail | Webhook, Discriminator("type")], ...] = ()
    held_hours: Annotated[float, _number(0, _MOST_HOURS)] = 24.0
    quarantine: Annotated[float | None, _number(0)] = None
    suppress_hours: Annotated[float, _number(0, _MOST_HOURS)] = 24.0
    timeout: Annotated[float, _number(0.1, 300)] = 15.0
    tries: Annotated[int, _number(1, 20)] = 4
    sample_rows: Annotated[int, _number(0, 20)] = 0

    @field_validator("routes")
    @classmethod
    def _by_name(cls, routes: tuple[Route, ...]) -> tuple[Route, ...]:
        names = [route.name for route in routes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two routes are called {', '.join(map(repr, twice))}")
        return routes

    def route(self, name: str) -> Route:
        """Return the route of a name."""
        for route in self.routes:
            if route.name == name:
                return route
        known = ", ".join(route.name for route in self.routes) or "none"
        raise ConfigError(f"No route is called {name!r}. Nothing was sent. Routes: {known}.")


def parse(value: object) -> AlertSettings:
    """Read the var.

    Raises:
        ValueError: The var is not valid; one message lists all problems.
    """
    try:
        return AlertSettings.model_validate(value)
    except ValidationError as error:
        raise ValueError("; ".join(map(_problem, error.errors()))) from None


_ROUTES: Mapping[str, type[BaseModel]] = {
    "slack": Chat,
    "teams": Chat,
    "email": Mail,
    "webhook": Webhook,
}


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _problem(error: ErrorDetails) -> str:
    """Return a problem with its place, and with the given value only if it cannot be a secret."""
    place, context = list(error["loc"]), error.get("ctx", {})
    # In the place of an error, a route's type follows its number.
    model: type[BaseModel] = _ROUTES[str(place.pop(2))] if len(place) > 2 else AlertSettings
    problem = error["msg"]
    match error["type"]:
        case "extra_forbidden":
            key, legal = str(place.pop()), _keys(model)
            close = get_close_matches(key, legal, n=1)
            hint = f"did you mean {close[0]}?" if close else f"legal: {', '.join(legal)}"
            problem = f"there is no setting {key!r}; {hint}"
        case "union_tag_invalid":
            place.append("type")
            problem = f"{context['tag']!r}; legal: {', '.join(_ROUTES)}"
        case "union_tag_not_found":
            problem = f"it needs a type; legal: {', '.join(_ROUTES)}"
        case "missing" | "string_type" | "string_too_short":
            problem = "it is missing"
        case "literal_error":
            legal = re.findall(r"'(\w+)'", context["expected"])
            problem = f"{error['input']!r}; legal: {', '.join(legal)}"
        case "value_error":
            problem = str(context["error"])
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return f"{where.lstrip('.') or 'wap_alerts'}: {problem}"
