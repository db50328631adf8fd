"""The ledger: rows in, rows out, in the transaction of the publish."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from sparkwap.catalog.model import LedgerRows, PublishedEntry
from sparkwap.core.caller import Caller, this_actor
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.ledger.ledger import Ledger
from sparkwap.ledger.records import LedgerPublish, ended_otherwise
from sparkwap.ledger.schemas import SCHEMAS
from sparkwap.ledger.tables import ex
from sparkwap.publish.lake import Lake

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(
        "lake",
        {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/warehouse"},
    )
    yield lake
    lake.close()


def node(node_id: str, branch: str = "b", minutes: int = 0, **more: Any) -> dict[str, Any]:
    built_at = NOW + timedelta(minutes=minutes)
    return {"node_id": node_id, "branch": branch, "built_at": built_at, **more}


def test_an_empty_ledger(lake: Lake) -> None:
    assert lake.ledger.branch_history("b").nodes == ()
    assert lake.ledger.runs() == []
    assert lake.ledger.publish("1a2b3c4d") == []


def test_round_trip(lake: Lake) -> None:
    run = {"run_id": "r1", "branch": "b", "started_at": NOW, "outcome": "held"}
    audited = {"model.p.a": "snapshot 1", "model.p.b": "snapshot 2"}
    lake.ledger.append(
        [
            LedgerRows("runs", [run]),
            LedgerRows("nodes", [node("a", candidate_snapshot=2**62)]),
            LedgerRows("tests", [{"test_id": "t", "branch": "b", "audited": audited}]),
        ]
    )
    (found,) = lake.ledger.runs()
    assert {key: found[key] for key in run} == run
    history = lake.ledger.branch_history("b")
    assert history.nodes[0]["candidate_snapshot"] == 2**62
    assert history.tests[0]["audited"] == audited


def test_rows_are_read_once_until_anybody_writes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Lake("lake", lake.properties)
    lake.ledger.append(LedgerRows("nodes", [node("a", status="first")]))
    (row,) = lake.ledger.branch_history("b").nodes
    row["status"] = "changed by a caller"
    loads: list[Any] = []
    load = SqlCatalog.load_table
    monkeypatch.setattr(
        SqlCatalog, "load_table", lambda catalog, name: (loads.append(name), load(catalog, name))[1]
    )
    assert lake.ledger.branch_history("b").nodes[0]["status"] == "first"
    assert loads == []
    other.ledger.append(LedgerRows("nodes", [node("a", minutes=1, status="second")]))
    other.close()
    loads.clear()
    assert lake.ledger.branch_history("b").nodes[0]["status"] == "second"
    assert loads == [(LEDGER_SCHEMA, "nodes")]


def test_branch_history_is_the_latest_of_that_branch(lake: Lake) -> None:
    rows = [
        node("a", minutes=2, status="second"),
        node("a", minutes=1, status="first"),
        node("b", status="only"),
        node("a", branch="other", minutes=9, status="other"),
    ]
    for row in rows:
        lake.ledger.append(LedgerRows("nodes", [row]))
    nodes = lake.ledger.branch_history("b").nodes
    assert [(row["node_id"], row["status"]) for row in nodes] == [("a", "second"), ("b", "only")]


def test_a_discard_ends_the_history_of_a_branch(lake: Lake) -> None:
    lake.ledger.append(LedgerRows("nodes", [node("a")]))
    lake.ensure_schema("s__b", "b")
    lake.branches.discard("b", run_id="r9")
    assert lake.ledger.branch_history("b").nodes == ()
    later = (datetime.now(UTC) - NOW) // timedelta(minutes=1) + 1
    lake.ledger.append(LedgerRows("nodes", [node("c", minutes=later)]))
    assert [row["node_id"] for row in lake.ledger.branch_history("b").nodes] == ["c"]
    assert [(row["run_id"], row["outcome"]) for row in lake.ledger.runs("b")] == [
        ("r9", "discarded")
    ]


def test_a_time_on_a_branch_is_later_than_all_its_rows(lake: Lake) -> None:
    assert lake.ledger.time_on("b") <= datetime.now(UTC)
    far = datetime.now(UTC) + timedelta(days=1)
    lake.ledger.append(LedgerRows("nodes", [{"node_id": "a", "branch": "b", "built_at": far}]))
    assert lake.ledger.time_on("b") > far
    far += timedelta(days=1)
    ended = {"run_id": "r", "branch": "b", "outcome": "published", "ended_at": far}
    lake.ledger.append(LedgerRows("runs", [ended]))
    assert lake.ledger.time_on("b") > far
    far += timedelta(days=1)
    published = {"schema": "s", "name": "a", "branch": "b", "action": "publish"}
    lake.ledger.append(LedgerRows("publishes", [{**published, "published_at": far}]))
    assert lake.ledger.time_on("b") > far
    assert lake.ledger.time_on("other") <= datetime.now(UTC)


def test_later_outcomes_of_ended_runs() -> None:
    def run(
        run_id: str, minutes: int, outcome: str, publish_id: str | None = None
    ) -> dict[str, Any]:
        ended = NOW + timedelta(minutes=minutes)
        return {"run_id": run_id, "branch": "pr", "ended_at": ended, "outcome": outcome,
                "publish_id": publish_id}  # fmt: skip

    entries = tuple(PublishedEntry(("s", name), "branch", 1, None, 2, "m") for name in "ab")
    rows = [run("held", 1, "held"), run("gone", 2, "discarded"), run("later", 3, "rejected"),
            run("live", 0, "published", "p")]  # fmt: skip
    assert ended_otherwise(rows, []) == {"held": "discarded", "gone": "discarded"}
    swept = {**run("live", 4, "discarded"), "branch": "expired"}
    # A machine that was suspended counted as dead, and has published after all.
    died = run("live", 0, "died")
    found = ended_otherwise([*rows, swept, died], [])
    assert found == {"held": "discarded", "gone": "discarded"}
    for left, told in ((entries, None), (entries[:1], "partly rolled back"), ((), "rolled back")):
        publish = LedgerPublish("p", "live", "pr", NOW, entries, left)
        assert ended_otherwise(rows, [publish]).get("live") == told


def test_the_end_of_a_run_is_not_told_by_its_probe_and_sweeps(lake: Lake) -> None:
    def run(command: str, outcome: str, branch: str) -> dict[str, Any]:
        return {"run_id": "r", "command": command, "outcome": outcome, "branch": branch}

    lake.ledger.append(LedgerRows("runs", [run("probe", "safe", "wap_probe")]))
    assert lake.ledger.of_run("runs", "r") == []
    rows = [run("build", "held", "pr"), run("wap_sweep", "discarded", "expired")]
    lake.ledger.append(LedgerRows("runs", rows))
    assert [row["branch"] for row in lake.ledger.of_run("runs", "r")] == ["pr"]


def test_runs_newest_first(lake: Lake) -> None:
    rows = [{"run_id": str(n), "started_at": NOW + timedelta(hours=n)} for n in range(3)]
    lake.ledger.append(LedgerRows("runs", rows))
    assert [row["run_id"] for row in lake.ledger.runs(limit=2)] == ["2", "1"]


def test_naive_times_are_utc(lake: Lake) -> None:
    lake.ledger.append(LedgerRows("runs", [{"started_at": datetime(2026, 1, 1, 12)}]))
    assert lake.ledger.runs()[0]["started_at"] == datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_errors_of_unknown_names_list_the_known_ones(lake: Lake) -> None:
    with pytest.raises(ValueError, match="nodes"):
        lake.ledger.append(LedgerRows("models", [{"a": 1}]))
    with pytest.raises(ValueError, match="run_id"):
        lake.ledger.append(LedgerRows("runs", [{"runid": "x"}]))
    with pytest.raises(ValueError, match="publishes"):
        lake.publishing.publish(
            [],
            run_id="r",
            tag="t",
            tag_max_age_ms=None,
            branch="b",
            appends=[LedgerRows("publishes", [{"run_id": "x"}])],
        )


def test_first_use_by_many_at_once(lake: Lake) -> None:
    failures: list[Exception] = []

    def use(number: int) -> None:
        try:
            Ledger(lake).append(LedgerRows("runs", [{"run_id": str(number)}]))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(row["run_id"] for row in lake.ledger.runs()) == ["0", "1", "2", "3"]


def test_rows_have_their_caller(lake: Lake) -> None:
    called = Lake("lake", lake.properties, Caller("anna", "ci-7", None, "shop", "wap_publish"))
    run, publish = {"run_id": "r1", "command": "build"}, {"publish_id": "p", "run_id": "r1"}
    called.ledger.append([LedgerRows("runs", [run]), LedgerRows("publishes", [publish])])
    called.ledger.append(LedgerRows("nodes", [node("a")]))
    (found,) = lake.ledger.rows("publishes")
    assert [found[key] for key in ("actor", "host", "catalog_user", "project", "command")] == [
        "anna", "ci-7", None, "shop", "wap_publish",
    ]  # fmt: skip
    (found,) = lake.ledger.runs()
    assert (found["actor"], found["project"], found["command"]) == ("anna", "shop", "build")
    called.close()
    # That of this process, if nobody gives one.
    lake.ledger.append(LedgerRows("runs", [{"run_id": "r2"}]))
    (found,) = lake.ledger.of_run("runs", "r2")
    assert (found["actor"], found["host"]) == (this_actor(), socket.gethostname())


def test_publishes_of_an_older_version_have_no_caller(lake: Lake) -> None:
    lake.ensure_schema(LEDGER_SCHEMA)
    new = ("actor", "host", "catalog_user", "project", "command")
    fields = [field for field in SCHEMAS["publishes"] if field.name not in new]
    table = lake.catalog.create_table((LEDGER_SCHEMA, "publishes"), pa.schema(fields))
    old = {"publish_id": "1a2b3c4d", "published_at": NOW, "action": "publish", "how": "branch"}
    old |= {"run_id": "r", "branch": "b", "schema": "s", "name": "a"}
    table.append(pa.Table.from_pylist([old], schema=pa.schema(fields)))
    assert [one.by for one in lake.ledger.publishes()] == [""]
    lake.ledger.append(LedgerRows("publishes", [{**old, "publish_id": "5e6f7a8b"}]))
    by = {one.publish_id: one.by for one in lake.ledger.publishes()}
    assert by == {"1a2b3c4d": "", "5e6f7a8b": f"by {this_actor()} on {socket.gethostname()}"}


def test_a_ledger_of_an_older_version_gets_its_new_columns(lake: Lake) -> None:
    lake.ensure_schema(LEDGER_SCHEMA)
    schema = SCHEMAS["nodes"].remove(SCHEMAS["nodes"].get_field_index("base_metadata"))
    lake.catalog.create_table((LEDGER_SCHEMA, "nodes"), schema)
    lake.ledger.append(LedgerRows("nodes", [node("a", base_metadata="/x")]))
    assert lake.ledger.branch_history("b").nodes[0]["base_metadata"] == "/x"


def test_reads_of_a_ledger_of_an_older_version(lake: Lake) -> None:
    """A command that only reads adds no columns."""
    lake.ledger.append(LedgerRows("nodes", [node("model.p.a", run_id="r", verdict="published")]))
    with lake.catalog.load_table((LEDGER_SCHEMA, "nodes")).update_schema() as update:
        for column in ("named", "candidate_metadata"):
            update.delete_column(column)
    (row,) = lake.ledger.read("nodes", columns=("run_id", "named"))
    assert row == {"run_id": "r", "named": None}
    assert lake.ledger.rows("nodes")[0]["named"] is None
    assert lake.ledger.read("nodes", ex.NotNull("named")) == []
    published = ex.EqualTo("verdict", "published")
    assert lake.ledger.read("nodes", ex.And(published, ex.NotNull("named"))) == []
    lake.ledger.owners()


@pytest.mark.parametrize("suffix", [".parquet", "-m0.avro"])
@pytest.mark.parametrize("content", [b"", None], ids=["empty", "missing"])
def test_a_damaged_file_of_the_ledger_is_one_message(
    lake: Lake, tmp_path: Path, suffix: str, content: bytes | None
) -> None:
    lake.ledger.append(LedgerRows("runs", [{"run_id": "r"}]))
    (damaged,) = (tmp_path / "warehouse/wap_ledger/runs").rglob(f"*{suffix}")
    damaged.unlink()
    if content is not None:
        damaged.write_bytes(content)
    found = Lake("lake", lake.properties)
    with pytest.raises(
        CatalogError, match=r"wap_ledger\.runs cannot be read.*rollback_to_snapshot"
    ):
        found.ledger.rows("runs")
    found.close()


def test_metadata_does_not_grow_without_bound(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkwap.ledger.append._KEPT_SNAPSHOTS", 5)
    for number in range(30):
        lake.ledger.append(LedgerRows("runs", [{"run_id": f"{number:02}", "started_at": NOW}]))
    assert len(lake.ledger.runs()) == 30
    table = lake.catalog.load_table((LEDGER_SCHEMA, "runs"))
    assert len(table.metadata.snapshots) == 5
    folder = Path(table.location()) / "metadata"
    assert len(list(folder.glob("*.metadata.json"))) <= 12
    assert len(table.current_snapshot().manifests(table.io)) <= 20  # type: ignore[union-attr]


def test_spark_reads_the_tables_after_a_clock_was_set_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg writes the clock's time; Spark refuses a log that goes back by a minute."""
    clock = time.time
    for number, hours in enumerate((0, -2, -1)):
        monkeypatch.setattr("time.time", lambda hours=hours: clock() + 3600 * hours)
        lake.ledger.append(LedgerRows("runs", [{"run_id": str(number), "started_at": NOW}]))
    metadata = lake.catalog.load_table((LEDGER_SCHEMA, "runs")).metadata
    times = [entry.timestamp_ms for entry in metadata.snapshot_log]
    assert len(times) == 3
    assert times == sorted(times)
    assert metadata.last_updated_ms >= times[-1]


