"""The formats of landing files.

One module describes one format: see `Format` in `base`. The other modules read text, JSON and the
common frame with Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkwap.landing.contents import Contents
from sparkwap.landing.entry import Entry, FileLayout
from sparkwap.landing.formats.base import Format
from sparkwap.landing.formats.csv_format import CsvFormat
from sparkwap.landing.formats.debezium_format import DebeziumFormat
from sparkwap.landing.formats.json_format import JsonFormat
from sparkwap.landing.formats.parquet_format import ParquetFormat

FORMATS: dict[str, Format] = {
    one.name: one for one in (ParquetFormat(), DebeziumFormat(), JsonFormat(), CsvFormat())
}
"""Name to format. A sample has the first format that has its suffix and accepts its content."""
DEFAULT = CsvFormat.name


def format_of(entry: Mapping[str, Any]) -> Format:
    """Return the format of an unparsed landing entry; the default for an unknown name."""
    return FORMATS.get(str(entry.get("format")), FORMATS[DEFAULT])


def look_into(path: Path, layout: FileLayout, entry: Entry) -> Contents:
    """Return the columns and the number of rows of a file; see `Format.look_into`."""
    return FORMATS[layout.format].look_into(path, layout, entry)
