"""Roles of the catalog's database: a reader reads everything and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from helpers.documents import blocks
from helpers.postgres import Postgres, running_postgres
from helpers.project import ORDERS_AND_PEOPLE, Outcome, Project
from pyhive import hive
from pyhive.exc import OperationalError
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import create_engine, text

from sparkwap import server
from sparkwap.cli import main
from sparkwap.page import queries
from sparkwap.publish.lake import Lake

PAGE = Path(__file__).parents[3] / "docs/catalogs/postgresql.md"
DENIED = "The user lake_reader may not write the catalog's database: permission denied"
UNCHANGED = "Nothing was changed by this: tables, audit branches and ledger are as they were."
FILES = {
    **ORDERS_AND_PEOPLE,
    "models/ids.sql": "{{ config(materialized='view') }} select id from {{ ref('orders') }}",
}


def execute(uri: str, sql: str) -> None:
    engine = create_engine(uri)
    with engine.begin() as connection:
        connection.execute(text(sql))
    engine.dispose()


@dataclass
class TwoRoles:
    """A lake with published tables and a rejected branch, and a reader's project on it.

    Attributes:
        database: the server of the catalog.
        published: the writer's build that published.
        rejected: the writer's build that left a branch.
        project: the project, with the reader's role for dbt and for its embedded server.
        folder: the folder of the files of both roles.
    """

    database: Postgres
    published: Outcome
    rejected: Outcome
    project: Project
    folder: Path

    def seen(self) -> tuple[Any, ...]:
        """Return the catalog's rows, and the files of the lake."""
        engine = create_engine(self.database.uri)
        with engine.connect() as connection:
            rows = [
                sorted(map(tuple, connection.execute(text(f"select * from {table}"))))
                for table in ("iceberg_tables", "iceberg_namespace_properties")
            ]
        engine.dispose()
        files = {path for path in self.warehouse.rglob("*") if path.is_file()}
        return rows, files

    @property
    def warehouse(self) -> Path:
        return self.folder / "writer/.lake/warehouse"

    @property
    def reader(self) -> SqlCatalog:
        """PyIceberg's catalog of the reader, as the page for readers has it."""
        return SqlCatalog("lake", uri=self.database.uri_of("lake_reader"), warehouse="file:///none")


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRoles]:
    folder = tmp_path_factory.mktemp("roles")
    new_database, _ = blocks(PAGE, "sql")
    with running_postgres() as database:
        execute(database.uri, new_database)

        def project(role: str) -> Project:
            output = {
                "type": "sparkwap",
                "lake": str(folder / role / ".lake"),
                "memory": "1g",
                "catalog_uri": database.uri_of(f"lake_{role}"),
            }
            return Project(folder / role, "shop", output).write(FILES)

        writer = project("writer")
        published = writer.dbt("build").succeeded()
        rejected = writer.dbt("build", "--select", "orders", amount=9).failed()
        server.stop(folder / "writer/.lake")
        try:
            yield TwoRoles(database, published, rejected, project("reader"), folder)
        finally:
            server.stop(folder / "reader/.lake")


def test_a_reader_reads_everything(roles: TwoRoles, capfd: pytest.CaptureFixture[str]) -> None:
    project, before = roles.project, roles.seen()
    folders = ("--project-dir", str(project.folder), "--profiles-dir", str(project.folder))
    # PyIceberg and the page, without a server.
    orders = roles.reader.load_table("shop.orders")
    assert orders.scan().to_arrow()["amount"].to_pylist() == [1, 1, 1]
    assert roles.reader.list_tables("wap_ledger")
    properties = {"type": "sql", "uri": roles.database.uri_of("lake_reader"), "warehouse": "none"}
    lake = Lake("lake", properties)
    found = queries.recent_history(lake, 1, datetime.now(UTC))
    assert {row["run_id"] for row in found.runs} == {
        roles.published.run_id,
        roles.rejected.run_id,
    }
    lake.close()
    assert main(["plan", *folders]) == 0
    assert main(["metrics", *folders]) == 0
    assert main(["status", *folders]) == 0
    assert main(["sweep", "--dry-run", *folders]) == 0
    shown = capfd.readouterr().out
    assert roles.rejected.branch in shown
    assert "sparkwap_open_branches" in shown
    # Spark, by the embedded server of the reader.
    selected = project.dbt(
        "show", "--inline", "select sum(amount) as total from {{ ref('orders') }}"
    )
    assert "3" in selected.succeeded().text
    branch = {"wap_branch": roles.rejected.branch}
    inline = "select sum(amount) + 4000 as total from {{ ref('orders') }}"
    assert "4027" in project.dbt("show", "--inline", inline, **branch).succeeded().text
    project.dbt("docs", "generate").succeeded()
    assert roles.seen() == before


def commands(roles: TwoRoles) -> Mapping[str, tuple[str, ...]]:
    """Return each command that writes, with arguments with which a writer's command works."""
    branch = roles.rejected.branch
    arguments: Mapping[str, dict[str, Any]] = {
        "wap_publish": {"branch": branch},
        "wap_accept": {"branch": branch, "test": "small", "reason": "a new product"},
        "wap_discard": {"branch": branch},
        "wap_rollback": {"run": roles.published.run_id},
        "wap_sweep": {},
        "wap_maintain": {},
        "wap_erase": {"subject": "person", "keys": ["1"], "confirm": True},
    }
    operations = {
        name: ("run-operation", name, "--args", json.dumps(given))
        for name, given in arguments.items()
    }
    return {"build": ("build",), "test": ("test",), **operations}


@pytest.mark.parametrize(
    "name",
    [
        "build", "test", "wap_publish", "wap_accept", "wap_discard", "wap_rollback", "wap_sweep",
        "wap_maintain", "wap_erase",
    ],
)  # fmt: skip
def test_a_reader_changes_nothing(roles: TwoRoles, name: str) -> None:
    before = roles.seen()
    ended = roles.project.dbt(*commands(roles)[name]).failed()
    # dbt prints an error of a run twice.
    (told,) = {line.strip() for line in ended.text.splitlines() if DENIED in line}
    assert UNCHANGED in told
    assert "Traceback" not in ended.text
    assert roles.seen() == before


def test_sparks_own_catalog_writes_nothing(roles: TwoRoles) -> None:
    roles.project.dbt("show", "--inline", "select 1 as one").succeeded()
    found = server.status(roles.folder / "reader/.lake")
    assert found is not None
    before, endpoint = roles.seen(), found.endpoint
    session = hive.connect(endpoint.host, endpoint.thrift_port, username="reader", auth="NONE")
    try:
        cursor = session.cursor()
        cursor.execute("select count(*) from shop.ids")
        assert cursor.fetchall() == [(3,)]
        with pytest.raises(OperationalError, match="permission denied for table iceberg_tables"):
            cursor.execute("insert into shop.orders values (9, 9)")
        with pytest.raises(OperationalError, match="permission denied"):
            cursor.execute("create table shop.other (id int)")
    finally:
        session.close()
    assert roles.seen()[0] == before[0]


def test_the_doctor_says_it(roles: TwoRoles, capfd: pytest.CaptureFixture[str]) -> None:
    folders = (
        "--project-dir",
        str(roles.project.folder),
        "--profiles-dir",
        str(roles.project.folder),
    )
    before = roles.seen()[0]
    assert main(["doctor", *folders]) == 1
    out = capfd.readouterr().out
    assert DENIED in out, out
    assert roles.seen()[0] == before
