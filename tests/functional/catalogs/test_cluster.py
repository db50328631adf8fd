"""A Spark cluster with its warehouse in an S3 store: the gate's promises, and what may break there.

Two workers run the tasks, PostgreSQL has the catalog. A reader that has no part in sparkwap asks
the catalog and the store by PyIceberg.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from dbt_common.events.base_types import EventMsg
from helpers.catalogs import PostgresSource
from helpers.cluster import Cluster, running_cluster
from helpers.lake import Reader
from helpers.people import ANNA, BO, FORMER, SHOP, holding
from helpers.project import Outcome, Project
from helpers.s3 import Faults

from sparkwap.cli import main

pytestmark = pytest.mark.timeout(900)

FILES = {
    "models/orders.sql": """
        {{ config(materialized='table') }}
        select id, id * {{ var('v') }} as amount, repeat('x', 20) as note
        from range(0, {{ var('rows', 1000) }}, 1, 4)
    """,
    "models/loaded.sql": """
        {{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }}
        select id, amount from {{ ref('orders') }}
    """,
    "models/totals.py": """
        def model(dbt, session):
            dbt.config(materialized="table")
            orders = dbt.ref("orders")
            return orders.groupBy().sum("amount").withColumnRenamed("sum(amount)", "total")
    """,
    "models/newest.sql": """
        {{ config(materialized='view') }} select max(id) as id from {{ ref('orders') }}
    """,
    "models/properties.yml": """
        models:
          - name: orders
            columns:
              - {name: id, data_tests: [unique, not_null]}
              - name: amount
                data_tests:
                  - below_a_million: {name: amounts_are_small}
          - name: loaded
            columns: [{name: id, data_tests: [unique]}]
          - name: totals
            columns: [{name: total, data_tests: [not_null]}]
    """,
    "macros/range.sql": """
        {% test below_a_million(model, column_name) %}
        select * from {{ model }} where {{ column_name }} >= 1000000
        {% endtest %}
    """,
}
SUM = sum(range(1000))
MOST_REQUESTS = {"build": 400, "audit": 340, "publish": 340}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, shared_jars: None) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@dataclass
class Shop:
    """A project on the cluster, and its reader."""

    project: Project
    reader: Reader
    cluster: Cluster

    def build(self, v: int, *arguments: str, **variables: Any) -> Outcome:
        return self.project.dbt(*(arguments or ("build",)), v=v, **variables)

    def factor(self) -> dict[str, int]:
        """By which ``v`` each table is built that readers see."""
        tables = self.reader.look(self.project.schema)
        found = {name: sum(tables[name].values("amount")) // SUM for name in ("orders", "loaded")}
        return {**found, "totals": tables["totals"].values("total")[0] // SUM}

    def sees(self, v: int) -> bool:
        """Whether readers see all tables as of one build."""
        return self.factor() == {"orders": v, "loaded": v, "totals": v}


@pytest.fixture
def shop(cluster: Cluster, tmp_path: Path) -> Iterator[Shop]:
    """A project that is published with ``v`` 1."""
    schema = f"shop_{tmp_path.name[-12:].strip('_').replace('-', '_').lower()}"
    source = PostgresSource(cluster.database.uri, cluster.store.warehouse, cluster.store.properties)
    project = Project(tmp_path, schema, cluster.output).write(FILES)
    shop = Shop(project, Reader(tmp_path, source), cluster)
    shop.build(1).succeeded()
    assert shop.sees(1)
    yield shop
    cluster.store.faults(Faults())
    project.operation("wap_discard")


@pytest.mark.smoke
def test_the_gate_on_a_cluster(shop: Shop) -> None:
    assert len(shop.cluster.executors()) == 2
    rejected = shop.build(10_000_000).failed()
    assert rejected.verdict("orders") == "rejected"
    assert shop.sees(1)
    held = shop.build(2, "run").succeeded()
    assert held.verdict("loaded") == "held"
    assert shop.sees(1)
    shop.build(2, "test").succeeded()
    assert shop.sees(2)
    done = shop.build(3).succeeded()
    assert shop.sees(3)
    shop.project.operation("wap_rollback", run=done.run_id).succeeded()
    assert shop.sees(2)


def test_requests_to_the_store(shop: Shop) -> None:
    """Those of dbt's machine and of Spark, for four tables with five tests."""
    asked = {}
    held = shop.build(2, "run").succeeded()
    for name, call in {
        "build": lambda: shop.build(3, "run"),
        "audit": lambda: shop.build(3, "test", wap_publish="never"),
        "publish": lambda: shop.project.operation("wap_publish", branch=held.branch),
    }.items():
        shop.cluster.store.requests()
        call().succeeded()
        counted = shop.cluster.store.requests()
        assert "503" not in counted
        asked[name] = sum(counted.values())
    print(asked)
    assert shop.sees(3)
    assert all(asked[name] <= most for name, most in MOST_REQUESTS.items()), asked


def breaking(
    shop: Shop, node: str, event: str, action: Callable[[], None], seconds: float = 0
) -> None:
    """Act once, when dbt reports an event of a node, such as ``NodeStart``."""
    done = threading.Event()

    def listen(message: EventMsg) -> None:
        if message.info.name != event or done.is_set():
            return
        if getattr(getattr(message.data, "node_info", None), "node_name", "") == node:
            done.set()
            threading.Timer(seconds, action).start()

    shop.project.listeners.append(listen)


