"""What `sparkwap source add` writes builds as it is, and lets no later file through unseen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkwap.cli import source
from sparkwap.landing.guessing import SourceAnswers

if TYPE_CHECKING:
    from helpers.lake import Reader
    from helpers.project import MakeProject, Project

CHANGES = "Op,changed_at,item_id,name,unit price\nU,2024-01-05 10:00:00,7,bolt M5,0.25\n"
LATER = "Op,changed_at,item_id,name,unit price\nU,2024-02-05 10:00:00,7,bolt M6,0.30\nI,x,8,,\n"
PRICES = "id,price\n" + "".join(f"{n},{n}.5\n" for n in range(1, 21))


@pytest.fixture(scope="module")
def project(make_project: MakeProject) -> Project:
    """A project with two sources: extracts of prices; items by a Parquet load and CSV changes."""
    models = {
        "raw": {
            "+incremental_strategy": "append",
            "+on_schema_change": "append_new_columns",
            "+partition_by": ["_kind", "_load_date"],
            "+meta": {"drop": {"root": "{{ env_var('SHOP_LANDING', 'landing') }}"}},
        },
        "quarantine": {"+materialized": "table"},
        "staging": {"+materialized": "table", "+incremental_strategy": "merge"},
    }
    project = make_project("added", {}, settings={"models": {"shop": models}})
    project.write({"landing/items/load_date=2024-01-05/20240105-1.csv": CHANGES})
    load = project.folder / "landing/items/load_date=2024-01-01/LOAD1.parquet"
    load.parent.mkdir(parents=True)
    table = {"item_id": [7, 8], "name": ["bolt", "nut"], "unit price": ["0.20", "0.05"]}
    pq.write_table(pa.table(table), load)
    source.add([load], "parts", "items", SourceAnswers(("item_id",)), project.folder, history=True)
    prices = write(project, "landing/prices/load_date=2024-01-01/p.csv", PRICES)
    source.add([prices], "shop", "prices", SourceAnswers(), project.folder, history=True)
    project.dbt("build").succeeded()
    return project


def write(project: Project, name: str, text: str) -> Path:
    project.write({name: text})
    return project.folder / name


def rows(project: Project, reader: Reader, name: str) -> list[dict[str, object]]:
    return list(reader.table(project.schema, name).rows)


def test_a_source_of_two_formats_is_built(project: Project, reader: Reader) -> None:
    items = {r["item_id"]: r for r in rows(project, reader, "stg_parts__items")}
    assert {k: (r["name"], str(r["unit_price"])) for k, r in items.items()} == {
        7: ("bolt M5", "0.25"), 8: ("nut", "0.05"),
    }  # fmt: skip
    versions = rows(project, reader, "hst_parts__items")
    assert sorted((r["item_id"], r["name"]) for r in versions) == [
        (7, "bolt"), (7, "bolt M5"), (8, "nut"),
    ]  # fmt: skip
    assert len(rows(project, reader, "snp_shop__prices")) == 20


def test_a_bad_row_of_a_later_file_holds_it(project: Project, reader: Reader) -> None:
    file = write(project, "landing/items/load_date=2024-02-29/20240205-1.csv", LATER)
    done = project.dbt("build", "--select", "raw_parts__items+").failed()
    assert done.statuses["quarantine_below_raw_parts__items_"] == "fail"
    assert len(rows(project, reader, "stg_parts__items")) == 2
    accepted = {"branch": done.branch, "test": "quarantine_below_raw_parts__items_", "reason": "x"}
    project.operation("wap_accept", **accepted).succeeded()
    project.dbt("retry").succeeded()
    project.dbt("build", "--select", "raw_parts__items+").succeeded()
    file.unlink()


@pytest.mark.parametrize(
    "content",
    ["id,price\n", "", "Op,id,price\nU,3,9.5\nD,4,\n", "id,price\n" + PRICES[9:60]],
    ids=["header", "nothing", "changes", "half"],
)
def test_no_extract_that_is_cut_off_is_published(
    project: Project, reader: Reader, content: str
) -> None:
    names = ("raw_shop__prices", "cdc_shop__prices", "stg_shop__prices", "snp_shop__prices")
    before = {name: rows(project, reader, name) for name in names}
    file = write(project, "landing/prices/load_date=2024-02-01/p.csv", content)
    chosen = ("--select", "raw_shop__prices+")
    done = project.dbt("build", *chosen, wap_publish="lineage").failed()
    assert done.statuses["full_load_drop_raw_shop__prices_0_2"] == "fail"
    assert {name: rows(project, reader, name) for name in names} == before
    file.unlink()
