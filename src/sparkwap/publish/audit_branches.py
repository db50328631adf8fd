"""Audit branches: open, clone into side schemas, read, discard."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sparkwap.catalog import branches
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.content_equality import between
from sparkwap.catalog.model import (
    Candidate,
    Discarded,
    Identifier,
    LedgerRows,
    OpenBranch,
    OpenedBranch,
    OpenTable,
    TableState,
)
from sparkwap.catalog.pointers import (
    CannotShare,
    Pointer,
    PointerUpdate,
    changed_names,
    dropped_rows,
    side_objects,
)
from sparkwap.catalog.store import Staged
from sparkwap.core import names
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import split_side_schema
from sparkwap.publish import cherry_pick
from sparkwap.publish.staging import Staging


class AuditBranches:
    """The audit branches of a lake, which runs write to instead of `main`."""

    def __init__(self, at: Staging) -> None:
        self._at = at
        self._store = at.store

    def open(
        self,
        identifier: Identifier,
        branch: str,
        properties: Mapping[str, str] | None = None,
        kept: int | None = None,
    ) -> OpenedBranch:
        """Open the audit branch of a table at ``main``, and switch the gate on.

        One metadata commit sets the property ``write.wap.enabled``, the branch, and the tag
        ``wap_base_<branch>``, which names the base and keeps it from expiring. A table without
        snapshots cannot have a branch yet: Spark creates it with the first write. If ``main`` has
        moved since the branch was opened, the branch starts again at ``main``, because candidates
        on the old base can never be published.

        Args:
            properties: Table properties to set in the same commit. They apply to all writers at
                once.
            kept: A snapshot that the branch must have.

        Raises:
            CatalogError: There is no such table, the branch would not have the snapshot ``kept``,
                or other writers changed the table at each attempt.
        """
        return self._store.commit(
            lambda: branches.open_branch(self._store, identifier, branch, properties or {}, kept),
            "open_branch",
            **_facts(identifier, branch),
        )

    def clone(
        self,
        identifier: Identifier,
        side_schema: str,
        properties: Mapping[str, str] | None = None,
        kept: int | None = None,
    ) -> TableState:
        """Create a zero-copy clone of a table in a side schema, under the same name.

        The clone has the table's history and time travel. Writes and schema changes on it do not
        change the table. Its rows are those of the audit branch, if that has any. An existing
        clone is kept if its base is the table's present state, and replaced otherwise.

        Args:
            side_schema: ``<schema>__<audit branch>``; created if it does not exist.
            kept: A snapshot that ``main`` of the clone must have.

        Raises:
            CatalogError: There is no such table, another object has the clone's name, or the clone
                would not have the snapshot ``kept``.
        """
        branch = side_schema.removeprefix(f"{identifier[0]}__")
        backend = self._store.backend
        backend.ensure_schema(side_schema, branch)

        def cloned(folder: str | None) -> TableState:
            return self._at.state(
                self._store.commit(
                    lambda: branches.clone(
                        self._store, identifier, side_schema, branch, properties or {}, folder, kept
                    ),
                    "clone",
                    **_facts(identifier, branch),
                )
            )

        with suppress(CannotShare):
            return cloned(None)
        root = backend.folder(side_schema) or f"{self._at.warehouse()}/{side_schema}"
        try:
            return cloned(f"{root}/{identifier[1]}-{uuid.uuid4().hex[:8]}")
        except CannotShare as error:
            raise CatalogError(
                f"{'.'.join(identifier)} cannot be cloned, because the catalog does not let two "
                f"tables share files: {error.reason}. Nothing of it was built. A change of its "
                "columns or layout is built on a clone, and so is its compaction. On Apache "
                "Polaris, let tables lie outside of their schema's folder "
                "(`polaris.config.allow.unstructured.table.location` of the catalog), or build "
                "the model under a new name (alias)."
            ) from error

    def replaces_clone(self, identifier: Identifier, place: Identifier) -> bool:
        """Return whether `clone` replaces the clone of a table, because it is outdated."""
        live, side = (self._store.backend.get(one) for one in (identifier, place))
        if live is None or side is None or "view" in (live.kind, side.kind):
            return False
        document, present = self._store.load(side.location), self._store.load(live.location)
        return branches.is_clone(document) and branches.is_outdated(self._store, document, present)

    def folder(self, schema: str, branch: str) -> str:
        """Return the folder of an audit branch's new tables.

        Some servers refuse a table whose folder is not in that of its schema, so that it is the
        side schema's where a server has such folders. The published table keeps it.

        Args:
            schema: The schema that readers use.
        """
        found = self._store.backend.folder(names.side_schema(schema, branch))
        return found or f"{self._at.warehouse()}/{schema}"

    def copy(self, source: Identifier, target: Identifier, location: str) -> TableState:
        """Create a new table that starts with the rows of another table, without copying files.

        The new table shares the data files that ``main`` of the source has now. Its identity,
        folder and later writes are its own. It has ``gc.enabled=false``, because the shared files
        belong to the source. Until it is built again, it needs the source to keep that snapshot.

        Args:
            target: The name of the new table; an existing table is replaced. The schema must exist.
        """
        return self._at.state(
            self._store.commit(
                lambda: branches.copy(self._store, source, target, location),
                "copy",
                table=".".join(target),
            )
        )

    def cherry_pick(self, candidate: Candidate) -> Candidate | None:
        """Move the candidate of a branch to the present ``main``, after a compaction.

        One commit moves the branch and its base tag. ``main`` stays, and the rows of the candidate
        are the same.

        Returns:
            The candidate with its new base and head; None if nothing was moved, because ``main``
            has moved otherwise, or because the candidate changes what was compacted.
        """
        return self._store.commit(
            lambda: cherry_pick.stage(self._store, candidate),
            "cherry_pick",
            **_facts(candidate.identifier, candidate.branch),
        )

    def is_on_present_main(self, identifier: Identifier, branch: str, snapshot_id: int) -> bool:
        """Return whether an audit branch has the present `main` as its base, and has a snapshot.

        If not, the branch was opened again since, or the next `open` does so.
        """
        row = self._store.backend.get(identifier)
        if row is None or row.kind != "table":
            return False
        return branches.is_on_present_main(self._store.load(row.location), branch, snapshot_id)

    def require_own(self, identifiers: Iterable[Identifier], branch: str) -> None:
        """Check that no user has created a branch or tag with the name of an audit branch.

        Raises:
            CatalogError: A table has such a branch or tag. A run would use it as its own, and a
                discard would drop it.
        """
        rows = self._store.backend.find(set(identifiers))
        for row in sorted(rows.values(), key=lambda row: row.identifier):
            if row.kind == "view":
                continue
            ref = branches.strange_ref(self._store.load(row.location), branch)
            if ref is not None:
                raise branches.refusal(row.identifier, branch, ref)

    def all(self) -> list[OpenBranch]:
        """Return all audit branches that were neither published nor discarded, by name.

        The clones of a maintenance are no audit branch. Branches with only an empty side schema are
        included, so that they can be discarded.
        Branches of unreadable tables are left out; see `Lake.unreadable`.
        """
        sides = self._store.backend.side_schemas()
        rows = self._store.backend.all()
        rewritten = {
            row.identifier[0]
            for row in rows
            if row.identifier[0] in sides
            and self._at.fault(row) is None
            and branches.is_of_maintenance(self._store.load(row.location))
        }
        marked = {
            schema: branch
            for schema, branch in sides.items()
            if schema not in rewritten and branch != names.FORMER_BRANCH
        }
        known = frozenset(marked.values())
        live = self._at.readable(rows, sides)
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
        """Drop an audit branch and everything that exists only on it, in one transaction.

        Tables lose the branch and its base tag. The side schemas are dropped, with the files of
        new tables in them. A row in the ledger's ``runs`` ends the history of the branch. A
        second call does nothing.

        Args:
            run_id: The run that discards, for the ledger; a new id if None.
        """
        folders: set[str] = set()
        # What former attempts have done, on a catalog that is not atomic.
        done: list[PointerUpdate] = []
        row_id = run_id or str(uuid.uuid4())

        def stage() -> Staged[Discarded]:
            rows, marked = self._store.backend.all(), self._store.backend.side_schemas()
            schemas = {schema for schema, owner in marked.items() if owner == branch}
            side = [row for row in rows if row.identifier[0] in schemas]
            live = self._at.readable(rows, marked)
            found = self._store.map(lambda row: self._without_branch(row, branch), live)
            dropped = [(row, change) for row, change in zip(live, found, strict=True) if change]
            swaps, files = self._store.grow(dropped)
            was = dropped_rows(done)
            folders.clear()
            folders.update(self._at.own_folders([*side, *was]))
            named = {
                name for name in self._store.backend.schemas() if split_side_schema(name, branch)
            }
            discarded = Discarded(
                branch,
                tuple(sorted({row.identifier for row, _ in dropped} | changed_names(done))),
                side_objects([*side, *was]),
                tuple(sorted(schemas | {row.identifier[0] for row in was})),
                tuple(sorted(named - schemas)),
            )
            if not (discarded.tables or discarded.schemas):
                # A node that failed before it had a candidate is only in the ledger.
                nodes = self._at.ledger().branch_history(branch).nodes
                if all(row["verdict"] == "published" for row in nodes):
                    return Staged(discarded)
            swaps += [PointerUpdate(row, None) for row in side]
            staged = self._recorded(discarded, swaps, files, schemas, row_id)
            return replace(staged, made=done.append)

        discarded = self._store.commit(stage, "discard", run_id=run_id, branch=branch)
        self._at.purge("discard", folders, discarded.schemas, run_id=run_id, branch=branch)
        return discarded

    def forget(self, identifier: Identifier, branch: str) -> bool:
        """Drop an audit branch's candidate of one table or view; the next build starts at ``main``.

        Args:
            identifier: The name that readers use; the table need not exist yet.

        Returns:
            Whether there was a candidate.
        """
        folders: set[str] = set()
        done: list[PointerUpdate] = []
        beside = (names.side_schema(identifier[0], branch), identifier[1])

        def stage() -> Staged[bool]:
            rows = self._store.backend.find({identifier, beside})
            side, live = rows.get(beside), rows.get(identifier)
            change = self._without_branch(live, branch) if live and live.kind == "table" else None
            swaps, files = self._store.grow([(live, change)] if live and change else [])
            was = dropped_rows(done)
            folders.clear()
            folders.update(self._at.own_folders([*([side] if side else []), *was]))
            if side is not None:
                swaps.append(PointerUpdate(side, None))
            return Staged(bool(swaps or done), swaps, files, made=done.append)

        facts = _facts(identifier, branch)
        found = self._store.commit(stage, "forget", **facts)
        self._at.purge("forget", folders, **facts)
        return found

    def writers(self, identifier: Identifier, head: int | None, since: int | None) -> set[str]:
        """Return the runs that wrote the snapshots from ``since`` to ``head``.

        Args:
            identifier: The table, of a side schema or not.
            since: The snapshot before the first one; None for all ancestors of ``head``.

        Returns:
            Run ids, from ``wap_run`` in the summaries of the snapshots.
        """
        document = branches.table_document(self._store, identifier)
        summaries = between(document, since, head)
        return {run for one in summaries if (run := one.get("wap_run"))}

    def _recorded(
        self,
        discarded: Discarded,
        swaps: Sequence[PointerUpdate],
        files: Sequence[str],
        schemas: Collection[str],
        run_id: str,
    ) -> Staged[Discarded]:
        ledger = self._at.ledger()
        try:
            ledger.ensure({"runs"})
            now = ledger.time_on(discarded.branch)
        except BaseException:
            self._store.delete(files)
            raise
        row = {
            "run_id": run_id,
            "branch": discarded.branch,
            "command": "wap_discard",
            "started_at": now,
            "ended_at": now,
            "outcome": "discarded",
        }
        staged = Staged(discarded, swaps, files, drop_schemas=schemas)
        return ledger.beside(staged, [LedgerRows("runs", [row])], first=True)

    def _without_branch(self, row: Pointer, branch: str) -> MetadataChange | None:
        return branches.discard_branch(self._store.load(row.location), branch)

    def _open_tables(self, row: Pointer, known: frozenset[str]) -> list[tuple[str, OpenTable]]:
        document = self._store.load(row.location)
        return [
            (branch, branches.open_table(row.identifier, document, branch))
            for branch in branches.branches_of(document, known)
        ]


def _facts(identifier: Identifier, branch: str) -> dict[str, Any]:
    return {"table": ".".join(identifier), "branch": branch}
