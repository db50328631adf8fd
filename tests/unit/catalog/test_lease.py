"""Leases: which runs are alive, by the catalog's clock and the machine's processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers.sql_metastore import SqlMetastore

from sparkwap.catalog import lease as leasing
from sparkwap.catalog.leases import TTL_SECONDS, CatalogLeases, Lease, Leases, MetastoreLeases
from sparkwap.publish.lake import Lake

RUN = "1a2b3c4d-0000-4000-8000-000000000000"
LEASE = Lease(RUN, "dev", "build", 123, 500.0, "x", "far away", 1000.0, 2000.0)
CLOCK = "by the catalog's clock"
EXPIRED = 2000.0 + TTL_SECONDS + 1


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    lake = Lake("lake", {"type": "sql", "uri": uri, "warehouse": f"{tmp_path}/warehouse"})
    yield lake
    lake.close()


@pytest.mark.parametrize(
    ("now", "machine", "started", "lives"),
    [
        (2000.0 + TTL_SECONDS, "here", None, True),
        (EXPIRED, "here", None, False),
        (2001.0, "far away", 500.0, True),
        (2001.0, "far away", 530.0, True),
        (2001.0, "far away", 5000.0, False),
        (2001.0, "far away", None, False),
        (2001.0, "far away", float("nan"), True),
        (EXPIRED, "far away", 500.0, False),
    ],
    ids=[
        "heard of",
        "not heard of",
        "its process is there",
        "the clock was put right",
        "its process id belongs to another one",
        "its process is gone",
        "its process may not be looked at",
        "its process is there and silent",
    ],
)
def test_which_runs_are_alive(now: float, machine: str, started: float | None, lives: bool) -> None:
    found = leasing.alive(LEASE, now, machine=machine, started=lambda pid: started)
    assert found is lives


def test_processes_of_another_machine_are_not_looked_up_here() -> None:
    here = replace(LEASE, pid=os.getpid(), machine="another container of the same name")
    assert leasing.alive(here, 2001.0)


@pytest.fixture(params=[CLOCK, "by clocks of their own", "in a metastore"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All kinds of leases."""
    kinds: dict[str, Callable[[Any], Leases]] = {
        "by clocks of their own": lambda lake: CatalogLeases(lambda: lake.catalog),
        "in a metastore": lambda lake: MetastoreLeases(
            SqlMetastore(lake.store.backend), lake.store.backend.ensure_schema
        ),
    }
    if request.param in kinds:
        without = cached_property(kinds[request.param])
        without.__set_name__(Lake, "leases")
        monkeypatch.setattr(Lake, "leases", without)
    return str(request.param)


def test_a_lease_is_visible_to_others_renewed_and_released(lake: Lake, kind: str) -> None:
    elsewhere = Lake("lake", lake.properties)
    assert elsewhere.leases.all() == []
    elsewhere.leases.release(RUN)
    holding = leasing.hold(lake.leases, run_id=RUN, branch="dev", command="build", every=0.01)
    (first,) = elsewhere.leases.all()
    # Machines whose clocks differ by hours agree on the live runs.
    assert leasing.alive(first, elsewhere.leases.now() + 5 * 3600) is (kind != CLOCK)
    assert (first.run_id, first.branch, first.pid) == (RUN, "dev", os.getpid())
    assert abs(first.since - time.time()) < 60
    deadline = time.monotonic() + 5
    while elsewhere.leases.all()[0].renewed == first.renewed and time.monotonic() < deadline:
        time.sleep(0.01)
    (later,) = elsewhere.leases.all()
    assert later.renewed > first.renewed
    assert later.since == first.since
    assert leasing.alive(later, elsewhere.leases.now())
    holding.release()
    holding.release()
    assert elsewhere.leases.all() == []
    elsewhere.close()


def test_a_removed_lease_is_not_renewed(lake: Lake, kind: str) -> None:
    taken = lake.leases.take(LEASE)
    lake.leases.release(RUN)
    assert lake.leases.renew(taken) is None
    assert lake.leases.all() == []


def test_a_catalog_that_fails_for_a_while_does_not_end_the_renewals(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, fails = lake.leases.renew, [3]

    def renew(lease: Lease) -> Lease | None:
        if fails[0]:
            fails[0] -= 1
            raise OSError("no route to the catalog")
        return whole(lease)

    monkeypatch.setattr(lake.leases, "renew", renew)
    holding = leasing.hold(lake.leases, run_id=RUN, branch="dev", command="build", every=0.01)
    (first,) = lake.leases.all()
    deadline = time.monotonic() + 5
    while lake.leases.all()[0].renewed == first.renewed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert lake.leases.all()[0].renewed > first.renewed
    holding.release()


def test_a_lease_of_another_version_is_no_error(lake: Lake) -> None:
    lake.ensure_schema("wap_ledger")
    with lake.store.backend.transaction() as connection:
        lake.store.backend.put_property(connection, "wap_ledger", "wap.lease.x", '{"novel": 1}')
    assert lake.leases.all() == []


def test_a_process_that_may_not_be_inspected_counts_as_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hidden(pid: int) -> None:
        raise psutil.AccessDenied(pid)

    monkeypatch.setattr(psutil, "Process", hidden)
    mine = replace(LEASE, machine=leasing.this_machine())
    assert leasing.alive(mine, 2001.0)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_containers_have_different_ids() -> None:
    here = leasing.this_machine()
    assert os.readlink("/proc/self/ns/pid") in here  # noqa: PTH115
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() in here


def test_machines_with_different_clocks_agree_on_live_runs(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database's clock is five days ahead of this machine's."""
    clock = lake.store.backend.clock
    ahead = 5 * 86_400
    monkeypatch.setattr(lake.store.backend, "clock", lambda connection: clock(connection) + ahead)
    taken = lake.leases.take(LEASE)
    assert leasing.alive(taken, lake.leases.now())
    renewed = lake.leases.renew(taken)
    assert renewed is not None and leasing.alive(renewed, lake.leases.now())
    assert lake.leases.all() == [renewed]


def test_a_check_sees_who_holds_a_lease(lake: Lake, kind: str) -> None:
    taken = lake.leases.take(LEASE)
    seen: list[tuple[list[Lease], bool]] = []
    look = lake.leases.guard(lambda leases, now: seen.append((leases, leasing.alive(taken, now))))
    look(None)
    assert seen == [([taken], True)]


def test_a_lease_in_words() -> None:
    assert leasing.describe(LEASE, lives=True) == (
        "in use by run 1a2b3c4d, process 123 on host x, since 1970-01-01 00:16:40 UTC"
    )
    assert "is dead; it was last heard of at 1970-01-01 00:33:20 UTC" in leasing.describe(
        LEASE, lives=False
    )
