"""Shared parts of publish, rollback and discard: plans, staged commits, folders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from sparkwap.catalog import branches, read_dependencies, sparksql
from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import plain_location
from sparkwap.catalog.model import (
    Candidate,
    Identifier,
    LedgerRows,
    Mismatch,
    PublishedEntry,
    Read,
    TableState,
    UndonePublish,
    merge_rows,
)
from sparkwap.catalog.planning import Differs, MovePlan
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.store import Staged, Store
from sparkwap.core.checkpoints import COMMIT_STEPS, Operation, checkpoint
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import FORMER_BRANCH, folded, split_side_schema

if TYPE_CHECKING:
    from sparkwap.ledger.ledger import Ledger

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Staging:
    """The store of a lake, with the helpers of commits on several tables.

    Attributes:
        warehouse: Returns the folder of new tables; raises if there is none.
    """

    store: Store
    ledger: Callable[[], Ledger]
    warehouse: Callable[[], str]

    def plan(
        self,
        planner: Callable[[T], MovePlan],
        things: Sequence[T],
        refusal: Callable[[Sequence[Mismatch]], Exception],
        more: Sequence[Mismatch] = (),
    ) -> list[MovePlan]:
        """Return the plans of all things.

        Raises:
            Exception: ``refusal`` with all mismatches, and ``more``.
        """

        def plan_or_mismatch(thing: T) -> MovePlan | Mismatch:
            try:
                return planner(thing)
            except Differs as differs:
                return differs.mismatch

        planned = self.store.map(plan_or_mismatch, things)
        mismatches = [plan for plan in planned if isinstance(plan, Mismatch)] + list(more)
        if mismatches:
            raise refusal(mismatches)
        return [plan for plan in planned if isinstance(plan, MovePlan)]

    def moved(self, read: Collection[Read], rows: Mapping[Identifier, Pointer]) -> list[Mismatch]:
        """Return the tables and views that have changed since they were read."""
        found = [
            read_dependencies.moved(one, rows.get(one.identifier), self.store.load) for one in read
        ]
        return list(dict.fromkeys(one for one in found if one is not None))

    def alike(self, identifiers: Collection[Identifier]) -> set[Identifier]:
        """Return the tables and views whose names differ in case only; see `Lake.alike`."""
        wanted = {folded(one): one for one in identifiers}
        schemas = {schema for schema, _ in wanted}
        members = {
            (schema, name)
            for schema in (self.store.backend.schemas() if wanted else ())
            if schema.lower() in schemas
            for name in self.store.backend.kinds(schema)
        }
        others = {one for one in members if folded(one) in wanted} - set(identifiers)
        return {one for one in others if not self._is_same(one, wanted[folded(one)])}

    def _is_same(self, one: Identifier, other: Identifier) -> bool:
        there, here = self.store.backend.get(one), self.store.backend.get(other)
        return there is not None and here is not None and there.location == here.location

    def taken(self, candidates: Iterable[Candidate]) -> list[Mismatch]:
        """Return the new names that differ in case only from another name of lake or publish."""
        new = {
            one.identifier for one in candidates if one.how == "side" and one.base_metadata is None
        }
        others = self.alike(new) | new
        return [
            Mismatch(one, "name", "none that differs in case only", ".".join(other), "alike")
            for one in sorted(new)
            for other in sorted(others - {one})
            if folded(other) == folded(one)
        ]

    def staged(
        self,
        result: R,
        plans: Sequence[MovePlan],
        appends: Sequence[LedgerRows],
        drop_if_empty: Collection[str] = (),
    ) -> Staged[R]:
        """Return the staged commit of all plans, with rows of the ledger."""
        writes = {path: document for plan in plans for path, document in plan.writes.items()}
        files = self.store.write(writes)
        swaps = [swap for plan in plans for swap in plan.swaps]
        # The ledger comes last, because concurrent runs write to it most often.
        return self.ledger().beside(
            Staged(result, swaps, files, drop_if_empty), merge_rows(appends)
        )

    def prepare_ledger(self, appends: Sequence[LedgerRows], publishes: bool) -> None:
        """Create the ledger's tables for these rows, and for a publish."""
        tables = {append.table for append in appends}
        if "publishes" in tables:
            raise ValueError("rows of 'publishes' are written by publish and rollback themselves")
        self.ledger().ensure(tables | ({"publishes"} if publishes else set()))

    def side_schemas(self, branch: str, candidates: Sequence[Candidate]) -> dict[str, str]:
        """Return side schema -> schema of the audit branch."""
        marked = self.store.backend.side_schemas()
        found = {
            side: split_side_schema(side, branch) or side
            for side, owner in marked.items()
            if owner == branch
        }
        used = {one.place[0]: one.identifier[0] for one in candidates if one.how == "side"}
        return found | used

    def state(self, row: Pointer) -> TableState:
        """Return the state of a table or view from its row."""
        document = self.store.load(row.location)
        view = md.is_view(document)
        properties = md.properties_of(document)
        return TableState(
            identifier=row.identifier,
            kind=row.kind,
            uuid=md.identity(document),
            metadata_location=row.location,
            location=document["location"],
            main=md.main_of(document),
            refs=md.refs_of(document),
            columns=sparksql.columns(sparksql.current_schema(document)),
            partitioning=() if view else sparksql.partitioning(document),
            sort_order=() if view else sparksql.sort_order(document),
            properties=properties,
            format_version=int(document["format-version"]),
            comment=properties.get("comment"),
        )

    def fault(self, row: Pointer) -> str | None:
        """Return the error of a table or view with unreadable metadata; None if it is readable."""
        try:
            self.store.load(row.location)
        except CatalogError as error:
            return str(error)
        return None

    def readable(self, rows: Sequence[Pointer], marked: Collection[str]) -> list[Pointer]:
        """Return the live tables with readable metadata; damaged ones must not stop the others."""
        live = [row for row in rows if row.kind == "table" and row.identifier[0] not in marked]
        faults = self.store.map(self.fault, live)
        return [row for row, fault in zip(live, faults, strict=True) if fault is None]

    def own_folders(self, rows: Sequence[Pointer]) -> set[str]:
        """Return the folders of new tables and views.

        A clone uses the folder of the live table, or the live table may use files of the clone's.
        """
        folders: set[str] = set()
        for row in rows:
            if self.fault(row) is not None:
                continue  # The folder is unknown; a sweep finds its files.
            document = self.store.load(row.location)
            staged = f"__{FORMER_BRANCH}_" in row.identifier[1]
            if not branches.is_clone(document) and not staged:
                folders.add(str(document["location"]).rstrip("/"))
        return folders

    def purge(
        self,
        operation: Operation,
        folders: Collection[str],
        schemas: Collection[str] = (),
        *,
        of_views: bool = False,
        **facts: Any,
    ) -> None:
        """Delete folders that no object of the catalog uses, and empty schema folders.

        A folder with files of another table, such as a copy, stays; a sweep deletes the others of
        its files.
        """
        if not folders:
            return
        checkpoint(COMMIT_STEPS[operation]["purging"], **facts)
        warehouse = self.warehouse()
        try:
            rows = self.store.backend.known()
            used = [row.location for row in rows]
            used += [] if of_views else _manifests(self.store.documents(rows))
        except CatalogError:
            # The commit before this has succeeded, so the command must not fail here. A sweep
            # deletes the folders later.
            return
        used = [*map(plain_location, used), f"{plain_location(warehouse)}/"]
        for folder in folders:
            inside = f"{plain_location(folder)}/"
            if not any(location.startswith(inside) for location in used):
                self.store.files.delete_tree(folder)
        for schema in schemas:
            self.store.files.delete_empty(f"{warehouse}/{schema}")
        checkpoint(COMMIT_STEPS[operation]["purged"], **facts)


