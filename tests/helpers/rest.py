"""Iceberg's own REST test server, on loopback, in a Java process of a test's own.

Its classes come from the jars in ``tests/requirements-rest.lock``, fetched once by the Ivy that
Spark brings along, checked by checksum, and kept beside Spark's own jars.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from filelock import FileLock
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from sparkwap.core.errors import JavaError
from sparkwap.server import trust
from sparkwap.server.jars import SQLITE
from sparkwap.server.java import find as find_java

LOCK = Path(__file__).parents[1] / "requirements-rest.lock"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
FETCH_SECONDS = 600
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
def running_rest_server(folder: Path) -> Iterator[RestServer]:
    """Start a server whose catalog and warehouse are in ``folder``. Skips where there is no Java,
    or where its jars can neither be found nor fetched."""
    try:
        java = find_java()
    except JavaError as error:
        pytest.skip(f"the REST server needs Java: {error}")
    os.environ.setdefault("JAVA_HOME", str(java.path.parent.parent))
    jars = [*_jars(java.path), *(jar for glob in FROM_SPARK for jar in SPARK_JARS.glob(glob))]
    port, process = launch_gateway(
        classpath=":".join(map(str, jars)),
        jarpath=str(next(SPARK_JARS.glob("py4j-*.jar"))),
        java_path=str(java.path),
        javaopts=["-Xmx256m"],
        die_on_exit=True,
        return_proc=True,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auto_convert=True, eager_load=False)
    )
    try:
        warehouse = f"file://{folder}/warehouse"
        listening = _serve(gateway.jvm, f"jdbc:sqlite:{folder}/rest.db", warehouse)
        yield RestServer(f"http://127.0.0.1:{listening}", warehouse)
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()


def _serve(jvm: Any, uri: str, warehouse: str) -> int:
    """Put the servlet on a free port of loopback; Iceberg's own main binds all interfaces."""
    catalog = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
        "rest",
        {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": uri,
            "jdbc.schema-version": "V1",
            "warehouse": warehouse,
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
    """The pinned jars, fetched if need be; they and the driver of SQLite."""
    kept = Path(os.environ["SPARKWAP_JARS"])
    folder = kept / "rest"
    folder.mkdir(parents=True, exist_ok=True)
    pins = dict(line.split(" --hash=sha256:") for line in LOCK.read_text().splitlines() if line)
    with FileLock(folder / ".lock"):
        absent = [pin for pin in pins if not (folder / _filename(pin)).exists()]
        if absent:
            _fetch(absent, folder, java)
    for pin, checksum in pins.items():
        path = folder / _filename(pin)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        assert found == checksum, f"{path} is not the pinned jar; remove it to fetch it again"
    sqlite = kept / SQLITE.filename
    if not sqlite.exists():
        pytest.skip(f"{sqlite} is fetched by the first start of a server, which has not been yet")
    return [*(folder / _filename(pin) for pin in pins), sqlite]


def _fetch(pins: list[str], folder: Path, java: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        ivy = Path(scratch, "ivy.xml")
        ivy.write_text(_ivy_file(pins))
        command = [
            "-cp",
            str(next(SPARK_JARS.glob("ivy-*.jar"))),
            "org.apache.ivy.Main",
            *("-ivy", str(ivy), "-cache", f"{scratch}/cache"),
            *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        said = _run([str(java), *command])
        bundle = trust.bundle()
        if bundle is not None and _absent(pins, folder):
            options = trust.java_options(bundle, Path(scratch, "trust.jks"))
            said = _run([str(java), *options, *command])
    missing = _absent(pins, folder)
    if missing:
        pytest.skip(f"the REST server's jars cannot be fetched: {', '.join(missing)}: {said}")


def _run(command: list[str]) -> str:
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
    )
    return " | ".join(ended.stdout.strip().splitlines()[-3:])


def _absent(pins: list[str], folder: Path) -> list[str]:
    return [pin for pin in pins if not (folder / _filename(pin)).exists()]


def _ivy_file(pins: list[str]) -> str:
    artifacts: dict[tuple[str, str, str], list[str]] = {}
    for pin in pins:
        group, artifact, version, *classifier = pin.split(":")
        more = f' m:classifier="{classifier[0]}"' if classifier else ""
        artifacts.setdefault((group, artifact, version), []).append(
            f'<artifact name="{artifact}" type="jar" ext="jar"{more}/>'
        )
    lines = [
        f'<dependency org="{group}" name="{name}" rev="{version}" transitive="false">'
        f"{''.join(files)}</dependency>"
        for (group, name, version), files in artifacts.items()
    ]
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="sparkwap" module="rest-server"/>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _filename(pin: str) -> str:
    _, artifact, version, *classifier = pin.split(":")
    return "-".join([artifact, version, *classifier]) + ".jar"
