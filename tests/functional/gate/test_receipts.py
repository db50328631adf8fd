"""What a publish leaves behind: snapshot summaries, tags, and rows in the ledger."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.catalogs import STAMPED


@pytest.mark.smoke
def test_receipts_of_a_publish(shop: Any) -> None:
    schema, reader = shop.project.schema, shop.reader
    held = shop.dbt("run", "--exclude", "notes").succeeded()
    done = shop.dbt("test").succeeded()
    tag = f"wap_pub_{done.run_id[:8]}"
    for name in ("orders", "totals", "customers"):
        metadata = reader.metadata(schema, name)
        main = metadata["refs"]["main"]["snapshot-id"]
        assert metadata["refs"][tag]["snapshot-id"] == main
        assert metadata["refs"][tag]["type"] == "tag"
        assert metadata["refs"][tag]["max-ref-age-ms"] == 90 * 24 * 60 * 60 * 1000
        snapshot = next(s for s in metadata["snapshots"] if s["snapshot-id"] == main)
        # The run that wrote the rows, not the one that audited them.
        if STAMPED:
            assert snapshot["summary"]["wap_run"] == held.run_id
        assert held.branch not in metadata["refs"]

    (run,) = reader.ledger("runs", run_id=held.run_id)
    assert (run["command"], run["outcome"], run["branch"]) == ("run", "held", held.branch)
    (audit,) = reader.ledger("runs", run_id=done.run_id)
    assert (audit["command"], audit["outcome"]) == ("test", "published")
    assert audit["project"] == "shop"
    assert audit["started_at"] <= audit["ended_at"]

    published = {r["name"]: r for r in reader.ledger("publishes", run_id=done.run_id)}
    assert set(published) == {"orders", "totals", "customers"}
    for name, row in published.items():
        metadata = reader.metadata(schema, name)
        log = [entry["snapshot-id"] for entry in metadata["snapshot-log"]]
        assert [row["base_snapshot"], row["candidate_snapshot"]] == log[-2:]
        assert row["action"] == "publish"
        assert row["publish_id"] == audit["publish_id"]
        assert row["published_metadata"] == shop.look()[name].location

    tests = {r["test_name"]: r for r in reader.ledger("tests", run_id=done.run_id)}
    assert {r["status"] for r in tests.values()} == {"pass"}
    assert set(tests) == {
        "orders_have_ids",
        "orders_have_customers",
        "totals_are_known",
        "customers_are_unique",
    }
    audited = dict(tests["orders_have_ids"]["audited"])
    assert audited == {"model.shop.orders": str(published["orders"]["candidate_snapshot"])}
    nodes = {r["name"]: r for r in reader.ledger("nodes", run_id=held.run_id)}
    assert {r["verdict"] for r in nodes.values()} == {"held"}
    assert nodes["totals"]["parents"] == ["model.shop.orders"]


@pytest.mark.smoke
def test_publish_is_rolled_back_whole(shop: Any) -> None:
    done = shop.dbt("build").succeeded()
    assert shop.new() == {"orders", "totals", "customers", "notes"}
    with shop.reader.polling(shop.project.schema) as poller:
        shop.project.operation("wap_rollback", run=done.run_id[:8]).succeeded()
    assert shop.new() == set()
    old, new = poller.only_move()
    assert set(old) == set(new)
    assert all(old[name] != new[name] for name in old)
    actions = {r["action"] for r in shop.reader.ledger("publishes", branch=done.branch)}
    assert actions == {"publish", "rollback"}
