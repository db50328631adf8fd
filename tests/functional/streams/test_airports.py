"""Real changes as Debezium sends them, badly delivered through Kafka, end in the known truth."""

from __future__ import annotations

import gzip
import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from helpers.airports import DATA, DIRTY, change_files, expected, facts, needs_airports

from .conftest import MakeStreams

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.kafka import Broker
    from helpers.landing import LandingProject

pytestmark = needs_airports

ENTITIES = ("regions", "sp500_constituents")
RUNS = 3
Places = dict[int, tuple[str, int]]


def messages(file: Path) -> list[bytes]:
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rb") as lines:
        return [line.rstrip(b"\n") for line in lines]


def entry(entity: str) -> dict[str, Any]:
    known = facts(entity)
    return {
        "entity": entity,
        "kind": "stream",
        "topic": f"air.{entity}",
        "format": "debezium",
        "key": [known["key"]],
        "columns": {c: "bigint" if c in known["int_cols"] else "string" for c in known["columns"]},
        "renames": {o: n for o, n in known["rename"].items() if o not in known["columns"]},
        "threshold": 0.9,
    }


@pytest.fixture(scope="module")
def built(broker: Broker, make_streams: MakeStreams) -> tuple[LandingProject, dict[str, Places]]:
    """The project after some runs, and the line of a file that each message is, by its offset."""
    project = make_streams({entity: entry(entity) for entity in ENTITIES})
    places: dict[str, Places] = {entity: {} for entity in ENTITIES}
    parts = {}
    for entity in ENTITIES:
        known = facts(entity)
        broker.create(f"air.{entity}")
        columns = {c: f"`{c}`" for c in known["columns"]}
        config = f"materialized='scd2', unique_key='{known['key']}', grain='date'"
        project.project.write({
            f"models/scd2_{entity}.sql": f"{{{{ config({config}) }}}}\n"
            f"{{{{ change_events(ref('raw_{entity}'), columns={columns!r}) }}}}\n"
        })  # fmt: skip
        loads, changes = change_files(entity, "debezium", DIRTY)
        files = [*loads, *changes]
        size = -(-len(files) // RUNS)
        parts[entity] = [files[i : i + size] for i in range(0, len(files), size)]
    for run in range(RUNS):
        for entity in ENTITIES:
            for file in parts[entity][run]:
                lines = messages(file)
                offsets = broker.send(f"air.{entity}", lines)
                for number, offset in enumerate(offsets, start=1):
                    places[entity][offset] = (file.name, number)
        project.build().succeeded()
    return project, places


@pytest.mark.parametrize("entity", ENTITIES)
def test_the_state_is_the_true_one(
    built: tuple[LandingProject, dict[str, Places]], entity: str
) -> None:
    project, places = built
    truth = expected(f"{entity}/counts_per_revision.csv")[-1]
    live = [row for row in project.rows(f"cdc_{entity}") if row["row_hash"]]
    lines = sorted(f"{row[facts(entity)['key']]}\x1f{row['row_hash']}\n".encode() for row in live)
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    assert (len(live), digest) == (int(truth["rows"]), truth["state_sha256"])
    read = [row["_row"] for row in project.rows(f"raw_{entity}") if row["_row"] is not None]
    assert set(read) == places[entity].keys()


@pytest.mark.parametrize("entity", ENTITIES)
def test_the_history_is_the_true_one(
    built: tuple[LandingProject, dict[str, Places]], entity: str
) -> None:
    project, _ = built
    columns = (*facts(entity)["columns"], "version", "valid_from", "valid_to", "is_current")
    truth = table(pq.read_table(DATA / "expected" / entity / "scd2.parquet").to_pylist(), columns)
    found = table(project.rows(f"scd2_{entity}"), columns)
    assert [*(found - truth)][:3] == [*(truth - found)][:3] == []


@pytest.mark.parametrize("entity", ENTITIES)
def test_what_is_malformed_is_quarantined(
    built: tuple[LandingProject, dict[str, Places]], entity: str
) -> None:
    project, places = built
    found = {places[entity][row["line"]] for row in project.rows(f"quarantine_{entity}")}
    assert found == {
        (row["file"], int(row["line"]))
        for row in expected(f"{entity}/dirty/malformed.csv")
        if row["format"] == "debezium"
    }


def table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    """Rows as text, and how often each is there."""
    return Counter(tuple(None if row[c] is None else str(row[c]) for c in columns) for row in rows)
