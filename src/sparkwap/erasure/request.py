"""What is asked for: the arguments of ``wap_erase`` and ``wap_rectify``. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from sparkwap.catalog.model import Identifier
from sparkwap.core.arguments import Arguments, argument


@dataclass(frozen=True, kw_only=True)
class Erase(Arguments):
    """Take the rows of some keys out of the whole lake, with proof; unless confirmed, plan it."""

    name: ClassVar = "wap_erase"
    subject: str = argument(
        "what the keys are of, as the columns are marked: `meta: {subject: customer}`"
    )
    keys: tuple[Any, ...] | None = argument("the keys, as a list: [42, 43]", default=None)
    keys_from: str | None = argument(
        "instead of keys: schema.table.column of a table that lists them", default=None
    )
    ignore: tuple[str, ...] = argument(
        "columns that are not looked at, as a list: [schema.table.column]", default=()
    )
    confirm: bool = argument(
        "true to do it; without it, nothing is changed and the plan is told", default=False
    )

    def __post_init__(self) -> None:
        if (self.keys is None) == (self.keys_from is None):
            raise self.refused("give either keys or keys_from")
        if self.keys_from is not None and not _is_column(self.keys_from):
            raise self.refused(f"keys_from is {self.keys_from!r}")

    @property
    def source(self) -> tuple[Identifier, str] | None:
        """Schema, table and column that list the keys; None if they are given."""
        if self.keys_from is None:
            return None
        schema, table, column = self.keys_from.split(".")
        return (schema, table), column

    @cached_property
    def ignored(self) -> frozenset[str]:
        """Columns that are not looked at, ``schema.table.column`` in lower case."""
        return frozenset(name.lower() for name in self.ignore)

    @property
    def new_values(self) -> Mapping[str, Any]:
        """New values by column (lower case); none where rows go."""
        return {}

    @property
    def erases(self) -> bool:
        """Whether rows go; else values change."""
        return not self.new_values

    @property
    def token(self) -> str:
        """Names the same request whenever it is made again, without telling its keys."""
        keys = sorted(map(str, self.keys or ()))
        asked = [self.name, self.subject, keys, self.source, sorted(self.new_values)]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class Rectify(Erase):
    """Put personal values of some keys right, and forget the former ones, likewise."""

    name: ClassVar = "wap_rectify"
    values: Mapping[str, Any] = argument("new values by column: {email: a@b.example}")

    @cached_property
    def new_values(self) -> Mapping[str, Any]:
        return {str(name).lower(): value for name, value in self.values.items()}


def _is_column(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 3 and all(parts)
