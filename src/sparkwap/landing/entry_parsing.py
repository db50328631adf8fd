"""Parses landing entries, and lists their faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparkwap.core.spark_types import SIMPLE, normal
from sparkwap.landing.entry import (
    KINDS,
    LIMITS,
    LOADS,
    OPERATIONS,
    STATE_COLUMNS,
    Entry,
    FileLayout,
)
from sparkwap.landing.errors import LandingError, any_of
from sparkwap.landing.formats import DEFAULT, FORMATS, format_of
from sparkwap.landing.formats.base import FORMAT_SETTINGS, Format
from sparkwap.landing.formats.json_format import JsonFormat
from sparkwap.landing.messages import TIMESTAMP
from sparkwap.landing.topic import OFFSET, TOPIC_ID, orders_by_offset

_ORDERED = ("bigint", "int", "smallint", "tinyint", "decimal", "date", "timestamp", "string")
"""Legal types of sequence columns: a sortable text can keep their order."""
_ON_NEW_COLUMNS = ("append", "ignore", "fail")
_ON_WIDER_TYPES = ("widen", "quarantine")
_KNOWN = (
    "entity", "kind", "format", "path", "load_date", "columns", "key", "sequence", "event_time",
    "files", "operation", "codes", "partial", "renames", "on_new_columns", "on_wider_types",
    "rules", "threshold", "multiline", "delimiter", "topic", "topic_id", "skip_to", "load", *LIMITS,
)  # fmt: skip
_OF_FILES = ("path", "load_date", "files", "multiline", "delimiter", *LIMITS)
_OF_TOPICS = ("topic", "topic_id", "skip_to", "load")
_TOPIC = re.compile(r"[\w.-]{1,249}", re.ASCII)
_NEEDED = ("entity", "kind", "columns", "key", "files")
_LAYOUT_KNOWN = ("match", "load", "header", "operation", "codes", "format")


def parse_entry(raw: Mapping[str, Any] | None) -> Entry:
    """Return an entry from the ``landing`` key of a raw model's ``config.meta``.

    Raises:
        LandingError: the entry has faults; the message lists all of them.
    """
    raw = raw or {}
    faults = [f"unknown setting '{k}' (legal: {any_of(_KNOWN)})" for k in raw if k not in _KNOWN]
    of_files = raw.get("kind") != "stream"
    listed = of_files and not format_of(raw).own_operations
    needed = [n for n in _NEEDED if n != "files" or listed] + ["topic"] * (not of_files)
    faults += [f"'{k}' is missing" for k in needed if not raw.get(k)]
    faults += _choices(raw)
    entry = _read_entry(raw, faults)
    faults += _unread_settings(entry, raw)
    faults += _contradictions(entry, raw)
    if faults:
        raise LandingError(
            f"The landing entry of '{raw.get('entity', '?')}' cannot be used: "
            f"{'; '.join(faults)}. Nothing was read. Correct `config.meta.landing` in the YAML "
            "file of the raw model."
        )
    return entry


def _unread_settings(entry: Entry, raw: Mapping[str, Any]) -> list[str]:
    """Return the faults of settings that no format of the entry's files reads."""
    given = {*raw, *(key for layout in raw.get("files") or () for key in layout)}
    names = {layout.format for layout in entry.layouts} & FORMATS.keys()
    read = {setting for name in names for setting in FORMATS[name].settings}
    return [
        f"format {any_of(names)} has no setting '{setting}'"
        for setting in FORMAT_SETTINGS
        if names and setting in given and setting not in read
    ]


def _choices(raw: Mapping[str, Any]) -> list[str]:
    """Return the faults of settings that have few legal values."""
    legal = {
        "kind": KINDS,
        "format": tuple(FORMATS),
        "on_new_columns": _ON_NEW_COLUMNS,
        "on_wider_types": _ON_WIDER_TYPES,
    }
    return [
        f"{name} '{raw[name]}' is not one of {any_of(values)}"
        for name, values in legal.items()
        if raw.get(name) and raw[name] not in values
    ]


