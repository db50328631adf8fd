"""What may change a node's result although its code and its inputs do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkwap.ledger.code import ProjectMacros
from sparkwap.plan import uncertain

ROOT = Path(__file__).parents[3]
MACROS = {
    f"macro.{package}.{name}": {
        "name": name,
        "package_name": package,
        "macro_sql": f"{{% macro {name}() %}}{text}{{% endmacro %}}",
        "depends_on": {"macros": calls},
    }
    for package, name, text, calls in (
        ("shop", "plain", "x + 1", []),
        ("shop", "outer", "{{ inner() }}", ["macro.shop.inner"]),
        ("shop", "inner", "{{ var('days') }}", []),
        ("dbt", "statement", "{{ run_query('x') }} now()", []),
        ("dbt_sparkwap", "test_recency", "{{ wap_now() }}", []),
    )
}


MERGE = {"incremental_strategy": "merge", "unique_key": "id"}


def node(raw_code: str = "select 1", *macros: str, **more: Any) -> dict[str, Any]:
    kind = "snapshot" if more.get("resource_type") == "snapshot" else "table"
    return {
        "resource_type": "model",
        "raw_code": raw_code,
        "language": "sql",
        "depends_on": {"macros": list(macros)},
        **more,
        "config": {"materialized": kind, **more.get("config", {})},
    }


def why_uncertain(of: dict[str, Any], macros: dict[str, Any]) -> str | None:
    reached = ProjectMacros(macros).of(of, overrides=uncertain.DBT_MACROS)
    return uncertain.why_uncertain(of, {key: macros[key] for key in reached})


@pytest.mark.parametrize(
    "raw_code",
    [
        "select * from {{ ref('orders') }} where at > date'2024-01-01'",
        "{{ config(materialized='table') }} select known_now, uuid as id from {{ ref('t') }}",
        "select {{ adapter.quote('a') }}, '{{ this.schema }}', {{ plain() }} -- this",
        "{{ adapter.dispatch('plain', 'shop')() }}, {{ adapter.dispatch(macro_name='hash')() }}",
        "{{ shop.plain() }}, {{ ['a'] | map('upper') | join }}, {{ [] | map(attribute='x') }}",
        "select {{ plain('version') }} {% for f in ['current_price'] %}, {{ f }}{% endfor %}",
        "select {% for f in ['sum', 'max'] %}{{ f }}(x){% endfor %}",
        "select json.a, text.b from {{ ref('t') }} as json join {{ ref('u') }} using (id)",
        "select variance(x) from {{ source('s', 't') }} {% if is_incremental() %}{% endif %}",
    ],
)
def test_what_follows_from_code_and_rows(raw_code: str) -> None:
    assert why_uncertain(node(raw_code, "macro.shop.plain", "macro.dbt.statement"), MACROS) is None


@pytest.mark.parametrize(
    ("raw_code", "why"),
    [
        ("select current_timestamp", "it uses current_timestamp"),
        ("select NOW()", "it uses NOW"),
        ("select rand (7)", "it uses rand"),
        ("select uuid()", "it uses uuid"),
        ("select '{{ run_started_at }}'", "it uses run_started_at"),
        ("select {{ var('x', 1) }}", "it uses variables"),
        ("select {{ env_var('X') }}", "it uses variables"),
        ("select * from {{ target.schema }}.t", "it uses target"),
        ("{% set rows = run_query('select 1') %} select 1", "it uses run_query"),
        ("select {{ adapter.get_relation(1, 2, 3) }}", "it uses adapter.get_relation"),
        ("select {{ dbt.current_timestamp() }}", "it uses dbt.current_timestamp"),
        ("{% set now = 'current_timestamp()' %}select {{ now }}", "it uses current_timestamp"),
        ("select date'today'", "it uses 'today'"),
        ("select `rand`()", "it uses `rand`"),
        ("select rand/**/()", "it uses rand"),
        ("select '{{ schema }}'", "it uses schema"),
        ("{% set v = var %}select {{ v('n') }}", "it uses variables"),
        ("{% set a = adapter %}{{ a.get_relation(1, 2, 3) }}", "it uses adapter as a value"),
        ("select '{{ pick({'a': {'b': 1}}, target.name) }}'", "it uses pick"),
        ("{{ [] | map({'a': {'b': 1}}) }}", "it uses the filter map"),
        ("select {{ model.description }}", "it uses model"),
        (
            "select * from {{ ref('t') }} version as of 'eod'",
            "it uses another state of a table (version as of)",
        ),
        ("select * from {{ ref('t') }}.branch_x", "it uses another state of a table (.branch_)"),
        ("select {{ broken", "it uses Jinja that cannot be read"),
        ("select {{ range(1, 9) | random }}", "it uses the filter random"),
        ("select {{ [1] | of_a_plugin }}", "it uses the filter of_a_plugin"),
        ("{% for c in set(['a', 'b']) %}{{ c }}{% endfor %}", "it uses set"),
        ("select '{{ config.model.created_at }}'", "it uses config.model"),
        ("select {{ this.is_view }}", "it uses this.is_view"),
        ("select {{ this['is_view'] }}", "it uses this as a value"),
        ("select * from {{ this }}", "it uses this as a value"),
        ("select * from {{ this.render() }}", "it uses this.render"),
        (
            "select {% for f in ['timestamp'] %}current_{{ f }}(){% endfor %}",
            "it uses a word that Jinja puts together (current_)",
        ),
        ("{{ 'curr' ~ 'ent_date' }}", "it uses a word that Jinja puts together (curr)"),
        ("{{ plain('curr' ~ 'ent_date') }}", "it uses a word that Jinja puts together (curr)"),
        ("select date'today UTC'", "it uses 'today UTC'"),
        ("select user", "it uses user"),
        (
            "select * from {{ source('s', 't') }}.refs",
            "it uses another state of a table (.refs)",
        ),
        (
            "select * from {{ ref('t') }} . `metadata_log_entries`",
            "it uses another state of a table (. `metadata_log_entries)",
        ),
        ("select * from second.db.t", "it uses a name of many parts (second.db.t)"),
        ("select * from {{ ref('t') }}.x", "it uses a name of many parts (....)"),
        ("select * from csv.`file:rates.csv`", "it uses files (from csv.)"),
        (
            "select {% for f in ['sum', 'spark_partition_id'] %}{{ f }} () {% endfor %}",
            "it uses a word that Jinja puts together (spark_partition_id)",
        ),
        (
            "{% set f = 'randn' %}select {{ f ~ '()' }}",
            "it uses a word that Jinja puts together (randn)",
        ),
        (
            "{% macro m(f) %}{{ f }}(1){% endmacro %}select {{ plain('version') }}",
            "it uses a word that Jinja puts together (version)",
        ),
        ("select * from {{ ref('t') }}, PARQUET . `rates`", "it uses files (PARQUET . `)"),
        ("select * from `orc`.rates", "it uses files (from `orc`.)"),
        ("select transform(id) using './x.py' as y", "it uses files (using ')"),
        ("{{ adapter.dispatch('pl' ~ 'ain', 'shop')() }}", "it uses adapter.dispatch"),
        ("{{ adapter.dispatch('snapshot_get_time', 'dbt')() }}", "it uses adapter.dispatch"),
        ("{% set d = adapter.dispatch %}{{ d('x')() }}", "it uses adapter.dispatch"),
        ("{{ plain() }} {{ shop['pl' ~ 'ain']() }}", "it uses shop as a value"),
        ("{{ plain() }} {% set s = shop %}", "it uses shop as a value"),
        ("{{ plain() }} {{ plain | attr('x') }}", "it uses the filter attr"),
        ("{{ [[1, 2]] | map('random') }}", "it uses the filter map"),
        ("{{ [[1, 2]] | map('ran' ~ 'dom') }}", "it uses the filter map"),
        ("{{ config['model'] }}", "it uses config as a value"),
        ("{{ ref.config.vars }}", "it uses ref.config"),
        ("{% set s = source %}{{ s.config }}", "it uses source as a value"),
    ],
)
def test_what_does_not(raw_code: str, why: str) -> None:
    for _ in range(2):
        assert why_uncertain(node(raw_code), MACROS) == why


def test_macros_configuration_and_arguments_count_too() -> None:
    assert why_uncertain(node("{{ outer() }}"), MACROS) == "the macro inner uses variables"
    given = node(unrendered_config={"partition_by": "{{ var('by') }}"})
    assert why_uncertain(given, MACROS) == "its configuration uses variables"
    hook = node(config={"post-hook": [{"sql": "insert into log select now()"}]})
    assert why_uncertain(hook, MACROS) == "its configuration uses now"
    argument = node(
        resource_type="test", test_metadata={"kwargs": {"values": "{{ var('legal') }}"}}
    )
    assert why_uncertain(argument, MACROS) == "its configuration uses variables"


def test_a_macro_of_dbt_or_sparkwap_counts_if_it_is_not_known_to_compute_text_only() -> None:
    def audit(name: str) -> dict[str, Any]:
        call = f"{{{{ test_{name}(**_dbt_generic_test_kwargs) }}}}"
        return node(call, resource_type="test", test_metadata={"name": name, "kwargs": {}})

    assert why_uncertain(audit("not_null"), MACROS) is None
    assert why_uncertain(audit("recency"), MACROS) == "it uses test_recency"


@pytest.mark.parametrize(
    ("plain", "why"),
    [
        ("get_where_subquery", "the macro default__get_where_subquery uses variables"),
        ("generate_schema_name", None),
    ],
)
def test_an_override_of_a_macro_of_dbt_counts_for_each_node(plain: str, why: str | None) -> None:
    macros = {
        key: {
            "name": name,
            "package_name": key.split(".")[1],
            "macro_sql": f"{{% macro {name}() %}}{{{{ var('x') }}}}{{% endmacro %}}",
            "depends_on": {"macros": []},
        }
        for key, name in ((f"macro.dbt.{plain}", plain), ("macro.shop.own", f"default__{plain}"))
    }
    assert why_uncertain(node(), macros) == why
    assert ProjectMacros(macros).of(node()) == {"macro.shop.own"}


@pytest.mark.parametrize(
    ("config", "raw_code", "why"),
    [
        ({"incremental_strategy": "merge", "unique_key": "id"}, "select 1 as id", None),
        ({"incremental_strategy": "insert_overwrite"}, "select 1 as id", None),
        ({}, "select 1 as id", "each build adds rows to it (incremental_strategy: append)"),
        (
            {"incremental_strategy": "mine", "unique_key": "id"},
            "select 1 as id",
            "each build adds rows to it (incremental_strategy: mine)",
        ),
        (
            {"incremental_strategy": "merge"},
            "select 1 as id",
            "each build adds rows to it (no unique_key)",
        ),
        (
            {"incremental_strategy": "merge", "unique_key": "id"},
            "select {% if is_incremental() %}2{% else %}1{% endif %} as id",
            "what a build adds follows from its own rows (is_incremental); see wap_reuse: true",
        ),
        ({"incremental_strategy": "append", "wap_reuse": True}, "select 1 as id", None),
        (
            {**MERGE, "incremental_predicates": ["DBT_INTERNAL_DEST.day > date'2026-01-01'"]},
            "select 1 as id",
            "a build may add rows again that its predicates leave out; see wap_reuse: true",
        ),
        (
            {**MERGE, "post-hook": [{"sql": "update {{ this }} set n = n + 1"}]},
            "select 1 as id",
            "what a build adds follows from its own rows (this); see wap_reuse: true",
        ),
        (
            {**MERGE, "pre-hook": [{"sql": "delete from Mart . `inc` where id > 3"}]},
            "select 1 as id",
            "what a build adds follows from its own rows (Mart . `inc); see wap_reuse: true",
        ),
        (
            MERGE,
            "select max(id) + 1 as id from mart.inc",
            "what a build adds follows from its own rows (mart.inc); see wap_reuse: true",
        ),
        (MERGE, "select inc.id from {{ ref('t') }} as inc -- this, and mart.incoming", None),
        (
            {"materialized": "table"},
            "select id from mart.inc",
            "what a build adds follows from its own rows (mart.inc); see wap_reuse: true",
        ),
        (
            {"materialized": "table", "post-hook": [{"sql": "delete from {{ this }} where x"}]},
            "{{ config(post_hook='delete from {{ this }} where x') }} select 1 as id",
            None,
        ),
    ],
)
def test_tables_that_builds_add_to(config: dict[str, Any], raw_code: str, why: str | None) -> None:
    incremental = node(
        raw_code, schema="mart", alias="inc", config={"materialized": "incremental", **config}
    )
    assert why_uncertain(incremental, MACROS) == why


def test_the_strategy_of_a_snapshot() -> None:
    def snapshot(strategy: str) -> dict[str, Any]:
        return node(resource_type="snapshot", config={"strategy": strategy})

    assert why_uncertain(snapshot("check"), MACROS) is None
    hooked = snapshot("check")
    hooked["config"]["post-hook"] = [{"sql": "update {{ this }} set n = n + 1"}]
    assert "its own rows" in str(why_uncertain(hooked, MACROS))
    assert why_uncertain(snapshot("mine"), MACROS) == "it has a strategy of its own: mine"


def test_what_a_model_declares() -> None:
    python = node(language="python")
    assert why_uncertain(python, MACROS) == "it is a Python model without wap_reuse: true"
    for path in (ROOT / "models").rglob("*.py"):
        own = node(path.read_text(), language="python", unrendered_config="{{ var('until') }}")
        assert why_uncertain(own, MACROS) is None
        own["raw_code"] += "  # and more"
        assert why_uncertain(own, MACROS) is not None
    for config in ({"wap_reuse": True}, {"meta": {"wap_reuse": True}}):
        assert why_uncertain(node("select now()", config=config), MACROS) is None
    assert why_uncertain(node(config={"wap_reuse": False}), MACROS) == "wap_reuse is false"
    batches = node(config={"incremental_strategy": "microbatch"})
    assert why_uncertain(batches, MACROS) == "its batches follow the clock"
    large = node(checksum={"name": "path"}, resource_type="seed")
    assert why_uncertain(large, MACROS) == "its file is too large for dbt to detect changes"
