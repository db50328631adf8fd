"""A session on the server of the lake, for tests without dbt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from sparkwap import server

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def session(lake_dir: Path) -> Iterator[SparkSession]:
    """A Connect session, the active one of this thread: see `localCheckpoint`."""
    from pyspark.sql.connect.session import SparkSession

    endpoint = server.ensure(server.ServerConfig(lake=lake_dir, memory="1g"), print)
    spark: Any = SparkSession.builder.remote(endpoint.connect_url).create()
    before = getattr(SparkSession._active_session, "session", None)
    SparkSession._active_session.session = spark
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # as the adapter does, for `expr`
        yield spark
    SparkSession._active_session.session = before
    spark.stop()
