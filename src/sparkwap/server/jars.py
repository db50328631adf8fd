"""Fetches the additional jars for Spark once, and verifies their pinned checksums."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from sparkwap.core.errors import JarError
from sparkwap.server import trust
from sparkwap.server.config import LOOPBACK
from sparkwap.server.java import MODULE_OPTIONS, Java

Progress = Callable[[str], None]

FETCH_TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Jar:
    """A jar by its Maven coordinates, its size in bytes and the SHA-256 of its content."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def coordinates(self) -> str:
        """``group:artifact:version``, for Spark's resolver."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def filename(self) -> str:
        """The file name in the directory of jars."""
        return f"{self.artifact}-{self.version}.jar"


# fmt: off
ICEBERG = Jar("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0", 48309426,
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82")
SQLITE = Jar("org.xerial", "sqlite-jdbc", "3.53.4.0", 12002370,
    "bcb1f51e36f940867e83342f9efbf5968ac44a6bef4d397bb4af7b17b45cd2fb")
POSTGRES = Jar("org.postgresql", "postgresql", "42.7.14", 1221004,
    "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c")
KAFKA = (
    Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.1", 491694,
        "9c1ce986f548e6b1dcb0e2dfe2f253a0bc58f2232a32a0c9c6c674dd25a8570c"),
    Jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.1", 66579,
        "e510adc37b03d01d0a190d0dab472b5538e05eaa77454f7e9477156d7a6820ae"),
    Jar("org.apache.kafka", "kafka-clients", "3.9.1", 9215194,
        "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9"),
    Jar("org.apache.commons", "commons-pool2", "2.12.1", 152289,
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef"),
)
"""Spark's Kafka source, and what it needs."""
# fmt: on

# Dependencies of the pinned jars that Spark includes, or that have annotations only.
_EXCLUDED = (
    "com.github.luben:zstd-jni",
    "com.google.code.findbugs:jsr305",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.checkerframework:checker-qual",
    "org.lz4:lz4-java",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
)

# Settings of the user for the source of jars, such as a company's mirror.
_RESOLVER_SETTINGS = ("spark.jars.ivySettings", "spark.jars.repositories")


def required(postgres: bool, kafka: bool) -> tuple[Jar, ...]:
    """Return the jars for a SQLite or a PostgreSQL catalog, and those to read Kafka.

    SQLite is always needed: a data diff keeps private tables in a SQLite database in memory.
    """
    return (ICEBERG, SQLITE, *([POSTGRES] if postgres else []), *(KAFKA if kafka else []))


def provide(
    jars: Iterable[Jar],
    directory: Path,
    java: Java,
    spark_home: Path,
    spark_conf: Mapping[str, str],
    progress: Progress,
) -> list[Path]:
    """Return the paths of the jars in ``directory``; fetch missing jars first.

    Each call verifies the checksum of each jar. Processes that fetch into the same directory wait
    for each other.

    Raises:
        JarError: a jar cannot be fetched, or its checksum differs.
    """
    wanted = list(jars)
    if _absent(wanted, directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(directory, progress):
            absent = _absent(wanted, directory)
            if absent:
                _fetch(absent, directory, java, spark_home, spark_conf, progress)
    return [verify(jar, directory / jar.filename) for jar in wanted]


def _absent(jars: list[Jar], directory: Path) -> list[Jar]:
    return [jar for jar in jars if not (directory / jar.filename).exists()]


def verify(jar: Jar, path: Path) -> Path:
    """Return ``path`` if its content has the checksum of ``jar``."""
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != jar.sha256:
        raise JarError(
            f"The jar {path} is not the jar that this version of sparkwap pins: its SHA-256 is "
            f"{actual}, expected {jar.sha256}. The server was not started. "
            f"Remove the file; the next start fetches it again: rm '{path}'"
        )
    return path


def _fetch(
    jars: list[Jar],
    directory: Path,
    java: Java,
    spark_home: Path,
    spark_conf: Mapping[str, str],
    progress: Progress,
) -> None:
    names = ", ".join(f"{jar.artifact} {jar.version}" for jar in jars)
    progress(f"fetching {names} ({_megabytes(sum(jar.size for jar in jars))} MB, once)")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=directory) as temporary:
        work = Path(temporary)
        command = _resolver_command(jars, work / "ivy", java, spark_home, spark_conf)
        output = _resolve(command, work, spark_home, jars, progress)
        bundle = trust.bundle()
        if bundle is not None and _missing(jars, work):
            progress(f"trying again with the certificates of {bundle}")
            options = trust.java_options(bundle, work / "trust.jks")
            command = [command[0], *options, *command[1:]]
            output = _resolve(command, work, spark_home, jars, progress)
        missing = _missing(jars, work)
        if missing:
            raise _not_fetched(missing, directory, output)
        for jar in jars:
            verify(jar, _fetched(jar, work)).replace(directory / jar.filename)


