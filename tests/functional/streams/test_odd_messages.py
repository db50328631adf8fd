"""Odd messages and odd orders of commands: bad rows are in quarantine, and nothing is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .conftest import MakeStreams, stream

if TYPE_CHECKING:
    from helpers.kafka import Broker
    from helpers.landing import LandingProject


def live(project: LandingProject, name: str) -> dict[str, str]:
    return {row["id"]: row["state"] for row in project.rows(f"cdc_{name}") if row["row_hash"]}


def test_what_is_not_one_plain_object_is_in_quarantine(
    broker: Broker, make_streams: MakeStreams
) -> None:
    broker.create("odd")
    project = make_streams({"odd": stream("odd", load="upserts", threshold=99)})
    values = [
        '{"id": 1}\n{"id": 2}',
        '{"id": 3}{"id": 4}',
        '{"id": 5} x',
        '{"id": 5}] [',
        '{"id": 5}} {',
        ' {"id": 6, "state": "gone"} ',
        '{"schema": {"type": "struct"}, "payload": {"id": 7, "state": 7.10}}',
        '{"id": "011", "state": "a"}',
        '{"State": "b", "id": 12}',
        '{"": 1, "id": 13}',
        '{"id": 14, "state": "gone too"}',
        '{"id": 15, "state": "c", "more": "d"}',
    ]
    broker.send("odd", values)
    keys = ["001", ' {"id":14}', b"\xff\xfe", "6"]
    broker.send("odd", [None, None, None, '{"schema": {}, "payload": null}'], keys=keys)
    project.build().succeeded()
    assert live(project, "odd") == {"7": "7.10", "15": "c"}
    reasons = {row["line"]: row["reason"] for row in project.rows("quarantine_odd")}
    name = "a column has a name that the table cannot have, or one that differs in case only"
    assert reasons == {
        **dict.fromkeys(range(5), "not a JSON object"),
        7: "key id is not written as a plain bigint: 011",
        8: name,
        9: name,
        12: "key id is not written as a plain bigint: 001",
        14: "not a JSON object",
    }
    assert [row["more"] for row in project.rows("raw_odd", "row") if row["id"] == "15"] == ["d"]


def test_without_a_value_a_change_is_no_row(broker: Broker, make_streams: MakeStreams) -> None:
    broker.create("changed")
    codes = {"I": "insert", "D": "delete"}
    entry = stream("changed", load="changes", operation="op", codes=codes)
    project = make_streams({"changed": entry})
    rows = ['{"op": "I", "id": 1, "state": "a"}', '{"op": "D", "id": 1}', None]
    broker.send("changed", rows, keys=["1", "1", "1"])
    project.build().succeeded()
    assert live(project, "changed") == {}
    (skipped,) = project.rows("raw_changed", "skipped")
    assert (skipped["_row"], skipped["_error"]) == (2, "tombstone")


def test_a_state_takes_what_is_read_after_a_rollback_of_its_log(
    broker: Broker, make_streams: MakeStreams
) -> None:
    broker.create("back")
    project = make_streams({"back": stream("back", load="upserts")}, bare=["back"])
    broker.send("back", ['{"id": 1, "state": "one"}'])
    project.build().succeeded()
    broker.send("back", ['{"id": 1, "state": "two"}'])
    raw = project.build("-s", "raw_back").succeeded()
    project.build("-s", "cdc_back").succeeded()
    project.project.operation("wap_rollback", run=raw.run_id).succeeded()
    broker.send("back", ['{"id": 1, "state": "three"}', '{"id": 2, "state": "new"}'])
    project.build().succeeded()
    assert live(project, "back") == {"1": "three", "2": "new"}
    assert [row["_row"] for row in project.rows("raw_back", "row")] == [0, 1, 2, 3]


def test_a_full_refresh_loses_nothing(broker: Broker, make_streams: MakeStreams) -> None:
    broker.create("fresh")
    project = make_streams({"fresh": stream("fresh", load="upserts")}, bare=["fresh"])
    broker.send("fresh", ['{"id": 1, "state": "a"}', '{"id": 2, "state": "b"}'])
    project.build().succeeded()
    project.build("--full-refresh").succeeded()
    assert live(project, "fresh") == {"1": "a", "2": "b"}
    broker.delete_records("fresh", 0, 1)
    refused = project.build("--full-refresh").failed()
    assert "A full refresh would lose rows: the log of the topic 'fresh'" in refused.text
    assert live(project, "fresh") == {"1": "a", "2": "b"}
    broker.send("fresh", ['{"id": 3, "state": "c"}'])
    project.build().succeeded()
    assert live(project, "fresh") == {"1": "a", "2": "b", "3": "c"}


def test_an_erasure_reads_what_is_not_utf8(broker: Broker, make_streams: MakeStreams) -> None:
    broker.create("binary")
    project = make_streams({"binary": stream("binary", load="upserts", threshold=9)})
    broker.send("binary", [b"\xff anna@example.com", '{"id": 1}'], headers=[("by", b"\xfe 1")])
    project.write()
    models = json.loads((project.project.folder / "models/models.yml").read_text())
    for model in models["models"]:
        model["columns"] = [{"name": "id", "config": {"meta": {"subject": "person"}}}]
    project.project.write({"models/models.yml": json.dumps(models)})
    project.project.dbt("build").succeeded()
    (bad,) = project.rows("raw_binary", "bad")
    assert bad["_raw"].startswith("base64:")
    erased = project.project.operation(
        "wap_erase", subject="person", keys=["anna@example.com"], confirm=True
    ).succeeded()
    assert "none holds the subject" in erased.text
    assert project.rows("raw_binary", "bad") == []
    assert project.rows("quarantine_binary") == []


def test_a_reused_log_still_gets_new_messages(broker: Broker, make_streams: MakeStreams) -> None:
    broker.create("reused")
    project = make_streams({"reused": stream("reused", load="upserts")}, bare=["reused"])
    broker.send("reused", ['{"id": 1, "state": "a"}'])
    project.build().succeeded()
    unchanged = project.build(wap_reuse=True).succeeded()
    assert "reused" in unchanged.text.replace("raw_reused", "").replace("cdc_reused", "")
    broker.send("reused", ['{"id": 1, "state": "b"}'])
    project.build(wap_reuse=True).succeeded()
    assert live(project, "reused") == {"1": "b"}
