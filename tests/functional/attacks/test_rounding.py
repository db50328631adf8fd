"""Attacked: a type in YAML or SQL that keeps fewer decimal places than a file has.

A delivered number is kept as it is, in quarantine, or an error. It is never another number.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from helpers.landing import LandingProject, make_landing_project

from sparkwap.landing.row_sql import exact, sortable_text, text

if TYPE_CHECKING:
    from helpers.lake import Reader, SparkReader
    from helpers.project import MakeProject

FIT = {
    "-9.0738": "-9.0738",
    "-9.07380000000": "-9.0738",
    "9.": "9.0000",
    "7": "7.0000",
    "1.5e3": "1500.0000",
    "-25E-4": "-0.0025",
    " 0.1 ": "0.1000",
}
DO_NOT_FIT = (
    "-9.07383", "9.07380000000000000000000000001", ".00001", "1.00001e0", "1e-5", "1E400", "x",
    "9.0738٣", "99999999999999999999.1",
)  # fmt: skip

ENTRY = {
    "entity": "places",
    "kind": "changes",
    "key": ["id"],
    "columns": {"id": "bigint", "lat": "decimal(18,4)", "lon": "string"},
    "operation": "Op",
    "codes": {"I": "insert", "U": "update", "D": "delete"},
    "sequence": {"seq": "decimal(20,1)"},
    "files": [{"match": "*.csv", "load": "changes"}],
    "threshold": 9,
}
STAGED = """
    {{ config(materialized='table') }}
    select
        cast(id as bigint) as id,
        {{ exact_cast('lat', 'decimal(18, 4)', ref('cdc_places')) }} as lat,
        {{ exact_cast('lon', 'decimal(18, 4)', ref('cdc_places')) }} as lon,
        {{ added_columns('raw_places') }}
    from {{ ref('cdc_places') }}
"""
HISTORY = """
    {{ config(materialized='scd2', unique_key='id') }}
    {{ change_events(ref('raw_places'), columns={
        'id': 'cast(id as bigint)', 'lon': 'cast(lon as decimal(18, 4))'}) }}
"""


def test_a_text_is_a_decimal_only_if_no_digit_is_lost(spark: SparkReader) -> None:
    listed = ", ".join(f"({text(one)})" for one in [*FIT, *DO_NOT_FIT])
    found = exact("v", "decimal(18,4)")
    rows = spark.rows(f"select v, cast({found} as string) from values {listed} as t(v)")
    assert dict(rows) == {**FIT, **dict.fromkeys(DO_NOT_FIT)}


def test_an_order_is_not_rounded_to_a_tie(spark: SparkReader) -> None:
    found = sortable_text("v", "decimal(4,1)")
    rows = spark.rows(f"select v, {found} from values ('7.1'), ('7.10'), ('7.14') as t(v)")
    assert dict(rows) == {"7.1": "007.1".zfill(5), "7.10": "007.1", "7.14": None}


@pytest.fixture(scope="module")
def places(make_project: MakeProject, reader: Reader) -> LandingProject:
    project = make_landing_project(make_project, reader, "rounding", {"places": ENTRY})
    project.project.write({"models/stg_places.sql": STAGED, "models/hst_places.sql": HISTORY})
    project.deliver("places/load_date=2024-01-01/a.csv", "Op,id,lat,lon,seq\nI,1,-9.0738,0.5,1\n")
    project.build().succeeded()
    return project


def state(places: LandingProject) -> dict[int, tuple[Any, Any]]:
    return {row["id"]: (row["lat"], row["lon"]) for row in places.rows("stg_places")}


def test_a_later_file_with_more_places_is_kept_or_told(places: LandingProject) -> None:
    first = {1: (Decimal("-9.0738"), Decimal("0.5000"))}
    assert state(places) == first
    late = "Op,id,lat,lon,seq\nU,1,-9.07383,0.5,2\nI,2,4.50000,0.5,3\nI,3,1,0.5,4.05\n"
    places.deliver("places/load_date=2024-02-01/b.csv", late)
    places.build().succeeded()
    assert state(places) == {**first, 2: (Decimal("4.5"), Decimal("0.5"))}
    held = {row["line"]: row["reason"] for row in places.rows("quarantine_places")}
    assert held == {
        1: "lat is not a decimal(18,4): -9.07383 (more decimal places)",
        3: "seq is not a decimal(20,1) of 0 or more: 4.05",
    }


@pytest.mark.parametrize("model", ["stg_places", "hst_places"])
def test_sql_that_gives_fewer_places_than_the_log_has_fails(
    places: LandingProject, model: str
) -> None:
    before = places.rows(model)
    places.deliver("places/load_date=2024-03-01/c.csv", "Op,id,lat,lon,seq\nU,1,1,0.12345,9\n")
    done = places.build().failed()
    assert done.verdict(model) == "rejected"
    assert "column lon have more decimal places than decimal(18, 4) keeps" in done.text
    assert places.rows(model) == before
