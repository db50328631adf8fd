"""The command writes a whole file or none, and says what is missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from sparkwap.cli import main
from sparkwap.core.errors import ConfigError
from sparkwap.metrics import exposition
from sparkwap.metrics.decide import Sample

SAMPLE = Sample("sparkwap_lake_exists", ("shop", 'pr"od\n'), 1)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "sparkwap.prom"
    path.write_text("old")
    exposition.write([SAMPLE], path)
    assert path.read_text() == exposition.text([SAMPLE])
    assert 'sparkwap_lake_exists{project="shop",target="pr\\"od\\n"} 1.0' in path.read_text()
    assert path.read_text().endswith("\n")
    assert list(tmp_path.iterdir()) == [path]


def test_the_message_for_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.prom cannot be written: No such file"):
        exposition.write([SAMPLE], tmp_path / "none" / "x.prom")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        exposition.write([SAMPLE], folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_without_the_library_the_error_has_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["metrics"]) == 2
    assert "pip install '<checkout of sparkwap>[metrics]'" in capsys.readouterr().err
