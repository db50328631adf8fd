"""A guess at a landing entry, from samples of a source: format, columns, types, key, order.

Each guess is listed, so that somebody can check it. Where the files can be read in two ways, and
one of them would lose rows, the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from sparkwap.landing.entry import DEBEZIUM_CODES
from sparkwap.landing.errors import LandingError, any_of
from sparkwap.landing.samples import ALIKE, FileSample
from sparkwap.landing.text_types import text_kind

_OPERATION = re.compile(r"_*(op|operation|change_type|__op)", re.IGNORECASE)
_ORDER = re.compile(r"seq|lsn|scn|position|offset", re.IGNORECASE)
_CODES = {"I": "insert", "U": "update", "D": "delete", "T": "truncate"} | DEBEZIUM_CODES
_EVERY = {"csv": ".csv*", "json": ".json*", "parquet": ".parquet*", "debezium": ".json*"}
_DMS_LOAD = "LOAD*"
"""What AWS DMS calls the files of a full load."""
_BROKEN = 0.01
"""Share of the rows of changes that may have no key."""


@dataclass(frozen=True)
class SourceAnswers:
    """What the user has said of the files, where a guess would not do.

    Attributes:
        key: The key columns; guessed if empty.
        kind: One of `entry.KINDS`.
        operation: The column with the operation codes.
        full: The pattern of the names of full loads.
    """

    key: tuple[str, ...] = ()
    kind: str | None = None
    operation: str | None = None
    full: str | None = None


@dataclass(frozen=True)
class Guess:
    """A landing entry, and what it rests on, one line each."""

    entry: dict[str, Any]
    assumed: tuple[str, ...]


# ---------------------------------------------------------------- the guess


def guess(
    samples: Sequence[FileSample], entity: str, answers: SourceAnswers | None = None
) -> Guess:
    """A landing entry for files like the samples.

    Args:
        samples: see `read_samples`.
        entity: the entity's name.
        answers: what the user has said.

    Raises:
        LandingError: the files allow two readings, no column could be a key, or a key column is
            not there.
    """
    said = answers or SourceAnswers()
    debezium = _is_debezium(samples, entity)
    names = list(dict.fromkeys(name for one in samples for name in one.columns))
    operation, codes = (None, {}) if debezium else _operation(samples, said, entity)
    full, changes = _parted(samples, operation, said, entity)
    types = {name: _kind(samples, name) for name in names}
    order = _order([row for one in changes for row in one.rows], names, types) if operation else {}
    own = [n for n in names if n != operation and n not in order]
    is_changes = debezium or operation is not None
    chosen = list(said.key) or _key(samples, own, types, unique=not is_changes)
    _check_key(chosen, own, entity)
    entry: dict[str, Any] = {
        "entity": entity,
        "kind": "changes" if is_changes else "extract",
        "format": (changes or full)[-1].format,
        "key": chosen,
        "columns": {n: types[n] for n in own},
    }
    if operation:
        entry |= {"operation": operation, "codes": codes}
    if order:
        entry["sequence"] = order
    if not debezium:
        entry["files"] = _files(full, changes, entry, said, entity)
    entry |= {"multiline": True} if any(one.multiline for one in samples) else {}
    entry |= _delimiter(samples, entity)
    return Guess(entry, tuple(_assumed(samples, entry, said, types)))


def _ask(entity: str, what: str, *options: str) -> LandingError:
    return LandingError(
        f"The files of '{entity}' can be read in two ways: {what}. Nothing was written. "
        f"Say which: {', or '.join(options)}."
    )


def _is_debezium(samples: Sequence[FileSample], entity: str) -> bool:
    others = [one.name for one in samples if one.format != "debezium"]
    if others and len(others) < len(samples):
        raise LandingError(
            f"Of the files of '{entity}' some hold messages of Debezium, and {others[0]} does not. "
            "Nothing was written. Give files of one kind; the others need an entry of their own."
        )
    return not others


def _operation(
    samples: Sequence[FileSample], said: SourceAnswers, entity: str
) -> tuple[str | None, dict[str, str]]:
    """The column with the operation codes, and the codes; None where rows are whole states."""
    if said.kind == "extract":
        return None, {}
    for name in [said.operation] if said.operation else _columns_of(samples):
        values = [v for one in samples for row in one.rows if (v := row.get(name)) is not None]
        known = sum(value in _CODES for value in values)
        if not said.operation and not (_OPERATION.fullmatch(name) and known):
            continue
        if known < ALIKE * len(values) and not (said.kind or said.operation):
            strange = next(v for v in values if v not in _CODES)
            raise _ask(
                entity,
                f"'{name}' has operation codes, and more often others, such as {strange!r}",
                f"--kind changes, and correct 'codes' in the entry, if '{name}' says what happened",
                f"--kind extract, if '{name}' is a column like others",
            )
        return name, _codes_of(values)
    # Full loads are all that is there, and their columns do not tell what the changes will have.
    return ("Op", _codes_of(["I"])) if said.kind == "changes" else (None, {})


def _columns_of(samples: Sequence[FileSample]) -> list[str]:
    return list(dict.fromkeys(name for one in samples for name in one.columns))


def _codes_of(values: Sequence[str]) -> dict[str, str]:
    if set(values) & set(DEBEZIUM_CODES):
        return dict(DEBEZIUM_CODES)
    return {k: v for k, v in _CODES.items() if k in "IUD" or (k == "T" and k in values)}


def _parted(
    samples: Sequence[FileSample], operation: str | None, said: SourceAnswers, entity: str
) -> tuple[list[FileSample], list[FileSample]]:
    """The files that are whole states, and those of changes."""
    if samples[0].format == "debezium":
        return [], list(samples)
    if operation is not None:
        full = [s for s in samples if _is_full(s, operation, said)]
        return full, [s for s in samples if s not in full]
    options = ("--kind extract, if each drop is the whole table",
               "--kind changes, if files of changes follow")  # fmt: skip
    if said.kind is None:
        loads = [s.name for s in samples if fnmatchcase(s.name, _DMS_LOAD)]
        if loads:
            what = f"{loads[0]} is called like a full load, after which files of changes come"
            raise _ask(entity, what, *options)
        for before, after in pairwise(samples):
            if len(after.rows) < ALIKE * len(before.rows):
                what = f"{after.name} has {len(after.rows):,} rows, after the {len(before.rows):,}"
                raise _ask(entity, f"{what} of {before.name}", *options)
    return list(samples), []


def _is_full(sample: FileSample, operation: str, said: SourceAnswers) -> bool:
    if said.full is not None:
        return fnmatchcase(sample.name, said.full)
    return operation not in sample.columns or fnmatchcase(sample.name, _DMS_LOAD)


# ---------------------------------------------------------------- names of files


def _files(
    full: Sequence[FileSample],
    changes: Sequence[FileSample],
    entry: dict[str, Any],
    said: SourceAnswers,
    entity: str,
) -> list[dict[str, str]]:
    """The layouts: full loads first, as the first that matches a name counts."""
    several = len({one.format for one in (*full, *changes)}) > 1
    found = []
    if entry["kind"] == "changes":
        start = _full_pattern(full, changes, said, entity)
        for format_ in _formats(full) or [entry["format"]]:
            match = start.rstrip("*") + "*" + _EVERY[format_] if several else start
            found.append(_layout(match, "full", format_, entry))
    load = "changes" if entry["kind"] == "changes" else "full"
    for format_ in _formats(changes if load == "changes" else full) or [entry["format"]]:
        found.append(_layout("*" + _EVERY[format_], load, format_, entry))
    return found


def _formats(samples: Sequence[FileSample]) -> list[str]:
    return list(dict.fromkeys(one.format for one in samples))


def _layout(match: str, load: str, format_: str, entry: dict[str, Any]) -> dict[str, str]:
    own = {} if format_ == entry["format"] else {"format": format_}
    return {"match": match, "load": load, **own}


def _full_pattern(
    full: Sequence[FileSample], changes: Sequence[FileSample], said: SourceAnswers, entity: str
) -> str:
    """A pattern of names that all full loads have, and no file of changes."""
    names = [one.name for one in full]
    begin = re.match(r"[^\d.]*", _prefix(names))
    start = f"{begin[0]}*" if begin and begin[0] else _DMS_LOAD
    for pattern in [said.full] if said.full else [_DMS_LOAD, start]:
        every = all(fnmatchcase(name, pattern) for name in names)
        if every and not any(fnmatchcase(one.name, pattern) for one in changes):
            return pattern
    raise _ask(
        entity,
        f"{names[0] if names else 'no file'} is a full load, {changes[0].name} has changes, and "
        "their names do not tell them apart",
        "--full <pattern of the names of full loads>, such as --full 'full_*'",
    )


def _prefix(names: Sequence[str]) -> str:
    least, most = min(names, default=""), max(names, default="")
    return next((least[:i] for i, (a, b) in enumerate(zip(least, most, strict=False)) if a != b),
                least)  # fmt: skip


def _delimiter(samples: Sequence[FileSample], entity: str) -> dict[str, str]:
    found = {one.delimiter for one in samples if one.format == "csv"}
    if len(found) > 1:
        raise LandingError(
            f"The files of '{entity}' are parted by {any_of(sorted(found))}. Nothing was written. "
            "An entry has one delimiter; give files that have the same."
        )
    return {"delimiter": found.pop()} if found - {","} else {}


# ---------------------------------------------------------------- types


def _kind(samples: Sequence[FileSample], name: str) -> str:
    """The type of a column: what all files say it is, else the narrowest that takes all texts."""
    having = [one for one in samples if any(row.get(name) is not None for row in one.rows)]
    typed = {one.typed.get(name) for one in having}
    if len(typed) == 1 and None not in typed:
        return str(typed.pop())
    if typed == {"bigint", "double"}:
        return "double"
    texts = [v for one in having for row in one.rows if (v := row.get(name)) is not None]
    found = text_kind(texts)
    # A text in JSON was meant as one, unless it is a time, which JSON cannot say otherwise.
    marked = any(one.format in ("json", "debezium") and name not in one.typed for one in having)
    return "string" if marked and found not in ("date", "timestamp") else found


def _order(
    rows: Sequence[dict[str, str | None]], names: Sequence[str], types: dict[str, str]
) -> dict[str, str]:
    """Columns that order the changes: a time first, then a running number."""
    times = [n for n in names if types[n] == "timestamp"][:1]
    numbers = [n for n in names if _ORDER.search(n) and _digits(rows, n)]
    return dict.fromkeys(times, "timestamp") | dict.fromkeys(numbers[:1], "decimal(38,0)")


def _digits(rows: Sequence[dict[str, str | None]], name: str) -> bool:
    return bool(rows) and all(re.fullmatch(r"\d{1,38}", row.get(name) or "") for row in rows)


def _key(
    samples: Sequence[FileSample], own: Sequence[str], types: dict[str, str], unique: bool
) -> list[str]:
    """The likeliest key: no NULLs, no doubles where rows are states, called like one."""

    def possible(name: str) -> bool:
        named = re.fullmatch(r"id|.*_id|.*_?key|.*_?code|.*number", name, re.IGNORECASE)
        if types[name] not in ("bigint", "int", "string"):
            return False
        if not unique:
            values = [row.get(name) for one in samples for row in one.rows]
            return bool(named) and values.count(None) <= _BROKEN * len(values)
        columns = [[row.get(name) for row in one.rows] for one in samples]
        return all(None not in c and len(set(c)) == len(c) for c in columns)

    found = [name for name in own if possible(name)]
    found.sort(key=lambda n: (n.lower() != "id", not n.lower().endswith("id"), own.index(n)))
    return found[:1]


def _check_key(key: Sequence[str], own: Sequence[str], entity: str) -> None:
    lacking = [k for k in key if k not in own]
    if lacking or not key:
        what = f"it has no column {', '.join(lacking)}" if lacking else "no column looks like a key"
        raise LandingError(
            f"The sample of '{entity}' does not tell the key: {what}. Nothing was written. "
            f"Name it with --key; the columns are {', '.join(own)}."
        )


def _assumed(
    samples: Sequence[FileSample], entry: dict[str, Any], said: SourceAnswers, types: dict[str, str]
) -> Iterable[str]:
    rows = [row for one in samples for row in one.rows]
    files = f"{len(samples):,} files with {len(rows):,}" if len(samples) > 1 else f"{len(rows):,}"
    formats = " and ".join(_formats(samples))
    yield f"format {formats}, by {files} row{'' if len(rows) == 1 else 's'}"
    yield f"kind {entry['kind']}: " + (
        "files of changes" if entry["kind"] == "changes" else "each drop is the whole table"
    )
    if not said.key:
        yield f"key {', '.join(entry['key'])}: no NULL there, and it looks like one"
    if "operation" in entry:
        full = " and ".join(f["match"] for f in entry["files"] if f["load"] == "full")
        yield f"operation codes in '{entry['operation']}'; files named {full} are full loads"
        values = [v for row in rows if (v := row.get(entry["operation"])) is not None]
        strange = sorted({v for v in values if v not in entry["codes"]})
        if strange:
            yield f"rows whose operation is {any_of(strange[:3])} go to quarantine"
    if "sequence" in entry:
        yield f"order of changes by {', '.join(entry['sequence'])}"
    if entry["format"] == "debezium":
        yield "order of changes by source.lsn; name another in 'sequence' if the source has none"
    empty = [n for n in entry["columns"] if all(row.get(n) is None for row in rows)]
    if empty:
        yield f"string for {', '.join(empty)}, which the sample leaves empty"
