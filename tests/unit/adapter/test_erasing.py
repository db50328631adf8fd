"""What an erasure gets from the project."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dbt.adapters.sparkwap.erasing import keep_numbers
from sparkwap.cdc import history


def test_the_highest_numbers_are_kept_before_an_erasure() -> None:
    config = SimpleNamespace(materialized="scd2", extra={"surrogate_key": True})
    nodes = {name: SimpleNamespace(schema="s", alias=name, config=config) for name in ("a", "b")}
    states = {
        ("s", "a"): SimpleNamespace(identifier=("s", "a"), main=1, properties={}),
        ("s", "b"): SimpleNamespace(
            identifier=("s", "b"), main=1, properties={history.HIGHEST: "44"}
        ),
    }
    sent: list[str] = []
    command: Any = SimpleNamespace(
        connections=SimpleNamespace(rows_of=lambda sql: sent.append(sql) or [(7, 43, 0)]),
        dbt_manifest=lambda: SimpleNamespace(nodes=nodes),
        lake=SimpleNamespace(state=states.get),
    )
    keep_numbers(command)
    assert [sql for sql in sent if sql.startswith("alter")] == [
        f"alter table `s`.`a` set tblproperties ('{history.HIGHEST}' = '43')"
    ]
