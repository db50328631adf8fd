"""Publish and rollback on Iceberg's own REST test server; skipped without Java."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.rest import RestServer, running_rest_server

from sparkwap.catalog import LedgerRows, PublishRefused, RollbackRefused
from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import plain_location
from sparkwap.catalog.model import UndonePublish
from sparkwap.catalog.pointers import Unanswered
from sparkwap.catalog.rest_backend import MULTI_TABLE
from sparkwap.core.errors import CatalogError
from sparkwap.maintenance import expiry, file_references
from sparkwap.runs.watching import Watch

pytestmark = pytest.mark.long

Bench = Any

BRANCH, SIDE, TAG = "pr_1", "s__pr_1", "wap_pub_1a2b3c4d"
RUN = "1a2b3c4d-0000-4000-8000-000000000000"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKWAP_JARS", os.environ.get("SPARKWAP_JARS", str(ROOT / ".lake/jars")))
        with running_rest_server(tmp_path_factory.mktemp("rest")) as server:
            yield server


@pytest.fixture(params=["together", "one by one"])
def rest(server: RestServer, request: Any, tmp_path: Path, bench: Bench) -> Iterator[Bench]:
    """An empty bench on the server, with and without multi-table commits."""
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
    assert rest.lake.branches.all() == []
    rest.lake.publishing.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert [rest.read(name) for name in "ac"] == [[1], [1]]
    assert rest.lake.relations("s") == {"a": "table", "c": "table"}
    assert [column.name for column in rest.state(("s", "c")).columns] == ["id"]
    assert rest.lake.ledger.publish(receipt.publish_id)[0].rolled_back
    rest.lake.branches.open(("s", "a"), "other")
    assert rest.lake.branches.discard("other").tables == (("s", "a"),)
    assert "other" not in rest.state(("s", "a")).refs


def test_a_moved_main_stops_the_whole_publish(rest: Bench) -> None:
    for name in "ab":
        rest.table(name, 1)
    items = [rest.candidate(name, 2) for name in "ab"]
    rest.write(("s", "b"), 9, branch="main")
    before = rest.pointers()
    with pytest.raises(PublishRefused):
        rest.publish(*items)
    assert rest.pointers() == before


@pytest.mark.parametrize("name", ["/lake/s/a.parquet", "a\\b", "a%b", "..", "a;b", "a\tb"])
def test_a_name_that_the_server_refuses_to_read_is_no_table(rest: Bench, name: str) -> None:
    rest.table("a", 1)
    asked = [("s", "a"), ("s", name), ("parquet", name)]
    assert rest.lake.locations(asked).keys() == {("s", "a")}


def test_a_renamed_table_comes_back_by_one_request(rest: Bench) -> None:
    rest.table("a", 1)
    rows = rest.lake.store.backend
    before = rows.get(("s", "a"))
    rows.rename(("s", "a"), ("s", "b"), "table")
    watch = Watch(rest.lake.store, lambda: rest.lake.ledger, {("s", "a")}, run_id=RUN, branch="x")
    watch.name([("s", "b")])
    watch.put_back(("s", "a"), before, ())
    assert rest.lake.relations("s") == {"a": "table"}
    assert rest.read("a") == [1]
    assert watch.changes() == []


class Died(BaseException):
    """The process has died."""


def _changes(bench: Bench, monkeypatch: pytest.MonkeyPatch, before: Any) -> None:
    """Call ``before(method, path, send)`` instead of each request that makes a change."""
    rows = bench.lake.store.backend
    send = rows._send

    def instead(method: str, path: str, **more: Any) -> Any:
        if method == "GET":
            return send(method, path, **more)
        return before(method, path, more, lambda: send(method, path, **more))

    monkeypatch.setattr(rows, "_send", instead)


def test_the_creation_of_a_schema_is_retried_if_the_server_fails(
    rest: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [2]

    def failing(method: str, path: str, more: Any, send: Any) -> Any:
        answer = send()  # a server may have done what it says it has not
        if left[0]:
            left[0] -= 1
            answer.status_code = 500
        return answer

    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    _changes(rest, monkeypatch, failing)
    rest.lake.ensure_schema("s__pr_9", "pr_9")
    assert rest.lake.store.backend.side_schemas()["s__pr_9"] == "pr_9"
    left[0] = 99
    with pytest.raises(CatalogError, match="refused a request"):
        rest.lake.ensure_schema("s__pr_8", "pr_8")
    assert left[0] == 99 - 5


def _everything(rest: Bench, suffix: str = "") -> list[Any]:
    for name in "abc":
        rest.table(name + suffix, 1)
    items = [rest.candidate(name + suffix, 2) for name in "ab"]
    items += [rest.changed("c" + suffix, 3), rest.new("n" + suffix, 4)]
    rest.view("v" + suffix, "select * from s__pr_1.c")
    return [*items, rest.side("v" + suffix)]


def _seen(rest: Bench) -> dict[str, Any]:
    kinds = rest.lake.relations("s")
    return {name: rest.read(name) if kind == "table" else kind for name, kind in kinds.items()}


OLD = {"a": [1], "b": [1], "c": [1]}
NEW = {"a": [1, 2], "b": [1, 2], "c": [3], "n": [4], "v": "view"}


def test_the_next_command_publishes_all_or_nothing_after_a_death_at_any_request(
    rest: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = False
    recovered = 0
    # Each third request, from another one on for each form; all of them in the soak.
    first, step = (0, 1) if os.environ.get("SOAK") else (rest.lake.store.backend.together, 3)
    for last in range(first, 60, step):
        for schema in rest.lake.schemas():
            rest.lake.drop_schema(schema, purge=True)
        rest.lake.ensure_schema("s")
        items = _everything(rest)
        rest.lake.ledger.ensure_all()
        left = [last]

        def dying(method: str, path: str, more: Any, send: Any, left: list[int] = left) -> Any:
            if left[0] == 0:
                raise Died
            left[0] -= 1
            return send()

        with monkeypatch.context() as patch:
            _changes(rest, patch, dying)
            try:
                rest.publish(*items)
                ended = True
            except Died:
                pass
        after = type(rest.lake)("lake", rest.properties)
        told = after.publishing.recover()
        recovered += len(told)
        assert _seen(rest) == (NEW if told or ended else OLD), last
        assert after.publishing.recover() == []
        if told or ended:
            publishes = after.ledger.publishes()
            assert [len(publish.entries) for publish in publishes] == [5]
            assert after.branches.all() == []
            after.publishing.rollback(
                publishes[0].entries, run_id="y", publish_id=publishes[0].publish_id
            )
            assert _seen(rest) == OLD
        after.close()
        if ended:
            break
    assert ended
    assert recovered > 1


def test_a_server_that_applies_half_of_a_commit_is_noticed(
    rest: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not rest.lake.store.backend.together:
        pytest.skip("only where several tables are committed together")
    items = _everything(rest)
    halved = []

    def half(method: str, path: str, more: Any, send: Any) -> Any:
        if path == "transactions/commit" and not halved:
            halved.append(more["json"]["table-changes"])
            more["json"] = {"table-changes": halved[0][:1]}
        return send()

    _changes(rest, monkeypatch, half)
    rest.publish(*items)
    assert len(halved[0]) == 3
    assert _seen(rest) == NEW


def test_half_a_commit_is_undone_if_others_have_moved_main(
    rest: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = _everything(rest)
    moved: list[bool] = []

    def racing(method: str, path: str, more: Any, send: Any) -> Any:
        body = str(more.get("json"))
        if TAG in body and not moved and path != "transactions/commit":
            moved.append(True)
            answer = send()
            monkeypatch.undo()
            rest.write(("s", "b"), 9, branch="main")
            return answer
        if path == "transactions/commit" and not moved:
            more["json"] = {"table-changes": more["json"]["table-changes"][:1]}
            moved.append(True)
            answer = send()
            monkeypatch.undo()
            rest.write(("s", "b"), 9, branch="main")
            return answer
        return send()

    _changes(rest, monkeypatch, racing)
    with pytest.raises(PublishRefused, match=r"s\.b: main: expected snapshot"):
        rest.publish(*items)
    assert moved
    assert _seen(rest) == {**OLD, "b": [1, 9]}
    # The candidates are still on the audit branch.
    assert rest.read("a", BRANCH) == [1, 2]
    assert rest.lake.branches.all()[0].branch == BRANCH
    assert rest.lake.publishing.recover() == []


def test_the_result_of_a_request_without_an_answer_is_checked(
    rest: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = _everything(rest)
    lost: list[str] = []

    def losing(method: str, path: str, more: Any, send: Any) -> Any:
        answer = send()
        if TAG in str(more.get("json")) and "journal" not in path and not lost:
            lost.append(path)
            raise Unanswered("no answer", lost=True)
        return answer

    _changes(rest, monkeypatch, losing)
    receipt = rest.publish(*items)
    assert lost
    assert _seen(rest) == NEW
    assert len(rest.lake.ledger.publish(receipt.publish_id)) == 1


def test_requirements_name_main_and_every_changed_ref(
    rest: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest.table("a", 1)
    item = rest.candidate("a", 2)
    sent: list[Any] = []

    def record(method: str, path: str, more: Any, send: Any) -> Any:
        if "wap_ledger" not in str(more.get("json")) and "requirements" in str(more.get("json")):
            sent.append(more["json"])
        return send()

    _changes(rest, monkeypatch, record)
    receipt = rest.publish(item)
    asserted = {
        one["ref"]: one["snapshot-id"]
        for one in sent[0]["requirements"]
        if one["type"] == "assert-ref-snapshot-id"
    }
    assert asserted == {
        "main": item.base,
        BRANCH: item.head,
        f"wap_base_{BRANCH}": item.base,
        TAG: None,
        f"wap_undone_{receipt.publish_id}": None,
    }


def test_a_view_over_a_view_and_back(rest: Bench) -> None:
    rest.table("a", 1)
    rest.view("v", "select 1 as id")
    rest.publish(rest.side("v"), tag="first")
    first = rest.state(("s", "v"))
    rest.view("v", "select 2 as id")
    side = rest.side("v", first.metadata_location)
    receipt = rest.publish(side, rest.candidate("a", 2), tag="second")
    assert _sql(rest) == "select 2 as id"
    assert rest.state(("s", "v")).uuid == first.uuid
    rest.lake.publishing.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert _sql(rest) == "select 1 as id"
    assert rest.read("a") == [1]


def _sql(rest: Bench) -> str:
    document = rest.lake.store.load(rest.state(("s", "v")).metadata_location)
    return str(md.current_version(document)["representations"][0]["sql"])


@pytest.fixture
def overtaken(rest: Bench) -> tuple[Bench, Any, Any]:
    """A publish, a later one, and another writer; and the arguments that undo all of it."""
    first = rest.publish(*_everything(rest))
    later = rest.publish(rest.candidate("a", 5), tag="later", run_id="later")
    rest.write(("s", "b"), 9, branch="main")
    with rest.lake.catalog.load_table(("s", "b")).update_schema() as update:
        update.union_by_name(pa.schema({"more": pa.string()}))
    rest.lake.catalog.drop_table(("s", "c"))
    rest.table("c", 7)
    undone = [UndonePublish(one.publish_id, one.branch, one.entries) for one in (first, later)]
    arguments = {
        "run_id": RUN,
        "publish_id": first.publish_id,
        "branch": BRANCH,
        "undone": undone,
    }
    return rest, first.entries, arguments


def test_force_undoes_later_changes(overtaken: tuple[Bench, Any, Any]) -> None:
    rest, entries, arguments = overtaken
    uuid = rest.state(("s", "a")).uuid
    with pytest.raises(RollbackRefused):
        rest.lake.publishing.rollback(entries, **arguments)
    rest.lake.publishing.rollback(entries, **arguments, force=True)
    assert _seen(rest) == OLD
    assert [column.name for column in rest.state(("s", "b")).columns] == ["id"]
    assert rest.state(("s", "a")).uuid == uuid
    assert [one.rolled_back for one in rest.lake.ledger.publishes()] == [True, True]
    assert rest.lake.publishing.recover() == []
    # A second call changes nothing.
    before = rest.pointers()
    rest.lake.publishing.rollback(entries, **arguments, force=True)
    assert rest.pointers() == before


def test_the_next_command_completes_an_interrupted_forced_rollback(
    overtaken: tuple[Bench, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rest, entries, arguments = overtaken
    left = [3]

    def dying(method: str, path: str, more: Any, send: Any) -> Any:
        if "wap_ledger" not in path:
            if left[0] == 0:
                raise Died
            left[0] -= 1
        return send()

    with monkeypatch.context() as patch:
        _changes(rest, patch, dying)
        with pytest.raises(Died):
            rest.lake.publishing.rollback(entries, **arguments, force=True)
    assert _seen(rest) != OLD
    told = rest.lake.publishing.recover()
    assert told == [
        "Completed the forced rollback of run 1a2b3c4d, which had not ended: all its tables are "
        "rolled back."
    ]
    assert _seen(rest) == OLD
    assert [one.rolled_back for one in rest.lake.ledger.publishes()] == [True, True]


def _files(rest: Bench) -> list[str]:
    return [one.path for one in rest.lake.store.files.listing(rest.state(("s", "a")).location)]


def _expired(rest: Bench) -> tuple[Any, set[str]]:
    """Return the state of the table after an expiry, and the files that nothing refers to."""
    expiry.expire(rest.lake, ("s", "a"), RUN)
    row = rest.lake.store.backend.get(("s", "a"))
    left = file_references.unreachable(_files(rest), file_references.reachable(rest.lake))
    return rest.lake.store.load(row.location), set(left)


def test_an_expiry_keeps_only_main(rest: Bench) -> None:
    rest.table("a", 1, 2, 3, **{"write.metadata.previous-versions-max": "7"})
    table = rest.lake.catalog.load_table(("s", "a"))
    first = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(first, "old").commit()
    data = {task.file.file_path for task in table.scan().plan_files()}
    rest.lake.catalog.load_table(("s", "a")).delete("id = 2")
    before = _files(rest)
    document, left = _expired(rest)
    main = md.main_of(document)
    assert [one["snapshot-id"] for one in document["snapshots"]] == [main]
    assert list(document["refs"]) == ["main"]
    assert md.properties_of(document)["write.metadata.previous-versions-max"] == "7"
    assert not [key for key in md.properties_of(document) if key.startswith("wap.")]
    # No metadata file in the log has the former snapshots.
    for entry in document["metadata-log"]:
        former = rest.lake.store.reload(entry["metadata-file"])
        assert [one["snapshot-id"] for one in former["snapshots"]] == [main]
    assert {plain_location(path) for path in data} <= {plain_location(path) for path in left}
    assert sum(path.endswith("metadata.json") for path in before) == sum(
        path.endswith("metadata.json") and path in before for path in left
    )
    file_references.delete_files(rest.lake, left)
    assert rest.read("a") == [1, 3]
    rest.lake.catalog.load_table(("s", "a")).append(
        rest.lake.catalog.load_table(("s", "a")).scan().to_arrow()
    )
    assert rest.read("a") == [1, 1, 3, 3]


def test_a_second_expiry_changes_nothing(rest: Bench) -> None:
    rest.table("a", 1, 2)
    rest.lake.catalog.load_table(("s", "a")).delete("id = 2")
    _expired(rest)
    before = rest.pointers()
    assert expiry.expire(rest.lake, ("s", "a"), RUN).snapshots == 0
    assert rest.pointers() == before


@pytest.mark.parametrize("of_the_table", [True, False])
def test_an_expiry_that_died_during_the_rotation_of_the_log_is_completed(
    rest: Bench, monkeypatch: pytest.MonkeyPatch, of_the_table: bool
) -> None:
    rest.table("a", 1, 2)
    rest.lake.catalog.load_table(("s", "a")).delete("id = 2")

    def dying(method: str, path: str, more: Any, send: Any) -> Any:
        answer = send()
        if "wap.log-limit" in str(more.get("json")):
            raise Died
        return answer

    with monkeypatch.context() as patch:
        _changes(rest, patch, dying)
        with pytest.raises(Died):
            expiry.expire(rest.lake, ("s", "a"), RUN)
    assert "wap.log-limit" in rest.state(("s", "a")).properties
    if of_the_table:
        _expired(rest)
    else:
        expiry.end_cuts(rest.lake, RUN)
    left = rest.state(("s", "a")).properties
    assert not [key for key in left if key.startswith(("wap.", "write.metadata"))]
