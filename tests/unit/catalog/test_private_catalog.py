"""The private catalog of a session reads the files of the lake as the lake's catalog does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkwap.catalog.private_catalog import CATALOG, PrivateCatalog

LAKE = "spark.sql.catalog.lake"
SHOWN = {
    f"{LAKE}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    f"{LAKE}.s3.access-key-id": "key",
    f"{LAKE}.s3.secret-access-key": "*********(redacted)",
    f"{LAKE}.uri": "jdbc:postgresql://db/lake",
    "spark.sql.catalog.other.s3.endpoint": "http://elsewhere",
}
PLACE = f"spark.sql.catalog.{CATALOG}"


def opened(settings: dict[str, str]) -> dict[str, str]:
    """The settings that a session gets, of those that its server shows."""
    found: dict[str, str] = {}

    def sql(statement: str) -> Sequence[Sequence[Any]]:
        if statement == "set":
            return [(key, value, "", "") for key, value in settings.items()]
        if statement.startswith("set "):
            key, _, value = statement.removeprefix("set ").partition("=")
            found[key.strip("`")] = value
        return []

    PrivateCatalog(sql, "lake").open()
    return found


def test_keys_whose_secret_is_hidden_are_those_of_the_environment() -> None:
    found = opened(SHOWN)
    assert found[f"{PLACE}.io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert not any("access-key" in key for key in found)
    assert found[f"{PLACE}.uri"].startswith("jdbc:sqlite:")
    assert f"{PLACE}.s3.endpoint" not in found


def test_shown_keys_are_copied() -> None:
    shown = {key: value.replace("(redacted)", "") for key, value in SHOWN.items()}
    found = opened(shown)
    assert found[f"{PLACE}.s3.access-key-id"] == "key"
    assert f"{PLACE}.s3.secret-access-key" in found
