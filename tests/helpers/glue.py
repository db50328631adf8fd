"""A Glue data catalog and an S3 store on loopback, in a process of a test's own.

The process is `helpers.glue_program`: moto, with the checks of the real Glue that moto leaves out.
`running_glue_server` starts Spark on such a catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.cluster import LOCK
from helpers.maven import java_or_skip, kept_jars, pinned_jars
from helpers.s3 import KEY, REGION, SECRET, Faults, Store, running_s3
from helpers.spark_server import SPARK_HOME, SparkServer, serving
from sparkwap.server import jars
from sparkwap.server.java import find


@dataclass(frozen=True)
class GlueServer:
    """A running server without databases, and its store.

    Attributes:
        store: the S3 store, in the same process.
    """

    store: Store

    @property
    def endpoint(self) -> str:
        """The address of both services."""
        return self.store.endpoint

    @property
    def warehouse(self) -> str:
        """A location in the store."""
        return self.store.warehouse

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        return {
            "type": "glue",
            "glue.endpoint": self.endpoint,
            "glue.region": REGION,
            "glue.access-key-id": KEY,
            "glue.secret-access-key": SECRET,
            "warehouse": self.warehouse,
            **self.store.properties,
        }

    @property
    def spark_catalog(self) -> dict[str, str]:
        """Spark's settings of the catalog, without the prefix.

        Iceberg has no property for Glue's keys: they come from the environment of Spark.
        """
        return {
            "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "warehouse": self.warehouse,
            "glue.endpoint": self.endpoint,
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": "true",
            "client.region": REGION,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The credentials, for the environment of Spark."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}

    def faults(self, faults: Faults) -> None:
        """Change what the server does to requests from now on."""
        self.store.faults(faults)

    def requests(self) -> dict[str, int]:
        """Return the number of requests since the last call, by action, such as ``GetTables``."""
        return self.store.requests()


@contextmanager
def running_glue() -> Iterator[GlueServer]:
    """Start a server; its entries and objects are gone when it ends."""
    with running_s3(str(Path(__file__).with_name("glue_program.py"))) as store:
        yield GlueServer(store)


@dataclass(kw_only=True)
class GlueSparkServer(SparkServer):
    """A Thrift server with Spark Connect whose catalog is Glue.

    Attributes:
        glue: the data catalog and the store.
    """

    glue: GlueServer

    @property
    def catalog(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        return self.glue.properties

    @property
    def spark_catalog(self) -> dict[str, str]:
        """Spark's settings of the catalog, without the prefix."""
        return self.glue.spark_catalog

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark."""
        unwanted = ("spark.sql.catalog.lake.type", "spark.sql.catalog.lake.jdbc.schema-version")
        return {key: value for key, value in super().settings.items() if key not in unwanted}


@contextmanager
def running_glue_server(folder: Path) -> Iterator[GlueSparkServer]:
    """Start Spark and its catalog. Skips where jars or Java cannot be had.

    Args:
        folder: the files of Spark.
    """
    java_or_skip("Spark")
    java = find()
    # A session's private catalog is in SQLite.
    wanted = jars.required(postgres=False, kafka=True)
    own = jars.provide(wanted, kept_jars(), java, SPARK_HOME, {}, print)
    bundle = pinned_jars(LOCK, "cluster", java.path)
    with running_glue() as glue:
        server = GlueSparkServer(
            folder=folder,
            java=java,
            jars=[*own, *bundle],
            environment=glue.environment,
            glue=glue,
        )
        with serving(server):
            yield server
