"""Reads samples of landing files: the first rows of a table's files, to guess their entry."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

from sparkwap.landing.errors import LandingError
from sparkwap.landing.landing_files import DROP_PREFIX, is_hidden

LEAST_DIGITS = 18
"""Whole numbers with at most this many digits are a bigint."""
ALIKE = 0.5
"""Minimum share: of common columns of two files of one table; of known codes among the values of
an operation column; of an extract's row count in the next extract."""
_ROWS = 10_000
_FILES = 60
# Limit for samples that are one line, or that inflate without end.
_MOST = 32_000_000
_DELIMITERS = ",;\t|"


@dataclass
class FileSample:
    """Rows of a file, as texts by column; ``typed`` has the types that the file declares."""

    format: str
    rows: list[dict[str, str | None]]
    typed: dict[str, str] = field(default_factory=dict)
    delimiter: str = ","
    multiline: bool = False
    name: str = ""

    @property
    def columns(self) -> list[str]:
        """The column names, in order."""
        return list(dict.fromkeys(name for row in self.rows for name in row))


def read_samples(given: Sequence[Path]) -> list[FileSample]:
    """Return the first rows of the files of a table.

    Args:
        given: files, or folders of files. If this is one file, the other files of its table are
            read too: files in the ``load_date=`` folders next to its own folder, else files with
            similar columns in its folder.

    Raises:
        LandingError: a given file cannot be read, or no file has rows.
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
        raise _no_sample(given[0], "it has no rows")
    return found


def _table_folder(path: Path) -> Path:
    parent = path.resolve().parent
    return parent.parent if parent.name.startswith(DROP_PREFIX) else path.parent


def _members(folder: Path) -> list[Path]:
    """Return the files of a table's folder, including its ``load_date=`` folders."""
    inner = [p for p in folder.iterdir() if p.is_dir() and p.name.startswith(DROP_PREFIX)]
    files = [p for place in (folder, *inner) for p in place.iterdir() if p.is_file()]
    return sorted(p for p in files if not is_hidden(p.name))


def _spread(files: Sequence[Path]) -> Sequence[Path]:
    """Return the first and the last file, and a limited number of files between them."""
    step = -(-len(files) // _FILES) or 1
    return [*files[::step], *files[-1:]]


def _alike(columns: Sequence[str], others: Sequence[str]) -> bool:
    least = min(len(columns), len(others))
    return least > 0 and len({*columns} & {*others}) >= ALIKE * least


def _named(path: Path) -> FileSample:
    try:
        return _read(path)
    except RecursionError:
        raise _no_sample(path, "its JSON is nested too deeply") from None
    except (OSError, EOFError, zlib.error, csv.Error, ValueError) as error:
        raise _no_sample(path, f"{type(error).__name__}: {error}") from error


def _quietly(path: Path) -> FileSample | None:
    """Return the sample of a file that the user did not name; None if it cannot be read."""
    known = {".csv", ".json", ".jsonl", ".ndjson", ".parquet"}
    if not known & {s.lower() for s in path.suffixes}:
        return None
    try:
        return _named(path)
    except LandingError:
        return None


def _no_sample(path: Path, why: str) -> LandingError:
    return LandingError(
        f"{path} cannot be used as a sample: {why}. Nothing was written. Give a CSV file with a "
        "header, a JSON or Parquet file, or a folder of such files: "
        "sparkwap source add <file> --source <name> --entity <name>"
    )


def _read(path: Path) -> FileSample:
    sample = _read_rows(path)
    sample.name = path.name
    return sample


def _read_rows(path: Path) -> FileSample:
    suffixes = [s.lower() for s in path.suffixes]
    if ".parquet" in suffixes:
        return _read_parquet(path)
    opener = gzip.open if suffixes[-1:] == [".gz"] else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as whole:
        stream = io.StringIO(whole.read(_MOST), newline="")
        if {".json", ".jsonl", ".ndjson"} & set(suffixes):
            return _read_json(stream)
        return _read_csv(stream)


def _read_csv(stream: IO[str]) -> FileSample:
    first = stream.readline()
    delimiter = max(_DELIMITERS, key=first.count)
    header = next(csv.reader([first], delimiter=delimiter), [])
    rows = list(islice(csv.reader(stream, delimiter=delimiter), _ROWS))
    multiline = any("\n" in value for row in rows for value in row)
    whole = [row for row in rows if len(row) == len(header)]
    texts = [dict(zip(header, (v or None for v in row), strict=True)) for row in whole]
    return FileSample("csv", texts, delimiter=delimiter, multiline=multiline)


def _read_json(stream: IO[str]) -> FileSample:
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
    """Return the row image of a Debezium message: the after image, else the before image."""
    payload = message.get("payload", message)
    if not isinstance(payload, dict) or "op" not in payload:
        return []
    return [i for i in (payload.get("after"), payload.get("before")) if isinstance(i, dict)][:1]


def _sample_of(objects: Sequence[dict[str, Any]], format_: str, multiline: bool) -> FileSample:
    kinds: dict[str, set[str]] = {}
    for item in objects:
        for name, value in item.items():
            if value is not None:
                kinds.setdefault(name, set()).add(_json_kind(value))
    typed = {name: _common(found) for name, found in kinds.items()}
    rows = [{name: _json_text(value) for name, value in item.items()} for item in objects]
    # A JSON string may be a time, for which JSON has no type of its own; `guess` decides.
    return FileSample(format_, rows, {n: k for n, k in typed.items() if k != "string"},
                  multiline=multiline)  # fmt: skip


def _json_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if abs(value) < 10**LEAST_DIGITS else "decimal(38,0)"
    return "double" if isinstance(value, float) else "string"


def _common(kinds: set[str]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    return "double" if kinds == {"bigint", "double"} else "string"


def _json_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value, ensure_ascii=False)


def _read_parquet(path: Path) -> FileSample:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = next(pq.ParquetFile(path).iter_batches(_ROWS), None)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
    if table is None:
        return FileSample("parquet", [])
    typed = {f.name: _arrow_kind(f.type) for f in table.schema}
    rows = [{k: None if v is None else str(v) for k, v in r.items()} for r in table.to_pylist()]
    return FileSample("parquet", rows, {n: k for n, k in typed.items() if k != "string"})


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
