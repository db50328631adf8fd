"""The place of a table's build: an Iceberg branch, a clone, or a new table.

The branches of an Iceberg table have their own rows, but share its columns, layout, properties and
comments. So a build that changes one of these writes to a clone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import ColumnState, TableState
from sparkwap.core.spark_types import decimal_digits, exact_digits

Where = Literal["branch", "clone", "new"]
DesiredColumn = tuple[str, str | None, bool | None, str | None]
"""Name, Spark type text, nullable, comment; None for a part that is not managed."""


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state of a table. None means not managed: the table keeps its present value.

    Attributes:
        columns: `(name, Spark type text, nullable, comment)` of each column, in order.
        partitioning: Spark DDL terms such as `days(ts)`; an empty tuple for none.
        sort_order: Spark DDL terms such as `id desc`; an empty tuple for none.
        properties: Table properties that must have these values; others do not change.
        comment: The table's comment; an empty text for none.
    """

    columns: tuple[DesiredColumn, ...] | None = None
    partitioning: tuple[str, ...] | None = None
    sort_order: tuple[str, ...] | None = None
    properties: Mapping[str, object] | None = None
    format_version: int | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The place of a table's build.

    Attributes:
        where: `branch` of the live table, `clone` of it, or `new`.
        changes: The differences from the live table in words, such as `column price: int ->
            bigint`; empty unless `where` is `clone`.
    """

    where: Where
    changes: tuple[str, ...] = ()


def decide_build(current: TableState | None, desired: Desired) -> BuildPlan:
    """Decide where a table is built."""
    if current is None:
        return BuildPlan("new")
    changes = [
        *_column_changes(current.columns, desired),
        *_layout_changes(current, desired),
        *_property_changes(current.properties, desired.properties),
        *_other_changes(current, desired),
    ]
    return BuildPlan("clone", tuple(changes)) if changes else BuildPlan("branch")


# --- columns ------------------------------------------------------------------------------------


def _column_changes(current: Sequence[ColumnState], desired: Desired) -> Iterable[str]:
    if desired.columns is None:
        return
    old = {column.name.lower(): column for column in current}
    wanted = {column[0].lower(): column for column in desired.columns}
    for key, column in wanted.items():
        if key not in old:
            yield f"column {column[0]} added"
        else:
            yield from _one_column(old[key], column)
    yield from (f"column {column.name} removed" for key, column in old.items() if key not in wanted)
    # Compare the order of the common columns only; the others are reported above.
    before = [key for key in old if key in wanted]
    after = [key for key in wanted if key in old]
    if before != after:
        yield f"column order: {', '.join(before)} -> {', '.join(after)}"


def _one_column(old: ColumnState, wanted: DesiredColumn) -> Iterable[str]:
    name, type_text, nullable, doc = wanted
    if name != old.name:
        yield f"column {old.name} renamed to {name}"
    if type_text is not None:
        before, after = stored_type(old.type), stored_type(type_text)
        if before != after:
            yield f"column {name}: {before} -> {after}"
    if nullable is not None and nullable == old.required:
        states = ("not null", "nullable") if nullable else ("nullable", "not null")
        yield f"column {name}: {states[0]} -> {states[1]}"
    if doc is not None and doc != (old.doc or ""):
        yield f"column {name}: comment changed"


# --- layout and the rest ------------------------------------------------------------------------


def _layout_changes(current: TableState, desired: Desired) -> Iterable[str]:
    if desired.partitioning is not None:
        before, after = map(partition_terms, (current.partitioning, desired.partitioning))
        if before != after:
            yield f"partitioning: {_listed(before)} -> {_listed(after)}"
    if desired.sort_order is not None:
        before = [sort_term(term) for term in _terms(current.sort_order)]
        after = [sort_term(term) for term in _terms(desired.sort_order)]
        if before != after:
            yield f"sort order: {_listed(before)} -> {_listed(after)}"


def _property_changes(
    current: Mapping[str, str], wanted: Mapping[str, object] | None
) -> Iterable[str]:
    for key, value in (wanted or {}).items():
        if key in _OWN_FIELDS or value is None or key.startswith(_IN_PLACE):
            continue
        before, after = current.get(key), _property_text(value)
        if before != after:
            yield f"property {key}: {'none' if before is None else before} -> {after}"


def _other_changes(current: TableState, desired: Desired) -> Iterable[str]:
    properties = desired.properties or {}
    version = desired.format_version or properties.get("format-version")
    if version is not None and str(version) != str(current.format_version):
        yield f"format version: {current.format_version} -> {version}"
    comment = desired.comment if desired.comment is not None else properties.get("comment")
    if comment is not None and str(comment) != (current.comment or ""):
        yield "table comment changed"


def in_place(properties: Mapping[str, object] | None) -> dict[str, str]:
    """Return the properties that may be set on the live table before an audit.

    They do not affect readers. `commit.retry.*` sets how long a writer retries its commit, and the
    first write of the run needs it. The deletion of old metadata files would delete files of the
    live table if a clone had it.
    """
    return {
        key: _property_text(value)
        for key, value in (properties or {}).items()
        if key.startswith(_IN_PLACE) and value is not None
    }


_IN_PLACE = ("commit.retry.", md.DELETE_OLD_METADATA)

# Spark accepts these as properties, but Iceberg does not store them as properties; those of the
# gate keep the live table's values.
_OWN_FIELDS = frozenset(
    {"format-version", "comment", "location", "provider", "owner", md.WAP_ENABLED, md.GC_ENABLED}
)


def _property_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- terms of partitioning and sort order -------------------------------------------------------

_TRANSFORMS = {
    "year": "years",
    "month": "months",
    "day": "days",
    "date": "days",
    "hour": "hours",
    "date_hour": "hours",
}


def partition_term(term: str) -> str:
    """Return a partition term in its normal form: `day( `TS` )` -> `days(ts)`.

    Returns:
        Empty for a term that does not partition (`void`).
    """
    text = _plain(term)
    call = re.fullmatch(r"(\w+)\s*\((.*)\)", text)
    if call is None:
        return text
    function = _TRANSFORMS.get(call[1], call[1])
    arguments = [argument.strip() for argument in call[2].split(",")]
    if function in ("void", "always_null"):
        return ""
    if function == "identity":
        return arguments[0]
    # Spark accepts `bucket(16, id)` and `truncate(id, 4)`.
    arguments.sort(key=lambda argument: not argument.isdigit())
    return f"{function}({', '.join(arguments)})"


def partition_terms(texts: Iterable[str]) -> list[str]:
    """Return the terms that partition, in their normal form."""
    return [term for term in map(partition_term, _terms(texts)) if term]


def sort_term(term: str) -> str:
    """Return a sort term in its normal form, with defaults: `ID` -> `id asc nulls first`."""
    parts = re.fullmatch(r"(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", _plain(term))
    assert parts is not None  # every part but the first is optional
    direction = parts[2] or "asc"
    nulls = parts[3] or ("first" if direction == "asc" else "last")
    return f"{partition_term(parts[1])} {direction} nulls {nulls}"


def _terms(texts: Iterable[str] | str) -> list[str]:
    """Return single terms; a text may contain several, as in `days(ts), bucket(16, id)`."""
    joined = texts if isinstance(texts, str) else ",".join(texts)
    return [term.strip() for term in _split(joined) if term.strip()]


def _plain(text: str) -> str:
    return " ".join(text.replace("`", "").lower().split())


def _listed(terms: Sequence[str]) -> str:
    return ", ".join(terms) or "none"


# --- types --------------------------------------------------------------------------------------

_STORED = {
    "tinyint": "int",
    "byte": "int",
    "smallint": "int",
    "short": "int",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "char": "string",
    "character": "string",
    "varchar": "string",
    "timestamp_ltz": "timestamp",
    "bool": "boolean",
    "dec": "decimal",
    "numeric": "decimal",
}
# A field's name is quoted, or all text before a colon (`describe` does not quote), or one word.
_FIELD = re.compile(r"""\s*(`(?:[^`]|``)*`|[^:<'"`]+?(?=\s*:)|[^\s:`]+)\s*:?\s*(.*)""", re.DOTALL)
_FIELD_EXTRAS = re.compile(r"\s+not\s+null\b|\s+comment\s+(['\"]).*\Z", re.IGNORECASE | re.DOTALL)


def stored_type(text: str) -> str:
    """Return the normal form of a Spark type as Iceberg stores it.

    Iceberg stores small integers as `int`, and `char` and `varchar` as `string`. Names of struct
    fields keep their case; the rest is lower case without spaces. Text that is no type is returned
    in lower case.
    """
    text = text.strip()
    outer = re.fullmatch(r"(array|list|map|struct)\s*<(.*)>", text, re.IGNORECASE | re.DOTALL)
    if outer is None:
        return _simple_type(text)
    kind, parts = outer[1].lower(), _split(outer[2])
    if kind == "struct":
        return f"struct<{','.join(_struct_field(part) for part in parts if part.strip())}>"
    kind = "array" if kind == "list" else kind
    return f"{kind}<{','.join(stored_type(part) for part in parts)}>"


_EXACT = {
    "bigint": ("int",),
    "double": ("int", "float"),
    "string": ("float", "double", "boolean", "date", "timestamp_ntz"),
    "timestamp": ("date",),
    "timestamp_ntz": ("date",),
}


def is_exact(given: str, kept: str) -> bool:
    """Return whether a cast between two Spark types changes no value, such as int to bigint."""
    return _is_exact(stored_type(given), stored_type(kept))


def _is_exact(given: str, kept: str) -> bool:
    if given in (kept, "void", *_EXACT.get(kept, ())):
        return True
    (kind, parts), (wanted, slots) = _outer(given), _outer(kept)
    if kind and kind == wanted and len(parts) == len(slots):
        pairs = zip(parts, slots, strict=True)
        if kind == "struct":
            fields = [(_field(part), _field(slot)) for part, slot in pairs]
            return all(a == b and _is_exact(old, new) for (a, old), (b, new) in fields)
        return all(_is_exact(part, slot) for part, slot in pairs)
    digits, kept_digits = exact_digits(given), exact_digits(kept)
    if digits is None or kept_digits is None:
        return digits is not None and kept == "string"
    whole, kept_whole = digits[0] - digits[1], kept_digits[0] - kept_digits[1]
    if decimal_digits(kept) is None:
        kept_whole -= 1  # An integer type has not all values of its greatest number of digits.
    return whole <= kept_whole and digits[1] <= kept_digits[1]


def _outer(stored: str) -> tuple[str, list[str]]:
    outer = re.fullmatch(r"(array|map|struct)<(.*)>", stored, re.DOTALL)
    return (outer[1], _split(outer[2])) if outer else ("", [])


def _field(stored: str) -> tuple[str, str]:
    name, _, kind = stored.partition(":")
    return name, kind


def _struct_field(text: str) -> str:
    field = _FIELD.fullmatch(text)
    if field is None:
        return text.strip()
    name = field[1]
    if name.startswith("`"):
        name = name[1:-1].replace("``", "`")
    return f"{name}:{stored_type(_FIELD_EXTRAS.sub('', field[2]))}"


def _simple_type(text: str) -> str:
    parts = re.fullmatch(r"([\w ]+?)\s*(?:\(([^()]*)\))?(?:\s+collate\s+\S+)?", text.lower())
    if parts is None:
        return " ".join(text.lower().split())
    name = _STORED.get(parts[1], " ".join(parts[1].split()))
    if name != "decimal":
        return name
    digits = (parts[2] or "10").replace(" ", "").split(",")
    return f"decimal({digits[0]},{digits[1] if len(digits) > 1 else '0'})"


_QUOTED = r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_TOKEN = re.compile(rf"{_QUOTED}|.", re.DOTALL)


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets and quotes."""
    parts, depth = [""], 0
    for token in _TOKEN.findall(text):
        depth += (token in "<(") - (token in ">)")
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return parts
