"""What of a Kafka topic a run reads, by what its log has and what the broker has."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.core import errors as core_errors
from sparkwap.core.errors import ConfigError
from sparkwap.landing import Entry, LandingError, drift, kafka, parse_entry, reading
from sparkwap.landing.formats.base import Group
from sparkwap.landing.log_state import NOTHING
from sparkwap.landing.topic import (
    Known,
    Range,
    TopicState,
    known_of,
    needs_keys,
    read_name,
    unread_ranges,
)

ID, OTHER = "a" * 22, "Zz-_" * 5 + "Zz"
STREAM: dict[str, Any] = {
    "entity": "orders",
    "kind": "stream",
    "format": "json",
    "topic": "shop.orders",
    "key": ["id"],
    "columns": {"id": "bigint", "state": "string"},
}


def entry(**settings: Any) -> Entry:
    return parse_entry({**STREAM, **settings})


def read(known: dict[int, int], state: dict[int, tuple[int, int]], **settings: Any) -> list[Any]:
    at = {(ID, partition): offset for partition, offset in known.items()}
    ranges = unread_ranges(entry(**settings), Known(at), TopicState(ID, state))
    return [(r.partition, r.first, r.next) for r in ranges]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 10**18), st.integers(0, 10**6)), max_size=9
    )
)
def test_a_position_is_the_end_of_the_ranges_in_the_log(pieces: list[tuple[int, int, int]]) -> None:
    ranges = [Range("shop.orders", ID, part, first, first + more) for part, first, more in pieces]
    names = [one.name for one in ranges]
    assert [read_name(name) for name in names] == ranges
    assert sorted(ranges, key=lambda r: (r.partition, r.first, r.next)) == [
        read_name(name) for name in sorted(names)
    ]
    others = ["landing/a.csv", Range("other", ID, 0, 0, 9).name]
    found = known_of([*others, *names], "shop.orders")
    assert found.others and not known_of(names, "shop.orders").others
    assert found.positions == {
        (ID, part): max(r.next for r in ranges if r.partition == part)
        for part in {r.partition for r in ranges}
    }


@given(
    st.dictionaries(
        st.integers(0, 4), st.lists(st.integers(0, 50), min_size=3, max_size=3).map(sorted)
    )
)
def test_what_is_read_joins_what_was_read(offsets: dict[int, list[int]]) -> None:
    state = {p: (oldest, end) for p, (oldest, _, end) in offsets.items()}
    known = {p: at for p, (_, at, _) in offsets.items() if at % 2}
    lost = any(oldest > 0 for p, (oldest, _) in state.items() if known and p not in known)
    if lost:
        with pytest.raises(LandingError, match=r"deleted before (it was|they were) read"):
            read(known, state)
        return
    assert read(known, state) == [
        (p, known.get(p, state[p][0]), end)
        for p, (_, _, end) in sorted(offsets.items())
        if p not in known or known[p] < end
    ]


def test_a_new_topic_is_read_from_its_oldest_message() -> None:
    assert read({}, {0: (0, 5), 1: (7, 9), 2: (3, 3)}) == [(0, 0, 5), (1, 7, 9), (2, 3, 3)]


def test_a_new_partition_is_read_whole() -> None:
    assert read({0: 5}, {0: (0, 5), 1: (0, 2), 2: (0, 0)}) == [(1, 0, 2), (2, 0, 0)]


def test_messages_of_a_new_partition_that_were_deleted_are_missing() -> None:
    with pytest.raises(
        LandingError, match=rf"partition 1: 4 messages .*skip_to: \{{{ID}: \{{1: 4\}}\}}"
    ):
        read({0: 5}, {0: (0, 5), 1: (4, 6)})


@pytest.mark.parametrize(
    ("known", "state", "told"),
    [
        ({0: 5}, {0: (7, 9)}, "partition 0: 2 messages from offset 5 on, deleted before they were"),
        (
            {0: 5},
            {0: (0, 4)},
            "the log has read up to offset 5, but the partition ends at offset 4",
        ),
        ({0: 5, 1: 0}, {0: (0, 5)}, "partition 1 is gone.*Restore the topic"),
    ],
)
def test_missing_messages_are_an_error(
    known: dict[int, int], state: dict[int, tuple[int, int]], told: str
) -> None:
    with pytest.raises(LandingError, match=told) as error:
        read(known, state)
    assert "Nothing was read; main is as it was" in str(error.value)


def test_the_error_names_the_setting_that_goes_on() -> None:
    with pytest.raises(LandingError, match=rf"skip_to: \{{{ID}: \{{0: 7\}}\}}"):
        read({0: 5}, {0: (7, 9)})
    assert skipping({0: 5}, {0: (7, 9)}, {0: 7}) == [(0, 7, 9)]
    assert skipping({0: 8}, {0: (7, 9)}, {0: 7}) == [(0, 8, 9)], "a skip happens once"
    assert skipping({0: 5}, {0: (0, 9)}, {0: 8}) == [(0, 8, 9)], "past a message"
    assert skipping({0: 5}, {0: (0, 9)}, {0: 9}) == [], "past all messages"
    with pytest.raises(LandingError, match=r"skip_to: .*\{0: 100, 1: 4\}"):
        skipping({0: 5, 1: 0}, {0: (80, 200), 1: (4, 9)}, {0: 100})


def skipping(
    known: dict[int, int], state: dict[int, tuple[int, int]], skip_to: dict[int, int]
) -> list[Any]:
    return read(known, state, skip_to={ID: skip_to})


def test_a_skip_counts_in_the_first_run_and_in_a_new_partition() -> None:
    assert skipping({}, {0: (3, 9)}, {0: 5}) == [(0, 5, 9)]
    assert skipping({0: 5}, {0: (0, 5), 1: (0, 9)}, {1: 5}) == [(1, 5, 9)]


@pytest.mark.parametrize("known", [{}, {0: 5}])
def test_a_skip_past_the_end_is_an_error(known: dict[int, int]) -> None:
    with pytest.raises(LandingError, match=r"partition 0 to offset 10, and it ends at 9.*Correct"):
        skipping(known, {0: (0, 9)}, {0: 10})
    with pytest.raises(LandingError, match="partition 1 to offset 0, which is not there"):
        skipping(known, {0: (0, 9)}, {1: 0})
    assert skipping({0: 15}, {0: (0, 20)}, {0: 12}) == [(0, 15, 20)]


def test_a_skip_is_of_one_topic() -> None:
    order = {"kafka.timestamp": "bigint", "kafka.offset": "bigint"}
    again = entry(topic_id=ID, sequence=order, skip_to={OTHER: {0: 1500}})
    known = {(OTHER, 0): 1600}
    for end in (5, 1400, 1510):
        (found,) = unread_ranges(again, Known(known), TopicState(ID, {0: (0, end)}))
        assert (found.first, found.next) == (known.get((ID, 0), 0), end)
        known[ID, 0] = end


def test_another_topic_of_the_same_name_is_an_error_until_it_is_named() -> None:
    known = Known({(OTHER, 0): 5})
    state = TopicState(ID, {0: (0, 9)})
    with pytest.raises(LandingError, match=f"its id is {ID}, not {OTHER}.*Make a new raw model"):
        unread_ranges(entry(), known, state)
    order = {"kafka.timestamp": "bigint", "kafka.offset": "bigint"}
    with pytest.raises(LandingError, match=f"topic_id: {ID}"):
        unread_ranges(entry(sequence=order), known, state)
    named = entry(topic_id=ID, sequence=order)
    assert [r.first for r in unread_ranges(named, known, state)] == [0]
    with pytest.raises(LandingError, match="2 messages from offset 0 on, deleted"):
        unread_ranges(entry(topic_id=ID, sequence=order), known, TopicState(ID, {0: (2, 9)}))
    with pytest.raises(LandingError, match="wants"):
        unread_ranges(named, known, TopicState(OTHER, {0: (0, 9)}))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"topic": None}, "'topic' is missing"),
        ({"topic": "a b"}, "topic 'a b' is not a legal name"),
        ({"format": "csv"}, "kind 'stream' needs the format json or debezium"),
        ({"format": None}, "kind 'stream' needs the format json or debezium"),
        ({"path": "x", "files": [{"match": "*"}]}, "'path' is for files, .*'files' is for files"),
        ({"load": "full"}, "load 'full' of a stream of json is not"),
        ({"load": "changes"}, "need 'operation' and 'codes'"),
        ({"format": "debezium", "load": "inserts"}, "load 'inserts' of a stream of debezium"),
        ({"skip_to": {ID: {"a": 1}}}, "'skip_to' is a mapping of the id of a topic"),
        ({"skip_to": {ID: {0: -1}}}, "'skip_to' is a mapping of the id of a topic"),
        ({"skip_to": {0: 1500}}, "'skip_to' is a mapping of the id of a topic"),
        ({"skip_to": {"orders": {0: 1500}}}, "'skip_to' is a mapping of the id of a topic"),
        ({"topic_id": ID}, "counts its offsets anew"),
        ({"sequence": {"kafka.offset": "string"}}, "sequence column 'kafka.offset' is a bigint"),
        ({"kind": "changes"}, "'topic' is only for kind 'stream'"),
    ],
)
def test_a_faulty_entry_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(LandingError, match=told):
        entry(**settings)


@pytest.mark.parametrize(
    ("known", "offsets", "told"),
    [
        (Known({}, others=True), {0: (0, 5)}, "the log has rows of files or of other topics"),
        (Known({(ID, 0): 5}, others=True), {0: (0, 6)}, "rows of files or of other topics"),
        (Known({(ID, 0): 5}), {0: (0, 5), 1: (0, 2)}, "partition 1 was added"),
    ],
)
def test_offsets_that_order_nothing_any_more_are_an_error(
    known: Known, offsets: dict[int, tuple[int, int]], told: str
) -> None:
    state = TopicState(ID, offsets)
    with pytest.raises(LandingError, match=f"{told}.*Make a new raw model"):
        unread_ranges(entry(load="upserts"), known, state)
    by_source = entry(load="upserts", sequence={"changed_at": "timestamp"})
    assert unread_ranges(by_source, known, state)


@pytest.mark.parametrize(
    ("names", "offsets", "lost"),
    [
        ([], (0, 10), False),
        ([Range("shop.orders", ID, 0, 0, 10).name], (0, 10), False),
        ([Range("shop.orders", ID, 0, 0, 9).name], (1, 10), True),
        ([Range("shop.orders", ID, 0, 0, 500).name], (0, 100), True),
        ([Range("shop.orders", ID, 1, 0, 5).name], (0, 10), True),
        ([Range("shop.orders", OTHER, 0, 0, 5).name], (0, 10), True),
        ([Range("orders", OTHER, 0, 0, 5).name], (0, 10), True),
        (["orders/load_date=2024-01-01/a.csv"], (0, 10), True),
    ],
)
def test_a_full_refresh_keeps_what_the_log_has(
    names: list[str], offsets: tuple[int, int], lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: Any = None
    monkeypatch.setattr(reading, "read_known", lambda _, topic: known_of(names, topic))
    refused = pytest.raises(LandingError, match="would lose rows") if lost else nullcontext()
    with refused:
        reading.require_all_messages(entry(), log, TopicState(ID, {0: offsets}))


@pytest.mark.parametrize(
    ("settings", "partitions", "needed"),
    [
        ({"load": "upserts"}, 2, True),
        ({"load": "upserts"}, 1, False),
        ({"load": "inserts"}, 2, False),
        ({"load": "upserts", "sequence": {"at": "timestamp"}}, 2, False),
        ({"format": "debezium"}, 2, False),
        ({"format": "debezium", "sequence": {"kafka.offset": "bigint"}}, 2, True),
    ],
)
def test_messages_need_keys_where_offsets_order_several_partitions(
    settings: dict[str, Any], partitions: int, needed: bool
) -> None:
    assert needs_keys(entry(**settings), partitions) == needed


def test_columns_that_a_table_cannot_have_are_refused_by_row() -> None:
    renamed = entry(columns={"id": "bigint", "symbol": "string"}, renames={"Symbol": "symbol"})
    published = ["id", "Symbol", "symbol", "Id", "a", "A", "", "b\n", "new"]
    found = drift.map_columns(renamed, renamed.layouts[0], published)
    assert found.refused == ("Id", "a", "A", "", "b\n")
    assert found.sources["symbol"] == ("Symbol", "symbol")
    assert found.new == ("new",)


@pytest.mark.parametrize(("policy", "refused"), [("append", ("ID", "b\n")), ("ignore", ())])
def test_no_row_is_bad_for_columns_that_are_ignored(policy: str, refused: tuple[str, ...]) -> None:
    parsed, nothing = entry(on_new_columns=policy), cast("Any", None)
    group = Group(parsed, parsed.layouts[0], ("r",), ("id", "ID", "b\n", "state"), ("r",))
    here = SimpleNamespace(tell=lambda _: None)
    _, (found,) = reading.Reader(nothing, parsed, NOTHING, cast("Any", here))._map([group])
    assert (found.columns, found.refused) == (("id", "state"), refused)


def test_upserts_are_only_for_streams() -> None:
    files = {**STREAM, "kind": "changes", "files": [{"match": "*", "load": "upserts"}]}
    with pytest.raises(LandingError, match="load 'upserts' is only for kind 'stream'"):
        parse_entry({name: value for name, value in files.items() if name != "topic"})


def test_defaults_of_a_stream() -> None:
    found = entry()
    assert found.layouts[0].load == "inserts"
    assert found.sequence == (("kafka.offset", "bigint"),)
    assert found.event_time == ("kafka.timestamp", "bigint")
    given = entry(operation="op", codes={"D": "delete"}, sequence={"lsn": "bigint"})
    assert (given.layouts[0].load, given.sequence) == ("changes", (("lsn", "bigint"),))
    messages = entry(format="debezium")
    assert (messages.layouts[0].load, messages.sequence[0][0]) == ("changes", "source.lsn")


# ---------------------------------------------------------------- the connection


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", 'se"cret\\')
    given = {
        "bootstrap.servers": "broker:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "etl",
        "sasl.password": "${KAFKA_PASSWORD}",
    }
    settings = kafka.connection("raw_orders", {"kafka": given})
    assert settings == {**given, "sasl.password": 'se"cret\\'}
    options = kafka.spark_options(settings)
    assert options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="etl" password="se\\"cret\\\\";'
    )
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["failOnDataLoss"] == "true"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "no broker is set"),
        ({"security.protocol": "SSL"}, "no broker is set"),
        ({"bootstrap.servers": "b:1", "ssl.truststore.location": "x"}, "unknown setting"),
        ({"bootstrap.servers": "b:1", "sasl.password": "hunter2"}, "is stored by dbt"),
        ({"bootstrap.servers": "b:1", "security.protocol": "SASL-SSL"}, "is not one of"),
        ({"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL"}, "'sasl.username' is miss"),
        ({"bootstrap.servers": "b:1", "ssl.ca.location": "/no/such"}, "is not a file"),
        ({"bootstrap.servers": "b:1", "sasl.username": None}, "'sasl.username' has no value"),
        ({"bootstrap.servers": "${NO_SUCH_BROKER}"}, "no variable NO_SUCH_BROKER"),
        ({"bootstrap.servers": "b:1", "sasl.mechanism": "GSSAPI"}, "is not one of 'PLAIN'"),
        # Without TLS, Kafka's clients would ignore the settings of TLS and send all in the open.
        ({"bootstrap.servers": "b:1", "ssl.ca.location": __file__}, "needs a security.protocol of"),
        (
            {"bootstrap.servers": "b:1", "security.protocol": "SSL", "sasl.username": "etl"},
            "'sasl.username' needs a security.protocol of 'SASL_PLAINTEXT', 'SASL_SSL', not SSL",
        ),
        (
            {
                "bootstrap.servers": "b:1",
                "security.protocol": "SSL",
                "ssl.certificate.location": __file__,
            },
            "belong together",
        ),
        (
            {
                "bootstrap.servers": "b:1",
                "security.protocol": "SSL",
                "ssl.certificate.location": __file__,
                "ssl.key.location": core_errors.__file__,
            },
            "openssl pkcs8 -topk8 -nocrypt",
        ),
    ],
)
def test_a_faulty_connection_is_refused(given: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        kafka.connection("raw_orders", {"kafka": given})
    assert "hunter2" not in str(error.value)


def test_spark_gets_the_texts_of_keys_and_certificates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = {}
    for name, text in (
        ("ca", "authority"),
        ("certificate", "own"),
        ("key", "-----BEGIN PRIVATE KEY-----"),
    ):
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(f"FILE_{name}", str(tmp_path / name))
        files[f"ssl.{name}.location"] = f"${{FILE_{name}}}"
    given = {"bootstrap.servers": "b:1", "security.protocol": "SSL", **files}
    options = kafka.spark_options(kafka.connection("m", {"kafka": given}))
    assert {name: text for name, text in options.items() if ".ssl." in name} == {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "authority",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "own",
        "kafka.ssl.keystore.key": "-----BEGIN PRIVATE KEY-----",
    }


class Future:
    def __init__(self, value: Any) -> None:
        self.value = value

    def result(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Admin:
    """A client of a broker that answers with these ids and errors, one for each question."""

    def __init__(self, ids: list[Uuid], errors: list[int]) -> None:
        self.ids, self.errors = iter(ids), iter(errors)

    def poll(self, seconds: float) -> int:
        return 0

    def describe_topics(self, *_: Any, **__: Any) -> dict[str, Future]:
        found = SimpleNamespace(topic_id=next(self.ids), partitions=[SimpleNamespace(id=0)])
        return {"t": Future(found)}

    def list_offsets(self, wanted: dict[Any, Any], **_: Any) -> dict[Any, Future]:
        code = next(self.errors, 0)
        value = KafkaException(KafkaError(code)) if code else SimpleNamespace(offset=7)
        return dict.fromkeys(wanted, Future(value))


def asked(monkeypatch: pytest.MonkeyPatch, ids: list[Uuid], errors: list[int]) -> TopicState:
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda _: Admin(ids, errors))
    monkeypatch.setattr(kafka, "_PAUSE_SECONDS", 0)
    return kafka.state({"bootstrap.servers": "b:1"}, "t")


def test_the_id_of_a_topic_is_written_as_kafka_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, [Uuid(-1, -2)] * 2, [])
    assert found == TopicState("_____________________g", {0: (7, 7)})


def test_a_partition_that_changes_its_leader_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = asked(monkeypatch, [Uuid(1, 1)] * 4, [0, KafkaError.NOT_LEADER_FOR_PARTITION])
    assert found.offsets == {0: (7, 7)}


def test_offsets_of_a_topic_that_is_created_meanwhile_are_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = Uuid(1, 1), Uuid(2, 2)
    found = asked(monkeypatch, [old, new, new, new], [])
    assert found == asked(monkeypatch, [new, new], [])


def test_a_broker_without_ids_of_topics_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LandingError, match="gives topics no ids"):
        asked(monkeypatch, [Uuid(0, 0)], [])


def test_several_brokers_may_be_a_list() -> None:
    given = {"bootstrap.servers": ["a:1", "b:2"]}
    assert kafka.connection("m", {"kafka": given}) == {"bootstrap.servers": "a:1,b:2"}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "has no topic 't'"),
        (KafkaError._TIMED_OUT, "did not say what the topic 't' has"),
        (KafkaError._NOENT, "did not say what the topic 't' has"),
    ],
)
def test_other_errors_are_told(monkeypatch: pytest.MonkeyPatch, code: int, told: str) -> None:
    with pytest.raises(LandingError, match=told):
        asked(monkeypatch, [Uuid(1, 1)], [code])
