"""A lake in a folder, and what a run, a reader and other writers do to it; no Spark."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.types import LongType

from sparkwap.catalog import Candidate, Identifier, PublishReceipt
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.store import Staged
from sparkwap.publish.lake import Lake

BRANCH = "pr_1"
SIDE = "s__pr_1"
TAG = "wap_pub_1a2b3c4d"
RUN = "1a2b3c4d-0000-4000-8000-000000000000"


def values(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def on_branch(identifier: Identifier, base: int | None, head: int) -> Candidate:
    return Candidate(identifier, BRANCH, "branch", base, token=str(head))


def compact(lake: Lake, identifier: Identifier, chosen: Collection[str] | None = None) -> int:
    """Rewrite data files of main into one, in one snapshot, as a compaction of others does.

    Args:
        lake: The lake.
        identifier: A table.
        chosen: Paths of the files; None for all.

    Returns:
        The new snapshot of main.
    """
    table = lake.catalog.load_table(identifier)
    files = [task.file for task in table.scan().plan_files()]
    files = [one for one in files if chosen is None or one.file_path in chosen]
    rows = pa.concat_tables(
        pq.read_table(one.file_path.removeprefix("file://")) for one in files
    ).combine_chunks()
    with table.transaction() as change, change.update_snapshot().overwrite() as snapshot:
        for one in files:
            snapshot.delete_data_file(one)
        for made in _dataframe_to_data_files(table.metadata, rows, table.io):
            snapshot.append_data_file(made)
    row = lake.store.backend.get(identifier)
    assert row is not None
    document = dict(lake.store.load(row.location))
    main = md.main_of(document)
    document["snapshots"] = [
        {**one, "summary": {**one["summary"], "operation": "replace"}}
        if one["snapshot-id"] == main
        else one
        for one in document["snapshots"]
    ]
    location = md.next_location(document, row.location)
    lake.store.write({location: document})
    lake.store.backend.apply([PointerUpdate(row, Pointer(identifier, "table", location))])
    return int(str(main))


class Bench:
    """A lake, and what a run, a reader and other writers do to it."""

    def __init__(
        self, folder: Path, uri: str | None = None, properties: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.suffix = "1a2b3c4d"
        self.properties = properties or {
            "type": "sql",
            "uri": uri or f"sqlite:///{folder}/catalog.db",
            "warehouse": f"{folder}/warehouse",
        }
        self.lake = Lake("lake", self.properties)
        self.lake.ensure_schema("s")

    def table(self, name: str, *ids: int, schema: str = "s", **properties: str) -> Identifier:
        """A live table; with rows if ids are given."""
        table = self.lake.catalog.create_table(
            (schema, name), values().schema, properties=dict(properties)
        )
        if ids:
            table.append(values(*ids))
        return schema, name

    def write(self, identifier: Identifier, *ids: int, branch: str = BRANCH) -> int:
        """Append to a branch; the new head."""
        table = self.lake.catalog.load_table(identifier)
        if branch != "main" and table.current_snapshot() is None:
            return self._first_write(identifier, branch, *ids)
        table.append(values(*ids), branch=branch)
        return self.head(identifier, branch)

    def _first_write(self, identifier: Identifier, branch: str, *ids: int) -> int:
        """What Spark can and PyIceberg cannot: the first snapshot of a table, on a branch."""
        head = self.write(identifier, *ids, branch="main")
        row = self.lake.store.backend.get(identifier)
        assert row is not None
        change = MetadataChange(self.lake.store.load(row.location)).branch(branch, head)
        document = {**change.remove_refs("main").document(row.location), "snapshot-log": []}
        location = md.next_location(document, row.location)
        self._commit(PointerUpdate(row, Pointer(identifier, "table", location)), document)
        return head

    def _commit(self, swap: PointerUpdate, document: Any) -> None:
        store = self.lake.store
        assert swap.after is not None
        files = store.write({swap.after.location: document})
        store.commit(lambda: Staged(None, [swap], files), "publish")

    def head(self, identifier: Identifier, ref: str) -> int:
        return self.state(identifier).refs[ref].snapshot_id

    def state(self, identifier: Identifier) -> Any:
        state = self.lake.state(identifier)
        assert state is not None, identifier
        return state

    def rename_column(self, name: str, old: str, new: str) -> None:
        """Another job renames a column of a live table."""
        with self.lake.catalog.load_table(("s", name)).update_schema() as update:
            update.rename_column(old, new)

    def add_column(self, name: str, column: str) -> None:
        """Another job adds a column of whole numbers to a live table."""
        with self.lake.catalog.load_table(("s", name)).update_schema() as update:
            update.add_column(column, LongType())

    def candidate(self, name: str, *ids: int) -> Candidate:
        """A table that exists, written on the audit branch."""
        opened = self.lake.branches.open(("s", name), BRANCH)
        return on_branch(("s", name), opened.base, self.write(("s", name), *ids))

    def changed(self, name: str, *ids: int) -> Candidate:
        """A table that exists, cloned, with a new column and rows."""
        self.lake.branches.clone(("s", name), SIDE)
        table = self.lake.catalog.load_table((SIDE, name))
        with table.update_schema() as update:
            update.union_by_name(pa.schema({"extra": pa.string()}))
        rows = values(*ids).append_column("extra", pa.array(["x"] * len(ids), pa.string()))
        table.overwrite(rows)
        return self.side(name)

    def new(self, name: str, *ids: int) -> Candidate:
        """A table that is new."""
        self.lake.ensure_schema(SIDE, BRANCH)
        location = f"{self.lake.branches.folder('s', BRANCH)}/{name}-{self.suffix}"
        table = self.lake.catalog.create_table((SIDE, name), values().schema, location=location)
        if ids:
            table.append(values(*ids))
        return self.side(name, None)

    def view(self, name: str, sql: str, schema: str = SIDE, namespace: str | None = None) -> None:
        """A view, as Spark writes it."""
        if schema == SIDE:
            self.lake.ensure_schema(SIDE, BRANCH)
        location = f"{self.folder}/warehouse/{schema}/{name}"
        file = f"{location}/metadata/00000-{uuid.uuid4()}.gz.metadata.json"
        standing = self.lake.store.backend.get((schema, name))
        swap = PointerUpdate(standing, Pointer((schema, name), "view", file))
        self._commit(swap, view_json(location, sql, namespace))

    def side(self, name: str, expected: str | None = None) -> Candidate:
        location = self.state((SIDE, name)).metadata_location
        return Candidate(("s", name), BRANCH, "side", base_metadata=expected, token=location)

    def publish(self, *items: Candidate, **options: Any) -> PublishReceipt:
        defaults: dict[str, Any] = {
            "run_id": RUN,
            "tag": TAG,
            "tag_max_age_ms": None,
            "branch": BRANCH,
        }
        return self.lake.publishing.publish(items, **{**defaults, **options})

    def read(self, name: str, ref: str | None = None, schema: str = "s") -> list[int]:
        """What a reader of the table sees, in order."""
        table = self.lake.catalog.load_table((schema, name))
        if ref is None:
            return sorted(table.scan().to_arrow()["id"].to_pylist())
        snapshot = table.metadata.refs[ref].snapshot_id
        return sorted(table.scan(snapshot_id=snapshot).to_arrow()["id"].to_pylist())

    def pointers(self) -> dict[Identifier, str]:
        """All rows outside the ledger."""
        rows = self.lake.store.backend.all()
        return {r.identifier: r.location for r in rows if r.identifier[0] != "wap_ledger"}

    def files(self) -> set[str]:
        """All files outside the ledger."""
        found = (self.folder / "warehouse").rglob("*")
        return {str(path) for path in found if path.is_file() and "wap_ledger" not in path.parts}


def view_json(location: str, sql: str, namespace: str | None) -> dict[str, Any]:
    field = {"id": 0, "name": "id", "required": False, "type": "long"}
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {"engine-name": "spark"},
        "default-catalog": "lake",
        "default-namespace": [namespace] if namespace else [],
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }
    return {
        "view-uuid": str(uuid.uuid4()),
        "format-version": 1,
        "location": location,
        "properties": {"comment": "a view"},
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [field]}],
        "current-version-id": 1,
        "versions": [version],
        "version-log": [{"version-id": 1, "timestamp-ms": 1}],
    }
