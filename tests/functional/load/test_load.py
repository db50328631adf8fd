"""A file that `sparkwap load` has brought, beside dbt and Spark on the same lake."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vocabulary import MakeProject, Reader, SparkReader

from sparkwap import cli
from sparkwap.load_command import STAYS

SOURCES = """
    sources:
      - name: web
        schema: {schema}
        tables: [{{name: events, columns: [{{name: id, data_tests: [unique, not_null]}}]}}]
"""
RULE = "select * from {{ source('web', 'events') }} where id > 100"


def rows(*ids: int | None) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def test_files_are_loaded_by_the_tests_of_their_source(
    make_project: MakeProject,
    reader: Reader,
    spark: SparkReader,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = f"loads_{secrets.token_hex(2)}"
    reader.catalog.create_namespace(schema)
    reader.catalog.create_table((schema, "events"), rows().schema).append(rows(1))
    project = make_project("loads", {"models/sources.yml": SOURCES.format(schema=schema)})
    table = f"{schema}.events"

    def load(*ids: int | None) -> tuple[int, str]:
        file = tmp_path / f"{secrets.token_hex(2)}.parquet"
        pq.write_table(rows(*ids), file)
        folder = str(project.folder)
        command = ["load", str(file), "--table", table, "--publish"]
        code = cli.main([*command, "--project-dir", folder, "--profiles-dir", folder])
        return code, capsys.readouterr().out

    def live() -> list[int]:
        return [row[0] for row in spark.rows(f"select id from {table}")]

    code, text = load(2)
    assert (code, live()) == (0, [1, 2]), text
    assert "2 of 2 audits passed" in text
    code, text = load(3, None)
    assert (code, live()) == (STAYS, [1, 2]), text

    # A rule that only an engine can look at: dbt goes on where the load has stopped.
    project.write({"tests/no_great_ids.sql": RULE})
    for ids, published in (((4,), True), ((400,), False)):
        code, text = load(*ids)
        assert (code, live()) == (STAYS, [1, 2]), text
        branch = re.search(r"SPARKWAP_BRANCH=(\w+) dbt test --select source:web.events", text)
        assert branch is not None, text
        done = project.dbt("test", "--select", "source:web.events", wap_branch=branch[1])
        assert done.ok == published, done.text
        assert done.verdict("events") == ("published" if published else "rejected")
        assert live() == ([1, 2, 4] if published else [1, 2])
        if published:
            undone = project.operation("wap_rollback", run=done.run_id[:8]).succeeded()
            assert "readers of main see again" in undone.text
