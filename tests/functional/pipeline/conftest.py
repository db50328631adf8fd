"""The demo project on a lake of its own, and what a reader of that lake sees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from sparkwap.server import CATALOG_NAME, ServerConfig, catalog_properties, stop

ROOT = Path(__file__).parents[3]


@dataclass
class Pipeline:
    """A landing folder, a lake, and the commands that bring the one into the other.

    Attributes:
        schema: Where in the lake the project builds its tables.
        profiles: The folder of the project's profile.
    """

    folder: Path
    lake: Path
    schema: str
    project: Path = ROOT
    profiles: Path = ROOT / "profiles"

    @property
    def landing(self) -> Path:
        return self.folder / "landing"

    @property
    def target(self) -> Path:
        return self.folder / "target"

    def sparkwap(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("-m", "sparkwap.cli", *arguments)

    def dbt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("-c", "from dbt.cli.main import cli; cli()", *arguments)

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "LANDING": str(self.landing),
            "SCHEMA": self.schema,
            "LAKE": str(self.lake),
            "DBT_PROFILES_DIR": str(self.profiles),
            "DBT_TARGET_PATH": str(self.target),
            "DBT_LOG_PATH": str(self.folder / "logs"),
            "DBT_USE_COLORS": "false",
            "SPARKWAP_JARS": os.environ.get("SPARKWAP_JARS", str(ROOT / ".lake" / "jars")),
        }
        return subprocess.run(
            [sys.executable, *command],
            cwd=self.project,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def deliver(self, *sources: Path) -> None:
        """Copy landing folders over the landing folder."""
        for source in sources:
            shutil.copytree(source, self.landing, dirs_exist_ok=True)

    def failures(self) -> set[str]:
        """The names of the nodes and tests that failed in the last dbt command."""
        results = json.loads((self.target / "run_results.json").read_text())["results"]
        return {r["unique_id"].split(".")[2] for r in results if r["status"] in ("fail", "error")}

    # -- what a reader of main sees, without Spark

    @property
    def catalog(self) -> SqlCatalog:
        return SqlCatalog(CATALOG_NAME, **catalog_properties(ServerConfig(lake=self.lake)))

    def table(self, name: str) -> Table:
        return self.catalog.load_table((self.schema, name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.table(name).scan().to_arrow().to_pylist()

    def heads(self) -> Mapping[str, int | None]:
        """The published snapshot of each table."""
        tables = {name: self.table(name) for _, name in self.catalog.list_tables(self.schema)}
        return {n: t.metadata.current_snapshot_id for n, t in tables.items()}


NewPipeline = Callable[[str], Pipeline]


@pytest.fixture(scope="session")
def new_pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewPipeline]:
    """Makes a pipeline of the demo in a schema; all are on one lake, so on one server."""
    lake = tmp_path_factory.mktemp("pipeline") / ".lake"
    yield lambda schema: Pipeline(tmp_path_factory.mktemp(schema), lake, schema)
    stop(lake)


@pytest.fixture(scope="session")
def new_example(new_pipeline: NewPipeline) -> NewPipeline:
    """Makes a pipeline of one of the example projects, by its name."""

    def make(name: str) -> Pipeline:
        folder = ROOT / "examples" / name
        return replace(new_pipeline(name), project=folder, profiles=folder)

    return make
