"""The query of a quarantine, rendered without dbt and run on DuckDB."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import jinja2

FOLDER = Path(__file__).parents[3] / "macros" / "landing"


def query(runs: str | None) -> str:
    """Return the query of the quarantine of the table ``log``.

    Args:
        runs: The ledger's table of runs; None before the end of the first run.
    """
    names = ("open_bad_rows", "quarantine")
    text = "\n".join((FOLDER / f"{name}.sql").read_text() for name in names)
    text = text.replace("_quarantine_runs()", "ledger", 1).replace("left anti join", "anti join")
    given = {"ledger": runs, "run_started_at": datetime(2024, 1, 31)}
    module: Any = jinja2.Environment().from_string(text, given).module
    return str(module.quarantine("log"))


def test_a_run_with_several_rows_in_the_ledger_has_each_bad_row_once() -> None:
    lake = duckdb.connect()
    lake.execute(
        "create table log as select 'f' as _file_path, 1 as _row, date '2024-01-01' as _load_date, "
        "7 as _batch, 'bad' as _kind, 'why' as _error, 'x' as _raw, 'r1' as _run"
    )
    lake.execute(
        "create table runs as select * from (values ('r1', timestamp '2024-01-01 02:00:00'), "
        "('r1', timestamp '2024-01-01 02:05:00')) as rows(run_id, started_at)"
    )
    found = lake.execute(query("runs")).fetchall()
    assert [(row[0], row[1], row[-1]) for row in found] == [("f", 1, datetime(2024, 1, 1, 2))]
    (row,) = lake.execute(query(None)).fetchall()
    assert row[-1] == datetime(2024, 1, 31)
