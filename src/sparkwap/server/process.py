"""Starting, finding and stopping the server of a lake."""

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
from dataclasses import dataclass
from pathlib import Path

import psutil

from sparkwap.core.errors import ConfigError, ServerError
from sparkwap.server import catalog, defaults, jars, java
from sparkwap.server import state as states
from sparkwap.server.config import LOOPBACK, Endpoint, LakePaths, ServerConfig, resolve_lake
from sparkwap.server.state import ServerState
from sparkwap.server.watchdog import GRACE_SECONDS, Launch

Progress = Callable[[str], None]

# Where the host has no time for the machine, a start has taken more than three minutes.
START_TIMEOUT_SECONDS = 600
_PROGRESS_SECONDS = 5

# Not `-m`: the package imports the module, which would then be there twice.
_WATCHDOG = "from sparkwap.server.watchdog import main; main()"

# Spark reads these from the environment, where they belong to the client or to another Spark.
_FOREIGN_VARIABLES = (
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_REMOTE",
    "SPARK_LOCAL_DIRS",
    "SPARK_MASTER",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "HIVE_CONF_DIR",
)


@dataclass(frozen=True)
class ServerStatus:
    """A running server as ``sparkwap server status`` shows it.

    Attributes:
        endpoint: how to reach it.
        ready: both endpoints listen.
        uptime: seconds since its start.
        idle: seconds since a client was last seen.
        rss: resident memory in bytes.
        descriptors: open file descriptors.
        clients: ids of the processes that use it.
    """

    endpoint: Endpoint
    ready: bool
    uptime: float
    idle: float
    rss: int
    descriptors: int
    clients: list[int]


def ensure(config: ServerConfig, progress: Progress) -> Endpoint:
    """Return the endpoint of the lake's server, starting the server if none runs.

    The calling process is registered as a client. Any number of processes and threads may call
    this at once: they end with one server.

    Args:
        config: the server's settings.
        progress: is given one line of text at a time, the first at once and then every few
            seconds, while jars are fetched or the server starts.

    Raises:
        ServerError: the server cannot be started (no Java, no jars, a port is taken, it died).
        CatalogError: the catalog's database cannot be opened.
        ConfigError: the running server works on another catalog, or a setting is not allowed.
    """
    layout = config.layout
    _create(layout)
    with states.locked(layout, progress):
        states.register_client(layout, os.getpid())
        running = _find(layout)
        if running is not None:
            _compare(config, running, progress)
            if running.ready:
                return running.endpoint
            progress("the server is starting")
        else:
            running = _start(config, progress)
        return _await(layout, running, progress).endpoint


def stop(lake: Path) -> bool:
    """Stop the server of a lake; False if none runs.

    SIGTERM first, SIGKILL after a grace period, and only to a process that is verifiably it.
    """
    layout = LakePaths(resolve_lake(lake))
    if not layout.server.is_dir():
        return False
    with states.locked(layout, lambda _line: None):
        state = states.read(layout)
        process = states.server_process(layout, state) if state else None
        if process is not None:
            _terminate(process)
        states.forget(layout)
        return process is not None


def status(lake: Path) -> ServerStatus | None:
    """Return what is known of the lake's running server, None if none runs."""
    layout = LakePaths(resolve_lake(lake))
    state = states.read(layout)
    process = states.server_process(layout, state) if state else None
    if state is None or process is None:
        return None
    try:
        rss, descriptors = process.memory_info().rss, process.num_fds()
    except psutil.Error:  # it has ended just now
        return None
    now = time.time()
    return ServerStatus(
        endpoint=state.endpoint,
        ready=state.ready,
        uptime=now - state.created,
        idle=max(0.0, now - _last_seen(layout, state)),
        rss=rss,
        descriptors=descriptors,
        clients=states.live_clients(layout),
    )


def _last_seen(layout: LakePaths, state: ServerState) -> float:
    try:
        return layout.activity.stat().st_mtime
    except FileNotFoundError:
        return state.created


def logs(lake: Path) -> Path:
    """Return the path of the server's log (absent before the first start)."""
    return LakePaths(resolve_lake(lake)).log


def register_client(lake: Path, pid: int) -> None:
    """Keep the lake's server up while process ``pid`` lives; cheap enough for every connection."""
    states.register_client(LakePaths(resolve_lake(lake)), pid)


def _create(layout: LakePaths) -> None:
    try:
        layout.create()
    except OSError as error:
        raise ServerError(
            f"The lake directory {layout.lake} cannot be used: {error}. The server was not "
            "started. Set `lake` in profiles.yml to a directory that you may write to."
        ) from error


def _find(layout: LakePaths) -> ServerState | None:
    state = states.read(layout)
    if state is not None and states.server_process(layout, state) is not None:
        return state
    states.forget(layout)
    return None


def _settings(config: ServerConfig) -> dict[str, str]:
    """The settings that a running server cannot change, as text that may be compared."""
    return {
        "catalog": "sqlite" if config.catalog_uri is None else _without_password(config),
        "memory": config.memory,
        "cores": str(config.cores or "all"),
        # A digest, as keys of an object store may be among them.
        "spark_conf": hashlib.sha256(str(sorted(config.spark_conf.items())).encode()).hexdigest(),
    }


