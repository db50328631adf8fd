"""dbt's manifest and results as facts for the gate."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from pprint import pformat
from types import SimpleNamespace
from typing import Any

import pytest
from dbt.artifacts.resources import FileHash
from dbt.artifacts.schemas.results import RunStatus, TestStatus
from dbt.constants import DEFAULT_ENV_PLACEHOLDER
from dbt.exceptions import ContractError

from dbt.adapters.sparkwap import variables
from dbt.adapters.sparkwap.manifest import ProjectManifest
from dbt.adapters.sparkwap.run_results import audited_again, deferred, mark_rejected, one_line
from dbt.include import global_project


def node(kind: str, name: str, *above: str, **more: Any) -> SimpleNamespace:
    config = {"materialized": "table", "enabled": True, "severity": "ERROR"}
    return SimpleNamespace(
        unique_id=f"{kind}.p.{name}",
        name=name,
        schema="s",
        alias=name,
        package_name="p",
        resource_type=kind,
        original_file_path=f"models/{name}.sql",
        refs=[SimpleNamespace(name=ref) for ref in more.pop("refs", ())],
        sources=[],
        depends_on=SimpleNamespace(nodes=[f"model.p.{a}" for a in above], macros=[]),
        config=SimpleNamespace(**{**config, **more}),
        raw_code="",
        unrendered_config={},
    )


def manifest(*nodes: Any, disabled: tuple[Any, ...] = ()) -> ProjectManifest:
    return ProjectManifest(
        SimpleNamespace(
            nodes={n.unique_id: n for n in nodes},
            unit_tests={},
            disabled={n.unique_id: [n] for n in disabled},
        )
    )


def result(of: Any, status: Any, message: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        node=of,
        status=status,
        message=message,
        failures=None,
        execution_time=None,
        adapter_response={},
    )


TABLE = node("model", "orders")
VIEW = node("model", "newest", "orders", materialized="view")
INLINE = node("model", "inline", "newest", materialized="ephemeral")


def test_a_test_reads_through_views_and_ephemeral_models() -> None:
    test = node("test", "t", "inline")
    (fact,) = manifest(TABLE, VIEW, INLINE, test).tests()
    assert fact.reads == {"model.p.inline", "model.p.newest", "model.p.orders"}
    assert fact.views == {"model.p.newest"}
    assert fact.behind == {"model.p.orders"}


def test_a_table_that_a_test_names_beside_its_view_is_not_behind_the_view() -> None:
    test = node("test", "t", "newest", "orders")
    (fact,) = manifest(TABLE, VIEW, test).tests()
    assert (fact.views, fact.behind) == ({"model.p.newest"}, frozenset())


def test_known_nodes_are_the_enabled_nodes_of_the_project() -> None:
    test, off = node("test", "t", "orders"), node("model", "off", enabled=False)
    facts = manifest(TABLE, test, disabled=(off,))
    assert facts.known() == {TABLE.unique_id, test.unique_id}
    source = SimpleNamespace(schema="raw", identifier="events")
    sources = SimpleNamespace(nodes={}, unit_tests={}, sources={"source.p.raw.events": source})
    assert ProjectManifest(sources).known() == {"source.p.raw.events"}


def test_the_parents_of_a_node_include_those_behind_ephemeral_models_and_views() -> None:
    below = node("model", "below", "inline")
    facts = manifest(TABLE, VIEW, INLINE, below).nodes([result(below, "success")])
    assert facts[0].parents == {"model.p.newest", "model.p.orders"}


def test_the_batches_of_a_node_include_failed_ones() -> None:
    days = [datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2, 3)]
    done = result(TABLE, "partial success")
    done.batch_results = SimpleNamespace(
        successful=[(days[0], days[1])],
        # In the form that dbt reads from its results.
        failed=[(days[1].replace(tzinfo=None), days[2].replace(tzinfo=None))],
    )
    batched, plain = manifest(TABLE).nodes([done, result(TABLE, "success")])
    assert batched.batches == ((days[0], days[2]),)
    assert plain.batches == ()


def test_the_tables_that_a_node_reads() -> None:
    below = node("model", "below", "inline")
    below.depends_on.nodes.append("source.p.raw.events")
    source = SimpleNamespace(schema="raw", identifier="events_v2")
    of_dbt = SimpleNamespace(
        nodes={n.unique_id: n for n in (TABLE, VIEW, INLINE, below)},
        unit_tests={},
        sources={"source.p.raw.events": source},
    )
    read = ProjectManifest(of_dbt).read_by(below)
    assert set(read) == {("s", "newest"), ("s", "orders"), ("raw", "events_v2")}


def test_the_tables_that_a_run_reads_but_does_not_build() -> None:
    below = node("model", "below", "inline")
    below.depends_on.nodes.append("source.p.raw.events")
    beside = node("model", "beside", "below")
    audit = node("test", "audit", "beside", "orders")
    source = SimpleNamespace(schema="raw", identifier="events_v2")
    of_dbt = SimpleNamespace(
        nodes={n.unique_id: n for n in (TABLE, VIEW, INLINE, below, beside, audit)},
        unit_tests={},
        sources={"source.p.raw.events": source},
    )
    found = ProjectManifest(of_dbt).outside(["model.p.below", "model.p.beside", "test.p.audit"])
    assert {(one.name, one.node, one.reader) for one in found} == {
        ("s.newest", "newest", "below"),
        ("raw.events_v2", "source:raw.events", "below"),
        ("s.orders", "orders", "audit"),
    }


def test_nodes_that_cannot_be_replayed() -> None:
    nodes = (
        node("model", "orders"),
        node("model", "log", materialized="incremental"),
        node("snapshot", "seen", materialized="snapshot"),
        node("model", "kept", materialized="incremental", full_refresh=False),
        node("model", "hours", materialized="incremental", incremental_strategy="microbatch"),
    )
    found = manifest(*nodes).not_replayable([n.unique_id for n in nodes])
    assert [one.partition(":")[0] for one in found] == ["hours", "kept", "seen"]


def test_the_selector_of_a_node_does_not_select_a_folder_of_its_name() -> None:
    a = node("model", "a")
    a.fqn, a.original_file_path = ["p", "marts", "a"], "models/marts/a.sql"
    assert manifest(a).selector("model.p.a") == "fqn:p.marts.a,file:a.sql"
    a.original_file_path = "models/marts/my snapshots.yml"
    assert manifest(a).selector("model.p.a") == "fqn:p.marts.a"


def test_a_test_of_a_disabled_model_is_not_expected() -> None:
    off = node("model", "off", enabled=False)
    test = node("test", "t", refs=["off"], enabled=False)
    facts = manifest(TABLE, test, disabled=(off,))
    assert facts.tests() == []
    assert facts.seen([]) == []


def test_a_dropped_test_is_an_error_of_the_tables_that_it_would_read() -> None:
    test = node("test", "t", "orders", refs=["orders", "no_such_model"], enabled=False)
    facts = manifest(TABLE, test)
    (fact,) = facts.tests()
    assert fact.reads == {"model.p.orders"}
    assert [(seen.test_id, seen.status) for seen in facts.seen([])] == [("test.p.t", "error")]


def test_a_dropped_test_without_other_tables_counts_against_no_table() -> None:
    test = node("test", "t", refs=["no_such_model"], enabled=False)
    facts = manifest(TABLE, VIEW, test)
    assert facts.tests() == []
    assert facts.seen([]) == []
    assert facts.dropped() == (
        "notice     1 test of disabled or missing models did not run, which holds no table: t"
    )


def test_a_test_of_a_missing_model_counts_against_no_table_that_it_also_reads() -> None:
    refs = ["gone", "orders"]
    names = ("a", "b", "c", "d")
    tests = [node("test", n, "orders", refs=refs, enabled=False) for n in names]
    for test in tests:
        test.file_key_name = "models.gone"
    facts = manifest(TABLE, *tests)
    assert facts.tests() == []
    told = facts.dropped()
    assert told is not None and told.endswith("table: a, b, c and 1 more")
    # With the two reversed it is a misspelled ref, and the test would never run.
    tests[0].file_key_name = "models.orders"
    (fact,) = manifest(TABLE, *tests).tests()
    assert fact.reads == {"model.p.orders"}
    assert manifest(TABLE).dropped() is None


def test_a_test_of_a_missing_model_is_not_a_disabled_test() -> None:
    # dbt moves it to the disabled tests when a file that it refers to has changed.
    test = node("test", "t", "orders", refs=["gone", "orders"], enabled=False)
    assert [one.disabled for one in manifest(TABLE, disabled=(test,)).tests()] == [True]
    test.file_key_name = "models.gone"
    facts = manifest(TABLE, disabled=(test,))
    assert facts.tests() == []
    assert str(facts.dropped()).endswith("holds no table: t")


def test_a_dropped_test_counts_against_the_tables_of_its_unresolved_refs() -> None:
    test = node("test", "t", refs=["orders"], enabled=False)
    (fact,) = manifest(TABLE, VIEW, test).tests()
    assert fact.reads == {"model.p.orders"}


def test_a_rejected_table_is_an_error_to_dbt_and_its_other_tests_run_again() -> None:
    good, bad, other = (node("test", name, "orders") for name in ("good", "bad", "other"))
    other.depends_on.nodes = ["model.p.elsewhere"]
    results = [
        result(TABLE, RunStatus.Success),
        result(good, TestStatus.Pass),
        result(bad, TestStatus.Fail),
        result(other, TestStatus.Pass),
    ]
    tests = manifest(TABLE, good, bad, other)
    assert mark_rejected(results, {"model.p.orders": "test bad failed"}, tests.tests()) == 1
    # dbt counts a skipped result that has a message as an error in some places only.
    assert results[1].message is None
    assert results[1].adapter_response == {"audited": "pass"}
    assert str(audited_again(1)).startswith("1 test passed above on rows that are rejected now")
    assert audited_again(0) is None
    assert [str(r.status) for r in results] == ["error", "skipped", "fail", "pass"]
    assert results[0].message == "Not published: test bad failed"


def test_messages_are_one_short_line() -> None:
    assert one_line(None) is None
    assert "\n" not in str(one_line("Database Error\n  no\n  such table"))


def test_an_error_names_the_columns_that_differ() -> None:
    types = [[{"name": "id", "data_type": kind}] for kind in ("int", "bigint")]
    assert one_line(str(ContractError(*types))) == (
        "This model has an enforced contract that failed. | column_name | definition_type "
        "| contract_type | mismatch_reason | | id | bigint | int | data type mismatch |"
    )
    template = Path(inspect.getfile(global_project)).parent / (
        "macros/materializations/models/incremental/on_schema_change.sql"
    )
    advice = template.read_text().partition("{% set fail_msg %}")[2].partition("{% endset %}")[0]
    shown = str(one_line(f"Compilation Error in model a (models/a.sql)\n{advice}"))
    assert shown.startswith(
        "The source and target schemas on this incremental model are out of sync! Source columns "
        "not in target: {{"
    )


def test_a_disabled_test_has_the_nodes_that_it_would_read() -> None:
    generic = node("test", "generic", refs=["newest"], enabled=False)
    generic.attached_node = "model.p.newest"
    singular = node("test", "singular", refs=["orders", "gone"], enabled=False)
    unit = SimpleNamespace(
        unique_id="unit_test.p.u", name="u", resource_type="unit_test", model="orders"
    )
    found = manifest(TABLE, VIEW, disabled=(generic, singular, unit)).tests()
    assert {fact.test_id: (fact.kind, fact.reads) for fact in found if fact.disabled} == {
        "test.p.generic": ("data", {"model.p.newest", "model.p.orders"}),
        "test.p.singular": ("data", {"model.p.orders"}),
        "unit_test.p.u": ("unit", {"model.p.orders"}),
    }


def test_the_severity_includes_thresholds_other_than_the_defaults() -> None:
    plain = node("test", "plain", "orders", warn_if="!= 0", error_if="!= 0")
    lax = node("test", "lax", "orders", severity="warn", warn_if="> 5", fail_calc="max(n)")
    found = {fact.name: fact.severity for fact in manifest(TABLE, plain, lax).tests()}
    assert found == {"plain": "error", "lax": "warn, warn_if > 5, fail_calc max(n)"}


FOREIGN = "{{ flags.FULL_REFRESH }} {{ env_var('MOST') }}"


def test_values_of_the_command_line_are_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOST", "5")
    monkeypatch.setenv("DBT_ENV_SECRET_X", "5")
    texts = {
        "late": "{% if execute %}{{ env_var('MOST') ~ env_var('DBT_ENV_SECRET_X') }}{% endif %}",
        "flag": "{% if flags.FULL_REFRESH or flags['EMPTY'] %}",
        "args": "{{ invocation_args_dict.vars.landing_most }}",
        "vars": "{{ flags.VARS }}",
        "alike": "{{ var('as_of_day') }} {{ var('landing_most') }} {{ var('landing_until') }}",
        "package": "",
    }
    tests = {name: node("test", name, "orders") for name in texts}
    for name, text in texts.items():
        tests[name].raw_code = text
    tests["package"].depends_on.macros = ["macro.other.m"]
    parsed = SimpleNamespace(
        nodes={one.unique_id: one for one in (TABLE, *tests.values())},
        unit_tests={},
        macros={"macro.other.m": macro(FOREIGN, name="m", package="other")},
    )
    given = {"as_of_day": 1, "landing_most": 2, "landing_until": 3}

    def inputs(full_refresh: bool) -> dict[str, set[str]]:
        flags = SimpleNamespace(FULL_REFRESH=full_refresh, EMPTY=False)
        monkeypatch.setattr(variables, "get_flags", lambda: flags)
        return {fact.name: set(fact.inputs) for fact in ProjectManifest(parsed, given).tests()}

    both = {"var as_of_day", "var landing_most"}
    expected = {
        "late": {"env_var MOST"},
        "flag": {"flags FULL_REFRESH"},
        "args": both,
        "vars": both,
    }
    assert inputs(True) == {**expected, "alike": both, "package": set()}
    assert inputs(False)["flag"] == set()


def query_facts(
    raw: str, config: Any = None, varying: tuple[str, ...] = (), **more: Any
) -> tuple[str | None, dict[str, str]]:
    test = node("test", "t", "inline")
    test.raw_code, test.unrendered_config = raw, more.pop("unrendered", {})
    test.depends_on.macros = ["macro.p.outer"]
    inline = node("model", "inline", "newest", materialized="ephemeral")
    inline.raw_code = more.pop("inline", "")
    parsed = SimpleNamespace(
        nodes={one.unique_id: one for one in (TABLE, VIEW, inline, test)},
        unit_tests={},
        macros={
            "macro.p.outer": macro("{{ adapter.dispatch('inner')() }}", "macro.p.inner"),
            "macro.p.inner": macro(more.pop("inner", "")),
        },
        env_vars={"DAY": "1"},
    )
    (fact,) = ProjectManifest(parsed, more.pop("given", {}), varying, config).tests()
    return None if fact.varies else fact.code, dict(fact.given)


def test_the_code_of_a_test_includes_everything_that_makes_its_query() -> None:
    same, _ = query_facts("select 1")
    assert same is not None
    assert same == query_facts("select 1", given={"x": 1})[0]
    others = [
        query_facts("select 2")[0],
        query_facts("select 1", unrendered={"where": "a"})[0],
        query_facts("select 1", inline="select 1")[0],
        query_facts("select 1", inner="{{ 1 }}")[0],
        query_facts("select 1", SimpleNamespace(vars=Vars({"x": 1}), args=None, cli_vars={}))[0],
    ]
    assert len({same, *others}) == len(others) + 1
    assert None not in others


def test_the_code_of_a_test_is_the_same_whether_it_has_run_or_not() -> None:
    test = node("test", "t", "orders")
    nodes = {one.unique_id: one for one in (TABLE, test)}
    asks = "{{ run_query('select 1') }}"
    macros = {
        "macro.p.a": macro("{{ 1 }}"),
        "macro.p.by_name": macro(asks),
        "macro.dbt.materialization_test_default": macro("", "macro.dbt.statement"),
        "macro.dbt.statement": macro(asks),
    }
    parsed = SimpleNamespace(nodes=nodes, unit_tests={}, macros=macros)
    test.depends_on.macros = ["macro.p.a"]
    before = {test.unique_id: ["macro.p.a"]}

    def code() -> tuple[str | None, bool]:
        (fact,) = ProjectManifest(parsed, calls=before).tests()
        return fact.code, fact.varies

    written, varies = code()
    assert written is not None and not varies
    # dbt adds what the materialization calls, whatever the test is.
    test.depends_on.macros.append("macro.dbt.statement")
    assert code() == (written, False)
    test.depends_on.macros.append("macro.p.by_name")
    assert code() == (written, True)
    before[test.unique_id].append("macro.dbt.statement")
    assert code()[1]


def test_the_code_of_a_node_is_its_own_text_and_not_that_of_its_file() -> None:
    """Snapshots in a YAML file have the checksum of the file, which also has their tests."""
    nodes = [node("snapshot", "s"), node("model", "m"), node("seed", "d")]
    for one in nodes:
        one.checksum = SimpleNamespace(name="sha256", checksum="a")
    code = manifest(*nodes).code
    before = [code(one.unique_id) for one in nodes]
    for one in nodes:
        one.checksum.checksum = "b"
    assert [code(one.unique_id) for one in nodes] == [*before[:2], "b"]
    nodes[0].raw_code = "select * from {{ ref('m') }}"
    assert code(nodes[0].unique_id) not in (*before, None)
    assert code("model.p.none") is None


def test_the_owner_of_a_name_is_the_node_that_has_it() -> None:
    found = manifest(TABLE, INLINE, node("test", "t", "orders"))
    assert found.owner(("S", "Orders")) == TABLE.unique_id
    assert found.owner(("s", "inline")) is found.owner(("s", "t")) is None


class Vars(dict[str, Any]):
    """The vars of a project, as dbt's configuration has them."""

    def to_dict(self) -> dict[str, Any]:
        return dict(self)