def _resolve(
    command: list[str], work: Path, spark_home: Path, jars: list[Jar], progress: Progress
) -> str:
    """Run Spark's resolver in the directory ``work`` and return its output."""
    output = work / "output"
    with output.open("wb") as sink:
        resolver = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=work,
            umask=0o077,
            env={**os.environ, "SPARK_HOME": str(spark_home), "SPARK_LOCAL_IP": LOOPBACK},
        )
        try:
            _wait(resolver, work / "ivy", sum(jar.size for jar in jars), progress)
        finally:
            if resolver.poll() is None:
                resolver.kill()
                resolver.wait()
    return output.read_text(errors="replace")


def _resolver_command(
    jars: list[Jar], ivy: Path, java: Java, spark_home: Path, spark_conf: Mapping[str, str]
) -> list[str]:
    """Return the command that runs Spark's resolver before a main class that prints a version."""
    settings = {key: spark_conf[key] for key in _RESOLVER_SETTINGS if key in spark_conf}
    settings["spark.jars.ivy"] = str(ivy)
    return [
        str(java.path),
        "-Xmx256m",
        *MODULE_OPTIONS,
        "-cp",
        f"{spark_home}/jars/*",
        "org.apache.spark.deploy.SparkSubmit",
        *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
        "--packages",
        ",".join(jar.coordinates for jar in jars),
        "--exclude-packages",
        ",".join(_EXCLUDED),
        "--class",
        "org.apache.hadoop.util.VersionInfo",
        "spark-internal",
    ]


def _wait(resolver: subprocess.Popen[bytes], ivy: Path, total: int, progress: Progress) -> None:
    started = last = time.monotonic()
    while resolver.poll() is None:
        time.sleep(0.2)
        now = time.monotonic()
        if now - last >= 3:
            last = now
            done = sum(_size(file) for file in (ivy / "cache").rglob("*.jar*"))
            if done < total:
                progress(f"fetching jars: {_megabytes(done)} of {_megabytes(total)} MB")
            else:
                progress("the jars are downloaded; Spark's resolver checks and copies them")
        if now - started > FETCH_TIMEOUT_SECONDS:
            raise JarError(
                f"The jars were not downloaded within {FETCH_TIMEOUT_SECONDS // 60} minutes. The "
                "server was not started and nothing was kept. Check the network, then run the "
                "command again."
            )


def _fetched(jar: Jar, work: Path) -> Path:
    return work / "ivy" / "jars" / f"{jar.group}_{jar.filename}"


def _missing(jars: list[Jar], work: Path) -> list[Jar]:
    return [jar for jar in jars if not _fetched(jar, work).exists()]


def _not_fetched(missing: list[Jar], directory: Path, output: str) -> JarError:
    names = ", ".join(jar.coordinates for jar in missing)
    lines = "\n".join(f"  {line}" for line in _error_lines(output))
    return JarError(
        f"Not fetched: {names}. The server was not started. Output of Spark's resolver:\n{lines}\n"
        "Check the network, then run the command again. For a mirror, set spark.jars.ivySettings "
        f"or spark.jars.repositories in `spark_conf`, or copy the jars into {directory}."
    )


def _error_lines(output: str) -> list[str]:
    words = ("not found", "FAILED", "exception", "Exception", "error", "refused", "destination")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return [line for line in lines if any(word in line for word in words)][:6] or lines[-6:]


@contextmanager
def _locked(directory: Path, progress: Progress) -> Iterator[None]:
    lock = FileLock(directory / ".lock", mode=0o600)
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        progress("another process is fetching the jars; waiting for it")
        held = lock.acquire()
    with held:
        yield


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # Ivy renames finished files
        return 0


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f}"
