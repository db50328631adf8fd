"""Publish, rollback and discard on a REST server as strict as Apache Polaris and Lakekeeper.

The servers are not run: `helpers.strict_rest` has their documented rules, each with a switch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.bench import view_json
from helpers.rest import running_rest_server
from helpers.strict_rest import (
    LAKEKEEPER,
    LAKEKEEPER_SOFT,
    POLARIS,
    POLARIS_OPTIMIZED,
    POLARIS_UNSTRUCTURED,
    Rules,
    StrictServer,
    running_strict_server,
)

from sparkwap.catalog import LedgerRows, RollbackRefused
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.files import local_path
from sparkwap.catalog.leases import Lease
from sparkwap.catalog.pointers import PointerUpdate
from sparkwap.catalog.rest_backend import MULTI_TABLE
from sparkwap.catalog.store import Staged
from sparkwap.core.errors import CatalogError
from sparkwap.gate.settings import Limits
from sparkwap.maintenance.sweeper import Sweeper
from sparkwap.publish.lake import Lake
from sparkwap.publish.sequential_publish import SequentialPublish
from sparkwap.runs.watching import Watch

pytestmark = pytest.mark.long

Bench = Any

BRANCH, SIDE = "pr_1", "s__pr_1"
RUN = "1a2b3c4d-0000-4000-8000-000000000000"
FIRST = "2a2b3c4d-0000-4000-8000-000000000000"
SECOND = "3a2b3c4d-0000-4000-8000-000000000000"
ROOT = Path(__file__).parents[3]

ALL = {
    "lakekeeper": LAKEKEEPER,
    "lakekeeper, soft deletion": LAKEKEEPER_SOFT,
    "polaris": POLARIS,
    "polaris, unstructured": POLARIS_UNSTRUCTURED,
    "polaris, optimized": POLARIS_OPTIMIZED,
}
CLONES = {name: rules for name, rules in ALL.items() if not rules.structured}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrictServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKWAP_JARS", os.environ.get("SPARKWAP_JARS", str(ROOT / ".lake/jars")))
        with (
            running_rest_server(tmp_path_factory.mktemp("rest")) as server,
            running_strict_server(server) as strict,
        ):
            yield strict


@pytest.fixture
def make(server: StrictServer, bench: Bench) -> Iterator[Callable[[Rules], Bench]]:
    """Makes an empty bench on the server with these rules."""
    made = []

    def on(rules: Rules, together: bool = True) -> Bench:
        server.reset(Rules(page_size=None))
        properties = {**server.server.properties, MULTI_TABLE: str(together).lower()}
        folder = Path(server.server.warehouse.removeprefix("file://")).parent
        found = type(bench)(folder, None, properties)
        for schema in found.lake.schemas():
            found.lake.drop_schema(schema, purge=True)
        server.reset(rules)
        found.lake.ensure_schema("s")
        made.append(found)
        return found

    yield on
    for one in made:
        one.lake.close()


@pytest.mark.parametrize("rules", ALL.values(), ids=ALL.keys())
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_publish_rollback_and_discard(
    make: Callable[..., Bench], server: StrictServer, rules: Rules, together: bool
) -> None:
    lake = make(rules, together)
    for name in "ac":
        lake.table(name, 1)
    items = [lake.candidate("a", 2), lake.new("n", 4)]
    after = {"a": [1, 2], "c": [1], "n": [4]}
    if not rules.structured:
        items.append(lake.changed("c", 3))
        after["c"] = [3]
    _view(lake, "v", "select * from s__pr_1.n")
    receipt = lake.publish(*items, lake.side("v"), appends=[LedgerRows("runs", [{"run_id": "x"}])])
    assert {name: lake.read(name) for name in "acn"} == after
    assert lake.lake.relations("s")["v"] == "view"
    assert lake.lake.branches.all() == []
    lake.lake.publishing.rollback(receipt.entries, run_id=RUN, publish_id=receipt.publish_id)
    assert [lake.read(name) for name in "ac"] == [[1], [1]]
    assert lake.lake.relations("s") == {"a": "table", "c": "table"}
    assert lake.lake.ledger.publish(receipt.publish_id)[0].rolled_back
    # The next run on the same branch uses its side schema again.
    again = lake.publish(lake.candidate("a", 5), lake.new("m", 6), tag="again", run_id=SECOND)
    assert [lake.read(name) for name in "am"] == [[1, 5], [6]]
    assert len(again.entries) == 2
    lake.new("k", 4)
    lake.lake.branches.open(("s", "a"), BRANCH)
    assert lake.lake.branches.discard(BRANCH).tables == (("s", "a"),)
    assert lake.lake.branches.all() == []


def _view(bench: Bench, name: str, sql: str) -> None:
    """A view in the side schema, as Spark creates it: the server places it."""
    document = view_json("", sql, None)
    body = {
        "name": name,
        "schema": document["schemas"][0],
        "view-version": document["versions"][0],
        "properties": document["properties"],
    }
    rows = bench.lake.store.backend
    assert rows._send("POST", f"namespaces/{SIDE}/views", json=body).ok


def _ids(bench: Bench) -> tuple[str, str]:
    state = bench.state(("s", "c"))
    return state.uuid, state.location


@pytest.mark.parametrize("rules", CLONES.values(), ids=CLONES.keys())
def test_a_changed_table_keeps_its_identity_folder_and_history(
    make: Callable[..., Bench], rules: Rules
) -> None:
    lake = make(rules)
    lake.table("c", 1, 2)
    before = _ids(lake)
    item = lake.changed("c", 3)
    clone = lake.state((SIDE, "c"))
    # Where a server wants an identity or a folder of its own for each table, the clone has them.
    assert (clone.uuid == before[0]) == (clone.location == before[1])
    assert (clone.uuid == before[0]) == (rules == POLARIS_UNSTRUCTURED)
    lake.publish(item)
    assert lake.read("c") == [3]
    assert _ids(lake) == before
    table = lake.lake.catalog.load_table(("s", "c"))
    former = table.scan(snapshot_id=table.metadata.snapshots[0].snapshot_id).to_arrow()
    assert sorted(former["id"].to_pylist()) == [1, 2]
    own = {key: text for key, text in table.properties.items() if key.startswith("wap.")}
    others = {} if rules == POLARIS_UNSTRUCTURED else md.other_folders([str(clone.location)])
    assert own == others
    # A second clone is kept, as long as its base is the present `main`.
    lake.lake.branches.clone(("s", "c"), SIDE)
    first = lake.state((SIDE, "c"))
    lake.lake.branches.clone(("s", "c"), SIDE)
    assert lake.state((SIDE, "c")) == first
    lake.write(("s", "c"), 7, branch="main")
    lake.lake.branches.clone(("s", "c"), SIDE)
    assert lake.state((SIDE, "c")).main == lake.state(("s", "c")).main


def test_a_clone_that_the_server_refuses_is_one_message(make: Callable[..., Bench]) -> None:
    lake = make(POLARIS)
    lake.table("c", 1)
    files, pointers = lake.files(), lake.pointers()
    with pytest.raises(CatalogError, match=r"s\.c cannot be cloned.*not in the list of allowed"):
        lake.lake.branches.clone(("s", "c"), SIDE)
    assert lake.files() == files
    assert lake.pointers() == pointers
    with pytest.raises(CatalogError, match="does not take"):
        lake.lake.ensure_schema(SIDE, BRANCH)
        folder = f"{lake.lake.branches.folder('s', BRANCH)}/copy"
        lake.lake.branches.copy(("s", "c"), (SIDE, "copy"), folder)
    assert lake.files() == files


def _replaced(bench: Bench) -> tuple[Any, str]:
    """A table that was published in place of another one, and the former one's identity."""
    former = bench.state(("s", "n")).uuid
    bench.new("n", 7)
    located = bench.state(("s", "n")).metadata_location
    return bench.publish(bench.side("n", located), tag="second", run_id=SECOND), former


