"""Finds, starts and stops the server of a lake."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from sparkwap.core.errors import ConfigError, ServerError
from sparkwap.server import state as states
from sparkwap.server.config import LOOPBACK, Endpoint, LakePaths, ServerConfig, resolve_lake
from sparkwap.server.starting import Progress, settings_of, start, start_failed
from sparkwap.server.state import ServerState
from sparkwap.server.watchdog import GRACE_SECONDS

# On an overloaded host, a start has taken more than three minutes.
START_TIMEOUT_SECONDS = 600
_PROGRESS_SECONDS = 5


@dataclass(frozen=True)
class ServerStatus:
    """The status of a running server, for ``sparkwap server status``.

    Attributes:
        ready: whether both endpoints listen.
        uptime: seconds since the start.
        idle: seconds since the last client.
        rss: resident memory in bytes.
        clients: ids of the client processes.
    """

    endpoint: Endpoint
    ready: bool
    uptime: float
    idle: float
    rss: int
    descriptors: int
    clients: list[int]


def ensure(config: ServerConfig, progress: Progress) -> Endpoint:
    """Return the endpoint of the lake's server; start the server if it does not run.

    The calling process is registered as a client. Processes and threads may call this function
    concurrently; only one server is started.

    Args:
        progress: receives a line of text at once and then every few seconds, while jars are fetched
            or the server starts.

    Raises:
        ServerError: the server cannot be started (no Java, no jars, a port is taken, it died).
        CatalogError: the catalog's database cannot be opened.
        ConfigError: the running server uses another catalog, or a setting is illegal.
    """
    layout = config.layout
    with _usable(layout):
        layout.create()
    with _usable(layout), states.locked(layout, progress):
        states.register_client(layout, os.getpid())
        if found := states.running(layout):
            state = found[0]
            _compare(config, state, progress)
            if state.ready:
                return state.endpoint
            progress("the server is starting")
        else:
            states.forget(layout)
            state = start(config, progress)
        return _await(layout, state, progress).endpoint


def stop(lake: Path) -> bool:
    """Stop the server of a lake; return False if it does not run.

    The server gets SIGTERM, and SIGKILL after a grace period. Only a process that is verified as
    the server is stopped.
    """
    layout = LakePaths(resolve_lake(lake))
    with _usable(layout):
        if not layout.server.is_dir():
            return False
    with _usable(layout), states.locked(layout, lambda _line: None):
        found = states.running(layout)
        if found is not None:
            _terminate(found[1])
        states.forget(layout)
        return found is not None


def status(lake: Path) -> ServerStatus | None:
    """Return the status of the lake's server; None if it does not run."""
    layout = LakePaths(resolve_lake(lake))
    with _usable(layout):
        found = states.running(layout)
    if found is None:
        return None
    state, process = found
    try:
        rss, descriptors = process.memory_info().rss, process.num_fds()
    except psutil.Error:  # it has just ended
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


def at_rest(config: ServerConfig) -> bool:
    """Return whether a lake in SQLite exists, and no server of it runs or starts.

    Its catalog can then be opened without a server. A running server may use another catalog than
    the profile, which `ensure` refuses.
    """
    exists = config.catalog_uri is None and config.layout.sqlite.exists()
    return exists and status(config.lake) is None


def _last_seen(layout: LakePaths, state: ServerState) -> float:
    try:
        return layout.activity.stat().st_mtime
    except FileNotFoundError:
        return state.created


def logs(lake: Path) -> Path:
    """Return the path of the server's log, which is missing before the first start."""
    return LakePaths(resolve_lake(lake)).log


def register_client(lake: Path, pid: int) -> None:
    """Keep the lake's server up while process ``pid`` runs; cheap enough for every connection."""
    layout = LakePaths(resolve_lake(lake))
    with _usable(layout):
        states.register_client(layout, pid)


@contextmanager
def _usable(layout: LakePaths) -> Iterator[None]:
    """Turn errors of the disk into one message."""
    try:
        yield
    except OSError as error:
        raise ServerError(
            f"The lake directory {layout.lake} cannot be used: {error}. No server was started or "
            "stopped. Set `lake` in profiles.yml (or --lake) to a directory that you may write to "
            "and that has space."
        ) from error


def _compare(config: ServerConfig, running: ServerState, progress: Progress) -> None:
    wanted = settings_of(config)
    differing = [name for name, value in wanted.items() if running.settings.get(name) != value]
    for name in ("thrift_port", "connect_port"):
        port = getattr(config, name)
        if port and port != getattr(running, name):
            differing.append(name)
    again = config.layout.command("stop")
    if "catalog" in differing:
        raise ConfigError(
            f"The server of {config.lake} uses another catalog ({running.settings['catalog']}) "
            f"than the configured catalog ({wanted['catalog']}). Nothing was changed. Stop it; the "
            f"next command starts it with the configured catalog: {again}"
        )
    if differing:
        progress(
            f"the running server (pid {running.pid}) was started with other values of "
            f"{', '.join(differing)}; they apply after: {again}"
        )


def _await(layout: LakePaths, state: ServerState, progress: Progress) -> ServerState:
    """Wait until both endpoints listen, and return the state with ``ready``."""
    started = last_progress = time.monotonic()
    ports = {state.thrift_port, state.connect_port}
    while time.monotonic() - started < START_TIMEOUT_SECONDS:
        process = states.server_process(layout, state)
        if process is None and time.monotonic() - started > 1:
            raise start_failed(layout, "it ended during the start")
        if process is not None and ports <= states.ports(process, psutil.CONN_LISTEN):
            ready = ServerState(**{**vars(state), "ready": True})
            states.write(layout, ready)
            progress(
                f"the server is up: Thrift on {LOOPBACK}:{state.thrift_port}, Spark Connect on "
                f"{LOOPBACK}:{state.connect_port} (pid {state.pid})"
            )
            return ready
        if time.monotonic() - last_progress >= _PROGRESS_SECONDS:
            last_progress = time.monotonic()
            progress(f"starting Spark ({last_progress - started:.0f} s)")
        time.sleep(0.3)  # each check reads all sockets of the process, which needs the cores
    process = states.server_process(layout, state)
    if process is not None:
        _terminate(process)
    states.forget(layout, state.pid)
    raise start_failed(
        layout, f"it was not up after {START_TIMEOUT_SECONDS} seconds and was stopped"
    )


def _terminate(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(timeout=GRACE_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(timeout=GRACE_SECONDS)
