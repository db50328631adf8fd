"""Unit tests of the rows that an incremental model or a snapshot has after the build."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.catalogs import VIEW
from helpers.documents import blocks
from helpers.lake import Look, Reader
from helpers.project import MakeProject, Outcome, Project

Rows = Sequence[Mapping[str, Any]] | str

# Not every catalog has views.
SETTINGS = {"models": {"+materialized": VIEW}}


def _model(columns: str = "id, v, note", **config: Any) -> str:
    given = json.dumps({"materialized": "incremental", **config})
    return f"{{{{ config(**{given}) }}}}\nselect {columns} from {{{{ ref('feed') }}}}"


MODELS = {
    "models/feed.sql": "select 1 as id, 'a' as v, 'x' as note, date'2026-01-01' as day",
    "models/merged.sql": _model(incremental_strategy="merge", unique_key="id")
    + " {% if is_incremental() %} where id >= (select min(id) from {{ this }}) {% endif %}",
    "models/chosen.sql": _model(
        incremental_strategy="merge",
        unique_key="id",
        merge_update_columns=["v"],
        incremental_predicates=["DBT_INTERNAL_DEST.id < 10"],
    ),
    "models/appended.sql": _model(),
    "models/replaced.sql": _model(incremental_strategy="delete+insert", unique_key=["id"]),
    "models/by_day.sql": _model(
        "id, day", incremental_strategy="insert_overwrite", partition_by="day"
    ),
    "models/grown.sql": _model(
        "id, v",
        incremental_strategy="merge",
        unique_key="id",
        on_schema_change="append_new_columns",
    ),
    "models/own.sql": _model("id, v", incremental_strategy="at_most_once"),
    "models/placed.sql": _model(
        "id, v",
        on_schema_change="append_new_columns",
        tblproperties={"write.wap.enabled": "true"},
        persist_docs={"relation": True, "columns": True},
        contract={"enforced": True},
    ),
    "models/batches.sql": _model(
        "id, day",
        incremental_strategy="microbatch",
        event_time="day",
        begin="2026-01-01",
        batch_size="year",
    ),
    "models/properties.yml": """
        models:
          - name: placed
            description: a contract, and a folder of its own
            config: {location_root: "{{ env_var('PLACED_ROOT') }}"}
            columns:
              - {name: id, data_type: int, constraints: [{type: not_null}]}
              - {name: v, data_type: string, description: a text}
    """,
    "snapshots/properties.yml": """
        snapshots:
          - name: checked
            relation: ref('source_rows')
            config: {unique_key: id, strategy: check, check_cols: all, hard_deletes: invalidate}
          - name: timed
            relation: ref('source_rows')
            config: {unique_key: id, strategy: timestamp, updated_at: day}
    """,
    "models/source_rows.sql": "select id, v, day from {{ ref('feed') }}",
    "macros/at_most_once.sql": """
        {% macro get_incremental_at_most_once_sql(arg_dict) %}
            insert into {{ this }} select * from {{ arg_dict["temp_relation"] }}
            where id not in (select id from {{ arg_dict["target_relation"] }})
        {% endmacro %}
    """,
}


def _test(
    name: str,
    model: str,
    before: Rows | None,
    added: Rows,
    expected: Rows,
    expect: str | None = "table",
) -> dict[str, Any]:
    """A unit test: `before` are the rows of `this`, `added` those of the feed."""
    test: dict[str, Any] = {
        "name": name,
        "model": model,
        "given": [{"input": "ref('feed')", **_rows(added)}],
        "expect": _rows(expected),
    }
    if expect is not None:
        test["config"] = {"meta": {"wap_expect": expect}}
    if before is not None:
        test["given"].append({"input": "this", **_rows(before)})
    if model == "merged":
        test["overrides"] = {"macros": {"is_incremental": before is not None}}
    return test


def _snapshot_test(
    name: str, snapshot: str, before: Rows | None, added: Rows, expected: Rows
) -> dict[str, Any]:
    test = _test(name, "source_rows", None, added, expected, expect=snapshot)
    if before is not None:
        test["given"].append({"input": f"ref('{snapshot}')", **_rows(before)})
    return test


def _rows(rows: Rows) -> dict[str, Any]:
    return {"rows": rows, "format": "sql"} if isinstance(rows, str) else {"rows": rows}


def _ids(*ids: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": i, **more} for i in ids]


OLD = [{"id": 1, "v": "old", "note": "kept"}, {"id": 2, "v": "old", "note": "kept"}]
NEW = [{"id": 2, "v": "new", "note": "lost"}, {"id": 3, "v": "new", "note": "lost"}]

GOOD = [
    _test("merges", "merged", OLD, NEW, [OLD[0], *NEW]),
    _test("first_build", "merged", None, NEW, NEW),
    _test("selects", "merged", OLD, NEW, NEW, expect=None),
    _test(
        "merges_one_column",
        "chosen",
        [*OLD, *_ids(20, v="old", note="kept")],
        [*NEW, *_ids(20, v="new", note="another")],
        [
            OLD[0],
            {"id": 2, "v": "new", "note": "kept"},
            NEW[1],
            *_ids(20, v="old", note="kept"),
            *_ids(20, v="new", note="another"),
        ],
    ),
    _test("appends", "appended", OLD, NEW, [*OLD, *NEW]),
    _test("appends_to_no_rows", "appended", [], NEW, NEW),
    _test("replaces", "replaced", OLD, NEW, [OLD[0], *NEW]),
    _test(
        "replaces_days",
        "by_day",
        [*_ids(1, 2, day="2026-01-01"), *_ids(3, day="2026-01-02")],
        _ids(9, day="2026-01-01"),
        [*_ids(9, day="2026-01-01"), *_ids(3, day="2026-01-02")],
    ),
    _test(
        "adds_a_column",
        "grown",
        "select 1 as id union all select 2",
        _ids(2, v="new"),
        [{"id": 1, "v": None}, {"id": 2, "v": "new"}],
    ),
    _test("inserts_once", "own", _ids(1, v="old"), _ids(1, 2, v="new"),
          [*_ids(1, v="old"), *_ids(2, v="new")]),
    _test("is_placed", "placed", [{"v": "old"}], _ids(2, v="new"),
          [{"id": None, "v": "old"}, {"id": 2, "v": "new"}]),
    _test("view_after_build", "feed", None, _ids(1), _ids(1)) | {"given": []},
]  # fmt: skip

DAY, NEXT = {"day": "2026-01-01"}, {"day": "2026-01-02"}
OPEN: dict[str, Any] = {"dbt_valid_from": "2026-01-01 00:00:00", "dbt_valid_to": None}
SNAPPED = [{"id": i, "v": "old", **DAY, **OPEN, "dbt_scd_id": f"row {i}"} for i in (1, 2)]
UPDATED = [{"id": 1, "v": "old", **DAY}, *({"id": i, "v": "new", **NEXT} for i in (2, 3))]
SNAPSHOTS = [
    _snapshot_test("first_snapshot", "timed", None, [{"id": 1, "v": "a", **DAY}],
                   [{"id": 1, "v": "a", **OPEN}]),
    _snapshot_test("closes_versions", "timed", SNAPPED, UPDATED, [
        {"id": 1, "v": "old", **OPEN},
        {"id": 2, "v": "old", **OPEN, "dbt_valid_to": "2026-01-02 00:00:00"},
        {"id": 2, "v": "new", "dbt_valid_from": "2026-01-02 00:00:00", "dbt_valid_to": None},
        {"id": 3, "v": "new", "dbt_valid_from": "2026-01-02 00:00:00", "dbt_valid_to": None},
    ]),
    _snapshot_test("checks_columns", "checked", SNAPPED, UPDATED[1:],
                   [{"id": 1, "v": "old"}, {"id": 2, "v": "old"}, {"id": 2, "v": "new"},
                    {"id": 3, "v": "new"}]),
]  # fmt: skip


@pytest.fixture(scope="module")
def shop(
    make_project: MakeProject, reader: Reader, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    with pytest.MonkeyPatch.context() as patch:
        folder, store = tmp_path_factory.mktemp("placed"), reader.store
        root = f"{store.warehouse}_{folder.name}" if store else str(folder)
        patch.setenv("PLACED_ROOT", root)
        project = make_project("unit", MODELS, settings=SETTINGS)
        project.dbt("build", "--exclude", "batches").succeeded()
        yield project
        files = folder.rglob("*") if store is None else store.object_keys()
        below = [str(one).partition(f"{folder.name}/")[2] for one in files]
        assert {one.partition("/")[0] for one in below if one} == {"placed"}


def _write(shop: Project, *tests: dict[str, Any]) -> None:
    # JSON is YAML.
    shop.write({"models/unit_tests.yml": json.dumps({"unit_tests": tests})})


def _unit(shop: Project, *tests: dict[str, Any]) -> Outcome:
    _write(shop, *tests)
    return shop.dbt("test", "--select", "test_type:unit")


def _look(reader: Reader, shop: Project) -> dict[str, tuple[Any, ...]]:
    seen: dict[str, Look] = reader.look(shop.schema)
    return {name: (one.seen(), one.location) for name, one in seen.items()}


def _left(reader: Reader, lake_dir: Path) -> list[str]:
    """What is left of throw-away tables, in the catalog and the lake's folder."""
    schemas = [".".join(one) for one in reader.catalog.list_namespaces()]
    files = [str(one) for one in lake_dir.rglob("*wap_unit*")]
    files += reader.store.object_keys() if reader.store else []
    return [name for name in [*schemas, *files] if "wap_unit" in name]


