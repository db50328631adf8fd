"""What is asked for: the arguments of ``wap_erase`` and ``wap_rectify``, checked. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkwap.catalog.model import Identifier
from sparkwap.core.errors import ConfigError

LEGAL: Mapping[str, Mapping[str, str]] = {
    "wap_erase": {
        "subject": "what the keys are of, as the columns are marked: `meta: {subject: customer}`",
        "keys": "the keys, as a list: [42, 43]",
        "keys_from": "instead of keys: schema.table.column of a table that lists them",
        "ignore": "columns that are not looked at, as a list: [schema.table.column]",
        "confirm": "true to do it; without it, nothing is changed and the plan is told",
    }
}
LEGAL = {
    **LEGAL,
    "wap_rectify": {**LEGAL["wap_erase"], "values": "new values by column: {email: a@b.example}"},
}
"""The arguments of each operation, with their legal values in words."""


@dataclass(frozen=True)
class Request:
    """An erasure or a rectification.

    Attributes:
        operation: ``wap_erase`` or ``wap_rectify``.
        subject: Whose.
        keys: Its keys as given; empty if they come from a table.
        source: Schema, table and column that list the keys; None if they are given.
        ignored: Columns that are not looked at, ``schema.table.column`` in lower case.
        values: New values by column (lower case), for a rectification.
        confirmed: Whether to do it.
    """

    operation: str
    subject: str
    keys: tuple[Any, ...] = ()
    source: tuple[Identifier, str] | None = None
    ignored: frozenset[str] = frozenset()
    values: Mapping[str, Any] = field(default_factory=dict)
    confirmed: bool = False

    @classmethod
    def of(cls, operation: str, arguments: Mapping[str, Any]) -> Request:
        """The request that some arguments make.

        Raises:
            ConfigError: Arguments lack, are unknown or contradict each other.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        unknown = sorted(set(given) - set(LEGAL[operation]))
        if unknown:
            raise _refused(operation, f"unknown argument: {', '.join(unknown)}")
        if not isinstance(given.get("subject"), str):
            raise _refused(operation, "subject is missing")
        if ("keys" in given) == ("keys_from" in given):
            raise _refused(operation, "give either keys or keys_from")
        confirm = given.get("confirm")
        if str(confirm).lower() not in ("true", "false", "none"):
            raise _refused(operation, f"confirm is {confirm!r}")
        values = given.get("values", {})
        if operation == "wap_rectify" and not (isinstance(values, dict) and values):
            raise _refused(operation, "values is missing")
        keys = given.get("keys", ())
        return cls(
            operation,
            given["subject"],
            tuple(keys) if isinstance(keys, list | tuple) else (keys,),
            _column(operation, given["keys_from"]) if "keys_from" in given else None,
            frozenset(str(name).lower() for name in _listed(given.get("ignore"))),
            {str(name).lower(): value for name, value in values.items()},
            str(confirm).lower() == "true",
        )

    @property
    def erases(self) -> bool:
        """Whether rows go; else values change."""
        return self.operation == "wap_erase"

    @property
    def token(self) -> str:
        """Names the same request whenever it is made again, without telling its keys."""
        keys = sorted(map(str, self.keys))
        asked = [self.operation, self.subject, keys, self.source, sorted(self.values)]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


def _column(operation: str, text: Any) -> tuple[Identifier, str]:
    parts = str(text).split(".")
    if len(parts) != 3 or not all(parts):
        raise _refused(operation, f"keys_from is {text!r}")
    return (parts[0], parts[1]), parts[2]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value] if value else []


def _refused(operation: str, problem: str) -> ConfigError:
    legal = (f"  {name}: {meaning}" for name, meaning in LEGAL[operation].items())
    head = f"{operation}: {problem}. Nothing has changed. Arguments (--args '{{key: value}}'):"
    return ConfigError("\n".join([head, *legal]))
