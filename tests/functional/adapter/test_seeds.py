"""Seeds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dbt.tests.adapter.simple_seed import fixtures, seeds
from dbt.tests.adapter.simple_seed.test_seed import (
    BaseBasicSeedTests,
    BaseSeedConfigFullRefreshOff,
    BaseSeedConfigFullRefreshOn,
    BaseSeedCustomSchema,
    BaseSeedParsing,
    BaseSeedSpecificFormats,
    BaseSeedWithEmptyDelimiter,
    BaseSeedWithUniqueDelimiter,
    BaseSeedWithWrongDelimiter,
    BaseSimpleSeedEnabledViaConfig,
    BaseSimpleSeedWithBOM,
    BaseTestEmptySeed,
)
from dbt.tests.adapter.simple_seed.test_seed_type_override import BaseSimpleSeedColumnOverride
from dbt.tests.util import run_dbt


class _NothingCascades:
    """Dropping a table drops no view in Spark, so models downstream of a seed stay."""

    def _check_relation_end_state(self, run_result, project, exists):
        super()._check_relation_end_state(run_result, project, exists=True)


class TestBasicSeeds(_NothingCascades, BaseBasicSeedTests):
    pass


class TestSeedFullRefreshOn(_NothingCascades, BaseSeedConfigFullRefreshOn):
    pass


class TestSeedFullRefreshOff(BaseSeedConfigFullRefreshOff):
    pass


class TestSeedCustomSchema(BaseSeedCustomSchema):
    pass


class TestSeedWithUniqueDelimiter(BaseSeedWithUniqueDelimiter):
    pass


class TestSeedWithWrongDelimiter(BaseSeedWithWrongDelimiter):
    pass


class TestSeedWithEmptyDelimiter(BaseSeedWithEmptyDelimiter):
    pass


class TestSeedEnabledViaConfig(BaseSimpleSeedEnabledViaConfig):
    @pytest.fixture(scope="function")
    def clear_test_schema(self, project):
        # The base class says `drop schema ... cascade`, of which Iceberg knows no cascade.
        yield
        project.drop_test_schema()
        project.create_test_schema()


class TestSeedParsing(BaseSeedParsing):
    pass


class TestSeedWithBOM(BaseSimpleSeedWithBOM):
    @pytest.fixture(scope="class", autouse=True)
    def setUp(self, project):
        # As in the base class, which takes its file from the folder of this one.
        project.run_sql(seeds.seeds__expected_sql)
        bom = Path(seeds.__file__).parent / "seed_bom.csv"
        shutil.copy(bom, Path(project.project_root) / "seeds")


class TestSeedSpecificFormats(BaseSeedSpecificFormats):
    @pytest.fixture(scope="class")
    def test_data_dir(self, tmp_path_factory):
        # The base class writes 20,000 rows into a folder, and removes it.
        return tmp_path_factory.mktemp("seeds") / "big"


class TestEmptySeed(BaseTestEmptySeed):
    pass


class TestSeedColumnOverride(BaseSimpleSeedColumnOverride):
    @pytest.fixture(scope="class")
    def models(self):
        types = {"text": "string", "timestamp without time zone": "timestamp", "integer": "bigint"}
        text = fixtures.properties__schema_yml
        for postgres, spark in types.items():
            text = text.replace(f"type: {postgres}", f"type: {spark}")
        return {"schema.yml": text}

    @staticmethod
    def seed_enabled_types():
        return {"seed_id": "string", "birthday": "date"}

    @staticmethod
    def seed_tricky_types():
        return {
            "seed_id_str": "string",
            "looks_like_a_bool": "string",
            "looks_like_a_date": "string",
        }

    def test_simple_seed_with_column_override(self, project):
        # Without the base class's `--show`: with it, dbt-core fails in each project with hooks.
        assert len(run_dbt(["seed"])) == 2
        assert len(run_dbt(["test"])) == 10
