"""Every Spark setting of the embedded server, in one place, each with its reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from sparkwap.core.errors import ConfigError
from sparkwap.server.catalog import CATALOG_NAME, spark_catalog
from sparkwap.server.config import LOOPBACK, ServerConfig

LOG4J2 = """\
# One line per warning; Spark's own default, INFO, writes megabytes per minute.
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
# Warns at each start that native Hadoop libraries are missing; no wheel has them.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
# Warns after each statement of a Thrift session that there is no job to cancel.
logger.dag.name = org.apache.spark.scheduler.DAGScheduler
logger.dag.level = error
# Warns that SPARK_LOCAL_DIRS of a cluster would override spark.local.dir; there is no cluster.
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
"""

# Jobs without a pool are in the pool "default", which is first in, first out without this setting.
FAIR_SCHEDULER = """\
<?xml version="1.0"?>
<allocations>
  <pool name="default">
    <schedulingMode>FAIR</schedulingMode>
    <weight>1</weight>
    <minShare>0</minShare>
  </pool>
</allocations>
"""


def defaults(config: ServerConfig) -> dict[str, str]:
    """Return the settings that the user may override with ``spark_conf``."""
    cores = config.cores or os.cpu_count() or 1
    return {
        # Small data on one machine: a task costs more than its rows, and AQE only merges.
        "spark.sql.shuffle.partitions": str(max(2, cores)),
        # The same input gives the same timestamps on every machine.
        "spark.sql.session.timeZone": "UTC",
        # Models of several dbt threads share the cores instead of queueing behind each other.
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": f"file://{config.layout.conf}/fairscheduler.xml",
        # A Connect session may read a table again after another session has rewritten it: a
        # cached plan would read the old snapshot.
        "spark.connect.session.planCache.enabled": "false",
        # Spark keeps the data of its web pages in the heap, although they are disabled.
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.thriftserver.ui.retainedSessions": "10",
        "spark.sql.thriftserver.ui.retainedStatements": "10",
        # Hadoop's own umask would let other users read Spark's files.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        # Each build of a project compiles the same few hundred classes; Spark keeps 100 of them.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # No progress bars in the log.
        "spark.ui.showConsoleProgress": "false",
        # Python functions (UDFs) run in the interpreter that started the server.
        "spark.pyspark.python": sys.executable,
    }


def fixed(config: ServerConfig, thrift_port: int, connect_port: int, token: str) -> dict[str, str]:
    """Return the settings of the server itself, which ``spark_conf`` may not override."""
    layout = config.layout
    return {
        "spark.master": f"local[{config.cores or '*'}]",
        "spark.app.name": "sparkwap",
        # Loopback only: everybody who reaches a port can run code as the user.
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.hadoop.hive.server2.transport.mode": "binary",
        "spark.hadoop.hive.server2.thrift.bind.host": LOOPBACK,
        "spark.hadoop.hive.server2.thrift.port": str(thrift_port),
        # Spark Connect in the same driver, so that SQL and Python models see one catalog.
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(connect_port),
        "spark.connect.authenticate.token": token,
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.defaultCatalog": CATALOG_NAME,
        **spark_catalog(config),
        # No Hive metastore: its Derby files would go to the working directory, and nothing uses it.
        "spark.sql.catalogImplementation": "in-memory",
        # Hive still opens a metastore when a session is closed, which took 20 seconds (Derby,
        # several tries). An unreachable address without retries fails at once.
        "spark.hadoop.hive.metastore.uris": f"thrift://{LOOPBACK}:1",
        "spark.hadoop.hive.metastore.connect.retries": "0",
        "spark.sql.warehouse.dir": f"file://{layout.server}/spark-warehouse",
        "spark.local.dir": str(layout.tmp),
        "spark.hadoop.hive.exec.scratchdir": f"{layout.tmp}/hive",
        "spark.hadoop.hive.exec.local.scratchdir": f"{layout.tmp}/hive-local",
        # One directory per session: a session creates it when it opens and deletes it when it
        # closes, which fails if two sessions share it.
        "spark.hadoop.hive.downloaded.resources.dir": (
            f"{layout.tmp}/hive-resources/${{hive.session.id}}"
        ),
        "spark.hadoop.hive.querylog.location": f"{layout.tmp}/hive-log",
    }


def jvm_options(config: ServerConfig) -> list[str]:
    """Return the options of the Java process, without module options."""
    layout = config.layout
    return [
        f"-Xmx{config.memory}",
        # The default is a 64th of the machine's memory.
        "-Xms64m",
        # Deep plans (hundreds of columns or unions) need more than the default stack.
        "-Xss4m",
        # Returns memory to the machine while the server is idle.
        "-XX:+UseG1GC",
        "-XX:G1PeriodicGCInterval=30000",
        "-XX:MinHeapFreeRatio=10",
        "-XX:MaxHeapFreeRatio=30",
        # The optimizing compiler took a third of the CPU time of small builds. It compiles a method
        # after 20 times as many calls as by default, which on large data is soon.
        "-XX:Tier4InvocationThreshold=100000",
        "-XX:Tier4MinInvocationThreshold=12000",
        "-XX:Tier4CompileThreshold=300000",
        "-XX:Tier4BackEdgeThreshold=800000",
        # A driver without memory hangs; a dead driver is started again.
        "-XX:+ExitOnOutOfMemoryError",
        f"-Djava.io.tmpdir={layout.tmp}",
        f"-Dderby.system.home={layout.tmp}",
        f"-Dlog4j2.configurationFile={layout.conf}/log4j2.properties",
        marker(layout.lake),
    ]


def marker(lake: Path) -> str:
    """Return the argument that identifies a process as the server of ``lake``."""
    return f"-Dsparkwap.lake={lake}"


def merged(config: ServerConfig, thrift_port: int, connect_port: int, token: str) -> dict[str, str]:
    """Return all settings: defaults, then the user's, then the fixed ones.

    Raises:
        ConfigError: ``spark_conf`` has a setting that belongs to the server.
    """
    own = fixed(config, thrift_port, connect_port, token)
    instead = {"spark.driver.memory": "memory", "spark.master": "cores"}
    for key in config.spark_conf:
        if key in own or key in instead:
            hint = f"use `{instead[key]}`" if key in instead else "the server sets it"
            raise ConfigError(
                f"`spark_conf` has {key}, which cannot be set there: {hint}. The server was not "
                "started. Remove it from profiles.yml."
            )
    return {**defaults(config), **dict(config.spark_conf), **own}


def render_properties(settings: Mapping[str, str]) -> str:
    """Render settings in the format of a Java properties file."""
    return "".join(f"{key} {_escape(value)}\n" for key, value in sorted(settings.items()))


def _escape(value: str) -> str:
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
