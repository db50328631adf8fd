"""The landing entry: the description of a raw model's files in its YAML.

The entry is ``config.meta.landing`` of the model:

=================== ===============================================================================
``entity``          name, for messages; also the folder of the files if ``path`` is not set
``kind``            ``extract``: each drop is the whole table; ``changes``: changes of the table
``format``          ``csv`` (default), ``json`` (lines), ``parquet``, ``debezium`` (JSON lines); a
                    layout may override it
``path``            folder below the landing folder, or a glob of folders; default ``<entity>``.
                    It contains ``load_date=YYYY-MM-DD/`` folders, or the files themselves
``load_date``       regular expression whose group is the date (YYYYMMDD or YYYY-MM-DD) in the
                    name of a file outside of ``load_date=`` folders. If it does not match, the
                    load date is the day of the file's latest event
``columns``         name to Spark type of the columns to keep
``key``             the columns that identify a row
``sequence``        column to type of the columns that order the changes, the most significant
                    first. For Debezium, a path in the envelope; its default is ``source.lsn``.
                    Not for ``extract``, which is ordered by load date
``event_time``      the column with the time of a change (a time, or milliseconds since 1970).
                    Default: ``source.ts_ms`` of a Debezium envelope, the first timestamp in
                    ``sequence``, or the load date
``files``           list of layouts: ``match`` (file-name pattern), ``load`` (one of `LOADS`),
                    ``header``, ``operation``, ``codes``, ``format``. The first match applies
``operation``       the column with the operation code; a layout may override it
``codes``           code to one of `OPERATIONS`; a layout may override it
``partial``         an absent column means *unchanged*; default only for ``debezium``
``renames``         published column name to column
``on_new_columns``  ``append`` (default), ``ignore``, ``fail``
``on_wider_types``  handling of a value that needs a wider type (bigint for int, more digits for a
                    decimal): ``widen`` (default), if the staging models use ``exact_cast`` (see
                    macros/cdc), or ``quarantine``
``rules``           name to SQL condition on the typed columns; a row for which it is false is bad
``threshold``       how many rows of a load may be bad: a count, or a share below 1; default 0
``multiline``       values contain line breaks (CSV), or a file is one JSON document
``delimiter``       delimiter of CSV; default a comma
``max_bytes``       maximum size of a file, and of its inflated text; default 5 GB
``max_ratio``       maximum compression ratio of a file with more than 64 MB of text; default 250
``max_row_bytes``   maximum size of a row: a line, a record with line breaks, a JSON document;
                    default 32 MB
=================== ===============================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkwap.core.spark_types import SIMPLE, normal
from sparkwap.landing.errors import LandingError, any_of

KINDS = ("extract", "changes")
LOADS = ("full", "changes", "inserts")
FORMATS = ("csv", "json", "parquet", "debezium")
ORDERED = ("bigint", "int", "smallint", "tinyint", "decimal", "date", "timestamp", "string")
"""Legal types of sequence columns: a sortable text can keep their order."""
OPERATIONS = ("load", "insert", "update", "delete", "truncate")
ON_NEW_COLUMNS = ("append", "ignore", "fail")
ON_WIDER_TYPES = ("widen", "quarantine")
DEBEZIUM_CODES = {"r": "load", "c": "insert", "u": "update", "d": "delete", "t": "truncate"}

_LIMITS = {"max_bytes": 5_000_000_000, "max_ratio": 250, "max_row_bytes": 32_000_000}
_KNOWN = (
    "entity", "kind", "format", "path", "load_date", "columns", "key", "sequence", "event_time",
    "files", "operation", "codes", "partial", "renames", "on_new_columns", "on_wider_types",
    "rules", "threshold", "multiline", "delimiter", *_LIMITS,
)  # fmt: skip
_NEEDED = ("entity", "kind", "columns", "key", "files")
_LAYOUT_KNOWN = ("match", "load", "header", "operation", "codes", "format")
UNTIL, REPLAY = "SPARKWAP_LANDING_UNTIL", "SPARKWAP_LANDING_REPLAY"
"""Environment variables that set `landing_until` and `landing_replay` for one command."""


@dataclass(frozen=True)
class FileLayout:
    """The layout of some of an entity's files.

    Attributes:
        match: file-name pattern.
        load: one of `LOADS`: the whole table, changes with an operation each, or only new rows,
            such as readings.
        format: one of `FORMATS`.
        header: whether the files have a header.
        operation: the column with the operation code; the first column in files without a header.
        codes: pairs of an operation code and its meaning, one of `OPERATIONS`.
    """

    match: str
    load: str
    format: str = "csv"
    header: bool = True
    operation: str | None = None
    codes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Entry:
    """One entity of a source; the module's docstring describes the fields.

    Attributes:
        sequence: pairs of column and type.
        event_time: a pair of column and type, or None.
        threshold: a count (int) or a share (float).
    """

    entity: str
    kind: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    layouts: tuple[FileLayout, ...]
    format: str = "csv"
    path: str = ""
    load_date: str | None = None
    sequence: tuple[tuple[str, str], ...] = ()
    event_time: tuple[str, str] | None = None
    partial: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    on_new_columns: str = "append"
    on_wider_types: str = "widen"
    rules: Mapping[str, str] = field(default_factory=dict)
    threshold: int | float = 0
    multiline: bool = False
    delimiter: str = ","
    max_bytes: int = _LIMITS["max_bytes"]
    max_ratio: int = _LIMITS["max_ratio"]
    max_row_bytes: int = _LIMITS["max_row_bytes"]

    @property
    def service_columns(self) -> frozenset[str]:
        """Published columns with metadata of a row, which the log does not keep as columns."""
        named = {layout.operation for layout in self.layouts if layout.operation}
        named |= {name for name, _ in self.sequence}
        named |= {self.event_time[0]} if self.event_time else set()
        return frozenset(named - set(self.columns))


def parse_entry(raw: Mapping[str, Any] | None) -> Entry:
    """Return an entry from the ``landing`` key of a raw model's ``config.meta``.

    Raises:
        LandingError: the entry has faults; the message lists all of them.
    """
    raw = raw or {}
    faults = [f"unknown setting '{k}' (legal: {any_of(_KNOWN)})" for k in raw if k not in _KNOWN]
    # Debezium has one layout, so 'files' has a default.
    needed = [n for n in _NEEDED if n != "files" or raw.get("format") != "debezium"]
    faults += [f"'{k}' is missing" for k in needed if not raw.get(k)]
    faults += _choices(raw)
    entry = _read_entry(raw, faults)
    faults += _contradictions(entry, raw)
    if faults:
        raise LandingError(
            f"The landing entry of '{raw.get('entity', '?')}' cannot be used: "
            f"{'; '.join(faults)}. Nothing was read. Correct `config.meta.landing` in the YAML "
            "file of the raw model."
        )
    return entry


def _choices(raw: Mapping[str, Any]) -> list[str]:
    """Return the faults of settings that have few legal values."""
    legal = {
        "kind": KINDS,
        "format": FORMATS,
        "on_new_columns": ON_NEW_COLUMNS,
        "on_wider_types": ON_WIDER_TYPES,
    }
    return [
        f"{name} '{raw[name]}' is not one of {any_of(values)}"
        for name, values in legal.items()
        if raw.get(name) and raw[name] not in values
    ]


def _read_entry(raw: Mapping[str, Any], faults: list[str]) -> Entry:
    format_ = str(raw.get("format", "csv"))
    debezium = format_ == "debezium"
    default = [{"match": "*", "load": "changes"}] if debezium else []
    layouts = tuple(_read_layout(f, raw, debezium, faults) for f in raw.get("files") or default)
    sequence = _read_sequence(raw, debezium, faults)
    return Entry(
        entity=str(raw.get("entity", "?")),
        kind=str(raw.get("kind")),
        columns=_read_columns(_mapping(raw, "columns", faults), faults),
        key=_read_key(raw.get("key"), faults),
        layouts=layouts,
        format=format_,
        path=str(raw.get("path") or raw.get("entity", "?")).strip("/"),
        load_date=None if raw.get("load_date") is None else str(raw["load_date"]),
        sequence=sequence,
        event_time=_read_event_time(raw, debezium, sequence, faults),
        partial=bool(raw.get("partial", debezium)),
        renames=_mapping(raw, "renames", faults),
        on_new_columns=str(raw.get("on_new_columns", "append")),
        on_wider_types=str(raw.get("on_wider_types", "widen")),
        rules=_mapping(raw, "rules", faults),
        threshold=_read_threshold(raw.get("threshold", 0), faults),
        multiline=bool(raw.get("multiline", False)),
        delimiter=str(raw.get("delimiter", ",")),
        **{
            name: _read_limit(name, raw.get(name, usual), faults) for name, usual in _LIMITS.items()
        },
    )


def _read_layout(
    raw: Mapping[str, Any], entry: Mapping[str, Any], debezium: bool, faults: list[str]
) -> FileLayout:
    load = str(raw.get("load", "full"))
    given = raw.get("codes", entry.get("codes"))
    codes = dict(DEBEZIUM_CODES) if debezium else {str(k): str(v) for k, v in (given or {}).items()}
    operation = raw.get("operation", entry.get("operation"))
    format_ = str(raw.get("format") or entry.get("format") or "csv")
    if format_ not in FORMATS:
        faults.append(f"format '{format_}' is not one of {any_of(FORMATS)}")
    elif (format_ == "debezium") != debezium:
        faults.append("one entry cannot have files of format 'debezium' and of another format")
    faults += [
        f"unknown setting '{k}' in 'files' (legal: {any_of(_LAYOUT_KNOWN)})"
        for k in raw
        if k not in _LAYOUT_KNOWN
    ]
    if not raw.get("match"):
        faults.append("an item of 'files' has no 'match'")
    if load not in LOADS:
        faults.append(f"load '{load}' is not one of {any_of(LOADS)}")
    if load == "changes" and not debezium and not (operation and codes):
        faults.append("files with load 'changes' need 'operation' and 'codes'")
    if debezium and (operation or given):
        faults.append("format 'debezium' has its own operations; remove 'operation' and 'codes'")
    faults += [
        f"operation '{v}' is not one of {any_of(OPERATIONS)}"
        for v in codes.values()
        if v not in OPERATIONS
    ]
    return FileLayout(
        match=str(raw.get("match", "")),
        load=load,
        header=bool(raw.get("header", True)),
        operation=None if operation is None else str(operation),
        codes=tuple(codes.items()),
        format=format_,
    )


def _read_columns(columns: Mapping[str, str], faults: list[str]) -> dict[str, str]:
    found = {}
    for name, text in columns.items():
        kind = normal(text)
        if kind is None:
            faults.append(
                f"column '{name}' has the type '{text}', which is not one of {any_of(SIMPLE)}"
            )
        found[name] = kind or text
    return found


def _read_sequence(
    raw: Mapping[str, Any], debezium: bool, faults: list[str]
) -> tuple[tuple[str, str], ...]:
    given = raw.get("sequence")
    if not given:
        return (("source.lsn", "bigint"),) if debezium else ()
    if not isinstance(given, Mapping):
        faults.append("'sequence' is a mapping of column to type, such as {changed_at: timestamp}")
        return ()
    pairs = []
    for name, text in given.items():
        kind = normal(str(text))
        if kind is None or kind.split("(")[0] not in ORDERED:
            faults.append(
                f"sequence column '{name}' has the type '{text}', which is not one of "
                f"{any_of(ORDERED)}"
            )
        pairs.append((str(name), kind or str(text)))
    return tuple(pairs)


def _read_event_time(
    raw: Mapping[str, Any],
    debezium: bool,
    sequence: tuple[tuple[str, str], ...],
    faults: list[str],
) -> tuple[str, str] | None:
    times = ("timestamp", "date")
    if not raw.get("event_time"):
        if debezium:
            return "source.ts_ms", "bigint"
        return next((column for column in sequence if column[1] in times), None)
    name = str(raw["event_time"])
    typed = {str(k): str(v) for k, v in (raw.get("columns") or {}).items()} | dict(sequence)
    kind = normal(typed.get(name, "bigint" if debezium else "timestamp"))
    if kind not in (*times, "bigint"):
        faults.append(f"event_time column '{name}' has the type '{kind}'; it must be a time, or a "
                      "bigint of milliseconds")  # fmt: skip
    return name, kind or "timestamp"


def _read_threshold(value: Any, faults: list[str]) -> int | float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value < 0 or (value % 1 and value > 1):
        faults.append(f"threshold '{value}' is neither a count of rows nor a share below 1")
        return 0
    return float(value) if value % 1 else int(value)


def _read_limit(name: str, value: Any, faults: list[str]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    faults.append(f"{name} '{value}' is not a whole number of 1 or more")
    return _LIMITS[name]


def _contradictions(entry: Entry, raw: Mapping[str, Any]) -> list[str]:
    """Return the faults of settings that contradict each other."""
    faults = [f"key column '{k}' is not among the columns" for k in entry.key
              if k not in entry.columns]  # fmt: skip
    faults += [
        f"column '{c}' begins with '_', which is reserved for the log's columns"
        for c in entry.columns
        if c[:1] == "_"
    ]
    faults += [
        f"rename '{old}: {new}' names a column that does not exist"
        for old, new in entry.renames.items()
        if new not in entry.columns
    ]
    if entry.kind == "extract" and any(la.load != "full" for la in entry.layouts):
        faults.append("kind 'extract' allows files with load 'full' only")
    if entry.kind == "extract" and raw.get("sequence"):
        faults.append("kind 'extract' is ordered by load date; remove 'sequence'")
    if entry.load_date is not None:
        faults += _pattern_faults(entry.load_date)
    if ".." in entry.path.split("/"):
        faults.append(f"path '{entry.path}' leads out of the landing folder")
    if len(entry.delimiter) != 1:
        faults.append(f"delimiter '{entry.delimiter}' is not one character")
    return faults


def _pattern_faults(pattern: str) -> list[str]:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        return [f"load_date '{pattern}' is not a regular expression: {error}"]
    return [] if groups == 1 else [f"load_date '{pattern}' needs exactly one group, for the date"]


def _mapping(raw: Mapping[str, Any], name: str, faults: list[str]) -> dict[str, str]:
    given = raw.get(name) or {}
    if not isinstance(given, Mapping):
        faults.append(f"'{name}' is not a mapping")
        return {}
    return {str(k): str(v) for k, v in given.items()}


def _read_key(given: Any, faults: list[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        faults.append(f"'key' is a list, such as [{given}]")
        return ()
    return tuple(str(column) for column in given or ())