def test_a_publish_is_found_by_publish_id_and_run_id(lake: Lake) -> None:
    lake.catalog  # noqa: B018
    row = {
        "publish_id": "aaaaaaaa-1",
        "run_id": "bbbbbbbb-1",
        "branch": "b",
        "schema": "s",
        "name": "t",
        "how": "branch",
        "base_snapshot": 1,
        "candidate_snapshot": 2,
        "published_metadata": "/x",
        "published_at": NOW,
        "action": "publish",
    }
    lake.ledger.append(LedgerRows("publishes", [row]))
    for some_id in ("aaaaaaaa", "bbbbbbbb", "bbbbbbbb-1"):
        (found,) = lake.ledger.publish(some_id)
        assert (found.entries[0].identifier, found.rolled_back) == (("s", "t"), False)
    undo = {**row, "run_id": "cccccccc-1", "action": "rollback"}
    lake.ledger.append(LedgerRows("publishes", [undo]))
    assert lake.ledger.publish("bbbbbbbb")[0].rolled_back
    assert lake.ledger.publish("aaaa") == []


def test_a_publish_days_after_its_audit_counts_the_tests(lake: Lake) -> None:
    later = {"minutes": 3 * 24 * 60, "verdict": "published", "run_id": "r2"}
    table: dict[str, Any] = {"schema": "s", "name": "a", "candidate_snapshot": 7}
    test = {"test_id": "t", "audited": {"model.p.a": "7"}, "executed_at": NOW}
    lake.ledger.append(
        [
            LedgerRows(
                "nodes",
                [
                    node("model.p.a", verdict="held", run_id="r1", **table),
                    node("model.p.a", **later, **table),
                ],
            ),
            LedgerRows("tests", [test]),
        ]
    )
    read: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        whole = lake.ledger.read
        patch.setattr(lake.ledger, "read", lambda name, *of: read.append(name) or whole(name, *of))
        found = lake.ledger.tests_of({"model.p.a": ("s", "a")})
    assert [row["test_id"] for row in found] == ["t"]
    assert read.count("nodes") == 1
    (of_others,) = lake.ledger.tests_of_others({("s", "a"): "model.q.a"}).values()
    assert [row["test_id"] for row in of_others] == ["t"]