@pytest.mark.parametrize(
    "text",
    [
        "{{ run_started_at.strftime('%H') }}",
        "{{ invocation_id }}",
        "{% for one in graph.nodes.values() %}",
        "{% set found = run_query('select 1') %}",
        "{% set columns = adapter.get_columns_in_relation(model) %}",
        "{{ var('run_date') }}",
        "{{ var('landing_until') }}",
    ],
)
def test_a_query_that_differs_in_each_run_is_not_compared(text: str) -> None:
    assert query_facts(text, varying=("run_date",))[0] is None
    assert query_facts("select 1", inner=text, varying=("run_date",))[0] is None
    assert query_facts("select 1", inline=text, varying=("run_date",))[0] is None
    assert query_facts("select invocation_id from graph")[0] is not None


def test_a_module_of_fixed_functions_makes_no_query_vary() -> None:
    assert query_facts("{{ modules.re.sub('a', 'b', 'c') }}")[0] is not None
    assert query_facts("{{ modules.datetime.datetime.now() }}")[0] is None
    assert query_facts("{{ modules['datetime'] }}")[0] is None


@pytest.mark.parametrize(
    ("package", "name", "dispatch", "replaces"),
    [
        # As in dbt_utils, which has macros of the names of dbt's, and calls them by its own name.
        ("other", "default__get_intervals", [], False),
        ("other", "default__get_intervals", [("dbt_utils", ["other"])], False),
        ("other", "default__get_intervals", [("dbt", ["p", "other"])], True),
        ("other", "materialization_test_default", [], True),
        ("p", "sparkwap__get_intervals", [], True),
        ("root", "get_intervals", [], True),
        ("root", "get_others", [], False),
    ],
)
def test_a_macro_that_replaces_one_of_dbt_is_part_of_each_test(
    package: str, name: str, dispatch: list[tuple[str, list[str]]], replaces: bool
) -> None:
    test = node("test", "t", "orders")
    test.raw_code, test.unrendered_config, test.test_metadata = "", {}, None
    test.original_file_path, test.depends_on.macros = "models/o.yml", []
    parsed = SimpleNamespace(
        nodes={TABLE.unique_id: TABLE, test.unique_id: test},
        unit_tests={},
        macros={
            "macro.dbt.a": macro("", name="default__get_intervals", package="dbt"),
            "macro.dbt.b": macro("", name="materialization_test_default", package="dbt"),
            "macro.x.c": macro("{% set x = run_query('select 1') %}", name=name, package=package),
        },
    )
    config = SimpleNamespace(
        project_name="root",
        cli_vars={},
        args=None,
        dispatch=[{"macro_namespace": of, "search_order": order} for of, order in dispatch],
    )
    (fact,) = ProjectManifest(parsed, {}, (), config).tests()
    assert fact.varies == replaces


