"""Relations: listing, renaming, caching, kinds, aliases, cloning, documentation."""

from __future__ import annotations

from typing import Any

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
from dbt.tests.adapter.caching.test_caching import (
    BaseCachingLowercaseModel,
    BaseCachingSelectedSchemaOnly,
    BaseCachingUppercaseModel,
    BaseNoPopulateCache,
)
from dbt.tests.adapter.dbt_clone.test_dbt_clone import (
    BaseClonePossible,
    BaseCloneSameSourceAndTarget,
    BaseCloneSameTargetAndState,
)
from dbt.tests.adapter.relations.test_changing_relation_type import (
    BaseChangeRelationTypeValidator,
)
from dbt.tests.adapter.relations.test_dropping_schema_named import BaseDropSchemaNamed
from dbt.tests.util import AnyInteger, AnyString, run_dbt


class TestAliases(BaseAliases):
    pass


class TestAliasErrors(BaseAliasErrors):
    pass


class TestSameAliasDifferentSchemas(BaseSameAliasDifferentSchemas):
    pass


class TestCachingLowercase(BaseCachingLowercaseModel):
    pass


class TestCachingUppercase(BaseCachingUppercaseModel):
    pass


class TestCachingSelectedSchemaOnly(BaseCachingSelectedSchemaOnly):
    pass


class TestNoPopulateCache(BaseNoPopulateCache):
    pass


class TestChangeRelationType(BaseChangeRelationTypeValidator):
    pass


class TestDropSchemaNamed(BaseDropSchemaNamed):
    pass


class TestClonePossible(BaseClonePossible):
    pass


class TestCloneSameTargetAndState(BaseCloneSameTargetAndState):
    pass


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


class _Built:
    """The base class runs its models before their tests; the gate publishes after them."""

    @pytest.fixture(scope="class", autouse=True)
    def setup(self, project):
        # As in the base class, but by one `build`: a table with tests waits for them.
        run_dbt(["build", "--vars", f"{{test_schema: {project.test_schema}}}"])

    @pytest.fixture(scope="class")
    def profile_user(self):
        return AnyString()


class TestDocsGenerate(_Built, BaseDocsGenerate):
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


class TestDocsGenReferences(_Built, BaseDocsGenReferences):
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
