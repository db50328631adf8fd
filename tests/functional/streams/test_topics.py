"""Raw models read each message of a Kafka topic once, in runs, and lose none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.catalogs import RunningCatalog

from sparkwap import landing
from sparkwap.core.dbt_cli import LakePlace
from sparkwap.landing.raw_models import RawModel
from sparkwap.page.raw_tables import topic_lags
from sparkwap.server import CATALOG_NAME, ServerConfig

from .conftest import MakeStreams, stream

if TYPE_CHECKING:
    from helpers.kafka import Broker
    from helpers.landing import LandingProject


def send(broker: Broker, topic: str, *rows: dict[str, Any], **more: Any) -> None:
    """Send rows as JSON, each with its ``id`` as its key."""
    broker.send(
        topic, [json.dumps(row) for row in rows], keys=[str(row["id"]) for row in rows], **more
    )


def states(project: LandingProject, name: str) -> dict[int, str]:
    """The live state of each key."""
    live = [row for row in project.rows(f"cdc_{name}") if row["row_hash"]]
    return {int(row["id"]): row["state"] for row in live}


@pytest.mark.smoke
def test_each_message_is_read_once(broker: Broker, make_streams: MakeStreams) -> None:
    broker.create("orders", partitions=2)
    project = make_streams({"orders": stream("orders", load="upserts")})
    send(broker, "orders", *({"id": i, "state": "new"} for i in range(20)))
    project.build().succeeded()
    assert states(project, "orders") == dict.fromkeys(range(20), "new")

    send(broker, "orders", {"id": 3, "state": "paid"}, {"id": 4, "state": "paid"})
    broker.send("orders", [None], keys=["5"])
    project.build().succeeded()
    expected = dict.fromkeys(range(20), "new") | {3: "paid", 4: "paid"}
    del expected[5]
    assert states(project, "orders") == expected

    project.build().succeeded()
    rows = project.rows("raw_orders", "row")
    assert len(rows) == len({(row["_file_path"].split("/")[2], row["_row"]) for row in rows}) == 23
    assert {row["_op"] for row in rows} == {"update", "delete"}
    assert len({row["_batch"] for row in rows}) == 2


def test_a_message_without_a_key_is_bad_where_offsets_order_several_partitions(
    broker: Broker, make_streams: MakeStreams
) -> None:
    broker.create("loose", partitions=2)
    project = make_streams({"loose": stream("loose", load="upserts", threshold=1)})
    send(broker, "loose", {"id": 1, "state": "a"})
    broker.send("loose", ['{"id": 1, "state": "b"}'], partition=1)
    project.build().succeeded()
    assert states(project, "loose") == {1: "a"}
    (bad,) = project.rows("raw_loose", "bad")
    assert bad["_error"].startswith("the message has no key")
    project.build("-s", "raw_loose", landing_replay=True).succeeded()
    assert len(project.rows("raw_loose", "row")) == 1


def test_a_message_keeps_its_key_its_time_and_its_headers(
    broker: Broker, make_streams: MakeStreams
) -> None:
    broker.create("readings")
    project = make_streams({"readings": stream("readings")}, bare=["readings"])
    broker.send(
        "readings",
        ['{"id": 1, "state": "1.10"}'],
        keys=["room 7"],
        headers=[("trace", b"a"), ("trace", b"\xff")],
        timestamp=1_700_000_000_123,
    )
    project.build("-s", "raw_readings").succeeded()
    (row,) = project.rows("raw_readings", "row")
    assert row["_message_key"] == "room 7"
    assert row["_message_time"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert json.loads(row["_message_headers"]) == [
        {"key": "trace", "value": "a"},
        {"key": "trace", "value": "base64:/w=="},
    ]
    assert (row["_op"], row["state"], row["_row"]) == ("insert", "1.10", 0)
    assert row["_event_time"] == row["_message_time"]
    assert row["_sequence"] == "0" * 19
    (file,) = project.rows("raw_readings", "file")
    assert (file["_file_rows"], file["_file_columns"]) == (1, ["id", "state"])


def test_the_lag_of_a_topic_is_known(
    broker: Broker, make_streams: MakeStreams, config: ServerConfig, running: RunningCatalog
) -> None:
    broker.create("lags", partitions=2)
    project = make_streams({"lags": stream("lags")}, bare=["lags"])
    place = LakePlace(CATALOG_NAME, running.properties(config))
    entry = landing.parse_entry(project.entries["lags"])
    table = (project.project.schema, "raw_lags")
    model = RawModel("raw_lags", table, Path(), entry, {"bootstrap.servers": broker.bootstrap})

    def lag() -> tuple[datetime | None, int | None]:
        (found,) = topic_lags(place, [model])
        assert found.problem == ""
        return found.newest, found.unread

    assert lag() == (None, 0)
    broker.send("lags", ['{"id": 1}'], timestamp=1_700_000_000_000)
    broker.send("lags", ['{"id": 2}'], timestamp=1_600_000_000_000, partition=1)
    assert lag() == (None, 2)
    project.build("-s", "raw_lags").succeeded()
    published = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert lag() == (published, 0)
    broker.send("lags", ['{"id": 3}'], timestamp=1_700_000_001_000)
    assert lag() == (published, 1)
    (unknown,) = topic_lags(place, [replace(model, kafka={"bootstrap.servers": "127.0.0.1:9"})])
    assert (unknown.newest, unknown.unread) == (published, None)
    assert "did not say what the topic 'lags' has" in unknown.problem


def test_a_message_that_cannot_be_read_goes_to_quarantine_and_back(
    broker: Broker, make_streams: MakeStreams
) -> None:
    broker.create("payments")
    entry = stream("payments", load="upserts", threshold=9)
    project = make_streams({"payments": entry})
    send(broker, "payments", {"id": 1, "state": "a"}, {"id": "x", "state": "b"})
    broker.send("payments", ["{", b"\xff\xfe", ""], keys=["2", "3", "4"])
    broker.send("payments", [None, '{"id": 9, "state": "late"}'], keys=['{"nr": 1}', "9"])
    project.build().succeeded()
    bad = {row["line"]: row["reason"] for row in project.rows("quarantine_payments")}
    assert bad == {
        1: "id is not a bigint: x",
        2: "not a JSON object",
        3: "not a JSON object",
        4: "not a JSON object",
        5: "key id is missing",
    }
    raw = {row["_row"]: row["_raw"] for row in project.rows("raw_payments", "bad")}
    assert raw[3] == "base64://4="
    assert states(project, "payments") == {1: "a", 9: "late"}

    project.entries["payments"] = {**entry, "renames": {"nr": "id"}}
    project.build(landing_replay="true").succeeded()
    assert {row["line"] for row in project.rows("quarantine_payments")} == {1, 2, 3, 4}
    assert states(project, "payments") == {9: "late"}, "the deletion of key 1 is replayed"


def test_keys_of_tombstones_are_plain_or_json(broker: Broker, make_streams: MakeStreams) -> None:
    broker.create("codes")
    columns = {"id": "string", "state": "string"}
    project = make_streams({"codes": stream("codes", load="upserts", columns=columns)})
    ids = ["007", "1.10", "a b", "{x", 'q"', "é", "p", "json", "null"]
    send(broker, "codes", *({"id": i, "state": "new"} for i in [*ids, "stays"]))
    keys = ["007", "1.10", "a b", '{"id": "{x"}', 'q"', '"é"', "json", "null"]
    with_schema = '{"schema": {"type": "string"}, "payload": "p"}'
    broker.send("codes", [None] * 9, keys=[*keys, with_schema])
    project.build().succeeded()
    live = {row["id"] for row in project.rows("cdc_codes") if row["row_hash"]}
    assert live == {"stays"}
    deleted = [row["id"] for row in project.rows("raw_codes", "row") if row["_op"] == "delete"]
    assert sorted(deleted) == sorted(ids)


def test_what_a_held_run_has_read_is_read_again(broker: Broker, make_streams: MakeStreams) -> None:
    broker.create("stock")
    project = make_streams({"stock": stream("stock", load="upserts")})
    send(broker, "stock", {"id": 1, "state": "a"})
    project.build().succeeded()
    send(broker, "stock", {"id": "?", "state": "b"}, {"id": 2, "state": "c"})
    held = project.build()
    assert held.verdict("raw_stock") == "rejected"
    assert states(project, "stock") == {1: "a"}
    assert len(project.rows("raw_stock", "row")) == 1

    send(broker, "stock", {"id": 3, "state": "d"})
    project.entries["stock"]["threshold"] = 1
    project.build().succeeded()
    assert states(project, "stock") == {1: "a", 2: "c", 3: "d"}
    offsets = [row["_row"] for row in project.rows("raw_stock") if row["_row"] is not None]
    assert sorted(offsets) == [0, 1, 2, 3]


def test_only_committed_transactions_are_read(broker: Broker, make_streams: MakeStreams) -> None:
    broker.create("ledger")
    project = make_streams({"ledger": stream("ledger", load="upserts")}, bare=["ledger"])
    broker.send_in_transaction("ledger", ['{"id": 1, "state": "a"}'], keys=["1"])
    broker.send_in_transaction("ledger", ['{"id": 1, "state": "x"}'], keys=["1"], commit=False)
    broker.send_in_transaction("ledger", ['{"id": 2, "state": "b"}'], keys=["2"])
    project.build().succeeded()
    assert states(project, "ledger") == {1: "a", 2: "b"}
    send(broker, "ledger", {"id": 3, "state": "c"})
    project.build().succeeded()
    assert states(project, "ledger") == {1: "a", 2: "b", 3: "c"}
    assert len(project.rows("raw_ledger", "row")) == 3


def test_deleted_messages_are_an_error_until_they_are_skipped(
    broker: Broker, make_streams: MakeStreams
) -> None:
    broker.create("clicks")
    project = make_streams({"clicks": stream("clicks", load="upserts")})
    send(broker, "clicks", {"id": 1, "state": "a"})
    project.build().succeeded()
    send(broker, "clicks", {"id": 2, "state": "b"}, {"id": 3, "state": "c"})
    broker.delete_records("clicks", 0, 2)
    failed = project.build().failed()
    assert "partition 0: 1 message from offset 1 on, deleted before it was read" in failed.text
    skip = re.search(r"skip_to: \{([\w-]{22}): \{0: 2\}\}", failed.text)
    assert skip is not None, failed.text
    assert states(project, "clicks") == {1: "a"}

    project.entries["clicks"]["skip_to"] = {skip[1]: {0: 2}}
    project.build().succeeded()
    assert states(project, "clicks") == {1: "a", 3: "c"}


def test_a_topic_that_was_created_again_is_an_error_until_it_is_named(
    broker: Broker, make_streams: MakeStreams
) -> None:
    broker.create("visits")
    order = {"kafka.timestamp": "bigint", "kafka.offset": "bigint"}
    project = make_streams({"visits": stream("visits", load="upserts", sequence=order)})
    send(broker, "visits", {"id": 1, "state": "a"})
    project.build().succeeded()
    broker.delete("visits")
    broker.create("visits")
    send(broker, "visits", {"id": 1, "state": "b"}, {"id": 2, "state": "c"})
    failed = project.build().failed()
    assert "The topic 'visits' is not the one that was read before" in failed.text
    assert states(project, "visits") == {1: "a"}

    new = failed.text.partition("`topic_id: ")[2][:22]
    project.entries["visits"]["topic_id"] = new
    project.build().succeeded()
    assert states(project, "visits") == {1: "b", 2: "c"}


def test_an_unknown_topic_and_a_silent_broker_are_one_clear_error(
    broker: Broker, make_streams: MakeStreams
) -> None:
    project = make_streams({"nothing": stream("nothing")}, bare=["nothing"])
    failed = project.build("-s", "raw_nothing").failed()
    assert f"The broker {broker.bootstrap} has no topic 'nothing'" in failed.text
    project.broker = "127.0.0.1:9"
    failed = project.build("-s", "raw_nothing").failed()
    assert "The broker 127.0.0.1:9 did not say what the topic 'nothing' has" in failed.text
    assert "the messages stay in Kafka" in failed.text


@pytest.mark.parametrize("action", ["delete", "clear"])
def test_an_erasure_reaches_keys_and_headers(
    broker: Broker, make_streams: MakeStreams, action: str
) -> None:
    topic = f"people_{action}"
    broker.create(topic)
    project = make_streams({topic: stream(topic, load="upserts", threshold=9)}, bare=[topic])
    send(broker, topic, {"id": 4711, "state": "a"}, {"id": 4712, "state": "b"})
    broker.send(topic, [None, "{"], keys=['{"nr": 4711}', "4711"])
    broker.send(topic, ['{"id": 4712, "state": "c"}'], headers=[("by", "user 4711")])
    mark = {"name": "id", "config": {"meta": {"subject": "person", "on_erase": action}}}
    project.write()
    marked = json.loads((project.project.folder / "models/models.yml").read_text())
    for model in marked["models"]:
        model["columns"] = [mark]
    project.project.write({"models/models.yml": json.dumps(marked)})
    project.project.dbt("build").succeeded()
    before = len(project.rows(f"raw_{topic}"))
    erased = project.project.operation(
        "wap_erase", subject="person", keys=["4711"], confirm=True
    ).succeeded()
    assert "none holds the subject" in erased.text
    rows = project.rows(f"raw_{topic}")
    assert [row for row in rows if "4711" in repr(row)] == []
    assert len(rows) == before - (4 if action == "delete" else 2)
    assert {row["id"] for row in project.rows(f"cdc_{topic}") if row["id"]} == {"4712"}
    # Its position is as it was: nothing is read again.
    project.project.dbt("build").succeeded()
    assert len(project.rows(f"raw_{topic}")) == len(rows)
