"""A Spark server that sparkwap does not start: a Thrift server, with Spark Connect in its driver.

`helpers.cluster` submits one to a cluster. `running_server` starts one on this machine, with a
catalog in SQLite and a warehouse of local files, of whatever version of PySpark is installed.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from helpers.catalogs import PYTHON_MODELS, SPARK
from helpers.maven import ROOT, java_or_skip, kept_jars, pinned_jars
from sparkwap.server import jars
from sparkwap.server.catalog import BUSY_SECONDS
from sparkwap.server.defaults import LOG4J2
from sparkwap.server.java import MODULE_OPTIONS, Java, find

LOOPBACK = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 120
_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


@dataclass
class SparkServer:
    """A Thrift server with Spark Connect.

    Attributes:
        folder: logs, configuration and scratch files.
        java: the Java runtime.
        jars: what its class path has beside Spark's own jars.
        master: the address of the master.
        host: the host of both endpoints. Only for this name, PySpark sends a token without TLS.
        token: the bearer token of Connect; empty where the version of Spark knows none.
        connect: whether Connect is served.
        environment: more variables for the environment of its processes.
        more: more settings of Spark.
        thrift_port: the port of the Thrift endpoint.
        connect_port: the port of the Spark Connect endpoint.
        processes: the Java processes; ``driver`` is the server.
    """

    folder: Path
    java: Java
    jars: list[Path] = field(default_factory=list)
    master: str = "local[2]"
    host: str = "localhost"
    token: str = field(default="", repr=False)
    connect: bool = True
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    more: Mapping[str, str] = field(default_factory=dict, repr=False)
    thrift_port: int = 0
    connect_port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def catalog(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db?timeout={BUSY_SECONDS}",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    @property
    def spark_catalog(self) -> dict[str, str]:
        """Spark's settings of the catalog, without the prefix."""
        options = f"busy_timeout={BUSY_SECONDS}000&transaction_mode=IMMEDIATE"
        return {
            "uri": f"jdbc:sqlite:{self.folder}/catalog.db?{options}",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    @property
    def connect_url(self) -> str:
        """The Spark Connect URL, including the token; empty without Connect."""
        token = f";token={self.token}" if self.token else ""
        return f"sc://{self.host}:{self.connect_port}/{token}" if self.connect else ""

    @property
    def output(self) -> dict[str, Any]:
        """The profile's output for a project on it."""
        return {
            "type": "sparkwap",
            "method": "thrift",
            "host": self.host,
            "port": self.thrift_port,
            "user": "dbt",
            "catalog": self.catalog,
            **({"connect_url": self.connect_url} if self.connect else {}),
        }

    def prepare(self) -> None:
        """Create folders, the catalog's tables, and the namespace with which a session begins."""
        from pyiceberg.catalog import load_catalog

        for each in ("conf", "scratch/hive-local"):
            (self.folder / each).mkdir(parents=True, exist_ok=True)
        self._log4j.write_text(LOG4J2)
        catalog = load_catalog("lake", **self.catalog, schema_version="v1")
        catalog.create_namespace_if_not_exists("default")
        catalog.close()

    def start_server(self) -> None:
        """Start the server, and wait until it answers."""
        self.thrift_port = self.thrift_port or free_port()
        self.connect_port = self.connect_port or free_port()
        properties = self.folder / "conf/server.properties"
        properties.write_text("".join(f"{k} {v}\n" for k, v in sorted(self.settings.items())))
        submit = ["--properties-file", str(properties), "--class", _SERVER, "spark-internal"]
        self._launch("driver", "org.apache.spark.deploy.SparkSubmit", *submit, memory="1500m")
        self._until("driver", lambda: all(map(listens, self._ports)))

    def stop(self) -> None:
        """End all Java processes."""
        for name in reversed(list(self.processes)):
            process = self.processes.pop(name)
            process.kill()
            process.wait()

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark."""
        lake = "spark.sql.catalog.lake"
        return {
            "spark.master": self.master,
            "spark.app.name": "sparkwap-server",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.pyspark.python": sys.executable,
            "spark.scheduler.mode": "FAIR",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.ansi.enabled": "true",  # as Spark 4.0 and later have it by default
            "spark.local.dir": str(self.folder / "scratch"),
            "spark.hadoop.hive.server2.thrift.bind.host": LOOPBACK,
            "spark.hadoop.hive.server2.thrift.port": str(self.thrift_port),
            "spark.hadoop.hive.metastore.uris": f"thrift://{LOOPBACK}:1",
            "spark.hadoop.hive.metastore.connect.retries": "0",
            "spark.hadoop.hive.exec.scratchdir": f"{self.folder}/scratch/hive",
            "spark.hadoop.hive.exec.local.scratchdir": f"{self.folder}/scratch/hive-local",
            "spark.hadoop.hive.downloaded.resources.dir": (
                f"{self.folder}/scratch/hive-resources/${{hive.session.id}}"
            ),
            "spark.sql.warehouse.dir": f"file://{self.folder}/spark-warehouse",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.extensions": (
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
            ),
            "spark.sql.defaultCatalog": "lake",
            lake: "org.apache.iceberg.spark.SparkCatalog",
            f"{lake}.type": "jdbc",
            f"{lake}.jdbc.schema-version": "V1",
            f"{lake}.cache-enabled": "false",
            **{f"{lake}.{key}": value for key, value in self.spark_catalog.items()},
            **(self._connect_settings if self.connect else {}),
            **self.more,
        }

    @property
    def _connect_settings(self) -> Mapping[str, str]:
        token = {"spark.connect.authenticate.token": self.token} if self.token else {}
        return {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self.connect_port),
            "spark.connect.session.planCache.enabled": "false",
            **token,
        }

    @property
    def _ports(self) -> list[int]:
        return [self.thrift_port, *([self.connect_port] if self.connect else [])]

    @property
    def _log4j(self) -> Path:
        return self.folder / "conf/log4j2.properties"

    def _launch(self, name: str, main: str, *arguments: str, memory: str = "256m") -> None:
        class_path = [*self.jars, self.folder / "conf", f"{SPARK_HOME}/jars/*"]
        command = [str(self.java.path), f"-Xmx{memory}", *MODULE_OPTIONS]
        command += [f"-Dlog4j2.configurationFile={self._log4j}", "-cp"]
        command += [":".join(map(str, class_path)), main, *arguments]
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "JAVA_HOME": str(self.java.path.parent.parent),
            # A worker's executors look for it in a build of Spark, which the wheel is not.
            "SPARK_SCALA_VERSION": "2.13",
            # Also the pages of master and workers listen on loopback only.
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_MASTER_WEBUI_PORT": "0",
            "SPARK_WORKER_WEBUI_PORT": "0",
            **self.environment,
        }
        environment.pop("SPARK_LOCAL_DIRS", None)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=self.folder
            )

    def _until(self, name: str, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + _START_SECONDS
        while not holds():
            ended = self.processes[name].poll() is not None
            log = self.folder / f"{name}.log"
            assert not ended, f"{name} has ended; see {log}"
            assert time.monotonic() < end, f"{name} did not start; see {log}"
            time.sleep(0.1)


@contextmanager
def running_server(folder: Path, token: str = "", **more: str) -> Iterator[SparkServer]:
    """Start a server of the installed PySpark. Skips where its jars or Java cannot be had.

    Args:
        folder: the server's files.
        token: the bearer token of Connect.
        more: more settings of Spark.
    """
    java_or_skip("Spark")
    java = find()
    lock = ROOT / f"tests/requirements-spark-{SPARK}.lock"
    wanted = (jars.SQLITE,) if lock.exists() else (jars.ICEBERG, jars.SQLITE)
    found = jars.provide(wanted, kept_jars(), java, SPARK_HOME, {}, print)
    if lock.exists():
        found = [*found, *pinned_jars(lock, f"spark-{SPARK}", java.path)]
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "catalog.db")) as database:
        database.execute("pragma journal_mode = wal")
    # Python models need Connect of 4.0, and that of 3.5 listens on all addresses of the machine.
    server = SparkServer(folder, java, found, token=token, connect=PYTHON_MODELS, more=more)
    with serving(server):
        yield server


@contextmanager
def serving(server: SparkServer) -> Iterator[None]:
    """Prepare and start a server, and stop it in the end."""
    server.prepare()
    try:
        server.start_server()
        yield
    finally:
        server.stop()


def free_port() -> int:
    """Return a free port of loopback."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Return whether something listens on a port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
