"""Contracts, constraints, persisted documentation, grants."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest
from dbt.tests.adapter.constraints import fixtures
from dbt.tests.adapter.constraints.test_constraints import (
    BaseConstraintsRollback,
    BaseIncrementalConstraintsColumnsEqual,
    BaseIncrementalConstraintsRollback,
    BaseIncrementalContractSqlHeader,
    BaseIncrementalForeignKeyConstraint,
    BaseTableConstraintsColumnsEqual,
    BaseTableContractSqlHeader,
    BaseViewConstraintsColumnsEqual,
)
from dbt.tests.adapter.persist_docs.test_persist_docs import (
    BasePersistDocs,
    BasePersistDocsAllColumnsMissing,
    BasePersistDocsColumnMissing,
    BasePersistDocsCommentOnQuotedColumn,
    BasePersistDocsQuotedColumnCaseSensitive,
    BasePersistDocsQuotedDescriptionNotAppliedOnMismatch,
)
from dbt.tests.util import run_dbt, run_dbt_and_capture

SCHEMA = fixtures.model_schema_yml.replace("text", "string")


class _SparkTypes:
    @pytest.fixture
    def string_type(self):
        return "string"

    @pytest.fixture
    def int_type(self):
        return "int"

    @pytest.fixture
    def data_types(self):
        # The column in SQL, its type in the contract, its type in the error.
        return [
            ["1", "int", "int"],
            ["'1'", "string", "string"],
            ["true", "boolean", "boolean"],
            ["array('1', '2')", "array<string>", "array<string>"],
            ["array(1, 2)", "array<int>", "array<int>"],
            ["cast('2019-01-01' as date)", "date", "date"],
            ["cast('2019-01-01' as timestamp)", "timestamp", "timestamp"],
            ["cast(1.0 as decimal(4, 2))", "decimal(4,2)", "decimal"],
            ["named_struct('a', 1)", "struct<a:int>", "struct<a:int>"],
        ]


class TestTableColumnsEqual(_SparkTypes, BaseTableConstraintsColumnsEqual):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model_wrong_order.sql": fixtures.my_model_wrong_order_sql,
            "my_model_wrong_name.sql": fixtures.my_model_wrong_name_sql,
            "constraints_schema.yml": SCHEMA,
        }


class TestViewColumnsEqual(_SparkTypes, BaseViewConstraintsColumnsEqual):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model_wrong_order.sql": fixtures.my_model_view_wrong_order_sql,
            "my_model_wrong_name.sql": fixtures.my_model_view_wrong_name_sql,
            "constraints_schema.yml": SCHEMA,
        }


class TestIncrementalColumnsEqual(_SparkTypes, BaseIncrementalConstraintsColumnsEqual):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model_wrong_order.sql": fixtures.my_model_incremental_wrong_order_sql,
            "my_model_wrong_name.sql": fixtures.my_model_incremental_wrong_name_sql,
            "constraints_schema.yml": SCHEMA,
        }


class _Rollback:
    # The classes attach tests and never run them, so the gate would hold the table.
    changes: ClassVar = {
        "data_tests": {"+enabled": False},
        "vars": {"wap_disabled_tests": "publish"},
    }

    @pytest.fixture(scope="class")
    def expected_error_messages(self):
        return ["null", "id"]

    def assert_expected_error_messages(self, error_message, expected_error_messages):
        assert all(word in error_message.lower() for word in expected_error_messages)


class TestTableRollback(_Rollback, BaseConstraintsRollback):
    @pytest.fixture(scope="class")
    def models(self):
        return {"my_model.sql": fixtures.my_model_sql, "constraints_schema.yml": SCHEMA}


class TestIncrementalRollback(_Rollback, BaseIncrementalConstraintsRollback):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model.sql": fixtures.my_incremental_model_sql,
            "constraints_schema.yml": SCHEMA,
        }


_HEADER = "set session time zone 'Asia/Kolkata'"
_HEADER_SCHEMA = fixtures.model_contract_header_schema_yml.replace("text", "string")


def _spark_header(sql: str) -> str:
    sql = sql.replace(_HEADER, "set time zone 'Asia/Kolkata'")
    return sql.replace("current_setting('timezone')", "current_timezone()")


class TestTableContractSqlHeader(BaseTableContractSqlHeader):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model_contract_sql_header.sql": _spark_header(
                fixtures.my_model_contract_sql_header_sql
            ),
            "constraints_schema.yml": _HEADER_SCHEMA,
        }


class TestIncrementalContractSqlHeader(BaseIncrementalContractSqlHeader):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model_contract_sql_header.sql": _spark_header(
                fixtures.my_model_incremental_contract_sql_header_sql
            ),
            "constraints_schema.yml": _HEADER_SCHEMA,
        }


class TestIncrementalForeignKey(BaseIncrementalForeignKeyConstraint):
    @pytest.fixture(scope="class")
    def models(self):
        schema = fixtures.incremental_foreign_key_schema_yml.replace("integer", "int")
        return {
            "schema.yml": schema,
            "raw_numbers.sql": fixtures.incremental_foreign_key_model_raw_numbers_sql,
            "stg_numbers.sql": fixtures.incremental_foreign_key_model_stg_numbers_sql,
        }


class TestPersistDocs(BasePersistDocs):
    pass


class TestPersistDocsColumnMissing(BasePersistDocsColumnMissing):
    pass


class TestPersistDocsAllColumnsMissing(BasePersistDocsAllColumnsMissing):
    pass


class TestPersistDocsQuotedColumnCaseSensitive(BasePersistDocsQuotedColumnCaseSensitive):
    pass


class TestPersistDocsQuotedMismatch(BasePersistDocsQuotedDescriptionNotAppliedOnMismatch):
    pass


class TestPersistDocsCommentOnQuotedColumn(BasePersistDocsCommentOnQuotedColumn):
    pass


class TestGrants:
    """Open-source Spark has no GRANT: the base classes' project, and what it is told."""

    @pytest.fixture(scope="class")
    def models(self):
        config = "{{ config(grants={'select': ['reader']}) }}"
        return {"granted.sql": f"{config} select 1 as id"}

    def test_grants_are_refused(self, project):
        results, log = run_dbt_and_capture(["run"], expect_pass=False)
        assert len(results) == 1
        assert "Open-source Spark has no GRANT" in log
        assert run_dbt(["run", "--exclude", "granted"]) is not None


