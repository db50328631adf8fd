"""The arguments of ``wap_erase`` and ``wap_rectify``. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import yaml

from sparkwap.catalog.model import Identifier
from sparkwap.core.arguments import Arguments, argument
from sparkwap.erasure.search import text_of


@dataclass(frozen=True, kw_only=True)
class Erase(Arguments):
    """Erase the rows of some keys from the whole lake, with a proof; without confirm, only plan."""

    name: ClassVar = "wap_erase"
    subject: str = argument(
        "the kind of the keys, as in the marks of the columns: `meta: {subject: customer}`"
    )
    keys: tuple[Any, ...] | None = argument("the keys, such as 42 and 43", default=None)
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

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        if wrong := misread(sys.argv):
            raise cls.refused(
                f"{wrong} of the keys and values in --args are other values in YAML than they look "
                "like (042 is 34, 1_000 is 1000, 12:30 is 750, yes is true); put them in quotes"
            )
        return super().of(given)

    def __post_init__(self) -> None:
        if (self.keys is None) == (self.keys_from is None):
            raise self.refused("give either keys or keys_from")
        if None in map(text_of, self.keys or ()):
            raise self.refused("keys has a list, a mapping or null, which is no key")
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
        keys = sorted(map(str, self.keys or ()))
        parts = [self.name, self.subject, keys, self.source, sorted(self.new_values)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class Rectify(Erase):
    """Correct personal values of some keys, and erase the old values from the whole lake."""

    name: ClassVar = "wap_rectify"
    values: Mapping[str, Any] = argument("new values by column, such as email")

    @cached_property
    def new_values(self) -> Mapping[str, Any]:
        return {str(name).lower(): value for name, value in self.values.items()}


def misread(command: Sequence[str]) -> int:
    """Return how many keys and values in ``--args`` YAML 1.1 does not read as they are written."""
    texts = [after for option, after in pairwise(command) if option == "--args"]
    texts += [one.removeprefix("--args=") for one in command if one.startswith("--args=")]
    wrong = 0
    for text in texts:
        written, read = (yaml.load(text, Loader=one) for one in (yaml.BaseLoader, yaml.SafeLoader))
        for name in ("keys", "values"):
            pairs = zip(_leaves(written.get(name)), _leaves(read.get(name)), strict=True)
            wrong += sum(
                one is not None and not isinstance(one, str) and as_is.lower() != str(one).lower()
                for as_is, one in pairs
            )
    return wrong


def _leaves(given: Any) -> Iterator[Any]:
    if isinstance(given, dict | list):
        for one in given.values() if isinstance(given, dict) else given:
            yield from _leaves(one)
    else:
        yield given
