"""Pinned jars: verified at every start, fetched if they are missing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sparkwap.core.errors import JarError
from sparkwap.server import jars, trust
from sparkwap.server.java import Java

pytestmark = pytest.mark.smoke  # takes seconds; Java is a shell script here

CONTENT = b"the jar"
JAR = jars.Jar("org.example", "thing", "1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())

# Plays Java: puts the content where Spark's resolver would.
RESOLVER = """#!/bin/sh
for argument in "$@"; do
    case $argument in spark.jars.ivy=*) ivy=${argument#spark.jars.ivy=} ;; esac
done
mkdir -p "$ivy/jars"
"""


@pytest.fixture
def java(tmp_path: Path) -> Java:
    program = tmp_path / "java"
    program.write_text(RESOLVER + 'printf "$FAKE" > "$ivy/jars/org.example_thing-1.0.jar"\n')
    program.chmod(0o755)
    return Java(program, 17, "PATH")


@pytest.fixture
def said() -> list[str]:
    return []


def provide(tmp_path: Path, java: Java, said: list[str]) -> list[Path]:
    return jars.provide([JAR], tmp_path / "jars", java, tmp_path, {}, said.append)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_an_existing_jar_is_not_fetched(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / JAR.filename).write_bytes(CONTENT)
    found = provide(tmp_path, Java(Path("/nowhere/java"), 17, "PATH"), said)
    assert found == [tmp_path / "jars" / "thing-1.0.jar"]
    assert said == []


def test_an_absent_jar_is_fetched_once(
    tmp_path: Path, java: Java, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE", CONTENT.decode())
    (found,) = provide(tmp_path, java, said)
    assert found.read_bytes() == CONTENT
    assert said == ["fetching thing 1.0 (0.0 MB, once)"]
    provide(tmp_path, Java(Path("/nowhere/java"), 17, "PATH"), said)
    assert len(said) == 1
    assert names_in(found.parent) == [".lock", "thing-1.0.jar"]


def test_a_changed_jar_is_refused(tmp_path: Path, said: list[str]) -> None:
    path = tmp_path / "jars" / JAR.filename
    path.parent.mkdir()
    path.write_bytes(CONTENT + b" and more")
    with pytest.raises(JarError, match="not the jar that this version") as caught:
        provide(tmp_path, Java(Path("/nowhere/java"), 17, "PATH"), said)
    assert f"rm '{path}'" in str(caught.value)


def test_a_fetched_jar_with_other_content_is_not_kept(
    tmp_path: Path, java: Java, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE", "another jar")
    with pytest.raises(JarError, match="SHA-256"):
        provide(tmp_path, java, said)
    assert names_in(tmp_path / "jars") == [".lock"]


def test_a_failed_fetch_shows_the_reason(
    tmp_path: Path, java: Java, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    java.path.write_text('#!/bin/sh\necho "module not found: org.example#thing;1.0"\n')
    monkeypatch.setattr(trust, "bundle", lambda: None)
    with pytest.raises(JarError, match=r"module not found: org\.example#thing"):
        provide(tmp_path, java, said)


def test_a_failed_fetch_is_repeated_with_pythons_certificates(
    tmp_path: Path, java: Java, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("")
    monkeypatch.setattr(trust, "bundle", lambda: bundle)
    monkeypatch.setenv("FAKE", CONTENT.decode())
    script = java.path.read_text()
    java.path.write_text(
        script.replace(
            "for argument", 'case "$*" in *trustStore=*) ;; *) exit 0 ;; esac\nfor argument', 1
        )
    )
    (found,) = provide(tmp_path, java, said)
    assert found.read_bytes() == CONTENT
    assert said[-1] == f"trying again with the certificates of {bundle}"


@pytest.mark.parametrize("kafka", [False, True])
@pytest.mark.parametrize("postgres", [False, True])
def test_only_required_drivers_are_fetched(postgres: bool, kafka: bool) -> None:
    names = [jar.artifact for jar in jars.required(postgres, kafka)]
    assert names[0].startswith("iceberg-spark-runtime")
    # A data diff needs the SQLite driver with any catalog.
    of_kafka = [jar.artifact for jar in jars.KAFKA] if kafka else []
    assert names[1:] == ["sqlite-jdbc", *(["postgresql"] if postgres else []), *of_kafka]


def test_a_key_store_has_what_java_reads() -> None:
    store = trust.key_store([b"certificate"])
    assert store[:12] == bytes.fromhex("feedfeed0000000200000001")
    assert b"X.509\x00\x00\x00\x0bcertificate" in store
    assert len(store) == 12 + 4 + 6 + 8 + 7 + 4 + 11 + 20
