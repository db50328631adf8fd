"""A Hive metastore of a test's own, on loopback: Hive 4 on a PostgreSQL of its own.

With Derby, a request that waits for the lock of a table never gets an answer: Hive 4.0.1 updates
the row of the lock, and then waits for a mutex whose holder waits for the row.

Its classes come from the jars in ``tests/requirements-hive.lock``, which ``maven`` fetches, and
from PySpark.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg2
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from helpers.maven import SPARK_JARS, from_spark, java_or_skip, pinned_jars
from helpers.postgres import Postgres, running_postgres
from helpers.spark_server import free_port, listens

# Py4J logs that it has lost a process which a test has killed, also after pytest's summary.
logging.getLogger("py4j").setLevel(logging.CRITICAL)
logging.getLogger().addFilter(lambda record: record.msg != "Exception while sending command.")

LOCK = Path(__file__).parents[1] / "requirements-hive.lock"
FROM_SPARK = (
    "commons-codec-*.jar",
    "commons-lang3-*.jar",
    "gson-*.jar",
    "guava-*.jar",
    "hadoop-client-*.jar",
    "jackson-annotations-*.jar",
    "jackson-core-2*.jar",
    "jackson-databind-*.jar",
    "jta-*.jar",
    "libthrift-*.jar",
    "log4j-*.jar",
    "metrics-*.jar",
    "orc-core-*.jar",
    "py4j-*.jar",
    "slf4j-api-*.jar",
    "transaction-api-*.jar",
)
JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dlog4j2.level=ERROR",
)
START_SECONDS = 120

# DataNucleus creates the tables of its own classes when it first needs them. These are not among
# them; locks need them.
TABLES = (
    'CREATE TABLE "HIVE_LOCKS" ("HL_LOCK_EXT_ID" bigint NOT NULL, "HL_LOCK_INT_ID" bigint NOT NULL,'
    ' "HL_TXNID" bigint NOT NULL, "HL_DB" varchar(128) NOT NULL, "HL_TABLE" varchar(256),'
    ' "HL_PARTITION" varchar(767), "HL_LOCK_STATE" char(1) NOT NULL,'
    ' "HL_LOCK_TYPE" char(1) NOT NULL, "HL_LAST_HEARTBEAT" bigint NOT NULL,'
    ' "HL_ACQUIRED_AT" bigint, "HL_USER" varchar(128) NOT NULL, "HL_HOST" varchar(128) NOT NULL,'
    ' "HL_HEARTBEAT_COUNT" integer, "HL_AGENT_INFO" varchar(128), "HL_BLOCKEDBY_EXT_ID" bigint,'
    ' "HL_BLOCKEDBY_INT_ID" bigint, PRIMARY KEY ("HL_LOCK_EXT_ID", "HL_LOCK_INT_ID"))',
    'CREATE TABLE "NEXT_LOCK_ID" ("NL_NEXT" bigint NOT NULL)',
    'INSERT INTO "NEXT_LOCK_ID" VALUES (1)',
    'CREATE TABLE "AUX_TABLE" ("MT_KEY1" varchar(128) NOT NULL, "MT_KEY2" bigint NOT NULL,'
    ' "MT_COMMENT" varchar(255), PRIMARY KEY ("MT_KEY1", "MT_KEY2"))',
)


@dataclass(kw_only=True)
class MetastoreProcess(ABC):
    """A metastore, which can be killed and started again.

    Attributes:
        folder: its warehouse.
        java: path of ``java``.
        jars: its classes.
        settings: further settings.
        options: further options of Java.
        port: where it listens.
    """

    folder: Path
    java: Path
    jars: Sequence[Path | str] = field(repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """Its address."""
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def warehouse(self) -> str:
        """Location of the files."""
        return f"file://{self.folder}/warehouse"

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        return {"type": "hive", "uri": self.uri, "warehouse": self.warehouse}

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        os.environ.setdefault("JAVA_HOME", str(self.java.parent.parent))
        # Py4J's threads write to it as long as the process lives.
        log = (self.folder / "hive.log").open("a", buffering=1)
        port, process = launch_gateway(
            classpath=":".join(map(str, self.jars)),
            jarpath=str(next(SPARK_JARS.glob("py4j-*.jar"))),
            java_path=str(self.java),
            javaopts=[*JAVA_OPTIONS, *self.options],
            die_on_exit=True,
            return_proc=True,
            redirect_stdout=log,
            redirect_stderr=log,
        )
        self._process = process
        gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auto_convert=True, eager_load=False)
        )
        threading.Thread(target=self._serve, args=(gateway.jvm,), daemon=True).start()
        end = time.monotonic() + START_SECONDS
        while not listens(self.port):
            assert process.poll() is None and time.monotonic() < end, (
                f"the metastore did not start; see {self.folder}/hive.log"
            )
            time.sleep(0.1)

    def kill(self) -> None:
        """End the process at once."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @abstractmethod
    def _serve(self, jvm: Any) -> None:
        """Serve until the process is ended."""


