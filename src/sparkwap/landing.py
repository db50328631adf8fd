"""Landing files into an append-only change log, each file exactly once.

A landing folder holds ``<entity>/load_date=YYYY-MM-DD/<files>``. A *drop* is all that has one load
date. The raw table of an entity is its change log, and the list of the files read at the same
time: a file leaves one row for each of its rows (``_kind = 'row'``) and one row for itself
(``_kind = 'file'``), in one commit, so that no crash can part the two, and an empty file is seen.

What a raw table has beside the entity's own columns (all text, as published; an empty field is
NULL):

=============== ======= ===========================================================================
``_op``         string  ``load`` (row of a full load), ``insert``, ``update``, ``delete``
``_load_date``  date    the drop that brought it
``_file_path``  string  path below the landing folder
``_row``        bigint  position in the file, from 1, header not counted
``_corrupt``    string  the raw text of a row that does not have the entity's fields
``_error``      string  why the row cannot be used, or NULL; audited by ``no_bad_rows``
``_kind``       string  ``row`` or ``file``
``_load``       string  ``full`` (the file is a whole state) or ``changes``
``_file_sha256`` string  digest of the file's bytes; on ``file`` rows only, like the next two
``_file_bytes`` bigint  size of the file
``_file_rows``  bigint  rows read from it
=============== ======= ===========================================================================

A row that cannot be split or typed is kept, with its text and the reason. A *file* that cannot be
read as a whole (broken archive, not UTF-8, other columns) stops the run with one error.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.errors import SparkwapError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("extract", "changes")
LOADS = ("full", "changes")
FORMATS = ("csv",)
OPERATIONS = ("insert", "update", "delete")

_FOLDER = re.compile(r"load_date=(\d{4}-\d{2}-\d{2})")
_CHUNK = 1 << 20
_FILE_COLUMNS = (
    "_load_date date, _file_path string, _load string, "
    "_file_sha256 string, _file_bytes bigint, _path string"
)


class LandingError(SparkwapError):
    """A landing folder, one of its files, or its description cannot be used."""


@dataclass(frozen=True)
class Layout:
    """How some of an entity's files look.

    ``match`` is a file-name pattern, ``load`` one of `LOADS`. ``operation`` names the column with
    the operation code; it comes first in files without a header. ``codes`` are pairs of such a
    code and its meaning, one of `OPERATIONS`.
    """

    match: str
    load: str
    header: bool
    operation: str | None
    codes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Entry:
    """One entity of a source: its files, its columns (name to Spark type) and its key.

    ``kind`` ``extract``: each drop is the whole table, and states must not be skipped, so that a
    run takes one drop unless told otherwise. ``changes``: a run takes all that is there.
    """

    entity: str
    kind: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    layouts: tuple[Layout, ...]
    multiline: bool = False


@dataclass(frozen=True)
class LandingFile:
    """A file in the landing folder; ``name`` is its path below the folder, with ``/``."""

    path: Path
    name: str
    load_date: date
    layout: Layout
    sha256: str
    bytes: int


# ---------------------------------------------------------------- the entry


def parse_entry(raw: Mapping[str, Any] | None) -> Entry:
    """An entry from the ``landing`` key of a raw model's ``config.meta``.

    Raises:
        LandingError: with every fault of the entry, not only the first.
    """
    raw = raw or {}
    entity = str(raw.get("entity", "?"))
    known = {"entity", "kind", "format", "columns", "key", "files", "multiline"}
    faults = [f"unknown setting '{k}' (legal: {_any_of(known)})" for k in raw if k not in known]
    faults += [
        f"'{k}' is missing" for k in ("entity", "kind", "columns", "key", "files") if not raw.get(k)
    ]
    if raw.get("kind") and raw["kind"] not in KINDS:
        faults.append(f"kind '{raw['kind']}' is none of {_any_of(KINDS)}")
    if raw.get("format", "csv") not in FORMATS:
        faults.append(f"format '{raw['format']}' is none of {_any_of(FORMATS)}")
    columns = {str(k): str(v) for k, v in (raw.get("columns") or {}).items()}
    key = tuple(str(k) for k in raw.get("key") or ())
    faults += [f"key column '{k}' is not among the columns" for k in key if k not in columns]
    faults += [
        f"column '{c}' begins with '_', which is kept for the log's own"
        for c in columns
        if c[0] == "_"
    ]
    layouts = tuple(_parse_layout(f, faults) for f in raw.get("files") or ())
    if raw.get("kind") == "extract" and any(la.load != "full" for la in layouts):
        faults.append("kind 'extract' allows files with load 'full' only")
    if faults:
        raise LandingError(
            f"The landing entry of '{entity}' cannot be used: {'; '.join(faults)}. "
            "It is `config.meta.landing` of the raw model, in the YAML file beside it. "
            "Nothing was read."
        )
    return Entry(entity, str(raw["kind"]), columns, key, layouts, bool(raw.get("multiline", False)))


def _parse_layout(raw: Mapping[str, Any], faults: list[str]) -> Layout:
    load = str(raw.get("load", "full"))
    codes = {str(k): str(v) for k, v in (raw.get("codes") or {}).items()}
    operation = raw.get("operation")
    if not raw.get("match"):
        faults.append("an item of 'files' has no 'match'")
    if load not in LOADS:
        faults.append(f"load '{load}' is none of {_any_of(LOADS)}")
    if load == "changes" and not (operation and codes):
        faults.append("files with load 'changes' need 'operation' and 'codes'")
    faults += [
        f"operation '{v}' is none of {_any_of(OPERATIONS)}"
        for v in codes.values()
        if v not in OPERATIONS
    ]
    return Layout(
        match=str(raw.get("match", "")),
        load=load,
        header=bool(raw.get("header", True)),
        operation=None if operation is None else str(operation),
        codes=tuple(codes.items()),
    )


# ---------------------------------------------------------------- what is there, what is new


def list_files(root: Path, entry: Entry) -> list[LandingFile]:
    """All files of an entity, ordered by load date and name.

    Names that begin with ``.`` or ``_`` or end with ``._COPYING_`` are files on their way (Spark
    skips them too). Every byte is read once, for the digest.

    Raises:
        LandingError: no such folder, a folder that is not ``load_date=YYYY-MM-DD``, or a file
            that no layout of the entry matches.
    """
    if not root.is_dir():
        raise LandingError(
            f"There is no landing folder {root}. Nothing was read. "
            "Set LANDING to the folder that holds <entity>/load_date=YYYY-MM-DD/<files>."
        )
    folder = root / entry.entity
    if not folder.is_dir():
        raise LandingError(
            f"The landing folder {root} has no folder '{entry.entity}'. Nothing was read. "
            "Set LANDING and SOURCES to a landing folder and the sources that are in it."
        )
    found = []
    for day in sorted(p for p in folder.iterdir() if not _hidden(p.name)):
        load_date = _load_date(day)
        for path in sorted(p for p in day.iterdir() if not _hidden(p.name)):
            found.append(_landing_file(root, path, load_date, entry))
    return sorted(found, key=lambda f: (f.load_date, f.name))


def _hidden(name: str) -> bool:
    return name.startswith((".", "_")) or name.endswith("._COPYING_")


def _load_date(folder: Path) -> date:
    match = _FOLDER.fullmatch(folder.name)
    try:
        if match and folder.is_dir():
            return date.fromisoformat(match[1])
    except ValueError:
        pass
    raise LandingError(
        f"{folder} is not a folder named load_date=YYYY-MM-DD, so it cannot be placed in time. "
        "Nothing was read. Move it there or away."
    )


def _landing_file(root: Path, path: Path, load_date: date, entry: Entry) -> LandingFile:
    layout = next((la for la in entry.layouts if fnmatchcase(path.name, la.match)), None)
    if layout is None or not path.is_file():
        patterns = _any_of(la.match for la in entry.layouts)
        raise LandingError(
            f"{path} is not a file that the landing entry of '{entry.entity}' knows ({patterns}). "
            "Nothing was read. Add it to 'files' of the entry, or move it away."
        )
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise _unreadable(path, error) from error
    name = path.relative_to(root).as_posix()
    return LandingFile(path, name, load_date, layout, digest.hexdigest(), size)


def pending(files: Iterable[LandingFile], known: Mapping[str, str]) -> list[LandingFile]:
    """The files that were not read yet.

    Args:
        files: what is in the landing folder.
        known: name to SHA-256 of the files that the log holds.

    Raises:
        LandingError: a file has the name of one that was read, and other content.
    """
    new = []
    for file in files:
        if file.name not in known:
            new.append(file)
        elif known[file.name] != file.sha256:
            raise LandingError(
                f"{file.path} was read before with other content (SHA-256 "
                f"{known[file.name][:12]}..., now {file.sha256[:12]}...). Nothing was read; the "
                "tables keep the first content. Put the old file back and deliver the correction "
                "as a new file under a later load date, then: sparkwap build"
            )
    return new


def choose(new: Sequence[LandingFile], kind: str, until: date | None) -> list[LandingFile]:
    """The files that a run takes.

    With ``until`` all new files up to that load date. Without it, all for kind ``changes``, and
    for kind ``extract`` the oldest drop alone: a snapshot built on the latest extract would never
    see the states in between.
    """
    if until is not None:
        return [f for f in new if f.load_date <= until]
    if kind == "extract" and new:
        oldest = min(f.load_date for f in new)
        return [f for f in new if f.load_date == oldest]
    return list(new)


def parse_until(value: object) -> date | None:
    """The variable ``landing_until`` as a date; empty means no limit.

    Raises:
        LandingError: it is not a date.
    """
    if value in (None, "", "None"):
        return None
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise LandingError(
            f"landing_until is '{value}', which is not a date. Nothing was read. "
            "Use --vars '{landing_until: 2024-01-31}'."
        ) from None


def check_file(file: LandingFile, entry: Entry) -> tuple[str, ...]:
    """The columns of a file, in its order, after a look at all of its text.

    Spark replaces bytes that are not UTF-8 without a word, and takes any header for good, so both
    are checked here, in constant memory. A file of 0 bytes has no header and is read as no rows:
    whether that is acceptable is for the audits to say.

    Raises:
        LandingError: broken archive, no access, not UTF-8, or columns other than the entry's.
    """
    expected = (*((file.layout.operation,) if file.layout.operation else ()), *entry.columns)
    try:
        opener = gzip.open if file.path.suffix == ".gz" else open
        with opener(file.path, "rt", encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            while stream.read(_CHUNK):
                pass
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _unreadable(file.path, error) from error
    if not file.layout.header or not first:
        return expected
    columns = tuple(next(csv.reader([first]), []))
    if sorted(columns) != sorted(expected):
        raise LandingError(
            f"{file.path} has other columns than the landing entry of '{entry.entity}': "
            f"missing {_any_of(set(expected) - set(columns)) or 'none'}, "
            f"unknown {_any_of(set(columns) - set(expected)) or 'none'}, {len(columns)} in all. "
            "Nothing was read. Correct the entry or the file, then: dbt retry"
        )
    return columns


def _unreadable(path: Path, error: Exception) -> LandingError:
    return LandingError(
        f"{path} cannot be read: {type(error).__name__}: {error}. Nothing was read from this drop; "
        "main is as it was. Put a good file in its place, then: dbt retry"
    )


def _any_of(values: Iterable[str]) -> str:
    return ", ".join(f"'{v}'" for v in sorted(values))


# ---------------------------------------------------------------- reading, by Spark


def read(dbt: Any, session: SparkSession, entry: Any, drop: Any) -> DataFrame:
    """The rows to append to a raw table: all rows of the files that this run takes.

    Args:
        dbt: the object that dbt hands to a Python model.
        session: the session that dbt hands to a Python model.
        entry: ``config.meta.landing`` of the model.
        drop: ``config.meta.drop``: ``root``, the landing folder (relative to the project), and
            ``until``, the last load date to read or an empty text.

    Raises:
        LandingError: see `list_files`, `pending`, `check_file`.
    """
    parsed = parse_entry(entry)
    root = Path(str(drop["root"])).resolve()
    until = parse_until(drop.get("until"))
    known = known_files(session.table(f"{dbt.this}")) if dbt.is_incremental else {}
    files = choose(pending(list_files(root, parsed), known), parsed.kind, until)
    return read_files(session, parsed, files)


def known_files(log: DataFrame) -> dict[str, str]:
    """Name to SHA-256 of the files that a log holds."""
    rows = log.where("_kind = 'file'").select("_file_path", "_file_sha256").collect()
    return {row["_file_path"]: row["_file_sha256"] for row in rows}


def read_files(session: SparkSession, entry: Entry, files: Sequence[LandingFile]) -> DataFrame:
    """The log rows of some files, read by Spark; none for no files."""
    groups: dict[tuple[Layout, tuple[str, ...]], list[LandingFile]] = {}
    for file in files:
        groups.setdefault((file.layout, check_file(file, entry)), []).append(file)
    if not groups:
        return session.createDataFrame([], _log_schema(entry))
    parts = [
        _read_group(session, entry, layout, columns, group)
        for (layout, columns), group in groups.items()
    ]
    return reduce(lambda a, b: a.unionByName(b), parts)


def _log_schema(entry: Entry) -> str:
    own = "".join(f"{_quote(c)} string, " for c in entry.columns)
    return (
        f"{own}_op string, _load_date date, _file_path string, _row bigint, _corrupt string, "
        "_error string, _kind string, _load string, "
        "_file_sha256 string, _file_bytes bigint, _file_rows bigint"
    )


def _read_group(
    session: SparkSession,
    entry: Entry,
    layout: Layout,
    columns: Sequence[str],
    files: Sequence[LandingFile],
) -> DataFrame:
    """Log rows of files that look alike: their rows, and one row for each file."""
    listed = session.createDataFrame(
        [(f.load_date, f.name, layout.load, f.sha256, f.bytes, str(f.path)) for f in files],
        _FILE_COLUMNS,
    )
    text = _read_csv(session, columns, layout.header, entry.multiline, files)
    own = [_quote(c) for c in entry.columns]
    # Not an inner join: a row whose file is not found by its path must not be lost silently.
    rows = text.join(listed, "_path", "left").selectExpr(
        *own,
        f"{_operation(layout)} as _op",
        "_load_date",
        "if(_file_path is null, raise_error(concat('no landing file has the path ', _path)), "
        "_file_path) as _file_path",
        # The position in the file. Files are split in order, and a split numbers its rows upward.
        "cast(row_number() over (partition by _path order by _start, _number) as bigint) as _row",
        "_corrupt",
        f"{_error(entry, layout)} as _error",
        "'row' as _kind",
        "_load",
        "cast(null as string) as _file_sha256",
        "cast(null as bigint) as _file_bytes",
        "cast(null as bigint) as _file_rows",
    )
    counts = text.groupBy("_path").count()
    marks = listed.join(counts, "_path", "left").selectExpr(
        *(f"cast(null as string) as {c}" for c in own),
        "cast(null as string) as _op",
        "_load_date",
        "_file_path",
        "cast(null as bigint) as _row",
        "cast(null as string) as _corrupt",
        "cast(null as string) as _error",
        "'file' as _kind",
        "_load",
        "_file_sha256",
        "_file_bytes",
        "coalesce(`count`, 0L) as _file_rows",
    )
    return rows.unionByName(marks)


def _read_csv(
    session: SparkSession,
    columns: Sequence[str],
    header: bool,
    multiline: bool,
    files: Sequence[LandingFile],
) -> DataFrame:
    schema = ", ".join([*(f"{_quote(c)} string" for c in columns), "_corrupt string"])
    return (
        session.read.schema(schema)
        .option("header", header)
        .option("multiLine", multiline)
        .option("encoding", "UTF-8")
        .option("escape", '"')  # RFC 4180; Spark's own default is a backslash
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", "_corrupt")
        .csv([_escape_glob(str(f.path)) for f in files])
        .selectExpr(
            "*",
            "monotonically_increasing_id() as _number",
            "_metadata.file_block_start as _start",
            # file:///a%20b -> /a b; a plus sign stands for itself in a path
            "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/')"
            " as _path",
        )
    )


def _operation(layout: Layout) -> str:
    """SQL: the operation of a row, or NULL where its code is unknown."""
    if layout.operation is None:
        return "'load'"
    cases = " ".join(f"when {_text(k)} then {_text(v)}" for k, v in layout.codes)
    return f"case {_quote(layout.operation)} {cases} end"


def _error(entry: Entry, layout: Layout) -> str:
    """SQL: the first reason why a row cannot be used, or NULL."""
    cases = ["when _corrupt is not null then 'wrong number of fields, or broken quotes'"]
    if layout.operation is not None:
        column, legal = _quote(layout.operation), ", ".join(code for code, _ in layout.codes)
        cases.append(
            f"when {_operation(layout)} is null then concat('operation ', "
            f"coalesce(concat('\"', {column}, '\"'), 'missing'), {_text(f' is none of {legal}')})"
        )
    cases += [f"when {_quote(k)} is null then {_text(f'key {k} is missing')}" for k in entry.key]
    cases += [
        f"when {_quote(c)} is not null and try_cast({_quote(c)} as {kind}) is null "
        f"then concat({_text(f'{c} is not a {kind}: ')}, {_quote(c)})"
        for c, kind in entry.columns.items()
        if kind != "string"
    ]
    return f"case {' '.join(cases)} end"


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _escape_glob(path: str) -> str:
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
