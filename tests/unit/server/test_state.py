"""The state of a server, as another version or another user finds it."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path

import pytest

from sparkwap import cli
from sparkwap.core.command_end import EXIT_CODES
from sparkwap.core.errors import ServerError
from sparkwap.server import process, state
from sparkwap.server.config import LakePaths
from sparkwap.server.state import ServerState


@pytest.fixture
def layout(tmp_path: Path) -> LakePaths:
    layout = LakePaths(tmp_path / "my lake")
    layout.create()
    return layout


def test_the_state_of_another_version_is_read(layout: LakePaths) -> None:
    written = ServerState(1, 2.0, 10000, 15002, "token", 3, {"memory": "2g"}, ready=True)
    layout.state.write_text(json.dumps({**asdict(written), "added": 1}))
    assert state.read(layout) == written


def test_a_command_of_a_lake_can_be_copied(layout: LakePaths) -> None:
    assert shlex.split(layout.command("logs"))[-1] == str(layout.lake)


def test_an_error_of_the_disk_is_one_message(
    layout: LakePaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(layout.state))

    monkeypatch.setattr(Path, "read_text", denied)
    for action in ("status", "stop"):
        end = cli.main(["server", action, "--lake", str(layout.lake)])
        assert end == EXIT_CODES["failed"]
    printed = capsys.readouterr().err
    assert printed.count(f"{layout.lake} cannot be used") == 2
    assert "Traceback" not in printed
    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(ServerError, match="cannot be used"):
        process.register_client(layout.lake, 1)
