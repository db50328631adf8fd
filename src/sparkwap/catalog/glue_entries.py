"""Entries of tables in AWS Glue, as Iceberg's own catalogs for Glue write them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.metadata import Document
from sparkwap.catalog.metastore import Entry
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.sparksql import current_schema

TABLE_TYPE, METADATA_LOCATION = "table_type", "metadata_location"
FORMER_LOCATION = "previous_metadata_location"
_ICEBERG = "ICEBERG"

# What is kept of a table: all that a request to change it may name.
_KEPT = (
    "Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention",
    "StorageDescriptor", "PartitionKeys", "ViewOriginalText", "ViewExpandedText", "TableType",
    "Parameters", "TargetTable",
)  # fmt: skip
# Properties with locations of files outside of a table's folder.
_OTHER_LOCATIONS = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_TYPES = {
    "long": "bigint",
    "time": "string",
    "uuid": "string",
    "fixed": "binary",
    "timestamptz": "timestamp",
    "timestamp_ns": "timestamp_nano",
    "timestamptz_ns": "timestamp_nano",
}
# Glue's limits, in characters.
_COMMENT_LENGTH, DESCRIPTION_LENGTH = 255, 2048
_NOT_PRINTED = re.compile(r"[\x00-\x08\x0a-\x1f\ud800-\udfff\ufffe\uffff]+")


def entry_of(schema: str, table: Mapping[str, Any]) -> Entry | None:
    """Return the entry of a table; None if it is not one of Iceberg."""
    parameters = table.get("Parameters") or {}
    location = parameters.get(METADATA_LOCATION)
    if str(parameters.get(TABLE_TYPE)).upper() != _ICEBERG or not location:
        return None
    # The database's name may be another one, if the schema is a link to a shared database.
    return Entry(Pointer((schema, table["Name"]), "table", location), table.get("VersionId"))


def schema_properties_of(database: Mapping[str, Any]) -> dict[str, str]:
    more = {"location": database.get("LocationUri"), "comment": database.get("Description")}
    parameters = database.get("Parameters") or {}
    return {**parameters, **{key: text for key, text in more.items() if text}}


def kept_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request has to repeat of a table, or it would be removed."""
    return {key: table[key] for key in _KEPT if table.get(key) is not None}


def pointing(table: Mapping[str, Any], location: str, document: Document) -> dict[str, Any]:
    """Return a table's entry that points to a metadata file."""
    own = {TABLE_TYPE: _ICEBERG, METADATA_LOCATION: location}
    parameters = {**(table.get("Parameters") or {}), **own}
    # A former file may have rows that were erased since.
    parameters.pop(FORMER_LOCATION, None)
    storage = {**(table.get("StorageDescriptor") or {})}
    properties = md.properties_of(document)
    others = [properties[key] for key in _OTHER_LOCATIONS if key in properties]
    if others:
        others = list(dict.fromkeys([*(storage.get("AdditionalLocations") or ()), *others]))
        storage["AdditionalLocations"] = others
    storage["Location"] = document["location"]
    storage["Columns"] = _columns(document, storage.get("Columns") or ())
    described = {}
    if "comment" in properties:
        described["Description"] = printed(properties["comment"], DESCRIPTION_LENGTH)
    return {
        **table,
        "TableType": "EXTERNAL_TABLE",
        **described,
        "Parameters": parameters,
        "StorageDescriptor": storage,
    }


def _columns(document: Document, before: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the columns for people and for rights on columns; engines read the metadata file.

    They are those of all schemas of the table, the present ones first, as Iceberg writes them.
    PyIceberg's own function cannot be used, because it knows no types of format version 3.
    """
    comments = {column["Name"]: column["Comment"] for column in before if column.get("Comment")}
    present = current_schema(document)
    found: dict[str, dict[str, Any]] = {}
    for schema in (present, *(document.get("schemas") or ())):
        for field in schema.get("fields") or ():
            name = str(field["name"])
            if name in found:
                continue
            comment = field.get("doc") or comments.get(name)
            found[name] = {
                "Name": name,
                "Type": _type_text(field["type"]),
                **({"Comment": printed(comment, _COMMENT_LENGTH)} if comment else {}),
                "Parameters": {
                    "iceberg.field.id": str(field["id"]),
                    "iceberg.field.optional": str(not field.get("required")).lower(),
                    "iceberg.field.current": str(schema is present).lower(),
                },
            }
    return list(found.values())


def _type_text(iceberg_type: str | Mapping[str, Any]) -> str:
    """Return the type of Hive that Iceberg writes to Glue for one of its types."""
    if isinstance(iceberg_type, str):
        if iceberg_type.startswith("decimal"):
            return iceberg_type.replace(" ", "")
        plain = re.split(r"[\[(]", iceberg_type)[0]
        return _TYPES.get(plain, plain)
    kind = iceberg_type["type"]
    if kind == "list":
        return f"array<{_type_text(iceberg_type['element'])}>"
    if kind == "map":
        key, value = (_type_text(iceberg_type[part]) for part in ("key", "value"))
        return f"map<{key},{value}>"
    fields = ",".join(f"{f['name']}:{_type_text(f['type'])}" for f in iceberg_type["fields"])
    return f"struct<{fields}>"


def printed(text: str, length: int) -> str:
    """Return a text as Glue takes it: of limited length, and in one line."""
    return _NOT_PRINTED.sub(" ", text)[:length]
