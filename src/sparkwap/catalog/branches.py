"""Audit branches of tables, and zero-copy clones."""

from __future__ import annotations

from collections.abc import Mapping

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.model import Identifier, OpenedBranch, OpenTable, RefState
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.store import Staged, Store
from sparkwap.core import next_command
from sparkwap.core.errors import CatalogError, MetadataFileMissing
from sparkwap.core.names import base_tag, is_run_branch

BASE_METADATA = "wap.base-metadata"
BASE_SNAPSHOT = "wap.base-snapshot"
BASE_TABLE = "wap.base-table"
"""The property of a clone that has an identity and a folder of its own: the table's identity."""
HELPER_PREFIX = "wap."

REWRITTEN_BY = f"{HELPER_PREFIX}rewritten-by"
"""The property of a clone that a maintenance rewrites: its run."""

GUARDS = {
    # Writes go to the clone's own `main`, which is the candidate, not to the session's branch.
    md.WAP_ENABLED: "false",
    # The clone shares its files with the live table, so that no cleanup of it may delete them.
    md.GC_ENABLED: "false",
    md.DELETE_OLD_METADATA: "false",
}
"""Properties that protect a clone; a publish keeps the live table's values."""


def empty_base(branch: str) -> str:
    """Return the property of a table that had no snapshot when the branch was opened.

    It replaces the base tag, which needs a snapshot.
    """
    return f"{HELPER_PREFIX}base.{branch}"


def is_clone(document: md.Document) -> bool:
    """Return whether this is the metadata of a clone."""
    return BASE_METADATA in md.properties_of(document)


def is_of_maintenance(document: md.Document) -> bool:
    """Return whether this is the metadata of a clone that a maintenance rewrites."""
    return REWRITTEN_BY in md.properties_of(document)


def clone_base(document: md.Document) -> tuple[str, int | None]:
    """Return the metadata file and the snapshot of ``main`` that a clone started from."""
    properties = md.properties_of(document)
    base = properties.get(BASE_SNAPSHOT)
    return properties[BASE_METADATA], int(base) if base else None


def cloned_identity(properties: Mapping[str, str], identity: str) -> str:
    """Return the identity of the table that a clone with this own identity was made of."""
    return properties.get(BASE_TABLE, identity)


def table_row(store: Store, identifier: Identifier) -> Pointer:
    """Return the row of a table; fails if it does not exist or is a view."""
    row = store.backend.get(identifier)
    if row is None or row.kind != "table":
        found = "does not exist" if row is None else "is a view"
        raise CatalogError(
            f"{'.'.join(identifier)} {found}, so it cannot have an audit branch or a clone. "
            "Nothing was changed. Build it in a side schema instead."
        )
    return row


def table_document(store: Store, identifier: Identifier) -> md.Document:
    """Return the metadata of a table."""
    return store.load(table_row(store, identifier).location)


def open_branch(
    store: Store,
    identifier: Identifier,
    branch: str,
    wanted: Mapping[str, str],
    kept: int | None = None,
) -> Staged[OpenedBranch]:
    """Stage the audit branch of a table, with its base tag and properties.

    ``kept`` is a snapshot that the branch must have.
    """
    row = table_row(store, identifier)
    document = store.load(row.location)
    refs, properties = md.refs_of(document), md.properties_of(document)
    main, head, tag = refs.get(md.MAIN), refs.get(branch), refs.get(base_tag(branch))
    was_empty = empty_base(branch) in properties
    if head is not None and (head.type != "branch" or not (tag or was_empty)):
        raise refusal(identifier, branch, head)
    base = tag.snapshot_id if tag else None
    change = MetadataChange(document)
    changes: dict[str, str | None] = {
        key: value for key, value in wanted.items() if properties.get(key) != value
    }
    changes |= {} if md.is_gated(md.properties_of(document)) else {md.WAP_ENABLED: "true"}
    # Candidates on a former base can never be published, so the branch starts again at `main`.
    if main is not None and (head is None or base != main.snapshot_id):
        change = change.branch(branch, main.snapshot_id).tag(base_tag(branch), main.snapshot_id)
        changes |= {empty_base(branch): None} if was_empty else {}
        opened = OpenedBranch(main.snapshot_id, main.snapshot_id, True)
    elif head is not None or was_empty:
        opened = OpenedBranch(base, head.snapshot_id if head else None, False)
    else:
        changes[empty_base(branch)] = "none"
        opened = OpenedBranch(None, None, True)
    if kept is not None and not _has(document, opened.head, kept):
        raise rows_lost(identifier, branch)
    if not opened.created and not changes:
        return Staged(opened)
    return Staged(opened, *store.grow([(row, change.properties(changes))]))


