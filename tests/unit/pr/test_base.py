"""The publish that a pull request is compared with."""

from __future__ import annotations

from typing import Any

from sparkwap.catalog.model import PublishedEntry
from sparkwap.ledger.records import LedgerPublish
from sparkwap.pr import base

from .conftest import NOW, ORDERS


def publish(number: int, *tables: tuple[str, str], **more: Any) -> LedgerPublish:
    entries = tuple(PublishedEntry(t, "branch", 1, "", 2, "") for t in tables or (ORDERS,))
    given = {"left": entries, "manifest_hash": f"h{number}", **more}
    return LedgerPublish(f"p{number}", f"r{number}", "b", NOW, entries, **given)


def test_the_newest_publish_of_the_projects_tables_is_the_base() -> None:
    projects = {f"h{n}": "shop" for n in range(9)} | {"h7": "other"}
    found = [
        publish(8, left=()),
        publish(7),  # another project's
        publish(6, ("dev_ann", "orders")),  # a developer's own schema
        publish(5, manifest_hash=None),  # a clone
        publish(4, ("Shop", "ORDERS"), ("dev_ann", "x")),
        publish(3),
    ]
    assert base.choose(found, projects, "shop", {ORDERS}) == found[4]
    assert base.choose(found[:4], projects, "shop", {ORDERS}) is None


def test_each_table_has_the_code_of_its_own_last_publish() -> None:
    other = ("shop", "other")
    found = [publish(3, ("Shop", "Other")), publish(2, left=()), publish(1, ORDERS, other)]
    assert base.last_code(found) == {other: "h3", ORDERS: "h1"}
