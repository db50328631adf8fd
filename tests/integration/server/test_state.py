"""The state of a server: stale, foreign or true; clients; locks; ports."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sparkwap.core.errors import ConfigError, ServerError
from sparkwap.server import ServerConfig, process, starting, state
from sparkwap.server.config import LakePaths
from sparkwap.server.defaults import marker
from sparkwap.server.state import ServerState


@pytest.fixture
def layout(tmp_path: Path) -> LakePaths:
    layout = LakePaths(tmp_path / "lake")
    layout.create()
    return layout


@pytest.fixture
def driver(layout: LakePaths) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like the lake's server."""
    command = [sys.executable, "-c", "import time; time.sleep(60)", marker(layout.lake)]
    started = subprocess.Popen(command)
    yield started
    started.kill()
    started.wait()


def state_of(pid: int, **settings: str) -> ServerState:
    return ServerState(pid, time.time(), 10000, 15002, "token", 1, settings, ready=True)


def test_a_state_is_read_as_written_and_by_its_owner_only(layout: LakePaths) -> None:
    written = state_of(1, memory="2g")
    state.write(layout, written)
    assert state.read(layout) == written
    assert layout.state.stat().st_mode & 0o777 == 0o600
    assert layout.server.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_an_unreadable_state_is_none(layout: LakePaths, text: str) -> None:
    layout.state.write_text(text)
    assert state.read(layout) is None


def test_the_server_is_known_by_its_command_line(
    layout: LakePaths, driver: subprocess.Popen[bytes]
) -> None:
    found = state.server_process(layout, state_of(driver.pid))
    assert found is not None and found.pid == driver.pid
    assert state.server_process(LakePaths(layout.lake / "other"), state_of(driver.pid)) is None


def test_a_server_is_known_while_its_process_is_being_started(
    layout: LakePaths, driver: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    cmdline = psutil.Process.cmdline
    lines: list[list[str]] = [[], []]  # what is there to be read while exec is at work
    monkeypatch.setattr(
        psutil.Process, "cmdline", lambda self: lines.pop() if lines else cmdline(self)
    )
    found = state.server_process(layout, state_of(driver.pid))
    assert found is not None and not lines


def test_a_dead_server_is_cleaned_up(layout: LakePaths, driver: subprocess.Popen[bytes]) -> None:
    state.write(layout, state_of(driver.pid))
    driver.kill()  # and not waited for: a zombie is dead as well
    while psutil.Process(driver.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert process.status(layout.lake) is None
    assert process.stop(layout.lake) is False
    assert not layout.state.exists()


def test_stop_spares_a_process_that_has_got_the_id_since(layout: LakePaths) -> None:
    state.write(layout, state_of(os.getpid()))
    assert process.stop(layout.lake) is False
    assert not layout.state.exists()


def test_stop_ends_the_server(layout: LakePaths, driver: subprocess.Popen[bytes]) -> None:
    threading.Thread(target=driver.wait).start()  # as its watchdog would
    state.write(layout, state_of(driver.pid))
    assert process.stop(layout.lake) is True
    assert process.stop(layout.lake) is False


def test_stop_without_a_lake_makes_none(tmp_path: Path) -> None:
    assert process.stop(tmp_path / "nowhere") is False
    assert not (tmp_path / "nowhere").exists()


def test_a_lake_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(ServerError, match=r"cannot be used.*Set `lake` in profiles\.yml"):
        process.ensure(ServerConfig(lake=tmp_path / "lake"), print)


def test_clients_live_as_long_as_their_process(layout: LakePaths) -> None:
    client = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    state.register_client(layout, client.pid)
    state.register_client(layout, os.getpid())
    assert state.live_clients(layout) == sorted([client.pid, os.getpid()])
    client.kill()
    client.wait()
    assert state.live_clients(layout) == [os.getpid()]
    assert not (layout.clients / str(client.pid)).exists()


def test_a_process_id_that_was_used_again_is_no_client(layout: LakePaths) -> None:
    (layout.clients / str(os.getpid())).write_text(str(time.time() - 100_000))
    assert state.live_clients(layout) == []


def test_a_client_that_is_gone_already_is_not_noted(layout: LakePaths) -> None:
    state.register_client(layout, 2**22 + 1)
    assert list(layout.clients.iterdir()) == []


def test_the_lock_lets_one_in_and_tells_the_others(layout: LakePaths) -> None:
    said: list[str] = []
    inside: list[int] = []

    def enter(number: int) -> None:
        with state.locked(layout, said.append):
            inside.append(number)
            assert len(inside) == 1
            time.sleep(0.2)
            inside.remove(number)

    threads = [threading.Thread(target=enter, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) >= 2
    assert "waiting for another process" in said[0]


def test_a_port_that_is_taken_is_named_with_the_way_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerError) as caught:
            starting.choose_ports(ServerConfig(lake=tmp_path, thrift_port=port))
    assert f"Port {port} on 127.0.0.1 is taken" in str(caught.value)
    assert f"pid {os.getpid()}" in str(caught.value)
    assert "Set `thrift_port` in profiles.yml" in str(caught.value)


def test_a_port_taken_on_all_interfaces_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerError, match="connect_port"):
            starting.choose_ports(ServerConfig(lake=tmp_path, connect_port=port))


def test_chosen_ports_differ_and_given_ones_are_kept(tmp_path: Path) -> None:
    thrift, connect = starting.choose_ports(ServerConfig(lake=tmp_path))
    assert thrift != connect
    assert starting.choose_ports(ServerConfig(lake=tmp_path, thrift_port=thrift))[0] == thrift


def test_a_server_on_another_catalog_is_not_used(tmp_path: Path) -> None:
    config = ServerConfig(lake=tmp_path)
    running = state_of(
        1, **{**starting.settings_of(config), "catalog": "jdbc:postgresql://h:1/lake"}
    )
    with pytest.raises(ConfigError, match="sparkwap server stop"):
        process._compare(config, running, print)


def test_other_settings_are_told_not_refused(tmp_path: Path) -> None:
    said: list[str] = []
    running = state_of(1, **starting.settings_of(ServerConfig(lake=tmp_path)))
    process._compare(ServerConfig(lake=tmp_path), running, said.append)
    assert said == []
    wanted = ServerConfig(lake=tmp_path, memory="8g", thrift_port=4711)
    process._compare(wanted, running, said.append)
    assert "memory, thrift_port" in said[0]
    assert "sparkwap server stop --lake" in said[0]
