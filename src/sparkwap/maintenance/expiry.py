"""Forgetting: what a table was before, in metadata and in files.

Iceberg's own expiry keeps what a table still refers to, and it refers to more than its rows: the
manifests of a delete name the deleted files with the bounds of their columns until some later
commit rewrites them. Here nothing stays but the files of `main`'s live rows and the metadata that
names them.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy import text

from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import clone_base, is_clone, table_row
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import difference
from sparkwap.catalog.files import local_path, plain_location, read_apart
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.catalog.store import Staged
from sparkwap.core.errors import CatalogError

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

_COMPRESSION: Any = "gzip"
_LOG_LIMIT = "write.metadata.previous-versions-max"
_NOTED_LIMIT = "wap.log-limit"
WRITTEN = 2
"""The newest format version whose manifests can be written here."""
READ = 3
"""The newest format version that can be read here."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What a table has forgotten.

    Attributes:
        identifier: The table.
        snapshots: Number of snapshots that are gone.
        refs: Branches and tags that are gone with them.
        kept: The snapshot of `main`; None for an empty table.
    """

    identifier: Identifier
    snapshots: int
    refs: tuple[str, ...]
    kept: int | None


@dataclass(frozen=True, slots=True)
class Live:
    """A snapshot without entries of removed files, staged beside the one that it stands for."""

    snapshot: Mapping[str, Any]
    files: tuple[str, ...]


def require_supported(identifier: Identifier, document: md.Document) -> None:
    """Refuse a table whose manifests cannot be written here.

    Raises:
        CatalogError: It has a newer format version.
    """
    version = int(document.get("format-version") or 1)
    if version > WRITTEN:
        raise CatalogError(
            f"{'.'.join(identifier)} has Iceberg's format version {version}, whose manifests "
            f"cannot be rewritten here (up to {WRITTEN} they can), and some name removed files. "
            "Nothing was changed by this step. Write the table anew, or build it with "
            "format_version: 2, and run again."
        )


def sweep_branch(lake: Lake, identifier: Identifier, branch: str, run_id: str) -> int:
    """Let the head of an audit branch name its live files only.

    The manifests that a delete or overwrite leaves name the removed files too, with the least and
    the greatest value of each column.

    Args:
        lake: The lake.
        identifier: The table.
        branch: The audit branch.
        run_id: The run, for the summary of the snapshot that is added where there is need.

    Returns:
        The head.

    Raises:
        CatalogError: There is no such table or branch.
    """

    def stage() -> Staged[int]:
        row = table_row(lake.store, identifier)
        document = lake.store.load(row.location)
        ref = md.refs_of(document).get(branch)
        if ref is None:
            raise CatalogError(f"{'.'.join(identifier)} has no branch {branch}.")
        live = _live(lake, identifier, row, document, ref.snapshot_id, run_id)
        if live is None:
            return Staged(ref.snapshot_id)
        head = int(live.snapshot["snapshot-id"])
        change = MetadataChange(document).add_snapshot(live.snapshot).branch(branch, head)
        swaps, files = lake.store.grow([(row, change)])
        return Staged(head, swaps, [*live.files, *files])

    return lake.store.commit(stage, "erase", table=".".join(identifier), run_id=run_id)


def expire(lake: Lake, identifier: Identifier, run_id: str) -> Expired:
    """Let a table forget all but `main`: snapshots, branches, tags, logs, statistics of files.

    Tags on the snapshot of `main` stay. Files are not deleted, see `unreachable`. Calling it again
    does nothing.

    A catalog that writes its metadata itself (REST) keeps the log of former metadata files, too,
    and is asked to cut it (see `_turn_log`). That it does so is not taken for granted: files that
    stay in the log stay where they are, and are read by whoever proves.

    Raises:
        CatalogError: There is no such table, or other writers were faster each time.
    """

    def stage() -> Staged[Expired]:
        row = table_row(lake.store, identifier)
        document = lake.store.load(row.location)
        main = md.main_of(document)
        live = None if main is None else _live(lake, identifier, row, document, main, run_id)
        grown = document
        if live is not None and main is not None:
            head = int(live.snapshot["snapshot-id"])
            change = MetadataChange(document).add_snapshot(live.snapshot).branch(md.MAIN, head)
            for name, ref in md.refs_of(document).items():
                if ref.type == "tag" and ref.snapshot_id == main:
                    change = change.tag(name, head, _max_age(document, name))
            grown = change.document(None)
        forgotten = forget(grown) if lake.store.backend.takes_files else forget_by_updates(grown)
        gone = len(document.get("snapshots") or ()) - (0 if main is None else 1)
        refs = tuple(sorted(set(md.refs_of(document)) - set(md.refs_of(forgotten))))
        expired = Expired(identifier, gone, refs, md.main_of(forgotten))
        if live is None and same(document, forgotten):
            return Staged(expired)
        location = md.next_location(forgotten, row.location)
        files = [*(live.files if live else ()), *lake.store.write({location: forgotten})]
        after = Pointer(identifier, "table", location)
        return Staged(expired, [PointerUpdate(row, after, difference(document, forgotten))], files)

    expired = lake.store.commit(stage, "erase", table=".".join(identifier), run_id=run_id)
    if lake.store.backend.takes_files:
        forget_previous(lake, identifier)
    else:
        _turn_log(lake, identifier, run_id)
    return expired


def forget_by_updates(document: md.Document) -> md.Document:
    """As `forget`, as far as updates of a catalog that writes its metadata itself can say it: pure.

    A snapshot cannot change, so that the present one names its parent, by a number. Logs are the
    catalog's.
    """
    return {
        **forget(document),
        "snapshot-log": document.get("snapshot-log") or [],
        "metadata-log": document.get("metadata-log") or [],
        "snapshots": [
            one
            for one in document.get("snapshots") or ()
            if one["snapshot-id"] == md.main_of(document)
        ],
    }


def _turn_log(lake: Lake, identifier: Identifier, run_id: str) -> None:
    """Have the log of former metadata files begin with the expiry.

    It is cut to a limit, a property of the table, whenever the table changes. So that is set to the
    least, one, and put back by a second change; what it was is noted between the two, as a call
    that dies there has another one go on.
    """
    document = lake.store.load(table_row(lake.store, identifier).location)
    properties = md.properties_of(document)
    if _NOTED_LIMIT not in properties:
        log = document.get("metadata-log") or ()
        if not any(_holds_more(lake, document, entry) for entry in log):
            return
        noted = properties.get(_LOG_LIMIT, "")
        _set(lake, identifier, {_LOG_LIMIT: "1", _NOTED_LIMIT: noted}, run_id)
    else:
        noted = properties[_NOTED_LIMIT]
    _set(lake, identifier, {_LOG_LIMIT: noted or None, _NOTED_LIMIT: None}, run_id)


def _set(
    lake: Lake, identifier: Identifier, properties: Mapping[str, str | None], run_id: str
) -> None:
    def stage() -> Staged[None]:
        row = table_row(lake.store, identifier)
        document = lake.store.load(row.location)
        return Staged(
            None, *lake.store.grow([(row, MetadataChange(document).properties(properties))])
        )

    lake.store.commit(stage, "erase", table=".".join(identifier), run_id=run_id)


def _holds_more(lake: Lake, document: md.Document, entry: Mapping[str, Any]) -> bool:
    """Whether a former metadata file that is there still has snapshots that the table has not."""
    try:
        former = lake.store.reload(entry["metadata-file"])
    except CatalogError:
        return False
    present = {one["snapshot-id"] for one in document.get("snapshots") or ()}
    return any(one["snapshot-id"] not in present for one in former.get("snapshots") or ())


def forget(document: md.Document) -> md.Document:
    """A table's metadata with nothing but `main`: pure."""
    main = md.main_of(document)
    present = md.snapshot(document, main) if main is not None else None
    forgotten: dict[str, Any] = {
        **document,
        "snapshots": [] if present is None else [_without_parent(present)],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {
            name: ref
            for name, ref in (document.get("refs") or {}).items()
            if present is not None and ref["snapshot-id"] == main and _stays(name, ref)
        },
    }
    if present is not None:
        forgotten["snapshot-log"] = [{"snapshot-id": main, "timestamp-ms": _since(document, main)}]
        forgotten["refs"].setdefault(md.MAIN, {"snapshot-id": main, "type": "branch"})
    for kind in ("statistics", "partition-statistics"):
        if kind in document:
            forgotten[kind] = [one for one in document[kind] if one["snapshot-id"] == main]
    now = int(time.time() * 1000)
    forgotten["last-updated-ms"] = max(now, int(document.get("last-updated-ms") or 0))
    return forgotten


