"""Relations that render to the place of their data in this run.

A run builds new tables, changed schemas and views in a side schema, because an Iceberg branch
cannot contain them. A relation looks up its schema in the overlay each time it is rendered. So a
model's ``this``, its ``ref()``, its tests and its hooks use the published name and reach the
candidate of the run.

In a replay, tables that the run does not build are read at a snapshot: `shop.orders version as of
7431`; an alias may follow.
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

# Any other name (`seed.with.dots`) needs quotes.
_PLAIN = re.compile(r"\w+|`(?:[^`]|``)+`", re.ASCII)


_AS_OF = re.compile(r" version as of \d+$")


def as_of(snapshot_id: int) -> str:
    """Return the suffix of a table's name that reads it at a snapshot."""
    return f" version as of {snapshot_id}"


def is_as_of(name: str) -> bool:
    """Return whether a rendered relation has the suffix of :func:`as_of`."""
    return _AS_OF.search(name) is not None


def identifier_of(relation: BaseRelation) -> Identifier:
    """Return the published schema and name of a relation."""
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
        # Use the snapshot's id: Spark may read a branch or tag with the table's present columns.
        rendered = super().render()
        shown = self.include_policy.schema and self.include_policy.identifier
        if not (shown and self.path.schema and self.path.identifier):
            return rendered
        snapshot = relation_overlay.active().pinned((self.path.schema, self.path.identifier))
        return rendered if snapshot is None else f"{rendered}{as_of(snapshot)}"

    def quoted(self, identifier: str) -> str:
        return quote(identifier)

    def __hash__(self) -> int:
        # The rendered name changes during a run; the hash must not.
        return hash((self.path.schema, self.path.identifier))
