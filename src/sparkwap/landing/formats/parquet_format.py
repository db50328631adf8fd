"""The format ``parquet``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.landing.contents import Contents, beyond, require_ratio, unreadable
from sparkwap.landing.entry import Entry, FileLayout
from sparkwap.landing.errors import LandingError, any_of
from sparkwap.landing.formats.base import SAMPLE_ROWS, FileSample, Format, Group, TextFormat
from sparkwap.landing.formats.frame import NULL, flat, numbered
from sparkwap.landing.formats.json_format import JsonFormat
from sparkwap.landing.formats.spark_texts import PLACE, escape_glob
from sparkwap.landing.row_sql import MICROSECONDS, quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Types that Spark does not have, in the words of pyarrow.
_LACKING = re.compile(r"nanoseconds|^Time\(|^Float16|^UUID")
# By default, times in JSON have milliseconds.
_TIMES = (
    f"map('timestampFormat', {text(MICROSECONDS + 'XXX')}, "
    f"'timestampNTZFormat', {text(MICROSECONDS)})"
)


class ParquetFormat(Format):
    """Parquet files; the raw text of a row is a JSON object."""

    name = "parquet"
    suffixes = (".parquet",)

    @property
    def text_format(self) -> TextFormat:
        return JsonFormat()

    def look_into(self, path: Path, layout: FileLayout, entry: Entry) -> Contents:
        import pyarrow as pa
        import pyarrow.parquet as pq

        packed = path.stat().st_size
        if not packed:
            return Contents((), 0)
        try:
            metadata = pq.read_metadata(path)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(path, f"{type(error).__name__}: {error}") from error
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
        # A row counts as at least one byte: run-length encoding can store a billion rows in few
        # bytes.
        if max(size, metadata.num_rows) > entry.max_bytes:
            what = f"it holds {metadata.num_rows:,} rows of {size:,} bytes"
            raise beyond(path, what, "max_bytes", entry.max_bytes)
        require_ratio(path, size, packed, entry)
        schema = metadata.schema.to_arrow_schema()
        return Contents(tuple(schema.names), metadata.num_rows, tuple(map(str, schema.types)))

    def sample(self, path: Path) -> FileSample:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = next(pq.ParquetFile(path).iter_batches(SAMPLE_ROWS), None)
        except pa.ArrowException as error:
            raise ValueError(str(error)) from error
        if table is None:
            return FileSample(self, [])
        typed = {f.name: _kind(f.type) for f in table.schema}
        rows = [{k: None if v is None else str(v) for k, v in r.items()} for r in table.to_pylist()]
        return FileSample(self, rows, {n: k for n, k in typed.items() if k != "string"})

    def rows(self, session: SparkSession, group: Group) -> DataFrame:
        from pyspark.errors import AnalysisException

        try:
            frame = session.read.parquet(*[escape_glob(p) for p in group.paths])
            kinds = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
        except AnalysisException as error:
            raise _refused(Path(group.paths[0]), error) from error
        nested = ("struct<", "array<", "map<")
        texts = [
            f"to_json({quote(c)}, {_TIMES}) as f{i}"
            if kinds[c].startswith(nested)
            else f"cast({quote(c)} as string) as f{i}"
            for i, c in enumerate(group.columns)
        ]
        whole = ", ".join(f"{text(c)}, f{i}" for i, c in enumerate(group.columns))
        # In a replay, a column that is not in the text would count as unchanged.
        nulls = f"map('ignoreNullFields', '{str(not group.entry.partial).lower()}')"
        parsed = frame.selectExpr(*texts, "_metadata.row_index as _index", *PLACE).selectExpr(
            "_path",
            "cast(_index + 1 as bigint) as _line",
            f"to_json(named_struct({whole}), {nulls}) as _text",
            "struct(*) as _v",
        )
        return flat(parsed, group, numbered(group.columns), NULL)


def _refused(path: Path, error: Exception) -> LandingError:
    """Return the error for a file that Spark refuses, with the columns of types that it lacks."""
    import pyarrow.parquet as pq

    schema = pq.read_metadata(path).schema
    columns = [schema.column(i) for i in range(len(schema))]
    names = [c.path for c in columns if _LACKING.search(str(c.logical_type))]
    why = str(error).splitlines()[0]
    if names:
        why += f" Write {any_of(names)} as texts, or times with microseconds (coerce_timestamps)"
    return unreadable(path, why)


def _kind(kind: Any) -> str:
    import pyarrow.types as at

    if at.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    known = (
        (at.is_boolean, "boolean"), (at.is_int32, "int"), (at.is_integer, "bigint"),
        (at.is_float32, "float"), (at.is_floating, "double"), (at.is_date, "date"),
        (at.is_timestamp, "timestamp"),
    )  # fmt: skip
    return next((name for test, name in known if test(kind)), "string")