def _without_password(config: ServerConfig) -> str:
    settings = catalog.spark_catalog(config)
    return settings[f"spark.sql.catalog.{catalog.CATALOG_NAME}.uri"]


def _compare(config: ServerConfig, running: ServerState, progress: Progress) -> None:
    wanted = _settings(config)
    differing = [name for name, value in wanted.items() if running.settings.get(name) != value]
    for name in ("thrift_port", "connect_port"):
        port = getattr(config, name)
        if port and port != getattr(running, name):
            differing.append(name)
    again = f"sparkwap server stop --lake {config.lake}"
    if "catalog" in differing:
        raise ConfigError(
            f"The server of {config.lake} runs on another catalog ({running.settings['catalog']}) "
            f"than the one configured ({wanted['catalog']}). Nothing was changed. Stop it, and the "
            f"next command starts it on the configured one: {again}"
        )
    if differing:
        progress(
            f"the running server (pid {running.pid}) was started with other values of "
            f"{', '.join(differing)}; they apply after: {again}"
        )


def _start(config: ServerConfig, progress: Progress) -> ServerState:
    layout = config.layout
    progress("starting the server")
    spark_home = find_spark()
    runtime = java.find()
    thrift_port, connect_port = _ports(config)
    token = secrets.token_urlsafe(32)
    settings = defaults.merged(config, thrift_port, connect_port, token)
    jar_paths = jars.provide(
        jars.required(catalog.uses_postgres(config)),
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
        settings=_settings(config),
    )
    progress(f"starting Spark on Java {runtime.major} ({runtime.origin}), {config.memory} of heap")
    return _spawn(layout, launch, spark_home)


def find_spark() -> Path:
    """Return the directory of the PySpark wheel, which carries all of Spark.

    Raises:
        ServerError: PySpark is absent, or the installed one carries no jars.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServerError(
            "The embedded server needs Spark, which is not installed. The server was not started. "
            "Run: pip install 'dbt-sparkwap[local]', or name a server of your own in profiles.yml."
        )
    home = Path(spec.origin).parent
    if not (home / "jars").is_dir():
        raise ServerError(
            "The installed PySpark is the client alone, without Spark. The server was not started. "
            "Run: pip uninstall pyspark-client && "
            "pip install --force-reinstall 'pyspark[connect]>=4.1,<4.2'"
        )
    return home


def _ports(config: ServerConfig) -> tuple[int, int]:
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
        # As the server itself binds: a connection in TIME_WAIT does not make a port taken.
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
        f"started. Set `{name}` in profiles.yml to a free port, or to 0 to have one chosen."
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
    for directory in (layout.tmp, layout.tmp / "hive-local"):  # Hive looks there, and makes it not
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
    # The jars are on the class path of the JVM itself: those that Spark adds later (--jars) are
    # not seen by Connect sessions.
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
    raise _failed(layout, "its watchdog did not start")


def _await(layout: LakePaths, state: ServerState, progress: Progress) -> ServerState:
    """Wait until both endpoints listen, and note that they do."""
    started = told = time.monotonic()
    while time.monotonic() - started < START_TIMEOUT_SECONDS:
        process = states.server_process(layout, state)
        if process is None and time.monotonic() - started > 1:
            raise _failed(layout, "it ended while it was starting")
        if process is not None and states.listens(process, state.thrift_port, state.connect_port):
            ready = ServerState(**{**vars(state), "ready": True})
            states.write(layout, ready)
            progress(
                f"the server is up: Thrift on {LOOPBACK}:{state.thrift_port}, Spark Connect on "
                f"{LOOPBACK}:{state.connect_port} (pid {state.pid})"
            )
            return ready
        if time.monotonic() - told >= _PROGRESS_SECONDS:
            told = time.monotonic()
            progress(f"starting Spark ({told - started:.0f} s)")
        time.sleep(0.3)  # each look reads all sockets of a process that needs the cores itself
    process = states.server_process(layout, state)
    if process is not None:
        _terminate(process)
    states.forget(layout, state.pid)
    raise _failed(layout, f"it was not up after {START_TIMEOUT_SECONDS} seconds and was stopped")


def _terminate(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(timeout=GRACE_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(timeout=GRACE_SECONDS)


def _failed(layout: LakePaths, reason: str) -> ServerError:
    return ServerError(
        f"The server of {layout.lake} could not be started: {reason}.\n{_log_excerpt(layout)}"
        f"No table was touched. The whole log: sparkwap server logs --lake {layout.lake}"
    )


def _log_excerpt(layout: LakePaths, lines: int = 8) -> str:
    try:
        text = layout.log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    telling = [t for t in text if "Exception" in t or "ERROR" in t or "rror:" in t]
    picked = (telling or text)[-lines:]
    return "".join(f"  {line[:300]}\n" for line in picked)
