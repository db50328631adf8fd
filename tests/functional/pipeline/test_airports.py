"""Real data, revision by revision, with the two accidents of its publisher.

One lake lives through all of it: revisions up to 2022-09-01, the bad publication of 2022-09-13,
its withdrawal, and the rest. The tests look at what is left.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from helpers.airports import DATA, expected, needs_airports

if TYPE_CHECKING:
    from tests.functional.pipeline.conftest import NewPipeline, Pipeline

ENTITIES = {"runways": "runway_id", "airport_frequencies": "frequency_id"}
ACCIDENT = "2022-09-13"

pytestmark = [
    # In its long form a dozen builds come before the first of them.
    pytest.mark.timeout(3600),
    needs_airports,
]

RENAMED = {
    "airport_ref": "airport_id",
    "lighted": "is_lighted",
    "closed": "is_closed",
    "type": "frequency_type",
    "le_heading_degT": "le_heading_deg_true",
    "he_heading_degT": "he_heading_deg_true",
}


LONG = "SOAK" in os.environ
only_long = pytest.mark.skipif(not LONG, reason="long: only in the soak")


def revisions(kind: str = "extracts", entity: str = "runways") -> list[str]:
    return sorted(p.name.removeprefix("load_date=") for p in (DATA / kind / entity).iterdir())


def deliver(pipeline: Pipeline, kind: str, days: Iterable[str]) -> None:
    for entity in ENTITIES:
        for day in days:
            folder = f"{entity}/load_date={day}"
            shutil.copytree(DATA / kind / folder, pipeline.landing / folder)


class Accident:
    """What was seen while the bad publication lay in the landing folder."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.before = pipeline.heads()
        deliver(pipeline, "incidents", [ACCIDENT])
        self.done = pipeline.sparkwap("build")
        self.failures = pipeline.failures()
        self.after = pipeline.heads()
        self.newest = max(row["as_of"] for row in pipeline.rows("stg_airports__runways"))
        for entity in ENTITIES:
            shutil.rmtree(pipeline.landing / entity / f"load_date={ACCIDENT}")


@pytest.fixture(scope="module")
def lived(new_example: NewPipeline) -> tuple[Pipeline, Accident]:
    pipeline = new_example("airports")
    before = [day for day in revisions() if day < ACCIDENT]
    deliver(pipeline, "extracts", before if LONG else before[-2:])
    done = pipeline.sparkwap("build")
    assert done.returncode == 0, done.stdout
    accident = Accident(pipeline)
    if LONG:
        deliver(pipeline, "extracts", [day for day in revisions() if day > ACCIDENT])
        done = pipeline.sparkwap("build")
        assert done.returncode == 0, done.stdout
    return pipeline, accident


@pytest.fixture(scope="module")
def airports(lived: tuple[Pipeline, Accident]) -> Pipeline:
    return lived[0]


@pytest.fixture(scope="module")
def accident(lived: tuple[Pipeline, Accident]) -> Accident:
    return lived[1]


def test_the_bad_publication_is_rejected(accident: Accident) -> None:
    assert accident.done.returncode != 0
    assert f"The drop {ACCIDENT} was not published" in accident.done.stdout
    failed = {name for name in accident.failures if not name.startswith("stg_")}
    assert {name.split("_stg_")[0] for name in failed if "runways" in name} == {"row_count_drop"}
    assert "not_empty_stg_airports__airport_frequencies_" in failed


def test_readers_keep_the_good_tables(accident: Accident) -> None:
    assert accident.after == accident.before
    assert accident.newest.date() == date(2022, 9, 1)


@pytest.mark.parametrize("entity", ENTITIES)
def test_the_state_after_each_revision_is_the_true_one(airports: Pipeline, entity: str) -> None:
    key = ENTITIES[entity]
    table = airports.table(f"stg_airports__{entity}")
    found = {}
    for entry in table.history():
        state = table.scan(
            snapshot_id=entry.snapshot_id, selected_fields=(key, "row_hash", "as_of")
        ).to_arrow()
        lines = sorted(
            f"{k}\x1f{digest}\n".encode()
            for k, digest in zip(state[key].to_pylist(), state["row_hash"].to_pylist(), strict=True)
        )
        day = state["as_of"][0].as_py().date().isoformat()
        found[day] = (len(lines), hashlib.sha256(b"".join(lines)).hexdigest())
    assert found == {
        row["load_date"]: (int(row["rows"]), row["state_sha256"])
        for row in expected(f"{entity}/counts_per_revision.csv")
        if (airports.landing / entity / f"load_date={row['load_date']}").is_dir()
    }


def same(text: str | None, value: Any) -> bool:
    """Whether a typed value is the published text."""
    if text is None or value is None:
        return text is value
    if isinstance(value, bool):
        return text == str(int(value))
    if isinstance(value, Decimal):
        return Decimal(text) == value
    if isinstance(value, int | float):
        return float(text) == value
    return bool(text == value)


def versions(rows: Iterable[dict[str, Any]], key: str) -> dict[tuple[int, int], dict[str, Any]]:
    """Rows of a history by key and number of the version."""
    by_key = defaultdict(list)
    for row in rows:
        by_key[row[key]].append(row)
    return {
        (k, number): row
        for k, history in by_key.items()
        for number, row in enumerate(sorted(history, key=lambda r: r["dbt_valid_from"]), start=1)
    }


def day(moment: datetime | None) -> date | None:
    return moment.date() if moment else None


@only_long
@pytest.mark.parametrize("entity", ENTITIES)
def test_the_history_is_the_true_one(airports: Pipeline, entity: str) -> None:
    found = versions(airports.rows(f"snp_airports__{entity}"), ENTITIES[entity])
    truth = pq.read_table(DATA / "expected" / entity / "scd2.parquet").to_pylist()
    assert len(found) == len(truth)
    not_values = {
        "id", "version", "valid_from", "valid_to", "is_current", "is_deleted", "closed_by",
        "row_sha256",
    }  # fmt: skip
    for row in truth:
        version = found[int(row["id"]), row["version"]]
        assert day(version["dbt_valid_from"]) == row["valid_from"], row
        assert day(version["dbt_valid_to"]) == row["valid_to"], row
        assert version["row_hash"] == row["row_sha256"], row
        for column, text in row.items():
            if column not in not_values:
                assert same(text, version[RENAMED.get(column, column)]), (column, row)


@only_long
def test_the_runway_inventory_is_the_true_one(airports: Pipeline) -> None:
    found = {
        (str(row["load_date"]), str(int(row["is_lighted"])), str(int(row["is_closed"]))): (
            row["runways"],
            row["total_length_ft"],
        )
        for row in airports.rows("fct_runway_inventory")
    }
    assert found == {
        (row["load_date"], row["lighted"], row["closed"]): (
            int(row["runways"]),
            int(row["total_length_ft"]),
        )
        for row in expected("marts/runway_inventory.csv")
    }


@only_long
def test_the_frequency_types_are_the_true_ones(airports: Pipeline) -> None:
    found = {
        (str(row["load_date"]), row["frequency_type"] or ""): row["frequencies"]
        for row in airports.rows("fct_frequency_types")
    }
    assert found == {
        (row["load_date"], row["type"]): int(row["frequencies"])
        for row in expected("marts/frequency_types.csv")
    }
