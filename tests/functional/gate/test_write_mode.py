"""``wap_write_mode``: how a table is changed follows from what its runs change."""

from __future__ import annotations

import re

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject

FEW = """
    {{ config(materialized='incremental', incremental_strategy='merge', unique_key='id',
              wap_write_mode='auto') }}
    {% if is_incremental() %}
    select id, {{ env_var('BUILD') }} as build, text from range(5)
    {% else %}
    select id, 0 as build, text from range(0, 1000, 1, 1)
    {% endif %}
"""
LONG = "array_join(transform(sequence(1, 120), i -> sha2(concat(id, ' ', i), 512)), '')"
FILES = {
    # A file of some 8 MB, and one of some KB.
    "models/few.sql": FEW.replace("text", f"{LONG} as text"),
    "models/small.sql": FEW.replace("text", "'x' as text"),
    "models/many.sql": """
        {{ config(materialized='incremental', incremental_strategy='merge', unique_key='id',
                  wap_write_mode='auto') }}
        select id, {{ env_var('BUILD') }} as build from range(0, 1000, 1, 1)
    """,
    "models/given.sql": """
        {{ config(materialized='incremental', incremental_strategy='merge', unique_key='id',
                  wap_write_mode='merge-on-read') }}
        select id, {{ env_var('BUILD') }} as build from range(0, 10, 1, 1)
    """,
    "models/properties.yml": """
        models:
          - {name: few, columns: [{name: id, data_tests: [unique]}]}
    """,
}
MODE = "write.merge.mode"


def test_the_mode_changes_with_a_publish(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project("write_mode", FILES)

    def mode(name: str) -> str | None:
        found: str | None = reader.metadata(project.schema, name)["properties"].get(MODE)
        return found

    for build in range(3):
        monkeypatch.setenv("BUILD", str(build))
        project.dbt("build").succeeded()
        assert mode("few") is None
    assert mode("given") == "merge-on-read"
    # Two merges are known by now, each of 5 of 1,000 rows. The property is part of the publish.
    monkeypatch.setenv("BUILD", "3")
    held = project.dbt("run").succeeded()
    assert mode("few") is None
    published = project.dbt("test").succeeded()
    assert mode("few") == "merge-on-read"
    # Of the rows of the files that they touched: the server may have written more than one file.
    told = r"merge-on-read from now on: the last 2 changes have changed 0\.[5-9]% of the rows"
    assert re.search(told, held.text + published.text)
    assert mode("many") is mode("small") is None
    rows = reader.table(project.schema, "few").values("id", "build")
    assert sorted(rows) == [(n, 3 if n < 5 else 0) for n in range(1000)]
    document = reader.metadata(project.schema, "few")
    (head,) = (
        one["summary"]
        for one in document["snapshots"]
        if one["snapshot-id"] == document["current-snapshot-id"]
    )
    assert int(head["added-delete-files"]) > 0
    (row,) = reader.ledger("nodes", run_id=held.run_id, name="few")
    assert row["write_mode"].startswith("merge-on-read: the last 2 changes")
    (row,) = reader.ledger("nodes", run_id=held.run_id, name="small")
    assert row["write_mode"].endswith("but these files are small (0.0 MB)")


def test_an_unknown_mode_is_refused(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILD", "0")
    files = {"models/few.sql": FILES["models/few.sql"].replace("'auto'", "'often'")}
    outcome = make_project("no_write_mode", files).dbt("build").failed()
    assert "wap_write_mode is 'often'" in outcome.text