def test_the_values_of_a_command_are_recorded_whether_a_test_uses_them_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("DAY", "DBT_ENV_CUSTOM_ENV_JOB"):
        monkeypatch.setenv(name, "7")
    config = SimpleNamespace(args=SimpleNamespace(target="ci", profile=None), cli_vars={})
    given = {"strict": False, "wap_branch": "b", "day": 1}
    _, found = query_facts("select 1", config, ("day",), given=given)
    assert set(found) == {
        "var strict",
        "env_var DAY",
        "env_var DBT_ENV_CUSTOM_ENV_JOB",
        "the target",
    }
    _, other = query_facts("select 1", config, ("day",), given={**given, "strict": True})
    assert {name for name in found if found[name] != other[name]} == {"var strict"}


VARIED = {
    "raw": ("select 1 where id > {{ var('most') }}", {}, {}),
    "config": ("", {"where": "{{ var('most', 3) }}"}, {}),
    "kwargs": ("", {}, {"values": ["a", '{{ var("most") }}']}),
    "macro": ("", {}, {}),
    "yaml": ("", {}, {}),
    "any": ("{{ var(name) }}", {}, {}),
    "alias": ("{% set v = var %} {{ v('most') }}", {}, {}),
    "context": ("{{ context['var']('most') }}", {}, {}),
    "arguments": ("{{ invocation_args_dict.vars.most }}", {}, {}),
    "environment": ("{{ env_var('MOST', 1) }}", {}, {}),
    "only when it runs": ("{{ env_var('UNRECORDED') if execute }}", {}, {}),
    "none": ("select my_var (id), 'most', var {{ context['model'] }}", {"where": "most > 1"}, {}),
}