def strange_ref(document: md.Document, branch: str) -> RefState | None:
    """Return a branch or tag with the name of an audit branch that no run has created.

    A run creates the branch and its base tag (or property) in one commit, so a branch without
    them belongs to somebody else, whatever process died.
    """
    ref = md.refs_of(document).get(branch)
    if ref is None or (ref.type == "branch" and is_ours(document, branch)):
        return None
    return ref


def refusal(identifier: Identifier, branch: str, head: RefState) -> CatalogError:
    """Return the error for a ref that a user has created, and that a run would overwrite."""
    return CatalogError(
        f"{'.'.join(identifier)} has a {head.type} named {branch} that no run has opened. Nothing "
        "was changed. Choose another name (var wap_branch), or drop it: "
        f"alter table {'.'.join(identifier)} drop {head.type} {branch}."
    )


def rows_lost(identifier: Identifier, branch: str) -> CatalogError:
    """Return the error for rows of earlier commands that a build would not keep."""
    return CatalogError(
        f"The rows that earlier commands have added to {'.'.join(identifier)} on the branch "
        f"{branch} can no longer be published: since then, main or the definition of the table has "
        "changed, or the metadata file that the branch started from was deleted. The table was not "
        "built, and the rows are still on the branch. Discard it, then repeat the commands that "
        f"wrote to it: {next_command.operation('wap_discard', branch)}"
    )


def clone(
    store: Store,
    identifier: Identifier,
    side_schema: str,
    branch: str,
    properties: Mapping[str, str],
    folder: str | None = None,
    kept: int | None = None,
) -> Staged[Pointer]:
    """Stage a zero-copy clone; an existing clone on the same base is kept.

    If the audit branch has rows on the present ``main``, the clone starts with these rows.

    Args:
        folder: The folder of a clone with an identity of its own; None for a clone that has those
            of the table. In both cases it has the table's snapshots.
        kept: A snapshot that ``main`` of the clone must have.
    """
    row = table_row(store, identifier)
    side_identifier = (side_schema, identifier[1])
    standing = store.backend.get(side_identifier)
    document = store.load(row.location)
    main = md.main_of(document)
    if standing is not None:
        former = store.load(standing.location)
        if standing.kind != "table" or not is_clone(former):
            raise CatalogError(
                f"{'.'.join(side_identifier)} in the side schema is not a clone of the live table. "
                "Nothing was changed. Drop it in Spark, or discard the whole audit branch: "
                "dbt run-operation wap_discard --args '{branch: <branch>}'"
            )
        if not is_outdated(store, former, document):
            if kept is not None and not _has(former, md.main_of(former), kept):
                raise rows_lost(identifier, branch)
            return Staged(standing)
    changes = {
        **properties,
        **GUARDS,
        BASE_METADATA: row.location,
        BASE_SNAPSHOT: "" if main is None else str(main),
    }
    change = MetadataChange(document)
    head = md.refs_of(document).get(branch)
    if head is not None and is_on_present_main(document, branch, head.snapshot_id):
        change = change.branch(md.MAIN, head.snapshot_id)
        main = head.snapshot_id
    if kept is not None and not _has(document, main, kept):
        raise rows_lost(identifier, branch)
    if folder is None:
        made = change.properties(changes).document(row.location)
        location = md.next_location(document, row.location)
    else:
        own = {**changes, BASE_TABLE: md.identity(document)}
        made = md.with_own_folder(change.document(None), folder, own)
        location = md.next_location(made, None)
    files = store.write({location: made})
    cloned = Pointer(side_identifier, "table", location)
    return Staged(cloned, [PointerUpdate(standing, cloned)], files)


def copy(store: Store, source: Identifier, target: Identifier, location: str) -> Staged[Pointer]:
    """Stage a new table that starts with the data files of ``source``."""
    document = table_document(store, source)
    copied = md.copied(document, location, _copied_properties(document))
    metadata = md.next_location(copied, None)
    files = store.write({metadata: copied})
    row = Pointer(target, "table", metadata)
    return Staged(row, [PointerUpdate(store.backend.get(target), row)], files)


