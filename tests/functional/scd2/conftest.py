"""Logs as files, and projects whose models make histories of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.project import MakeProject, Project
from helpers.reference_model import Row, Version

OPEN = date(9999, 12, 31)

LOG = {
    "_op": pa.string(),
    "_sequence": pa.string(),
    "_event_time": pa.timestamp("us", tz="UTC"),
    "_absent": pa.list_(pa.string()),
    "_load_date": pa.date32(),
    "_file_path": pa.string(),
    "_row": pa.int64(),
    "_part": pa.int32(),
    "_batch": pa.int64(),
    "_kind": pa.string(),
    "_load": pa.string(),
}


def write_log(path: Path, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Write rows of a log as a Parquet file."""
    schema = pa.schema([*((c, pa.string()) for c in columns), *LOG.items()])
    full = [{name: row.get(name) for name in schema.names} for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(full, schema=schema), path)


MakeHistories = Callable[..., Project]


@pytest.fixture(scope="session")
def make_histories(make_project: MakeProject) -> MakeHistories:
    """Makes a project with the models given: SQL by name."""

    def make(name: str, models: dict[str, str], **files: str) -> Project:
        sql = {f"models/{model}.sql": text for model, text in models.items()}
        # Beside other work a statement takes more than the 5 s after which dbt looks twice.
        return make_project(name, sql | files, output={"poll_interval": 1})

    return make


def model(config: str, log: str, columns: Iterable[str], **more: str) -> str:
    """A model over the file ``<LOG>/<log>.parquet``."""
    named = ", ".join(f"'{c}': '{c}'" for c in columns)
    arguments = "".join(f", {name}={value}" for name, value in more.items())
    return (
        "{{ config(materialized='scd2', " + config + ") }}\n"
        "{{ change_events('parquet.`' ~ env_var('LOG') ~ '/" + log + ".parquet`', "
        "columns={" + named + "}" + arguments + ") }}\n"
    )


def plain(at: Any) -> Any:
    """A time as both sides have it: without a zone, as PyIceberg and the oracle mean UTC."""
    return at.replace(tzinfo=None) if isinstance(at, datetime) else at


def expected(
    truth: dict[Any, list[Version]],
    columns: Sequence[str],
    *,
    days: bool = False,
    record: bool = False,
) -> list[tuple[Any, ...]]:
    """The rows of a history by the oracle's versions, sorted.

    Args:
        truth: versions by key.
        columns: the own columns.
        days: from day to day, ended the day before, open until 9999-12-31.
        record: deletes are versions of their own.
    """
    found = []
    for versions in truth.values():
        number, before = 0, None
        for version, after in zip(versions, [*versions[1:], None], strict=True):
            new = before is None or before.closed_by == "delete"
            spans = [("I" if new else "U", version.valid_from, version.valid_to)]
            if record and version.closed_by == "delete":
                until = after.valid_from if after else None
                if until != version.valid_to:
                    spans.append(("D", version.valid_to, until))
            for flag, start, end in spans:
                number += 1
                current = end is None
                if days:
                    start = start.date()
                    end = OPEN if end is None else end.date() - timedelta(days=1)
                values = tuple(version.values[c] for c in columns)
                found.append((*values, plain(start), plain(end), current, number, flag))
            before = version
    return sorted(found, key=repr)


def made(rows: Iterable[Row], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of a table in the same form."""
    names = (*columns, "valid_from", "valid_to", "is_current", "version", "change_flag")
    return sorted((tuple(plain(row[c]) for c in names) for row in rows), key=repr)
