"""Jars that tests need beside Spark's own: pinned in a lock file, and fetched once.

A line of a lock file is ``<group>:<artifact>:<version>[:<classifier>] --hash=sha256:<checksum>``.
The Ivy that Spark brings along fetches the jars. They are kept beside the jars of the embedded
server, and their checksums are verified whenever they are used.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyspark
import pytest
from filelock import FileLock

from sparkwap.core.errors import JavaError
from sparkwap.server import trust
from sparkwap.server.java import find

ROOT = Path(__file__).parents[2]
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
FETCH_SECONDS = 600


def java_or_skip(what: str) -> Path:
    """Return the path of ``java``. Skips where there is none.

    Args:
        what: what needs it, for the message.
    """
    try:
        return find().path
    except JavaError as error:
        pytest.skip(f"{what} needs Java: {error}")


def kept_jars() -> Path:
    """Return the folder of the embedded server's jars (``SPARKWAP_JARS``)."""
    return Path(os.environ.get("SPARKWAP_JARS") or ROOT / ".lake/jars")


def from_spark(*globs: str) -> list[Path]:
    """Return the jars of PySpark whose file names match."""
    return [jar for glob in globs for jar in sorted(SPARK_JARS.glob(glob))]


def pinned_jars(lock: Path, name: str, java: Path) -> list[Path]:
    """Return the jars of a lock file, fetched if need be. Skips where they cannot be fetched.

    Args:
        lock: the lock file.
        name: folder of the jars, below ``kept_jars()``.
        java: path of ``java``, which runs Ivy.
    """
    folder = kept_jars() / name
    folder.mkdir(parents=True, exist_ok=True)
    pins = dict(line.split(" --hash=sha256:") for line in lock.read_text().splitlines() if line)
    with FileLock(folder / ".lock"):
        absent = _absent(pins, folder)
        if absent:
            _fetch(absent, folder, java)
    for pin, checksum in pins.items():
        path = folder / _filename(pin)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        assert found == checksum, f"{path} is not the pinned jar; remove it to fetch it again"
    return [folder / _filename(pin) for pin in pins]


def _fetch(pins: list[str], folder: Path, java: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        ivy = Path(scratch, "ivy.xml")
        ivy.write_text(_ivy_file(pins))
        command = [
            "-cp",
            str(next(SPARK_JARS.glob("ivy-*.jar"))),
            "org.apache.ivy.Main",
            *("-ivy", str(ivy), "-cache", f"{scratch}/cache"),
            *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        said = _run([str(java), *command])
        bundle = trust.bundle()
        if bundle is not None and _absent(pins, folder):
            options = trust.java_options(bundle, Path(scratch, "trust.jks"))
            said = _run([str(java), *options, *command])
    missing = _absent(pins, folder)
    if missing:
        pytest.skip(f"jars cannot be fetched: {', '.join(missing)}: {said}")


def _run(command: list[str]) -> str:
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
    )
    return " | ".join(ended.stdout.strip().splitlines()[-3:])


def _absent(pins: Iterable[str], folder: Path) -> list[str]:
    return [pin for pin in pins if not (folder / _filename(pin)).exists()]


def _ivy_file(pins: list[str]) -> str:
    artifacts: dict[tuple[str, str, str], list[str]] = {}
    for pin in pins:
        group, artifact, version, *classifier = pin.split(":")
        more = f' m:classifier="{classifier[0]}"' if classifier else ""
        artifacts.setdefault((group, artifact, version), []).append(
            f'<artifact name="{artifact}" type="jar" ext="jar"{more}/>'
        )
    lines = [
        f'<dependency org="{group}" name="{name}" rev="{version}" transitive="false">'
        f"{''.join(files)}</dependency>"
        for (group, name, version), files in artifacts.items()
    ]
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="sparkwap" module="tests"/>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _filename(pin: str) -> str:
    _, artifact, version, *classifier = pin.split(":")
    return "-".join([artifact, version, *classifier]) + ".jar"