def test_rows_of_the_table(shop: Project, reader: Reader, lake_dir: Path) -> None:
    before = _look(reader, shop)
    done = _unit(shop, *GOOD, *SNAPSHOTS)
    assert {done.statuses[one["name"]] for one in [*GOOD, *SNAPSHOTS]} == {"pass"}, done.text
    assert _look(reader, shop) == before
    assert _left(reader, lake_dir) == []
    opened = shop.operation("wap_status").succeeded().text
    assert "wap_unit" not in opened


def test_a_failure_shows_dbts_diff(shop: Project, reader: Reader, lake_dir: Path) -> None:
    before = _look(reader, shop)
    done = _unit(
        shop,
        _test("loses_a_row", "merged", OLD, NEW, NEW),
        _test("knows_no_column", "merged", OLD, NEW, [{"other": 1}]),
    )
    assert done.statuses["loses_a_row"] == "fail"
    assert done.statuses["knows_no_column"] == "error"
    assert "actual differs from expected" in done.text
    assert "+++,1  ,old,kept" in done.text
    assert "Invalid column name: 'other'" in done.text
    assert _look(reader, shop) == before
    assert _left(reader, lake_dir) == []


def test_a_failing_write(shop: Project, reader: Reader, lake_dir: Path) -> None:
    twice = [{"id": 2, "v": "one"}, {"id": 2, "v": "two"}]
    done = _unit(shop, _test("merges_twice", "merged", OLD, twice, []))
    assert done.statuses["merges_twice"] == "error"
    assert "MERGE" in done.text
    assert _left(reader, lake_dir) == []


