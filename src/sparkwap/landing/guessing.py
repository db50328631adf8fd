"""A guess at a landing entry, from the files of a source: format, columns, types, key, order.

Pure, but for reading the files. What is a guess is said, so that somebody can look at it. Where the
files allow two readings, and one of them would lose rows, nothing is guessed: the answer is asked
for.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any

from sparkwap.landing.entry import DEBEZIUM_CODES
from sparkwap.landing.errors import LandingError, any_of

_ROWS = 10_000
_FILES = 60
# Of a sample that is one line, or inflates without end, no more is looked at.
_MOST = 32_000_000
_DELIMITERS = ",;\t|"
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?")
_OPERATION = re.compile(r"_*(op|operation|change_type|__op)", re.IGNORECASE)
_ORDER = re.compile(r"seq|lsn|scn|position|offset", re.IGNORECASE)
_FOLDER = re.compile(r"load_date=.*")
_CODES = {"I": "insert", "U": "update", "D": "delete", "T": "truncate"} | DEBEZIUM_CODES
_LEAST_DIGITS, _MOST_DIGITS = 18, 38
_EVERY = {"csv": ".csv*", "json": ".json*", "parquet": ".parquet*", "debezium": ".json*"}
_DMS_LOAD = "LOAD*"
"""What AWS DMS calls the files of a full load."""
_ALIKE = 0.5
"""Share: of the columns of two files of one table; of codes among the values of an operation; of
the rows of one extract in the next."""
_BROKEN = 0.01
"""Share of the rows of changes that may have no key."""


@dataclass
class Sample:
    """Rows of a file, as texts by column; ``typed`` where the file itself knows types."""

    format: str
    rows: list[dict[str, str | None]]
    typed: dict[str, str] = field(default_factory=dict)
    delimiter: str = ","
    multiline: bool = False
    name: str = ""

    @property
    def columns(self) -> list[str]:
        """The names of its columns, in order."""
        return list(dict.fromkeys(name for row in self.rows for name in row))


@dataclass(frozen=True)
class Answers:
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


# ---------------------------------------------------------------- the files


def read_samples(given: Sequence[Path]) -> list[Sample]:
    """The first rows of the files of a table.

    Args:
        given: Files, or folders of files. Of one file the others of its table are looked at, too:
            those in the ``load_date=`` folders beside its own, else those beside it with like
            columns.

    Raises:
        LandingError: A given file cannot be read; none has rows.
    """
    named = [path for path in given if not path.is_dir()]
    samples = {path: _named(path) for path in named}
    if len(given) == 1 and named:
        (path,) = named
        around = _table_folder(path)
        others = [other for other in _members(around) if other != path]
        like = samples[path].columns
        strict = around == path.parent
    else:
        others = [file for path in given if path.is_dir() for file in _members(path)]
        like, strict = [], False
    for path in _spread(others):
        sample = _quietly(path)
        if sample is not None and (not strict or _alike(like, sample.columns)):
            samples[path] = sample
    found = [samples[path] for path in sorted(samples) if samples[path].rows]
    if not found:
        raise _no_sample(given[0], "it has no rows to learn from")
    return found


def _table_folder(path: Path) -> Path:
    parent = path.resolve().parent
    return parent.parent if _FOLDER.fullmatch(parent.name) else path.parent


def _members(folder: Path) -> list[Path]:
    """The files of a table's folder, those in its ``load_date=`` folders included."""
    inner = [p for p in folder.iterdir() if p.is_dir() and _FOLDER.fullmatch(p.name)]
    files = [p for place in (folder, *inner) for p in place.iterdir() if p.is_file()]
    return sorted(p for p in files if not p.name.startswith((".", "_")))


