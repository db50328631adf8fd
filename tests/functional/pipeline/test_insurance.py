"""The insurer's lake, drop by drop. The tests go on from each other, in this order."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.functional.pipeline.conftest import NewPipeline, Pipeline

EXAMPLES = Path(__file__).parents[3] / "examples"
EXPECTED = Path(__file__).parent / "expected"
V1, V2 = "2024-01-31", "2024-02-29"
JANUARY = "01-31 08:00"
CHANGED = "policies/load_date=2024-03-31/policies_cdc.csv"


def expected(name: str) -> list[dict[str, str]]:
    with (EXPECTED / name).open(newline="") as file:
        return list(csv.DictReader(file))


def day(moment: datetime | None) -> str:
    return moment.date().isoformat() if moment else ""


def minute(moment: datetime | None) -> str:
    return f"{moment:%m-%d %H:%M}" if moment else ""


# The models of the systems that deliver nothing, and all that is built on them (docs/demo.md).
WITHOUT_CUSTOMERS = ("--exclude", "raw_crm__customers+", "raw_postal__addresses+")


def test_a_landing_folder_without_customers_is_built(new_pipeline: NewPipeline) -> None:
    own = new_pipeline("own")
    for entity in ("policies", "products"):
        folder = f"{entity}/load_date={V1}"
        shutil.copytree(EXAMPLES / "landing" / folder, own.landing / folder)
    done = own.sparkwap("build", *WITHOUT_CUSTOMERS)
    assert done.returncode == 0, done.stdout
    assert f"1 drop published, up to {V1}" in done.stdout
    tables = own.heads()
    assert {"dim_policies", "dim_products", "fct_insured_value"} <= tables.keys()
    assert not [name for name in tables if "crm" in name or "postal" in name]


@pytest.fixture(scope="module")
def insurer(new_pipeline: NewPipeline) -> Iterator[Pipeline]:
    pipeline = new_pipeline("insurance")
    pipeline.deliver(EXAMPLES / "landing")
    done = pipeline.sparkwap("build")
    assert done.returncode == 0, done.stdout
    assert "2 drops published, up to 2024-02-29" in done.stdout
    yield pipeline


def test_policies_are_those_expected(insurer: Pipeline) -> None:
    flag = {True: "Y", False: "N"}
    found = [
        {
            "policy_id": str(row["policy_id"]),
            "expiry_date": row["expires_on"].isoformat(),
            "location_name": row["area"],
            "state_code": row["state_code"],
            "region_name": row["region_name"],
            "insured_value": str(int(row["insured_value"])),
            "business_type": row["business_type"],
            "earthquake": flag[row["covers_earthquake"]],
            "flood": flag[row["covers_flood"]],
        }
        for row in insurer.rows("stg_insurance__policies")
    ]
    assert sorted(found, key=lambda row: row["policy_id"]) == expected("policies_expected.csv")


def test_the_history_of_products_is_that_expected(insurer: Pipeline) -> None:
    state = {V1: "v1", V2: "v2", "": ""}
    found = [
        {
            "product_id": row["product_id"],
            "product_name": row["product_name"],
            "price": str(int(row["price"])),
            "category": row["category"],
            "version": str(row["version"]),
            "effective_start": state[day(row["effective_start"])],
            "effective_end": state[day(row["effective_end"])],
            "is_current": str(row["is_current"]).lower(),
        }
        for row in insurer.rows("dim_products")
    ]
    found.sort(key=lambda row: (row["product_id"], row["version"]))
    assert found == expected("products_scd2_expected.csv")


def test_the_mart_adds_up(insurer: Pipeline) -> None:
    total = sum(row["insured_value"] for row in insurer.rows("fct_insured_value"))
    assert total == sum(Decimal(r["insured_value"]) for r in expected("policies_expected.csv"))
    regions = {row["region_name"] for row in insurer.rows("fct_insured_value")}
    assert regions == {"Northeast", "Midwest", "South", "West"}


def test_the_dimension_has_a_version_for_each_change_in_either_source(insurer: Pipeline) -> None:
    found = [
        (
            row["customer_id"],
            row["full_name"],
            row["segment"],
            row["street"],
            minute(row["valid_from"]),
            minute(row["valid_to"]),
        )
        for row in insurer.rows("dim_customers")
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


def test_the_state_has_each_customer_once(insurer: Pipeline) -> None:
    found = {row["customer_id"]: row["email"] for row in insurer.rows("stg_crm__customers")}
    assert found == {
        1: "ada@okafor.example",
        2: "bruno@example.com",
        3: "chidi@example.com",
        4: "dilara@example.com",
        5: "emil@novak.example",
        6: "fatou@example.com",
        7: "goran@example.com",
    }


def test_a_build_without_new_files_builds_nothing(insurer: Pipeline) -> None:
    heads = insurer.heads()
    done = insurer.sparkwap("build")
    assert done.returncode == 0, done.stdout
    assert "nothing to build" in done.stdout
    assert insurer.heads() == heads


def test_each_file_is_read_once(insurer: Pipeline) -> None:
    before = insurer.rows("raw_insurance__policies")
    assert sum(row["_kind"] == "file" for row in before) == 2
    assert sum(row["_kind"] == "row" for row in before) == 25 + 5
    done = insurer.sparkwap("build", "--again")
    assert done.returncode == 0, done.stdout
    assert "no unread landing files; one build: as requested" in done.stdout
    assert len(insurer.rows("raw_insurance__policies")) == len(before)


def test_a_changed_model_is_built_without_new_files(insurer: Pipeline, tmp_path: Path) -> None:
    project = replace(insurer, project=tmp_path)
    shutil.copy2(insurer.project / "dbt_project.yml", tmp_path)
    for name in ("models", "seeds", "snapshots", "tests/data", "analyses"):
        shutil.copytree(insurer.project / name, tmp_path / name)
    heads = insurer.heads()
    done = project.sparkwap("build")
    assert "nothing to build" in done.stdout, "the same code in another folder"
    with (tmp_path / "models/marts/insurance/fct_insured_value.sql").open("a") as model:
        model.write("\n-- changed\n")
    done = project.sparkwap("build")
    assert done.returncode == 0, done.stdout
    assert "the code has changed since the last publish" in done.stdout
    assert insurer.heads()["fct_insured_value"] != heads["fct_insured_value"]


def test_a_changed_file_under_an_old_name_is_refused(insurer: Pipeline) -> None:
    path = insurer.landing / f"products/load_date={V2}/products_v2.csv"
    content = path.read_bytes()
    heads = insurer.heads()
    try:
        path.write_bytes(content + b"00007,Table,90,Furniture\n")
        for done in (
            insurer.sparkwap("build"),
            insurer.dbt("run", "-s", "raw_insurance__products"),
        ):
            assert done.returncode != 0
            assert f"{path} was read before with other content" in done.stdout
    finally:
        path.write_bytes(content)
    assert insurer.heads() == heads


def test_a_bad_row_is_rejected_and_readers_keep_what_they_have(insurer: Pipeline) -> None:
    heads = insurer.heads()
    insurer.deliver(EXAMPLES / "drops" / "bad")
    done = insurer.sparkwap("build")
    assert done.returncode != 0
    assert "The drop 2024-03-31 was not published" in done.stdout
    assert done.stdout.count("Next:") == 1
    assert str(insurer.landing / CHANGED) in done.stdout
    assert insurer.failures() >= {"quarantine_below_raw_insurance__policies_"}
    assert insurer.heads() == heads
    again = insurer.sparkwap("build")
    assert again.returncode != 0
    assert "drop 2024-03-31 (1 of 1)" in again.stdout, "what was rejected is tried again"
    assert again.stdout.count("Next:") == 1
    assert insurer.heads() == heads


def test_the_corrected_delivery_goes_through(insurer: Pipeline) -> None:
    insurer.deliver(EXAMPLES / "drops" / "corrected")
    done = insurer.sparkwap("build")
    assert done.returncode == 0, done.stdout
    policies = {row["policy_id"]: row for row in insurer.rows("stg_insurance__policies")}
    assert policies[110003]["insured_value"] == 640000
    assert 200242 not in policies
    history = [
        (day(row["dbt_valid_from"]), day(row["dbt_valid_to"]))
        for row in insurer.rows("snp_insurance__policies")
        if row["policy_id"] == 200242
    ]
    assert history == [(V1, "2024-03-31")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"product_no,product_name,price,category\n", "no key column 'product_id'"),
        (b"product_id,product_name,price,category\n1,\xff,1,x\n", "it is not UTF-8"),
    ],
)
def test_an_unreadable_file_is_one_error(insurer: Pipeline, content: bytes, message: str) -> None:
    folder = insurer.landing / "products" / "load_date=2024-04-30"
    folder.mkdir()
    heads = insurer.heads()
    try:
        (folder / "products_v3.csv").write_bytes(content)
        done = insurer.dbt("build", "-s", "raw_insurance__products+")
    finally:
        shutil.rmtree(folder)
    assert done.returncode != 0
    assert message in done.stdout
    assert "products/load_date=2024-04-30/products_v3.csv" in done.stdout
    assert insurer.failures() == {"raw_insurance__products"}
    assert insurer.heads() == heads


def test_a_missing_landing_folder_is_one_error(insurer: Pipeline) -> None:
    away = insurer.landing.rename(insurer.folder / "away")
    try:
        done = insurer.sparkwap("build")
    finally:
        away.rename(insurer.landing)
    assert done.returncode == 4
    assert done.stdout.count("There is no landing folder") == 1
    assert "Traceback" not in done.stdout
