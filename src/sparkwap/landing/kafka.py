"""Asks a Kafka broker for the state of a topic, and has the settings of the connection."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tenacity

from sparkwap.core import next_command
from sparkwap.core.errors import ConfigError
from sparkwap.core.redaction import redact, remember
from sparkwap.landing.errors import LandingError, any_of
from sparkwap.landing.topic import TopicState

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

TIMEOUT_SECONDS = 15.0
_PAUSE_SECONDS = 0.5
_SECRETS = ("sasl.password",)
_OF_SASL = ("sasl.mechanism", "sasl.username", "sasl.password")
_AUTHORITY, _CERTIFICATE, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_OF_TLS = (_AUTHORITY, _CERTIFICATE, _KEY)
_SETTINGS = ("bootstrap.servers", "security.protocol", *_OF_SASL, *_OF_TLS)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_AFTER = re.compile(r" \(after \d+ms in state \w+\)")
_PKCS8 = "-----BEGIN PRIVATE KEY-----"
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def connection(model: str, meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the connection in the ``kafka`` of a raw model's meta.

    The names are those of Kafka's C client. ``${NAME}`` in a value is an environment variable: what
    dbt itself fills in is stored in its manifest.

    Raises:
        ConfigError: there are no settings, or they are illegal.
    """
    given = meta.get("kafka")
    if not isinstance(given, Mapping) or not given.get("bootstrap.servers"):
        raise ConfigError(
            f"The model {model} reads a Kafka topic, but no broker is set. Nothing was read, and "
            "nothing was built. Set it for all raw models in dbt_project.yml: "
            "`+meta: {kafka: {bootstrap.servers: localhost:9092}}` (see docs/streams.md)."
        )
    given = {
        name: ",".join(map(str, value)) if isinstance(value, list) else value
        for name, value in given.items()
    }
    faults = [f"'{name}' has no value" for name, value in given.items() if value in (None, "")]
    faults += [f"unknown setting '{name}' (legal: {any_of(_SETTINGS)})"
              for name in given if name not in _SETTINGS]  # fmt: skip
    faults += [
        f"'{name}' is stored by dbt as it is written here; write it as ${{NAME}}, the name of an "
        "environment variable"
        for name in _SECRETS
        if name in given and not _VARIABLE.fullmatch(str(given[name]))
    ]
    unset = sorted({variable for value in given.values()
                    for variable in _VARIABLE.findall(str(value))} - os.environ.keys())  # fmt: skip
    faults += [f"the environment has no variable {variable}" for variable in unset]
    found = {
        name: _VARIABLE.sub(lambda m: os.environ.get(m[1], m[0]), str(value))
        for name, value in given.items()
        if value not in (None, "")
    }
    faults += _faults(found)
    if faults:
        raise ConfigError(
            f"The settings `kafka` of the model {model} are illegal: {'; '.join(faults)}. Nothing "
            "was read, and nothing was built. Correct them in dbt_project.yml, or set the variable."
        )
    remember({name: found[name] for name in _SECRETS if name in found})
    return found