def same(one: md.Document, other: md.Document) -> bool:
    """Whether two documents differ in nothing but their time."""
    left = {**one, "last-updated-ms": 0}
    right = {**other, "last-updated-ms": 0}
    for document in (left, right):
        for empty in ("statistics", "partition-statistics", "metadata-log", "snapshot-log"):
            document[empty] = document.get(empty) or []
    return left == right


def _stays(name: str, ref: Mapping[str, Any]) -> bool:
    return name == md.MAIN or ref["type"] == "tag"


def _without_parent(snapshot: md.Document) -> dict[str, Any]:
    return {key: value for key, value in snapshot.items() if key != "parent-snapshot-id"}


def _since(document: md.Document, snapshot_id: int | None) -> int:
    log = [
        entry["timestamp-ms"]
        for entry in document.get("snapshot-log") or ()
        if entry["snapshot-id"] == snapshot_id
    ]
    snapshot = md.snapshot(document, snapshot_id or -1) or {}
    return int(log[-1] if log else snapshot.get("timestamp-ms") or 0)


def _max_age(document: md.Document, name: str) -> int | None:
    age = (document.get("refs") or {}).get(name, {}).get("max-ref-age-ms")
    return None if age is None else int(age)


def forget_previous(lake: Lake, identifier: Identifier) -> None:
    """Clear a SQL catalog's note of the metadata file before the present one."""
    statement = text(
        "update iceberg_tables set previous_metadata_location = null where catalog_name = :catalog "
        "and table_namespace = :schema and table_name = :name"
    )
    schema, name = identifier
    rows = lake.store.backend
    if not isinstance(rows, SqlBackend):
        return
    with rows.transaction() as connection:
        connection.execute(statement, {"catalog": lake.name, "schema": schema, "name": name})


