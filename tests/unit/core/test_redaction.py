"""Redaction: secrets are removed from texts, other texts stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from sparkwap.core import redaction
from sparkwap.core.errors import CatalogError
from sparkwap.core.redaction import is_secret, redact, remember
from sparkwap.server import Endpoint, ServerConfig, catalog_properties
from sparkwap.server.catalog import spark_catalog

SECRET = "hunter2-%41&x"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(redaction, "_known", set())
    yield


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("postgresql://lake:pw@db/lake is down", "postgresql://lake:***@db/lake is down"),
        ("postgresql+psycopg2://u:p%40ss@h:5/d", "postgresql+psycopg2://u:***@h:5/d"),
        ("amqp://:pw@h", "amqp://:***@h"),
        ("postgresql://u:p@ss@h:5/d is down", "postgresql://u:***@h:5/d is down"),
        ("sc://localhost:15002/;token=abc-_9 failed", "sc://localhost:15002/;token=*** failed"),
        (
            "jdbc:postgresql://h/d?user=u&password=a1b2&x=1",
            "jdbc:postgresql://h/d?user=u&password=***&x=1",
        ),
        ("spark.hadoop.fs.s3a.secret.key=AbC/9+ next", "spark.hadoop.fs.s3a.secret.key=*** next"),
        ("{'s3.secret-access-key': 'AbC', 'b': 1}", "{'s3.secret-access-key': '***', 'b': 1}"),
        ('{"password": "x y"}', '{"password": "*** y"}'),
        ("fs.s3a.session.token = T0k", "fs.s3a.session.token = ***"),
        ("PASSWORD='x'", "PASSWORD='***'"),
        ("fs.azure.account.key=Zm9v==", "fs.azure.account.key=***"),
        ("password: x9", "password: ***"),
        ("{s3.secret-access-key: AbC}", "{s3.secret-access-key: ***}"),
        ("auth_token: abc-1", "auth_token: ***"),
        ("Authorization: Bearer eyJ.a-b_c", "Authorization: Bearer ***"),
        ("header.authorization=Basic dTpw", "header.authorization=Basic ***"),
        ("{'header.Authorization': 'Bearer abc'}", "{'header.Authorization': 'Bearer ***'}"),
        ("curl said: bearer eyJhbGciOi.x was refused", "curl said: bearer *** was refused"),
        ("parquet.encryption.key=k1:00", "parquet.encryption.key=***"),
        ("spark.encryption.key: 0011", "spark.encryption.key: ***"),
        (
            "https://a.blob.core.windows.net/c?sv=1&sig=ab%3D&se=2",
            "https://a.blob.core.windows.net/c?sv=1&sig=***&se=2",
        ),
        ("fs.azure.sas.c.a.windows.net=sv=1", "fs.azure.sas.c.a.windows.net=***"),
        (
            "POST https://hooks.slack.com/services/T0/B0/x: 403",
            "POST https://hooks.slack.com/***: 403",
        ),
        ("at https://x.webhook.office.com/webhookb2/a", "at https://x.webhook.office.com/***"),
    ],
)
def test_shapes_of_secrets(text: str, left: str) -> None:
    assert redact(text) == left
    assert str(CatalogError(text)) == left


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[PARSE_SYNTAX_ERROR] Syntax error at or near token: 'selec'",
        "s3://bucket/path@2/key=1/file.parquet",
        "the primary key = id",
        "http://localhost:8080/a b@c",
        "column password is not there",
        "fs.s3a.access.key.id is set",
        "Secret names are not told",
        "the bearer of it",
        "the design = signed, sasha = 1",
        "authorization is missing",
        "https://example.com/docs/alerts",
    ],
)
def test_other_texts_are_unchanged(text: str) -> None:
    assert redact(text) == text


def test_known_values_are_removed_everywhere() -> None:
    remember(
        SECRET, None, "abc", {"s3.secret-access-key": "AKIA-secret", "s3.region": "eu-north-1"}
    )
    text = f"x{SECRET}y AKIA-secret eu-north-1 abcabc"
    assert redact(text) == "x***y *** eu-north-1 abcabc"


def test_the_part_of_a_password_that_a_library_takes_as_the_host_is_removed() -> None:
    remember("postgresql://bob:hun@ter2secret@127.0.0.1:1/lake")
    assert redact('no host "ter2secret@127.0.0.1"') == 'no host "***@127.0.0.1"'


def test_the_password_of_a_uri_is_removed_in_both_spellings() -> None:
    remember({"uri": "postgresql://lake:p%40ssw%3Ard@db/lake?application_name=app"})
    assert redact("p%40ssw%3Ard p@ssw:rd lake application") == "*** *** lake application"


@pytest.mark.parametrize(
    "written",
    [
        'p@ss/w:r d"é',
        "p%40ss/w%3Ar%20d%22%C3%A9",
        "p%40ss%2Fw%3Ar%20d%22%C3%A9",
        "p%40ss%2fw%3ar%20d%22%c3%a9",
        "p%40ss%2Fw%3Ar+d%22%C3%A9",
        'p@ss/w:r d\\"\\u00e9',
    ],
)
@pytest.mark.parametrize("told", ['p@ss/w:r d"é', "p%40ss%2Fw%3Ar%20d%22%C3%A9"])
def test_encoded_forms_of_known_values_are_removed(written: str, told: str) -> None:
    remember(told)
    assert redact(f"cannot reach x?y={written}: refused") == "cannot reach x?y=***: refused"


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "S3.Secret-Access-Key",
        "fs.s3a.session.token",
        "aws.credential",
        "header.Authorization",
        "parquet.encryption.key",
        "fs.azure.sas.c.a",
        "slack_webhook",
    ],
)
def test_names_of_secrets(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "key", ["uri", "s3.access-key-id", "fs.s3a.endpoint", "primary_key", "user"]
)
def test_names_of_other_things(key: str) -> None:
    assert not is_secret(key)


def test_configurations_and_endpoints_do_not_show_secrets(tmp_path: Path) -> None:
    uri = f"postgresql+psycopg2://lake:{quote(SECRET)}@db/lake?sslpassword=other-secret"
    config = ServerConfig(
        tmp_path, catalog_uri=uri, spark_conf={"spark.hadoop.fs.s3a.secret.key": "s3-secret"}
    )
    endpoint = Endpoint("127.0.0.1", 1, 2, "connect-token", 3)
    shown = f"{config!r} {endpoint!r}"
    for secret in (SECRET, "other-secret", "s3-secret", "connect-token"):
        assert secret not in shown
        assert redact(f"so {secret} it is") == "so *** it is"
    # Spark gets it as a setting of its own, not in the address that it tells in its errors.
    settings = spark_catalog(config)
    assert "other-secret" not in settings["spark.sql.catalog.lake.uri"]
    assert settings["spark.sql.catalog.lake.jdbc.password"] == SECRET
    assert settings["spark.sql.catalog.lake.jdbc.sslpassword"] == "other-secret"
    assert catalog_properties(config)["uri"] == uri
