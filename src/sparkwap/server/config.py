"""What a server is configured by, where its files are, and how it is reached."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sparkwap.core.errors import ConfigError
from sparkwap.core.redaction import remember

LOOPBACK = "127.0.0.1"

# A lake's path ends up in a class path, in Hadoop globs and in URIs, each with characters of its
# own that cannot be escaped in the others.
_UNUSABLE_IN_PATH = re.compile(r"[:*?#%\[\]{}\\\n\r\t\"']")
_KEY = re.compile(r"spark\.[\w.$-]+", re.ASCII)
_MEMORY = re.compile(r"^[1-9][0-9]*[mgMG]$")


@dataclass(frozen=True)
class ServerConfig:
    """The settings of the embedded server of one lake.

    Attributes:
        lake: the lake directory (``.lake``); made if it is absent.
        thrift_port: TCP port of the Thrift endpoint on loopback; 0 chooses a free one.
        connect_port: TCP port of the Spark Connect endpoint on loopback; 0 chooses a free one.
        memory: heap of the driver, such as ``2g`` or ``1500m``.
        cores: number of task threads; ``None`` takes all cores of the machine.
        idle_minutes: the server stops after so many minutes without a client; 0 keeps it up.
        spark_conf: Spark settings of the user, added to (and over) the defaults.
        catalog_uri: another catalog: SQLAlchemy's URI of a database, such as
            ``postgresql+psycopg2://user:password@127.0.0.1/lake``, or the address of an Iceberg
            REST catalog (``http://...``); ``None`` is SQLite in the lake.

    Raises:
        ConfigError: a value is not allowed; the message names it and the legal values.
    """

    lake: Path
    thrift_port: int = 0
    connect_port: int = 0
    memory: str = "2g"
    cores: int | None = None
    idle_minutes: float = 60
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    catalog_uri: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        lake = resolve_lake(self.lake)
        object.__setattr__(self, "lake", lake)
        remember(self.spark_conf, {"uri": self.catalog_uri})
        problems = list(self._problems())
        if problems:
            raise ConfigError("The server's settings are not usable: " + "; ".join(problems))

    def _problems(self) -> list[str]:
        found = []
        for name in ("thrift_port", "connect_port"):
            port = getattr(self, name)
            if not 0 <= port <= 65535:
                found.append(f"{name} is {port}, legal are 0 (choose a free port) to 65535")
        if self.thrift_port and self.thrift_port == self.connect_port:
            found.append(f"thrift_port and connect_port are both {self.thrift_port}")
        if not _MEMORY.match(self.memory):
            found.append(f"memory is {self.memory!r}, legal are sizes such as '2g' or '1500m'")
        if self.cores is not None and self.cores < 1:
            found.append(f"cores is {self.cores}, legal is 1 or more, or nothing for all cores")
        if self.idle_minutes < 0:
            found.append(f"idle_minutes is {self.idle_minutes}, legal is 0 (never) or more")
        found += [
            f"spark_conf has {key!r}, keys must begin with 'spark.', and have no blanks in them"
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
    """A running server: where it listens and how a client proves that it may connect.

    Attributes:
        host: address that both endpoints are bound to.
        thrift_port: port of the Thrift endpoint (Hive protocol, SASL plain, any user name).
        connect_port: port of the Spark Connect endpoint.
        token: bearer token that Spark Connect asks for.
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
        """The Spark Connect URL, token included.

        The host is written ``localhost``: for that name alone PySpark sends a token without TLS.
        """
        return f"sc://localhost:{self.connect_port}/;token={self.token}"


@dataclass(frozen=True)
class LakePaths:
    """Where the files of a lake are; ``lake`` is an absolute path."""

    lake: Path

    @property
    def warehouse(self) -> Path:
        """Data and metadata files of the tables."""
        return self.lake / "warehouse"

    @property
    def sqlite(self) -> Path:
        """The SQLite database of the catalog."""
        return self.lake / "catalog.db"

    @property
    def jars(self) -> Path:
        """The pinned jars; ``SPARKWAP_JARS`` may name a directory that several lakes share."""
        shared = os.environ.get("SPARKWAP_JARS")
        return Path(shared).expanduser().resolve() if shared else self.lake / "jars"

    @property
    def server(self) -> Path:
        """All files of the server itself."""
        return self.lake / "server"

    @property
    def state(self) -> Path:
        """The running server as JSON (see ``sparkwap.server.state``)."""
        return self.server / "state.json"

    @property
    def lock(self) -> Path:
        """Held while the server is started, stopped or looked up."""
        return self.server / "lock"

    @property
    def log(self) -> Path:
        """Output of the server of this start; ``server.log.1`` is that of the start before."""
        return self.server / "server.log"

    @property
    def clients(self) -> Path:
        """One file per client process."""
        return self.server / "clients"

    @property
    def activity(self) -> Path:
        """A file whose modification time is the last time a client was seen."""
        return self.server / "activity"

    @property
    def conf(self) -> Path:
        """Spark's configuration directory (properties with secrets, log4j2)."""
        return self.server / "conf"

    @property
    def tmp(self) -> Path:
        """Scratch space of the server; emptied at each start."""
        return self.server / "tmp"

    def create(self) -> None:
        """Make the directories, readable by their owner only."""
        for directory in (self.lake, self.warehouse, self.server, self.clients, self.conf):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (self.lake, self.server, self.conf):
            directory.chmod(0o700)


def resolve_lake(lake: Path | str) -> Path:
    """Return the absolute path of a lake directory.

    Raises:
        ConfigError: the path holds a character that Spark's paths cannot carry.
    """
    resolved = Path(lake).expanduser().resolve()
    bad = sorted(set(_UNUSABLE_IN_PATH.findall(str(resolved))))
    if bad:
        raise ConfigError(
            f"The lake directory {resolved} cannot be used: its path contains "
            f"{' '.join(repr(c) for c in bad)}, which Spark cannot handle in paths. "
            "Nothing was made. Set `lake` in profiles.yml (or --lake) to another directory."
        )
    return resolved
