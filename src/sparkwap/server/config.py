"""The settings of a server, the paths of its files, and its endpoint."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sparkwap.core.errors import ConfigError
from sparkwap.core.redaction import remember

LOOPBACK = "127.0.0.1"

# A lake's path is used in a class path, in Hadoop globs and in URIs; these characters cannot be
# escaped in all of them.
_UNUSABLE_IN_PATH = re.compile(r"[:*?#%\[\]{}\\\n\r\t\"']")
_KEY = re.compile(r"spark\.[\w.$-]+", re.ASCII)
_MEMORY = re.compile(r"^[1-9][0-9]*[mgMG]$")


@dataclass(frozen=True)
class ServerConfig:
    """The settings of the embedded server of one lake.

    Attributes:
        lake: the lake directory (``.lake``); created if it is missing.
        thrift_port: TCP port of the Thrift endpoint on loopback; 0 selects a free port.
        connect_port: TCP port of the Spark Connect endpoint on loopback; 0 selects a free port.
        memory: heap of the driver, such as ``2g`` or ``1500m``.
        cores: number of task threads; None for all cores of the machine.
        idle_minutes: minutes without a client after which the server stops; 0 for never.
        spark_conf: Spark settings of the user, which override the defaults.
        kafka: whether Spark can read Kafka topics.
        catalog_uri: SQLAlchemy's URI of a database, such as
            ``postgresql+psycopg2://user:password@127.0.0.1/lake``, or the address of an Iceberg
            REST catalog (``http://...``); None for SQLite in the lake.

    Raises:
        ConfigError: values are illegal; the message has the legal values.
    """

    lake: Path
    thrift_port: int = 0
    connect_port: int = 0
    memory: str = "2g"
    cores: int | None = None
    idle_minutes: float = 60
    kafka: bool = False
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    catalog_uri: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        lake = resolve_lake(self.lake)
        object.__setattr__(self, "lake", lake)
        remember(self.spark_conf, {"uri": self.catalog_uri})
        problems = list(self._problems())
        if problems:
            raise ConfigError(
                f"The server's settings are invalid: {'; '.join(problems)}. The server was not "
                "started. Correct them in profiles.yml, or in the options of `sparkwap server "
                "start`."
            )

    def _problems(self) -> list[str]:
        found = []
        for name in ("thrift_port", "connect_port"):
            port = getattr(self, name)
            if not 0 <= port <= 65535:
                found.append(f"{name} is {port}, legal: 0 (a free port) to 65535")
        if self.thrift_port and self.thrift_port == self.connect_port:
            found.append(f"thrift_port and connect_port are both {self.thrift_port}")
        if not _MEMORY.match(self.memory):
            found.append(f"memory is {self.memory!r}, legal: sizes such as '2g' or '1500m'")
        if self.cores is not None and self.cores < 1:
            found.append(f"cores is {self.cores}, legal: 1 or more, or nothing for all cores")
        if self.idle_minutes < 0:
            found.append(f"idle_minutes is {self.idle_minutes}, legal: 0 (never) or more")
        found += [
            f"spark_conf has {key!r}, keys must begin with 'spark.' and have no blanks"
            for key in self.spark_conf
            if not _KEY.fullmatch(key)
        ]
        return found

    @property
    def layout(self) -> LakePaths:
        """The paths of this lake."""
        return LakePaths(self.lake)


@dataclass(frozen=True)
class Endpoint:
    """The addresses of a running server, and the token of its clients.

    Attributes:
        host: address of both endpoints.
        thrift_port: port of the Thrift endpoint (Hive protocol, SASL plain, any user name).
        connect_port: port of the Spark Connect endpoint.
        token: bearer token for Spark Connect.
        pid: process id of the Spark driver.
    """

    host: str
    thrift_port: int
    connect_port: int
    token: str = field(repr=False)
    pid: int

    def __post_init__(self) -> None:
        remember(self.token)

    @property
    def connect_url(self) -> str:
        """The Spark Connect URL, including the token.

        The host is ``localhost``: only for this name, PySpark sends a token without TLS.
        """
        return f"sc://localhost:{self.connect_port}/;token={self.token}"


class LakePaths:
    """The paths of a lake's files.

    Attributes:
        lake: An absolute path.
        warehouse: Data and metadata files of the tables.
        sqlite: The SQLite database of the catalog.
        jars: The pinned jars; ``SPARKWAP_JARS`` may be a directory for several lakes.
        server: All files of the server itself.
        state: The running server as JSON (see ``sparkwap.server.state``).
        lock: Held while the server is started, stopped or looked up.
        log: Output of the server since its start; ``server.log.1`` is of the previous start.
        clients: One file per client process.
        activity: A file whose modification time is the last time a client was seen.
        conf: Spark's configuration directory (properties with secrets, log4j2).
        tmp: Temporary files of the server; deleted at each start.
    """

    def __init__(self, lake: Path) -> None:
        shared = os.environ.get("SPARKWAP_JARS")
        self.lake = lake
        self.warehouse = lake / "warehouse"
        self.sqlite = lake / "catalog.db"
        self.jars = Path(shared).expanduser().resolve() if shared else lake / "jars"
        self.server = lake / "server"
        self.state = self.server / "state.json"
        self.lock = self.server / "lock"
        self.log = self.server / "server.log"
        self.clients = self.server / "clients"
        self.activity = self.server / "activity"
        self.conf = self.server / "conf"
        self.tmp = self.server / "tmp"

    def command(self, action: str) -> str:
        """Return the command ``sparkwap server`` of this lake."""
        return f"sparkwap server {action} --lake {shlex.quote(str(self.lake))}"

    def create(self) -> None:
        """Create the directories, readable by their owner only."""
        for directory in (self.lake, self.warehouse, self.server, self.clients, self.conf):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (self.lake, self.server, self.conf):
            directory.chmod(0o700)


def resolve_lake(lake: Path | str) -> Path:
    """Return the absolute path of a lake directory.

    Raises:
        ConfigError: the path has a character that Spark's paths cannot have.
    """
    resolved = Path(lake).expanduser().resolve()
    bad = sorted(set(_UNUSABLE_IN_PATH.findall(str(resolved))))
    if bad:
        raise ConfigError(
            f"The lake directory {resolved} cannot be used: its path contains "
            f"{' '.join(repr(c) for c in bad)}, which Spark cannot handle in paths. "
            "Nothing was created. Set `lake` in profiles.yml (or --lake) to another directory."
        )
    return resolved