def macro(sql: str, *calls: str, name: str = "", package: str = "p") -> SimpleNamespace:
    called = SimpleNamespace(macros=list(calls))
    return SimpleNamespace(macro_sql=sql, depends_on=called, name=name, package_name=package)


@pytest.mark.parametrize("name", VARIED)
def test_the_used_values_of_the_command_line_are_recorded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOST", "5")
    monkeypatch.setenv("UNRECORDED", "5")
    raw, config, kwargs = VARIED[name]
    test = node("test", name, "orders")
    test.raw_code, test.unrendered_config = raw, config
    test.test_metadata = SimpleNamespace(kwargs=kwargs)
    test.original_file_path, test.file_key_name = "models/o.yml", "models.orders"
    test.depends_on.macros = ["macro.p.outer"] if name == "macro" else []

    column = {"name": "id", "data_tests": [{"unique": {"config": {"where": "{{ var('most') }}"}}}]}
    written = {"name": "orders" if name == "yaml" else "others", "columns": [column]}
    parsed = SimpleNamespace(
        nodes={TABLE.unique_id: TABLE, test.unique_id: test},
        unit_tests={},
        macros={
            "macro.p.outer": macro("{{ inner() }}", "macro.p.inner", "macro.gone"),
            "macro.p.inner": macro("{{ var('most') }}", "macro.p.outer"),
        },
        files={"p://models/o.yml": SimpleNamespace(dict_from_yaml={"models": [written]})},
        env_vars={"MOST": "4", "NOT_SET": "1"},
    )

    def inputs(most: int, *varying: str) -> dict[str, str]:
        (fact,) = ProjectManifest(parsed, {"most": most, "other": 1}, varying).tests()
        return dict(fact.inputs)

    outside: dict[str, set[str]] = {
        "environment": {"env_var MOST"},
        "only when it runs": {"env_var UNRECORDED"},
        "context": {"var most", "var other", "env_var MOST", "env_var NOT_SET"},
        **{one: {"var most", "var other"} for one in ("any", "alias", "arguments")},
        "none": set(),
    }
    assert set(inputs(7)) == outside.get(name, {"var most"})
    assert inputs(7) == inputs(7)
    assert (inputs(7) == inputs(8)) == (name in ("environment", "only when it runs", "none"))
    told = {"var most", "env_var MOST", "env_var UNRECORDED"}
    assert not told & set(inputs(7, "most", "MOST", "UNRECORDED"))


