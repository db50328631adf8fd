"""Spark on a Hive metastore of the version that Spark's own client is of: 2.3, with Derby.

All classes are PySpark's. Hive's own start listens on all addresses of the machine, so the server
is put together here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.hive import MetastoreProcess
from helpers.maven import SPARK_JARS, java_or_skip, kept_jars
from helpers.spark_server import LOOPBACK, SPARK_HOME, SparkServer, serving
from sparkwap.server import jars
from sparkwap.server.java import find


@dataclass(kw_only=True)
class Hive2Server(MetastoreProcess):
    """Hive's metastore of version 2.3."""

    def _serve(self, jvm: Any) -> None:
        conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
        database = f"jdbc:derby:;databaseName={self.folder}/metastore;create=true"
        for key, value in {
            "hive.metastore.warehouse.dir": self.warehouse,
            "javax.jdo.option.ConnectionURL": database,
            # Its default pool is not among PySpark's jars.
            "datanucleus.connectionPoolingType": "None",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            # Iceberg needs it: otherwise columns cannot be removed or moved.
            "hive.metastore.disallow.incompatible.col.type.changes": "false",
        }.items():
            conf.set(key, value)
        metastore, thrift = jvm.org.apache.hadoop.hive.metastore, jvm.org.apache.thrift
        if not (self.folder / "metastore").exists():
            # The tables of locks.
            metastore.txn.TxnDbUtil.setConfValues(conf)
            metastore.txn.TxnDbUtil.prepDb(conf)
        handler = getattr(metastore, "HiveMetaStore$HMSHandler")("lake", conf, False)
        retrying = metastore.RetryingHMSHandler.getProxy(conf, handler, True)
        address = jvm.java.net.InetSocketAddress(LOOPBACK, self.port)
        socket = thrift.transport.TServerSocket(address)
        given = getattr(thrift.server, "TThreadPoolServer$Args")(socket)
        server = thrift.server.TThreadPoolServer(
            given.processor(metastore.TSetIpAddressProcessor(retrying))
        )
        # It returns, with an error, when the process is ended.
        with suppress(Exception):
            server.serve()


@dataclass(kw_only=True)
class HiveSparkServer(SparkServer):
    """A Thrift server with Spark Connect whose catalog is a Hive metastore.

    Attributes:
        metastore: the metastore.
    """

    metastore: Hive2Server

    @property
    def catalog(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        return self.metastore.properties

    @property
    def spark_catalog(self) -> dict[str, str]:
        """Spark's settings of the catalog, without the prefix."""
        return self.metastore.properties

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark."""
        unwanted = "spark.sql.catalog.lake.jdbc.schema-version"
        found = {key: value for key, value in super().settings.items() if key != unwanted}
        return {
            **found,
            "spark.hadoop.hive.metastore.connect.retries": "3",
            # Spark looks for a metastore of its own whenever a session ends, and there is none.
            "spark.hadoop.hive.metastore.client.connect.retry.delay": "0s",
        }


@contextmanager
def running_hive_server(folder: Path) -> Iterator[HiveSparkServer]:
    """Start a metastore, and Spark on it. Skips where Java or jars cannot be had.

    Args:
        folder: an existing folder, for the files of both.
    """
    java_or_skip("Spark")
    java = find()
    wanted = jars.required(postgres=False, kafka=True)
    own = jars.provide(wanted, kept_jars(), java, SPARK_HOME, {}, print)
    metastore = Hive2Server(
        folder=folder,
        java=java.path,
        jars=[f"{SPARK_JARS}/*"],
        options=[f"-Dderby.stream.error.file={folder}/derby.log"],
    )
    server = HiveSparkServer(folder=folder, java=java, jars=own, metastore=metastore)
    try:
        metastore.start()
        with serving(server):
            yield server
    finally:
        metastore.kill()
