"""dbt builds one state from many deliveries of the same events: shuffled, twice, late, discarded.

One project holds all kinds of tables, each as two: ``once`` gets its events sorted and in one
load, ``bits`` gets them shuffled over four loads, of which some are discarded and read again. A
whole event set is one case, so that few builds test many situations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Project
from helpers.reference_model import Events, Row, attempts, deliver, event_set, in_order, rows_of
from tests.functional.cdc.logs import assert_true, by_key, log_table, said

BATCHES = 4
SIZE = {"keys": 120, "changes": 1200}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pair": {"key": ("id", "part"), "truncates": 0, "loads": 0},
    "partial": {"partial": True, "truncates": 2, "loads": 2},
    "tied": {"tied": True},
}

RAW = """
    def model(dbt, session):
        dbt.config(materialized="incremental", partition_by=["_kind", "_load_date"])
        return session.read.parquet("{path}")
"""
CDC = """
    from sparkwap import cdc


    def model(dbt, session):
        dbt.config(materialized="incremental", incremental_strategy="merge", unique_key={key})
        return cdc.model(dbt, session, dbt.ref("{raw}"))
"""
MODELS = """
    models:
      - name: {name}
        config: {{meta: {{cdc: {{key: {key}, partial: {partial}}}}}}}
        data_tests: [not_null: {{arguments: {{column_name: {first}}}}}]
"""


@dataclass
class Case:
    """One kind of table: what happened, and what was delivered to its two tables."""

    name: str
    events: Events
    once: list[Row]
    bits: list[list[Row]]

    @property
    def partial(self) -> bool:
        return bool(KINDS[self.name].get("partial"))


def case(name: str) -> Case:
    events = event_set(len(name), **SIZE, **KINDS[name])
    how = {"shuffle": name != "tied", "batches": BATCHES}
    return Case(name, events, rows_of(in_order(events)), deliver(events, 7, **how))


@dataclass
class Lived:
    """The project after its builds."""

    project: Project
    cases: dict[str, Case]

    def hand_over(self, name: str, rows: list[Row]) -> None:
        """Put the rows of the next load where the raw model reads them."""
        case = self.cases[name.split("_")[0]]
        pq.write_table(log_table(rows, case.events.columns), self.path(name))

    def path(self, name: str) -> Path:
        return self.project.folder / f"{name}.parquet"


@pytest.fixture(scope="module")
def lived(make_project: MakeProject, request: pytest.FixtureRequest) -> Iterator[Lived]:
    asked = _kinds(request)
    cases = {name: case(name) for name in KINDS if name in asked}
    project = make_project("deliveries", {})
    life = Lived(project, cases)
    for name, one in cases.items():
        key = list(one.events.key)
        for table in (f"{name}_once", f"{name}_bits"):
            text = MODELS.format(name=f"cdc_{table}", key=key, partial=one.partial, first=key[0])
            project.write(
                {
                    f"models/raw_{table}.py": RAW.format(path=life.path(table)),
                    f"models/cdc_{table}.py": CDC.format(key=key, raw=f"raw_{table}"),
                    f"models/cdc_{table}.yml": text,
                }
            )
            life.hand_over(table, one.once if table.endswith("once") else [])
    steps = {name: list(attempts(one.bits, 3)) for name, one in cases.items()}
    # All tables are built together: a load of one is discarded when that of all is.
    for number in range(BATCHES):
        discarded = {
            name: next((r for r, kept in steps[name] if not kept and _number(r) == number + 1), [])
            for name in cases
        }
        if any(discarded.values()) and number:
            for name, rows in discarded.items():
                life.hand_over(f"{name}_bits", rows)
            held = project.dbt("build", "-s", "*_bits", wap_publish="never").succeeded()
            project.operation("wap_discard", branch=held.branch).succeeded()
        for name, one in cases.items():
            life.hand_over(f"{name}_bits", one.bits[number])
        project.dbt("build", *(("-s", "*_bits") if number else ())).succeeded()
    yield life


def _kinds(request: pytest.FixtureRequest) -> set[str]:
    """The kinds that the tests to run look at: in `make test`, one only."""
    asked: set[str] = set()
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.path == request.path:
            asked |= {item.callspec.params["kind"]} if hasattr(item, "callspec") else set(KINDS)
    return asked


def _number(rows: list[Row]) -> int:
    return int(rows[0]["_batch"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("table", ["once", "bits"])
def test_the_state_is_the_true_one(lived: Lived, reader: Reader, kind: str, table: str) -> None:
    one = lived.cases[kind]
    log = one.once if table == "once" else rows_of(one.bits)
    found = reader.table(lived.project.schema, f"cdc_{kind}_{table}").rows
    assert_true(found, log, one.events.key, one.events.columns)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.smoke] * (kind == "partial")) for kind in KINDS],
)
def test_the_delivery_does_not_matter(lived: Lived, reader: Reader, kind: str) -> None:
    events = lived.cases[kind].events
    once, bits = (
        by_key(reader.table(lived.project.schema, f"cdc_{kind}_{table}").rows, events.key)
        for table in ("once", "bits")
    )
    assert {k: said(row, events.columns) for k, row in once.items()} == {
        k: said(row, events.columns) for k, row in bits.items()
    }
    assert {
        k: tuple(row[c] for c in events.columns if c not in events.key)
        for k, row in bits.items()
        if not row["_is_deleted"]
    } == {k: tuple(row.values()) for k, row in events.table.items()}


def test_a_build_without_news_changes_nothing(lived: Lived, reader: Reader) -> None:
    schema = lived.project.schema
    for name in lived.cases:
        lived.hand_over(f"{name}_bits", [])
    before = {name: look.seen() for name, look in reader.look(schema).items()}
    lived.project.dbt("build", "-s", "*_bits").succeeded()
    assert {name: look.seen() for name, look in reader.look(schema).items()} == before


def test_an_increment_reads_no_old_rows(lived: Lived, reader: Reader) -> None:
    """They are not even there any more; this test comes last."""
    project, one = lived.project, lived.cases["pair"]
    log = reader.catalog.load_table((project.schema, "raw_pair_bits"))
    old = [f.file.file_path for f in log.scan("_kind = 'row'").plan_files()]
    assert old
    for path in old:
        Path(path.removeprefix("file://").removeprefix("file:")).unlink()
    again = [{**row, "_file_path": f"z/{row['_file_path']}"} for row in one.bits[0]]
    last = max(row["_sequence"] for row in rows_of(one.bits) if row["_kind"] == "row")
    changed = {**again[0], "_op": "update", "_sequence": f"{last}9", "a": "new", "_row": 10_000}
    lived.hand_over("pair_bits", [{**row, "_batch": BATCHES + 1} for row in (*again, changed)])
    meta = {"cdc": {"key": list(one.events.key), "truncates": False}}
    project.write({"models/cdc_pair_bits.yml": _models_yml("cdc_pair_bits", meta)})
    project.dbt("build", "-s", "raw_pair_bits", "cdc_pair_bits").succeeded()
    state = reader.catalog.load_table((project.schema, "cdc_pair_bits"))
    found = by_key(state.scan().to_arrow().to_pylist(), one.events.key)
    row = found[tuple(changed[k] for k in one.events.key)]
    assert (row["a"], row["_sequence"]) == ("new", changed["_sequence"])


def _models_yml(name: str, meta: dict[str, Any]) -> str:
    tests = "[not_null: {arguments: {column_name: id}}]"
    return f"models: [{{name: {name}, config: {{meta: {meta}}}, data_tests: {tests}}}]\n".replace(
        "False", "false"
    )
