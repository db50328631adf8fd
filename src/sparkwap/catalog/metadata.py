"""Iceberg metadata documents: read, and grown into their successors.

The documents are the JSON objects of Iceberg's table and view specification. They are edited as
such rather than through a typed model so that what this code does not know (format version 3,
statistics, encryption keys) comes through unharmed. A document is never changed in place, as it
may be shared with a cache.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from sparkwap.catalog.model import RefState

Document = Mapping[str, Any]

MAIN = "main"
WAP_ENABLED = "write.wap.enabled"
GC_ENABLED = "gc.enabled"
DELETE_OLD_METADATA = "write.metadata.delete-after-commit.enabled"

_VERSION = re.compile(r"^(\d+)-")
_MAX_LOG = "write.metadata.previous-versions-max"
_MAX_LOG_DEFAULT = 100


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
        for name, ref in _refs(document).items()
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


class Edit:
    """Grows the successor of a table's metadata document.

    Args:
        document: The present document, left as it is.
        metadata_location: Its file, which becomes the last entry of the metadata log; None to
            leave the log alone.
    """

    def __init__(self, document: Document, metadata_location: str | None) -> None:
        self._document: dict[str, Any] = dict(document)
        self._previous = metadata_location
        now = int(time.time() * 1000)
        # Clocks of several writers differ; Iceberg wants the logs in order of time.
        self._now = max(now, int(document.get("last-updated-ms") or 0))

    def put(self, **fields: Any) -> Edit:
        """Set fields of the document; underscores stand for hyphens."""
        self._document.update({key.replace("_", "-"): value for key, value in fields.items()})
        return self

    def drop(self, *keys: str) -> Edit:
        """Remove fields of the document."""
        for key in keys:
            self._document.pop(key, None)
        return self

    def branch(self, name: str, snapshot_id: int) -> Edit:
        """Point a branch to a snapshot, with the retention that it had."""
        return self._set_ref(name, snapshot_id, "branch", None)

    def tag(self, name: str, snapshot_id: int, max_age_ms: int | None = None) -> Edit:
        """Set a tag, which expires ``max_age_ms`` after its snapshot was written."""
        return self._set_ref(name, snapshot_id, "tag", max_age_ms)

    def remove_ref(self, *names: str) -> Edit:
        """Remove branches and tags that are there; without ``main`` the table is empty."""
        refs = _refs(self._document)
        if MAIN in names:
            self._document.pop("current-snapshot-id", None)
        self._document["refs"] = {name: ref for name, ref in refs.items() if name not in names}
        return self

    def properties(self, changes: Mapping[str, str | None]) -> Edit:
        """Set properties; None removes one."""
        merged = {**properties_of(self._document), **changes}
        self._document["properties"] = {k: v for k, v in merged.items() if v is not None}
        return self

    def build(self) -> Document:
        """The new document."""
        document = dict(self._document)
        log = _in_order(document.get("snapshot-log") or ())
        if log:
            document["snapshot-log"] = log
        document["last-updated-ms"] = max([self._now, *(one["timestamp-ms"] for one in log[-1:])])
        if self._previous is not None:
            document["metadata-log"] = self._grown_log(document)
        return document

    def _set_ref(
        self, name: str, snapshot_id: int, kind: Literal["branch", "tag"], max_age_ms: int | None
    ) -> Edit:
        refs = _refs(self._document)
        former = refs.get(name, {})
        kept = former if former.get("type") == kind == "branch" else {}
        ref: dict[str, Any] = {**kept, "snapshot-id": snapshot_id, "type": kind}
        if max_age_ms is not None:
            ref["max-ref-age-ms"] = max_age_ms
        self._document["refs"] = {**refs, name: ref}
        if name == MAIN and main_of(self._document) != snapshot_id:
            self._document["current-snapshot-id"] = snapshot_id
            # Time travel by timestamp reads this log: it says since when readers saw a snapshot.
            entry = {"snapshot-id": snapshot_id, "timestamp-ms": self._now}
            self._document["snapshot-log"] = [*(self._document.get("snapshot-log") or ()), entry]
        return self

    def _grown_log(self, document: Document) -> list[Any]:
        limit = max(1, int(properties_of(document).get(_MAX_LOG, _MAX_LOG_DEFAULT)))
        entry = {
            "metadata-file": self._previous,
            "timestamp-ms": int(self._document.get("last-updated-ms") or self._now),
        }
        return [*(document.get("metadata-log") or ()), entry][-limit:]


def _in_order(log: Iterable[Document]) -> list[Document]:
    """The log of what readers saw when, no entry earlier than the one before it.

    PyIceberg enters the time of its clock, which may have been set back since; Spark refuses to
    read a table whose log goes back by more than a minute.
    """
    latest = 0
    found: list[Document] = []
    for entry in log:
        latest = max(latest, entry["timestamp-ms"])
        found.append({**entry, "timestamp-ms": latest})
    return found


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


def _refs(document: Document) -> dict[str, Any]:
    refs = dict(document.get("refs") or {})
    main = main_of(document)
    if main is not None and MAIN not in refs:
        refs[MAIN] = {"snapshot-id": main, "type": "branch"}
    return refs
