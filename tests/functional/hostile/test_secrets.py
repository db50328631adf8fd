"""Secrets of a profile are in no log, no artifact, no ledger and no message; files are private."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project

from sparkwap import server

SECRETS = {
    "password": "profile-pass-4711",
    "s3": "s3-secret-key-4712",
    "session": "s3-session-token-4713",
    "catalog": "catalog-p%40ss-4714",
    "plain": "catalog-p@ss-4714",
    "ssl": "ssl-pass-4715",
    "bearer": "bearer-4717",
    "encryption": "encryption-4718",
    # Of settings the names are told, and no values, whatever they are called.
    "setting": "setting-4719",
}
OF_DBT = ("dbt.log", "graph.gpickle", "manifest.json", "partial_parse.msgpack", "run_results.json")
"""Where dbt keeps the code of models, which is the user's to keep, and what it makes of errors."""
TABLE = "{{ config(materialized='table') }} "
FILES = {
    "models/good.sql": TABLE + "select 1 as id",
    "models/bad.sql": TABLE + "select no_such_column from {{ ref('good') }}",
    # What a user's own error may say: where it has tried to connect.
    "models/told.py": """
        def model(dbt, session):
            dbt.config(materialized="table")
            frame = dbt.ref("good")
            if frame is not None:
                raise ValueError("cannot reach postgresql://me:catalog-p%40ss-4714@db/x: "
                                 "s3-secret-key-4712, password=unknown-4716")
            return frame
    """,
}


@dataclass(frozen=True)
class Built:
    """A project whose profile has secrets, after runs that passed and that failed.

    Attributes:
        outcomes: those of the commands, in order.
        endpoint: the server's, with its token.
    """

    project: Project
    outcomes: list[Outcome]
    endpoint: server.Endpoint

    def leaks(self, text: str) -> set[str]:
        return leaks(text) | {one for one in (self.endpoint.token,) if one in text}


@pytest.fixture(scope="module")
def built(make_project: MakeProject, lake_dir: Path) -> Iterator[Built]:
    output: dict[str, Any] = {
        "password": SECRETS["password"],
        "spark_conf": {"spark.hadoop.fs.s3a.secret.key": SECRETS["s3"]},
        "server_side_parameters": {
            "spark.hadoop.fs.s3a.session.token": SECRETS["session"],
            "spark.some.header.Authorization": f"Bearer {SECRETS['bearer']}",
            "spark.some.encryption.key": SECRETS["encryption"],
            "spark.some.setting": SECRETS["setting"],
        },
    }
    mask = os.umask(0o022)  # as most people have it
    try:
        project = make_project("secrets", FILES, output=output)
        outcomes = [
            project.dbt("build", "--select", "good").succeeded(),
            project.dbt("--debug", "build").failed(),
            project.dbt("run-operation", "wap_status").succeeded(),
        ]
    finally:
        os.umask(mask)
    status = server.status(lake_dir)
    assert status is not None
    yield Built(project, outcomes, status.endpoint)


def sparkwap(*arguments: str) -> str:
    command = [sys.executable, "-m", "sparkwap.cli", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


def leaks(text: str) -> set[str]:
    return {secret for secret in (*SECRETS.values(), "unknown-4716") if secret in text}


def test_no_text_has_a_secret(built: Built, reader: Reader) -> None:
    for outcome in built.outcomes:
        assert built.leaks(outcome.text) == set()
    assert "cannot reach postgresql://me:***@db/x: ***, password=***" in built.outcomes[1].text
    for command in ("logs", "status"):
        told = sparkwap("server", command, "--lake", str(reader.lake))
        assert built.leaks(told) == set()
    rows = [
        row
        for table in ("runs", "nodes")
        for outcome in built.outcomes
        for row in reader.ledger(table, run_id=outcome.run_id)
    ]
    assert "cannot reach" in repr(rows)
    assert built.leaks(repr(rows)) == set()


def test_no_file_has_a_secret(built: Built, reader: Reader) -> None:
    project = built.project
    written = {"profiles.yml", "told.py"}  # where they were put by hand, and the code itself
    files = [p for p in project.folder.rglob("*") if p.is_file() and p.name not in written]
    assert {"dbt.log", "manifest.json", "run_results.json"} <= {p.name for p in files}
    metadata = list((reader.lake / "warehouse" / project.schema).rglob("*.json"))
    assert metadata
    for path in (*files, *metadata, reader.lake / "server" / "server.log"):
        content = path.read_bytes().decode(errors="replace")
        found = built.leaks(content)
        if path.name in OF_DBT:
            found -= {"unknown-4716", SECRETS["s3"], SECRETS["catalog"]}
        assert found == set(), path


def test_a_catalog_that_cannot_be_reached(tmp_path: Path) -> None:
    uri = (
        f"postgresql+psycopg2://lake:{SECRETS['catalog']}@127.0.0.1:1/lake"
        f"?sslpassword={SECRETS['ssl']}&connect_timeout=2"
    )
    output = {"type": "sparkwap", "lake": str(tmp_path / ".lake"), "catalog_uri": uri}
    project = Project(tmp_path / "project", "s", output).write(FILES)
    told = project.dbt("--debug", "build").failed().text
    assert "The catalog" in told and "cannot be opened" in told
    assert leaks(told) == set()
    assert leaks((project.folder / "logs/dbt.log").read_text()) == set()


def test_files_of_the_lake_are_their_owners_alone(built: Built, reader: Reader) -> None:
    warehouse = reader.lake / "warehouse"
    # Other tests write to this lake as other writers do.
    ours = (reader.lake / "server", warehouse / built.project.schema, warehouse / "wap_ledger")
    paths = [
        reader.lake,
        *reader.lake.iterdir(),
        *(p for folder in ours for p in folder.rglob("*")),
    ]
    assert {".parquet", ".avro", ".json", ".db", ".log"} <= {path.suffix for path in paths}
    open_to_others = {
        str(path.relative_to(reader.lake)): oct(path.lstat().st_mode)
        for path in paths
        if not path.is_symlink() and stat.S_IMODE(path.lstat().st_mode) & 0o077
    }
    assert open_to_others == {}


def test_logs_are_their_owners_alone(built: Built) -> None:
    logs = [*built.project.folder.glob("logs/*"), built.project.folder / "target/sparkwap.jsonl"]
    assert {"dbt.log", "sparkwap.jsonl"} <= {path.name for path in logs}
    assert {path.name: oct(path.stat().st_mode & 0o077) for path in logs} == {
        path.name: oct(0) for path in logs
    }


def test_the_server_and_its_children_listen_on_loopback_only(
    built: Built,
) -> None:
    driver = psutil.Process(built.endpoint.pid)
    family = [driver, *driver.children(recursive=True), *filter(None, [driver.parent()])]
    listening = {
        connection.laddr.ip
        for process in family
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    # A socket of both families is bound to an address of the one, in the notation of the other.
    assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}
    assert built.endpoint.thrift_port in {
        connection.laddr.port for connection in driver.net_connections(kind="inet")
    }
