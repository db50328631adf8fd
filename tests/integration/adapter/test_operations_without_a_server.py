"""Operations that need the catalog only start no server, where the lake exists."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from dbt.adapters.factory import reset_adapters
from dbt.cli.main import dbtRunner
from pyiceberg.catalog.sql import SqlCatalog

from sparkwap import server
from sparkwap.core.errors import ServerError
from sparkwap.core.names import base_tag

OUTPUT = {"type": "sparkwap", "lake": ".lake", "schema": "shop", "threads": 1}
FILES = {
    "dbt_project.yml": json.dumps({"name": "shop", "version": "1.0", "profile": "shop"}),
    "profiles.yml": json.dumps({"shop": {"target": "test", "outputs": {"test": OUTPUT}}}),
}
BRANCH = "wap_0a1b2c3d"


@pytest.fixture(name="project")
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without a lake, whose server cannot be started."""

    def start(*_given: object) -> None:
        raise ServerError("The server was to be started.")

    monkeypatch.setattr(server, "ensure", start)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def call(project: Path, operation: str, **arguments: str) -> bool:
    place = ["--project-dir", project, "--profiles-dir", project, "--log-path", project / "logs"]
    given = ["--args", json.dumps(arguments)]
    ended = dbtRunner().invoke(["run-operation", operation, *given, *map(str, place)])
    reset_adapters()  # type: ignore[no-untyped-call]
    return ended.success


def test_a_branch_is_shown_and_discarded_without_a_server(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = project / ".lake"
    lake.mkdir()
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}/warehouse"
    )
    catalog.create_namespace("shop")
    rows = pa.table({"id": [1]})
    table = catalog.create_table("shop.orders", rows.schema)
    table.append(rows)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    at = snapshot.snapshot_id
    table.manage_snapshots().create_branch(at, BRANCH).create_tag(at, base_tag(BRANCH)).commit()
    assert call(project, "wap_status")
    assert f"  {BRANCH}   1 table" in capsys.readouterr().out
    assert call(project, "wap_discard", branch=BRANCH)
    assert set(table.refresh().metadata.refs) == {"main"}


def test_the_server_makes_a_missing_lake(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not call(project, "wap_status")
    assert "The server was to be started." in capsys.readouterr().out
