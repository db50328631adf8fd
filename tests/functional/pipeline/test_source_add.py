"""What `sparkwap source add` writes builds as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparkwap import source

if TYPE_CHECKING:
    from vocabulary import MakeProject, Reader

SAMPLE = "Op;changed_at;item_id;name;unit price\nI;2024-01-05 10:00:00;7;bolt;0.25\n"
LATER = "Op;changed_at;item_id;name;unit price\nU;2024-02-05 10:00:00;7;bolt M5;0.30\nI;x;8;;\n"


def deliver(landing: Path, day: str, text: str) -> Path:
    path = landing / f"items/load_date={day}/items.csv"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_a_source_from_a_sample_file_is_built(
    make_project: MakeProject, reader: Reader, tmp_path: Path
) -> None:
    landing = tmp_path / "landing"
    models = {
        "raw": {
            "+incremental_strategy": "append",
            "+on_schema_change": "append_new_columns",
            "+partition_by": ["_kind", "_load_date"],
            "+meta": {"drop": {"root": str(landing)}},
        },
        "quarantine": {"+materialized": "table"},
        "staging": {"+materialized": "table", "+incremental_strategy": "merge"},
    }
    project = make_project("added", {}, settings={"models": {"shop": models}})
    sample = deliver(landing, "2024-01-31", SAMPLE)
    source.add(sample, "parts", "items", [], project.folder)
    project.dbt("build").succeeded()
    (row,) = reader.table(project.schema, "stg_parts__items").rows
    assert (row["item_id"], row["name"], str(row["unit_price"])) == (7, "bolt", "0.25")

    deliver(landing, "2024-02-29", LATER)
    done = project.dbt("build").failed()
    assert done.statuses["quarantine_below_raw_parts__items_"] == "fail"
    assert len(reader.table(project.schema, "stg_parts__items").rows) == 1
