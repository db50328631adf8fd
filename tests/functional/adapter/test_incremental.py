"""Incremental models: strategies, keys, predicates, schema changes, microbatches."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.incremental.test_incremental_merge_exclude_columns import (
    BaseMergeExcludeColumns,
)
from dbt.tests.adapter.incremental.test_incremental_microbatch import BaseMicrobatch
from dbt.tests.adapter.incremental.test_incremental_on_schema_change import (
    BaseIncrementalOnSchemaChange,
)
from dbt.tests.adapter.incremental.test_incremental_predicates import BaseIncrementalPredicates
from dbt.tests.adapter.incremental.test_incremental_unique_id import BaseIncrementalUniqueKey


def _models(**config: Any) -> dict[str, Any]:
    return {"models": {f"+{key}": value for key, value in config.items()}}


class TestMergeExcludeColumns(BaseMergeExcludeColumns):
    pass


class TestIncrementalPredicatesDeleteInsert(BaseIncrementalPredicates):
    pass


class TestPredicatesDeleteInsert(BaseIncrementalPredicates):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return _models(predicates=["id != 2"], incremental_strategy="delete+insert")


class TestIncrementalPredicatesMerge(BaseIncrementalPredicates):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return _models(
            incremental_predicates=["dbt_internal_dest.id != 2"], incremental_strategy="merge"
        )


class TestPredicatesMerge(BaseIncrementalPredicates):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return _models(predicates=["dbt_internal_dest.id != 2"], incremental_strategy="merge")


class TestUniqueKeyMerge(BaseIncrementalUniqueKey):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return _models(incremental_strategy="merge")


class TestUniqueKeyDeleteInsert(BaseIncrementalUniqueKey):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return _models(incremental_strategy="delete+insert")


class TestOnSchemaChangeMerge(BaseIncrementalOnSchemaChange):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return _models(incremental_strategy="merge", unique_key="id")


class TestOnSchemaChangeAppend(BaseIncrementalOnSchemaChange):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return _models(incremental_strategy="append")


class TestMicrobatch(BaseMicrobatch):
    pass


def _microbatch(**config: str) -> str:
    extra = "".join(f", {key}={value!r}" for key, value in config.items())
    return (
        "{{ config(materialized='incremental', incremental_strategy='microbatch', "
        "event_time='event_time', batch_size='day', "
        f"begin=modules.datetime.datetime(2020, 1, 1){extra}) }}}}\n"
        "select * from {{ ref('input_model') }}"
    )


class TestMicrobatchWithoutKey(BaseMicrobatch):
    @pytest.fixture(scope="class")
    def microbatch_model_sql(self):
        return _microbatch()


class TestMicrobatchHiddenPartition(BaseMicrobatch):
    @pytest.fixture(scope="class")
    def microbatch_model_sql(self):
        return _microbatch(partition_by="days(event_time)")
