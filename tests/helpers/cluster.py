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
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from sqlalchemy.engine import make_url

from helpers.maven import java_or_skip, kept_jars, pinned_jars
from helpers.postgres import Postgres, running_postgres
from helpers.s3 import KEY, REGION, SECRET, Store, running_s3
from helpers.spark_server import LOOPBACK, SPARK_HOME, SparkServer, free_port, listens
from sparkwap.server import jars
from sparkwap.server.catalog import SAFE_TO_REPEAT
from sparkwap.server.java import find

LOCK = Path(__file__).parents[1] / "requirements-cluster.lock"
WORKERS = 2
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@dataclass(kw_only=True)
class Cluster(SparkServer):
    """A running cluster; its server is the process ``driver``.

    Attributes:
        database: the database of the catalog.
        store: the S3 store of the warehouse.
    """

    database: Postgres
    store: Store
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)

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
    def spark_catalog(self) -> dict[str, str]:
        """Spark's settings of the catalog, without the prefix."""
        url = make_url(self.database.uri)
        return {
            "uri": f"jdbc:postgresql://{url.host}:{url.port}/{url.database}",
            "jdbc.user": str(url.username),
            "retryable_status_codes": SAFE_TO_REPEAT,
            "warehouse": self.store.warehouse,
            **self.store.iceberg,
        }

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark."""
        class_path = ":".join(map(str, self.jars))
        return {
            **super().settings,
            "spark.cores.max": str(WORKERS),
            "spark.executor.cores": "1",
            "spark.executor.memory": "800m",
            # Jars on the class path, because Connect sessions cannot use those of `spark.jars`.
            "spark.driver.extraClassPath": class_path,
            "spark.executor.extraClassPath": class_path,
            "spark.executor.extraJavaOptions": f"-Dlog4j2.configurationFile={self._log4j}",
        }

    def start(self) -> None:
        """Start master, workers and server, one after the other."""
        port = free_port()
        self.master = f"spark://{LOOPBACK}:{port}"
        self._launch("master", _MASTER, "--host", LOOPBACK, "--port", str(port))
        self._until("master", lambda: listens(port))
        for number in range(1, WORKERS + 1):
            self.start_worker(number)
        self.start_server()

    def start_worker(self, number: int) -> None:
        """Start a worker with one core."""
        scratch = self.folder / f"worker-{number}"
        options = ["--host", LOOPBACK, "--cores", "1", "--memory", "1g", "-d", str(scratch)]
        self._launch(f"worker-{number}", _WORKER, *options, self.master)

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


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster whose files are in a folder. Skips where a part of it cannot be had."""
    java_or_skip("the cluster")
    java = find()
    own = jars.provide(
        jars.required(postgres=True, kafka=True), kept_jars(), java, SPARK_HOME, {}, print
    )
    with ExitStack() as stack:
        # As in examples/deployment/postgres.yaml: each Spark session keeps a connection.
        database = stack.enter_context(running_postgres(200, idle_seconds=60))
        store = stack.enter_context(running_s3())
        cluster = Cluster(
            folder=folder,
            java=java,
            jars=[*own, *pinned_jars(LOCK, "cluster", java.path)],
            database=database,
            store=store,
            # Private tables cannot have the keys of the catalog's settings.
            environment={"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET},
        )
        cluster.prepare()
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster


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