@pytest.fixture(params=ALL.values(), ids=ALL.keys())
def replaced(make: Callable[..., Bench], request: Any) -> tuple[Bench, Any, str, Rules]:
    lake = make(request.param)
    lake.table("a", 1)
    lake.publish(lake.candidate("a", 2), lake.new("n", 4), run_id=FIRST, tag="first")
    lake.suffix = "5e6f7a8b"
    receipt, former = _replaced(lake)
    assert lake.read("n") == [7]
    return lake, receipt, former, request.param


def test_a_replaced_table_comes_back(replaced: tuple[Bench, Any, str, Rules]) -> None:
    lake, receipt, former, rules = replaced
    lake.lake.publishing.rollback(receipt.entries, run_id=RUN, publish_id=receipt.publish_id)
    assert lake.read("n") == [4]
    assert (lake.state(("s", "n")).uuid == former) == (not rules.soft_delete)
    assert lake.lake.branches.all() == []
    assert lake.lake.publishing.recover() == []
    # A second call changes nothing.
    pointers = lake.pointers()
    lake.lake.publishing.rollback(
        receipt.entries, run_id=RUN, publish_id=receipt.publish_id, branch=BRANCH, force=True
    )
    assert lake.pointers() == pointers


def test_a_former_table_that_the_server_refuses_is_refused_before_the_present_one_is_dropped(
    replaced: tuple[Bench, Any, str, Rules], server: StrictServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, receipt, _, _ = replaced
    rows = lake.lake.store.backend
    send = rows._send

    def refusing(method: str, path: str, **more: Any) -> Any:
        answer = send(method, path, **more) if not path.endswith("/register") else None
        if answer is None:
            answer = send("GET", "config")
            answer.status_code, answer._content = 403, b'{"error": {"message": "no register"}}'
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(rows, "_send", refusing)
        with pytest.raises(RollbackRefused, match="no register"):
            lake.lake.publishing.rollback(
                receipt.entries, run_id=RUN, publish_id=receipt.publish_id
            )
    assert lake.read("n") == [7]
    assert lake.lake.publishing.recover() == []
    lake.lake.publishing.rollback(receipt.entries, run_id=RUN, publish_id=receipt.publish_id)
    assert lake.read("n") == [4]


class Died(BaseException):
    """The process has died."""


def test_the_next_command_completes_the_return_of_a_table_after_a_death_at_any_request(
    replaced: tuple[Bench, Any, str, Rules], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, receipt, _, _ = replaced
    rows = lake.lake.store.backend
    send = rows._send
    for last in range(0, 60, 2):
        left = [last]

        def dying(method: str, path: str, left: list[int] = left, **more: Any) -> Any:
            if method != "GET":
                if left[0] == 0:
                    raise Died
                left[0] -= 1
            return send(method, path, **more)

        ended = False
        with monkeypatch.context() as patch:
            patch.setattr(rows, "_send", dying)
            try:
                lake.lake.publishing.rollback(
                    receipt.entries, run_id=RUN, publish_id=receipt.publish_id
                )
                ended = True
            except Died:
                pass
        told = lake.lake.publishing.recover()
        assert lake.read("n") == ([4] if told or ended else [7]), last
        # At most an empty schema is left.
        assert [one for one in lake.lake.branches.all() if one.tables or one.side] == []
        if ended:
            break
        if told:
            lake.suffix = f"{last:08x}"
            receipt, _ = _replaced(lake)
            assert lake.read("n") == [7]
    assert ended


@pytest.mark.parametrize("rules", ALL.values(), ids=ALL.keys())
def test_a_table_that_a_statement_dropped_comes_back(
    make: Callable[..., Bench], rules: Rules
) -> None:
    lake = make(rules)
    lake.publish(lake.new("n", 4))
    rows = lake.lake.store.backend
    before = rows.get(("s", "n"))
    watch = Watch(lake.lake.store, lambda: lake.lake.ledger, {("s", "n")}, run_id=RUN, branch="x")
    rows.apply([PointerUpdate(before, None)], documents={})
    watch.put_back(("s", "n"), before, ())
    assert lake.lake.relations("s") == {"n": "table"}
    assert lake.read("n") == [4]
    assert watch.changes() == []


def test_no_drop_deletes_files(make: Callable[..., Bench], server: StrictServer) -> None:
    lake = make(LAKEKEEPER)
    for name in "ac":
        lake.table(name, 1)
    lake.view("v", "select 1 as id")
    receipt = lake.publish(lake.candidate("a", 2), lake.changed("c", 3), lake.side("v"))
    lake.lake.publishing.rollback(receipt.entries, run_id=RUN, publish_id=receipt.publish_id)
    dropped = [target for method, target in server.seen if method == "DELETE"]
    members = [one for one in dropped if "/tables/" in one or "/views/" in one]
    assert len(members) > 2
    assert {one.partition("?")[2] for one in members} == {"purgeRequested=false"}
    assert [lake.read(name) for name in "ac"] == [[1], [1]]


def test_a_side_schema_whose_dropped_tables_are_kept_is_no_open_branch(
    make: Callable[..., Bench],
) -> None:
    lake = make(LAKEKEEPER_SOFT)
    lake.table("c", 1)
    lake.publish(lake.changed("c", 3))
    assert lake.lake.branches.all() == []
    assert lake.lake.side_schemas() == {}
    assert (SIDE,) in lake.lake.catalog.list_namespaces()
    assert SIDE not in lake.lake.schemas()
    # The branch may be used again; then it is open.
    lake.changed("c", 5)
    assert [one.branch for one in lake.lake.branches.all()] == [BRANCH]
    lake.lake.branches.discard(BRANCH)
    assert lake.lake.branches.all() == []
    assert (SIDE,) in lake.lake.catalog.list_namespaces()


def test_a_later_command_drops_the_side_schema(
    make: Callable[..., Bench], server: StrictServer
) -> None:
    lake = make(LAKEKEEPER_SOFT)
    lake.table("c", 1)
    lake.publish(lake.changed("c", 3))
    assert SIDE in lake.lake.schemas()
    server.expire()
    lake.lake.ensure_schema("s__other", "other")
    lake.lake.branches.discard("other")
    assert lake.lake.schemas() == {"s", "wap_ledger"}


def test_the_files_of_a_discarded_clone_stay(make: Callable[..., Bench]) -> None:
    """A publish of another process that needs them may be on its way."""
    lake = make(LAKEKEEPER)
    lake.table("c", 1)
    lake.changed("c", 3)
    folder = local_path(str(lake.state((SIDE, "c")).location))
    files = {file for file in lake.files() if str(folder) in str(file) and "parquet" in str(file)}
    assert files
    lake.lake.branches.discard(BRANCH)
    assert files <= lake.files()


def test_the_files_of_a_published_clone_stay(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make(LAKEKEEPER)
    lake.table("c", 1)
    item = lake.changed("c", 4)

    def dying(*arguments: Any, **options: Any) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(SequentialPublish, "_finish_publish", dying)
        with pytest.raises(Died):
            lake.publish(item)
    assert lake.read("c") == [4]
    # The clone is still there. A discard ends the publish first; without that it keeps the files.
    assert lake.lake.branches.discard(BRANCH).side
    assert lake.read("c") == [4]


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(
    make: Callable[..., Bench], server: StrictServer, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make(Rules(page_size=None))
    lake.table("a", 1)
    item = lake.candidate("a", 2)
    rows = lake.lake.store.backend
    send = rows._send

    def busy(method: str, path: str, **more: Any) -> Any:
        server.busy[:] = [status, status]
        return send(method, path, **more)

    monkeypatch.setattr(rows, "_send", busy)
    lake.lake.ensure_schema("s__other", "other")
    rows.evolve([], lambda identifier: None)
    before = rows.get(("s", "a"))
    change = MetadataChange(lake.lake.store.load(before.location)).properties({"x": "1"})
    rows.evolve([(before, change)])
    assert lake.lake.side_schemas()["s__other"] == "other"
    monkeypatch.undo()
    server.busy.clear()
    assert md.properties_of(lake.lake.store.load(rows.get(("s", "a")).location))["x"] == "1"
    lake.publish(item)
    assert lake.read("a") == [1, 2]


def lose_answers(
    rows: Any,
    server: StrictServer,
    status: int,
    loses: Callable[[str], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """Let a proxy answer with a status to POST requests that the server has carried out.

    Returns:
        The paths of these requests, as far as ``loses`` was true of them; the list grows.
    """
    send = rows._send
    lost: list[str] = []

    def losing(method: str, path: str, **more: Any) -> Any:
        if method == "POST" and loses(path):
            lost.append(path)
            server.lost[:] = [status]
        answer = send(method, path, **more)
        server.lost.clear()
        return answer

    monkeypatch.setattr(rows, "_send", losing)
    return lost


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_a_lost_answer_to_a_change_is_looked_up(
    make: Callable[..., Bench],
    server: StrictServer,
    status: int,
    together: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = make(POLARIS, together)
    for name in "ab":
        lake.table(name, 1)
    items = [lake.candidate(name, 2) for name in "ab"] + [lake.new("n", 4)]
    lost: list[str] = []

    def loses(path: str) -> bool:
        moves = path in ("transactions/commit", "tables/rename") or "/tables/" in path
        return moves and "wap_ledger" not in path and len(lost) < 3

    lost = lose_answers(lake.lake.store.backend, server, status, loses, monkeypatch)
    receipt = lake.publish(*items)
    assert len(lost) == 3
    assert [lake.read(name) for name in "abn"] == [[1, 2], [1, 2], [4]]
    (published,) = lake.lake.ledger.publish(receipt.publish_id)
    assert len(published.entries) == 3


@pytest.mark.parametrize("status", [502, 503])
@pytest.mark.parametrize("table", ["runs", "journal", "publishes"])
def test_a_lost_answer_to_an_append_to_the_ledger(
    make: Callable[..., Bench],
    server: StrictServer,
    status: int,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = make(Rules())
    lake.table("a", 1)
    item = lake.candidate("a", 2)
    path = f"namespaces/wap_ledger/tables/{table}"
    rows = lake.lake.store.backend
    lost = lose_answers(rows, server, status, lambda one: one == path, monkeypatch)
    lake.lake.ledger.append(LedgerRows("runs", [{"run_id": "one"}]))
    receipt = lake.publish(item)
    assert lost
    monkeypatch.undo()
    assert lake.read("a") == [1, 2]
    other = Lake("lake", lake.lake.properties)
    assert [row["run_id"] for row in other.ledger.rows("runs")].count("one") == 1
    (published,) = other.ledger.publish(receipt.publish_id)
    assert len(published.entries) == 1
    other.close()


def test_a_reading_request_without_an_answer_is_sent_again(
    make: Callable[..., Bench], server: StrictServer
) -> None:
    lake = make(Rules())
    lake.table("a", 1)
    server.busy[:] = [502, 504]
    assert lake.lake.relations("s") == {"a": "table"}
    assert server.busy == []


def test_a_conflict_is_tried_again(make: Callable[..., Bench], server: StrictServer) -> None:
    lake = make(POLARIS)
    lake.table("a", 1)
    server.conflicts = 2
    lake.lake.branches.open(("s", "a"), BRANCH)
    assert server.conflicts == 0
    item = lake.candidate("a", 2)
    # A publish takes the journal's way: the ledger's rows, then the table.
    lake.lake.ledger.ensure_all()
    server.conflicts = 2
    lake.publish(item)
    assert server.conflicts == 0
    assert lake.read("a") == [1, 2]


def test_a_lease_is_written_again_after_a_conflict(
    make: Callable[..., Bench], server: StrictServer
) -> None:
    lake = make(POLARIS)
    taken = lake.lake.leases.take(Lease(RUN, BRANCH, "build", 1, 0.0, "here", "this"))
    server.conflicts = 2
    assert lake.lake.leases.renew(taken) is not None
    assert server.conflicts == 0
    server.conflicts = 2
    lake.lake.leases.release(RUN)
    assert lake.lake.leases.all() == []


def test_lists_come_in_pages(make: Callable[..., Bench], server: StrictServer) -> None:
    lake = make(Rules(page_size=2))
    for name in "abcde":
        lake.table(name)
    lake.view("v", "select 1 as id", schema="s")
    for schema in "klm":
        lake.lake.ensure_schema(schema)
    assert set(lake.lake.relations("s")) == set("abcdev")
    assert {"k", "l", "m", "s"} <= lake.lake.schemas()
    assert [target for _, target in server.seen if "pageToken=" in target and "=&" not in target]


@pytest.mark.parametrize("rules", [LAKEKEEPER_SOFT, LAKEKEEPER, POLARIS])
def test_a_forced_rollback_of_what_was_replaced_since(
    make: Callable[..., Bench], rules: Rules
) -> None:
    lake = make(rules)
    lake.table("n", 4)
    first = lake.publish(lake.candidate("n", 5), run_id=FIRST, tag="first")
    lake.suffix = "5e6f7a8b"
    lake.new("n", 7)
    located = lake.state(("s", "n")).metadata_location
    lake.publish(lake.side("n", located), tag="second", run_id=SECOND)
    assert lake.read("n") == [7]
    roll_back = partial(
        lake.lake.publishing.rollback, first.entries, run_id=RUN, publish_id=first.publish_id
    )
    roll_back(force=True)
    assert lake.read("n") == [4]
    assert lake.lake.publishing.on_their_way() == []


def test_a_staged_former_table_that_is_left(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback dies, and others write to the table that it was to replace."""
    lake = make(LAKEKEEPER)
    lake.table("a", 1)
    lake.publish(lake.candidate("a", 2), lake.new("n", 4), run_id=FIRST, tag="first")
    lake.suffix = "5e6f7a8b"
    receipt, _ = _replaced(lake)
    rows = lake.lake.store.backend
    plain = rows.stage

    def dying(row: Any) -> Any:
        plain(row)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(rows, "stage", dying)
        with pytest.raises(Died):
            lake.lake.publishing.rollback(
                receipt.entries, run_id=RUN, publish_id=receipt.publish_id
            )
    assert lake.lake.branches.all() == []
    lake.write(("s", "n"), 8, branch="main")
    (told,) = lake.lake.publishing.recover()
    assert "Nothing was rolled back" in told
    left = [row.identifier for row in rows.all() if "wap_former" in row.identifier[1]]
    assert left == []
    assert lake.read("n") == [7, 8]


@pytest.fixture(params=["before the request", "after it, whose answer is lost"])
def beside(
    make: Callable[..., Bench], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Bench, list[list[str]]]]:
    """A bench; when it frees the name of a live table, another process ends its journal."""
    lake = make(Rules(page_size=None))
    other = Lake("lake", lake.lake.properties)
    rows = lake.lake.store.backend
    plain = rows._send_once
    told: list[list[str]] = []

    def once(method: str, path: str, **more: Any) -> Any:
        body = more.get("json") or {}
        source = body.get("source", {"namespace": ["s"]})
        name = f"{source['namespace'][0]}.{source.get('name') or path.rpartition('/')[2]}"
        frees = path == "tables/rename" or method == "DELETE"
        if not frees or name != "s.a" or told:
            return plain(method, path, **more)
        told.append([])
        if request.param == "before the request":
            told[0] += other.publishing.recover()
            return plain(method, path, **more)
        answer = plain(method, path, **more)
        told[0] += other.publishing.recover()
        answer.status_code = 503
        return answer

    monkeypatch.setattr(rows, "_send_once", once)
    yield lake, told
    other.close()


def test_another_process_completes_a_publish_that_frees_a_name(
    beside: tuple[Bench, list[list[str]]],
) -> None:
    lake, told = beside
    lake.table("a", 1)
    live = lake.state(("s", "a")).metadata_location
    lake.new("a", 7)
    receipt = lake.publish(lake.side("a", live))
    assert "all its tables are published" in told[0][0]
    assert [entry.how for entry in receipt.entries] == ["replace"]
    assert lake.read("a") == [7]
    assert lake.lake.relations("s") == {"a": "table"}


def test_a_late_request_sets_a_published_table_aside(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request without an answer is carried out when another process has ended the journal."""
    lake = make(Rules(page_size=None))
    other = Lake("lake", lake.lake.properties)
    lake.table("a", 1)
    live = lake.state(("s", "a")).metadata_location
    lake.new("a", 7)
    item = lake.side("a", live)
    plain = lake.lake.store.backend._send_once
    late: list[Any] = []

    def once(method: str, path: str, **more: Any) -> Any:
        if path == "tables/rename" and not late:
            late.append(other.publishing.recover())
            answer = plain(method, path, **more)
            answer.status_code = 504
            return answer
        return plain(method, path, **more)

    monkeypatch.setattr(lake.lake.store.backend, "_send_once", once)
    lake.publish(item)
    assert late
    assert lake.read("a") == [7]
    assert lake.lake.relations("s") == {"a": "table"}
    other.close()


def test_a_sweep_drops_a_table_that_an_older_version_has_left_aside(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make(Rules(page_size=None))
    lake.table("a", 1)
    lake.table("b__wap_former_1a2b3c4d", 1)  # of a user
    live = lake.state(("s", "a")).metadata_location
    lake.new("a", 7)
    with monkeypatch.context() as patch:
        # What an older version does.
        patch.setattr(lake.lake.store.backend, "forget_staged", lambda row: None)
        receipt = lake.publish(lake.side("a", live))
    assert len(lake.lake.relations("s")) == 3
    sweep = Sweeper(lake.lake, run_id=SECOND, limits=Limits(), retention_days=None)
    sweep.sweep(files=False)
    assert lake.lake.relations("s").keys() == {"a", "b__wap_former_1a2b3c4d"}
    lake.lake.publishing.rollback(receipt.entries, run_id=RUN, publish_id=receipt.publish_id)
    assert lake.read("a") == [1]


def test_a_sweep_leaves_what_a_rollback_sets_aside_that_begins_meanwhile(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make(LAKEKEEPER)
    lake.table("n", 1)
    receipt, _ = _replaced(lake)
    backend = lake.lake.store.backend
    kinds, set_aside, left = backend.kinds, backend.set_aside, ["s"]

    def dying(*row: Any) -> Any:
        set_aside(*row)
        raise Died

    def begins(schema: str) -> Any:
        if schema in left:
            left.remove(schema)
            with pytest.raises(Died):
                # By a run that the ledger has, so that the sweep knows the name beside it.
                lake.lake.publishing.rollback(
                    receipt.entries, run_id=SECOND, publish_id=receipt.publish_id
                )
        return kinds(schema)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "set_aside", dying)
        patch.setattr(backend, "kinds", begins)
        lake.lake.ledger.drop_set_aside()
    assert not left
    assert any("wap_former" in name for name in lake.lake.relations("s"))
    lake.lake.publishing.recover()
    assert lake.lake.publishing.on_their_way() == []


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "new"])
def test_another_process_completes_a_rollback_that_frees_a_name(
    beside: tuple[Bench, list[list[str]]], replaced: bool
) -> None:
    lake, told = beside
    told.append([])
    if replaced:
        lake.table("a", 1)
    live = lake.state(("s", "a")).metadata_location if replaced else None
    lake.new("a", 7)
    receipt = lake.publish(lake.side("a", live))
    told.clear()
    lake.lake.publishing.rollback(receipt.entries, run_id=RUN, publish_id=receipt.publish_id)
    assert "all its tables are rolled back" in told[0][0]
    assert lake.lake.relations("s") == ({"a": "table"} if replaced else {})
    assert not replaced or lake.read("a") == [1]


def test_a_lost_answer_to_an_append_that_others_have_followed(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make(Rules())
    lake.lake.ledger.append(LedgerRows("runs", [{"run_id": "zero"}]))
    other = Lake("lake", lake.lake.properties)
    rows = lake.lake.store.backend
    plain, lost = rows._send_once, [True]

    def once(method: str, path: str, **more: Any) -> Any:
        answer = plain(method, path, **more)
        if method == "POST" and path == "namespaces/wap_ledger/tables/runs" and lost:
            lost.clear()
            other.ledger.append(LedgerRows("runs", [{"run_id": "two"}]))
            answer.status_code = 503
        return answer

    monkeypatch.setattr(rows, "_send_once", once)
    lake.lake.ledger.append(LedgerRows("runs", [{"run_id": "one"}]))
    third = Lake("lake", lake.lake.properties)
    found = [row["run_id"] for row in third.ledger.rows("runs")]
    assert sorted(found) == ["one", "two", "zero"]
    other.close()
    third.close()


def test_an_expiry_that_is_refused_is_staged_again(make: Callable[..., Bench]) -> None:
    lake = make(Rules())
    lake.table("a", 1)
    lake.write(("s", "a"), 2, branch="main")
    stagings: list[int] = []

    def stage() -> Staged[int]:
        row = lake.lake.store.backend.get(("s", "a"))
        document = lake.lake.store.load(row.location)
        old = [one["snapshot-id"] for one in document["snapshots"]][:-1]
        if not stagings:
            lake.write(("s", "a"), 3, branch="main")
        stagings.append(len(old))
        change = MetadataChange(document).remove_snapshots(old)
        return Staged(len(old), *lake.lake.store.grow([(row, change)]))

    assert lake.lake.store.commit(stage, "maintain", table="s.a", run_id=RUN) == 2
    assert stagings == [1, 2]
    row = lake.lake.store.backend.get(("s", "a"))
    assert len(lake.lake.store.load(row.location)["snapshots"]) == 1
