"""Rewrites the files of a table, and moves `main` only if no row and no writer was in the way.

The rewrite happens on a clone in a side schema, which no reader looks at, so all of Iceberg's
procedures can be used and a crash leaves the table as it was. `main` then gets one snapshot with
the clone's files by compare and swap. Its summary names the snapshot before it as having the same
rows (`content_equality.SAME_ROWS_AS`), so that runs which have read the table need no rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import branches as br
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog import sparksql
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.content_equality import (
    ROWS_SINCE,
    SAME_ROWS_AS,
    rows_since,
    same_rows_as,
)
from sparkwap.catalog.file_plan import StateFiles
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.snapshot_files import Snapshot, Unreadable
from sparkwap.catalog.store import Staged
from sparkwap.core.errors import SparkwapError
from sparkwap.core.names import base_tag, side_schema, split_side_schema
from sparkwap.core.sqltext import fingerprint, literal, quote
from sparkwap.maintenance.file_choice import Compaction, options
from sparkwap.maintenance.removal import InUse, unused
from sparkwap.maintenance.rules import Rules

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

Execute = Callable[[str], Sequence[Sequence[Any]]]
"""Sends a statement to Spark, and returns its rows."""

_EQUAL = 20
"""The most snapshots with the same rows that a summary names."""


class NotMoved(SparkwapError):
    """A rewrite was dropped, because a writer was faster or is at work; nothing has changed."""


class RowsDiffer(SparkwapError):
    """A rewrite does not have the rows of the table; it was dropped, and nothing has changed."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """A table whose files were rewritten.

    Attributes:
        base: The snapshot of `main` before.
        head: The snapshot of `main` after; the same if Iceberg found nothing to rewrite.
        files: Number of data files before and after.
        delete_files: Number of delete files before and after.
    """

    base: int
    head: int
    files: tuple[int, int]
    delete_files: tuple[int, int]
    added_bytes: int


def at_work(lake: Lake, identifier: Identifier, own: str = "") -> str | None:
    """Return who has unpublished work on a table that a rewrite may spoil, in words; else None.

    That is every audit branch of a living run, because it may still write; every other audit branch
    with a candidate, because its publish compares `main` with the state that it was built on; and a
    branch of a user that `main` could be moved to.

    Args:
        own: The branch of the maintenance itself.
    """
    if not lake.store.backend.atomic and lake.ledger.open_journals():
        return "a sequential publish is not completed"
    row = br.table_row(lake.store, identifier)
    marked = lake.store.backend.side_schemas()
    living = {lease.branch: lease for lease in leasing.living(lake.leases)}
    sides = {
        owner: (schema, identifier[1])
        for schema, owner in marked.items()
        if owner != own and split_side_schema(schema, owner) == identifier[0]
    }
    beside = lake.store.backend.find(set(sides.values())) if sides else {}
    document = lake.store.load(row.location)
    on_it = br.branches_of(document, frozenset(marked.values())) - {own}
    candidates = {
        owner
        for owner, name in sides.items()
        if name in beside and not br.is_of_maintenance(lake.store.load(beside[name].location))
    }
    refs = md.refs_of(document)
    for branch in sorted(on_it | candidates):
        if branch in living:
            return leasing.describe(living[branch], lives=True)
        head, base = refs.get(branch), refs.get(base_tag(branch))
        written = head is not None and head.snapshot_id != (base.snapshot_id if base else None)
        if branch in candidates or written:
            return f"audit branch {branch} has an unpublished change of it"
    main = md.main_of(document)
    for name, ref in refs.items():
        theirs = ref.type == "branch" and name != md.MAIN and name not in on_it
        if not theirs or ref.snapshot_id == main:
            continue
        if main in md.ancestor_ids(document, ref.snapshot_id):
            return f"branch {name} is ahead of main"
    return None


def remove_leftovers(lake: Lake) -> None:
    """Drop the side schemas of maintenances that died: with their clones, or still empty.

    Also former tables that are left under another name.
    """
    lake.ledger.drop_set_aside()
    marked = lake.store.backend.side_schemas()
    # Read after the schemas: a run takes its lease before it creates one.
    living = {lease.branch for lease in leasing.living(lake.leases)}
    for schema, branch in marked.items():
        if branch not in living:
            with suppress(InUse):
                lake.store.commit(
                    partial(_without_leftover, lake, schema, branch), "drop_schema", schema=schema
                )


def _without_leftover(lake: Lake, schema: str, branch: str) -> Staged[None]:
    rows = lake.store.backend.members(schema)
    if not all(br.is_of_maintenance(lake.store.load(row.location)) for row in rows):
        return Staged(None)
    swaps = [PointerUpdate(row, None) for row in rows]
    return Staged(None, swaps, drop_schemas=[schema], guard=unused(lake, branch))


class Compactor:
    """Compacts tables of a lake, one after the other.

    Args:
        execute: Sends statements to Spark, in a session without a cache of tables.
        branch: A branch that nothing else uses, which names its side schemas. A lease is taken for
            it.
    """

    def __init__(self, lake: Lake, execute: Execute, *, run_id: str, branch: str) -> None:
        self._lake = lake
        self._execute = execute
        self._run_id = run_id
        self._branch = branch

    def compact(
        self, identifier: Identifier, work: Compaction, rules: Rules, max_files: int | None = None
    ) -> Compacted:
        """Rewrite a table's files.

        Args:
            max_files: The most files to rewrite; None for all.

        Raises:
            NotMoved: Another writer was faster, or has unpublished work on the table.
            RowsDiffer: The rewritten rows are not the rows of the table.
        """
        side = side_schema(identifier[0], self._branch)
        clone = (side, identifier[1])
        row = br.table_row(self._lake.store, identifier)
        base = self._lake.store.load(row.location)
        if md.main_of(base) is None:
            raise NotMoved(f"{'.'.join(identifier)} has no rows.")
        with self._dropped_at_the_end(side):
            self._lake.branches.clone(identifier, side, {br.REWRITTEN_BY: self._run_id})
            ordered = bool(sparksql.sort_order(base))
            for statement in statements(
                self._lake.name, clone, work, rules, max_files, ordered=ordered
            ):
                self._execute(statement)
            rewritten = br.table_row(self._lake.store, clone)
            return self._published(identifier, base, rewritten)

    @contextmanager
    def _dropped_at_the_end(self, side: str) -> Iterator[None]:
        try:
            yield
        finally:
            # What cannot be dropped now, the next maintenance drops.
            with suppress(SparkwapError):
                self._lake.drop_schema(side, purge=False)

    def _published(self, identifier: Identifier, base: md.Document, side: Pointer) -> Compacted:
        clone = self._lake.store.load(side.location)
        start, head = md.main_of(base), md.main_of(clone)
        assert start is not None
        if br.clone_base(clone)[1] != start:
            raise NotMoved(f"{'.'.join(identifier)} has changed since the rewrite began.")
        if head is None or not md.grew_from(clone, head, start):
            raise RowsDiffer(f"The rewrite of {'.'.join(identifier)} has lost its history.")
        try:
            before, after = _files(self._lake, base, start), _files(self._lake, clone, head)
        except Unreadable:
            self._require_unmoved(identifier, start)
            raise
        numbers = len(before.data), len(after.data)
        deletes = len(before.deletes), len(after.deletes)
        if head == start:
            return Compacted(start, start, numbers, deletes, 0)
        if not same_by_files(before, after) and not self._same_by_rows(identifier, side):
            self._require_unmoved(identifier, start)
            raise RowsDiffer(
                f"The rewrite of {'.'.join(identifier)} does not have the same rows. It was "
                "dropped, and the table is as it was. Please report this with the versions of "
                "Spark and Iceberg."
            )
        self._move(identifier, base, side)
        former = {one.path for one in before.data}
        added = sum(one.size for one in after.data if one.path not in former)
        return Compacted(start, head, numbers, deletes, added)

    def _require_unmoved(self, identifier: Identifier, start: int) -> None:
        """Raise NotMoved if `main` is no longer at a snapshot."""
        row = br.table_row(self._lake.store, identifier)
        if md.main_of(self._lake.store.load(row.location)) != start:
            raise NotMoved(f"main of {'.'.join(identifier)} was moved meanwhile.")

    def _same_by_rows(self, identifier: Identifier, side: Pointer) -> bool:
        """Return whether `main` and its clone have the same rows, by reading them.

        `main` is read by its name, because a version is read with the columns of its time.
        """
        state = self._lake.state(side.identifier)
        assert state is not None
        names = [column.name for column in state.columns]
        listed = ", ".join(map(quote, names))

        def read(table: Identifier) -> list[list[Any]]:
            full = ".".join(map(quote, (self._lake.name, *table)))
            query = fingerprint(f"select {listed} from {full}", names)
            return list(map(list, self._execute(query)))

        return read(identifier) == read(side.identifier)

    def _move(self, identifier: Identifier, base: md.Document, side: Pointer) -> None:
        """Move `main` to the rewritten files, if it is still at the snapshot that was rewritten."""
        name = ".".join(identifier)
        store, clone = self._lake.store, self._lake.store.load(side.location)

        def stage() -> Staged[None]:
            row = br.table_row(store, identifier)
            document = store.load(row.location)
            if md.identity(document) != md.identity(base):
                raise NotMoved(f"{name} was replaced by another table meanwhile.")
            if md.main_of(document) != md.main_of(base):
                raise NotMoved(f"main of {name} was moved meanwhile.")
            if md.definition(document) != md.definition(base):
                raise NotMoved(f"The definition of {name} was changed meanwhile.")
            if store.backend.get(side.identifier) != side:
                raise NotMoved("Its lease had expired, and the rewrite was swept meanwhile.")
            other = at_work(self._lake, identifier, self._branch)
            if other is not None:
                raise NotMoved(f"{name}: {other}.")
            change = rewritten_main(document, clone, self._run_id)
            if not store.backend.takes_files and not _is_newest(change, document):
                raise NotMoved(f"{name} got snapshots on other branches meanwhile.")
            # A run that clones the table now would have to build again. A sweep that drops the
            # clone deletes its files.
            requires = {side.identifier: side, **self._no_clones(identifier)}
            return Staged(None, *store.grow([(row, change)]), requires=requires)

        self._lake.store.commit(stage, "maintain", table=name, run_id=self._run_id)

    def _no_clones(self, identifier: Identifier) -> dict[Identifier, Pointer | None]:
        schema, name = identifier
        living = {lease.branch for lease in leasing.living(self._lake.leases)} - {self._branch}
        return {(side_schema(schema, branch), name): None for branch in living}


def rewritten_main(live: md.Document, clone: md.Document, run_id: str) -> MetadataChange:
    """Return the change that gives `main` the files of its rewritten clone. Pure.

    Only the clone's last snapshot is added, directly after the present one.

    Args:
        live: The live table, with `main` as it was when the clone was made.
        clone: Its clone, after the rewrite.
    """
    start, head = md.main_of(live), md.main_of(clone)
    rewritten = md.snapshot(clone, head) if head is not None else None
    assert start is not None and head is not None and rewritten is not None
    equal = [start, *same_rows_as(md.snapshot(live, start))]
    summary = {
        **(rewritten.get("summary") or {}),
        "operation": "replace",
        "wap_run": run_id,
        SAME_ROWS_AS: ",".join(map(str, equal[:_EQUAL])),
        ROWS_SINCE: str(rows_since(live, start)),
    }
    snapshot = {**rewritten, "parent-snapshot-id": start, "summary": summary}
    return MetadataChange(live).add_snapshot(snapshot).branch(md.MAIN, head)


def _is_newest(change: MetadataChange, live: md.Document) -> bool:
    """Return whether the added snapshot has a higher number than all of the table, as REST asks."""
    number = change.updates[0]["snapshot"].get("sequence-number")
    return number is None or int(number) > int(live.get("last-sequence-number") or 0)


def statements(
    catalog: str,
    clone: Identifier,
    work: Compaction,
    rules: Rules,
    max_files: int | None,
    *,
    ordered: bool = False,
) -> list[str]:
    """Return the calls of Iceberg's procedures for a compaction of a clone. Pure.

    Args:
        catalog: The catalog's name in Spark.
        max_files: The most files to rewrite; None for all.
        ordered: Whether the table has a sort order of its own.
    """
    table = literal(".".join(map(quote, clone)))
    found = []
    if work.files:
        given = ", ".join(
            f"{literal(key)}, {literal(value)}"
            for key, value in options(work, rules, max_files).items()
        )
        strategy = "strategy => 'sort', " if rules.sort is not None or ordered else ""
        if rules.sort is not None:
            strategy += f"sort_order => {literal(rules.sort)}, "
        found.append(
            f"call {quote(catalog)}.system.rewrite_data_files(table => {table}, {strategy}"
            f"options => map({given}))"
        )
    if work.manifests:
        found.append(f"call {quote(catalog)}.system.rewrite_manifests(table => {table})")
    return found


def same_by_files(before: StateFiles, after: StateFiles) -> bool:
    """Return whether the files of two states prove that they have as many rows. Pure.

    This is so if all files of only the first state are replaced by files with as many live rows,
    and all other files and their deletes are the same. Iceberg has copied the rows; the numbers
    show that it has left out none, and has not missed a delete. Deletes of which a file is not
    known to be the only target prove nothing, and neither do two deletes of one row.
    """
    old, new = ({one.path: one for one in state.data} for state in (before, after))
    if any(new[path] != file for path, file in old.items() if path in new):
        return False
    removed = {path: file for path, file in old.items() if path not in new}
    added = [file for path, file in new.items() if path not in old]
    all_deletes = [*before.deletes, *after.deletes]
    if any(one.equality or one.target is None for one in all_deletes):
        return False
    if set(after.deletes) - set(before.deletes):
        return False
    gone = set(before.deletes) - set(after.deletes)
    if any(one.target in new for one in gone):
        return False
    # A delete of a removed file that is still listed has no effect any more.
    deleted = sum(
        one.rows
        for one in before.deletes
        if one.target in removed and one.sequence >= removed[str(one.target)].sequence
    )
    return sum(one.rows for one in removed.values()) - deleted == sum(one.rows for one in added)


def _files(lake: Lake, document: md.Document, snapshot_id: int) -> StateFiles:
    snapshot = md.snapshot(document, snapshot_id)
    assert snapshot is not None
    return Snapshot(lake.store, document, snapshot).files()
