"""Relations: listing, renaming, caching, kinds, aliases, cloning, documentation."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
from dbt.tests.adapter.aliases.test_aliases import (
    BaseAliasErrors,
    BaseAliases,
    BaseSameAliasDifferentSchemas,
)
from dbt.tests.adapter.basic.expected_catalog import (
    base_expected_catalog,
    expected_references_catalog,
)
from dbt.tests.adapter.basic.test_docs_generate import BaseDocsGenerate, BaseDocsGenReferences
from dbt.tests.adapter.basic.test_get_catalog_for_single_relation import (
    BaseGetCatalogForSingleRelation,
)
from dbt.tests.adapter.caching.test_caching import (
    BaseCachingLowercaseModel,
    BaseCachingSelectedSchemaOnly,
    BaseCachingUppercaseModel,
    BaseNoPopulateCache,
)
from dbt.tests.adapter.catalog import files
from dbt.tests.adapter.catalog.relation_types import CatalogRelationTypes
from dbt.tests.adapter.dbt_clone.test_dbt_clone import (
    BaseClonePossible,
    BaseCloneSameSourceAndTarget,
    BaseCloneSameTargetAndState,
)
from dbt.tests.adapter.relations.test_changing_relation_type import (
    BaseChangeRelationTypeValidator,
)
from dbt.tests.adapter.relations.test_dropping_schema_named import BaseDropSchemaNamed
from dbt.tests.util import AnyInteger, get_connection, run_dbt, run_dbt_and_capture


class TestAliases(BaseAliases):
    pass


class TestAliasErrors(BaseAliasErrors):
    pass


class TestSameAliasDifferentSchemas(BaseSameAliasDifferentSchemas):
    pass


class _WithoutDatabase:
    """The base class's look at the cache, without the database that Spark does not have."""

    def run_and_inspect_cache(self, project, run_args=None):
        seen = []
        for _ in range(2):
            run_dbt(list(run_args))
            (relation,) = project.adapter.cache.relations
            seen.append((relation.schema, relation.identifier.lower()))
        assert seen[0] == seen[1]
        assert seen[0][0] == project.test_schema


class TestCachingLowercase(_WithoutDatabase, BaseCachingLowercaseModel):
    pass


class TestCachingUppercase(_WithoutDatabase, BaseCachingUppercaseModel):
    pass


class TestCachingSelectedSchemaOnly(_WithoutDatabase, BaseCachingSelectedSchemaOnly):
    pass


class TestNoPopulateCache(_WithoutDatabase, BaseNoPopulateCache):
    pass


class TestChangeRelationType(BaseChangeRelationTypeValidator):
    pass


class TestDropSchemaNamed(BaseDropSchemaNamed):
    pass


class TestClonePossible(BaseClonePossible):
    def test_can_clone_true(self, project, unique_schema, other_schema):
        # As in the base class, with the tests that copies wait for.
        project.create_test_schema(other_schema)
        self.run_and_save_state(project.project_root, with_snapshot=True)
        target = ["--target", "otherschema"]
        clone = ["clone", "--state", "state", *target]
        assert len(run_dbt(clone)) == 4
        run_dbt(["test", *target])
        found = project.adapter.list_relations(database=project.database, schema=other_schema)
        assert Counter(one.type for one in found) == Counter({"table": 3, "view": 1})

        results = run_dbt(clone)
        assert len(results) == 4
        assert all("no-op" in one.message.lower() for one in results)

        assert len(run_dbt([*clone, "--full-refresh"])) == 4
        run_dbt(["test", *target])

        results = run_dbt([*clone, "--resource-type", "model"])
        assert len(results) == 2
        assert all("no-op" in one.message.lower() for one in results)


class TestCloneSameTargetAndState(BaseCloneSameTargetAndState):
    def test_clone_same_target_and_state(self, project, unique_schema, other_schema):
        # As in the base class, where views on themselves then fail: here nothing is left to do.
        project.create_test_schema(other_schema)
        self.run_and_save_state(project.project_root)
        _, output = run_dbt_and_capture(["clone", "--defer", "--state", "target"])
        assert "The state and target directories are the same: 'target'" in output


class TestCloneSameSourceAndTarget(BaseCloneSameSourceAndTarget):
    pass


def _stats(rows: int | None) -> dict[str, Any]:
    """The statistics of a table; those of a view are absent."""
    known = rows is not None
    stats: dict[str, Any] = {
        "has_stats": {
            "id": "has_stats",
            "label": "Has Stats?",
            "value": known,
            "description": "Indicates whether there are statistics for this table",
            "include": False,
        }
    }
    if known:
        stats["row_count"] = {
            "id": "row_count",
            "label": "Rows",
            "value": rows,
            "description": "Rows as the snapshot counts them",
            "include": True,
        }
        stats["bytes"] = {
            "id": "bytes",
            "label": "Bytes",
            "value": AnyInteger(),
            "description": "Size of the snapshot's data files",
            "include": True,
        }
    return stats


class TestCatalogRelationTypes(CatalogRelationTypes):
    @pytest.fixture(scope="class", autouse=True)
    def models(self):
        return {"my_table.sql": files.MY_TABLE, "my_view.sql": files.MY_VIEW}

    @pytest.mark.parametrize(
        "node_name,relation_type",
        [
            ("seed.test.my_seed", "table"),
            ("model.test.my_table", "table"),
            ("model.test.my_view", "view"),
        ],
    )
    def test_relation_types_populate_correctly(self, docs, node_name, relation_type):
        super().test_relation_types_populate_correctly(docs, node_name, relation_type)


class TestGetCatalogForSingleRelation(BaseGetCatalogForSingleRelation):
    def test_get_catalog_for_single_relation(self, project):
        # The base class's steps; what the table says of its owner and size is not fixed.
        run_dbt(["seed"])
        run_dbt(["run"])
        expected = [("id", "bigint"), ("first_name", "string"), ("email", "string")]
        expected += [("ip_address", "string"), ("updated_at", "timestamp")]
        for name, kind in (("my_seed", "table"), ("my_view_model", "view")):
            relation = self.get_relation_for_identifier(project, name)
            with get_connection(project.adapter):
                found = project.adapter.get_catalog_for_single_relation(relation)
            assert (found.metadata.name, found.metadata.type) == (name, kind)
            assert [(c.name, c.type) for c in found.columns.values()] == expected
            assert ("row_count" in found.stats) is (kind == "table")


class _AnyOwner:
    """Who runs the server owns tables; views have no owner in Iceberg."""

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, str)

    __hash__ = None


class _Untested:
    """The base classes attach tests and never run them, so the gate would hold the tables."""

    changes: ClassVar = {
        "data_tests": {"+enabled": False},
        "vars": {"wap_disabled_tests": "publish"},
    }

    @pytest.fixture(scope="class")
    def profile_user(self):
        return _AnyOwner()


class TestDocsGenerate(_Untested, BaseDocsGenerate):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project, profile_user):
        return base_expected_catalog(
            project,
            role=profile_user,
            id_type="bigint",
            text_type="string",
            time_type="timestamp",
            view_type="view",
            table_type="table",
            model_stats=_stats(None),
            seed_stats=_stats(1),
        )


class TestDocsGenReferences(_Untested, BaseDocsGenReferences):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project, profile_user):
        return expected_references_catalog(
            project,
            role=profile_user,
            id_type="bigint",
            text_type="string",
            time_type="timestamp",
            bigint_type="bigint",
            view_type="view",
            table_type="table",
            model_stats=_stats(1),
            seed_stats=_stats(1),
            view_summary_stats=_stats(None),
        )