def _read_entry(raw: Mapping[str, Any], faults: list[str]) -> Entry:
    format_ = format_of(raw)
    default = []
    if format_.own_operations or raw.get("kind") == "stream":
        operations = format_.own_operations or raw.get("operation")
        load = raw.get("load") or ("changes" if operations else "inserts")
        default = [{"match": "*", "load": load}]
    layouts = tuple(_read_layout(f, raw, format_, faults) for f in raw.get("files") or default)
    sequence = _read_sequence(raw, format_, faults)
    topic = str(raw.get("topic") or "")
    if topic and not sequence:
        # Kafka keeps the order of the messages of a key.
        sequence = ((OFFSET, "bigint"),)
    return Entry(
        entity=str(raw.get("entity", "?")),
        kind=str(raw.get("kind")),
        columns=_read_columns(_mapping(raw, "columns", faults), faults),
        key=_read_key(raw.get("key"), faults),
        layouts=layouts,
        path=str(raw.get("path") or raw.get("entity", "?")).strip("/"),
        topic=topic,
        topic_id=str(raw.get("topic_id") or ""),
        skip_to=_read_offsets(raw, faults),
        load_date=None if raw.get("load_date") is None else str(raw["load_date"]),
        sequence=sequence,
        event_time=_read_event_time(raw, format_, sequence, faults),
        partial=bool(raw.get("partial", format_.partial)),
        renames=_mapping(raw, "renames", faults),
        on_new_columns=str(raw.get("on_new_columns", "append")),
        on_wider_types=str(raw.get("on_wider_types", "widen")),
        rules=_mapping(raw, "rules", faults),
        threshold=_read_threshold(raw.get("threshold", 0), faults),
        multiline=bool(raw.get("multiline", False)),
        delimiter=str(raw.get("delimiter", ",")),
        **{name: _read_limit(name, raw.get(name, usual), faults) for name, usual in LIMITS.items()},
    )


def _read_layout(
    raw: Mapping[str, Any], entry: Mapping[str, Any], format_: Format, faults: list[str]
) -> FileLayout:
    load = str(raw.get("load", "full"))
    given = raw.get("codes", entry.get("codes"))
    codes = format_.codes or {str(k): str(v) for k, v in (given or {}).items()}
    operation = raw.get("operation", entry.get("operation"))
    name = str(raw.get("format") or entry.get("format") or DEFAULT)
    faults += _format_faults(name, format_)
    faults += [
        f"unknown setting '{k}' in 'files' (legal: {any_of(_LAYOUT_KNOWN)})"
        for k in raw
        if k not in _LAYOUT_KNOWN
    ]
    if not raw.get("match"):
        faults.append("an item of 'files' has no 'match'")
    if load not in LOADS:
        faults.append(f"load '{load}' is not one of {any_of(LOADS)}")
    if load == "changes" and not format_.own_operations and not (operation and codes):
        faults.append("files with load 'changes' need 'operation' and 'codes'")
    if format_.own_operations and (operation or given):
        faults.append(
            f"format '{format_.name}' has its own operations; remove 'operation' and 'codes'"
        )
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
        format=name,
    )


def _format_faults(name: str, entry_format: Format) -> list[str]:
    if name not in FORMATS:
        return [f"format '{name}' is not one of {any_of(FORMATS)}"]
    own = [f.name for f in (entry_format, FORMATS[name]) if f.own_operations]
    if own and name != entry_format.name:
        return [f"one entry cannot have files of format '{own[0]}' and of another format"]
    return []


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
    raw: Mapping[str, Any], format_: Format, faults: list[str]
) -> tuple[tuple[str, str], ...]:
    given = raw.get("sequence")
    if not given:
        return format_.sequence
    if not isinstance(given, Mapping):
        faults.append("'sequence' is a mapping of column to type, such as {changed_at: timestamp}")
        return ()
    pairs = []
    for name, text in given.items():
        kind = normal(str(text))
        if kind is None or kind.split("(")[0] not in _ORDERED:
            faults.append(
                f"sequence column '{name}' has the type '{text}', which is not one of "
                f"{any_of(_ORDERED)}"
            )
        pairs.append((str(name), kind or str(text)))
    return tuple(pairs)


