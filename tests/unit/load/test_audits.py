"""Which audits a load has, and what they say of rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sparkwap.load import Audit, LoadError, from_arguments, from_manifest, from_yaml
from sparkwap.load.audits import tally

EVENTS = ("web", "events")
SOURCE = "source.shop.web.events"


def counted(audit: Audit, *batches: list[Any], kind: pa.DataType | None = None) -> int:
    made = [pa.record_batch({audit.column: pa.array(one, kind)}) for one in batches]
    return tally([audit], made)[0].failures


def audit(kind: str, **more: Any) -> Audit:
    (one,) = from_yaml(str({"columns": [{"name": "c", "data_tests": [{kind: more}]}]}), EVENTS)
    return one


@pytest.mark.parametrize(
    ("one", "batches", "failures"),
    [
        (audit("not_null"), [[1, None], [None, 2]], 2),
        (audit("not_null"), [["a"], []], 0),
        # Twice in two batches is twice; dbt does not look at NULL.
        (audit("unique"), [[1, 2], [2, 3, None], [None, 3]], 2),
        (audit("unique"), [[1, 2], [3]], 0),
        (audit("accepted_values", values=["a", "b"]), [["a", None], ["c", "c", "d"]], 2),
        (audit("accepted_values", values=[1, 2]), [[1, 2, 3]], 1),
        (audit("accepted_values", values=["1"], quote=False), [[1]], 0),
        (audit("accepted_values", values=[True]), [[True, False]], 1),
        (audit("accepted_range", min_value=0, max_value=10), [[0, 10, None], [-1, 11]], 2),
        (audit("accepted_range", min_value=0, inclusive=False), [[0, 1]], 1),
        (audit("accepted_range", max_value=1.5), [[1, 2]], 1),
        (audit("accepted_range", max_value=1), [[1.0, float("nan")]], 1),
        (audit("accepted_range", min_value="0.10"), [[Decimal("0.10"), Decimal("0.09")]], 1),
    ],
)
def test_failures_are_counted_as_dbt_does(
    one: Audit, batches: list[list[Any]], failures: int
) -> None:
    kind = pa.infer_type([value for batch in batches for value in batch])
    assert counted(one, *batches, kind=kind) == failures


def test_no_rows_fail_nothing() -> None:
    for kind in ("not_null", "unique"):
        assert tally([audit(kind)], [])[0].failures == 0


def test_what_cannot_be_compared_is_told() -> None:
    with pytest.raises(LoadError, match="accepted_range_c cannot look at c"):
        counted(audit("accepted_range", min_value=0), ["a"])


def test_a_file_of_audits_is_read_as_dbt_reads_it() -> None:
    found = from_yaml(
        """
        columns:
          - name: id
            data_tests: [not_null, unique]
          - name: state
            tests:
              - accepted_values: {arguments: {values: [a, b]}, config: {severity: warn}}
          - name: amount
            data_tests: [{dbt_utils.accepted_range: {min_value: 0}}]
          - name: free
        """,
        EVENTS,
    )
    assert [(one.kind, one.column, one.severity) for one in found] == [
        ("not_null", "id", "error"),
        ("unique", "id", "error"),
        ("accepted_values", "state", "warn"),
        ("accepted_range", "amount", "error"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "is not YAML"),
        ("[]", "no list `columns`"),
        ("{columns: [{data_tests: [unique]}]}", "a column without a name"),
        ("{columns: [{name: c, data_tests: [uniqe]}]}", "column c: a load knows no test uniqe"),
        ("{columns: [{name: c, data_tests: [{a: 1, b: 2}]}]}", "is no test"),
        ("{columns: [{name: c, data_tests: [accepted_values]}]}", "needs a list of `values`"),
        ("{columns: [{name: c, data_tests: [accepted_range]}]}", "needs min_value or max_value"),
        ("{columns: [{name: c, data_tests: [{unique: {where: x}}]}]}", "unique has where"),
        (
            "{columns: [{name: c, data_tests: [{not_null: {severity: loud}}]}]}",
            "the severity 'loud'",
        ),
        (
            "{columns: [{name: c, data_tests: [{accepted_range: {min_value: now()}}]}]}",
            "only SQL understands",
        ),
    ],
)
def test_a_faulty_file_of_audits_is_told(text: str, why: str) -> None:
    with pytest.raises(LoadError, match="nothing was loaded") as error:
        from_yaml(text, EVENTS)
    assert why in str(error.value)


def test_all_faults_are_told_at_once() -> None:
    text = "{columns: [{name: a, data_tests: [x]}, {name: b, data_tests: [y]}]}"
    with pytest.raises(LoadError, match=r"(?s)column a: .*column b: "):
        from_yaml(text, EVENTS)


def test_audits_of_the_command_line() -> None:
    found = from_arguments(EVENTS, ["a"], ["b"], ["c=x,y"], ["d=0..9", "e=..5", "f=1.."])
    assert [(one.kind, one.column, one.values, one.least, one.most) for one in found] == [
        ("not_null", "a", (), None, None),
        ("unique", "b", (), None, None),
        ("accepted_values", "c", ("x", "y"), None, None),
        ("accepted_range", "d", (), "0", "9"),
        ("accepted_range", "e", (), None, "5"),
        ("accepted_range", "f", (), "1", None),
    ]
    with pytest.raises(LoadError, match=r"(?s)--accepted c: .*--between d=5: "):
        from_arguments(EVENTS, accepted=["c"], between=["d=5"])


# ---------------------------------------------------------------- the tests of a project


def a_test(name: str, *reads: str, **more: Any) -> dict[str, Any]:
    kwargs = {"column_name": "id", "model": "x", **more.pop("kwargs", {})}
    return {
        "unique_id": f"test.shop.{name}",
        "name": name,
        "resource_type": "test",
        "config": {"severity": "ERROR", **more.pop("config", {})},
        "depends_on": {"nodes": list(reads)},
        "sources": [["web", "events"]],
        "test_metadata": {"name": more.pop("kind", "unique"), "kwargs": kwargs, **more},
    }


def a_manifest(*tests: dict[str, Any], **disabled: Any) -> dict[str, Any]:
    view = {
        "unique_id": "model.shop.newest",
        "name": "newest",
        "resource_type": "model",
        "schema": "shop",
        "alias": "newest",
        "config": {"materialized": "view"},
        "depends_on": {"nodes": [SOURCE]},
    }
    source = {"schema": "Web", "identifier": "Events", "source_name": "web", "name": "events"}
    nodes = {one["unique_id"]: one for one in (view, *tests)}
    return {"nodes": nodes, "sources": {SOURCE: source}, "disabled": disabled}


def test_the_tests_of_a_source_are_its_audits() -> None:
    found = from_manifest(
        a_manifest(
            a_test("unique_id", SOURCE),
            a_test("warned", SOURCE, kind="not_null", config={"severity": "warn"}),
            a_test("other", "source.shop.web.other"),
        ),
        EVENTS,
    )
    assert found.node_id == SOURCE
    assert [(one.test_id, one.kind, one.severity) for one in found.audits] == [
        ("test.shop.unique_id", "unique", "error"),
        ("test.shop.warned", "not_null", "warn"),
    ]
    assert found.beyond() == []


@pytest.mark.parametrize(
    "one",
    [
        a_test("t", SOURCE, "model.shop.newest", kind="relationships"),
        a_test("t", "model.shop.newest"),
        a_test("t", SOURCE, kind="my_rule"),
        a_test("t", SOURCE, namespace="my_package"),
        a_test("t", SOURCE, config={"where": "id > 1"}),
        a_test("t", SOURCE, config={"error_if": "> 10"}),
        a_test("t", SOURCE, kind="accepted_range", kwargs={"min_value": "(select 1)"}),
    ],
)
def test_what_only_dbt_can_run_is_expected_all_the_same(one: dict[str, Any]) -> None:
    found = from_manifest(a_manifest(one), EVENTS)
    assert found.audits == ()
    assert found.beyond() == ["t"]
    assert SOURCE in found.tests[0].reads


def test_a_test_that_is_switched_off_is_known() -> None:
    found = from_manifest(a_manifest(off=[a_test("off", SOURCE)]), EVENTS)
    assert [(one.name, one.disabled) for one in found.tests] == [("off", True)]


def test_a_table_that_a_model_builds_is_refused() -> None:
    with pytest.raises(LoadError, match="is built by the model newest"):
        from_manifest(a_manifest(), ("shop", "newest"))


def test_a_table_that_no_project_knows_has_no_audits_but_the_given() -> None:
    found = from_manifest(a_manifest(), ("web", "own")).also(from_arguments(("web", "own"), ["a"]))
    assert found.node_id == "load.web.own"
    assert [(one.test_id, one.reads) for one in found.tests] == [
        ("load.web.own.a.not_null", frozenset({"load.web.own"}))
    ]
