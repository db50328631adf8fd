"""Finds the states of tables on a branch, on a tag or on ``main``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkwap.catalog import branches
from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import Identifier, Kind
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.sparksql import by_id, current_schema
from sparkwap.core import names
from sparkwap.core.errors import ConfigError, MetadataFileMissing
from sparkwap.diff.plan import Column, columns_of
from sparkwap.publish.lake import Lake

BASE = "base"
"""Compare with the state of ``main`` when the branch was opened."""


@dataclass(frozen=True)
class TableVersion:
    """A table or view in one of the two states.

    Attributes:
        identifier: The name that readers use.
        ref: The branch or tag to read; None for a view.
        snapshot: Its snapshot; None for a view, or a table without rows.
        branch: The audit branch on which a session can read a view; empty for none.
    """

    identifier: Identifier
    row: Pointer
    document: md.Document
    ref: str | None
    snapshot: int | None
    branch: str = ""

    @property
    def kind(self) -> Kind:
        """``table`` or ``view``."""
        return self.row.kind

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns: the present ones of the table; for a tag, those of its snapshot."""
        return columns_of(self._schema())

    @property
    def found(self) -> md.Document | None:
        """The entry of its snapshot in the metadata."""
        return None if self.snapshot is None else md.snapshot(self.document, self.snapshot)

    def with_schema(self) -> md.Document:
        """Return its metadata, with the schema of this state as the current schema."""
        schema = self._schema()
        return {**self.document, "current-schema-id": schema.get("schema-id", 0)}

    def _schema(self) -> Mapping[str, Any]:
        ref = md.refs_of(self.document).get(self.ref or "")
        of_tag = ref is not None and ref.type == "tag"
        wanted = (self.found or {}).get("schema-id") if of_tag else None
        known = [] if wanted is None else self.document.get("schemas")
        return by_id(known, "schema-id", wanted) or current_schema(self.document)

    def rows(self) -> int | None:
        """Return its number of rows; None if metadata does not have it."""
        if self.kind == "view":
            return None
        if self.snapshot is None:
            return 0
        deletes = md.count(self.found, "total-delete-files")
        return None if deletes else md.count(self.found, "total-records")


def states_of(lake: Lake, ref: str) -> dict[Identifier, TableVersion]:
    """Return the tables and views of a branch or tag, which has to exist; nothing for ``main``."""
    if ref == md.MAIN:
        return {}
    marked = lake.store.backend.side_schemas()
    rows = lake.store.backend.all()
    found: dict[Identifier, TableVersion] = {}
    live = [r for r in rows if r.kind == "table" and r.identifier[0] not in marked]
    for row, document in zip(live, lake.store.documents(live), strict=True):
        head = md.refs_of(document).get(ref)
        if head is not None:
            found[row.identifier] = TableVersion(
                row.identifier, row, document, ref, head.snapshot_id
            )
    for row in rows:
        schema = names.split_side_schema(row.identifier[0], ref)
        if schema is not None and marked.get(row.identifier[0]) == ref:
            identifier = (schema, row.identifier[1])
            found[identifier] = _at(identifier, row, lake.store.load(row.location), ref)
    if not found and ref not in marked.values():
        raise ConfigError(_unknown(lake, ref))
    return found


def base_of(
    lake: Lake, state: TableVersion, branch: str, now: TableVersion | None
) -> TableVersion | None:
    """Return the state of a table when an audit branch was opened.

    Args:
        now: The present state on ``main``, which is returned for a view, and if there is no base
            or its metadata file does not exist any more.
    """
    if state.kind == "view":
        return now
    if branches.is_clone(state.document):
        location, snapshot = branches.clone_base(state.document)
        row = Pointer(state.identifier, "table", location)
        try:
            document = lake.store.load(location)
        except MetadataFileMissing:
            return now  # Iceberg can delete old metadata files.
        return TableVersion(state.identifier, row, document, md.MAIN, snapshot)
    tag = names.base_tag(branch)
    base = md.refs_of(state.document).get(tag)
    if base is not None:
        return replace(state, ref=tag, snapshot=base.snapshot_id)
    if branches.empty_base(branch) in md.properties_of(state.document):
        return replace(state, ref=None, snapshot=None)
    return now


def has_moved(state: TableVersion, branch: str, now: TableVersion | None) -> bool:
    """Return whether ``main`` of a table has moved since the audit branch was opened."""
    if state.kind == "view" or now is None or now.kind == "view":
        return False
    if branches.is_clone(state.document):
        return branches.clone_base(state.document)[1] != now.snapshot
    base = md.refs_of(state.document).get(names.base_tag(branch))
    return base is not None and base.snapshot_id != now.snapshot


def published(lake: Lake, identifiers: Collection[Identifier]) -> dict[Identifier, TableVersion]:
    """Return the states of tables and views on ``main``."""
    rows = list(lake.store.backend.find(set(identifiers)).values())
    return {
        row.identifier: _at(row.identifier, row, document)
        for row, document in zip(rows, lake.store.documents(rows), strict=True)
    }


def _at(
    identifier: Identifier, row: Pointer, document: md.Document, branch: str = ""
) -> TableVersion:
    if row.kind == "view":
        return TableVersion(identifier, row, document, None, None, branch)
    return TableVersion(identifier, row, document, md.MAIN, md.main_of(document))


def _unknown(lake: Lake, ref: str) -> str:
    known = ", ".join(branch.branch for branch in lake.branches.all()) or "none"
    return (
        f"There is no audit branch '{ref}', and no table has a branch or tag of this name. Nothing "
        f"was compared. Open audit branches: {known}. See them with: dbt run-operation wap_status"
    )