def _copied_properties(document: md.Document) -> dict[str, str]:
    # These belong to the source's branches, or name its folders.
    left = (md.WAP_ENABLED, "write.data.path", "write.metadata.path")
    kept = {
        key: value
        for key, value in md.properties_of(document).items()
        if key not in left and not key.startswith(HELPER_PREFIX)
    }
    return {**kept, md.GC_ENABLED: "false"}


def is_outdated(store: Store, document: md.Document, live: md.Document) -> bool:
    """Return whether a clone can never be published, so that `clone` replaces it.

    Args:
        document: The metadata of the clone.
        live: The present metadata of the table.
    """
    location, base = clone_base(document)
    identity = cloned_identity(md.properties_of(document), md.identity(document))
    if identity != md.identity(live) or base != md.main_of(live) or is_of_maintenance(document):
        return True
    try:
        return md.definition(store.load(location)) != md.definition(live)
    except MetadataFileMissing:
        return True  # Iceberg has deleted the file, so nothing proves the former definition.


def is_on_present_main(document: md.Document, branch: str, snapshot_id: int) -> bool:
    """Return whether a branch has a snapshot, and the present ``main`` as its base."""
    refs = md.refs_of(document)
    main, head, tag = refs.get(md.MAIN), refs.get(branch), refs.get(base_tag(branch))
    if head is None or (main.snapshot_id if main else None) != (tag.snapshot_id if tag else None):
        return False
    return _has(document, head.snapshot_id, snapshot_id)


def _has(document: md.Document, head: int | None, snapshot_id: int) -> bool:
    return any(
        # The snapshot itself may have expired.
        snapshot_id in (one["snapshot-id"], one.get("parent-snapshot-id"))
        for one in md.ancestors(document, head)
    )


def open_table(identifier: Identifier, document: md.Document, branch: str) -> OpenTable:
    """Return the state of a table with an audit branch."""
    refs = md.refs_of(document)
    tag, head = refs.get(base_tag(branch)), refs.get(branch)
    base = tag.snapshot_id if tag else None
    return OpenTable(
        identifier,
        base,
        head.snapshot_id if head else None,
        md.main_of(document),
        _created_ms(document, base, head.snapshot_id if head else None),
    )


def branches_of(document: md.Document, known: frozenset[str]) -> set[str]:
    """Return the audit branches of a table: by base tag, by the name of a run, or in ``known``."""
    refs = md.refs_of(document)
    properties = md.properties_of(document)
    names = {name for name, ref in refs.items() if ref.type == "branch" and name != md.MAIN}
    ours = {
        name for name in names if name in known or name.startswith("wap_") or base_tag(name) in refs
    }
    prefix = empty_base("")
    return ours | {key.removeprefix(prefix) for key in properties if key.startswith(prefix)}


def is_ours(document: md.Document, branch: str) -> bool:
    """Return whether sparkwap, and not a user, has created a branch of a table."""
    refs = md.refs_of(document)
    if base_tag(branch) in refs or empty_base(branch) in md.properties_of(document):
        return True
    head = refs.get(branch)
    if head is None or not is_run_branch(branch):
        return False
    # Spark creates the branch itself when a run writes to a table that it has not placed.
    written = (md.snapshot(document, head.snapshot_id) or {}).get("summary") or {}
    return str(written.get("wap_run", "")).startswith(branch.removeprefix("wap_"))


def discard_branch(document: md.Document, branch: str) -> MetadataChange | None:
    """Return the change that drops an audit branch; None if a run has not opened it."""
    refs, properties = md.refs_of(document), md.properties_of(document)
    if not is_ours(document, branch):
        return None
    head = refs.get(branch)
    names = [branch] if head is not None and head.type == "branch" else []
    names += [base_tag(branch)] if base_tag(branch) in refs else []
    if not names and empty_base(branch) not in properties:
        return None
    return MetadataChange(document).remove_refs(*names).properties({empty_base(branch): None})


def _created_ms(document: md.Document, base: int | None, head: int | None) -> int:
    created = document.get("last-updated-ms") or 0
    for snapshot in md.ancestors(document, head):
        if snapshot["snapshot-id"] == base:
            break
        created = snapshot["timestamp-ms"]
    return int(created)
