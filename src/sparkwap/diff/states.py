"""Where the tables of a branch, of a tag or of ``main`` stand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkwap.catalog import branches
from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import Identifier, Kind
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.sparksql import current_schema
from sparkwap.core import names
from sparkwap.core.errors import ConfigError
from sparkwap.diff.plan import Column, columns_of
from sparkwap.publish.lake import Lake

BASE = "base"
"""What to compare with in place of ``main``: where ``main`` was when the branch was opened."""


@dataclass(frozen=True)
class TableVersion:
    """A table or view as one of the two sides has it.

    Attributes:
        identifier: The name that readers use.
        row: Where it stands, and its metadata file.
        document: Its metadata.
        ref: Branch or tag that is read; None for a view.
        snapshot: The snapshot that this is; None for a view, or a table without rows.
        branch: The audit branch a session has to be on to read a view; empty for none.
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
        """Its columns: those of the table now; for a tag, those that it had."""
        return columns_of(self._schema())

    @property
    def found(self) -> md.Document | None:
        """The snapshot in its metadata."""
        return None if self.snapshot is None else md.snapshot(self.document, self.snapshot)

    @property
    def of_tag(self) -> bool:
        """Whether it is that of a tag, which keeps its columns."""
        ref = md.refs_of(self.document).get(self.ref or "")
        return ref is not None and ref.type == "tag"

    def with_schema(self) -> md.Document:
        """Its metadata, with the columns that this state has as the present ones."""
        schema = self._schema()
        return {**self.document, "current-schema-id": schema.get("schema-id", 0)}

    def _schema(self) -> Mapping[str, Any]:
        found = self.found
        if self.of_tag and found is not None:
            wanted = found.get("schema-id")
            for schema in self.document.get("schemas") or ():
                if wanted is not None and schema.get("schema-id") == wanted:
                    return dict(schema)
        return current_schema(self.document)

    def rows(self) -> int | None:
        """How many rows it has, where metadata tells it."""
        if self.kind == "view":
            return None
        if self.snapshot is None:
            return 0
        summary = (self.found or {}).get("summary") or {}
        deletes = str(summary.get("total-delete-files", "0"))
        records = str(summary.get("total-records", ""))
        return int(records) if deletes == "0" and records.isdecimal() else None


def states_of(lake: Lake, ref: str) -> dict[Identifier, TableVersion]:
    """The tables and views that a branch or tag has of its own; nothing for ``main``.

    Raises:
        ConfigError: There is no such branch or tag.
    """
    if ref == md.MAIN:
        return {}
    marked = lake.store.backend.side_schemas()
    rows = lake.store.backend.all()
    found: dict[Identifier, TableVersion] = {}
    live = [r for r in rows if r.kind == "table" and r.identifier[0] not in marked]
    for row, document in zip(live, lake.store.map(_load(lake), live), strict=True):
        there = md.refs_of(document).get(ref)
        if there is not None:
            found[row.identifier] = TableVersion(
                row.identifier, row, document, ref, there.snapshot_id
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
    """What a table or view was when an audit branch was opened, as far as the lake knows.

    Args:
        lake: The lake.
        state: What the branch has.
        branch: The audit branch.
        now: What readers of ``main`` have now: the answer for a view, which has no history.
    """
    if state.kind == "view":
        return now
    if branches.is_clone(state.document):
        location, snapshot = branches.clone_base(state.document)
        row = Pointer(state.identifier, "table", location)
        return TableVersion(state.identifier, row, lake.store.load(location), md.MAIN, snapshot)
    tag = names.base_tag(branch)
    there = md.refs_of(state.document).get(tag)
    if there is not None:
        return replace(state, ref=tag, snapshot=there.snapshot_id)
    if branches.empty_base(branch) in md.properties_of(state.document):
        return replace(state, ref=None, snapshot=None)
    return now


def has_moved(state: TableVersion, branch: str, now: TableVersion | None) -> bool:
    """Whether ``main`` of a table is elsewhere than when the audit branch was opened."""
    if state.kind == "view" or now is None or now.kind == "view":
        return False
    if branches.is_clone(state.document):
        return branches.clone_base(state.document)[1] != now.snapshot
    there = md.refs_of(state.document).get(names.base_tag(branch))
    return there is not None and there.snapshot_id != now.snapshot


def published(lake: Lake, identifiers: Collection[Identifier]) -> dict[Identifier, TableVersion]:
    """Tables and views as readers of ``main`` have them."""
    rows = list(lake.store.backend.find(set(identifiers)).values())
    return {
        row.identifier: _at(row.identifier, row, document)
        for row, document in zip(rows, lake.store.map(_load(lake), rows), strict=True)
    }


def _at(
    identifier: Identifier, row: Pointer, document: md.Document, branch: str = ""
) -> TableVersion:
    if row.kind == "view":
        return TableVersion(identifier, row, document, None, None, branch)
    return TableVersion(identifier, row, document, md.MAIN, md.main_of(document))


def _load(lake: Lake) -> Any:
    return lambda row: lake.store.load(row.location)


def _unknown(lake: Lake, ref: str) -> str:
    known = ", ".join(one.branch for one in lake.branches.all()) or "none"
    return (
        f"There is no audit branch '{ref}', and no table has a branch or tag of this name. Nothing "
        f"was compared. Open audit branches: {known}. See them with: dbt run-operation wap_status"
    )
