"""The settings of the server, and its Spark settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.server import Endpoint, ServerConfig, catalog_properties, defaults
from sparkwap.server.catalog import spark_catalog

POSTGRES = "postgresql+psycopg2://user:p%40ss@db.example:5433/lake?sslmode=require"


def settings(config: ServerConfig) -> dict[str, str]:
    return defaults.merged(config, thrift_port=1, connect_port=2, token="secret")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"thrift_port": 70000}, "thrift_port is 70000"),
        ({"connect_port": -1}, "connect_port is -1"),
        ({"thrift_port": 5, "connect_port": 5}, "are both 5"),
        ({"memory": "lots"}, "memory is 'lots', legal: sizes such as '2g'"),
        ({"memory": "0g"}, "memory is '0g'"),
        ({"cores": 0}, "cores is 0"),
        ({"idle_minutes": -1}, "idle_minutes is -1"),
        ({"spark_conf": {"sql.ansi": "x"}}, "'sql.ansi', keys must begin with 'spark.'"),
    ],
)
def test_the_error_names_an_illegal_value(
    tmp_path: Path, setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(lake=tmp_path, **setting)
    assert message in str(caught.value)


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cores is 0.*idle_minutes is -2"):
        ServerConfig(lake=tmp_path, cores=0, idle_minutes=-2)


@pytest.mark.parametrize("name", ["a:b", "50%", "a#b", "what?", "star*", "[x]"])
def test_a_lake_that_spark_cannot_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        ServerConfig(lake=tmp_path / name)
    assert not (tmp_path / name).exists()


def test_blanks_and_umlauts_in_the_path_are_fine(tmp_path: Path) -> None:
    config = ServerConfig(lake=tmp_path / "mein schöner see")
    assert catalog_properties(config)["warehouse"].endswith("/mein schöner see/warehouse")


def test_python_and_spark_open_the_same_sqlite_file(tmp_path: Path) -> None:
    config = ServerConfig(lake=tmp_path)
    file = f"{tmp_path}/catalog.db"
    assert catalog_properties(config) == {
        "type": "sql",
        "uri": f"sqlite:///{file}?timeout=60",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    spark = spark_catalog(config)
    assert spark["spark.sql.catalog.lake.uri"] == f"jdbc:sqlite:{file}?busy_timeout=60000"
    assert spark["spark.sql.catalog.lake.jdbc.schema-version"] == "V1"


def test_a_postgresql_uri_becomes_a_jdbc_url(tmp_path: Path) -> None:
    config = ServerConfig(lake=tmp_path, catalog_uri=POSTGRES)
    assert catalog_properties(config)["uri"] == POSTGRES
    spark = spark_catalog(config)
    prefix = "spark.sql.catalog.lake"
    base, _, query = spark[f"{prefix}.uri"].partition("?")
    assert base == "jdbc:postgresql://db.example:5433/lake"
    # Sessions leak their connections, so the database closes idle connections.
    assert query == "options=-c%20idle_session_timeout%3D60000&sslmode=require"
    assert spark[f"{prefix}.jdbc.user"] == "user"
    assert spark[f"{prefix}.jdbc.password"] == "p@ss"


@pytest.mark.parametrize("uri", ["mysql://u:geheim@h/db", "postgresql://h", "no uri at all"])
def test_another_database_is_refused(tmp_path: Path, uri: str) -> None:
    with pytest.raises(ConfigError, match=r"Legal: postgresql\+psycopg2://") as caught:
        spark_catalog(ServerConfig(lake=tmp_path, catalog_uri=uri))
    assert "geheim" not in str(caught.value)


def test_all_endpoints_are_on_loopback(tmp_path: Path) -> None:
    found = settings(ServerConfig(lake=tmp_path))
    addresses = {value for key, value in found.items() if key.lower().endswith(("host", "address"))}
    assert addresses == {"127.0.0.1"}
    assert found["spark.connect.authenticate.token"] == "secret"


def test_all_files_are_in_the_lake(tmp_path: Path) -> None:
    found = settings(ServerConfig(lake=tmp_path))
    directories = [v for k, v in found.items() if k.lower().endswith(("dir", "location"))]
    assert len(directories) >= 5
    assert all(str(tmp_path) in directory for directory in directories)


def test_the_users_settings_override_the_defaults(tmp_path: Path) -> None:
    conf = {"spark.sql.shuffle.partitions": "99", "spark.sql.custom": "yes"}
    found = settings(ServerConfig(lake=tmp_path, spark_conf=conf))
    assert found["spark.sql.shuffle.partitions"] == "99"
    assert found["spark.sql.custom"] == "yes"


@pytest.mark.parametrize(
    "key", ["spark.connect.grpc.binding.address", "spark.sql.defaultCatalog", "spark.driver.memory"]
)
def test_the_user_cannot_override_the_servers_settings(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        settings(ServerConfig(lake=tmp_path, spark_conf={key: "x"}))


def test_properties_are_escaped() -> None:
    rendered = defaults.render_properties({"spark.b": "two\nlines", "spark.a": r"back\slash"})
    assert rendered == "spark.a back\\\\slash\nspark.b two\\nlines\n"


def test_a_connect_url_names_localhost() -> None:
    # PySpark sends a token without TLS only for this name.
    endpoint = Endpoint("127.0.0.1", 10000, 15002, "abc", 1)
    assert endpoint.connect_url == "sc://localhost:15002/;token=abc"
