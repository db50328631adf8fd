"""Iceberg metadata documents: what they say, and the first one of a copy.

The documents are the JSON objects of Iceberg's table and view specification. They are changed as
such (`change`) rather than through a typed model so that what this code does not know (format
version 3, statistics, encryption keys) comes through unharmed. A document is never changed in
place, as it may be shared with a cache.
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
WAP_ENABLED = "write.wap.enabled"
GC_ENABLED = "gc.enabled"
DELETE_OLD_METADATA = "write.metadata.delete-after-commit.enabled"

_VERSION = re.compile(r"^(\d+)-")


def parse(data: bytes) -> Document:
    """The document in a metadata file."""
    document: Document = json.loads(data)
    return document


def dump(document: Document) -> bytes:
    """The content of a metadata file."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def is_view(document: Document) -> bool:
    """True for the metadata of a view."""
    return "view-uuid" in document


def identity(document: Document) -> str:
    """The UUID of the table or view."""
    return str(document.get("view-uuid") or document.get("table-uuid"))


def main_of(document: Document) -> int | None:
    """Snapshot id of ``main``, None where there is none (older writers say -1)."""
    current = document.get("current-snapshot-id")
    return None if current is None or current == -1 else int(current)


def properties_of(document: Document) -> dict[str, str]:
    """The properties of the table or view."""
    return dict(document.get("properties") or {})


def refs_of(document: Document) -> dict[str, RefState]:
    """Branches and tags by name; ``main`` is there wherever the table has a snapshot."""
    refs = {
        name: RefState(int(ref["snapshot-id"]), ref["type"])
        for name, ref in raw_refs(document).items()
    }
    main = main_of(document)
    if main is not None:
        refs.setdefault(MAIN, RefState(main, "branch"))
    return refs


def snapshot(document: Document, snapshot_id: int) -> Document | None:
    """The snapshot with that id."""
    for candidate in document.get("snapshots") or ():
        if candidate["snapshot-id"] == snapshot_id:
            found: Document = candidate
            return found
    return None


def definition(document: Document) -> dict[str, Any]:
    """What a table is, apart from its rows and properties: schema, layout, place, format."""
    keys = (
        "current-schema-id",
        "default-spec-id",
        "default-sort-order-id",
        "location",
        "format-version",
    )
    return {key: document.get(key) for key in keys}


def ancestors(document: Document, head: int | None) -> Iterator[Document]:
    """A snapshot and those it grew from, newest first, as far as they have not expired."""
    while head is not None:
        found = snapshot(document, head)
        if found is None:
            return
        yield found
        head = found.get("parent-snapshot-id")


def grew_from(document: Document, head: int, base: int | None) -> bool:
    """False if the history of ``head`` is known to the end and ``base`` is not in it.

    A history that breaks off, because a snapshot in the middle has expired, is no evidence.
    """
    if base is None:
        return True
    parents = {
        entry["snapshot-id"]: entry.get("parent-snapshot-id")
        for entry in document.get("snapshots") or ()
    }
    current: int | None = head
    while current is not None:
        if current == base:
            return True
        if current not in parents:
            return True
        current = parents[current]
    return False


def next_location(document: Document, metadata_location: str | None) -> str:
    """Where the successor of a metadata file goes, named as Iceberg's own writers name it."""
    properties = properties_of(document)
    folder = properties.get("write.metadata.path") or f"{document['location'].rstrip('/')}/metadata"
    codec = properties.get("write.metadata.compression-codec", "none").lower()
    suffix = ".gz.metadata.json" if codec == "gzip" else ".metadata.json"
    base_name = (metadata_location or "").rsplit("/", 1)[-1]
    version = _VERSION.match(base_name)
    number = int(version.group(1)) + 1 if version else 0
    return f"{folder.rstrip('/')}/{number:05d}-{uuid.uuid4()}{suffix}"


def copied(document: Document, location: str, properties: Mapping[str, str]) -> Document:
    """The first metadata document of a table that begins with ``main`` of another one.

    The other table's history stays behind: only the snapshot that ``main`` names comes along.
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


def union_by(key: str, *lists: Iterable[Document] | None) -> list[Document]:
    """The entries of all lists, the first one with each ``key`` only."""
    found: dict[Any, Document] = {}
    for entries in lists:
        for entry in entries or ():
            found.setdefault(entry[key], entry)
    return list(found.values())


def raw_refs(document: Document) -> dict[str, Any]:
    """Branches and tags with all that is said of them."""
    refs = dict(document.get("refs") or {})
    main = main_of(document)
    if main is not None and MAIN not in refs:
        refs[MAIN] = {"snapshot-id": main, "type": "branch"}
    return refs
