"""The owners of tables, and the columns of failed rows that may be shown: no personal ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.alerts.project import Project, of_manifest, trouble

DBT_TEST = {"depends_on": {"macros": ["macro.dbt.test_unique"], "nodes": ["model.shop.customers"]}}


def node(name: str, *parents: str, columns: dict[str, Any] | None = None, **more: Any) -> Any:
    return {
        "unique_id": f"model.shop.{name}",
        "columns": {
            key: {"name": key, "meta": {}, "config": {"meta": meta}}
            for key, meta in (columns or {}).items()
        },
        "depends_on": {"nodes": [f"model.shop.{parent}" for parent in parents]},
        "config": more,
    }


def generic(kind: str, column: str, model: str = "customers", **more: Any) -> dict[str, Any]:
    return {
        "unique_id": f"test.shop.{kind}",
        "test_metadata": {"name": kind, "namespace": None},
        "column_name": column,
        "depends_on": {"nodes": [f"model.shop.{model}"], "macros": [f"macro.dbt.test_{kind}"]},
        "config": {},
        **more,
    }


def project(*nodes: Any, groups: Any = None) -> Project:
    return of_manifest({"nodes": {n["unique_id"]: n for n in nodes}, "groups": groups})


CUSTOMERS = node("customers", columns={"id": {}, "email": {"personal": "customer"}})


class TestOwners:
    def test_owners_of_tables_and_tests_are_listed_once(self) -> None:
        known = project(
            node("a", meta={"owner": "@jane, data-team"}),
            node("b", meta={"owner": ["data-team", "joe@example.com"]}),
            node("c"),
        )
        owners = known.owners(["model.shop.a", "model.shop.b", "model.shop.c", "model.shop.gone"])
        assert owners == ("jane", "data-team", "joe@example.com")

    def test_a_model_without_an_owner_has_that_of_its_group(self) -> None:
        groups = {"group.shop.g": {"name": "g", "owner": {"name": "G", "email": "g@example.com"}}}
        known = project(
            node("a", group="g"), node("b", group="g", meta={"owner": "x"}), groups=groups
        )
        assert known.owners(["model.shop.a"]) == ("g@example.com",)
        assert known.owners(["model.shop.b"]) == ("x",)


class TestSamples:
    def test_all_columns_are_shown_if_none_is_personal(self) -> None:
        known = project(node("orders", columns={"id": {}}), generic("unique", "id", "orders"))
        found = known.sample("test.shop.unique", ["unique_field", "n_records"], [(7, 2), (None, 3)])
        assert (found.columns, found.withheld) == (("unique_field", "n_records"), "")
        assert found.rows == (("7", "2"), ("NULL", "3"))

    def test_a_personal_column_is_withheld_also_under_another_name(self) -> None:
        known = project(CUSTOMERS, generic("unique", "email"))
        found = known.sample("test.shop.unique", ["unique_field", "n_records"], [("a@b.c", 2)])
        assert (found.columns, found.rows) == ((), ())
        assert found.withheld == "withheld: unique_field, n_records (personal: email)"

    def test_another_column_of_a_table_with_personal_columns_is_shown(self) -> None:
        known = project(CUSTOMERS, generic("unique", "id"))
        found = known.sample("test.shop.unique", ["unique_field", "n_records"], [(7, 2)])
        assert found.rows == (("7", "2"),)

    def test_of_whole_rows_only_the_tested_column_is_shown(self) -> None:
        known = project(CUSTOMERS, generic("not_null", "id"))
        found = known.sample("test.shop.not_null", ["id", "email", "town"], [(None, "a@b.c", "X")])
        assert (found.columns, found.rows) == (("id",), (("NULL",),))
        assert "email, town" in found.withheld

    @pytest.mark.parametrize(
        "test",
        [
            # A custom test may select any column under any name.
            generic("unique", "id", test_metadata={"name": "mine", "namespace": None}),
            generic("unique", "id", test_metadata={"name": "unique", "namespace": "other"}),
            generic("unique", "id", test_metadata={}),
            generic("unique", "lower(email)"),
            generic("unique", "EMAIL"),
            generic("unique", ""),
            {**generic("unique", "id"), "depends_on": {**DBT_TEST["depends_on"], "macros": []}},
        ],
    )
    def test_rows_of_other_tests_are_withheld(self, test: Any) -> None:
        found = project(CUSTOMERS, test).sample(test["unique_id"], ["id", "unique_field"], [(1, 2)])
        assert found.rows == ()

    def test_the_marks_of_upstream_tables_count(self) -> None:
        known = project(
            CUSTOMERS,
            node("stg", "customers"),
            node("dim", "stg", columns={"id": {}}),
            generic("unique", "email", "dim"),
            {**generic("x", "id", "dim"), "test_metadata": {}},
        )
        for test in ("unique", "x"):
            assert known.sample(f"test.shop.{test}", ["unique_field"], [("a@b.c",)]).rows == ()

    @pytest.mark.parametrize("mark", ["subject", "personal", "subject_text", "sensitive", "pii"])
    def test_every_mark_counts(self, mark: str) -> None:
        marked = node("customers", columns={"x": {mark: "customer"}})
        known = project(marked, generic("unique", "x"))
        assert known.personal("model.shop.customers") == {"x"}
        assert known.sample("test.shop.unique", ["unique_field"], [("v",)]).rows == ()

    def test_rows_of_a_sensitive_table_are_withheld(self) -> None:
        known = project(node("customers", meta={"sensitive": True}), generic("unique", "id"))
        assert known.sample("test.shop.unique", ["unique_field"], [("v",)]).rows == ()

    def test_raw_texts_are_never_shown(self) -> None:
        known = project(node("raw"), {**generic("x", "", "raw"), "test_metadata": {}})
        found = known.sample("test.shop.x", ["_row", "_RAW", "raw_text"], [(1, "secret", "secret")])
        assert (found.columns, found.rows) == (("_row",), (("1",),))

    @pytest.mark.parametrize("of", [{}, {"email": {"pii": True}}])
    def test_tests_of_raw_texts_show_none_of_their_rows(self, of: Any) -> None:
        known = project(node("raw", columns=of), generic("unique", "_RAW", "raw"))
        assert known.sample("test.shop.unique", ["unique_field"], [("secret",)]).rows == ()

    @given(
        personal=st.sets(st.sampled_from(["a", "b", "c", "d"]), min_size=1),
        tested=st.sampled_from(["a", "b", "c", "d", ""]),
        kind=st.sampled_from(["unique", "not_null", "accepted_values", "relationships", "own"]),
        returned=st.lists(
            st.sampled_from(["a", "b", "c", "d", "unique_field", "value_field", "from_field", "z"]),
            unique=True,
        ),
    )
    def test_no_value_of_a_personal_column_is_shown(
        self, personal: set[str], tested: str, kind: str, returned: list[str]
    ) -> None:
        """Each value is the name of the column that it comes from."""
        columns = {name: {"pii": name in personal} for name in "abcd"}
        known = project(node("customers", columns=columns), generic(kind, tested))
        origin = {"unique_field": tested, "value_field": tested, "from_field": tested}
        rows = [tuple(origin.get(name, name) for name in returned)]
        found = known.sample(f"test.shop.{kind}", returned, rows)
        assert not {value for row in found.rows for value in row} & (personal | {"z"})


class TestReasons:
    CAST = "build failed: [CAST_INVALID_INPUT] The value 'a@b.c' of the type STRING cannot be cast"

    def test_spark_s_errors_are_withheld_for_a_node_with_personal_columns(self) -> None:
        known = project(CUSTOMERS, node("orders"))
        assert known.harmless(self.CAST, "model.shop.orders") == self.CAST
        assert known.harmless(self.CAST, "model.shop.customers") == (
            "build failed: [CAST_INVALID_INPUT] (its text is withheld: personal columns)"
        )
        error = "test t ended in an error (Runtime Error: no such row 'a@b.c')"
        assert "a@b.c" not in known.harmless(
            f"test x failed (1 row); {error}", "model.shop.customers"
        )

    @pytest.mark.parametrize(
        "reason",
        [
            "test orders_have_ids failed (3 rows)",
            "not built: upstream shop.orders was rejected",
            "waits for the run: 1 of 2 tables rejected (shop.orders)",
        ],
    )
    def test_reasons_of_the_gate_are_not_withheld(self, reason: str) -> None:
        assert project(CUSTOMERS).harmless(reason, "model.shop.customers") == reason

    def test_the_same_problem_has_the_same_text_in_each_run(self) -> None:
        assert trouble(["test a failed (3 rows)"]) == trouble(["test a failed (1,204 rows)"])
        assert trouble(["test a failed (3 rows)"]) != trouble(["test b failed (3 rows)"])
        assert trouble(["build failed: x"]) == trouble(["build failed: y"])
        # The ledger joins reasons in this form.
        assert trouble(["test a failed (3 rows)", "build failed: x"]) == trouble(
            ["test a failed (4 rows); build failed: x"]
        )
