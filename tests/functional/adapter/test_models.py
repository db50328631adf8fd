"""Seeds, hooks, copies, ephemeral models, empty and sample runs, queries, unit tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.adapter.column_types.test_column_types import BaseColumnTypes
from dbt.tests.adapter.concurrency.test_concurrency import BaseConcurrency
from dbt.tests.adapter.dbt_debug.test_dbt_debug import (
    BaseDebugInvalidProjectPostgres,
    BaseDebugPostgres,
)
from dbt.tests.adapter.dbt_show.test_dbt_show import (
    BaseShowDoesNotHandleDoubleLimit,
    BaseShowLimit,
    BaseShowSqlHeader,
)
from dbt.tests.adapter.empty import _models as empty_models
from dbt.tests.adapter.empty.test_empty import (
    BaseTestEmpty,
    BaseTestEmptyInlineSourceRef,
    MetadataWithEmptyFlag,
)
from dbt.tests.adapter.ephemeral.test_ephemeral import (
    BaseEphemeralErrorHandling,
    BaseEphemeralMulti,
    BaseEphemeralNested,
)
from dbt.tests.adapter.query_comment.test_query_comment import (
    BaseEmptyQueryComments,
    BaseMacroArgsQueryComments,
    BaseMacroInvalidQueryComments,
    BaseMacroQueryComments,
    BaseNullQueryComments,
    BaseQueryComments,
)
from dbt.tests.adapter.sample_mode.test_sample_mode import BaseSampleModeTest
from dbt.tests.adapter.simple_copy.test_copy_uppercase import BaseSimpleCopyUppercase
from dbt.tests.adapter.simple_copy.test_simple_copy import SimpleCopyBase
from dbt.tests.adapter.unit_testing.test_case_insensitivity import BaseUnitTestCaseInsensivity
from dbt.tests.adapter.unit_testing.test_invalid_input import BaseUnitTestInvalidInput
from dbt.tests.adapter.unit_testing.test_quoted_reserved_word_column_names import (
    BaseUnitTestQuotedReservedWordColumnNames,
    my_model_sql,
    test_my_model_csv_fixtures_yml,
)
from dbt.tests.adapter.unit_testing.test_types import (
    BaseUnitTestingTypes,
    BaseUnitTestingVarcharFixtureNoTruncation,
)
from dbt.tests.util import check_relations_equal, run_dbt

FEWER_ROWS = "what was built with --empty or --sample is held, so readers do not see it"


class TestColumnTypes(BaseColumnTypes):
    @pytest.fixture(scope="class")
    def models(self):
        casts = {
            "smallint_col": ("1", "smallint", ["integer", "number"]),
            "int_col": ("2", "int", ["integer", "number"]),
            "bigint_col": ("3", "bigint", ["integer", "number"]),
            "float_col": ("4.0", "float", ["float", "number"]),
            "double_col": ("5.0", "double", ["float", "number"]),
            "numeric_col": ("6.0", "decimal(12,2)", ["numeric", "number"]),
            "string_col": ("'7'", "string", ["string", "not number"]),
            "varchar_col": ("'8'", "varchar(20)", ["string", "not number"]),
        }
        columns = ", ".join(f"cast({v} as {t}) as {c}" for c, (v, t, _) in casts.items())
        checks = {c: kinds for c, (_, _, kinds) in casts.items()}
        tests = [{"is_type": {"arguments": {"column_map": checks}}}]
        return {
            "model.sql": f"select {columns}",
            "schema.yml": {"version": 2, "models": [{"name": "model", "data_tests": tests}]},
        }

    def test_run_and_test(self, project):
        self.run_and_test()


class TestConcurrency(BaseConcurrency):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        # One of its models fails on purpose, and the class looks at the others.
        return {"vars": {"wap_publish": "lineage"}}


class TestShowLimit(BaseShowLimit):
    pass


class TestShowSqlHeader(BaseShowSqlHeader):
    pass


class TestShowDoesNotHandleDoubleLimit(BaseShowDoesNotHandleDoubleLimit):
    DATABASE_ERROR_MESSAGE = "limit"


@pytest.mark.xfail(strict=True, reason=FEWER_ROWS)
class TestEmpty(BaseTestEmpty):
    pass


@pytest.mark.xfail(strict=True, reason=FEWER_ROWS)
class TestEmptyInlineSourceRef(BaseTestEmptyInlineSourceRef):
    pass


class TestMetadataWithEmptyFlag(MetadataWithEmptyFlag):
    @pytest.fixture(scope="class")
    def models(self):
        names = ("get_columns_in_relation", "alter_column_type", "alter_relation_comment")
        names += ("control", "alter_column_comment", "alter_relation_add_remove_columns")
        names += ("truncate_relation",)
        # Spark's varchar has a length.
        return {"schema.yml": empty_models.SCHEMA} | {
            f"{name}.sql": getattr(empty_models, name.upper()).replace('"varchar"', '"string"')
            for name in names
        }

    @pytest.fixture(scope="class")
    def project_config_update(self):
        # Its models alter a live seed, which the guard refuses by default.
        return {"vars": {"wap_guard": False}}


class TestEphemeralMulti(BaseEphemeralMulti):
    def test_ephemeral_multi(self, project):
        # The base class's steps, without the text of PostgreSQL's `create view`.
        run_dbt(["seed"])
        assert len(run_dbt(["run"])) == 3
        for name in ("dependent", "double_dependent", "super_dependent"):
            check_relations_equal(project.adapter, ["seed", name])


class TestEphemeralNested(BaseEphemeralNested):
    def test_ephemeral_nested(self, project):
        # The base class's steps, with the text that Spark gets.
        assert len(run_dbt(["run"])) == 2
        written = Path("target/run/test/models/root_view.sql").read_text()
        sql = re.sub(r"\s+", "", written)
        assert re.fullmatch(
            r"createorreplaceview\S+\.root_viewas"
            r"with__dbt__cte__ephemeral_level_twoas\(select\*from\S+\.source_table\),"
            r"__dbt__cte__ephemeralas\(select\*from__dbt__cte__ephemeral_level_two\)"
            r"select\*from__dbt__cte__ephemeral",
            sql,
        )


class TestEphemeralErrorHandling(BaseEphemeralErrorHandling):
    pass


class TestQueryComments(BaseQueryComments):
    pass


class TestMacroQueryComments(BaseMacroQueryComments):
    pass


class TestMacroArgsQueryComments(BaseMacroArgsQueryComments):
    pass


class TestMacroInvalidQueryComments(BaseMacroInvalidQueryComments):
    pass


class TestNullQueryComments(BaseNullQueryComments):
    pass


class TestEmptyQueryComments(BaseEmptyQueryComments):
    pass


@pytest.mark.xfail(strict=True, reason=FEWER_ROWS)
class TestSampleMode(BaseSampleModeTest):
    pass


class TestSimpleCopy(SimpleCopyBase):
    # Spark has no materialized views.
    test_simple_copy_with_materialized_views = None


class TestSimpleCopyUppercase(BaseSimpleCopyUppercase):
    @pytest.fixture(scope="class")
    def dbt_profile_target(self, lake_dir) -> dict[str, Any]:
        # The base class asks for a PostgreSQL database with a mixed-case name.
        return {"type": "sparkwap", "lake": str(lake_dir), "threads": 2}


class TestUnitTestCaseInsensitivity(BaseUnitTestCaseInsensivity):
    pass


class TestUnitTestInvalidInput(BaseUnitTestInvalidInput):
    pass


class TestUnitTestQuotedReservedWords(BaseUnitTestQuotedReservedWordColumnNames):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model.sql": my_model_sql,
            "my_upstream_model.sql": "select 1 as `GROUP`",
            "unit_tests.yml": test_my_model_csv_fixtures_yml,
        }


class TestUnitTestingTypes(BaseUnitTestingTypes):
    @pytest.fixture
    def data_types(self):
        # The value in SQL, and in the unit test's YAML.
        return [
            ["1", "1"],
            ["2.0", "2.0"],
            ["'12345'", "12345"],
            ["'string'", "string"],
            ["true", "true"],
            ["date '2011-11-11'", "2011-11-11"],
            ["timestamp '2013-11-03 00:00:00-0'", "2013-11-03 00:00:00-0"],
            ["array(1, 2, 3)", "'array(1, 2, 3)'"],
            [
                "map('10', 't', '15', 'f', '20', NULL)",
                """'map("10", "t", "15", "f", "20", NULL)'""",
            ],
            ['named_struct("a", 1, "b", 2, "c", 3)', """'named_struct("a", 1, "b", 2, "c", 3)'"""],
        ]


class TestUnitTestingVarcharNoTruncation(BaseUnitTestingVarcharFixtureNoTruncation):
    pass


class TestDebug(BaseDebugPostgres):
    pass


class TestDebugInvalidProject(BaseDebugInvalidProjectPostgres):
    pass
