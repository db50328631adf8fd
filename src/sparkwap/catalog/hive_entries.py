"""The entries of a Hive metastore, as Iceberg's own catalog writes them.

Engines read an Iceberg table from its metadata file. The columns and the statistics in the entry
are for Hive itself and for programs that browse the metastore.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from hive_metastore.ttypes import FieldSchema, SerDeInfo, StorageDescriptor, Table
from pyiceberg.catalog.hive import SchemaToHiveConverter
from pyiceberg.schema import visit
from pyiceberg.types import NestedField

from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import Identifier, Kind
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.sparksql import by_id, current_schema

LOCATION = "metadata_location"
LOCK_ENABLED = "engine.hive.lock-enabled"
"""Table property: ``false`` if writers compare and swap, and take no lock."""

LONGEST = 32672
"""The longest value of a parameter in Hive since 2.3; before, it was 4,000."""

_PREVIOUS = "previous_metadata_location"
_TYPE = "table_type"
_TYPES: Mapping[Kind, str] = {"table": "ICEBERG", "view": "ICEBERG-VIEW"}
_TABLE, _VIEW = "EXTERNAL_TABLE", "VIRTUAL_VIEW"
_OWNER = "hive.metastore.table.owner"
_PURGE = "external.table.purge"
# Facts that are no more true. The hash, of encrypted tables, is of the bytes that Iceberg would
# write; without it, Iceberg compares the keys instead.
_FORMER = (
    "metadata_hash", "COLUMN_STATS_ACCURATE", "current-schema", "current-snapshot-id",
    "current-snapshot-timestamp-ms", "current-snapshot-summary", "default-partition-spec",
    "default-sort-order", "numFiles", "numRows", "totalSize",
)  # fmt: skip
_COUNTS = {
    "numFiles": "total-data-files",
    "numRows": "total-records",
    "totalSize": "total-files-size",
}
# The shortest limit of Hive's databases.
_COMMENT_LENGTH = 256

_MARK = "sparkwap.mark"
MARK_PREFIX = "wap_mark_"


def pointer_of(table: Table) -> Pointer | None:
    """Return the pointer of an entry; None if it is no Iceberg table or view."""
    found = table.parameters or {}
    kind = found.get(_TYPE, "").upper()
    location = found.get(LOCATION)
    if not location:
        return None
    identifier = (table.dbName, table.tableName)
    if kind == _TYPES["table"]:
        return Pointer(identifier, "table", location)
    if kind == _TYPES["view"] and table.tableType == _VIEW:
        return Pointer(identifier, "view", location)
    return None


def new_entry(
    pointer: Pointer, document: md.Document, owner: str, limit: int, *, hive2: bool
) -> Table:
    """Return the entry of a new table or view.

    Args:
        owner: Its owner, unless a property names one.
        limit: The longest value of a parameter that describes the metadata.
        hive2: Whether Hive has no timestamps with time zone.
    """
    is_table = pointer.kind == "table"
    table = _entry(
        pointer.identifier,
        md.properties_of(document).get(_OWNER, owner),
        _TABLE if is_table else _VIEW,
        {"EXTERNAL": "TRUE"} if is_table else {},
        retention=2**31 - 1,
    )
    update_entry(table, pointer.kind, pointer.location, document, limit, hive2=hive2)
    return table


def _entry(
    identifier: Identifier, owner: str, kind: str, parameters: dict[str, str], **more: Any
) -> Table:
    now = int(time.time())
    return Table(
        dbName=identifier[0],
        tableName=identifier[1],
        owner=owner,
        createTime=now,
        lastAccessTime=now,
        partitionKeys=[],
        parameters=parameters,
        tableType=kind,
        **more,
    )


def update_entry(
    table: Table, kind: Kind, location: str, document: md.Document, limit: int, *, hive2: bool
) -> None:
    """Let an entry describe another metadata file."""
    columns = columns_of(document, hive2=hive2)
    if table.sd is None:
        table.sd = _storage(columns, document)
    table.sd.cols = columns
    table.sd.location = document.get("location")
    found: dict[str, str] = dict(table.parameters or {})
    before = found.get(LOCATION)
    for name in _FORMER:
        found.pop(name, None)
    for name, value in md.properties_of(document).items():
        if name != _OWNER:
            key = _PURGE if name == md.GC_ENABLED else name
            found.pop(key, None)
            # Hive's databases refuse longer ones. Engines read the metadata file.
            if len(value) <= (limit or LONGEST):
                found[key] = value
    found["uuid"] = md.identity(document)
    found[_TYPE] = _TYPES[kind]
    found[LOCATION] = location
    if before:
        found[_PREVIOUS] = before
    if kind == "table":
        found |= _statistics(document)
        found["DO_NOT_UPDATE_STATS"] = "true"
    if limit > 0:
        described = _description(document, kind)
        found |= {name: text for name, text in described.items() if len(text) <= limit}
    table.parameters = found
    if kind == "view":
        table.viewOriginalText = table.viewExpandedText = _sql(document)


def columns_of(document: md.Document, *, hive2: bool) -> list[FieldSchema]:
    """Return the columns with Hive's types."""
    return [
        FieldSchema(
            one["name"], _type(one, hive2), (one.get("doc") or "")[:_COMMENT_LENGTH] or None
        )
        for one in current_schema(document).get("fields") or ()
    ]


