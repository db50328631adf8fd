"""Finds the tables of a subject by the marks in a project's YAML. Pure.

.. code-block:: yaml

    columns:
      - name: customer_id
        config: {meta: {subject: customer}}       # a key, which identifies the subject's rows
      - name: email
        config: {meta: {personal: customer}}      # another personal value
      - name: remark
        config: {meta: {subject_text: customer}}  # free text that may name the subject

With ``on_erase: clear`` beside ``subject``, the rows stay, and the key and the personal columns
become null. With ``nobody: [-1, 0]`` beside it, rows with these keys are nobody's, such as guests'.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import UUID

from sparkwap.catalog.model import Identifier
from sparkwap.catalog.sparksql import inner_fields
from sparkwap.core.errors import ConfigError
from sparkwap.core.personal import (
    MESSAGE_HEADERS,
    MESSAGE_KEY,
    NOBODY,
    PERSONAL,
    QUARANTINED_ROW,
    RAW_ROW,
    SUBJECT,
    SUBJECT_TEXT,
)
from sparkwap.core.spark_types import exact_digits
from sparkwap.erasure.search import Search, text_of

# A table with these columns was made by the macro `quarantine`.
_QUARANTINE = frozenset({"file_path", "line", "reason", QUARANTINED_ROW})
FILE_ROWS = "_file_rows"
_ACTIONS = ("delete", "clear")
_MAX_KEYS = 10_000
_TYPES = "cannot be nested or a variant; mark a column with one value"

Action = Literal["delete", "clear"]


@dataclass(frozen=True)
class NodeColumns:
    """The columns and parents of a model, snapshot, seed, source or test.

    Attributes:
        node_id: dbt's unique id.
        columns: The ``meta`` of each column in its YAML.
        parents: Unique ids of the nodes that it reads.
        has_history: Whether the macro `scd2_from_changes` makes a history of its snapshots.
        entry_key: For a raw model, the key columns of its landing entry.
    """

    node_id: str
    identifier: Identifier
    resource_type: str
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parents: frozenset[str] = frozenset()
    has_history: bool = False
    entry_key: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubjectTable:
    """A table that may hold the subject.

    Attributes:
        keys: Key columns, which identify the subject's rows.
        personal: Columns with personal values.
        texts: Columns with free text that may name the subject.
        nobody: Values of the keys that are nobody's, as text.
        action: The action of an erasure on the subject's rows.
        any_cell: For stored failures: any cell with a value of the subject identifies its row.
    """

    identifier: Identifier
    keys: tuple[str, ...] = ()
    personal: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    nobody: frozenset[str] = frozenset()
    action: Action = "delete"
    any_cell: bool = False

    @property
    def name(self) -> str:
        """``schema.table``."""
        return ".".join(self.identifier)

    def wanted(self, search: Search) -> dict[str, frozenset[str]]:
        """Return column (lower case) -> the subject's keys or values that it may hold."""
        found = {name.lower(): search.keys for name in self.keys}
        personal = {n: values for n, values in search.values.items() if self.is_personal(n)}
        return found | personal

    def is_personal(self, name: str) -> bool:
        """Return whether a column (lower case), or the field of one, has personal values."""
        marked = {column.lower() for column in self.personal}
        return any(name == one or name.startswith(f"{one}.") for one in marked)


def places(nodes: Iterable[NodeColumns], subject: str) -> tuple[SubjectTable, ...]:
    """Return the tables with marks of a subject, by name.

    Raises:
        ConfigError: No column is marked, or marks contradict each other; the message has all
            errors.
    """
    problems: list[str] = []
    found: dict[Identifier, SubjectTable] = {}
    subjects: set[str] = set()
    for node in nodes:
        subjects |= _subjects(node)
        place = _place(node, subject, problems)
        if place is not None:
            other = found.get(place.identifier)
            found[place.identifier] = _both(other, place, problems) if other else place
    problems += [
        f"{place.name}: {', '.join(place.personal)} is personal, but no column is marked as the "
        f"key; mark it with `meta: {{subject: {subject}}}`, or add the key to the model"
        for place in found.values()
        if place.personal and not place.keys
    ]
    if not found and not problems:
        known = ", ".join(sorted(subjects)) or "none"
        problems.append(
            f"no column is marked with `config: {{meta: {{subject: {subject}}}}}` "
            f"(marked subjects: {known})"
        )
    if problems:
        raise ConfigError(
            "The marks of the subject have errors; nothing was changed.\n  "
            + "\n  ".join(problems)
            + "\nCorrect them in the YAML of the models and run again."
        )
    return tuple(found[name] for name in sorted(found))


