"""The gate on a REST catalog that vends the keys of its S3 store, table by table.

Neither dbt's machine nor Spark have other keys. The store refuses requests outside the folder of
the table that the keys are for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from functional.catalogs.test_rest import doctor
from helpers.cluster import LOCK
from helpers.maven import kept_jars, pinned_jars
from helpers.project import Project
from helpers.rest import running_rest_server
from helpers.s3 import REGION, Store, forget_own_keys, running_s3
from helpers.spark_server import SPARK_HOME, SparkServer, serving
from helpers.story import tell
from helpers.strict_rest import Rules, StrictServer, running_strict_server
from pyiceberg.catalog import load_catalog

from sparkwap.server import jars
from sparkwap.server.java import find


@dataclass(kw_only=True)
class VendedServer(SparkServer):
    """A Thrift server with Spark Connect whose keys come with the tables."""

    rest: StrictServer
    store: Store

    @property
    def catalog(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        access = {"s3.endpoint": self.store.endpoint, "s3.region": REGION}
        return {**self.rest.server.properties, **access}

    @property
    def spark_catalog(self) -> dict[str, str]:
        """Spark's settings of the catalog, without the prefix."""
        own = ("s3.access-key-id", "s3.secret-access-key")
        return {
            "uri": self.rest.server.uri,
            "header.X-Iceberg-Access-Delegation": "vended-credentials",
            **{key: value for key, value in self.store.iceberg.items() if key not in own},
        }

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark."""
        return {**super().settings, "spark.sql.catalog.lake.type": "rest"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shared_jars: None) -> Iterator[VendedServer]:
    folder = tmp_path_factory.mktemp("vended")
    with pytest.MonkeyPatch.context() as patch:
        forget_own_keys(patch)
        with (
            running_s3() as store,
            running_rest_server(folder, store) as behind,
            running_strict_server(behind) as rest,
        ):
            rest.reset(Rules(vends="storage-credentials"))
            java = find()
            wanted = (jars.ICEBERG, jars.SQLITE)
            own = jars.provide(wanted, kept_jars(), java, SPARK_HOME, {}, print)
            of_s3 = pinned_jars(LOCK, "cluster", java.path)
            server = VendedServer(
                folder=folder,
                java=java,
                jars=[*own, *of_s3],
                rest=rest,
                store=store,
                environment={"AWS_REGION": REGION},
            )
            with serving(server):
                yield server


def test_the_gate_with_vended_keys(
    server: VendedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} & set(os.environ)
    project = Project(tmp_path / "first", "first", server.output)
    code, told = doctor(project, capsys)
    assert code == 0, told
    reader = load_catalog("lake", **server.catalog)
    tell(tmp_path, "shop", server.output, reader, how="a sequential publish")


def test_other_commands_with_vended_keys(server: VendedServer, tmp_path: Path) -> None:
    files = {
        "models/orders.sql": """
            {{ config(materialized='incremental', incremental_strategy='append') }}
            select id, {{ var('v') }} as v from range(0, {{ var('v') }})
        """,
        "models/properties.yml": """
            models:
              - name: orders
                columns: [{name: id, config: {meta: {subject: buyer}}}]
        """,
    }
    project = Project(tmp_path, "more", server.output).write(files)
    for v in (2, 3):
        project.dbt("build", v=v).succeeded()
    held = project.dbt("run", v=4, wap_publish="never").succeeded()
    told = project.operation("wap_diff", branch=held.branch).succeeded().text
    assert "more.orders   rows: 4 added (5 before, 9 now)" in told
    assert project.operation("wap_maintain").succeeded()
    project.operation("wap_publish", branch=held.branch).succeeded()
    reader = load_catalog("lake", **server.catalog)
    assert reader.load_table(("more", "orders")).scan().to_arrow().num_rows == 9
    # Files that no table names can be found by keys of the whole warehouse only.
    swept = project.operation("wap_sweep").succeeded().text
    erased = project.operation("wap_erase", subject="buyer", keys=["1"]).failed().text
    assert "s3://lake/warehouse   keys that the catalog vends cannot list the warehouse" in swept
    assert "s3://lake/warehouse cannot be listed" in erased
    assert "those that the catalog vends reach the folder of one table" in erased
    assert reader.load_table(("more", "orders")).scan().to_arrow().num_rows == 9
