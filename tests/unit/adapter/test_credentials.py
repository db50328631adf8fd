"""The fields of a profile."""

from __future__ import annotations

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap import credentials
from dbt.adapters.sparkwap.credentials import SparkWapCredentials


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(credentials._logger, "warning", found.append)
    return found


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("lakee", "Did you mean `lake`?"),
        ("server_side_paramters", "Did you mean `server_side_parameters`?"),
        ("zebra", "docs/profile.md lists the fields."),
    ],
)
def test_a_field_without_effect_is_named(field: str, hint: str, warnings: list[str]) -> None:
    SparkWapCredentials.from_dict({"schema": "shop", field: {}})
    assert warnings == [f"Profile: there is no field `{field}`, so it has no effect. {hint}"]


def test_the_fields_of_dbt_spark_are_known(warnings: list[str]) -> None:
    SparkWapCredentials.from_dict(
        {
            "method": "thrift", "host": "spark", "port": 10000, "schema": "shop", "user": "dbt",
            "auth": "NONE", "use_ssl": False, "connect_retries": 3, "connect_timeout": 5,
            "retry_all": True, "server_side_parameters": {"a": "b"}, "query_timeout": 60,
            "poll_interval": 1, "organization": "0", "catalog": {"type": "sql"},
        }
    )  # fmt: skip
    assert warnings == []


@pytest.mark.parametrize("field", ["host", "catalog", "connect_url"])
def test_a_server_without_a_method_is_not_taken_for_the_embedded_one(field: str) -> None:
    given = {"schema": "shop", field: {"type": "sql"} if field == "catalog" else "spark"}
    with pytest.raises(DbtRuntimeError, match=f"`{field}` is for a server of your own"):
        SparkWapCredentials.from_dict(dict(given))
    assert SparkWapCredentials.from_dict({**given, "method": "embedded"}).embedded