def _faults(given: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the settings, of which Kafka ignores what its protocol lacks."""
    protocol = given.get("security.protocol", "PLAINTEXT")
    if protocol not in _PROTOCOLS:
        return [f"security.protocol '{protocol}' is not one of {any_of(_PROTOCOLS)}"]
    found = []
    if protocol.startswith("SASL"):
        found += [f"'{name}' is missing" for name in _OF_SASL if name not in given]
    for names, legal in (
        (_OF_SASL, ("SASL_PLAINTEXT", "SASL_SSL")),
        (_OF_TLS, ("SSL", "SASL_SSL")),
    ):
        if protocol not in legal:
            found += [f"'{name}' needs a security.protocol of {any_of(legal)}, not {protocol}"
                      for name in names if name in given]  # fmt: skip
    found += [
        f"{name} '{given[name]}' is not a file"
        for name in _OF_TLS
        if name in given and not Path(given[name]).is_file()
    ]
    if (_CERTIFICATE in given) != (_KEY in given):
        found.append(f"'{_CERTIFICATE}' and '{_KEY}' belong together")
    elif _KEY in given and not found and _PKCS8 not in _text(given[_KEY]):
        found.append(
            f"{_KEY} '{given[_KEY]}' is not a key in the form PKCS #8 without a password, the only "
            "one that Spark's client of Kafka reads (`openssl pkcs8 -topk8 -nocrypt` writes it)"
        )
    mechanism = given.get("sasl.mechanism")
    if mechanism is not None and mechanism not in _LOGIN:
        found.append(f"sasl.mechanism '{mechanism}' is not one of {any_of(_LOGIN)}")
    return found


def spark_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark's Kafka source for the same connection.

    Messages of transactions that were aborted, or are not committed yet, are not read.
    """
    options = {
        f"kafka.{name}": value
        for name, value in settings.items()
        if name in ("bootstrap.servers", "security.protocol", "sasl.mechanism")
    }
    if "sasl.username" in settings:
        user, password = settings["sasl.username"], settings.get("sasl.password", "")
        module = _LOGIN[settings.get("sasl.mechanism", "PLAIN")]
        options["kafka.sasl.jaas.config"] = (
            f"{module} required username={_quoted(user)} password={_quoted(password)};"
        )
    # The texts and not the paths: the server may be another machine.
    texts = {name: _text(settings[name]) for name in _OF_TLS if name in settings}
    if _AUTHORITY in texts:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.certificates"] = texts[_AUTHORITY]
    if _KEY in texts:
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.certificate.chain"] = texts[_CERTIFICATE]
        options["kafka.ssl.keystore.key"] = texts[_KEY]
    return {**options, "kafka.isolation.level": "read_committed", "failOnDataLoss": "true"}


def state(settings: Mapping[str, str], topic: str) -> TopicState:
    """Return the state of a topic, as its broker says.

    The end of a partition is the offset before which every transaction has ended.

    Raises:
        ConfigError: the client of Kafka is not installed.
        LandingError: no broker answers, or it has no such topic.
    """
    try:
        from confluent_kafka import (
            IsolationLevel,
            KafkaError,
            KafkaException,
            TopicCollection,
            TopicPartition,
        )  # fmt: skip
        from confluent_kafka.admin import AdminClient, OffsetSpec
    except ImportError:
        raise ConfigError(
            "Kafka topics need a client that is not installed. Nothing was read. Install it: "
            f"{next_command.install('kafka')}"
        ) from None
    problems: list[KafkaError] = []
    own = {"log_level": 0, "error_cb": problems.append}
    try:
        client = AdminClient({**settings, **own})
    except KafkaException as error:
        raise _unanswered(settings, topic, error, problems) from error
    limit = {"request_timeout": TIMEOUT_SECONDS}

    def described() -> Any:
        return client.describe_topics(TopicCollection([topic]), **limit)[topic].result()

    def offsets(places: list[Any], which: Any) -> dict[int, int]:
        level = IsolationLevel.READ_COMMITTED
        futures = client.list_offsets(dict.fromkeys(places, which), isolation_level=level, **limit)
        return {place.partition: future.result().offset for place, future in futures.items()}

    def look() -> TopicState:
        found = described()
        places = [TopicPartition(topic, part.id) for part in found.partitions]
        oldest, end = offsets(places, OffsetSpec.earliest()), offsets(places, OffsetSpec.latest())
        topic_id = _text_of_id(found.topic_id)
        # The offsets could be those of a topic that was created in the meantime.
        if _text_of_id(described().topic_id) != topic_id:
            raise KafkaException(
                KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "the topic is being created again")
            )
        return TopicState(topic_id, {number: (oldest[number], end[number]) for number in oldest})

    try:
        looked: TopicState = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_passes),
            wait=tenacity.wait_fixed(_PAUSE_SECONDS),
            stop=tenacity.stop_after_delay(TIMEOUT_SECONDS),
            reraise=True,
        )(look)
    except KafkaException as error:
        client.poll(0)  # This calls `error_cb`.
        raise _unanswered(settings, topic, error, problems) from error
    return looked


def _passes(error: BaseException) -> bool:
    """Return whether an error of a broker passes by itself: a partition is changing its leader."""
    from confluent_kafka import KafkaError, KafkaException

    passing = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    return isinstance(error, KafkaException) and error.args[0].code() in passing


def _text_of_id(identity: Any) -> str:
    """Return the id of a topic as Kafka's tools show it.

    Raises:
        LandingError: the broker gives topics no ids.
    """
    parts = (identity.get_most_significant_bits(), identity.get_least_significant_bits())
    if parts == (0, 0):
        raise LandingError(
            "The broker gives topics no ids, as Kafka before 2.8, so a topic that is created again "
            "could not be told from the former one. Nothing was read. Use a newer Kafka."
        )
    digits = b"".join(part.to_bytes(8, "big", signed=True) for part in parts)
    return base64.urlsafe_b64encode(digits).decode().rstrip("=")


def _unanswered(
    settings: Mapping[str, str], topic: str, error: Exception, problems: Sequence[KafkaError]
) -> LandingError:
    """Return the error for a topic whose state is unknown."""
    from confluent_kafka import KafkaError

    cause, broker = error.args[0], settings["bootstrap.servers"]
    rest = "Nothing was read; main is as it was, and the messages stay in Kafka."
    if cause.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return LandingError(
            f"The broker {broker} has no topic '{topic}'. {rest} Create the topic, or correct "
            "`topic` in the landing entry, then: dbt retry"
        )
    if cause.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return LandingError(
            f"The broker {broker} gives its user no rights on the topic '{topic}'. {rest} Grant "
            "the user DESCRIBE and READ on the topic, then: dbt retry"
        )
    # The cause of a time-out comes from the connections, again with each try.
    tried = [one.str() for one in problems if one.code() != KafkaError._ALL_BROKERS_DOWN]
    said = redact(_AFTER.sub("", tried[0] if tried else cause.str()))
    return LandingError(
        f"The broker {broker} did not say what the topic '{topic}' has ({said}). {rest} Start the "
        "broker, or correct `kafka` in the meta of the raw models, then: dbt retry"
    )


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
