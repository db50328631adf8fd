"""Attack: a test that is there, runs and passes, and could do nothing else.

The classes: by its config no rows whatsoever make it fail; what judged the published rows was
stricter, in the same code.
"""

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject

MODEL = "{{ config(materialized='table') }} select cast(null as int) as id from range(100)"
CONFIGS = {
    "limited": "limit: 5, error_if: '>8', warn_if: '>8'",
    "nowhere": "where: 1 = 2",
    "unreachable": "error_if: '> 3 and 1 = 0'",
}


@pytest.mark.smoke
def test_a_test_that_cannot_fail_lets_nothing_through(
    make_project: MakeProject, reader: Reader
) -> None:
    tests = [
        f"{{name: {name}, columns: [{{name: id, data_tests: [{{not_null: {{config: {{{config}"
        "}}}]}]}"
        for name, config in CONFIGS.items()
    ]
    files = {f"models/{name}.sql": MODEL for name in CONFIGS}
    project = make_project("weak", {**files, "models/all.yml": f"models: [{', '.join(tests)}]"})
    built = project.dbt("build", wap_publish="lineage").failed()
    assert {name: built.verdict(name) for name in CONFIGS} == dict.fromkeys(CONFIGS, "rejected")
    assert reader.look(project.schema) == {}
    assert all("config has" in built.reason(name) for name in CONFIGS)


WEAKENED = """
models:
  - name: by_arguments
    columns: [{name: id, data_tests: [{accepted_values: {arguments: {values: ["{{ var('most', 1) }}"], quote: false}}}]}]
  - name: by_where
    columns: [{name: id, data_tests: [{not_null: {config: {where: "id < {{ var('below', 9) }}"}}}]}]
  - name: by_limit
    columns: [{name: id, data_tests: [{not_null: {config: {error_if: "{{ '> ' ~ env_var('LIMIT', '0') }}"}}}]}]
  - name: by_macro
    columns: [{name: id, data_tests: [no_more]}]
  - name: when_it_runs
    columns: [{name: id, data_tests: [none_above]}]
"""  # noqa: E501
NO_MORE = """
{% test no_more(model, column_name) %} select 1 from {{ model }} where {{ at_most(column_name) }} {% endtest %}
{% macro at_most(column) %} {{ column }} > {{ var('top', 1) }} {% endmacro %}
{% test none_above(model, column_name) %} select 1 from {{ model }}
where {{ column_name }} > {{ env_var('ASKED', '1') if execute else 1 }} {% endtest %}
"""  # noqa: E501
VARS = {"by_arguments": {"most": 2}, "by_where": {"below": -1}, "by_macro": {"top": 2}}


def test_a_variable_that_weakens_a_test_publishes_nothing(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (*VARS, "by_limit", "when_it_runs")
    model = "{{ config(materialized='table') }} select {{ env_var('ID', '1') }} as id"
    files = {"models/all.yml": WEAKENED, "macros/no_more.sql": NO_MORE}
    project = make_project("weaker", files | {f"models/{name}.sql": model for name in names})
    project.dbt("build").succeeded()

    def ids() -> dict[str, list[int]]:
        return {name: one.values("id") for name, one in reader.look(project.schema).items()}

    before = ids()
    monkeypatch.setenv("LIMIT", "5")
    monkeypatch.setenv("ASKED", "5")
    given = {key: value for one in VARS.values() for key, value in one.items()}
    monkeypatch.setenv("ID", "2")
    built = project.dbt("build", wap_publish="lineage", **given)
    assert {name: built.verdict(name) for name in names} == dict.fromkeys(names, "held")
    assert ids() == before
    for name in (*VARS, "when_it_runs"):
        assert "was another when main was last published" in built.reason(name)
    assert "severity was 'error, error_if > 0'" in built.reason("by_limit")
    # Nor do the rows come to main by hand, from a command without the variables.
    monkeypatch.delenv("LIMIT")
    project.dbt("run-operation", "wap_publish", "--args", f"{{branch: {built.branch}}}").failed()
    assert ids() == before
    named = ["most", "below", "top", "LIMIT", "ASKED"]
    again = project.dbt("build", wap_varying_vars=named, wap_warnings="publish", **given)
    again.succeeded()
    assert ids() == {name: [2] for name in names}


def test_an_environment_variable_whose_name_a_test_computes(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = "select id from {{ ref('t') }} where id > {{ env_var('MO' ~ 'ST', '5') }}"
    files = {
        "models/t.sql": "{{ config(materialized='table') }} " + "select 1 as id",
        "tests/one.sql": test,
    }
    project = make_project("computed", files)
    project.dbt("build").succeeded()
    project.write({"models/t.sql": "{{ config(materialized='table') }} " + "select 9 as id"})
    assert project.dbt("build").failed().verdict("t") == "rejected"
    monkeypatch.setenv("MOST", "100")
    weakened = project.dbt("build").succeeded()
    assert weakened.verdict("t") == "held"
    assert "so was env_var MOST" in weakened.reason("t")
    assert reader.table(project.schema, "t").values("id") == [1]