def _spread(files: Sequence[Path]) -> Sequence[Path]:
    """Not more than some of many files: the first, the last, and some between."""
    step = -(-len(files) // _FILES) or 1
    return [*files[::step], *files[-1:]]


def _alike(columns: Sequence[str], others: Sequence[str]) -> bool:
    least = min(len(columns), len(others))
    return least > 0 and len({*columns} & {*others}) >= _ALIKE * least


def _named(path: Path) -> Sample:
    try:
        return _read(path)
    except RecursionError:
        raise _no_sample(path, "its JSON is nested too deeply") from None
    except (OSError, EOFError, zlib.error, csv.Error, ValueError) as error:
        raise _no_sample(path, f"{type(error).__name__}: {error}") from error


def _quietly(path: Path) -> Sample | None:
    """A file that nobody has named; None if it is none of a known format."""
    known = {".csv", ".json", ".jsonl", ".ndjson", ".parquet"}
    if not known & {s.lower() for s in path.suffixes}:
        return None
    try:
        return _named(path)
    except LandingError:
        return None


def _no_sample(path: Path, why: str) -> LandingError:
    return LandingError(
        f"{path} cannot serve as a sample: {why}. Nothing was written. Give a CSV file with a "
        "header, JSON, or Parquet, or a folder of such files: "
        "sparkwap source add <file> --source <name> --entity <name>"
    )


def _read(path: Path) -> Sample:
    sample = _read_rows(path)
    sample.name = path.name
    return sample


def _read_rows(path: Path) -> Sample:
    suffixes = [s.lower() for s in path.suffixes]
    if ".parquet" in suffixes:
        return _read_parquet(path)
    opener = gzip.open if suffixes[-1:] == [".gz"] else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as whole:
        stream = io.StringIO(whole.read(_MOST), newline="")
        if {".json", ".jsonl", ".ndjson"} & set(suffixes):
            return _read_json(stream)
        return _read_csv(stream)


def _read_csv(stream: IO[str]) -> Sample:
    first = stream.readline()
    delimiter = max(_DELIMITERS, key=first.count)
    header = next(csv.reader([first], delimiter=delimiter), [])
    rows = list(islice(csv.reader(stream, delimiter=delimiter), _ROWS))
    multiline = any("\n" in value for row in rows for value in row)
    whole = [row for row in rows if len(row) == len(header)]
    texts = [dict(zip(header, (v or None for v in row), strict=True)) for row in whole]
    return Sample("csv", texts, delimiter=delimiter, multiline=multiline)


def _read_json(stream: IO[str]) -> Sample:
    first = stream.readline()
    lines = [first, *islice(stream, _ROWS)]
    try:
        values, multiline = [json.loads(line) for line in lines if line.strip()], False
    except ValueError:
        document = json.loads("".join(lines) + stream.read())
        values, multiline = document if isinstance(document, list) else [document], True
    if len(values) == 1 and isinstance(values[0], list):
        values, multiline = values[0], True
    objects = [value for value in values if isinstance(value, dict)]
    images = [image for message in objects for image in _images(message)]
    if images:
        return _sample_of(images, "debezium", False)
    return _sample_of(objects, "json", multiline)


def _images(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The row images of a Debezium message; the new one first."""
    payload = message.get("payload", message)
    if not isinstance(payload, dict) or "op" not in payload:
        return []
    return [i for i in (payload.get("after"), payload.get("before")) if isinstance(i, dict)][:1]


def _sample_of(objects: Sequence[dict[str, Any]], format_: str, multiline: bool) -> Sample:
    kinds: dict[str, set[str]] = {}
    for one in objects:
        for name, value in one.items():
            if value is not None:
                kinds.setdefault(name, set()).add(_json_kind(value))
    typed = {name: _common(found) for name, found in kinds.items()}
    rows = [{name: _json_text(value) for name, value in one.items()} for one in objects]
    # A text in JSON was meant as one, unless it is a time, which JSON cannot say otherwise.
    return Sample(format_, rows, {n: k for n, k in typed.items() if k != "string"},
                  multiline=multiline)  # fmt: skip


def _json_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if abs(value) < 10**_LEAST_DIGITS else "decimal(38,0)"
    return "double" if isinstance(value, float) else "string"


def _common(kinds: set[str]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    return "double" if kinds == {"bigint", "double"} else "string"


def _json_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value, ensure_ascii=False)


def _read_parquet(path: Path) -> Sample:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = next(pq.ParquetFile(path).iter_batches(_ROWS), None)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
    if table is None:
        return Sample("parquet", [])
    typed = {f.name: _arrow_kind(f.type) for f in table.schema}
    rows = [{k: None if v is None else str(v) for k, v in r.items()} for r in table.to_pylist()]
    return Sample("parquet", rows, {n: k for n, k in typed.items() if k != "string"})


def _arrow_kind(kind: Any) -> str:
    import pyarrow.types as at

    if at.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    known = (
        (at.is_boolean, "boolean"), (at.is_int32, "int"), (at.is_integer, "bigint"),
        (at.is_float32, "float"), (at.is_floating, "double"), (at.is_date, "date"),
        (at.is_timestamp, "timestamp"),
    )  # fmt: skip
    return next((name for test, name in known if test(kind)), "string")


# ---------------------------------------------------------------- the guess


def guess(samples: Sequence[Sample], entity: str, answers: Answers | None = None) -> Guess:
    """A landing entry for files like the samples.

    Args:
        samples: see `read_samples`.
        entity: the entity's name.
        answers: what the user has said.

    Raises:
        LandingError: the files allow two readings, no column could be a key, or a key column is
            not there.
    """
    said = answers or Answers()
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


def _is_debezium(samples: Sequence[Sample], entity: str) -> bool:
    others = [one.name for one in samples if one.format != "debezium"]
    if others and len(others) < len(samples):
        raise LandingError(
            f"Of the files of '{entity}' some hold messages of Debezium, and {others[0]} does not. "
            "Nothing was written. Give files of one kind; the others need an entry of their own."
        )
    return not others


def _operation(
    samples: Sequence[Sample], said: Answers, entity: str
) -> tuple[str | None, dict[str, str]]:
    """The column with the operation codes, and the codes; None where rows are whole states."""
    if said.kind == "extract":
        return None, {}
    for name in [said.operation] if said.operation else _columns_of(samples):
        values = [v for one in samples for row in one.rows if (v := row.get(name)) is not None]
        known = sum(value in _CODES for value in values)
        if not said.operation and not (_OPERATION.fullmatch(name) and known):
            continue
        if known < _ALIKE * len(values) and not (said.kind or said.operation):
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


def _columns_of(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(name for one in samples for name in one.columns))


def _codes_of(values: Sequence[str]) -> dict[str, str]:
    if set(values) & set(DEBEZIUM_CODES):
        return dict(DEBEZIUM_CODES)
    return {k: v for k, v in _CODES.items() if k in "IUD" or (k == "T" and k in values)}


def _parted(
    samples: Sequence[Sample], operation: str | None, said: Answers, entity: str
) -> tuple[list[Sample], list[Sample]]:
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
            if len(after.rows) < _ALIKE * len(before.rows):
                what = f"{after.name} has {len(after.rows):,} rows, after the {len(before.rows):,}"
                raise _ask(entity, f"{what} of {before.name}", *options)
    return list(samples), []


def _is_full(sample: Sample, operation: str, said: Answers) -> bool:
    if said.full is not None:
        return fnmatchcase(sample.name, said.full)
    return operation not in sample.columns or fnmatchcase(sample.name, _DMS_LOAD)


# ---------------------------------------------------------------- names of files


def _files(
    full: Sequence[Sample],
    changes: Sequence[Sample],
    entry: dict[str, Any],
    said: Answers,
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


def _formats(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(one.format for one in samples))


def _layout(match: str, load: str, format_: str, entry: dict[str, Any]) -> dict[str, str]:
    own = {} if format_ == entry["format"] else {"format": format_}
    return {"match": match, "load": load, **own}


def _full_pattern(
    full: Sequence[Sample], changes: Sequence[Sample], said: Answers, entity: str
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


def _delimiter(samples: Sequence[Sample], entity: str) -> dict[str, str]:
    found = {one.delimiter for one in samples if one.format == "csv"}
    if len(found) > 1:
        raise LandingError(
            f"The files of '{entity}' are parted by {any_of(sorted(found))}. Nothing was written. "
            "An entry has one delimiter; give files that have the same."
        )
    return {"delimiter": found.pop()} if found - {","} else {}


# ---------------------------------------------------------------- types


def _kind(samples: Sequence[Sample], name: str) -> str:
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


def text_kind(values: Iterable[str]) -> str:
    """The narrowest type that takes all of some texts as they are; string for none."""
    found = list(values)
    if not found:
        return "string"
    if all(_INTEGER.fullmatch(v) for v in found):
        return "bigint"
    if all(v.lower() in ("true", "false") for v in found):
        return "boolean"
    if all(_DATE.fullmatch(v) for v in found):
        return "date"
    if all(_TIME.fullmatch(v) for v in found):
        return "timestamp"
    return _number_kind(found) or "string"


def _number_kind(values: Sequence[str]) -> str | None:
    """A decimal where the texts prove its scale, else double if it keeps every digit.

    A scale is proven by a fixed number of places: all have as many, and one ends in a zero that
    would not be written otherwise. 0.5 and 0.25 say nothing of what comes later.
    """
    # 007 is a name, and so is 1E6 more often than not.
    if not all(_NUMBER.fullmatch(value) for value in values):
        return None
    places = {len(value.partition(".")[2]) for value in values}
    whole_numbers = places == {0}  # too long for a bigint
    fixed = len(places) == 1 and (whole_numbers or any(v.endswith("0") for v in values))
    if fixed:
        (scale,) = places
        whole = max(len(v.partition(".")[0].lstrip("-")) for v in values)
        precision = _MOST_DIGITS if whole_numbers else max(whole + scale, _LEAST_DIGITS)
        return f"decimal({precision},{scale})" if whole + scale <= _MOST_DIGITS else None
    return "double" if all(Decimal(v) == Decimal(repr(float(v))) for v in values) else None


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
    samples: Sequence[Sample], own: Sequence[str], types: dict[str, str], unique: bool
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
    samples: Sequence[Sample], entry: dict[str, Any], said: Answers, types: dict[str, str]
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
