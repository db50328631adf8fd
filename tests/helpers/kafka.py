"""A Kafka broker of a test's own: broker and controller in one Java process, on loopback.

Its classes come from the jars in ``tests/requirements-kafka.lock``, which ``maven`` fetches, and
from PySpark.
"""

from __future__ import annotations

import random
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    TopicMetadata,
    UserScramCredentialUpsertion,
)

from helpers.directory import certificate
from helpers.maven import from_spark, java_or_skip, pinned_jars

LOCK = Path(__file__).parents[1] / "requirements-kafka.lock"
FROM_SPARK = (
    "jackson-annotations-*.jar",
    "jackson-core-2*.jar",
    "jackson-databind-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "lz4-java-*.jar",
    "scala-library-*.jar",
    "slf4j-api-*.jar",
    "snappy-java-*.jar",
    "zstd-jni-*.jar",
)
JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dlog4j2.level=WARN",
)
START_SECONDS = 120
STOP_SECONDS = 30
CALL_SECONDS = 30

Text = bytes | str
Headers = Sequence[tuple[str, Text | None]]

# The controller refuses a broker that was killed until the session of its predecessor ends: in
# three seconds, not nine. Records with old timestamps stay. The cleaner's buffer would be half of
# the heap.
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=BROKER://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=BROKER://127.0.0.1:{broker}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
broker.heartbeat.interval.ms=300
broker.session.timeout.ms=3000
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=2097152
log.retention.ms=-1
num.io.threads=2
num.network.threads=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
"""


# One listener with users and passwords, one for clients with a certificate. Who is no user comes by
# the listener without TLS and may do everything; the users need rights.
SECURE = """\
listeners=BROKER://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller},\
USERS://127.0.0.1:{users},CLIENTS://127.0.0.1:{clients}
advertised.listeners=BROKER://127.0.0.1:{broker},\
USERS://127.0.0.1:{users},CLIENTS://127.0.0.1:{clients}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_SSL,CLIENTS:SSL
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
ssl.keystore.type=PEM
ssl.keystore.location={identity}
ssl.truststore.type=PEM
ssl.truststore.location={trusted}
listener.name.clients.ssl.client.auth=required
listener.name.users.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.users.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.users.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.users.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
"""


class Broker:
    """A broker whose data outlives its process; as a context manager it is running.

    Attributes:
        folder: its settings, its data, and its log ``broker.log``.
        bootstrap: its address, the same after each start.
        admin: a client for administration, another one after each start.
    """

    admin: AdminClient

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._java = java_or_skip("Kafka")
        jars = [*pinned_jars(LOCK, "kafka", self._java), *from_spark(*FROM_SPARK)]
        self._classpath = ":".join(map(str, jars))
        self._port, self._controller = _free_ports()
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process, with the data of the former one, and wait until it answers."""
        assert self._process is None, "it runs"
        settings, data = self.folder / "server.properties", self.folder / "data"
        if not (data / "meta.properties").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            settings.write_text(self._settings(data))
            self._format(settings)
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(settings)),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down as an operator would (SIGTERM)."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process (SIGKILL). What it has acknowledged stays."""
        self._end(signal.SIGKILL)

    def create(self, topic: str, partitions: int = 1, **config: object) -> None:
        """Create a topic, and wait until it can be used.

        Args:
            topic: its name.
            partitions: their number.
            config: settings of the topic, with underscores for dots: ``cleanup_policy="compact"``.
        """
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        new = NewTopic(topic, partitions, 1, config=settings)
        self.admin.create_topics([new])[topic].result(CALL_SECONDS)
        _until(lambda: self._leaders(topic) == partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until the broker does not know it."""
        self.admin.delete_topics([topic])[topic].result(CALL_SECONDS)
        _until(lambda: self._metadata(topic).error is not None)

    def send(
        self,
        topic: str,
        values: Iterable[Text | None],
        keys: Iterable[Text | None] | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
    ) -> list[int]:
        """Send messages, and return their offsets once the broker has acknowledged all.

        Args:
            topic: name of the topic.
            values: one for each message; None is a tombstone.
            keys: one for each message.
            partition: of all messages; without one, keys decide.
            headers: of all messages.
            timestamp: of all messages, in milliseconds since 1970.
        """
        producer = self._producer()
        return _send(producer, topic, values, keys, partition, headers, timestamp)

    def send_in_transaction(
        self,
        topic: str,
        values: Iterable[Text | None],
        keys: Iterable[Text | None] | None = None,
        partition: int | None = None,
        *,
        commit: bool = True,
    ) -> None:
        """Send messages in a transaction of their own, and commit or abort it."""
        producer = self.open_transaction(topic, values, keys, partition)
        if commit:
            producer.commit_transaction(CALL_SECONDS)
        else:
            producer.abort_transaction(CALL_SECONDS)

    def open_transaction(
        self,
        topic: str,
        values: Iterable[Text | None],
        keys: Iterable[Text | None] | None = None,
        partition: int | None = None,
    ) -> Producer:
        """Send messages in a transaction that stays open.

        Returns:
            The producer, for ``commit_transaction`` or ``abort_transaction``. Without either, the
            broker aborts the transaction after a minute.
        """
        producer = self._producer(**{"transactional.id": secrets.token_hex(8)})
        producer.init_transactions(CALL_SECONDS)
        producer.begin_transaction()
        _send(producer, topic, values, keys, partition)
        return producer

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete the records before an offset, as retention does; return the low watermark."""
        place = TopicPartition(topic, partition, before_offset)
        deleted = self.admin.delete_records([place])[place].result(CALL_SECONDS)
        return int(deleted.low_watermark)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the offset after the last record of each partition, of open transactions too."""
        wanted = {
            TopicPartition(topic, partition): OffsetSpec.latest()
            for partition in self._metadata(topic).partitions
        }
        return {
            place.partition: found.result(CALL_SECONDS).offset
            for place, found in self.admin.list_offsets(wanted).items()
        }

    def _settings(self, data: Path) -> str:
        return SETTINGS.format(broker=self._port, controller=self._controller, data=data)

    def _metadata(self, topic: str) -> TopicMetadata:
        found: TopicMetadata = self.admin.list_topics(topic, timeout=CALL_SECONDS).topics[topic]
        return found

    def _leaders(self, topic: str) -> int:
        """The number of partitions that have a leader."""
        found = self._metadata(topic).partitions.values()
        return sum(partition.leader >= 0 for partition in found)

    def _client(self) -> dict[str, Any]:
        """The settings of a client, which reports errors to its caller alone."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 2}

    def _producer(self, **more: str) -> Producer:
        return Producer(
            {
                **self._client(),
                "linger.ms": 0,
                "message.timeout.ms": CALL_SECONDS * 1000,
                "queue.buffering.max.messages": 0,
                **more,
            }
        )

    def _format(self, settings: Path) -> None:
        # Of 16 bytes; the tool would take a leading hyphen for an option.
        cluster = "w" + secrets.token_urlsafe(16)[1:]
        command = self._command("kafka.tools.StorageTool", "format", "-t", cluster, "-c")
        ended = subprocess.run(
            [*command, str(settings)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        if ended.returncode:
            raise RuntimeError(f"Kafka did not format {settings}: {ended.stdout}{ended.stderr}")

    def _command(self, *main: str) -> list[str]:
        return [str(self._java), *JAVA_OPTIONS, "-cp", self._classpath, *main]

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the broker's port, which opens once the controller has admitted the broker."""

        def answers() -> bool:
            if process.poll() is not None:
                log = (self.folder / "broker.log").read_text(errors="replace")
                raise RuntimeError(f"Kafka ended with {process.returncode}: {log[-4000:]}")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self._port)) == 0

        _until(answers, START_SECONDS)
        # A client that outlives the broker takes seconds to find the next one.
        self.admin = AdminClient(self._client())
        _until(lambda: bool(self.admin.list_topics(timeout=CALL_SECONDS).brokers))

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class SecureBroker(Broker):
    """A broker with users, certificates and rights, besides the listener of `bootstrap`.

    Attributes:
        users: the address for `USER` with `PASSWORD`.
        clients: the address for those who have the certificate `client`.
        authority: what clients have to trust.
        client: a certificate that the broker trusts.
    """

    USER, PASSWORD = "etl", 'se"cret\\ ${HOME}'
    CLIENT = "User:CN=loader"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._users, self._clients = _free_ports()
        self.users, self.clients = f"127.0.0.1:{self._users}", f"127.0.0.1:{self._clients}"
        identity = certificate(folder / "server")
        self.authority = identity.pem
        self.client = certificate(folder / "client", "loader")
        # Kafka reads the key and the certificates from one file.
        self._identity = folder / "identity.pem"
        self._identity.write_bytes(identity.key.read_bytes() + identity.pem.read_bytes())

    def start(self) -> None:
        """Start the process; the user can log in by SCRAM, too."""
        super().start()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            # The broker takes one for a user at a time.
            made = UserScramCredentialUpsertion(
                self.USER, ScramCredentialInfo(mechanism, 4096), self.PASSWORD.encode()
            )
            for future in self.admin.alter_user_scram_credentials([made]).values():
                future.result(CALL_SECONDS)

    def allow(self, principal: str, topic: str, *operations: AclOperation) -> None:
        """Give a user rights on a topic."""
        rights = [
            AclBinding(
                ResourceType.TOPIC, topic, ResourcePatternType.LITERAL,
                principal, "*", operation, AclPermissionType.ALLOW,
            )
            for operation in operations
        ]  # fmt: skip
        for future in self.admin.create_acls(rights).values():
            future.result(CALL_SECONDS)

    def _settings(self, data: Path) -> str:
        # A property that is given twice has its last value.
        return super()._settings(data) + SECURE.format(
            broker=self._port,
            controller=self._controller,
            users=self._users,
            clients=self._clients,
            identity=self._identity,
            trusted=self.client.pem,
            user=self.USER,
            password=self.PASSWORD.replace("\\", "\\" * 4).replace('"', '\\\\"'),
        )


def _send(
    producer: Producer,
    topic: str,
    values: Iterable[Text | None],
    keys: Iterable[Text | None] | None = None,
    partition: int | None = None,
    headers: Headers | None = None,
    timestamp: int | None = None,
) -> list[int]:
    offsets: dict[int, int] = {}
    errors: list[KafkaError] = []
    texts = list(values)
    names = repeat(None, len(texts)) if keys is None else keys

    def delivered(number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets[number] = message.offset() or 0

    for number, (value, key) in enumerate(zip(texts, names, strict=True)):
        producer.produce(
            topic,
            value,
            key,
            -1 if partition is None else partition,
            on_delivery=partial(delivered, number),
            timestamp=timestamp or 0,
            headers=list(headers or ()),
        )
    producer.flush()
    if errors:
        raise KafkaException(errors[0])
    return [offsets[number] for number in range(len(texts))]


def _until(holds: Callable[[], bool], seconds: float = CALL_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"Kafka did not get there within {seconds} s")
        time.sleep(0.05)


def _free_ports() -> tuple[int, int]:
    """Two ports below those of outgoing connections, which could take them while Kafka is down."""
    while True:
        ports = random.sample(range(20_000, 32_000), 2)
        if all(_is_free(port) for port in ports):
            return ports[0], ports[1]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
