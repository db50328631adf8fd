"""Customers by Debezium and their addresses by change files, in one dimension; room sensors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.functional.pipeline.conftest import NewPipeline, Pipeline

LANDING = Path(__file__).parents[3] / "examples" / "landing"
JANUARY = "01-31 08:00"


def delivered(new_pipeline: NewPipeline, source: str, *entities: str) -> Pipeline:
    pipeline = new_pipeline(source)
    for entity in entities:
        shutil.copytree(LANDING / entity, pipeline.landing / entity)
    done = pipeline.sparkwap("build")
    assert done.returncode == 0, done.stdout
    assert "2 drops published, up to 2024-02-29" in done.stdout
    return pipeline


@pytest.fixture(scope="module")
def customers(new_pipeline: NewPipeline) -> Iterator[Pipeline]:
    yield delivered(new_pipeline, "customers", "customers", "addresses")


@pytest.fixture(scope="module")
def sensors(new_pipeline: NewPipeline) -> Iterator[Pipeline]:
    yield delivered(new_pipeline, "sensors", "readings")


def minute(moment: Any) -> str:
    return f"{moment:%m-%d %H:%M}" if moment else ""


def test_the_dimension_has_a_version_for_each_change_in_either_source(customers: Pipeline) -> None:
    found = [
        (
            row["customer_id"],
            row["full_name"],
            row["segment"],
            row["street"],
            minute(row["valid_from"]),
            minute(row["valid_to"]),
        )
        for row in customers.rows("dim_customers")
    ]
    # The messages of 7 February, the first of which changes the e-mail address, came in the wrong
    # order, the one of customer 7 twice. Customer 5 was deleted and came back, and has no address
    # that anybody knows. Customer 6 had none for four days.
    found.sort(key=lambda row: (row[0], row[4]))
    assert [row for row in found if row[0] in (1, 5, 6, 7)] == [
        (1, "Ada Okafor", "private", "12 Harbour Street", JANUARY, "02-07 10:00"),
        (1, "Ada Okafor", "private", "12 Harbour Street", "02-07 10:00", "02-07 16:30"),
        (1, "Ada Okafor-Lind", "private", "12 Harbour Street", "02-07 16:30", "02-10 07:30"),
        (1, "Ada Okafor-Lind", "private", "4 Garden Row", "02-10 07:30", ""),
        (5, "Emil Novak", "private", None, JANUARY, "02-14 13:00"),
        (5, "Emil Novak", "business", None, "02-27 17:20", ""),
        (6, "Fatou Diop", "private", "5 Avenue Faidherbe", JANUARY, "02-20 08:05"),
        (6, "Fatou Diop", "business", "5 Avenue Faidherbe", "02-20 08:05", "02-21 18:00"),
        (6, "Fatou Diop", "business", None, "02-21 18:00", "02-25 10:10"),
        (6, "Fatou Diop", "business", "2 Rue Moussé Diop", "02-25 10:10", ""),
        (7, "Goran Petrović", "business", None, "02-12 11:45", "02-12 12:00"),
        (7, "Goran Petrović", "business", "18 Knez Mihailova", "02-12 12:00", ""),
    ]


def test_the_state_has_each_customer_once(customers: Pipeline) -> None:
    found = {row["customer_id"]: row["email"] for row in customers.rows("stg_crm__customers")}
    assert found == {
        1: "ada@okafor.example",
        2: "bruno@example.com",
        3: "chidi@example.com",
        4: "dilara@example.com",
        5: "emil@novak.example",
        6: "fatou@example.com",
        7: "goran@example.com",
    }


def test_impossible_readings_are_quarantined_and_the_others_published(sensors: Pipeline) -> None:
    bad = {row["line"]: row["reason"] for row in sensors.rows("quarantine_building__readings")}
    rule = "rule temperature in range: temperature_c between -10 and 50"
    assert bad == {5: rule, 12: rule, 18: "temperature_c is not a decimal(5,1): n/a"}
    good = sensors.rows("stg_building__readings")
    assert len(good) == 48 - len(bad)
    assert all(-10 <= row["temperature_c"] <= 50 for row in good)
    days = {(r["room"], str(r["measured_on"])): r for r in sensors.rows("fct_room_temperatures")}
    assert len(days) == 6 and days["roof", "2024-02-29"]["readings"] == 6