def mark_name(name: str) -> str:
    """Return the name of a mark's entry."""
    return MARK_PREFIX + name.encode().hex() if not _plain(name) else MARK_PREFIX + name


def mark_entry(schema: str, name: str, text: str, owner: str) -> Table:
    """Return the entry of a mark: a view in no language, so that Hive creates no folder.

    The text is the view's, because some of Hive's databases limit parameters to 4,000 characters.
    """
    parameters = {_MARK: name, _TYPE: "SPARKWAP-MARK"}
    texts = {"viewOriginalText": text, "viewExpandedText": text}
    identifier = (schema, mark_name(name))
    return _entry(identifier, owner, _VIEW, parameters, retention=0, sd=_storage([], {}), **texts)


def mark_of(table: Table) -> str | None:
    """Return the name of a mark; None if an entry is none."""
    found: str | None = (table.parameters or {}).get(_MARK)
    return found


def identifier_of(table: Table) -> Identifier:
    """Return the name of an entry."""
    return (table.dbName, table.tableName)


def _plain(name: str) -> bool:
    return name.isascii() and name.replace("_", "a").isalnum() and name == name.lower()


def _type(field: Mapping[str, Any], hive2: bool) -> str:
    try:
        parsed = NestedField.model_validate(field)
        return str(visit(parsed.field_type, SchemaToHiveConverter(hive2)))
    except (ValueError, KeyError, TypeError, NotImplementedError):
        # A type that PyIceberg or Hive does not know.
        return "string"


def _storage(columns: list[FieldSchema], document: md.Document) -> StorageDescriptor:
    return StorageDescriptor(
        cols=columns,
        location=document.get("location"),
        inputFormat="org.apache.hadoop.mapred.FileInputFormat",
        outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
        compressed=False,
        numBuckets=0,
        serdeInfo=SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        ),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def _sql(document: md.Document) -> str | None:
    """Return the view's text: for Hive if there is one, else the first."""
    texts = {
        str(one.get("dialect")).lower(): one["sql"]
        for one in reversed(md.current_version(document).get("representations") or ())
        if "sql" in one
    }
    found: str | None = texts.get("hive") or next(reversed(texts.values()), None)
    return found


def _current(document: md.Document) -> md.Document | None:
    main = md.main_of(document)
    return None if main is None else md.snapshot(document, main)


def _statistics(document: md.Document) -> dict[str, str]:
    summary = (_current(document) or {}).get("summary") or {}
    return {ours: str(summary[theirs]) for ours, theirs in _COUNTS.items() if theirs in summary}


def _description(document: md.Document, kind: Kind) -> dict[str, str]:
    found = {"current-schema": _text(current_schema(document))}
    if kind == "view":
        return found
    found["snapshot-count"] = str(len(document.get("snapshots") or ()))
    current = _current(document)
    if current is not None:
        found["current-snapshot-id"] = str(current["snapshot-id"])
        found["current-snapshot-timestamp-ms"] = str(current["timestamp-ms"])
        found["current-snapshot-summary"] = _text(current.get("summary") or {})
    for name, lists, key, present in (
        ("default-partition-spec", "partition-specs", "spec-id", "default-spec-id"),
        ("default-sort-order", "sort-orders", "order-id", "default-sort-order-id"),
    ):
        one = by_id(document.get(lists), key, document.get(present)) or {}
        if one.get("fields"):
            found[name] = _text(one)
    return found


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
