"""The same on a REST catalog: Iceberg's own test server, where Java is on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vocabulary.rest import RestServer, running_rest_server

from sparkwap.catalog import LedgerRows, PublishRefused
from sparkwap.catalog.rest import MULTI_TABLE

Bench = Any

BRANCH, SIDE, TAG = "pr_1", "s__pr_1", "wap_pub_1a2b3c4d"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKWAP_JARS", os.environ.get("SPARKWAP_JARS", str(ROOT / ".lake/jars")))
        with running_rest_server(tmp_path_factory.mktemp("rest")) as server:
            yield server


@pytest.fixture(params=["together", "one by one"])
def rest(server: RestServer, request: Any, tmp_path: Path, bench: Bench) -> Iterator[Bench]:
    """A bench on the server, emptied before: with and without multi-table commits."""
    properties = {**server.properties, MULTI_TABLE: str(request.param == "together").lower()}
    bench = type(bench)(Path(server.warehouse.removeprefix("file://")).parent, None, properties)
    for schema in bench.lake.schemas():
        bench.lake.drop_schema(schema, purge=True)
    bench.lake.ensure_schema("s")
    yield bench
    bench.lake.close()


def test_publish_rollback_and_discard(rest: Bench) -> None:
    for name in "ac":
        rest.table(name, 1)
    items = [rest.candidate("a", 2), rest.changed("c", 3), rest.new("n", 4)]
    rest.view("v", "select * from s__pr_1.c")
    receipt = rest.publish(*items, rest.side("v"), appends=[LedgerRows("runs", [{"run_id": "x"}])])
    assert [rest.read(name) for name in "acn"] == [[1, 2], [3], [4]]
    assert rest.lake.relations("s")["v"] == "view"
    assert SIDE not in rest.lake.schemas()
    assert rest.lake.open_branches() == []
    rest.lake.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert [rest.read(name) for name in "ac"] == [[1], [1]]
    assert rest.lake.relations("s") == {"a": "table", "c": "table"}
    assert [column.name for column in rest.state(("s", "c")).columns] == ["id"]
    assert rest.lake.ledger.publish(receipt.publish_id)[0].rolled_back
    rest.lake.open_branch(("s", "a"), "other")
    assert rest.lake.discard("other").tables == (("s", "a"),)
    assert "other" not in rest.state(("s", "a")).refs


def test_a_moved_main_stops_all(rest: Bench) -> None:
    for name in "ab":
        rest.table(name, 1)
    items = [rest.candidate(name, 2) for name in "ab"]
    rest.write(("s", "b"), 9, branch="main")
    before = rest.pointers()
    with pytest.raises(PublishRefused):
        rest.publish(*items)
    assert rest.pointers() == before