def derived(
    nodes: Sequence[NodeColumns],
    marked: Sequence[SubjectTable],
    columns: Mapping[Identifier, Collection[str]],
) -> tuple[SubjectTable, ...]:
    """Return the tables that may hold the subject without marks.

    These are quarantines (tables with `raw_columns` and a marked parent) and the stored failures of
    tests, also of tests that are no longer in the project.

    Args:
        marked: The marked tables, from `places`.
        columns: The tables of the lake with their columns.
    """
    names = {place.identifier for place in marked}
    marked_ids = {node.node_id for node in nodes if node.identifier in names}
    tests = {node.identifier for node in nodes if node.resource_type == "test"}
    built = {node.identifier for node in nodes if node.resource_type != "test"}
    schemas = {schema for schema, _ in tests} - {schema for schema, _ in built}
    found: dict[Identifier, SubjectTable] = {}
    for node in nodes:
        if node.parents & marked_ids and raw_columns(columns.get(node.identifier, ())):
            found[node.identifier] = SubjectTable(node.identifier)
    for identifier in columns:
        if identifier in tests - built or identifier[0] in schemas:
            found[identifier] = SubjectTable(identifier, any_cell=True)
    return tuple(found[name] for name in sorted(found) if name not in names)


def message_columns(columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns with keys and headers of messages, in the raw log of a topic."""
    return tuple(name for name in columns if name.lower() in (MESSAGE_KEY, MESSAGE_HEADERS))


def raw_columns(columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns with the raw text of bad rows, in raw logs and quarantines."""
    present = {name.lower() for name in columns}
    if present >= _QUARANTINE:
        return (RAW_ROW, QUARANTINED_ROW)
    return (RAW_ROW,) if RAW_ROW in present else ()


def with_columns(place: SubjectTable, columns: Collection[str]) -> SubjectTable:
    """Return the place with only the columns of its table, and with the raw text columns."""
    present = {name.lower(): name for name in columns}

    def existing(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(present[name.lower()] for name in names if name.lower() in present)

    fields = (n for n in place.personal if "." in n and n.partition(".")[0].lower() in present)
    fields = (n for n in fields if n.lower() not in present)
    # Where rows stay, only these cells are cleared.
    own = message_columns(columns) if place.action == "delete" else ()
    return replace(
        place,
        keys=existing(place.keys),
        personal=(*existing(place.personal), *fields),
        texts=existing(dict.fromkeys([*place.texts, *raw_columns(columns), *own])),
    )


def _place(node: NodeColumns, subject: str, problems: list[str]) -> SubjectTable | None:
    keys = tuple(n for n, meta in node.columns.items() if _is(meta.get(SUBJECT), subject))
    personal = tuple(n for n, meta in node.columns.items() if _is(meta.get(PERSONAL), subject))
    texts = tuple(n for n, meta in node.columns.items() if _is(meta.get(SUBJECT_TEXT), subject))
    if not keys and not personal and not texts:
        return None
    name = ".".join(node.identifier)
    actions = {str(node.columns[key].get("on_erase", "delete")) for key in keys} or {"delete"}
    if len(actions) > 1 or not actions <= set(_ACTIONS):
        problems.append(
            f"{name}: on_erase is {', '.join(sorted(actions))}; legal: one of {', '.join(_ACTIONS)}"
        )
    action: Action = "clear" if actions == {"clear"} else "delete"
    listed = {n: meta[NOBODY] for n, meta in node.columns.items() if NOBODY in meta}
    problems += [
        f"{name}.{n}: nobody is {ids!r}; legal: a list of values, on a column with `subject`"
        for n, ids in listed.items()
        if type(ids) is not list or SUBJECT not in node.columns[n]
    ]
    own = (ids for n, ids in listed.items() if n in keys and type(ids) is list)
    nobody = frozenset(text for ids in own for one in ids if (text := text_of(one)))
    return SubjectTable(node.identifier, keys, personal, texts, nobody, action)


def _both(one: SubjectTable, other: SubjectTable, problems: list[str]) -> SubjectTable:
    """Return a table with the marks of two nodes, such as a model and a source."""
    if one.keys and other.keys and one.action != other.action:
        problems.append(f"{one.name}: on_erase is {one.action} and {other.action} in two nodes")

    def of_both(names: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
        return tuple({name.lower(): name for name in (*names, *more)}.values())

    return replace(
        other,
        keys=of_both(one.keys, other.keys),
        personal=of_both(one.personal, other.personal),
        texts=of_both(one.texts, other.texts),
        nobody=one.nobody | other.nobody,
        action=one.action if one.keys else other.action,
    )


def check_columns(
    marked: Iterable[SubjectTable], schemas: Mapping[Identifier, Mapping[str, Any]]
) -> None:
    """Check that the marks name columns of their tables, of types on which they have an effect.

    Args:
        schemas: The present Iceberg schemas of the lake's tables.

    Raises:
        ConfigError: Some do not; the message has all of them.
    """
    problems: list[str] = []
    for place in marked:
        if place.identifier not in schemas:
            continue
        top = {
            one["name"].lower(): one["type"] for one in schemas[place.identifier].get("fields", ())
        }
        inner = {name for column, kind in top.items() for name in _inner(kind, column)}
        for name in dict.fromkeys((*place.keys, *place.personal, *place.texts)):
            told, kind = f"{place.name}.{name}", top.get(name.lower())
            if kind is None and name.lower() not in inner:
                problems.append(f"{told} is marked, but the table has no such column")
            elif kind == "variant" or (name in place.keys and not isinstance(kind, str)):
                problems.append(f"{told}: a {'key' if name in place.keys else 'mark'} {_TYPES}")
            elif name in place.texts and kind != "string":
                problems.append(f"{told}: subject_text needs a column of texts")
            elif kind is None and place.action == "clear":
                problems.append(f"{told}: on_erase: clear needs the mark on the whole column")
    if problems:
        raise ConfigError(
            "The marks of the subject do not fit the tables of the lake; nothing was changed.\n  "
            + "\n  ".join(problems)
            + "\nCorrect them in the YAML of the models, or build the tables, and run again."
        )


def _inner(kind: Any, name: str) -> Iterator[str]:
    """Yield the names of the fields in a nested type, as `file_search.leaves` has them."""
    for _, field_name, inner, _ in inner_fields(kind):
        is_named = "fields" in kind
        full = f"{name}.{field_name.lower()}" if is_named else name
        if is_named:
            yield full
        yield from _inner(inner, full)


def _is(mark: Any, subject: str) -> bool:
    return subject in mark if isinstance(mark, list | tuple) else mark == subject


def _subjects(node: NodeColumns) -> set[str]:
    marks = [meta.get(SUBJECT) for meta in node.columns.values()]
    listed = (mark if type(mark) is list else [mark] for mark in marks if mark)
    return {str(subject) for mark in listed for subject in mark}


def is_whole(kind: str) -> bool:
    """Return whether a column type of Spark has only whole numbers."""
    digits = exact_digits(kind)
    return digits is not None and digits[1] == 0


def is_number(kind: str) -> bool:
    """Return whether a column type of Spark has numbers."""
    return exact_digits(kind) is not None or kind in ("float", "double")


def key_values(
    keys: Iterable[str], kinds: Collection[str], *, skip: bool = False
) -> dict[str, set[str]]:
    """Return for each key its text, and the texts of the values that it is in the key columns.

    Args:
        kinds: The types of the key columns; empty if no table has one.
        skip: Leave out keys that cannot be a value of any key column.

    Raises:
        ConfigError: Some keys cannot be a value of any key column; with ``skip``, all cannot.
    """
    read = {key: {_value(key, kind) for kind in kinds} for key in keys}
    wrong = sum(values == {None} for values in read.values())
    if wrong and (not skip or wrong == len(read)):
        raise ConfigError(
            f"{wrong} of {len(read)} keys cannot be a value of any marked key column (their types: "
            f"{', '.join(sorted(kinds))}); nothing was changed. Give the keys as these columns "
            "have them."
        )
    return {
        key: {key, *(value for value in values if value is not None)}
        for key, values in read.items()
        if values != {None}
    }


def _value(key: str, kind: str) -> str | None:
    if is_number(kind):
        # Python reads more texts as numbers than Spark, such as 1_000, which may be another key.
        number = re.fullmatch(r"([+-]?)0*([0-9]{1,38})([.]0*)?", key)
        return str(int(number[1] + number[2])) if number else None
    with suppress(ValueError):
        # Spark reads a UUID as text of this form.
        return str(UUID(key)) if len(key) == len(str(UUID(int=0))) else key
    return key


def key_texts(keys: Iterable[Any]) -> tuple[str, ...]:
    """Return distinct keys as text for comparisons.

    Raises:
        ConfigError: There is no key, or there are too many keys for one operation.
    """
    texts = tuple(dict.fromkeys(text for key in keys if (text := text_of(key))))
    if not texts:
        raise ConfigError(
            "There is no key to search for; nothing was changed. Give `keys: ['42', '43']`, or "
            "`keys_from: schema.table.column` with a table that has rows."
        )
    if len(texts) > _MAX_KEYS:
        raise ConfigError(
            f"There are {len(texts)} keys, and the limit of one operation is {_MAX_KEYS}; nothing "
            "was changed. Use several operations."
        )
    return texts
