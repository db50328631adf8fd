"""The arguments of ``wap_erase`` and ``wap_rectify``. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from sparkwap.catalog.model import Identifier
from sparkwap.core.arguments import Arguments, argument


@dataclass(frozen=True, kw_only=True)
class Erase(Arguments):
    """Erase the rows of some keys from the whole lake, with a proof; without confirm, only plan."""

    name: ClassVar = "wap_erase"
    subject: str = argument(
        "the kind of the keys, as in the marks of the columns: `meta: {subject: customer}`"
    )
    keys: tuple[str, ...] | None = argument("the keys, such as '42' and '43'", default=None)
    keys_from: str | None = argument(
        "instead of keys: schema.table.column of a table that lists them", default=None
    )
    ignore: tuple[str, ...] = argument(
        "columns to leave out of the search: schema.table.column", default=()
    )
    unreferenced: bool = argument(
        "also delete files of the subject to which no table of this catalog refers and that may "
        "belong to others, such as those of a dropped table",
        default=False,
    )
    confirm: bool = argument(
        "carry it out; otherwise the plan is printed and nothing is changed",
        default=False,
    )

    def __post_init__(self) -> None:
        if (self.keys is None) == (self.keys_from is None):
            raise self.refused("give either keys or keys_from")
        if not all(key.strip() for key in self.keys or ()):
            raise self.refused("keys has an empty text")
        if self.keys_from is not None and not re.fullmatch(r"[^.]+([.][^.]+){2}", self.keys_from):
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
        """The columns to leave out of the search, ``schema.table.column`` in lower case."""
        return frozenset(name.lower() for name in self.ignore)

    @property
    def new_values(self) -> Mapping[str, Any]:
        """New values by column (lower case); none for an erasure."""
        return {}

    @property
    def erases(self) -> bool:
        """Whether rows are erased; otherwise values are corrected."""
        return not self.new_values

    @property
    def token(self) -> str:
        """An id of the request, which is equal in each call and does not reveal its keys."""
        keys = sorted(self.keys or ())
        parts = [self.name, self.subject, keys, self.source, sorted(self.new_values)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class Rectify(Erase):
    """Correct personal values of some keys, and erase the old values from the whole lake."""

    name: ClassVar = "wap_rectify"
    values: Mapping[str, str | None] = argument("new values by column, such as email")

    def __post_init__(self) -> None:
        super().__post_init__()
        for value in self.values.values():
            if value is not None:
                self.text("values", value)

    @cached_property
    def new_values(self) -> Mapping[str, Any]:
        return {str(name).lower(): value for name, value in self.values.items()}
