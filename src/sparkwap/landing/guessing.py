"""Guesses a landing entry from samples of a source: format, columns, types, key, order.

The result lists each assumption, so that the user can check it. If the files are ambiguous and a
wrong guess would lose rows, an error shows the options to choose from.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from sparkwap.landing.errors import LandingError, any_of
from sparkwap.landing.formats.base import FileSample, Format
from sparkwap.landing.formats.debezium_format import CODES as DEBEZIUM_CODES
from sparkwap.landing.samples import ALIKE
from sparkwap.landing.text_types import text_kind

_OPERATION = re.compile(r"_*(op|operation|change_type|__op)", re.IGNORECASE)
_ORDER = re.compile(r"seq|lsn|scn|position|offset", re.IGNORECASE)
_CHANGED = re.compile(
    r"upd|modif|chang|commit|^(op_?|event_?)?(at|ts|time(stamp)?)$", re.IGNORECASE
)
"""The names of times of changes, and of no other times of a row, such as its creation."""
_CODES = {"I": "insert", "U": "update", "D": "delete", "T": "truncate"} | DEBEZIUM_CODES
_DMS_LOAD = "LOAD*"
"""The names of the full-load files of AWS DMS."""
_BROKEN = 0.01
"""Maximum share of change rows without a key, and of updates and deletes without a time."""


_Rows: TypeAlias = Sequence[dict[str, str | None]]


@dataclass(frozen=True)
class SourceAnswers:
    """The user's options, which replace guesses.

    Attributes:
        key: the key columns; guessed if empty.
        kind: ``extract`` or ``changes``.
        full: the pattern of the names of full loads.
    """

    key: tuple[str, ...] = ()
    kind: str | None = None
    operation: str | None = None
    full: str | None = None


@dataclass(frozen=True)
class Guess:
    """A landing entry, and its assumptions, one line each."""

    entry: dict[str, Any]
    assumed: tuple[str, ...]


# ---------------------------------------------------------------- the guess


def guess(
    samples: Sequence[FileSample], entity: str, answers: SourceAnswers | None = None
) -> Guess:
    """Guess a landing entry for files like the samples.

    Args:
        samples: see `read_samples`.

    Raises:
        LandingError: the files are ambiguous, no column can be a key, or a key column does not
            exist.
    """
    answers = answers or SourceAnswers()
    messages = _format_of_messages(samples, entity)
    names = _columns_of(samples)
    operation, codes = (None, {}) if messages else _operation(samples, answers, entity)
    full, changes = _split_loads(samples, operation, answers, entity)
    types = {name: _kind(samples, name) for name in names}
    rows = [row for sample in changes for row in sample.rows]
    numbers = [n for n in names if operation and _ORDER.search(n) and _digits(rows, n)][:1]
    own = [n for n in names if n not in (operation, *numbers)]
    is_changes = messages is not None or operation is not None
    chosen = list(answers.key) or _key(samples, own, types, unique=not is_changes)
    times = [n for n in own if types[n] == "timestamp" and n not in chosen] if operation else []
    order = dict.fromkeys(_time(rows, times, chosen, operation), "timestamp")
    order |= dict.fromkeys(numbers, "decimal(38,0)")
    own = [n for n in own if n not in order]
    _check_key(chosen, own, entity)
    entry: dict[str, Any] = {
        "entity": entity,
        "kind": "changes" if is_changes else "extract",
        "format": (changes or full)[-1].format.name,
        "key": chosen,
        "columns": {n: types[n] for n in own},
    }
    if operation:
        entry |= {"operation": operation, "codes": codes}
    if order:
        entry["sequence"] = order
    if messages is None:
        entry["files"] = _files(full, changes, entry, answers, entity)
    entry |= {"multiline": True} if any(sample.multiline for sample in samples) else {}
    entry |= _delimiter(samples, entity)
    return Guess(entry, tuple(_assumptions(samples, entry, answers, messages)))


def _ambiguous(entity: str, why: str, *options: str) -> LandingError:
    return LandingError(
        f"The files of '{entity}' can be read in two ways: {why}. Nothing was written. "
        f"Use {', or '.join(options)}."
    )


def _format_of_messages(samples: Sequence[FileSample], entity: str) -> Format | None:
    """Return the format of samples whose rows contain their operations; None for other samples."""
    found = next((s.format for s in samples if s.format.own_operations), None)
    others = [sample.name for sample in samples if sample.format is not found]
    if found and others:
        raise LandingError(
            f"Some files of '{entity}' have the format '{found.name}', but {others[0]} has another "
            "one. Nothing was written. Give files of one kind; add another entry for the other "
            "files."
        )
    return found


def _operation(
    samples: Sequence[FileSample], answers: SourceAnswers, entity: str
) -> tuple[str | None, dict[str, str]]:
    """Return the column with the operation codes, and the codes; None if drops are whole tables."""
    if answers.kind == "extract":
        return None, {}
    for name in [answers.operation] if answers.operation else _columns_of(samples):
        values = _values(samples, name)
        known = sum(value in _CODES for value in values)
        if not answers.operation and not (_OPERATION.fullmatch(name) and known):
            continue
        if known < ALIKE * len(values) and not (answers.kind or answers.operation):
            strange = next(v for v in values if v not in _CODES)
            raise _ambiguous(
                entity,
                f"most values of '{name}' are not operation codes, such as {strange!r}",
                f"--kind changes, and correct 'codes' in the entry, if '{name}' is the operation",
                f"--kind extract, if '{name}' is an ordinary column",
            )
        return name, _codes_of(values)
    # All samples are full loads, whose columns do not show the columns of later changes.
    return ("Op", _codes_of(["I"])) if answers.kind == "changes" else (None, {})


def _values(samples: Iterable[FileSample], name: str) -> list[str]:
    """Return the values of a column that are not NULL."""
    rows = (row for sample in samples for row in sample.rows)
    return [value for row in rows if (value := row.get(name)) is not None]


def _columns_of(samples: Sequence[FileSample]) -> list[str]:
    return list(dict.fromkeys(name for sample in samples for name in sample.columns))


def _codes_of(values: Sequence[str]) -> dict[str, str]:
    if set(values) & set(DEBEZIUM_CODES):
        return dict(DEBEZIUM_CODES)
    return {k: v for k, v in _CODES.items() if k in "IUD" or (k == "T" and k in values)}


def _split_loads(
    samples: Sequence[FileSample], operation: str | None, answers: SourceAnswers, entity: str
) -> tuple[list[FileSample], list[FileSample]]:
    """Return the full loads, and the files of changes."""
    if samples[0].format.own_operations:
        return [], list(samples)
    if operation is not None:
        full = [s for s in samples if _is_full(s, operation, answers)]
        return full, [s for s in samples if s not in full]
    options = ("--kind extract, if each drop is the whole table",
               "--kind changes, if files of changes follow")  # fmt: skip
    if answers.kind is None:
        loads = [s.name for s in samples if fnmatchcase(s.name, _DMS_LOAD)]
        if loads:
            why = f"{loads[0]} has the name of a full load, which files of changes usually follow"
            raise _ambiguous(entity, why, *options)
        for before, after in pairwise(samples):
            if len(after.rows) < ALIKE * len(before.rows):
                why = f"{after.name} has {len(after.rows):,} rows, after the {len(before.rows):,}"
                raise _ambiguous(entity, f"{why} of {before.name}", *options)
    return list(samples), []


def _is_full(sample: FileSample, operation: str, answers: SourceAnswers) -> bool:
    if answers.full is not None:
        return fnmatchcase(sample.name, answers.full)
    return operation not in sample.columns or fnmatchcase(sample.name, _DMS_LOAD)


# ---------------------------------------------------------------- names of files


def _files(
    full: Sequence[FileSample],
    changes: Sequence[FileSample],
    entry: dict[str, Any],
    answers: SourceAnswers,
    entity: str,
) -> list[dict[str, str]]:
    """Return the layouts; full loads are first, because the first match applies.

    Their patterns end like the names of the samples: uploads often have a name such as
    ``a.csv.part`` until they are complete.
    """
    loads = {"full": full}
    if entry["kind"] == "changes":
        loads["changes"] = changes
    found: list[dict[str, str]] = []
    for load, samples in loads.items():
        whole = load == "full" and entry["kind"] == "changes"
        start = _full_pattern(full, changes, answers, entity) if whole else "*"
        for sample in samples or [*full, *changes]:
            match = start + _ending(sample) if start.endswith("*") else start
            layout = {"match": match, "load": load}
            if sample.format.name != entry["format"]:
                layout["format"] = sample.format.name
            if layout not in found:
                found.append(layout)
    return found


def _ending(sample: FileSample) -> str:
    suffixes = "|".join(map(re.escape, sample.format.suffixes))
    known = re.search(rf"(?:{suffixes})(?:\.gz)?$", sample.name, re.IGNORECASE)
    return known[0] if known else Path(sample.name).suffix or sample.format.suffixes[0]


def _full_pattern(
    full: Sequence[FileSample], changes: Sequence[FileSample], answers: SourceAnswers, entity: str
) -> str:
    """Return a pattern that matches the names of all full loads, and of no file of changes."""
    names = [sample.name for sample in full]
    begin = re.match(r"[^\d.]*", os.path.commonprefix(names))  # noqa: RUF071 - of letters
    start = f"{begin[0]}*" if begin and begin[0] else _DMS_LOAD
    for pattern in [answers.full] if answers.full else [_DMS_LOAD, start]:
        every = all(fnmatchcase(name, pattern) for name in names)
        if every and not any(fnmatchcase(sample.name, pattern) for sample in changes):
            return pattern
    raise _ambiguous(
        entity,
        f"{names[0] if names else 'no file'} is a full load, {changes[0].name} has changes, but "
        "no name pattern matches only the full loads",
        "--full <pattern of the names of full loads>, such as --full 'full_*'",
    )


def _delimiter(samples: Sequence[FileSample], entity: str) -> dict[str, str]:
    found = {sample.delimiter for sample in samples if sample.delimiter}
    if len(found) > 1:
        raise LandingError(
            f"The files of '{entity}' have the delimiters {any_of(found)}. Nothing was written. "
            "An entry has one delimiter; give files with the same delimiter."
        )
    return {"delimiter": found.pop()} if found - {","} else {}


# ---------------------------------------------------------------- types


def _kind(samples: Sequence[FileSample], name: str) -> str:
    """Return the type of a column: the type in all files, else the narrowest type of all texts."""
    filled = [sample for sample in samples if _values([sample], name)]
    typed = {sample.typed.get(name) for sample in filled}
    if len(typed) == 1 and None not in typed:
        return str(typed.pop())
    if typed == {"bigint", "double"}:
        return "double"
    found = text_kind(_values(filled, name))
    # A declared string is a string column, except for times, for which JSON has no other type.
    is_text = any(s.format.declares_strings and name not in s.typed for s in filled)
    return "string" if is_text and found not in ("date", "timestamp") else found


def _time(
    rows: _Rows, names: Sequence[str], key: Sequence[str], operation: str | None
) -> list[str]:
    """Return the likeliest time of the changes; none if it is the same in all changes of a key.

    A time may be empty in new rows: changes without a time come first.
    """
    new = ("insert", "load")
    later = [row for row in rows if _CODES.get(row.get(operation or "") or "") not in new]

    def unlikely(name: str) -> tuple[bool, ...]:
        gaps = sum(row.get(name) is None for row in later) > _BROKEN * len(later)
        return gaps, _differs(rows, key, [name]) is False, not _CHANGED.search(name)

    likely = [n for n in names if _CHANGED.search(n) or not any(unlikely(n)[:2])]
    return sorted(likely, key=unlikely)[:1]


def _differs(rows: _Rows, key: Sequence[str], columns: Iterable[str]) -> bool | None:
    """Return whether columns differ in changes of one key; None if no key has two changes."""
    orders: dict[tuple[str | None, ...], list[tuple[str | None, ...]]] = {}
    for row in {tuple(row.items()): row for row in rows}.values():
        of_key = orders.setdefault(tuple(row.get(k) for k in key), [])
        of_key.append(tuple(row.get(c) for c in columns))
    several = [found for found in orders.values() if len(found) > 1]
    return any(len({*found}) > 1 for found in several) if several else None


def _digits(rows: Sequence[dict[str, str | None]], name: str) -> bool:
    return bool(rows) and all(re.fullmatch(r"\d{1,38}", row.get(name) or "") for row in rows)


def _key(
    samples: Sequence[FileSample], own: Sequence[str], types: dict[str, str], unique: bool
) -> list[str]:
    """Return the likeliest key: no NULLs, unique if `unique`, with the name of a key."""

    def possible(name: str) -> bool:
        named = re.fullmatch(r"id|.*_id|.*_?key|.*_?code|.*number", name, re.IGNORECASE)
        if types[name] not in ("bigint", "int", "string"):
            return False
        if not unique:
            values = [row.get(name) for sample in samples for row in sample.rows]
            return bool(named) and values.count(None) <= _BROKEN * len(values)
        columns = [[row.get(name) for row in sample.rows] for sample in samples]
        return all(None not in c and len(set(c)) == len(c) for c in columns)

    found = [name for name in own if possible(name)]
    found.sort(key=lambda n: (n.lower() != "id", not n.lower().endswith("id"), own.index(n)))
    return found[:1]


def _check_key(key: Sequence[str], own: Sequence[str], entity: str) -> None:
    lacking = [k for k in key if k not in own]
    if lacking or not key:
        why = f"it has no column {', '.join(lacking)}" if lacking else "no column looks like a key"
        raise LandingError(
            f"The sample of '{entity}' does not show the key: {why}. Nothing was written. "
            f"Name the key with --key; the columns are {', '.join(own)}."
        )


def _assumptions(
    samples: Sequence[FileSample],
    entry: dict[str, Any],
    answers: SourceAnswers,
    messages: Format | None,
) -> Iterable[str]:
    rows = [row for sample in samples for row in sample.rows]
    files = f"{len(samples):,} files with {len(rows):,}" if len(samples) > 1 else f"{len(rows):,}"
    formats = " and ".join(dict.fromkeys(sample.format.name for sample in samples))
    yield f"format {formats}, from {files} row{'' if len(rows) == 1 else 's'}"
    yield f"kind {entry['kind']}: " + (
        "files of changes" if entry["kind"] == "changes" else "each drop is the whole table"
    )
    if not answers.key:
        yield f"key {', '.join(entry['key'])}: it has the name of a key, and no NULLs"
    if "operation" in entry:
        full = " and ".join(f["match"] for f in entry["files"] if f["load"] == "full")
        yield f"operation codes in '{entry['operation']}'; files named {full} are full loads"
        strange = sorted({*_values(samples, entry["operation"])} - {*entry["codes"]})
        if strange:
            yield f"rows whose operation is {any_of(strange[:3])} go to quarantine"
    if "sequence" in entry:
        order = entry["sequence"]
        changes = [row for row in rows if row.get(entry["operation"]) is not None]
        differs = _differs(changes, entry["key"], order)
        doubt = ""
        if differs is False:
            doubt = "; it is the same in all changes of a key, so correct 'sequence'"
        elif differs is None and not any(
            re.search(p, n) for n in order for p in (_CHANGED, _ORDER)
        ):
            doubt = "; no key of the sample has two changes that show it"
        yield f"order of changes by {', '.join(order)}{doubt}"
    elif messages and messages.sequence:
        names = ", ".join(name for name, _ in messages.sequence)
        yield f"order of changes by {names}; set 'sequence' if the source does not have it"
    elif "operation" in entry:
        yield "no column orders the changes; their load date, file name and row do"
    empty = [n for n in entry["columns"] if all(row.get(n) is None for row in rows)]
    if empty:
        yield f"type string for {', '.join(empty)}, which has no values in the sample"
