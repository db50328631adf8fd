"""Relations that render to where their data is in this run.

A run builds what an Iceberg branch cannot hold (new tables, changed schemas, views) in a side
schema. Every relation asks the overlay at the moment it is rendered, so a model's ``this``, its
``ref()``, its tests and its hooks all mean the object that the run has built, under the name that
it will be published as.

In a replay, tables that the run does not build are read at a snapshot: `shop.orders version as of
7431`, which an alias may follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import ComponentName
from dbt.adapters.spark.relation import SparkRelation

from sparkwap.catalog import Identifier
from sparkwap.core.sqltext import quote
from sparkwap.runs import relation_overlay

# Any other name (`seed.with.dots`) means something else without its quotes, or nothing.
_PLAIN = re.compile(r"\w+|`(?:[^`]|``)+`", re.ASCII)


_AS_OF = re.compile(r" version as of \d+$")


def as_of(snapshot_id: int) -> str:
    """What stands behind a table's name to read it at a snapshot."""
    return f" version as of {snapshot_id}"


def is_as_of(name: str) -> bool:
    """Whether a rendered relation is read at a snapshot, so that it is no plain name."""
    return _AS_OF.search(name) is not None


def identifier_of(relation: BaseRelation) -> Identifier:
    """Schema and name that a relation is published under."""
    return str(relation.schema), str(relation.identifier)


@dataclass(frozen=True, eq=False, repr=False)
class SparkWapRelation(SparkRelation):
    is_iceberg: bool | None = True

    def _render_iterator(self) -> Iterator[tuple[ComponentName | None, str | None]]:
        for key, part in super()._render_iterator():
            if key == ComponentName.Schema and part is not None and self.path.identifier:
                part = relation_overlay.active().schema_of(part, self.path.identifier)
            if part is not None and not _PLAIN.fullmatch(part):
                part = self.quoted(part)
            yield key, part

    def render(self) -> str:
        # A snapshot's id, as a branch or tag may be read with the table's present columns.
        rendered = super().render()
        shown = self.include_policy.schema and self.include_policy.identifier
        if not (shown and self.path.schema and self.path.identifier):
            return rendered
        snapshot = relation_overlay.active().pinned((self.path.schema, self.path.identifier))
        return rendered if snapshot is None else f"{rendered}{as_of(snapshot)}"

    def quoted(self, identifier: str) -> str:
        return quote(identifier)

    def __hash__(self) -> int:
        # The rendered name changes while a run goes on; the hash must not.
        return hash((self.path.schema, self.path.identifier))
