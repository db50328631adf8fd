"""Iceberg's own REST test server, on loopback, in a Java process of a test's own.

Its classes come from the jars in ``tests/requirements-rest.lock``, which ``maven`` fetches.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from helpers.maven import SPARK_JARS, from_spark, java_or_skip, kept_jars, pinned_jars
from helpers.s3 import Store
from sparkwap.server.jars import SQLITE

LOCK = Path(__file__).parents[1] / "requirements-rest.lock"
OF_S3 = Path(__file__).parents[1] / "requirements-cluster.lock"
# Iceberg asks the Hadoop classes for files, and they log through these.
FROM_SPARK = ("hadoop-client-*.jar", "slf4j-api-*.jar", "commons-*.jar", "py4j-*.jar")


@dataclass(frozen=True)
class RestServer:
    """A running server.

    Attributes:
        uri: its address.
        warehouse: location of the files.
    """

    uri: str
    warehouse: str

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        return {"type": "rest", "uri": self.uri, "warehouse": self.warehouse}

    @property
    def spark_conf(self) -> dict[str, str]:
        """Spark's settings of the same catalog, in place of the lake's own."""
        prefix = "spark.sql.catalog.lake"
        return {f"{prefix}.type": "rest", f"{prefix}.uri": self.uri}


@contextmanager
def running_rest_server(folder: Path, store: Store | None = None) -> Iterator[RestServer]:
    """Start a server whose catalog and warehouse are in ``folder``, or the warehouse in a store.

    Skips where there is no Java, or where its jars can neither be found nor fetched.
    """
    java = java_or_skip("the REST server")
    of_s3 = pinned_jars(OF_S3, "cluster", java) if store else []
    os.environ.setdefault("JAVA_HOME", str(java.parent.parent))
    port, process = launch_gateway(
        classpath=":".join(map(str, [*_jars(java), *of_s3])),
        jarpath=str(next(SPARK_JARS.glob("py4j-*.jar"))),
        java_path=str(java),
        javaopts=["-Xmx256m"],
        die_on_exit=True,
        return_proc=True,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auto_convert=True, eager_load=False)
    )
    try:
        warehouse = store.warehouse if store else f"file://{folder}/warehouse"
        access = store.iceberg if store else {}
        listening = _serve(gateway.jvm, f"jdbc:sqlite:{folder}/rest.db", warehouse, access)
        yield RestServer(f"http://127.0.0.1:{listening}", warehouse)
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()


def _serve(jvm: Any, uri: str, warehouse: str, access: dict[str, str]) -> int:
    """Put the servlet on a free port of loopback; Iceberg's own main binds all interfaces."""
    catalog = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
        "rest",
        {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": uri,
            "jdbc.schema-version": "V1",
            "warehouse": warehouse,
            **access,
        },
        jvm.org.apache.hadoop.conf.Configuration(False),
    )
    adapter = jvm.org.apache.iceberg.rest.RESTCatalogAdapter(catalog)
    servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(adapter)
    context = jvm.org.eclipse.jetty.ee10.servlet.ServletContextHandler()
    context.addServlet(jvm.org.eclipse.jetty.ee10.servlet.ServletHolder(servlet), "/*")
    server = jvm.org.eclipse.jetty.server.Server()
    connector = jvm.org.eclipse.jetty.server.ServerConnector(server)
    connector.setHost("127.0.0.1")
    server.addConnector(connector)
    server.setHandler(context)
    server.start()
    return int(connector.getLocalPort())


def _jars(java: Path) -> list[Path]:
    """The pinned jars, the driver of SQLite, and what Spark has."""
    pinned = pinned_jars(LOCK, "rest", java)
    sqlite = kept_jars() / SQLITE.filename
    if not sqlite.exists():
        pytest.skip(f"{sqlite} is fetched by the first start of a server, which has not been yet")
    return [*pinned, sqlite, *from_spark(*FROM_SPARK)]
