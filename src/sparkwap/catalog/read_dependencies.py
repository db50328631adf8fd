"""Tables that a run reads but does not build: their states, and whether these have changed."""

from __future__ import annotations

import hashlib
import json

from sparkwap.catalog import metadata as md
from sparkwap.catalog.content_equality import keeps_columns, same_rows
from sparkwap.catalog.metadata import Document
from sparkwap.catalog.model import Mismatch, Read
from sparkwap.catalog.planning import Load, row_words, snapshot_words
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.sparksql import current_schema

NOTHING = "nothing"
_TABLE, _VIEW = "table", "view"


def token(row: Pointer | None, load: Load) -> str:
    """Return the state that a reader of a name sees, as one text.

    ``table <uuid> <snapshot of main, or none> <columns>``, ``view <metadata file>``, or
    ``nothing``. The columns are a hash of the present schema, which may change without a snapshot.
    """
    if row is None:
        return NOTHING
    if row.kind == "view":
        return f"{_VIEW} {row.location}"
    document = load(row.location)
    main = md.main_of(document)
    shown = "none" if main is None else str(main)
    return f"{_TABLE} {md.identity(document)} {shown} {columns(document)}"


def columns(document: Document) -> str:
    """Return a hash of the columns that a reader of a table sees now."""
    return _hash(current_schema(document))


def _hash(schema: Document) -> str:
    fields = json.dumps(schema["fields"], sort_keys=True)
    return hashlib.sha256(fields.encode()).hexdigest()[:12]


def moved(read: Read, row: Pointer | None, load: Load) -> Mismatch | None:
    """Return how a table or view has changed since it was read; None if the rows are the same.

    A compaction is no change if the metadata proves that it changed no row, and neither is a new
    column.
    """
    now = token(row, load)
    if now == read.token or (row is not None and _same_rows(read.token, now, load(row.location))):
        return None
    expected = _words(read.token)
    found = row_words(row) if row is None or row.kind == "view" else _words(now)
    found += " with other columns" if found == expected else ""
    return Mismatch(read.identifier, "state that was read", expected, found, "read")


def _same_rows(before: str, now: str, document: Document) -> bool:
    old, new = before.split(" "), now.split(" ")
    if old[0] != _TABLE or old[:2] != new[:2]:
        return False
    # Tokens of older ledgers have no columns.
    if old[3:] != new[3:] and old[3:] and not _keeps_columns(document, old[3]):
        return False
    return old[2] == new[2] or (
        "none" not in (old[2], new[2]) and same_rows(document, int(old[2]), int(new[2]))
    )


def _keeps_columns(document: Document, before: str) -> bool:
    schemas = document.get("schemas") or ()
    old = next((one for one in schemas if _hash(one) == before), None)
    return old is not None and keeps_columns(old, current_schema(document))


def _words(text: str) -> str:
    kind, *rest = text.split(" ")
    if kind == _TABLE:
        return snapshot_words(None if rest[1] == "none" else int(rest[1]))
    return f"a view at {rest[0]}" if kind == _VIEW else "nothing"