class TestContractTypes:
    """As dbt documents it, a contract compares types without size, precision and scale."""

    @pytest.fixture(scope="class")
    def models(self):
        amounts = "select cast(1.2345 as decimal(18, 4)) as amount, array(1.25) as shares"
        types = {"amount": "decimal", "shares": "array<decimal(9,1)>"}
        columns = [{"name": n, "data_type": t} for n, t in types.items()]
        contract = {"contract": {"enforced": True}}
        named = {"family": {}, "exact": {"contract_types": "exact"}, "odd": {"contract_types": "x"}}
        yaml = [
            {"name": n, "config": {**contract, **more}, "columns": columns}
            for n, more in named.items()
        ]
        sql = {f"{name}.sql": amounts for name in named}
        return {**sql, "schema.yml": json.dumps({"models": yaml})}

    def test_a_decimal_takes_any_precision_and_is_not_rounded(self, project):
        run_dbt(["--warn-error", "build", "--select", "family"])
        sql = f"select amount, typeof(amount), shares from {project.test_schema}.family"
        amount, kind, shares = project.run_sql(sql, fetch="one")
        assert (str(amount), kind) == ("1.2345", "decimal(18,4)")
        assert "1.25" in str(shares)

    def test_exactness_is_a_setting(self, project):
        _, log = run_dbt_and_capture(["build", "--select", "exact"], expect_pass=False)
        assert "decimal(18,4)" in log
        assert "decimal(10,0)" in log
        _, log = run_dbt_and_capture(["build", "--select", "odd"], expect_pass=False)
        assert "contract_types is 'x'" in log
