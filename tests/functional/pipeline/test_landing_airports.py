"""Real change data, badly delivered, in both shapes: what is bad is found, and nothing else."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import pytest
from helpers.airports import (
    CLEAN,
    DIRTY,
    FIRST,
    FORMATS,
    change_files,
    deliver,
    expected,
    facts,
    is_parquet,
    needs_airports,
)
from helpers.landing import LandingProject, make_landing_project

if TYPE_CHECKING:
    from helpers.lake import Reader
    from helpers.project import MakeProject, Outcome

ENTITIES = ("regions", "countries", "sp500_constituents")
if "SOAK" in os.environ:
    ENTITIES = (*ENTITIES, "airport_frequencies", "runways")
SHAPES: dict[str, dict[str, Any]] = {
    "dms": {
        "format": "csv",
        "load_date": r"^(\d{8})-",
        "operation": "Op",
        "codes": {"I": "insert", "U": "update", "D": "delete"},
        "sequence": {"last_update_time": "timestamp", "change_seq": "decimal(35)"},
    },
    "debezium": {"format": "debezium", "load_date": r"^\d{4}_(\d{8})"},
}

pytestmark = needs_airports


def model(entity: str, shape: str, dirt: str) -> str:
    return f"{dirt}_{shape}_{entity}"


def entry(entity: str, shape: str, dirt: str) -> dict[str, Any]:
    known = facts(entity)
    integers = known["int_cols"]
    return {
        **SHAPES[shape],
        **({"format": "parquet"} if is_parquet(entity, shape, dirt) else {}),
        "entity": entity,
        "kind": "changes",
        "path": f"{dirt}/{entity}/{shape}",
        "key": [known["key"]],
        "columns": {c: "bigint" if c in integers else "string" for c in known["columns"]},
        "renames": known["rename"],
        "files": [{"match": FIRST[shape], "load": "full"}, {"match": "*", "load": "changes"}],
        "threshold": 8,
    }


@pytest.fixture(scope="module")
def airports(make_project: MakeProject, reader: Reader) -> tuple[LandingProject, Outcome]:
    cases = [(e, s, d) for e in ENTITIES for s in FORMATS for d in (CLEAN, DIRTY)]
    entries = {model(*case): entry(*case) for case in cases}
    clean = [model(*case) for case in cases if case[2] == CLEAN]
    project = make_landing_project(make_project, reader, "air", entries, bare=clean)
    for entity, shape, dirt in cases:
        for files in change_files(entity, shape, dirt):
            for file in files:
                deliver(file, project.landing / dirt / entity / shape, dirt)
    done = project.build().succeeded()
    return project, done


@pytest.mark.parametrize("shape", FORMATS)
@pytest.mark.parametrize("entity", ENTITIES)
def test_what_is_malformed_is_quarantined(
    airports: tuple[LandingProject, Outcome], entity: str, shape: str
) -> None:
    project, _ = airports
    rows = project.rows(f"quarantine_{model(entity, shape, 'cdc_dirty')}")
    found = {(row["file_path"].rpartition("/")[2], row["line"]) for row in rows}
    assert found == {
        (row["file"], int(row["line"]))
        for row in expected(f"{entity}/dirty/malformed.csv")
        if row["format"] == shape
    }
    assert len(rows) == len(found)
    assert project.rows(f"raw_{model(entity, shape, 'cdc')}", "bad") == []


@pytest.mark.parametrize("shape", FORMATS)
@pytest.mark.parametrize("entity", ENTITIES)
def test_the_state_is_the_true_one_clean_and_dirty(
    airports: tuple[LandingProject, Outcome], entity: str, shape: str
) -> None:
    project, _ = airports
    truth = expected(f"{entity}/counts_per_revision.csv")[-1]
    for dirt in (CLEAN, DIRTY):
        name = model(entity, shape, dirt)
        (key,) = project.entries[name]["key"]
        live = [row for row in project.rows(f"cdc_{name}") if row["row_hash"]]
        lines = sorted(f"{row[key]}\x1f{row['row_hash']}\n".encode() for row in live)
        digest = hashlib.sha256(b"".join(lines)).hexdigest()
        assert (len(live), digest) == (int(truth["rows"]), truth["state_sha256"]), dirt


def test_columns_that_came_and_changed_their_names_are_told(
    airports: tuple[LandingProject, Outcome],
) -> None:
    project, done = airports
    told = [line for line in done.text.splitlines() if "raw_cdc_dms_sp500" in line]
    assert any("columns renamed" in line and "'Security' is 'security'" in line for line in told)
    assert any("columns missing, filled with NULL: 'cik'" in line for line in told)
    rows = project.rows(f"raw_{model('sp500_constituents', 'dms', 'cdc')}", "row")
    assert {row["founded"] is None for row in rows if row["_load_date"].year < 2023} == {True}
