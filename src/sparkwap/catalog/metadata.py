"""Reads Iceberg metadata documents, and creates the first document of a copy.

The documents are the JSON objects of Iceberg's table and view specification. They are changed as
JSON (`change`) and not through a typed model, so that fields unknown to this code (format
version 3, statistics, encryption keys) are preserved. A document is never changed in place,
because a cache may share it.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sparkwap.catalog.model import RefState

Document = Mapping[str, Any]

MAIN = "main"
_OTHER_FOLDERS = "wap.other-folders"
WAP_ENABLED = "write.wap.enabled"
GC_ENABLED = "gc.enabled"
CODEC = "write.metadata.compression-codec"
DELETE_OLD_METADATA = "write.metadata.delete-after-commit.enabled"

_VERSION = re.compile(r"^(\d+)-")
_ROW_IDS = 3


def parse(data: bytes) -> Document:
    """Return the document in the content of a metadata file."""
    document: Document = json.loads(data)
    return document


def dump(document: Document) -> bytes:
    """Return the content of a metadata file."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def is_view(document: Document) -> bool:
    """Return whether this is the metadata of a view."""
    return "view-uuid" in document


def identity(document: Document) -> str:
    """Return the UUID of the table or view."""
    return str(document.get("view-uuid") or document.get("table-uuid"))


def is_gated(properties: Mapping[str, str]) -> bool:
    """Return whether a table has `WAP_ENABLED`, as Spark reads it: runs write to audit branches."""
    return properties.get(WAP_ENABLED, "").lower() == "true"


def current_version(view: Document) -> Document:
    """Return the version of a view that readers see."""
    current = view["current-version-id"]
    found: Document = next(one for one in view["versions"] if one["version-id"] == current)
    return found


def main_of(document: Document) -> int | None:
    """Return the snapshot id of ``main``; None if there is none (older writers write -1)."""
    current = document.get("current-snapshot-id")
    return None if current is None or current == -1 else int(current)


def has_row_ids(document: Document) -> bool:
    """Return whether rows of the table have ids (format version 3)."""
    return int(document.get("format-version") or 1) >= _ROW_IDS


def properties_of(document: Document) -> dict[str, str]:
    """Return the properties of the table or view."""
    return dict(document.get("properties") or {})


def refs_of(document: Document) -> dict[str, RefState]:
    """Return branches and tags by name, always with ``main`` if it has a snapshot."""
    refs = {
        name: RefState(int(ref["snapshot-id"]), ref["type"])
        for name, ref in raw_refs(document).items()
    }
    main = main_of(document)
    if main is not None:
        refs.setdefault(MAIN, RefState(main, "branch"))
    return refs


def snapshot(document: Document, snapshot_id: int) -> Document | None:
    """Return the snapshot with this id; None if the document does not have it."""
    snapshots = document.get("snapshots") or ()
    return next((one for one in snapshots if one["snapshot-id"] == snapshot_id), None)


def count(snapshot: Document | None, name: str) -> int | None:
    """Return a number of a snapshot's summary; None if it is missing."""
    text = str(((snapshot or {}).get("summary") or {}).get(name, ""))
    return int(text) if text.isdecimal() else None


def definition(document: Document) -> dict[str, Any]:
    """Return the parts that define a table: schema, layout, location and format version."""
    keys = ("current-schema-id", "default-spec-id", "default-sort-order-id")
    return {key: document.get(key) for key in (*keys, "location", "format-version")}


def ancestors(document: Document, head: int | None) -> Iterator[Document]:
    """Yield a snapshot and its ancestors, newest first, up to the first one that has expired."""
    by_id = {entry["snapshot-id"]: entry for entry in document.get("snapshots") or ()}
    while head is not None:
        found = by_id.get(head)
        if found is None:
            return
        yield found
        head = found.get("parent-snapshot-id")


