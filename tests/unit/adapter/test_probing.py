"""A catalog that writes rows of an audit branch to `main` is refused before the first table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbt.adapters.sparkwap import probing
from sparkwap.catalog import LedgerRows
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.publish.lake import Lake

RUN = "1a2b3c4d-0000-4000-8000-000000000000"
TABLE = (LEDGER_SCHEMA, "probe_1a2b3c4d")


class Server:
    """A Thrift server, and its session, that runs the statements of a probe.

    Attributes:
        keeps_branches: What is written on a branch lands there.
        sent: The statements.
    """

    def __init__(self, lake: Lake, *, keeps_branches: bool) -> None:
        self.lake, self.keeps_branches = lake, keeps_branches
        self.sent: list[str] = []
        self.credentials: Any = type(
            "Credentials",
            (),
            {"embedded": False, "host": "here", "port": 1, "catalog_name": "lake"},
        )()
        self.branch = ""

    def open_sql(self, settings: dict[str, str]) -> Server:
        self.branch = settings["spark.wap.branch"]
        return self

    def close(self) -> None:
        pass

    def execute(self, sql: str) -> list[Any]:
        self.sent.append(sql)
        if sql.startswith("create"):
            self.lake.catalog.create_table(TABLE, pa.schema({"id": pa.int32()}))
        elif sql.startswith("insert"):
            rows = pa.table({"id": pa.array([1], pa.int32())})
            self.lake.catalog.load_table(TABLE).append(rows)
            if self.keeps_branches:
                self._move_to_branch()
        elif sql.startswith("drop"):
            self.lake.catalog.drop_table(TABLE)
        return []

    def _move_to_branch(self) -> None:
        row = self.lake.store.backend.get(TABLE)
        assert row is not None
        document = self.lake.store.load(row.location)
        head = md.main_of(document)
        assert head is not None
        change = MetadataChange(document).branch(self.branch, head).remove_refs("main")
        changed = {**change.document(row.location), "snapshot-log": []}
        location = md.next_location(changed, row.location)
        self.lake.store.write({location: changed})
        self.lake.store.backend.apply([PointerUpdate(row, Pointer(TABLE, "table", location))])


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr(probing, "_rows", lambda session, sql: session.execute(sql))
    uri = f"sqlite:///{tmp_path}/catalog.db"
    lake = Lake("lake", {"type": "sql", "uri": uri, "warehouse": f"{tmp_path}/warehouse"})
    yield lake
    lake.close()


def require_safe(lake: Lake, server: Any) -> None:
    probing.require_safe(lake, server, {}, RUN)


def test_a_catalog_without_branches_is_refused(lake: Lake) -> None:
    server = Server(lake, keeps_branches=False)
    for _ in range(2):
        server.sent.clear()
        with pytest.raises(CatalogError, match="landed on main"):
            require_safe(lake, server)
        # The next run checks again.
        assert len(server.sent) == 3
    assert lake.state(TABLE) is None


def test_a_probe_is_valid_for_a_day(lake: Lake) -> None:
    server = Server(lake, keeps_branches=True)
    require_safe(lake, server)
    assert len(server.sent) == 3
    require_safe(lake, server)
    assert len(server.sent) == 3
    # Two days later, the server is another one without branches.
    (row,) = lake.ledger.rows("runs")
    assert row["run_id"] != RUN, "the run itself has another row"
    aged = Lake("aged", lake.properties)
    then = datetime.now(UTC) - timedelta(days=2)
    aged.ledger.append(LedgerRows("runs", [{**row, "started_at": then, "ended_at": then}]))
    changed = Server(aged, keeps_branches=False)
    with pytest.raises(CatalogError, match="landed on main"):
        require_safe(aged, changed)
    aged.close()


def test_a_probe_is_valid_for_its_own_server_only(lake: Lake) -> None:
    require_safe(lake, Server(lake, keeps_branches=True))
    other = Server(lake, keeps_branches=False)
    other.credentials.host = "elsewhere"
    with pytest.raises(CatalogError, match="elsewhere"):
        require_safe(lake, other)
