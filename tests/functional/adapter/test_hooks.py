"""Hooks of models, seeds, snapshots and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dbt.tests.adapter.hooks import fixtures, test_model_hooks
from dbt.tests.adapter.hooks.test_model_hooks import (
    MODEL_POST_HOOK,
    MODEL_PRE_HOOK,
    BaseDuplicateHooksInConfigs,
    BaseHookRefs,
    BaseHooksRefsOnSeeds,
    BasePrePostModelHooks,
    BasePrePostModelHooksInConfig,
    BasePrePostModelHooksInConfigKwargs,
    BasePrePostModelHooksInConfigWithCount,
    BasePrePostModelHooksOnSeeds,
    BasePrePostModelHooksOnSeedsPlusPrefixed,
    BasePrePostModelHooksOnSeedsPlusPrefixedWhitespace,
    BasePrePostModelHooksOnSnapshots,
    BasePrePostSnapshotHooksInConfigKwargs,
)
from dbt.tests.adapter.hooks.test_run_hooks import BaseAfterRunHooks, BasePrePostRunHooks

# `vacuum` beside them in the base class is PostgreSQL's.
_HOOKS = {"models": {"test": {"pre-hook": [MODEL_PRE_HOOK], "post-hook": [MODEL_POST_HOOK]}}}


class _HookTable:
    """The base class's table of what hooks saw, with what a sparkwap target has."""

    @pytest.fixture(scope="module")
    def test_data_dir(self):
        return Path(test_model_hooks.__file__).parent / "data"

    def check_hooks(self, state: str, project: Any, host: Any, count: int = 1) -> None:
        found = self.get_ctx_vars(state, project=project, **self._count(count))
        for seen in found if isinstance(found, list) else [found]:
            assert seen["test_state"] == state
            assert seen["target_name"] == "default"
            assert seen["target_schema"] == project.test_schema
            assert seen["target_threads"] == 2
            assert seen["target_type"] == "sparkwap"
            assert seen["run_started_at"]
            assert seen["invocation_id"]
            assert seen["thread_id"].startswith(("Thread-", "MainThread"))

    @staticmethod
    def _count(count: int) -> dict[str, int]:
        return {"count": count}


class TestModelHooks(_HookTable, BasePrePostModelHooks):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return _HOOKS


class TestModelHooksUnderscores(_HookTable, BasePrePostModelHooks):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        hooks = {"pre_hook": [MODEL_PRE_HOOK], "post_hook": [MODEL_POST_HOOK]}
        return {"models": {"test": hooks}}


class TestHookRefs(_HookTable, BaseHookRefs):
    pass


class TestHooksInConfig(_HookTable, BasePrePostModelHooksInConfig):
    pass


class TestHooksInConfigWithCount(_HookTable, BasePrePostModelHooksInConfigWithCount):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return _HOOKS


class TestHooksInConfigKwargs(_HookTable, BasePrePostModelHooksInConfigKwargs):
    pass


class TestHooksOnSeeds(BasePrePostModelHooksOnSeeds):
    pass


class TestHooksOnSeedsPlusPrefixed(BasePrePostModelHooksOnSeedsPlusPrefixed):
    pass


class TestHooksOnSeedsPlusPrefixedWhitespace(BasePrePostModelHooksOnSeedsPlusPrefixedWhitespace):
    pass


class TestHooksRefsOnSeeds(BaseHooksRefsOnSeeds):
    pass


class TestHooksOnSnapshots(BasePrePostModelHooksOnSnapshots):
    pass


class TestSnapshotHooksInConfigKwargs(BasePrePostSnapshotHooksInConfigKwargs):
    pass


class TestDuplicateHooks(BaseDuplicateHooksInConfigs):
    pass


class TestRunHooks(_HookTable, BasePrePostRunHooks):
    @staticmethod
    def _count(count: int) -> dict[str, int]:
        return {}

    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {
            "on-run-start": [
                "{{ custom_run_hook('start', target, run_started_at, invocation_id) }}",
                "create table {{ target.schema }}.start_hook_order_test (id int)",
                "drop table {{ target.schema }}.start_hook_order_test",
                "{{ log(env_var('TERM_TEST'), info=True) }}",
            ],
            "on-run-end": [
                "{{ custom_run_hook('end', target, run_started_at, invocation_id) }}",
                "create table {{ target.schema }}.end_hook_order_test (id int)",
                "drop table {{ target.schema }}.end_hook_order_test",
                "create table {{ target.schema }}.schemas (schema string)",
                "insert into {{ target.schema }}.schemas (schema) values "
                "{% for schema in schemas %}('{{ schema }}'){{ ',' if not loop.last }}{% endfor %}",
                "create table {{ target.schema }}.db_schemas (db string, schema string)",
                "insert into {{ target.schema }}.db_schemas (db, schema) values "
                "{% for db, schema in database_schemas %}"
                "({{ 'null' if db is none else db }}, '{{ schema }}')"
                "{{ ',' if not loop.last }}{% endfor %}",
            ],
            "seeds": {"quote_columns": False},
        }


class TestAfterRunHooks(BaseAfterRunHooks):
    @pytest.fixture(scope="module")
    def test_data_dir(self):
        return Path(fixtures.__file__).parent / "data"