def test_refusals(shop: Project, reader: Reader, lake_dir: Path) -> None:
    done = _unit(
        shop,
        _test("misspelled", "merged", OLD, NEW, NEW, expect="tabel"),
        _test("batched", "batches", "select 1 as id, date'2026-01-01' as day", _ids(1), _ids(1)),
    )
    assert done.statuses["misspelled"] == done.statuses["batched"] == "error"
    assert "wap_expect is 'tabel' in the unit test misspelled" in done.text
    assert "dbt runs no batch of a microbatch model in a unit test" in done.text
    assert _left(reader, lake_dir) == []


def test_the_gate(shop: Project, reader: Reader, lake_dir: Path) -> None:
    before = _look(reader, shop)
    _write(shop, _test("loses_a_row", "merged", OLD, NEW, NEW))
    shop.write({"models/feed.sql": MODELS["models/feed.sql"].replace("1 as id", "7 as id")})
    bad = shop.dbt("build", "--select", "feed merged").failed()
    assert bad.reason("merged") == "not built: unit test loses_a_row failed (1 row)"
    assert _look(reader, shop) == before
    _write(shop, _test("keeps_a_row", "merged", OLD, NEW, [OLD[0], *NEW]))
    good = shop.dbt("build", "--select", "feed merged").succeeded()
    assert good.verdict("merged") == "published"
    assert reader.table(shop.schema, "merged").values("id") == [1, 7]
    assert _left(reader, lake_dir) == []


@pytest.mark.smoke
def test_without_a_table(make_project: MakeProject) -> None:
    # dbt takes the types of rows from the model's table. SQL has its own.
    names = ("models/feed.sql", "models/appended.sql", "models/merged.sql")
    new = make_project("unit_new", {name: MODELS[name] for name in names}, settings=SETTINGS)
    sql = "select 1 as id, 'old' as v, 'kept' as note"
    _write(
        new,
        _test("appends", "appended", sql, NEW, [OLD[0], *NEW]),
        _test("merges", "merged", sql, NEW, [OLD[0], *NEW]),
    )
    done = new.dbt("build").succeeded()
    assert done.verdict("appended") == done.verdict("merged") == "published"


def test_the_examples_of_the_page(make_project: MakeProject) -> None:
    page = Path(__file__).parents[3] / "docs" / "runs.md"
    tests = "".join(one for one in blocks(page, "yaml") if "wap_expect" in one)
    merged = {"materialized": "incremental", "incremental_strategy": "merge"}
    config = json.dumps({**merged, "unique_key": "order_id"})
    shop = make_project(
        "unit_page",
        {
            "models/deliveries.sql": "select 1 as order_id, 10 as amount",
            "models/orders.sql": f"""
                {{{{ config(**{config}) }}}} select * from {{{{ ref('deliveries') }}}}
                {{% if is_incremental() %}} where order_id > 0 {{% endif %}}
            """,
            "models/raw_prices.sql": """
                select 'pen' as item, 2 as price, date'2026-01-01' as changed_on
            """,
            "models/stg_prices.sql": "select * from {{ ref('raw_prices') }}",
            "snapshots/prices.yml": """
                snapshots:
                  - name: snp_prices
                    relation: ref('stg_prices')
                    config: {strategy: timestamp, updated_at: changed_on, unique_key: item}
            """,
        },
        settings=SETTINGS,
    )
    shop.dbt("build").succeeded()
    shop.write({"models/unit_tests.yml": tests})
    done = shop.dbt("test", "--select", "test_type:unit").succeeded()
    for name in ("a_correction_replaces_the_order", "a_new_price_closes_the_version"):
        assert done.statuses[name] == "pass"
