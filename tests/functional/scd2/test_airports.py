"""Real changes, as DMS and Debezium deliver them, clean and dirty, give the known history.

SOAK=1 takes the larger tables too, and each in all shapes and states.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.airports import (
    CLEAN,
    DATA,
    DIRTY,
    FIRST,
    FORMATS,
    change_files,
    deliver,
    facts,
    is_parquet,
    needs_airports,
)
from helpers.lake import Reader
from helpers.landing import LandingProject, make_landing_project
from helpers.project import MakeProject

ENTITIES = ("countries", "regions", "sp500_constituents", "airport_frequencies", "runways")
STATES = (CLEAN, DIRTY)
EVERYTHING = [f"{e}_{f}_{s}" for e in ENTITIES for f in FORMATS for s in STATES]
REPRESENTATIVE = [
    *(f"{entity}_{form}_cdc_dirty" for entity in ENTITIES[:3] for form in FORMATS),
    "countries_dms_cdc",
    "sp500_constituents_debezium_cdc",
]
GROUPS = (
    [[name for name in EVERYTHING if name.startswith(f"{e}_")] for e in ENTITIES]
    if os.environ.get("SOAK")
    else [REPRESENTATIVE]
)

pytestmark = needs_airports

DMS = {
    "format": "csv",
    "operation": "Op",
    "codes": {"I": "insert", "U": "update", "D": "delete"},
    "sequence": {"last_update_time": "timestamp", "change_seq": "decimal(35)"},
    "files": [{"match": FIRST["dms"], "load": "full"}, {"match": "*", "load": "changes"}],
}


def entry(folder: str) -> dict[str, Any]:
    name, form, state = split(folder)
    known = facts(name)
    dms = {**DMS, "format": "parquet"} if is_parquet(name, form, state) else DMS
    published = [c for c in known["rename"] if c not in known["columns"]]
    renames = {old: known["rename"][old] for old in published}
    return {
        "entity": folder,
        "kind": "changes",
        "key": [known["key"]],
        "columns": dict.fromkeys(known["columns"], "string"),
        "threshold": 0.9,
        **({"renames": renames} if renames else {}),
        **(dms if form == "dms" else {"format": "debezium"}),
    }


def deliver_half(project: LandingProject, names: Sequence[str], first: bool) -> None:
    """The full load and half of the changes, or the rest."""
    for name in names:
        loads, changes = change_files(*split(name))
        half = len(changes) // 2
        for file in [*loads, *changes[:half]] if first else changes[half:]:
            deliver(file, project.landing / name, split(name)[2])


def split(name: str) -> tuple[str, str, str]:
    return next(
        (of_entity, form, state)
        for of_entity in ENTITIES
        for form in FORMATS
        for state in STATES
        if name == f"{of_entity}_{form}_{state}"
    )


class Histories(LandingProject):
    """Raw logs and their histories only: an audit that is not run would hold them."""

    def _properties(self) -> Any:
        return (one for one in super()._properties() if one["name"].startswith("raw_"))


@pytest.fixture(scope="module", params=GROUPS, ids=" ".join)
def built(
    request: pytest.FixtureRequest, make_project: MakeProject, reader: Reader
) -> LandingProject:
    """All of one group, in one project."""
    entries = {name: entry(name) for name in request.param}
    made = make_landing_project(make_project, reader, "airports_scd2", entries)
    project = Histories(made.project, made.reader, made.entries)
    for name in entries:
        known = facts(split(name)[0])
        columns = {c: f"`{c}`" for c in known["columns"]}
        config = f"materialized='scd2', unique_key='{known['key']}', grain='date'"
        project.project.write({
            f"models/scd2_{name}.sql": f"{{{{ config({config}) }}}}\n"
            f"{{{{ change_events(ref('raw_{name}'), columns={columns!r}) }}}}\n"
        })  # fmt: skip
    for first in (True, False):
        deliver_half(project, list(entries), first)
        project.build("-s", "raw_*", "scd2_*", "--indirect-selection", "cautious").succeeded()
    return project


def test_histories_equal_the_truth(built: LandingProject) -> None:
    for name in built.entries:
        known = facts(split(name)[0])
        columns = (*known["columns"], "version", "valid_from", "valid_to", "is_current")
        truth = pq.read_table(DATA / "expected" / split(name)[0] / "scd2.parquet").to_pylist()
        found, true = table(built.rows(f"scd2_{name}"), columns), table(truth, columns)
        # Not the whole of it: pytest would compare tens of thousands of lines for an hour.
        assert [*(found - true)][:3] == [*(true - found)][:3], name


def table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    """Rows as text, and how often each is there."""
    texts = [tuple(None if row[c] is None else str(row[c]) for c in columns) for row in rows]
    return Counter(texts)