def test_a_reused_manifest_has_the_values_of_its_parse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test = node("test", "t", "orders")
    test.raw_code = "{{ var('most', 1) }} {{ env_var('MOST', 1) }}"
    test.unrendered_config, test.test_metadata = {}, None
    test.original_file_path, test.depends_on.macros = "models/o.yml", []

    def inputs(parsed: str, now: str | None, vars_then: Any = None) -> set[tuple[str, str]]:
        if now is None:
            monkeypatch.delenv("MOST", raising=False)
        else:
            monkeypatch.setenv("MOST", now)
        args = SimpleNamespace(profile=None, target="dev")
        text = "\x00".join([pformat(vars_then or {}), "", "dev", version("dbt-core")])
        manifest = SimpleNamespace(
            nodes={TABLE.unique_id: TABLE, test.unique_id: test},
            unit_tests={},
            env_vars={"MOST": parsed},
            state_check=SimpleNamespace(vars_hash=FileHash.from_contents(text)),
        )
        config = SimpleNamespace(cli_vars={}, args=args)
        (fact,) = ProjectManifest(manifest, {}, (), config).tests()
        return set(fact.inputs.items())

    nothing = DEFAULT_ENV_PLACEHOLDER
    assert inputs(nothing, None) == set()
    assert {name for name, _ in inputs("5", None)} == {"env_var MOST"}
    assert inputs("5", "5") != inputs("4", "5")
    assert {name for name, _ in inputs(nothing, None, {"most": 9})} == {"var most"}


