"""What an erasure gets from the project."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dbt.adapters.sparkwap.erasing import keep_numbers
from sparkwap.cdc import history


def test_the_highest_numbers_are_kept_before_an_erasure() -> None:
    config = SimpleNamespace(materialized="scd2", extra={"surrogate_key": True})
    nodes = {name: SimpleNamespace(schema="s", alias=name, config=config) for name in "abcd"}
    columns = [SimpleNamespace(name=name) for name in ("id", "version_key", "_batch")]

    def table(name: str, **properties: Any) -> SimpleNamespace:
        return SimpleNamespace(identifier=("s", name), properties=properties, columns=columns)

    states = {("s", name): table(name) for name in "acd"}
    states["s", "b"] = table("b", **{history.HIGHEST: "44"})
    states["s", "c"].columns = columns[:1]  # its config is newer
    sent: list[str] = []
    command: Any = SimpleNamespace(
        connections=SimpleNamespace(rows_of=lambda sql: sent.append(sql) or [(7, 43, 0)]),
        dbt_manifest=lambda: SimpleNamespace(nodes=nodes),
        lake=SimpleNamespace(state=states.get),
    )
    keep_numbers(command, [("s", name) for name in "abc"])
    assert not [sql for sql in sent if "`c`" in sql or "`d`" in sql]
    assert [sql for sql in sent if sql.startswith("alter")] == [
        f"alter table `s`.`a` set tblproperties ('{history.HIGHEST}' = '43')"
    ]
