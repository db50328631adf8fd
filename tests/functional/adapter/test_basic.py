"""The basic classes of dbt's adapter suite."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.basic import test_ephemeral
from dbt.tests.adapter.basic.test_adapter_methods import BaseAdapterMethod
from dbt.tests.adapter.basic.test_base import BaseSimpleMaterializations
from dbt.tests.adapter.basic.test_empty import BaseEmpty
from dbt.tests.adapter.basic.test_ephemeral import BaseEphemeral
from dbt.tests.adapter.basic.test_generic_tests import BaseGenericTests
from dbt.tests.adapter.basic.test_incremental import (
    BaseIncremental,
    BaseIncrementalBadStrategy,
    BaseIncrementalNotSchemaChange,
)
from dbt.tests.adapter.basic.test_singular_tests import BaseSingularTests
from dbt.tests.adapter.basic.test_singular_tests_ephemeral import BaseSingularTestsEphemeral
from dbt.tests.adapter.basic.test_snapshot_check_cols import BaseSnapshotCheckCols
from dbt.tests.adapter.basic.test_snapshot_timestamp import BaseSnapshotTimestamp
from dbt.tests.adapter.basic.test_table_materialization import BaseTableMaterialization
from dbt.tests.adapter.basic.test_validate_connection import BaseValidateConnection
from dbt.tests.util import get_manifest, run_dbt
from dbt_common.exceptions import DbtRuntimeError


class TestSimpleMaterializations(BaseSimpleMaterializations):
    pass


class TestSingularTests(BaseSingularTests):
    pass


class TestSingularTestsEphemeral(BaseSingularTestsEphemeral):
    def test_singular_tests_ephemeral(self, project):
        # The base class's steps. Both tests read the seed, which the gate rejects when one of them
        # fails; the other one is then to run again on a repaired seed, and says so.
        assert len(run_dbt(["seed"])) == 1
        results = run_dbt(["test"], expect_pass=False)
        assert {result.node.name: str(result.status) for result in results} == {
            "passing": "skipped",
            "failing": "fail",
        }


class TestEmpty(BaseEmpty):
    pass


class TestEphemeral(BaseEphemeral):
    def test_ephemeral(self, project):
        with pytest.MonkeyPatch.context() as patch:
            # It counts the manifest's nodes, among which are the adapter's two hooks.
            patch.setattr(test_ephemeral, "get_manifest", _manifest_without_hooks)
            super().test_ephemeral(project)


def _manifest_without_hooks(root):
    manifest = get_manifest(root)
    hooks = [key for key in manifest.nodes if key.startswith("operation.dbt_sparkwap")]
    for key in hooks:
        del manifest.nodes[key]
    return manifest


class TestIncremental(BaseIncremental):
    pass


class TestIncrementalNotSchemaChange(BaseIncrementalNotSchemaChange):
    pass


class TestIncrementalBadStrategy(BaseIncrementalBadStrategy):
    pass


class TestGenericTests(BaseGenericTests):
    pass


class TestSnapshotCheckCols(BaseSnapshotCheckCols):
    pass


class TestSnapshotTimestamp(BaseSnapshotTimestamp):
    pass


class TestTableMaterialization(BaseTableMaterialization):
    pass


class TestAdapterMethod(BaseAdapterMethod):
    @pytest.mark.xfail(
        strict=True,
        raises=DbtRuntimeError,
        reason="One of its models replaces a view while dbt compiles it; the guard refuses that",
    )
    def test_adapter_methods(self, project, equal_tables):
        super().test_adapter_methods(project, equal_tables)


class TestValidateConnection(BaseValidateConnection):
    pass
