"""A guess at a landing entry, from one sample file: format, columns, types, key, order.

Pure, but for reading the sample. What is a guess is said, so that somebody can look at it.
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
from itertools import islice
from pathlib import Path
from typing import IO, Any

from sparkwap.landing.entry import DEBEZIUM_CODES
from sparkwap.landing.errors import LandingError

_ROWS = 10_000
# Of a sample that is one line, or inflates without end, no more is looked at.
_MOST = 32_000_000
_DELIMITERS = ",;\t|"
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?")
_OPERATION = re.compile(r"_*(op|operation|change_type|__op)", re.IGNORECASE)
_ORDER = re.compile(r"seq|lsn|scn|position|offset", re.IGNORECASE)
_CODES = {"I": "insert", "U": "update", "D": "delete", "T": "truncate"} | DEBEZIUM_CODES
_LEAST_DIGITS, _MOST_DIGITS = 18, 38


@dataclass
class Sample:
    """Rows of a sample file, as texts by column; ``typed`` where the file itself knows types."""

    format: str
    rows: list[dict[str, str | None]]
    typed: dict[str, str] = field(default_factory=dict)
    delimiter: str = ","
    multiline: bool = False


@dataclass(frozen=True)
class Guess:
    """A landing entry, and what it rests on, one line each."""

    entry: dict[str, Any]
    assumed: tuple[str, ...]


# ---------------------------------------------------------------- the sample


def read_sample(path: Path) -> Sample:
    """The first rows of a sample file, and its format, by its name and by its first line.

    Raises:
        LandingError: it cannot be read, is empty, or is of no format that is known.
    """
    try:
        sample = _read(path)
    except RecursionError:
        raise _no_sample(path, "its JSON is nested too deeply") from None
    except (OSError, EOFError, zlib.error, csv.Error, ValueError) as error:
        raise _no_sample(path, f"{type(error).__name__}: {error}") from error
    if not sample.rows:
        raise _no_sample(path, "it has no rows to learn from")
    return sample


def _no_sample(path: Path, why: str) -> LandingError:
    return LandingError(
        f"{path} cannot serve as a sample: {why}. Nothing was written. Give a CSV file with a "
        "header, JSON, or Parquet: sparkwap source add <file> --source <name> --entity <name>"
    )


def _read(path: Path) -> Sample:
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


def guess(sample: Sample, entity: str, key: Sequence[str] = ()) -> Guess:
    """A landing entry for files like the sample.

    Args:
        sample: see `read_sample`.
        entity: the entity's name.
        key: its key; guessed if empty.

    Raises:
        LandingError: a key column is not in the sample, or no column could be a key.
    """
    names = list(dict.fromkeys(name for row in sample.rows for name in row))
    types = {name: sample.typed.get(name) or _kind(sample, name) for name in names}
    operation, codes = _operation(sample, names)
    order = _order(sample, names, types) if operation else {}
    own = [n for n in names if n != operation and n not in order]
    changes = operation is not None or sample.format == "debezium"
    chosen = list(key) or _key(sample.rows, own, types, unique=not changes)
    _check_key(chosen, own, entity)
    entry: dict[str, Any] = {
        "entity": entity,
        "kind": "changes" if changes else "extract",
        "format": sample.format,
        "key": chosen,
        "columns": {n: types[n] for n in own},
    }
    if operation:
        entry |= {"operation": operation, "codes": codes}
    if order:
        entry["sequence"] = order
    if sample.format != "debezium":
        entry["files"] = _files(sample, changes)
    entry |= {"multiline": True} if sample.multiline else {}
    entry |= {"delimiter": sample.delimiter} if sample.delimiter != "," else {}
    return Guess(entry, tuple(_assumed(sample, entry, key, types)))


def _files(sample: Sample, changes: bool) -> list[dict[str, str]]:
    every = {"csv": "*.csv*", "json": "*.json*", "parquet": "*.parquet"}[sample.format]
    if not changes:
        return [{"match": every, "load": "full"}]
    # What AWS DMS calls the files of a full load.
    return [{"match": "LOAD*", "load": "full"}, {"match": every, "load": "changes"}]


def _kind(sample: Sample, name: str) -> str:
    values = [v for row in sample.rows if (v := row.get(name)) is not None]
    if sample.format == "csv":
        return text_kind(values)
    times = text_kind(values)
    return times if times in ("date", "timestamp") else "string"


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


def _operation(sample: Sample, names: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    if sample.format == "debezium":
        return None, {}
    for name in names:
        values = {row.get(name) for row in sample.rows}
        if _OPERATION.fullmatch(name) and values <= set(_CODES):
            lower = values & set(DEBEZIUM_CODES)
            kinds = DEBEZIUM_CODES if lower else {k: _CODES[k] for k in "IUD"}
            return name, dict(kinds)
    return None, {}


def _order(sample: Sample, names: Sequence[str], types: dict[str, str]) -> dict[str, str]:
    """Columns that order the changes: a time first, then a running number."""
    times = [n for n in names if types[n] == "timestamp"][:1]
    numbers = [n for n in names if _ORDER.search(n) and _digits(sample.rows, n)]
    return dict.fromkeys(times, "timestamp") | dict.fromkeys(numbers[:1], "decimal(38,0)")


def _digits(rows: Sequence[dict[str, str | None]], name: str) -> bool:
    return all(re.fullmatch(r"\d{1,38}", row.get(name) or "") for row in rows)


def _key(
    rows: Sequence[dict[str, str | None]], own: Sequence[str], types: dict[str, str], unique: bool
) -> list[str]:
    """The likeliest key: no NULLs, no doubles where rows are states, called like one."""

    def possible(name: str) -> bool:
        values = [row.get(name) for row in rows]
        named = re.fullmatch(r"id|.*_id|.*_?key|.*_?code|.*number", name, re.IGNORECASE)
        fits = types[name] in ("bigint", "int", "string") and None not in values
        return fits and (len(set(values)) == len(values) if unique else bool(named))

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
    sample: Sample, entry: dict[str, Any], key: Sequence[str], types: dict[str, str]
) -> Iterable[str]:
    count = len(sample.rows)
    yield f"format {sample.format}, by the sample's {count:,} row{'' if count == 1 else 's'}"
    yield f"kind {entry['kind']}: " + (
        "files of changes" if entry["kind"] == "changes" else "each drop is the whole table"
    )
    if not key:
        yield f"key {', '.join(entry['key'])}: no NULL there, and it looks like one"
    if "operation" in entry:
        yield f"operation codes in '{entry['operation']}'; files named LOAD* are full loads"
    if "sequence" in entry:
        yield f"order of changes by {', '.join(entry['sequence'])}"
    if sample.format == "debezium":
        yield "order of changes by source.lsn; name another in 'sequence' if the source has none"
    empty = [n for n in entry["columns"] if all(row.get(n) is None for row in sample.rows)]
    if empty:
        yield f"string for {', '.join(empty)}, which the sample leaves empty"
