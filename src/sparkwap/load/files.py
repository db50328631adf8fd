"""The file of a load: what is in it, and whether it fits its table."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkwap.load.errors import LoadError

DEFAULT_LIMIT = 1 << 30
"""Bytes of the file's values as they are held in memory, by its own footer: 1 GiB."""

_CHUNK = 1 << 20
_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True)
class Drop:
    """A Parquet file to load.

    Attributes:
        path: Where it is.
        sha256: Digest of its bytes, by which it is known when it comes again.
        bytes: Its size.
        rows: How many rows it has, by its footer.
        schema: Its columns.
    """

    path: Path
    sha256: str
    bytes: int
    rows: int
    schema: pa.Schema

    def read(self) -> pa.Table:
        """All of its rows.

        Raises:
            LoadError: It cannot be read, or is another one by now.
        """
        try:
            table = pq.ParquetFile(self.path).read()
        except (OSError, pa.ArrowException) as error:
            raise LoadError(f"{self.path} cannot be read: {error}. Nothing was loaded.") from error
        if _digest(self.path) != self.sha256:
            raise LoadError(
                f"{self.path} changed while it was read. Nothing was loaded. Load it when it is "
                "complete."
            )
        return table


def open_drop(path: Path, limit: int = DEFAULT_LIMIT) -> Drop:
    """Look into a Parquet file, by its footer.

    Args:
        path: The file.
        limit: The most bytes that its values may take.

    Raises:
        LoadError: There is none, it is no Parquet file, it is larger, or has no rows.
    """
    if not path.is_file():
        raise LoadError(f"There is no file {path}. Nothing was loaded.")
    try:
        file = pq.ParquetFile(path)
        metadata, schema = file.metadata, file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise LoadError(
            f"{path} is no Parquet file that can be read: {error}. Nothing was loaded."
        ) from error
    size = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
    size = max(size, path.stat().st_size)
    if size > limit:
        raise LoadError(
            f"{path} holds {size:,} bytes of values, and a load takes {limit:,}: it keeps them in "
            "memory. Nothing was loaded. Land it for a raw model (docs/landing.md), or raise "
            "--max-bytes."
        )
    if not metadata.num_rows:
        raise LoadError(f"{path} has no rows. Nothing was loaded, and nothing has to be.")
    return Drop(path, _digest(path), path.stat().st_size, metadata.num_rows, schema)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


# ---------------------------------------------------------------- does it fit


def misfits(file: pa.Schema, table: pa.Schema) -> list[str]:
    """What of a file's columns does not go into a table, in words; empty if it fits.

    Columns go by their names. A type fits that keeps every value as it is.
    """
    wanted = {field.name: field for field in table}
    found = [
        f"column {field.name} ({field.type}) is not in the table"
        for field in file
        if field.name not in wanted
    ]
    doubled = {name for name in file.names if file.names.count(name) > 1}
    found += [f"column {name} is there more than once" for name in sorted(doubled)]
    for name, field in wanted.items():
        if name not in file.names:
            found.append(f"column {name} ({field.type}) is not in the file")
        elif name not in doubled and not fits(file.field(name).type, field.type):
            found.append(f"column {name} is {file.field(name).type}, and {field.type} in the table")
    return found


def fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether all values of a type are values of another one."""
    if pa.types.is_dictionary(given):
        return fits(given.value_type, wanted)
    if given.equals(wanted) or _is_text(given, wanted) or _is_binary(given, wanted):
        return True
    if pa.types.is_integer(given) and pa.types.is_integer(wanted):
        return _bits(given) <= _bits(wanted)
    if pa.types.is_floating(given) and pa.types.is_floating(wanted):
        return bool(given.bit_width <= wanted.bit_width)
    if pa.types.is_decimal(given) and pa.types.is_decimal(wanted):
        whole = given.precision - given.scale <= wanted.precision - wanted.scale
        return bool(whole and given.scale <= wanted.scale)
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        # A time with a zone is a moment, one without is not: the one cannot become the other. What
        # a finer unit has beyond microseconds is looked for when it is read.
        return (given.tz is None) == (wanted.tz is None)
    if pa.types.is_nested(given) and pa.types.is_nested(wanted):
        return _nested(given, wanted)
    return bool(pa.types.is_null(given))


def _bits(kind: pa.DataType) -> int:
    # Of an unsigned integer all values are in a signed one that is wider.
    return int(kind.bit_width) + (1 if pa.types.is_unsigned_integer(kind) else 0)


def _is_text(*kinds: pa.DataType) -> bool:
    return all(pa.types.is_string(k) or pa.types.is_large_string(k) for k in kinds)


def _is_binary(*kinds: pa.DataType) -> bool:
    return all(pa.types.is_binary(k) or pa.types.is_large_binary(k) for k in kinds)


def _nested(given: pa.DataType, wanted: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list)
    if any(kind(given) for kind in lists) and any(kind(wanted) for kind in lists):
        return fits(given.value_type, wanted.value_type)
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return fits(given.key_type, wanted.key_type) and fits(given.item_type, wanted.item_type)
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        return not misfits(pa.schema(list(given)), pa.schema(list(wanted)))
    return False


def fitted(rows: pa.Table, table: pa.Schema) -> pa.Table:
    """Rows with the columns of a table, in its order and types.

    Raises:
        LoadError: A value does not fit, or lacks where the table says that none may.
    """
    columns = []
    for field in table:
        column = rows.column(field.name)
        if not field.nullable and column.null_count:
            raise LoadError(
                f"Column {field.name} is required, and {column.null_count:,} rows of the file have "
                "no value in it. Nothing was loaded. Correct the file."
            )
        try:
            columns.append(_cast(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise LoadError(
                f"Column {field.name} has a value that is no {field.type}: {error}. Nothing was "
                "loaded. Correct the file."
            ) from error
    return pa.Table.from_arrays(columns, schema=table)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column if column.type.equals(kind) else column.cast(kind, safe=True)
