"""A lake in an S3 store for which this process has no keys but those that the REST server vends.

Iceberg's own server on an S3 server (moto); a filter vends keys for the folder of one table, and
the store refuses requests outside it, and after the end of the keys.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from helpers.bench import BRANCH, RUN, Bench
from helpers.rest import running_rest_server
from helpers.s3 import REGION, Store, forget_own_keys, running_s3
from helpers.strict_rest import Rules, StrictServer, running_strict_server

from sparkwap.catalog import LedgerRows
from sparkwap.core.errors import CatalogError
from sparkwap.maintenance.decision import Limits
from sparkwap.maintenance.sweeper import Sweeper

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
SECOND = "2a2b3c4d-0000-4000-8000-000000000000"
FORMS: list[Literal["config", "storage-credentials"]] = ["config", "storage-credentials"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StrictServer, Store]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKWAP_JARS", os.environ.get("SPARKWAP_JARS", str(ROOT / ".lake/jars")))
        forget_own_keys(patch)
        with (
            running_s3() as store,
            running_rest_server(tmp_path_factory.mktemp("rest"), store) as server,
            running_strict_server(server) as strict,
        ):
            yield strict, store


@pytest.fixture
def make(servers: tuple[StrictServer, Store], tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    strict, store = servers
    made = []

    def on(rules: Rules, **more: str) -> Bench:
        strict.reset(rules)
        access = {"s3.endpoint": store.endpoint, "s3.region": REGION}
        found = Bench(tmp_path, None, {**strict.server.properties, **access, **more})
        made.append(found)
        for schema in found.lake.schemas():
            found.lake.drop_schema(schema, purge=True)
        found.lake.ensure_schema("s")
        store.requests()
        return found

    yield on
    for one in made:
        one.lake.close()


@pytest.mark.parametrize("form", FORMS)
def test_publish_rollback_and_discard(
    make: Callable[..., Bench], servers: tuple[StrictServer, Store], form: Any
) -> None:
    lake = make(Rules(vends=form))
    for name in "ac":
        lake.table(name, 1)
    items = [lake.candidate("a", 2), lake.new("n", 4), lake.changed("c", 3)]
    receipt = lake.publish(*items, appends=[LedgerRows("runs", [{"run_id": "x"}])])
    assert {name: lake.read(name) for name in "acn"} == {"a": [1, 2], "c": [3], "n": [4]}
    lake.lake.publishing.rollback(receipt.entries, run_id=RUN, publish_id=receipt.publish_id)
    assert [lake.read(name) for name in "ac"] == [[1], [1]]
    assert lake.lake.relations("s") == {"a": "table", "c": "table"}
    assert lake.lake.ledger.publish(receipt.publish_id)[0].rolled_back
    lake.changed("a", 7)
    lake.lake.branches.discard(BRANCH)
    assert lake.lake.branches.all() == []
    assert lake.read("a") == [1]
    # No request was outside a folder, which is what the store refuses.
    assert "AccessDenied" not in servers[1].requests()
    location = lake.state(("s", "a")).metadata_location
    lake.lake.drop_schema("s", purge=True)
    assert not lake.lake.store.files.exists(location)


def test_another_process_rolls_back_and_sweeps(make: Callable[..., Bench]) -> None:
    lake = make(Rules(vends="config"))
    for name in "abc":
        lake.table(name, 1)
    base = lake.state(("s", "b")).metadata_location
    changed = lake.publish(lake.candidate("a", 2), lake.changed("c", 3), lake.new("n", 4))
    lake.new("b", 9)
    replaced = lake.publish(lake.side("b", base), tag="wap_pub_second", run_id=SECOND)
    late = Bench(lake.folder, None, lake.properties)
    late.lake.publishing.rollback(changed.entries, run_id=RUN, publish_id=changed.publish_id)
    assert [late.read(name) for name in "abc"] == [[1], [9], [1]]
    # The catalog does not know the replaced table any more, so it vends no keys for its files.
    with pytest.raises(CatalogError, match=r"cannot be read.*Nothing was changed"):
        late.lake.publishing.rollback(replaced.entries, run_id=RUN, publish_id=replaced.publish_id)
    assert late.read("b") == [9]
    lake.candidate("a", 7)
    report = Sweeper(late.lake, run_id=RUN, limits=Limits(0, 0), retention_days=90).sweep()
    assert late.lake.branches.all() == [] and not report.problems
    assert list(report.found.left_alone.values()) == [
        "keys that the catalog vends cannot list the warehouse"
    ]
    late.lake.close()


def test_keys_that_end_are_asked_for_again(
    make: Callable[..., Bench], servers: tuple[StrictServer, Store]
) -> None:
    strict, store = servers
    lake = make(Rules(vends="config"))
    lake.table("a", 1)
    location = lake.state(("s", "a")).metadata_location
    # The next keys are valid for two seconds, those after them for an hour.
    strict.reset(Rules(vends="config", seconds=2))
    late = Bench(lake.folder, None, lake.properties)
    assert late.state(("s", "a")).metadata_location == location
    time.sleep(3)
    strict.reset(Rules(vends="config"))
    assert late.lake.store.reload(location)["table-uuid"]
    assert [target for _, target in strict.seen] == ["/v1/namespaces/s/tables/a"]
    assert late.lake.store.reload(location)
    assert len(strict.seen) == 1
    late.lake.close()
    assert "ExpiredToken" not in store.requests()
