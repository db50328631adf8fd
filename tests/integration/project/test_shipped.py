"""What comes with the adapter: any project calls it, without a copy of a file of this one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.smoke

MACROS = Path(__file__).parents[3] / "macros"
PUBLIC = re.compile(r"\{%-? (macro|test) ([a-z]\w*)\(")
FILES = {
    "dbt_project.yml": """
name: shop
version: "1.0"
profile: shop
flags:
  send_anonymous_usage_stats: false
  validate_macro_args: true
  warn_error_options: {error: all}
""",
    "profiles.yml": """
shop:
  target: test
  outputs: {test: {type: sparkwap, lake: .lake, schema: shop, threads: 1}}
""",
    "models/raw_orders.sql": "select 1 as id",
    "models/quarantine_orders.sql": "{{ quarantine(ref('raw_orders')) }}",
    "models/cdc_orders.sql": "select 1 as id",
    "models/stg_orders.sql": """
select
    {{ exact_cast('id', 'int', ref('cdc_orders')) }} as id,
    {{ added_columns('raw_orders') }},
    {{ landed_up_to(ref('raw_orders')) }} as as_of
from {{ ref('cdc_orders') }}
where 0 = {{ cdc_columns() | length }} or 0 = {{ landing_key(ref('raw_orders')) | length }}
""",
    "models/bad_orders.sql": """
-- {{ landing_entry(ref('raw_orders')) }}
{{ open_bad_rows(ref('raw_orders')) }}
-- {{ unpublished_loads(ref('raw_orders')) }}
""",
    "models/scd_orders.sql": """
{{ config(materialized='scd2', unique_key='id') }}
{{ change_events(ref('raw_orders'), columns={'id': 'cast(id as bigint)'}) }}
""",
    "models/dim_orders.sql": """
{{ scd2_join('id', [{'history': ref('scd_orders'), 'columns': []}]) }}
""",
    "models/past_orders.sql": "{{ scd2_from_changes(ref('stg_orders'), 'id', ['as_of']) }}",
    "models/fct_orders.sql": """
select orders.id, {{ scd2_version('orders.id', 'valid_from') }} as version
from {{ ref('stg_orders') }} as orders
left join {{ ref('scd_orders') }} as history
    on orders.id = history.id and {{ scd2_valid_at('orders.as_of', 'history') }}
""",
    "models/models.yml": """
models:
  - name: raw_orders
    data_tests: [quarantine_below, files_add_up, full_load_drop: {arguments: {max_drop: 0.1}}]
  - name: quarantine_orders
    data_tests:
      - rows_add_up: {arguments: {raw: ref('raw_orders'), state: ref('cdc_orders')}}
  - name: stg_orders
    data_tests:
      - not_empty
      - row_count_drop: {arguments: {max_drop: 0.1}}
      - recency: {arguments: {field: as_of, datepart: day, interval: 1}}
    columns:
      - name: id
        data_tests: [accepted_range: {arguments: {min_value: 0}}]
  - name: scd_orders
    data_tests:
      - scd2_one_current: {arguments: {key: id}}
      - scd2_no_overlap: {arguments: {key: id}}
      - scd2_no_gap: {arguments: {key: id}}
      - scd2_in_order
  - name: fct_orders
    data_tests:
      - scd2_exactly_one_version:
          arguments: {history: ref('scd_orders'), key: id, moment: as_of}
""",
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The nodes of a bare project that calls all there is, and has one test of its own."""
    folder = tmp_path_factory.mktemp("bare")
    own = "{% test accepted_range(model, column_name, min_value) %}select 1 limit 0{% endtest %}"
    for name, text in (FILES | {"macros/own.sql": own}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    place = ["--project-dir", folder, "--profiles-dir", folder, "--log-path", folder / "logs"]
    # In a process of its own: dbt would report deprecations of projects that other tests have run.
    dbt = [sys.executable, "-c", "from dbt.cli.main import cli; cli()", "--quiet", "parse"]
    ended = subprocess.run([*dbt, *place], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads((folder / "target/manifest.json").read_text())["nodes"]
    return found


def test_a_bare_project_calls_what_comes_with_the_adapter(nodes: dict[str, Any]) -> None:
    called = {key for node in nodes.values() for key in node["depends_on"].get("macros", ())}
    names = {
        f"test_{name}" if kind == "test" else name
        for folder in ("audits", "cdc", "landing", "scd2")
        for path in (MACROS / folder).glob("*.sql")
        for kind, name in PUBLIC.findall(path.read_text())
    }
    assert {"change_events", "quarantine", "test_not_empty", "test_scd2_no_gap"} <= names
    missed = {name for name in names if f"macro.dbt_sparkwap.{name}" not in called}
    # The project has its own `accepted_range`.
    assert missed == {"test_accepted_range"}, "call each of them in FILES of this test file"


def test_a_test_of_the_project_takes_the_place_of_ours(nodes: dict[str, Any]) -> None:
    (node,) = (n for key, n in nodes.items() if ".accepted_range_" in key)
    assert "macro.shop.test_accepted_range" in node["depends_on"]["macros"]