def kill_an_executor(cluster: Cluster) -> None:
    for process in cluster.executors()[:1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def lose_a_worker(cluster: Cluster) -> None:
    cluster.kill("worker-1")
    cluster.start_worker(1)


def restart_the_driver(cluster: Cluster) -> None:
    cluster.kill("driver")
    cluster.start_server()


def restart_postgres(cluster: Cluster) -> None:
    cluster.database.stop()
    time.sleep(1)
    cluster.database.start()


@pytest.mark.parametrize("node", ["orders", "loaded", "unique_orders_id"])
@pytest.mark.parametrize(
    "broken", [kill_an_executor, lose_a_worker, restart_the_driver, restart_postgres]
)
def test_something_breaks(shop: Shop, broken: Callable[[Cluster], None], node: str) -> None:
    """Readers see the state before or after the whole run; `dbt retry` or a build goes on."""
    breaking(shop, node, "NodeStart", lambda: broken(shop.cluster), seconds=0.3)
    ended = shop.build(2)
    _ready(shop.cluster)
    assert shop.sees(2) if ended.ok else shop.sees(1), ended.text
    if not ended.ok:
        shop.project.listeners.clear()
        again = shop.build(2, "retry")
        assert again.ok, again.text
        assert shop.sees(2)


def test_a_person_is_erased_from_the_store(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_mail = """
        {{ config(materialized='table', partition_by=['customer_id', 'email']) }}
        select * from {{ ref('stg_shop__customers') }}
    """
    marks = """
        models:
          - name: by_mail
            columns:
              - {name: customer_id, config: {meta: {subject: customer}}}
              - {name: email, config: {meta: {personal: customer}}}
              - {name: city, config: {meta: {personal: customer}}}
    """
    files = {**SHOP, "models/by_mail.sql": by_mail, "models/marks.yml": marks}
    project = Project(tmp_path / "club", "club", cluster.output).write(files)
    for version in ("1", "2"):
        monkeypatch.setenv("ERASURE_V", version)
        project.dbt("build").succeeded()
    before = cluster.store.download(tmp_path / "before")
    assert holding(before, ANNA) and holding(before, FORMER)
    done = project.operation("wap_erase", subject="customer", keys=["42"], confirm=True).succeeded()
    assert "none holds the subject" in done.text
    assert "Not searched: what the object store keeps" in done.text
    after = cluster.store.download(tmp_path / "after")
    assert holding(after, ANNA, FORMER) == []
    assert holding(after, BO) != []
    # An empty object would stand for a folder: its key must not hold a value either.
    keys = cluster.store.object_keys()
    assert [key for key in keys if "email=bo.lund" in key]
    assert not [key for key in keys if "anna." in key]


def test_a_store_that_deletes_nothing(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The erasure is not proven, and goes on when it is called again."""
    project = Project(tmp_path / "club", "closed", cluster.output).write(SHOP)
    monkeypatch.setenv("ERASURE_V", "2")
    project.dbt("build").succeeded()
    cluster.store.faults(Faults(every=1, method="DELETE"))
    request = {"subject": "customer", "keys": ["42"], "confirm": True}
    failed = project.operation("wap_erase", **request)
    cluster.store.faults(Faults())
    failed.failed()
    assert "could not be deleted" in failed.text
    assert "none holds the subject" in project.operation("wap_erase", **request).succeeded().text
    assert holding(cluster.store.download(tmp_path / "after"), ANNA) == []


@pytest.mark.parametrize("faults", [Faults(every=5), Faults(seconds=0.3)])
def test_a_store_under_load(shop: Shop, faults: Faults) -> None:
    """Requests that the store refuses are sent again; what takes long only takes long."""
    shop.cluster.store.faults(faults)
    shop.build(2).succeeded()
    shop.cluster.store.faults(Faults())
    assert shop.sees(2)


def test_doctor_where_the_store_refuses_everything(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.project.folder)
    shop.cluster.store.faults(Faults(every=1))
    code = main(["doctor"])
    shop.cluster.store.faults(Faults())
    told = capsys.readouterr().out
    assert code == 1
    assert "cannot be read and written from this machine" in told
    assert "could not check whether writes stay on their audit branch" in told
    assert "Connect endpoint" not in told and "`catalog_name`" not in told
    assert main(["doctor"]) == 0, capsys.readouterr().out


def test_a_store_that_refuses_everything(shop: Shop) -> None:
    breaking(shop, "loaded", "NodeStart", lambda: shop.cluster.store.faults(Faults(every=1)))
    ended = shop.build(2).failed()
    shop.cluster.store.faults(Faults())
    assert shop.sees(1), ended.text
    assert "keyboard" not in ended.text
    shop.project.listeners.clear()
    shop.build(2, "retry").succeeded()
    assert shop.sees(2)


def _ready(cluster: Cluster) -> None:
    """Wait until the server answers a query again."""
    from pyhive import hive

    end = time.monotonic() + 180
    while True:
        try:
            with hive.connect(cluster.host, cluster.thrift_port, username="t", auth="NONE") as one:
                cursor = one.cursor()
                cursor.execute("select count(*) from range(0, 100, 1, 4)")
                return
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(1)
