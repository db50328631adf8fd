"""Python models."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.python_model.test_python_model import (
    BasePythonEmptyTests,
    BasePythonIncrementalTests,
    BasePythonMetaGetTests,
    BasePythonModelTests,
    BasePythonSampleTests,
)
from dbt.tests.adapter.python_model.test_spark import (
    PANDAS_MODEL,
    PANDAS_ON_SPARK_MODEL,
    PYSPARK_MODEL,
)
from dbt.tests.util import run_dbt


class TestPythonModel(BasePythonModelTests):
    pass


class TestPythonIncremental(BasePythonIncrementalTests):
    pass


class TestPythonMetaGet(BasePythonMetaGetTests):
    pass


class TestPythonEmpty(BasePythonEmptyTests):
    pass


class TestPythonSample(BasePythonSampleTests):
    pass


class TestDataFrames:
    """``BasePySparkTests`` without its models of pandas on Spark and of Koalas."""

    @pytest.fixture(scope="class")
    def models(self):
        return {"pandas_df.py": PANDAS_MODEL, "pyspark_df.py": PYSPARK_MODEL}

    def test_different_dataframes(self, project):
        assert len(run_dbt(["run"])) == 2


class TestPandasOnSpark:
    @pytest.fixture(scope="class")
    def models(self):
        return {"pandas_on_spark_df.py": PANDAS_ON_SPARK_MODEL}

    def test_pandas_on_spark(self, project):
        assert len(run_dbt(["run"])) == 1
