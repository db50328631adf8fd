"""Starts the Spark process of a lake, with its ports, files and command line."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from sparkwap import __version__
from sparkwap.core import next_command
from sparkwap.core.errors import ServerError
from sparkwap.server import catalog, defaults, jars, java
from sparkwap.server import state as states
from sparkwap.server.config import LOOPBACK, LakePaths, ServerConfig
from sparkwap.server.state import ServerState
from sparkwap.server.watchdog import Launch

Progress = Callable[[str], None]

# Not `-m`: the package imports the module, which would then be loaded twice.
_WATCHDOG = "from sparkwap.server.watchdog import main; main()"

# Spark would read these variables, which are for the client or for another Spark.
_FOREIGN_VARIABLES = (
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_REMOTE",
    "SPARK_LOCAL_DIRS",
    "SPARK_MASTER",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "HIVE_CONF_DIR",
)


def settings_of(config: ServerConfig) -> dict[str, str]:
    """Return the settings that a running server cannot change, as text for comparisons."""
    # Without the password, which is in a setting of its own.
    spark_uri = catalog.spark_catalog(config)[f"spark.sql.catalog.{catalog.CATALOG_NAME}.uri"]
    return {
        "version of sparkwap": __version__,
        "catalog": "sqlite" if config.catalog_uri is None else spark_uri,
        "memory": config.memory,
        "cores": str(config.cores or "all"),
        "kafka": str(config.kafka),
        # A digest, because the settings may have secret keys of an object store.
        "spark_conf": hashlib.sha256(str(sorted(config.spark_conf.items())).encode()).hexdigest(),
    }


def start(config: ServerConfig, progress: Progress) -> ServerState:
    layout = config.layout
    progress("starting the server")
    spark_home = find_spark()
    runtime = java.find()
    thrift_port, connect_port = choose_ports(config)
    token = secrets.token_urlsafe(32)
    settings = defaults.merged(config, thrift_port, connect_port, token)
    jar_paths = jars.provide(
        jars.required(catalog.uses_postgres(config), config.kafka),
        layout.jars,
        runtime,
        spark_home,
        config.spark_conf,
        progress,
    )
    catalog.prepare(config)
    _fresh_files(layout)
    properties = layout.conf / "spark.properties"
    states.write_private(properties, defaults.render_properties(settings))
    launch = Launch(
        lake=str(layout.lake),
        command=_command(config, runtime, spark_home, jar_paths, properties),
        idle_seconds=config.idle_minutes * 60,
        thrift_port=thrift_port,
        connect_port=connect_port,
        token=token,
        settings=settings_of(config),
    )
    progress(f"starting Spark on Java {runtime.major} ({runtime.origin}), {config.memory} of heap")
    return _spawn(layout, launch, spark_home)


def find_spark() -> Path:
    """Return the directory of the PySpark wheel, which contains Spark.

    Raises:
        ServerError: PySpark is missing, or has no jars.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServerError(
            "The embedded server needs Spark, which is not installed. The server was not started. "
            f"Run: {next_command.install('local')}, or set your own server in profiles.yml."
        )
    home = Path(spec.origin).parent
    if not (home / "jars").is_dir():
        raise ServerError(
            "The installed PySpark is only the client, without Spark. The server was not started. "
            "Run: pip uninstall pyspark-client && "
            "pip install --force-reinstall 'pyspark[connect]>=4.1,<4.2'"
        )
    return home


def choose_ports(config: ServerConfig) -> tuple[int, int]:
    for name in ("thrift_port", "connect_port"):
        port = getattr(config, name)
        if port:
            _require_free(port, name)
    with socket.socket() as thrift, socket.socket() as connect:
        thrift.bind((LOOPBACK, 0))  # both at once, so that they differ
        connect.bind((LOOPBACK, 0))
        return (
            config.thrift_port or thrift.getsockname()[1],
            config.connect_port or connect.getsockname()[1],
        )


def _require_free(port: int, name: str) -> None:
    with socket.socket() as probe, socket.socket() as other:
        # Like the server: a port with a connection in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            reason = error.strerror
        else:
            return
        other.settimeout(1)
        reason = (
            "another program listens there" if not other.connect_ex((LOOPBACK, port)) else reason
        )
    raise ServerError(
        f"Port {port} on {LOOPBACK} is taken ({reason}{_holder(port)}). The server was not "
        f"started. Set `{name}` in profiles.yml to a free port, or to 0 to select a free port."
    )


def _holder(port: int) -> str:
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            address = connection.laddr
            listens = connection.status == psutil.CONN_LISTEN and address and address.port == port
            if listens and connection.pid:
                return f": {psutil.Process(connection.pid).name()}, pid {connection.pid}"
    return ""


def _fresh_files(layout: LakePaths) -> None:
    shutil.rmtree(layout.tmp, ignore_errors=True)
    for directory in (layout.tmp, layout.tmp / "hive-local"):  # Hive does not create hive-local
        directory.mkdir(mode=0o700)
    states.write_private(layout.conf / "log4j2.properties", defaults.LOG4J2)
    states.write_private(layout.conf / "fairscheduler.xml", defaults.FAIR_SCHEDULER)
    with suppress(FileNotFoundError):
        layout.log.replace(layout.log.with_name("server.log.1"))
    states.write_private(layout.log, "")


def _command(
    config: ServerConfig,
    runtime: java.Java,
    spark_home: Path,
    jar_paths: list[Path],
    properties: Path,
) -> list[str]:
    # The jars are on the class path of the JVM, because Connect sessions cannot use jars that Spark
    # adds later (--jars).
    class_path = ":".join([*map(str, jar_paths), str(config.layout.conf), f"{spark_home}/jars/*"])
    return [
        str(runtime.path),
        *defaults.jvm_options(config),
        *java.MODULE_OPTIONS,
        "-cp",
        class_path,
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(properties),
        "--class",
        "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2",
        "spark-internal",
    ]


def _spawn(layout: LakePaths, launch: Launch, spark_home: Path) -> ServerState:
    launch_file = layout.conf / "launch.json"
    launch.write(launch_file)
    environment = {k: v for k, v in os.environ.items() if k not in _FOREIGN_VARIABLES}
    environment |= {
        "SPARK_HOME": str(spark_home),
        "SPARK_CONF_DIR": str(layout.conf),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    with layout.log.open("ab") as log:
        watchdog = subprocess.Popen(
            [sys.executable, "-P", "-c", _WATCHDOG, str(launch_file)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=layout.server,
            env=environment,
            umask=0o077,
            start_new_session=True,
        )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        state = states.read(layout)
        if state is not None and state.watchdog_pid == watchdog.pid:
            return state
        if watchdog.poll() is not None:
            break
        time.sleep(0.05)
    raise start_failed(layout, "its watchdog did not start")


def start_failed(layout: LakePaths, reason: str) -> ServerError:
    return ServerError(
        f"The server of {layout.lake} could not be started: {reason}.\n{_log_excerpt(layout)}"
        f"No table was changed. The whole log: {layout.command('logs')}"
    )


def _log_excerpt(layout: LakePaths, lines: int = 8) -> str:
    try:
        text = layout.log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    errors = [t for t in text if "Exception" in t or "ERROR" in t or "rror:" in t]
    return "".join(f"  {line[:300]}\n" for line in (errors or text)[-lines:])
