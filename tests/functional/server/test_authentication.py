"""A Spark server of the user's own with logins (LDAP), TLS and a token for Connect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.catalogs import PYTHON_MODELS
from helpers.directory import BASE, Certificate, certificate, running_directory, tls_proxy
from helpers.project import Project
from helpers.spark_server import SparkServer, running_server
from pyiceberg.catalog.sql import SqlCatalog

from sparkwap.cli import main

PASSWORD, TOKEN = "annas-password", "token-of-connect"
SQL = {
    "models/orders.sql": """
        {{ config(materialized='table') }} select id, {{ var('amount', 1) }} as amount from range(3)
    """,
    "models/orders.yml": """
        models:
          - name: orders
            columns:
              - name: amount
                data_tests: [{accepted_values: {name: small, values: [1, 2], quote: false}}]
    """,
}
PYTHON = {
    "models/totals.py": """
        def model(dbt, session):
            dbt.config(materialized="table")
            return dbt.ref("orders").groupBy().sum("amount").withColumnRenamed("sum(amount)", "t")
    """
}
# The class that asks the directory reads hive-site.xml only, not Spark's own settings.
SITE = """
<configuration>
  <property><name>hive.server2.authentication.ldap.url</name><value>{url}</value></property>
  <property><name>hive.server2.authentication.ldap.baseDN</name><value>{base}</value></property>
</configuration>
"""


@dataclass
class Secured:
    """The server, and projects on it."""

    server: SparkServer
    identity: Certificate
    folder: Path

    def project(self, name: str, files: dict[str, str] | None = None, **changes: Any) -> Project:
        """Make a project whose profile has the right login and TLS, apart from ``changes``."""
        output = {
            **self.server.output,
            "user": "anna",
            "password": PASSWORD,
            "auth": "LDAP",
            "use_ssl": True,
            **changes,
        }
        output = {key: value for key, value in output.items() if value is not None}
        return Project(self.folder / name, name, output).write(files or SQL)

    def schemas(self) -> set[tuple[str, ...]]:
        """Return the schemas in which a reader finds tables."""
        catalog = SqlCatalog("lake", **self.server.catalog)
        found = {one for one in catalog.list_namespaces() if catalog.list_tables(one)}
        catalog.close()
        return found - {("wap_ledger",)}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    identity, hs2 = certificate(folder / "tls"), "spark.hadoop.hive.server2"
    settings = {
        f"{hs2}.authentication": "LDAP",
        f"{hs2}.use.SSL": "true",
        f"{hs2}.keystore.path": str(identity.keystore),
        f"{hs2}.keystore.password": identity.password,
    }
    with running_directory({"anna": PASSWORD}) as port:
        site = folder / "server/conf/hive-site.xml"
        site.parent.mkdir(parents=True)
        site.write_text(SITE.format(url=f"ldap://127.0.0.1:{port}", base=BASE))
        with running_server(folder / "server", TOKEN, **settings) as server:
            yield Secured(server, identity, folder)


def test_the_right_login_builds_through_the_gate(secured: Secured) -> None:
    files = {**SQL, **(PYTHON if PYTHON_MODELS else {})}
    project = secured.project("right", files, ssl_ca=str(secured.identity.pem))
    project.dbt("build").succeeded()
    rejected = project.dbt("build", amount=9).failed()
    assert rejected.verdict("orders") == "rejected"
    catalog = SqlCatalog("lake", **secured.server.catalog)
    orders = catalog.load_table("right.orders").scan().to_arrow()
    assert orders["amount"].to_pylist() == [1, 1, 1]
    catalog.close()
    assert PASSWORD not in rejected.text
    folders = ("--project-dir", str(project.folder), "--profiles-dir", str(project.folder))
    assert main(["doctor", *folders]) == 0


def test_a_certificate_that_nobody_checks(secured: Secured) -> None:
    secured.project("unchecked").dbt("build").succeeded()
    assert ("unchecked",) in secured.schemas()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "password": ({"password": "not-annas"}, "refuses the login of anna (auth: LDAP)"),
    "user": ({"user": "bo"}, "refuses the login of bo (auth: LDAP)"),
    "no_auth": ({"auth": None, "password": None}, "refuses the login of anna (auth: NONE)"),
    "no_tls": ({"use_ssl": False}, "A server with TLS closes connections without it: set `use_ssl"),
    "authority": ({"ssl_ca": "system"}, "CERTIFICATE_VERIFY_FAILED"),
    "name": ({"host": "127.0.0.2"}, "127.0.0.2"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_one_error_says_what_is_wrong(
    secured: Secured, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, said = WRONG[case]
    if case == "name":
        changes = {**changes, "ssl_ca": str(secured.identity.pem)}
    project, before = secured.project(f"wrong_{case}", **changes), secured.schemas()
    ended = project.dbt("build").failed()
    told = {line.strip() for line in ended.text.splitlines() if "The Spark server" in line}
    assert any(said in line and "The statement was not sent." in line for line in told), ended.text
    assert "Traceback" not in ended.text
    assert PASSWORD not in ended.text
    assert "not-annas" not in ended.text
    assert ended.verdict("orders") == "rejected"
    assert secured.schemas() == before
    folders = ("--project-dir", str(project.folder), "--profiles-dir", str(project.folder))
    assert main(["doctor", *folders]) == 1
    assert said in capsys.readouterr().out


def test_a_ca_without_tls_is_refused(secured: Secured) -> None:
    ended = secured.project("ca_without_tls", use_ssl=False, ssl_ca="system").dbt("build").failed()
    assert "`ssl_ca` needs `use_ssl: true`" in ended.text


@pytest.mark.skipif(not PYTHON_MODELS, reason="Python models need Spark 4.0")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sc://localhost:{port}/", "refuses the token: No authentication token provided"),
        (
            "sc://localhost:{port}/;token=not-this-one",
            "refuses the token: Invalid authentication token",
        ),
        ("sc://localhost:{port}/;use_ssl=true;token=" + TOKEN, "Spark itself has none"),
    ],
)
def test_a_refused_connect_session(secured: Secured, url: str, said: str) -> None:
    url = url.format(port=secured.server.connect_port)
    name = f"connect_{'tls' if 'use_ssl' in url else 'token' if 'token' in url else 'none'}"
    ended = secured.project(name, {**SQL, **PYTHON}, connect_url=url).dbt("build").failed()
    assert said in ended.text
    assert "The model was not run." in ended.text
    assert TOKEN not in ended.text
    assert (name,) not in secured.schemas()


@pytest.mark.skipif(not PYTHON_MODELS, reason="Python models need Spark 4.0")
def test_connect_behind_a_proxy_with_tls(secured: Secured) -> None:
    with tls_proxy(secured.server.connect_port, secured.identity) as port:
        url = f"sc://localhost:{port}/;use_ssl=true;token={TOKEN}"
        project = secured.project("proxied", {**SQL, **PYTHON}, connect_url=url)
        # gRPC reads its authorities once in a process.
        trusted = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(secured.identity.pem)}
        process = project.start("build", environment=trusted)
        assert process.wait(timeout=180) == 0, project.errors.read_text()
    assert ("proxied",) in secured.schemas()
