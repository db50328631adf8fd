"""The adapter's methods for macros of histories, and a macro that uses them, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import agate
import jinja2
import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap.dbt_nodes import maintenance_rules
from dbt.adapters.sparkwap.erasing import node_columns
from dbt.adapters.sparkwap.histories import Histories
from sparkwap.cdc import history

EXTEND = Path(__file__).parents[3] / "macros" / "wap" / "write" / "wap_extend_history.sql"
TYPES = {
    "id": "int", "name": "string", "_op": "string", "_sequence": "string",
    "_event_time": "timestamp", "_file_path": "string", "_row": "bigint", "_part": "int",
    "_batch": "bigint",
}  # fmt: skip


class Adapter(Histories):
    """Histories with connections that return given answers."""

    def __init__(self, *answers: list[Any]) -> None:
        itself: Any = self
        self.properties: dict[str, str] = {}
        command = SimpleNamespace(connections=self, lake=SimpleNamespace(state=lambda name: self))
        super().__init__(cast(Any, command), itself, self.columns)
        self.sent: list[str] = []
        self.told: list[tuple[str, str]] = []
        self._answers = list(answers)

    def execute(self, sql: str, fetch: bool) -> tuple[None, agate.Table]:
        assert fetch
        self.sent.append(sql)
        if sql.startswith(("cache", "drop")):
            return None, agate.Table([], [])
        row = self._answers.pop(0)
        return None, agate.Table([row], [f"c{n}" for n in range(len(row))])

    def query_types(self, sql: str) -> list[tuple[str, str]]:
        return list(TYPES.items())

    def columns(self, relation: Any) -> list[Any]:
        return [SimpleNamespace(name="size", dtype="int")]

    def tell(self, node: str, notice: str) -> None:
        self.told.append((node, notice))


def model(**config: Any) -> dict[str, Any]:
    return {
        "name": "dim", "schema": "s", "alias": "dim", "unique_id": "model.shop.dim",
        "config": {"unique_key": "id", **config},
    }  # fmt: skip


def build(adapter: Any, **config: Any) -> history.HistoryBuild:
    found: history.HistoryBuild = adapter.history(model(**config), "select log", None)
    return found


def extended(built: history.HistoryBuild) -> tuple[list[str], list[str]]:
    """Render the macro that extends a history.

    Returns:
        The main statements, and the results that the macro has stored itself.
    """
    main: list[str] = []
    stored: list[str] = []
    environment = jinja2.Environment(extensions=["jinja2.ext.do"])
    environment.globals |= {
        "wap_temporary_view": lambda relation, sql: "shape",
        "wap_place_increment": lambda relation, shape, change: built.history.columns,
        "invocation_id": "0123456789",
        "statement": lambda name, caller: main.append(caller()) or "",
        "store_raw_result": lambda name, **result: stored.append(name),
    }
    macro: Any = environment.from_string(EXTEND.read_text()).module
    relation = SimpleNamespace(identifier="dim", __str__=lambda: "s.dim")
    macro.wap_extend_history(relation, built, "ignore")
    return main, stored


def test_a_history_with_changes_is_merged_and_leaves_nothing_staged() -> None:
    adapter = Adapter([7, 0], [2, 8, "1", None, 0], [0, None, None, 0, None, None], [1])
    main, stored = extended(build(adapter))
    assert (len(main), stored) == (1, [])
    assert "using dim_01234567_changes as DBT_INTERNAL_SOURCE" in main[0]
    staged = [sql.split()[3] for sql in adapter.sent if sql.startswith("cache")]
    dropped = [sql.split()[-1] for sql in adapter.sent if sql.startswith("drop")]
    assert staged == [f"dim_01234567_{name}" for name in ("increment", "keys", "changes")]
    assert set(staged) < set(dropped)


def test_a_history_without_changes_still_stores_a_result() -> None:
    adapter = Adapter([7, 0], [0, None, None, None, 0])
    assert extended(build(adapter)) == ([], ["main"])


@pytest.mark.parametrize(("erased", "first"), [({}, 40), ({history.HIGHEST: "43"}, 43)])
def test_no_version_gets_the_number_of_an_erased_one(erased: dict[str, str], first: int) -> None:
    adapter = Adapter([7, 40, 0], [2, 8, "1", None, 0], [0, None, None, 0, None, None], [1])
    adapter.properties = erased
    extended(build(adapter, surrogate_key=True))
    (changes,) = [sql for sql in adapter.sent if sql.startswith("cache lazy table dim_01234567_ch")]
    assert f"coalesce(_number, {first} + row_number()" in changes


def test_errors_are_raised_as_errors_of_dbt() -> None:
    adapter: Any = Adapter()
    with pytest.raises(DbtRuntimeError, match="cannot be built; nothing was written"):
        build(adapter, grain="week")
    with pytest.raises(DbtRuntimeError, match="scd2_restate"):
        adapter.history(model(), "select log", "dim")


def test_values_widen_the_columns_of_events_and_states() -> None:
    events, states = Adapter([7, 0], [3]), Adapter([4])
    columns = {"size": "cast(size as int)", "name": "name"}
    any_events: Any = events
    found = any_events.widened_events(model(), columns, "s.dim", "log", None)
    assert found == {"size": "cast(size as bigint)", "name": "name"}
    assert events.sent[-1].endswith("from log where _kind = 'row' and _batch > 7")
    any_states: Any = states
    assert any_states.widened_type(model(), "n", "int", "size", None, "s") == "bigint"
    assert any_states.widened_type(model(), "n", "bigint", "size", None, "s") == "bigint"
    told = "values do not fit int; its type is now bigint"
    assert events.told == [("model.shop.dim", f"column size: 3 {told}")]
    assert states.told == [("model.shop.dim", f"column n: 4 {told}")]


def test_a_table_of_whose_snapshots_a_node_makes_a_history_keeps_them() -> None:
    def node(name: str, macro: str, *parents: str) -> SimpleNamespace:
        return SimpleNamespace(
            unique_id=name, resource_type="model", schema="s", alias=name, columns={}, meta={},
            config={"wap_maintain": {"keep_days": 3}},
            depends_on=SimpleNamespace(macros=[f"macro.{macro}"], nodes=list(parents)),
        )  # fmt: skip

    def macro(*called: str) -> SimpleNamespace:
        return SimpleNamespace(depends_on=SimpleNamespace(macros=[f"macro.{n}" for n in called]))

    macros = {"sparkwap.scd2_from_changes": [], "p.own": ["sparkwap.scd2_from_changes"]}
    manifest = SimpleNamespace(
        nodes={
            one.unique_id: one
            for one in (
                node("state", "p.other"),
                node("past", "sparkwap.scd2_from_changes", "state"),
                node("people", "p.other", "state"),
                node("past_people", "p.own", "people"),
            )
        },
        macros={f"macro.{name}": macro(*called) for name, called in macros.items()},
    )
    kept = {name: rules.keep_days for (_, name), rules in maintenance_rules(manifest).items()}
    assert kept == {"state": 36_500, "past": 3, "people": 36_500, "past_people": 3}
    marked = {one.node_id for one in node_columns(manifest) if one.has_history}
    assert marked == {"state", "people"}
