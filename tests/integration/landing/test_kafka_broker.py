"""The broker of the tests: what it acknowledged outlives it, and offsets and topics can go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicCollection, TopicPartition
from helpers.kafka import Broker

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def read(broker: Broker, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    """The values of partition 0, from its first offset to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "tests",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[bytes | None] = []
    try:
        while (message := consumer.poll(30)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(message.value())
    finally:
        consumer.close()
    raise TimeoutError("the end of the partition was not reached")


def topic_id(broker: Broker, topic: str) -> str:
    """As text: the client's class of ids tells two objects of one id apart."""
    described = broker.admin.describe_topics(TopicCollection([topic]))
    return str(described[topic].result(30).topic_id)


def test_a_killed_broker_keeps_what_it_acknowledged(broker: Broker) -> None:
    broker.create("kept", partitions=2)
    assert broker.send("kept", ["a", b"b", None], partition=0) == [0, 1, 2]
    assert read(broker, "kept") == [b"a", b"b", None]
    bootstrap, known = broker.bootstrap, topic_id(broker, "kept")
    for end in (broker.kill, broker.stop):
        end()
        broker.start()
        assert broker.bootstrap == bootstrap
        assert topic_id(broker, "kept") == known
        assert read(broker, "kept") == [b"a", b"b", None]
    assert broker.send("kept", ["c"], keys=["k"], partition=1, timestamp=1_700_000_000_000) == [0]
    assert broker.end_offsets("kept") == {0: 3, 1: 1}


def test_deleted_records_raise_the_low_watermark(broker: Broker) -> None:
    broker.create("short")
    broker.send("short", "abcd")
    assert broker.delete_records("short", 0, before_offset=3) == 3
    assert read(broker, "short") == [b"d"]


def test_a_topic_created_again_has_another_id(broker: Broker) -> None:
    broker.create("again", cleanup_policy="compact")
    broker.send("again", ["a"], keys=["k"])
    former = topic_id(broker, "again")
    broker.delete("again")
    broker.create("again")
    assert topic_id(broker, "again") != former
    assert read(broker, "again") == []


def test_only_committed_transactions_are_read(broker: Broker) -> None:
    broker.create("together")
    broker.send_in_transaction("together", ["a"])
    broker.send_in_transaction("together", ["b"], commit=False)
    pending = broker.open_transaction("together", ["c"])
    assert read(broker, "together") == [b"a"]
    assert read(broker, "together", "read_uncommitted") == [b"a", b"b", b"c"]
    pending.commit_transaction(30)
    assert read(broker, "together") == [b"a", b"c"]
