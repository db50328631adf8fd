"""A Spark cluster on loopback: master, workers, server, PostgreSQL and an S3 store, each a process.

The Thrift server with Spark Connect is submitted to the cluster, so its tasks run in executors of
the workers. Nothing is shared with the embedded server but the pinned jars. `running_cluster` is
for tests, ``make cluster`` for people.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import pyspark
from sqlalchemy.engine import make_url

from helpers.maven import java_or_skip, kept_jars, pinned_jars
from helpers.postgres import Postgres, running_postgres
from helpers.s3 import KEY, REGION, SECRET, Store, running_s3
from sparkwap.server import jars
from sparkwap.server.java import MODULE_OPTIONS, Java, find

LOCK = Path(__file__).parents[1] / "requirements-cluster.lock"
SPARK_HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
WORKERS = 2
_START_SECONDS = 120
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
_LOG4J2 = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        folder: logs, configuration, and the workers' scratch files.
        database: the database of the catalog.
        store: the S3 store of the warehouse.
        host: the host of both endpoints. Only for this name, PySpark sends a token without TLS.
        master: the address of the master.
        thrift_port: the port of the Thrift endpoint.
        connect_port: the port of the Spark Connect endpoint.
        token: its bearer token.
        processes: the Java processes, by ``master``, ``worker-1``, ``worker-2`` and ``driver``.
    """

    folder: Path
    database: Postgres
    store: Store
    java: Java
    host: str = "localhost"
    master: str = ""
    thrift_port: int = 0
    connect_port: int = 0
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def catalog(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        return {
            "type": "sql",
            "uri": self.database.uri,
            "warehouse": self.store.warehouse,
            **self.store.properties,
        }

    @property
    def connect_url(self) -> str:
        """The Spark Connect URL, including the token."""
        return f"sc://{self.host}:{self.connect_port}/;token={self.token}"

    @property
    def output(self) -> dict[str, Any]:
        """The profile's output for a project on it."""
        return {
            "type": "sparkwap",
            "method": "thrift",
            "host": self.host,
            "port": self.thrift_port,
            "user": "dbt",
            "connect_url": self.connect_url,
            "catalog": self.catalog,
        }

    def start(self) -> None:
        """Start master, workers and server, one after the other."""
        port = _free_port()
        self.master = f"spark://{LOOPBACK}:{port}"
        self._launch("master", _MASTER, "--host", LOOPBACK, "--port", str(port))
        self._until("master", lambda: _listens(port))
        for number in range(1, WORKERS + 1):
            self.start_worker(number)
        self.start_server()

    def start_worker(self, number: int) -> None:
        """Start a worker with one core."""
        scratch = self.folder / f"worker-{number}"
        options = ["--host", LOOPBACK, "--cores", "1", "--memory", "1g", "-d", str(scratch)]
        self._launch(f"worker-{number}", _WORKER, *options, self.master)

    def start_server(self) -> None:
        """Submit the Thrift server with Spark Connect, and wait until it answers."""
        self.thrift_port = self.thrift_port or _free_port()
        self.connect_port = self.connect_port or _free_port()
        properties = self.folder / "conf/server.properties"
        properties.write_text("".join(f"{k} {v}\n" for k, v in sorted(self._settings().items())))
        submit = ["--properties-file", str(properties), "--class", _SERVER, "spark-internal"]
        self._launch("driver", "org.apache.spark.deploy.SparkSubmit", *submit, memory="1500m")
        self._until("driver", lambda: _listens(self.thrift_port) and _listens(self.connect_port))

    def executors(self) -> list[psutil.Process]:
        """Return the processes of the executors."""
        found = []
        for name, process in self.processes.items():
            if name.startswith("worker") and process.poll() is None:
                found += psutil.Process(process.pid).children(recursive=True)
        return [one for one in found if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())]

    def kill(self, name: str) -> None:
        """Kill a Java process, as the end of its machine would: no word of farewell."""
        process = self.processes.pop(name)
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all Java processes."""
        for name in reversed(list(self.processes)):
            self.kill(name)

    def _settings(self) -> Mapping[str, str]:
        url, lake = make_url(self.database.uri), "spark.sql.catalog.lake"
        class_path = ":".join(map(str, self._jars))
        return {
            "spark.master": self.master,
            "spark.app.name": "sparkwap-cluster",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.cores.max": str(WORKERS),
            "spark.executor.cores": "1",
            "spark.executor.memory": "800m",
            # Jars on the class path, because Connect sessions cannot use those of `spark.jars`.
            "spark.driver.extraClassPath": class_path,
            "spark.executor.extraClassPath": class_path,
            "spark.executor.extraJavaOptions": f"-Dlog4j2.configurationFile={self._log4j}",
            "spark.pyspark.python": sys.executable,
            "spark.scheduler.mode": "FAIR",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.session.timeZone": "UTC",
            "spark.local.dir": str(self.folder / "scratch"),
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self.connect_port),
            "spark.connect.authenticate.token": self.token,
            "spark.connect.session.planCache.enabled": "false",
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
            f"{lake}.uri": f"jdbc:postgresql://{url.host}:{url.port}/{url.database}",
            f"{lake}.jdbc.user": str(url.username),
            f"{lake}.jdbc.schema-version": "V1",
            f"{lake}.retryable_status_codes": "57P05,08003",
            f"{lake}.cache-enabled": "false",
            f"{lake}.warehouse": self.store.warehouse,
            f"{lake}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            f"{lake}.s3.endpoint": self.store.endpoint,
            f"{lake}.s3.path-style-access": "true",
            f"{lake}.s3.access-key-id": KEY,
            f"{lake}.s3.secret-access-key": SECRET,
            f"{lake}.client.region": REGION,
        }

    @cached_property
    def _jars(self) -> list[Path]:
        wanted = jars.required(postgres=True, kafka=True)
        own = jars.provide(wanted, kept_jars(), self.java, SPARK_HOME, {}, print)
        return [*own, *pinned_jars(LOCK, "cluster", self.java.path)]

    @property
    def _log4j(self) -> Path:
        return self.folder / "conf/log4j2.properties"

    def _launch(self, name: str, main: str, *arguments: str, memory: str = "256m") -> None:
        class_path = [*self._jars, self.folder / "conf", f"{SPARK_HOME}/jars/*"]
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
            assert not ended, f"the {name} of the cluster has ended; see {log}"
            assert time.monotonic() < end, f"the {name} of the cluster did not start; see {log}"
            time.sleep(0.1)


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster whose files are in a folder. Skips where a part of it cannot be had."""
    java_or_skip("the cluster")
    for each in ("conf", "scratch/hive-local"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        database = stack.enter_context(running_postgres())
        store = stack.enter_context(running_s3())
        cluster = Cluster(folder, database, store, find())
        cluster._log4j.write_text(_LOG4J2)
        _prepare(cluster)
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster


def _prepare(cluster: Cluster) -> None:
    """Create the catalog's tables and the namespace with which a Thrift session begins."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake", **cluster.catalog, schema_version="v1")
    catalog.create_namespace_if_not_exists("default")
    catalog.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def main() -> None:
    """Run a cluster until a signal comes.

    Its process id is in ``pid``, and once it runs, the settings of the profile are in ``env``.
    """
    os.umask(0o077)
    folder = Path(sys.argv[1]).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "pid").write_text(str(os.getpid()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with running_cluster(folder) as cluster:
        settings = {
            "DBT_TARGET": "cluster",
            "SPARK_HOST": cluster.host,
            "SPARK_THRIFT_PORT": cluster.thrift_port,
            "SPARK_CONNECT_URL": cluster.connect_url,
            "LAKE_CATALOG_URI": cluster.database.uri,
            "LAKE_WAREHOUSE": cluster.store.warehouse,
            "LAKE_S3_ENDPOINT": cluster.store.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
        }
        written = folder / "env.new"
        written.write_text("".join(f"export {k}='{v}'\n" for k, v in settings.items()))
        written.rename(folder / "env")
        signal.pause()


if __name__ == "__main__":
    main()