def _read_event_time(
    raw: Mapping[str, Any],
    format_: Format,
    sequence: tuple[tuple[str, str], ...],
    faults: list[str],
) -> tuple[str, str] | None:
    times = ("timestamp", "date")
    if not raw.get("event_time"):
        of_message = (TIMESTAMP, "bigint") if raw.get("topic") else None
        named = next((c for c in sequence if c[1] in times), None)
        return format_.event_time or named or of_message
    name = str(raw["event_time"])
    typed = {str(k): str(v) for k, v in (raw.get("columns") or {}).items()} | dict(sequence)
    usual = format_.event_time[1] if format_.event_time else "timestamp"
    usual = "bigint" if name == TIMESTAMP else usual
    kind = normal(typed.get(name, usual))
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
    return LIMITS[name]


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
        f"column '{c}' has the name of a column of the state (`cdc_`); name another one, with "
        f"`renames: {{{c}: <name>}}`"
        for c in entry.columns
        if c.lower() in STATE_COLUMNS
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
    faults += _topic_faults(entry, raw)
    if entry.load_date is not None:
        faults += _pattern_faults(entry.load_date)
    if ".." in entry.path.split("/"):
        faults.append(f"path '{entry.path}' leads out of the landing folder")
    if len(entry.delimiter) != 1:
        faults.append(f"delimiter '{entry.delimiter}' is not one character")
    return faults


def _topic_faults(entry: Entry, raw: Mapping[str, Any]) -> list[str]:
    """Return the faults of settings that are only for topics, or not for topics."""
    if entry.kind != "stream":
        faults = [f"'{name}' is only for kind 'stream'" for name in _OF_TOPICS if name in raw]
        if any(layout.load == "upserts" for layout in entry.layouts):
            faults.append("load 'upserts' is only for kind 'stream'")
        return faults
    faults = [f"'{name}' is for files, and kind 'stream' reads a topic; remove it"
              for name in _OF_FILES if name in raw]  # fmt: skip
    if entry.topic and not _TOPIC.fullmatch(entry.topic):
        faults.append(f"topic '{entry.topic}' is not a legal name of a topic")
    format_ = format_of(raw)
    if not raw.get("format") or not isinstance(format_, JsonFormat):
        faults.append("kind 'stream' needs the format json or debezium")
    loads = ("changes",) if format_.own_operations else LOADS[1:]
    if raw.get("load") and raw["load"] not in loads:
        faults.append(f"load '{raw['load']}' of a stream of {format_.name} is not {any_of(loads)}")
    if entry.topic_id and orders_by_offset(entry):
        faults.append(
            f"a topic that was created again counts its offsets anew, so {OFFSET} does not order "
            "its messages after the former ones; make a new raw model without 'topic_id'"
        )
    faults += [f"sequence column '{name}' is a bigint"
               for name, kind in entry.sequence
               if name in (OFFSET, TIMESTAMP) and kind != "bigint"]  # fmt: skip
    return faults


def _read_offsets(raw: Mapping[str, Any], faults: list[str]) -> dict[str, dict[int, int]]:
    given = raw.get("skip_to") or {}
    try:
        found = {
            str(topic_id): {int(partition): int(offset) for partition, offset in offsets.items()}
            for topic_id, offsets in given.items()
        }
    except (AttributeError, TypeError, ValueError):
        found = {"": {}}
    numbers = [n for offsets in found.values() for pair in offsets.items() for n in pair]
    if any(n < 0 for n in numbers) or not all(map(TOPIC_ID.fullmatch, found)):
        faults.append(
            "'skip_to' is a mapping of the id of a topic to partition to offset, such as "
            "{2VfGxbCkSGGvSnhgIBTDsw: {0: 1500}}"
        )
        return {}
    return found


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