def _manifests(documents: Iterable[md.Document]) -> list[str]:
    """Return the manifest lists of all snapshots, and the manifests that a snapshot has inline."""
    snapshots = [one for document in documents for one in document.get("snapshots") or ()]
    lists = [one["manifest-list"] for one in snapshots if "manifest-list" in one]
    return lists + [path for one in snapshots for path in one.get("manifests") or ()]


def names_of(candidates: Iterable[Candidate]) -> set[Identifier]:
    """Return the live names and the side names of candidates."""
    return {name for one in candidates for name in (one.identifier, one.place)}


def with_publish_id(append: LedgerRows, publish_id: str) -> LedgerRows:
    """Return rows of ``runs`` with the id of the publish; other rows unchanged."""
    if append.table != "runs":
        return append
    return LedgerRows("runs", [{"publish_id": publish_id, **row} for row in append.rows])


def side_views(rows: Iterable[Pointer], schemas: Collection[str]) -> list[Pointer]:
    """Return the views in side schemas.

    A publish writes a new metadata file for a view, so that its side folder is no longer used.
    """
    return [row for row in rows if row.kind == "view" and row.identifier[0] in schemas]


def publish_rows(
    action: str,
    publish_id: str,
    run_id: str,
    branch: str,
    at: datetime,
    entries: Sequence[PublishedEntry],
    manifest_hash: str | None = None,
) -> list[LedgerRows]:
    """Return the ledger's rows of a publish."""
    rows = [
        {
            "publish_id": publish_id,
            "run_id": run_id,
            "branch": branch,
            "schema": entry.identifier[0],
            "name": entry.identifier[1],
            "how": entry.how,
            "base_snapshot": entry.base,
            "base_metadata": entry.base_metadata_location,
            "candidate_snapshot": entry.candidate,
            "published_metadata": entry.published_metadata_location,
            "published_at": at,
            "action": action,
            "manifest_hash": manifest_hash,
        }
        for entry in entries
    ]
    return [LedgerRows("publishes", rows)] if rows else []


def rollback_rows(
    undone: Sequence[UndonePublish],
    asked: str,
    run_id: str,
    at: datetime,
    rows: Mapping[Identifier, Pointer],
) -> list[LedgerRows]:
    """Return the ledger's rows of a rollback; ``asked`` is the publish that the user named."""
    found = [
        {
            **row,
            "undone_by": asked,
            "undone_metadata": rows[name].location if (name := _name_of(row)) in rows else None,
        }
        for one in undone
        for append in publish_rows("rollback", one.publish_id, run_id, one.branch, at, one.entries)
        for row in append.rows
    ]
    return [LedgerRows("publishes", found)] if found else []


def _name_of(row: Mapping[str, Any]) -> Identifier:
    return row["schema"], row["name"]
