"""Finds, starts and stops the server of a lake."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from sparkwap.core.errors import ConfigError, ServerError
from sparkwap.server import state as states
from sparkwap.server.config import LOOPBACK, Endpoint, LakePaths, ServerConfig, resolve_lake
from sparkwap.server.starting import Progress, settings_of, start, start_failed
from sparkwap.server.state import ServerState
from sparkwap.server.watchdog import GRACE_SECONDS

# Where the host has no time for the machine, a start has taken more than three minutes.
START_TIMEOUT_SECONDS = 600
_PROGRESS_SECONDS = 5


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
            running = start(config, progress)
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


def _compare(config: ServerConfig, running: ServerState, progress: Progress) -> None:
    wanted = settings_of(config)
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


def _await(layout: LakePaths, state: ServerState, progress: Progress) -> ServerState:
    """Wait until both endpoints listen, and note that they do."""
    started = told = time.monotonic()
    while time.monotonic() - started < START_TIMEOUT_SECONDS:
        process = states.server_process(layout, state)
        if process is None and time.monotonic() - started > 1:
            raise start_failed(layout, "it ended while it was starting")
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