# -- live entries only ---------------------------------------------------------------------------


def _live(
    lake: Lake,
    identifier: Identifier,
    row: Pointer,
    document: md.Document,
    snapshot_id: int,
    run_id: str,
) -> Live | None:
    """A snapshot of the same live files; None where none of its manifests names a removed one."""
    table = lake.catalog.load_table(identifier)
    if table.metadata_location != row.location:
        # Another writer came between; the commit below would find out, and try again.
        table = _static(table, row.location)
    snapshot = table.snapshot_by_id(snapshot_id)
    entry = md.snapshot(document, snapshot_id)
    if snapshot is None or entry is None:
        raise CatalogError(f"{'.'.join(identifier)} has no snapshot {snapshot_id}.")
    manifests = snapshot.manifests(table.io)
    if all(manifest.deleted_files_count == 0 for manifest in manifests):
        return None
    require_supported(identifier, document)
    new_id = secrets.randbits(62)
    written: list[str] = []
    kept: list[ManifestFile] = []
    try:
        for manifest in manifests:
            kept.extend(_live_manifest(table, manifest, new_id, written))
        sequence = int(document.get("last-sequence-number") or 0) + 1
        path = f"{_metadata_folder(table)}/snap-{new_id}-1-{uuid.uuid4()}.avro"
        written.append(path)
        version: Any = table.metadata.format_version
        with write_manifest_list(
            version, table.io.new_output(path), new_id, snapshot_id, sequence, _COMPRESSION
        ) as writer:
            writer.add_manifests(kept)
    except BaseException:
        lake.store.delete(written)
        raise
    totals = {k: v for k, v in (entry.get("summary") or {}).items() if k.startswith("total-")}
    fresh: dict[str, Any] = {
        "snapshot-id": new_id,
        "parent-snapshot-id": snapshot_id,
        "timestamp-ms": max(int(time.time() * 1000), int(entry["timestamp-ms"])),
        "manifest-list": path,
        "summary": {"operation": "replace", "wap_run": run_id, **totals},
    }
    if "schema-id" in entry:
        fresh["schema-id"] = entry["schema-id"]
    if int(document.get("format-version") or 1) > 1:
        fresh["sequence-number"] = sequence
    return Live(fresh, tuple(written))


def _static(table: Table, location: str) -> Table:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(location, table.io.properties)


def _live_manifest(
    table: Table, manifest: ManifestFile, snapshot_id: int, written: list[str]
) -> Iterable[ManifestFile]:
    if manifest.deleted_files_count == 0:
        return [manifest]
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    if not entries:
        return []
    if manifest.content == ManifestContent.DELETES:
        raise CatalogError(
            f"The manifest {manifest.manifest_path} names delete files of live rows, which the "
            "rewrite should have left none of. Nothing was changed by this step."
        )
    path = f"{_metadata_folder(table)}/{uuid.uuid4()}-m0.avro"
    written.append(path)
    version: Any = table.metadata.format_version
    spec = table.specs()[manifest.partition_spec_id]
    with write_manifest(
        version, spec, table.schema(), table.io.new_output(path), snapshot_id, _COMPRESSION
    ) as writer:
        for entry in entries:
            writer.existing(entry)
    return [writer.to_manifest_file()]


def _metadata_folder(table: Table) -> str:
    folder = table.properties.get("write.metadata.path")
    return (folder or f"{table.location().rstrip('/')}/metadata").rstrip("/")


def has_delete_files(lake: Lake, identifier: Identifier) -> bool:
    """Whether rows of `main` are hidden by delete files, and so still are in data files."""
    table = lake.catalog.load_table(identifier)
    snapshot = table.current_snapshot()
    if snapshot is None:
        return False
    return any(m.content == ManifestContent.DELETES for m in snapshot.manifests(table.io))