@pytest.mark.parametrize(
    "of", ["ephemeral", "view", "view yaml", "place", "source", "override", "unit", "table"]
)
def test_a_variable_outside_of_a_test_is_an_input_if_it_selects_the_rows_of_the_test(
    of: str,
) -> None:
    var = "{{ var('most') }}"
    kind = of.split()[0] if of.split()[0] in ("ephemeral", "view") else "table"
    between = node("model", "between", materialized=kind)
    between.raw_code = f"select {var}" if of in ("ephemeral", "view", "table") else ""
    if of == "place":
        between.raw_code = f"{{{{ config(alias={var}) }}}} select 1"
    between.depends_on.macros, between.original_file_path = [], "models/o.yml"
    test = node("test", "t", "between")
    test.raw_code, test.unrendered_config, test.test_metadata = "", {}, None
    test.original_file_path, test.depends_on.macros = "models/o.yml", []
    unit = SimpleNamespace(
        unique_id="unit_test.p.u", name="u", package_name="p", original_file_path="models/o.yml",
        depends_on=SimpleNamespace(nodes=["model.p.between"]), model="between",
    )  # fmt: skip
    source = SimpleNamespace(
        schema="raw", identifier="x", source_name="src", name="x", package_name="p",
        original_file_path="models/o.yml",
    )  # fmt: skip
    if of == "source":
        test.depends_on.nodes.append("source.p.src.x")
    written = {
        "models": [{"name": "between", "config": {"enabled": var if of == "view yaml" else True}}],
        "sources": [{"name": "src", "tables": [{"identifier": var if of == "source" else "x"}]}],
        "unit_tests": [{"name": "u", "expect": {"rows": [var if of == "unit" else 1]}}],
    }
    text = var if of == "override" else ""
    parsed = SimpleNamespace(
        nodes={between.unique_id: between, test.unique_id: test},
        unit_tests={unit.unique_id: unit},
        sources={"source.p.src.x": source},
        macros={
            "macro.p.get_test_sql": macro(text, name="get_test_sql"),
            "macro.dbt.get_test_sql": macro(var, name="get_test_sql", package="dbt"),
        },
        files={"p://models/o.yml": SimpleNamespace(dict_from_yaml=written)},
    )
    tests = {fact.name: set(fact.inputs) for fact in ProjectManifest(parsed, {"most": 7}).tests()}
    # A variable of a table or view has changed its rows, which the test reads.
    assert bool(tests["t"]) == (of not in ("unit", "table", "view"))
    assert bool(tests["u"]) == (of == "unit")


