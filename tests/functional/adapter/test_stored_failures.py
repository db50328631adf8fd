"""Stored failures of tests."""

from __future__ import annotations

from dbt.artifacts.schemas.results import TestStatus
from dbt.tests.adapter.store_test_failures_tests import basic
from dbt.tests.adapter.store_test_failures_tests.test_store_test_failures import (
    BaseStoreTestFailures,
    BaseStoreTestFailuresLimit,
)
from dbt.tests.util import (
    check_relations_equal,
    get_connection,
    relation_from_name,
    run_dbt,
)


class _OneBranch:
    """Tests fail here on purpose, so nothing is ever published; the classes look at the branch.

    Tests that pass beside a failing one are to run again on the rows of a retry, and so `skipped`.
    """

    one_branch = True

    def run_and_assert(self, project, expected_results, expect_pass=False):
        failing = any(result.status == TestStatus.Fail for result in expected_results)
        expected = {
            result._replace(status=TestStatus.Skipped)
            if failing and result.status == TestStatus.Pass
            else result
            for result in expected_results
        }
        super().run_and_assert(project, expected, expect_pass)


class TestStoreTestFailures(_OneBranch, BaseStoreTestFailures):
    def run_tests_store_failures_and_assert(self, project):
        # As in the base class, except that what passes beside a failure is `skipped`.
        for _ in range(2):
            results = run_dbt(["test", "--store-failures"], expect_pass=False)
        failed = sorted(result.failures for result in results if result.status == "fail")
        assert failed == [2, 2, 2, 10]
        assert {str(result.status) for result in results} <= {"fail", "pass", "skipped"}
        stored = {
            "failing_test": "expected_failing_test",
            "not_null_problematic_model_id": "expected_not_null_problematic_model_id",
            "unique_problematic_model_id": "expected_unique_problematic_model_id",
            "accepted_values_problematic_mo_c533ab4ca65c1a9dbf14f79ded49b628": (
                "expected_accepted_values"
            ),
        }
        for name, expected in stored.items():
            found = f"{self.test_audit_schema}.{name}"
            check_relations_equal(project.adapter, [found, expected])


class TestStoreTestFailuresLimit(_OneBranch, BaseStoreTestFailuresLimit):
    def test_store_limit(self, project, clean_up):
        # As in the base class, but by a relation, which knows where the branch has its table.
        result = run_dbt(["test"], expect_pass=False).results[0]
        assert result.failures == 4
        name = f"{result.node.schema}.{result.node.alias}"
        relation = relation_from_name(project.adapter, name)
        with get_connection(project.adapter):
            assert project.adapter.get_columns_in_relation(relation)
        rows = project.run_sql(f"select count(*) as cnt from {relation}", fetch="one")
        assert rows[0] == 4


class TestAsInteractions(_OneBranch, basic.StoreTestFailuresAsInteractions):
    pass


class TestAsProjectLevelOff(_OneBranch, basic.StoreTestFailuresAsProjectLevelOff):
    pass


class TestAsProjectLevelView(_OneBranch, basic.StoreTestFailuresAsProjectLevelView):
    pass


class TestAsProjectLevelEphemeral(_OneBranch, basic.StoreTestFailuresAsProjectLevelEphemeral):
    pass


class TestAsGeneric(_OneBranch, basic.StoreTestFailuresAsGeneric):
    pass


class TestAsExceptions(_OneBranch, basic.StoreTestFailuresAsExceptions):
    pass