# -- files ---------------------------------------------------------------------------------------


def files_of(lake: Lake, folder: str) -> list[str]:
    """All files below a folder, hidden ones included; empty where there is no such folder."""
    path = local_path(folder)
    if path is not None:
        if path.is_file():
            return [str(path)]
        return [str(found) for found in path.rglob("*") if found.is_file()]
    from pyarrow.fs import FileSelector, FileType
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, netloc, inner = PyArrowFileIO.parse_location(folder)
    system = PyArrowFileIO(lake.properties).fs_by_scheme(scheme, netloc)
    selector = FileSelector(inner, allow_not_found=True, recursive=True)
    root = folder.removesuffix(inner)
    return [
        f"{root}{info.path}"
        for info in system.get_file_info(selector)
        if info.type == FileType.File
    ]


def content(lake: Lake, location: str) -> bytes:
    """A file as it is, still compressed where it is."""
    path = local_path(location)
    if path is not None:
        rows = lake.store.backend
        database = rows.engine.url.database if isinstance(rows, SqlBackend) else None
        # The database itself, and the index of its log beside it.
        is_database = bool(database) and str(path).startswith(str(database))
        return read_apart(path) if is_database else path.read_bytes()
    with lake.store.files.io(location).new_input(location).open() as stream:
        return stream.read()


def reachable(lake: Lake) -> dict[str, set[Identifier]]:
    """All files that some table or view of the catalog refers to, and by which.

    These are metadata files (present and former ones that are still logged), manifest lists,
    manifests, data and delete files, and statistics, of all snapshots.
    """
    found: dict[str, set[Identifier]] = {}
    rows = lake.store.backend.all()
    for row, files in zip(
        rows, lake.store.map(lambda r: _files_of_row(lake, r), rows), strict=True
    ):
        for file in files:
            found.setdefault(plain_location(file), set()).add(row.identifier)
    return found


def _files_of_row(lake: Lake, row: Pointer) -> set[str]:
    return files_of_document(lake, row.location, lake.store.load(row.location))


def files_of_document(lake: Lake, location: str, document: md.Document) -> set[str]:
    """All files that a table's or view's metadata refers to, of all of its snapshots, and its own.

    Args:
        lake: The lake.
        location: The metadata file.
        document: What stands in it, or what it would be after some change.

    Raises:
        Exception: A manifest list or manifest cannot be read; then nothing is known.
    """
    found = {location}
    if md.is_view(document):
        return found
    if is_clone(document):
        found.add(clone_base(document)[0])
    found.update(entry["metadata-file"] for entry in document.get("metadata-log") or ())
    for kind in ("statistics", "partition-statistics"):
        found.update(entry["statistics-path"] for entry in document.get(kind) or ())
    io = lake.store.files.io(location)
    manifests: dict[str, ManifestFile] = {}
    for entry in document.get("snapshots") or ():
        if "manifest-list" in entry:
            found.add(entry["manifest-list"])
            for manifest in _snapshot(entry).manifests(io):
                manifests[manifest.manifest_path] = manifest
    for path, manifest in manifests.items():
        found.add(path)
        found.update(_entries(manifest, io))
    return found


def _entries(manifest: ManifestFile, io: FileIO) -> Iterable[str]:
    entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
    return [e.data_file.file_path for e in entries if e.status != ManifestEntryStatus.DELETED]


def _snapshot(entry: Mapping[str, Any]) -> Snapshot:
    return Snapshot.model_validate(entry)


def unreachable(paths: Iterable[str], known: Collection[str]) -> list[str]:
    """Those of ``paths`` that are not in ``known``; a checksum file goes with its file."""
    return [path for path in paths if _checked(plain_location(path)) not in known]


def _checked(path: str) -> str:
    """The file that a Hadoop checksum file is about; any other file itself."""
    folder, _, name = path.rpartition("/")
    if name.startswith(".") and name.endswith(".crc"):
        return f"{folder}/{name[1 : -len('.crc')]}"
    return path


def delete_files(lake: Lake, paths: Collection[str]) -> None:
    """Delete files that nothing refers to, and the folders that are empty then.

    Raises:
        CatalogError: Some could not be deleted; the message names them.
    """
    left: list[str] = []
    for path in sorted(paths):
        lake.store.files.delete(path)
        local = local_path(path)
        if local is not None and local.exists():
            left.append(path)
        elif local is not None:
            for folder in list(local.parents)[:2]:
                lake.store.files.delete_empty(str(folder))
    if left:
        raise CatalogError(
            f"{len(left)} files could not be deleted, the first is {left[0]}. Nothing refers to "
            "them. Check their rights, then run the same command again."
        )
