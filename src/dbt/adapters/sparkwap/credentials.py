"""The profile: where Spark and the lake's catalog are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.spark.connections import SparkConnectionMethod, SparkCredentials
from dbt_common.exceptions import DbtRuntimeError

from sparkwap.core.redaction import remember
from sparkwap.server import ServerConfig, catalog_properties

EMBEDDED = "embedded"
_OF_SERVERS = ("host", "port", "catalog", "connect_url", "token", "password", "cluster", "endpoint")
_logger = AdapterLogger("Sparkwap")


@dataclass
class SparkWapCredentials(SparkCredentials):
    """The fields of a profile's output.

    All of dbt-spark's fields keep their meaning. New ones:

    method
        ``embedded`` (the default): the first connection starts a Spark server for the folder
        ``lake``. Otherwise a method of dbt-spark: ``thrift``, ``http``, ``odbc``, ``session``.
    lake
        The lake's folder of an embedded server; relative to the project's folder.
    ssl_ca
        Of ``method: thrift`` with ``use_ssl``: a PEM file with the certificate authority of the
        server, or ``system`` for those of this machine. Without it, the server's certificate is
        not checked, as in dbt-spark.
    connect_url
        Spark Connect endpoint (``sc://host:port``) for Python models. The embedded server sets it.
    catalog, catalog_name
        PyIceberg properties of the Iceberg catalog that the server uses (``type``, ``uri``,
        ``warehouse``, ...), and its name in Spark. The embedded server sets them.
    thrift_port, connect_port, memory, cores, idle_minutes, kafka, spark_conf, catalog_uri
        The embedded server's ports (0: any free port), heap, cores, minutes without work until it
        stops (0: never), whether it can read Kafka, further Spark settings, and a catalog in
        place of the lake's SQLite file: the SQLAlchemy URI of a database, or the address of an
        Iceberg REST catalog.
    """

    host: str | None = None
    schema: str | None = None
    method: SparkConnectionMethod | str = EMBEDDED  # type: ignore[assignment]
    lake: str = ".lake"
    ssl_ca: str | None = None
    connect_url: str | None = None
    catalog: dict[str, Any] = field(default_factory=dict)
    catalog_name: str = "lake"
    thrift_port: int = 0
    connect_port: int = 0
    memory: str = "2g"
    cores: int | None = None
    idle_minutes: float = 60
    kafka: bool = False
    spark_conf: dict[str, Any] = field(default_factory=dict)
    catalog_uri: str | None = None
    query_retries: int = 0
    # dbt-spark polls every 5 seconds, so a statement could end up to 5 seconds late.
    poll_interval: float = 0.5  # type: ignore[assignment]

    @classmethod
    def __pre_deserialize__(cls, data: Any) -> Any:
        known = [one.name for one in fields(cls)]
        for name in [name for name in data if name not in known]:
            # No error: dbt-spark ignores such fields, so a profile of it may have some.
            close = get_close_matches(str(name), known, n=1)
            hint = f"Did you mean `{close[0]}`?" if close else "docs/profile.md lists the fields."
            _logger.warning(f"Profile: there is no field `{name}`, so it has no effect. {hint}")
        remote = [name for name in _OF_SERVERS if data.get(name)]
        if remote and not data.get("method"):
            raise DbtRuntimeError(
                f"Profile: `method` is missing, and `{remote[0]}` is for a server of your own. "
                "Nothing was run: sparkwap would have started a server with an own lake. Set "
                "`method: thrift`, or `method: embedded` for that server."
            )
        return super().__pre_deserialize__(data)

    def __post_init__(self) -> None:
        parameters = dict(self.server_side_parameters)
        methods = [EMBEDDED, *(str(m.value) for m in SparkConnectionMethod)]
        if self.method not in methods:
            raise DbtRuntimeError(
                f"Profile: `method: {self.method}` is unknown. Legal values: {', '.join(methods)}."
            )
        embedded = self.method == EMBEDDED
        if embedded:
            # dbt-spark's checks accept only its own methods.
            self.method = SparkConnectionMethod.THRIFT
            self.host = self.host or "127.0.0.1"
            self.user = self.user or "dbt"
        elif not self.catalog:
            raise DbtRuntimeError(
                f"Profile: `method: {self.method}` needs `catalog`: the properties with which "
                "PyIceberg connects to the catalog of the Spark server, for example "
                "`catalog: {type: sql, uri: postgresql+psycopg2://..., warehouse: s3://...}`. "
                "The gate publishes tables through this catalog."
            )
        if self.ssl_ca and not self.use_ssl:
            raise DbtRuntimeError(
                "Profile: `ssl_ca` needs `use_ssl: true`; without it, the password would be sent "
                "without encryption."
            )
        remember(
            self.password, self.token, self.catalog, self.spark_conf, parameters,
            {"uri": self.catalog_uri, "connect": self.connect_url},
        )  # fmt: skip
        super().__post_init__()
        if embedded:
            self.method = EMBEDDED
        if self.query_retries:
            raise DbtRuntimeError(
                "Profile: `query_retries` must be 0, because a statement that is sent again after "
                "a lost connection may run twice. Use `dbt retry` instead."
            )
        # dbt-spark disables ANSI mode here. sparkwap keeps Spark's default, which is enabled.
        self.server_side_parameters = _texts(parameters)

    def __repr__(self) -> str:
        # The fields contain passwords and keys, which a log of the profile must not show.
        return f"SparkWapCredentials({self.method}, {self.unique_field}, {self.schema})"

    @property
    def type(self) -> str:
        return "sparkwap"

    @property
    def embedded(self) -> bool:
        """Whether sparkwap starts the Spark server."""
        return str(self.method) == EMBEDDED

    @property
    def unique_field(self) -> str:
        return self.lake if self.embedded else str(self.host)

    def session_token(self, project_root: str) -> str:
        """Return a token of what results follow from besides code and rows.

        These are the settings of Spark in the profile, and the order in which dbt searches macros.
        """
        from dbt.config.project import load_raw_project

        given = [
            self.server_side_parameters,
            _texts(self.spark_conf),
            load_raw_project(project_root).get("dispatch"),
        ]
        text = json.dumps(given, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _connection_keys(self) -> tuple[str, ...]:
        if self.embedded:
            return "method", "lake", "schema"
        return "method", "host", "port", "schema", "connect_url", "catalog_name"

    def server_config(self, project_root: str) -> ServerConfig:
        """Return the embedded server's settings."""
        return ServerConfig(
            lake=(Path(project_root) / self.lake).resolve(),
            thrift_port=self.thrift_port,
            connect_port=self.connect_port,
            memory=self.memory,
            cores=self.cores,
            idle_minutes=self.idle_minutes,
            kafka=self.kafka,
            spark_conf=_texts(self.spark_conf),
            catalog_uri=self.catalog_uri,
        )

    def catalog_settings(self, project_root: str) -> Mapping[str, str]:
        """Return PyIceberg's properties of the lake's catalog."""
        own = (
            catalog_properties(self.server_config(project_root))
            if self.embedded
            else _texts(self.catalog)
        )
        # A store under load refuses requests; PyArrow alone would send each one three times.
        return {"s3.retry-strategy-impl": "sparkwap.catalog.private.S3Retries", **own}


def _texts(given: Mapping[Any, Any]) -> dict[str, str]:
    """Return settings of the profile as texts, which YAML may have read as numbers."""
    return {str(key): str(value) for key, value in given.items()}
