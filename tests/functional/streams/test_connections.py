"""Topics of a broker that wants TLS, a user or a certificate, and rights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AclOperation
from helpers.directory import certificate
from helpers.kafka import SecureBroker
from helpers.landing import LandingProject, make_landing_project

from .conftest import stream

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.lake import Reader
    from helpers.project import MakeProject, Outcome

USER = f"User:{SecureBroker.USER}"
RIGHTS = (AclOperation.DESCRIBE, AclOperation.READ)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


class Topic:
    """A topic, and a project with a raw model of it."""

    def __init__(self, broker: SecureBroker, name: str, project: LandingProject) -> None:
        self.broker, self.name, self.project = broker, name, project

    def send(self, number: int) -> None:
        self.broker.send(self.name, [f'{{"id": {number}}}'])

    def build(self) -> Outcome:
        return self.project.build("-s", f"raw_{self.name}")

    def numbers(self) -> list[int]:
        """What a reader of main sees."""
        return sorted(int(row["id"]) for row in self.project.rows(f"raw_{self.name}", "row"))


@pytest.fixture
def make_topic(
    broker: SecureBroker,
    make_project: MakeProject,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """Makes a topic with one message, and a project that reads it with these settings."""
    monkeypatch.setenv("KAFKA_PASSWORD", SecureBroker.PASSWORD)

    def make(name: str, address: str, settings: dict[str, str]) -> Topic:
        broker.create(name)
        project = make_landing_project(
            make_project, reader, "secured", {name: stream(name)}, [name], broker=address
        )
        project.kafka = settings
        made = Topic(broker, name, project)
        made.send(1)
        return made

    return make


def by_password(broker: SecureBroker, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": broker.USER,
        "sasl.password": "${KAFKA_PASSWORD}",
        "ssl.ca.location": str(broker.authority),
    }


def test_a_user_reads_by_a_password_and_needs_the_rights_to_describe_and_read(
    broker: SecureBroker, make_topic: Any
) -> None:
    topic = make_topic("by_password", broker.users, {})
    broker.allow(USER, topic.name, *RIGHTS)
    for number, mechanism in enumerate(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), 1):
        topic.project.kafka = by_password(broker, mechanism)
        topic.send(number + 1)
        topic.build().succeeded()
        assert topic.numbers() == list(range(1, number + 2)), mechanism


def test_a_client_reads_by_its_certificate(broker: SecureBroker, make_topic: Any) -> None:
    settings = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(broker.authority),
        "ssl.certificate.location": str(broker.client.pem),
        "ssl.key.location": str(broker.client.key),
    }
    topic = make_topic("by_certificate", broker.clients, settings)
    broker.allow(broker.CLIENT, topic.name, *RIGHTS)
    topic.build().succeeded()
    assert topic.numbers() == [1]


def test_a_connection_that_is_refused_is_one_clear_error(
    broker: SecureBroker, make_topic: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = by_password(broker)
    topic = make_topic("refused", broker.users, right)

    def told(**other: str) -> str:
        topic.project.kafka = right | {name.replace("_", "."): text for name, text in other.items()}
        text = topic.build().failed().text
        assert "Nothing was read" in text
        assert "dbt retry" in text
        return text

    assert "no rights" in told()
    broker.allow(USER, topic.name, AclOperation.DESCRIBE)
    assert "the right READ" in told()
    broker.allow(USER, topic.name, AclOperation.READ)
    topic.build().succeeded()
    assert topic.numbers() == [1]

    topic.send(2)
    other = certificate(tmp_path)
    assert "certificate verify failed" in told(ssl_ca_location=str(other.pem))
    monkeypatch.setenv("KAFKA_PASSWORD", "wrong")
    assert "Authentication failed" in told()
    monkeypatch.setenv("KAFKA_PASSWORD", SecureBroker.PASSWORD)
    topic.build().succeeded()
    assert topic.numbers() == [1, 2]