def test_a_source_that_names_a_table_of_the_project_is_that_table() -> None:
    same = SimpleNamespace(
        schema="s",
        identifier="orders",
        source_name="same",
        package_name="p",
        original_file_path="models/s.yml",
    )
    view = node("model", "v", materialized="view")
    view.depends_on.nodes = ["source.p.same.orders"]
    test = node("test", "t")
    test.depends_on.nodes = ["model.p.v"]
    looped = node("model", "orders")
    looped.depends_on.nodes = ["source.p.same.orders"]
    parsed = SimpleNamespace(
        nodes={n.unique_id: n for n in (looped, view, test)},
        unit_tests={},
        sources={"source.p.same.orders": same},
    )
    found = ProjectManifest(parsed)
    (fact,) = found.tests()
    assert fact.reads == {"model.p.v", "model.p.orders", "source.p.same.orders"}
    parents = {f.node_id: f.parents for f in found.nodes([result(view, "success"),
                                                          result(looped, "success")])}  # fmt: skip
    assert parents["model.p.v"] == {"model.p.orders", "source.p.same.orders"}
    assert parents["model.p.orders"] == {"source.p.same.orders"}


def test_a_test_with_limit_0_cannot_fail() -> None:
    blind = node("test", "blind", "orders", limit=0)
    seen = manifest(TABLE, blind).seen([result(blind, TestStatus.Pass)])
    assert [(one.status, one.message) for one in seen][1:] == [
        ("error", "its config has `limit: 0`, so it cannot fail")
    ]


def test_a_test_on_deferred_tables_is_no_audit() -> None:
    def args(**given: bool) -> SimpleNamespace:
        return SimpleNamespace(**{"defer": True, "favor_state": True, **given})

    def state(schema: str) -> SimpleNamespace:
        return SimpleNamespace(schema=schema, alias="orders")

    table = node("model", "orders")
    test = node("test", "t", "orders")
    whole = SimpleNamespace(nodes={table.unique_id: table, test.unique_id: test})
    table.defer_relation = state("production")
    assert deferred(whole, args(), {test.unique_id}) == {table.unique_id}
    assert deferred(whole, args(), {table.unique_id}) == frozenset()
    assert deferred(whole, args(favor_state=False), ()) == frozenset()
    assert deferred(whole, args(defer=False), ()) == frozenset()
    seen = manifest(table, test).seen([result(test, TestStatus.Pass)], {table.unique_id})
    assert [one.status for one in seen] == ["deferred"]
    seen = manifest(table, test).seen([result(test, TestStatus.Fail)], {table.unique_id})
    assert [one.status for one in seen] == ["fail"]
    table.defer_relation = state("s")
    assert deferred(whole, args(), ()) == frozenset()
