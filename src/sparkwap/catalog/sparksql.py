"""Columns and layout of a metadata document in terms of Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import ColumnState

_PRIMITIVES = {
    "long": "bigint",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "timestamp_ns": "timestamp_ntz",
    "timestamptz_ns": "timestamp",
    "uuid": "string",
    "unknown": "void",
}
_UNITS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
_PARAMETRIC = re.compile(r"(bucket|truncate)\[(\d+)\]")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def type_text(iceberg_type: str | Mapping[str, Any]) -> str:
    """Return the Spark SQL type of an Iceberg type, as ``describe`` prints it."""
    if isinstance(iceberg_type, str):
        if iceberg_type.startswith("decimal"):
            return iceberg_type.replace(" ", "")
        fixed = iceberg_type.startswith("fixed")
        return "binary" if fixed else _PRIMITIVES.get(iceberg_type, iceberg_type)
    kind = iceberg_type["type"]
    if kind == "list":
        return f"array<{type_text(iceberg_type['element'])}>"
    if kind == "map":
        return f"map<{type_text(iceberg_type['key'])},{type_text(iceberg_type['value'])}>"
    fields = ",".join(f"{f['name']}:{type_text(f['type'])}" for f in iceberg_type["fields"])
    return f"struct<{fields}>"


def inner_fields(kind: Any) -> list[tuple[int, str, Any, bool]]:
    """Return the fields directly in a schema or nested Iceberg type; none of another type.

    Each has id, name, Iceberg type, and whether it is required. The fields of a list or map are
    named ``element``, ``key`` and ``value``.
    """
    if not isinstance(kind, Mapping):
        return []
    parts = (part for part in ("element", "key", "value") if part in kind)
    return [
        *((kind[f"{p}-id"], p, kind[p], bool(kind.get(f"{p}-required"))) for p in parts),
        *((f["id"], f["name"], f["type"], bool(f.get("required"))) for f in kind.get("fields", ())),
    ]


def columns(schema: Mapping[str, Any]) -> tuple[ColumnState, ...]:
    """Return the columns of a schema, in order."""
    return tuple(
        ColumnState(
            field["name"],
            type_text(field["type"]),
            bool(field.get("required")),
            field.get("doc") or None,
        )
        for field in schema.get("fields") or ()
    )


def current_schema(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the present schema of a table or view."""
    wanted = document.get("current-schema-id")
    if md.is_view(document):
        wanted = md.current_version(document)["schema-id"]
    return by_id(document.get("schemas"), "schema-id", wanted) or document.get("schema") or {}


def partitioning(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the partition terms of a table, as in ``partitioned by``, without dropped ones."""
    spec = by_id(document.get("partition-specs"), "spec-id", document.get("default-spec-id"))
    return _terms_of(document, spec.get("fields", ()) if spec else _old_spec(document))


def partitionings(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the partition terms of each spec of a table, because old files keep their spec."""
    specs = document.get("partition-specs") or [{"fields": _old_spec(document)}]
    return [_terms_of(document, spec.get("fields", ())) for spec in specs]


def _old_spec(document: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return document.get("partition-spec") or ()


def _terms_of(document: Mapping[str, Any], fields: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    names = _names(current_schema(document))
    terms = (_term(field, names) for field in fields)
    return tuple(term for term in terms if term is not None)


def sort_order(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sort terms of a table, as in ``write ordered by``."""
    order = by_id(document.get("sort-orders"), "order-id", document.get("default-sort-order-id"))
    names = _names(current_schema(document))
    terms = []
    for field in (order or {}).get("fields", ()):
        term = _term(field, names)
        if term is not None:
            nulls = field["null-order"].replace("-", " ")
            terms.append(f"{term} {field['direction']} {nulls}")
    return tuple(terms)


def by_id(entries: Any, key: str, wanted: Any) -> Mapping[str, Any] | None:
    """Return the first entry whose ``key`` is ``wanted``."""
    return next((entry for entry in entries or () if entry.get(key) == wanted), None)


def _term(field: Mapping[str, Any], names: Mapping[int, str]) -> str | None:
    source = field.get("source-id", next(iter(field.get("source-ids") or ()), None))
    name = names.get(source, str(source)) if source is not None else "?"
    transform = field["transform"]
    if transform == "void":
        return None
    if transform == "identity":
        return name
    if transform in _UNITS:
        return f"{_UNITS[transform]}({name})"
    parametric = _PARAMETRIC.fullmatch(transform)
    if parametric:
        return f"{parametric.group(1)}({parametric.group(2)}, {name})"
    return f"{transform}({name})"


def _names(struct: Mapping[str, Any], prefix: str = "") -> dict[int, str]:
    names: dict[int, str] = {}
    for field in struct.get("fields") or ():
        name = field["name"] if _PLAIN.fullmatch(field["name"]) else f"`{field['name']}`"
        names[field["id"]] = f"{prefix}{name}"
        if isinstance(field["type"], Mapping) and field["type"]["type"] == "struct":
            names |= _names(field["type"], f"{prefix}{name}.")
    return names