def ancestor_ids(document: Document, head: int | None) -> list[int]:
    """Return the ids of a snapshot and its ancestors, as `ancestors` yields them."""
    return [int(one["snapshot-id"]) for one in ancestors(document, head)]


def grew_from(document: Document, head: int, base: int | None) -> bool:
    """Return False if ``base`` is provably not an ancestor of ``head``.

    If an ancestor has expired, the history is incomplete and proves nothing.
    """
    line = list(ancestors(document, head))
    is_cut = not line or line[-1].get("parent-snapshot-id") is not None
    return base is None or is_cut or any(one["snapshot-id"] == base for one in line)


def next_location(document: Document, metadata_location: str | None) -> str:
    """Return the location of the next metadata file, named as Iceberg's writers name it."""
    properties = properties_of(document)
    folder = properties.get("write.metadata.path") or f"{document['location'].rstrip('/')}/metadata"
    codec = properties.get(CODEC, "none").lower()
    suffix = ".gz.metadata.json" if codec == "gzip" else ".metadata.json"
    base_name = (metadata_location or "").rsplit("/", 1)[-1]
    version = _VERSION.match(base_name)
    number = int(version.group(1)) + 1 if version else 0
    return f"{folder.rstrip('/')}/{number:05d}-{uuid.uuid4()}{suffix}"


def copied(document: Document, location: str, properties: Mapping[str, str]) -> Document:
    """Return the first metadata document of a table that starts with ``main`` of another table.

    The history of the other table is not copied: only its present snapshot.
    """
    now = int(time.time() * 1000)
    main = main_of(document)
    present = snapshot(document, main) if main is not None else None
    new: dict[str, Any] = {
        **document,
        "table-uuid": str(uuid.uuid4()),
        "location": location,
        "last-updated-ms": max(now, int(document.get("last-updated-ms") or 0)),
        "properties": dict(properties),
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }
    if present is not None:
        first = {key: value for key, value in present.items() if key != "parent-snapshot-id"}
        entry = {"snapshot-id": main, "timestamp-ms": present["timestamp-ms"]}
        new |= {"snapshots": [first], "snapshot-log": [entry]}
        new["refs"] = {MAIN: {"snapshot-id": main, "type": "branch"}}
    for kind in ("statistics", "partition-statistics"):
        if kind in document:
            new[kind] = [one for one in document[kind] if one["snapshot-id"] == main]
    return new


def with_own_folder(document: Document, location: str, properties: Mapping[str, str]) -> Document:
    """Return a table's metadata as that of another one in the folder ``location``.

    The other table has the same snapshots, branches and tags.
    """
    others = other_folders(folders_of(document))
    return {
        **document,
        "table-uuid": str(uuid.uuid4()),
        "location": location,
        # The former metadata files are not the other table's.
        "metadata-log": [],
        "properties": {**properties_of(document), **properties, **others},
    }


def folders_of(document: Document) -> list[str]:
    """Return the folders in which a table's files are: its own, and those of its clones."""
    others = json.loads(properties_of(document).get(_OTHER_FOLDERS, "[]"))
    return [str(document["location"]), *others]


def other_folders(folders: Iterable[str]) -> dict[str, str]:
    """Return the property for the folders of a table's files beside its own."""
    return {_OTHER_FOLDERS: json.dumps(list(dict.fromkeys(folders)))}


def union_by(key: str, *lists: Iterable[Document] | None) -> list[Document]:
    """Return the entries of all lists; of entries with the same ``key``, only the first."""
    found: dict[Any, Document] = {}
    for entries in lists:
        for entry in entries or ():
            found.setdefault(entry[key], entry)
    return list(found.values())


def raw_refs(document: Document) -> dict[str, Any]:
    """Return branches and tags with all their fields."""
    refs = dict(document.get("refs") or {})
    main = main_of(document)
    if main is not None and MAIN not in refs:
        refs[MAIN] = {"snapshot-id": main, "type": "branch"}
    return refs
