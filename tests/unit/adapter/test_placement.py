"""The placement of a command's nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap.placement import Placement
from dbt.adapters.sparkwap.relation import SparkWapRelation
from sparkwap.catalog import Identifier
from sparkwap.runs.types import RunNotes


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("orders", "model.p.orders"),
        ("lines", "model.other.lines"),
        ("dropped", None),
        ("stored", None),
    ],
)
def test_stored_failures_replace_only_stored_failures(name: str, owner: str | None) -> None:
    published = {("s", one): f"model.other.{one}" for one in ("lines", "dropped")}
    nodes = {("s", "orders"): "model.p.orders"}
    live = {("s", "lines"), ("s", "stored")}
    placed: list[Identifier] = []
    run = SimpleNamespace(
        candidates=SimpleNamespace(
            place_beside=lambda one, kind: placed.append(one) or SimpleNamespace(how="side")
        )
    )
    lake = SimpleNamespace(
        state=lambda one: one if one in live else None,
        ledger=SimpleNamespace(owners=lambda: published),
        store=SimpleNamespace(backend=SimpleNamespace(atomic=True)),
    )
    command = SimpleNamespace(
        manifest=SimpleNamespace(owner=nodes.get),
        lake=lake,
        credentials=SimpleNamespace(embedded=True),
    )
    placement = Placement(cast(Any, SimpleNamespace(command=command, current=lambda: run)))
    relation = SparkWapRelation.create(schema="s", identifier=name, type="table")
    if owner is None:
        assert placement.place_failures(relation) == "side"
        assert placed == [("s", name)]
        return
    with pytest.raises(DbtRuntimeError, match=f"stored as s.{name}, which is the table of {owner}"):
        placement.place_failures(relation)
    assert placed == []


DAYS = {"partition_by": ["days(d)"], "properties": {"a": "b"}}


@pytest.mark.parametrize(
    ("partitions", "layout", "strategy", "told"),
    [
        ((), DAYS, "insert_overwrite", "error"),
        (("months(d)",), DAYS, "insert_overwrite", "error"),
        (("days(d)",), {"partition_by": None}, "insert_overwrite", "error"),
        (("day(d)",), DAYS, "insert_overwrite", ""),
        (
            ("region", "days(d)"),
            {"partition_by": ["days(d)", "region"]},
            "insert_overwrite",
            "partitioning: region, days(d) -> days(d), region",
        ),
        (("months(d)",), DAYS, "merge", "partitioning: months(d) -> days(d)"),
        (("days(d)",), {**DAYS, "properties": {"a": "c"}}, "merge", "property a: b -> c"),
    ],
)
def test_a_layout_that_an_existing_table_does_not_have_is_told(
    partitions: tuple[str, ...], layout: dict[str, Any], strategy: str, told: str
) -> None:
    state = SimpleNamespace(
        columns=(),
        partitioning=partitions,
        sort_order=(),
        properties={"a": "b"},
        format_version=2,
        comment=None,
    )
    run = SimpleNamespace(notes=RunNotes())
    runs = SimpleNamespace(command=None, current=lambda: run, state=lambda one: state)
    placement = Placement(cast(Any, runs))
    relation = SparkWapRelation.create(schema="s", identifier="t", type="table")
    if told == "error":
        with pytest.raises(DbtRuntimeError, match=r"Rows .* would be lost.*--select t"):
            placement.check_layout(relation, layout, {}, "model.shop.t", strategy)
        return
    for _ in range(2):
        placement.check_layout(relation, layout, {}, "model.shop.t", strategy)
    (notice,) = run.notes.notices.get("model.shop.t", [""])
    assert told in notice and bool(told) == bool(notice)


def test_values_that_are_cast_to_the_types_of_the_table_are_told() -> None:
    kept = {"Price": "decimal(10,2)", "n": "decimal(12,0)", "small": "int", "other": "string"}
    columns = [SimpleNamespace(name=name, type=kind) for name, kind in kept.items()]
    run = SimpleNamespace(notes=RunNotes())
    state = SimpleNamespace(columns=columns, properties={})
    runs = SimpleNamespace(command=None, current=lambda: run, state=lambda one: state)
    placement = Placement(cast(Any, runs))
    relation = SparkWapRelation.create(schema="s", identifier="t", type="table")
    given = {"price": "decimal(10,4)", "n": "int", "small": "smallint", "other": "void"}
    for _ in range(2):
        placement.check_layout(relation, {}, given, "snapshot.shop.t", "")
    (notice,) = run.notes.notices["snapshot.shop.t"]
    assert notice.endswith(
        "may round them: Price from decimal(10,4) to decimal(10,2); "
        "to change the table: alter it outside of dbt, if Iceberg can widen the type"
    )
