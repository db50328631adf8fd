"""Audit branches: opened, cloned beside, read, and dropped."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sparkwap.catalog import branches
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.model import (
    Discarded,
    Identifier,
    LedgerRows,
    OpenBranch,
    OpenedBranch,
    OpenTable,
    TableState,
)
from sparkwap.catalog.pointers import Pointer, PointerUpdate, side_objects
from sparkwap.catalog.store import Staged
from sparkwap.core import names
from sparkwap.core.names import split_side_schema
from sparkwap.publish.staging import Staging


class AuditBranches:
    """What a run writes to instead of `main`."""

    def __init__(self, at: Staging) -> None:
        self._at = at
        self._store = at.store

    def open(
        self, identifier: Identifier, branch: str, properties: Mapping[str, str] | None = None
    ) -> OpenedBranch:
        """Make sure that a table is gated and has the audit branch, started at ``main``.

        One metadata commit: property ``write.wap.enabled``, the branch, and the tag
        ``wap_base_<branch>`` that remembers the base and keeps it from expiring. A table without
        snapshots cannot have a branch yet: Spark creates it with the first write. A branch whose
        base ``main`` has moved away from starts anew at ``main``: what was built on the old base
        can never be published.

        Args:
            identifier: The live table.
            branch: The audit branch.
            properties: Table properties to set in the same commit. They are the table's, so they
                are there for all writers and at once.

        Raises:
            CatalogError: There is no such table, or other writers changed it at each attempt.
        """
        return self._store.commit(
            lambda: branches.open_branch(self._store, identifier, branch, properties or {}),
            "open_branch",
            **_facts(identifier, branch),
        )

    def clone(
        self, identifier: Identifier, side_schema: str, properties: Mapping[str, str] | None = None
    ) -> TableState:
        """Make a zero-copy clone of a table in a side schema, under the same name.

        Its metadata grows out of the table's, so history and time travel are those of the table.
        Writes and schema changes on it leave the table alone. A clone that stands there already
        is kept while its base is still the table's present state, else replaced.

        Args:
            identifier: The live table.
            side_schema: ``<schema>__<audit branch>``; created if it is not there.
            properties: Table properties to set on the clone.

        Raises:
            CatalogError: There is no such table, or something else stands in its place there.
        """
        branch = side_schema.removeprefix(f"{identifier[0]}__")
        self._store.backend.ensure_schema(side_schema, branch)
        return self._at.state(
            self._store.commit(
                lambda: branches.clone(self._store, identifier, side_schema, properties or {}),
                "clone",
                **_facts(identifier, branch),
            )
        )

    def copy(self, source: Identifier, target: Identifier, location: str) -> TableState:
        """Make a table of its own that begins with the rows of another one, without copying them.

        It shares the data files that ``main`` of the source has now, and nothing else: identity,
        folder and later writes are its own. It has ``gc.enabled=false``, as the files are not its
        own to delete; the other way round, it is whole only as long as the source keeps that
        snapshot (or until it is built anew).

        Args:
            source: The table to begin with.
            target: Where the new one stands; what stands there is replaced. The schema must exist.
            location: Its folder.

        Raises:
            CatalogError: There is no such table, or other writers changed it at each attempt.
        """
        return self._at.state(
            self._store.commit(
                lambda: branches.copy(self._store, source, target, location),
                "copy",
                table=".".join(target),
            )
        )

    def stands(self, identifier: Identifier, branch: str, snapshot_id: int) -> bool:
        """Whether an audit branch still stands on `main` as it is, and has grown from a snapshot.

        False says that the next `open` opens it anew, or that it was opened anew before.
        """
        row = self._store.backend.get(identifier)
        if row is None or row.kind != "table":
            return False
        return branches.stands(self._store.load(row.location), branch, snapshot_id)

    def require_own(self, identifiers: Iterable[Identifier], branch: str) -> None:
        """Check that no table has a branch or tag of an audit branch's name that no run has made.

        Raises:
            CatalogError: One has; a run would read it for its own, and a discard drop it.
        """
        rows = self._store.backend.find(set(identifiers))
        for row in sorted(rows.values(), key=lambda one: one.identifier):
            if row.kind == "view":
                continue
            ref = branches.strange_ref(self._store.load(row.location), branch)
            if ref is not None:
                raise branches.refusal(row.identifier, branch, ref)

    def all(self) -> list[OpenBranch]:
        """All audit branches that were neither published nor discarded, by name.

        One that has nothing but an empty side schema is among them, so that it can be discarded.
        What a table that cannot be read has of them is not: see `unreadable`.
        """
        marked = self._store.backend.side_schemas()
        rows = self._store.backend.all()
        known = frozenset(marked.values())
        live = self._at.readable(rows, marked)
        tables: dict[str, list[OpenTable]] = {branch: [] for branch in known}
        for found in self._store.map(lambda row: self._open_tables(row, known), live):
            for branch, table in found:
                tables.setdefault(branch, []).append(table)
        side: dict[str, list[Pointer]] = {}
        for row in rows:
            if row.identifier[0] in marked:
                side.setdefault(marked[row.identifier[0]], []).append(row)
        return [
            OpenBranch(branch, tuple(sorted(tables[branch])), side_objects(side.get(branch, [])))
            for branch in sorted(tables)
        ]

    def discard(self, branch: str, run_id: str | None = None) -> Discarded:
        """Drop an audit branch and all that exists only on it, in one transaction.

        Tables lose the branch and its base tag. The side schemas go, with the files of tables
        that were new in them. The ledger gets a row in ``runs``, from which on the branch's
        history starts anew. Calling it again does nothing.

        Args:
            branch: The audit branch.
            run_id: The run that discards, for the ledger; one is made up where there is none.

        Raises:
            CatalogError: Other writers changed it at each attempt, or the database failed.
        """
        folders: set[str] = set()

        def stage() -> Staged[Discarded]:
            rows, marked = self._store.backend.all(), self._store.backend.side_schemas()
            schemas = {schema for schema, owner in marked.items() if owner == branch}
            side = [row for row in rows if row.identifier[0] in schemas]
            live = self._at.readable(rows, marked)
            folders.clear()
            folders.update(self._at.own_folders(side))
            found = self._store.map(lambda row: self._without_branch(row, branch), live)
            dropped = [(row, change) for row, change in zip(live, found, strict=True) if change]
            swaps, files = self._store.grow(dropped)
            named = {
                name for name in self._store.backend.schemas() if split_side_schema(name, branch)
            }
            discarded = Discarded(
                branch,
                tuple(sorted(row.identifier for row, _ in dropped)),
                side_objects(side),
                tuple(sorted(schemas)),
                tuple(sorted(named - schemas)),
            )
            if not dropped and not schemas:
                return Staged(discarded)
            swaps += [PointerUpdate(row, None) for row in side]
            return self._recorded(discarded, swaps, files, schemas, run_id)

        discarded = self._store.commit(stage, "discard", run_id=run_id, branch=branch)
        self._at.purge("discard", folders, discarded.schemas, run_id=run_id, branch=branch)
        return discarded

    def forget(self, identifier: Identifier, branch: str) -> bool:
        """Drop what an audit branch holds of one table or view, so that it is built from ``main``.

        Args:
            identifier: The name that readers use; nothing needs to stand there yet.
            branch: The audit branch.

        Returns:
            Whether there was anything.

        Raises:
            CatalogError: Other writers changed it at each attempt, or the database failed.
        """
        folders: set[str] = set()
        beside = (names.side_schema(identifier[0], branch), identifier[1])

        def stage() -> Staged[bool]:
            rows = self._store.backend.find({identifier, beside})
            folders.clear()
            side, live = rows.get(beside), rows.get(identifier)
            change = self._without_branch(live, branch) if live and live.kind == "table" else None
            swaps, files = self._store.grow([(live, change)] if live and change else [])
            if side is not None:
                folders.update(self._at.own_folders([side]))
                swaps.append(PointerUpdate(side, None))
            return Staged(bool(swaps), swaps, files)

        facts = _facts(identifier, branch)
        found = self._store.commit(stage, "forget", **facts)
        self._at.purge("forget", folders, **facts)
        return found

    def writers(self, identifier: Identifier, head: int | None, since: int | None) -> set[str]:
        """The runs that wrote a line of snapshots, as far as the snapshots say it (``wap_run``).

        Args:
            identifier: The table, of a side schema or not.
            head: The last snapshot of the line.
            since: The snapshot after which the line is looked at; None for all of it.
        """
        row = branches.table_row(self._store, identifier)
        document = self._store.load(row.location)
        found = set()
        while head is not None and head != since:
            snapshot = md.snapshot(document, head)
            if snapshot is None:
                break
            found.add(str((snapshot.get("summary") or {}).get("wap_run") or ""))
            head = snapshot.get("parent-snapshot-id")
        return found - {""}

    def _recorded(
        self,
        discarded: Discarded,
        swaps: Sequence[PointerUpdate],
        files: Sequence[str],
        schemas: Collection[str],
        run_id: str | None,
    ) -> Staged[Discarded]:
        now = datetime.now(UTC)
        row = {
            "run_id": run_id or str(uuid.uuid4()),
            "branch": discarded.branch,
            "command": "wap_discard",
            "started_at": now,
            "ended_at": now,
            "outcome": "discarded",
        }
        try:
            self._at.ledger().ensure({"runs"})
        except BaseException:
            self._store.delete(files)
            raise
        return self._at.ledger().beside(
            Staged(discarded, swaps, files, drop_schemas=schemas), [LedgerRows("runs", [row])]
        )

    def _without_branch(self, row: Pointer, branch: str) -> MetadataChange | None:
        return branches.discard_branch(self._store.load(row.location), branch)

    def _open_tables(self, row: Pointer, known: frozenset[str]) -> list[tuple[str, OpenTable]]:
        document = self._store.load(row.location)
        return [
            (branch, branches.open_table(row.identifier, document, branch))
            for branch in branches.branches_of(document, known)
        ]


def _facts(identifier: Identifier, branch: str) -> dict[str, Any]:
    """What the steps of a commit on one table are about."""
    return {"table": ".".join(identifier), "branch": branch}
