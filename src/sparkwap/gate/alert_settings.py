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
"""Kind of event -> how bad it is."""
OWNER = "owner"
"""In ``to``: those owners of the tables that are mail addresses."""
PORTS: Mapping[Security, int] = {"starttls": 587, "ssl": 465, "none": 25}
"""Security -> the usual port."""

_ENV_VAR = re.compile(r"\{\{\s*env_var\(\s*(['\"])(?P<name>\w+)\1\s*\)\s*\}\}")
_ENV_RULE = "\"{{ env_var('NAME') }}\""


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


def _value(given: object) -> Value:
    """A text, or ``env_var``."""
    if isinstance(given, Value):
        return given
    text = given.strip() if isinstance(given, str) else ""
    if found := _ENV_VAR.fullmatch(text):
        return Value(variable=found["name"])
    if not text or "{{" in text:
        raise ValueError(f"it is missing, or neither a text nor {_ENV_RULE}")
    return Value(text)


def _secret(given: object) -> Value:
    """``env_var`` alone. What else is given is not repeated, as it may be the secret itself."""
    if isinstance(given, str) and not _ENV_VAR.fullmatch(given.strip()):
        raise ValueError(f"it is a secret, so it is given as {_ENV_RULE}")
    return _value(given)


def _listed(given: object) -> object:
    """One thing stands for a list of it."""
    return [given] if isinstance(given, str) else given


def _number(least: float, most: float = 1e9) -> BeforeValidator:
    def check(given: Any) -> float:
        try:
            # A bool is a number to Python, and none to people.
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
        """A setting without a value is none."""
        if not isinstance(given, Mapping):
            raise ValueError(f"it is a mapping; legal keys: {', '.join(_keys(cls))}")
        return {key: value for key, value in given.items() if value is not None}


class Route(_Settings):
    """Where messages go, and which.

    Attributes:
        name: Its name, for people and for the ledger.
        events: Kinds of events that it takes.
        severity: The least severity that it takes.
        owners: Owners whose tables it takes, in lower case; empty for all, and for nobody's.
        targets: dbt's targets whose runs it takes; empty for all.
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
    """A webhook that takes JSON; with a secret, messages are signed."""

    type: Literal["webhook"]
    url: Secret
    secret: Secret | None = None


class Mail(Route):
    """How mail is sent: the server, and from whom to whom.

    Attributes:
        type: Mail.
        host: The SMTP server.
        port: Its port; None for the usual one.
        security: ``starttls``, ``ssl``, or ``none``.
        user: Who logs in; None for nobody.
        password: The password; None for none.
        sender: The address that it comes from.
        to: Addresses; `OWNER` stands for the owners that are addresses.
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
            raise ValueError("there is no user that it belongs to")
        if fields.data.get("security") == "none":
            raise ValueError("security none would send it in clear; legal: starttls, ssl")
        return password

    @field_validator("to")
    @classmethod
    def _somebody(cls, to: tuple[Value, ...]) -> tuple[Value, ...]:
        if not to:
            raise ValueError(f"it is a list of mail addresses, and {OWNER} for those of the owners")
        return to


class AlertSettings(_Settings):
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

    routes: tuple[Annotated[Chat | Mail | Webhook, Discriminator("type")], ...] = ()
    held_hours: Annotated[float, _number(0)] = 24.0
    quarantine: Annotated[float | None, _number(0)] = None
    suppress_hours: Annotated[float, _number(0)] = 24.0
    timeout: Annotated[float, _number(0.1, 300)] = 15.0
    tries: Annotated[int, _number(1, 20)] = 4
    sample_rows: Annotated[int, _number(0, 20)] = 0

    @field_validator("routes")
    @classmethod
    def _by_name(cls, routes: tuple[Route, ...]) -> tuple[Route, ...]:
        names = [route.name for route in routes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two are called {', '.join(map(repr, twice))}")
        return routes

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
    """What is wrong, with its place; of what was given only what can be no secret."""
    place, context = list(error["loc"]), error.get("ctx", {})
    # Within a route its type follows its number.
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