@dataclass(kw_only=True)
class HiveServer(MetastoreProcess):
    """Hive's metastore of version 4.

    Attributes:
        postgres: its database.
    """

    postgres: Postgres

    @property
    def dsn(self) -> str:
        """How `psycopg2` connects to the database."""
        return _dsn(self.postgres)

    def _serve(self, jvm: Any) -> None:
        metastore = jvm.org.apache.hadoop.hive.metastore
        conf = metastore.conf.MetastoreConf.newMetastoreConf()
        settings = {
            "metastore.warehouse.dir": self.warehouse,
            "metastore.thrift.bind.host": "127.0.0.1",
            "metastore.thrift.port": str(self.port),
            "javax.jdo.option.ConnectionURL": (
                f"jdbc:postgresql://127.0.0.1:{self.postgres.port}/postgres"
            ),
            "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
            "javax.jdo.option.ConnectionUserName": "lake",
            "javax.jdo.option.ConnectionPassword": "",
            "datanucleus.schema.autoCreateAll": "true",
            "metastore.schema.verification": "false",
            "metastore.expression.proxy": (
                "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
            ),
            # Iceberg needs it: otherwise columns cannot be removed or moved.
            "metastore.disallow.incompatible.col.type.changes": "false",
            # Compactions and the like, of which Iceberg's tables have no need.
            "metastore.task.threads.always": "",
            "metastore.task.threads.remote": "",
            **self.settings,
        }
        for key, value in settings.items():
            conf.set(key, value)
        bridge = metastore.security.HadoopThriftAuthBridge.getBridge()
        # It returns, with an error, when the process is ended.
        with suppress(Exception):
            metastore.HiveMetaStore.startMetaStore(self.port, bridge, conf)


@contextmanager
def running_hive_metastore(
    folder: Path, settings: dict[str, str] | None = None
) -> Iterator[HiveServer]:
    """Start a metastore whose warehouse is in ``folder``. Skips where there is no Java or
    PostgreSQL, or where its jars can neither be found nor fetched.

    Args:
        folder: an existing folder.
        settings: settings of Hive.
    """
    java = java_or_skip("the Hive metastore")
    # Its own jars are first: some of Spark's are of other versions.
    jars = [*pinned_jars(LOCK, "hive", java), *from_spark(*FROM_SPARK)]
    with running_postgres() as postgres:
        with (
            closing(psycopg2.connect(_dsn(postgres))) as database,
            database,
            database.cursor() as at,
        ):
            for sql in TABLES:
                at.execute(sql)
        server = HiveServer(
            folder=folder, java=java, jars=jars, settings=settings or {}, postgres=postgres
        )
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _dsn(postgres: Postgres) -> str:
    return f"host=127.0.0.1 port={postgres.port} user=lake dbname=postgres"
