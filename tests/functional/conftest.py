"""What all functional tests share: one lake with a running server, and those who read it.

``SPARKWAP_TEST_LAKE=<dir>`` keeps the lake and its server for the next call of pytest.
``SPARKWAP_TEST_INTERPRETED`` has Spark interpret its plans, as `make test` does; unset, it compiles
them, as in use.
``SPARKWAP_TEST_CATALOG`` puts that lake on another kind of catalog: see `helpers.catalogs`.
"""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.catalogs import RunningCatalog, running_catalog
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Project
from pyhive import hive

from sparkwap import server

ROOT = Path(__file__).parents[2]
MEMORY = "1g"

# Spark compiles Java for each new query, which takes longer than to interpret it for ten rows.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session", autouse=True)
def shared_jars() -> Iterator[None]:
    """Fetch the jars once, to where `make build` has them; let no summary break its lines.

    What the caller tells dbt by variables (make and `activate` name this project's profiles) is
    not for the projects of the tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith("DBT_")]:
            patch.delenv(name)
        patch.setenv("SPARKWAP_JARS", os.environ.get("SPARKWAP_JARS", str(ROOT / ".lake/jars")))
        # Summaries break their lines at the width of the terminal that pytest happens to have.
        patch.setenv("COLUMNS", "1000")
        yield


@pytest.fixture(scope="session")
def running(
    tmp_path_factory: pytest.TempPathFactory, shared_jars: None
) -> Iterator[RunningCatalog]:
    """The catalog of the lake."""
    with running_catalog(tmp_path_factory.mktemp("catalog")) as catalog:
        yield catalog


@pytest.fixture(scope="session")
def config(
    running: RunningCatalog, tmp_path_factory: pytest.TempPathFactory
) -> server.ServerConfig:
    """The server of the lake."""
    kept = os.environ.get("SPARKWAP_TEST_LAKE")
    lake = Path(kept) if kept else running.lake(tmp_path_factory.mktemp("shared") / ".lake")
    interpreted = os.environ.get("SPARKWAP_TEST_INTERPRETED")
    return server.ServerConfig(
        lake=lake,
        memory=MEMORY,
        catalog_uri=running.uri,
        kafka=True,
        spark_conf=INTERPRETED if interpreted else {},
    )


@pytest.fixture(scope="session")
def lake_dir(config: server.ServerConfig, running: RunningCatalog) -> Iterator[Path]:
    """A lake for the whole session, with its server up."""
    running.endpoint(config)
    yield config.lake
    if os.environ.get("SPARKWAP_TEST_LAKE"):
        return
    if not server.stop(config.lake) and running.server is None:
        log = server.logs(config.lake)
        end = log.read_text()[-2_000:] if log.exists() else "there is no log"
        warnings.warn(
            f"the shared server has ended before its tests; its log:\n{end}", stacklevel=1
        )


@pytest.fixture(scope="session")
def reader(lake_dir: Path, running: RunningCatalog) -> Reader:
    """A reader of main, through PyIceberg."""
    return Reader(lake_dir, running.source(lake_dir))


@pytest.fixture(scope="session")
def spark(
    lake_dir: Path, config: server.ServerConfig, running: RunningCatalog
) -> Iterator[SparkReader]:
    """A reader of main, through a Spark session."""

    def connect() -> hive.Connection:
        endpoint = running.endpoint(config)
        return hive.connect(endpoint.host, endpoint.thrift_port, username="reader", auth="NONE")

    session = SparkReader(connect)
    yield session
    session.close()


@pytest.fixture(scope="session")
def make_project(
    lake_dir: Path,
    running: RunningCatalog,
    config: server.ServerConfig,
    tmp_path_factory: pytest.TempPathFactory,
) -> MakeProject:
    """Makes a project with files, in a schema of its own in the shared lake."""

    def make(name: str, files: dict[str, str], **more: Any) -> Project:
        output = running.output(lake_dir, MEMORY, running.endpoint(config))
        # A lake that was kept has the schemas of earlier sessions.
        schema = f"{name}_{secrets.token_hex(2)}"
        folder = tmp_path_factory.mktemp(name)
        if output.get("method", "embedded") == "embedded":
            output["kafka"] = config.kafka
        output |= more.pop("output", {})
        return Project(folder, schema, output, **more).write(files)

    return make
