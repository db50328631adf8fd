"""A rejected build and a rollback send messages to the owners of the tables."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.endpoints import Endpoint, dead_address, endpoint
from helpers.lake import Reader
from helpers.project import MakeProject, Project

from sparkwap.cli import main

FILES = {
    "models/orders.sql": """
        {{ config(materialized='table', meta={'owner': 'jane'}) }}
        select id, id * {{ env_var('ALERTS_V') }} as amount from range(1, 4)
        {% if env_var('ALERTS_BAD') == 'both' %} union all select 2, 7
        {% elif env_var('ALERTS_BAD') == 'amounts' %} union all select 4, null {% endif %}
    """,
    "models/customers.sql": """
        {{ config(materialized='table', meta={'owner': 'joe@example.com'}) }}
        select
            id,
            {% if env_var('ALERTS_BAD') == 'both' %} 'ann.smith@example.com'
            {% else %} concat('customer', id, '@example.com') {% endif %} as email
        from range(1, 4)
    """,
    "models/notes.sql": "{{ config(materialized='table') }} select {{ env_var('ALERTS_V') }} as v",
    "models/properties.yml": """
        models:
          - name: orders
            columns:
              - {name: id, data_tests: [{unique: {name: orders_are_unique}}]}
              - {name: amount, data_tests: [{not_null: {name: amounts_are_known}}]}
          - name: customers
            columns:
              - name: email
                config: {meta: {personal: customer}}
                data_tests: [{unique: {name: emails_are_unique}}]
    """,
}
ALERTS = {
    "timeout": 2,
    "tries": 2,
    "sample_rows": 3,
    "held_hours": 0,
    "routes": [{"name": "team", "type": "webhook", "url": "{{ env_var('ALERTS_HOOK') }}"}],
}
SECRET = "T0SECRETPATH"


@pytest.fixture(scope="module")
def project(make_project: MakeProject) -> Iterator[Project]:
    project = make_project("alerts", FILES, settings={"vars": {"wap_alerts": ALERTS}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALERTS_V", "1")
        patch.setenv("ALERTS_BAD", "none")
        patch.setenv("ALERTS_HOOK", dead_address())
        patch.setenv("NO_PROXY", "127.0.0.1")
        project.dbt("build").succeeded()
        yield project


@pytest.fixture
def hook(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with endpoint() as found:
        monkeypatch.setenv("ALERTS_HOOK", found.url)
        yield found


def check(project: Project) -> int:
    """`sparkwap alerts check`, which needs no Spark."""
    folder = str(project.folder)
    return main(["alerts", "check", "--project-dir", folder, "--profiles-dir", folder])


def test_a_rejected_build_sends_a_message_to_each_owner(
    project: Project, reader: Reader, hook: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: look.seen() for name, look in reader.look(project.schema).items()}
    monkeypatch.setenv("ALERTS_BAD", "both")
    done = project.dbt("build").failed()
    assert {name: look.seen() for name, look in reader.look(project.schema).items()} == before
    assert "alert sent to team: 1 table rejected" in done.text

    messages = {tuple(request.json["owners"]): request.json for request in hook.received}
    assert set(messages) == {("jane",), ("joe@example.com",)}
    assert {m["run_id"] for m in messages.values()} == {done.run_id}
    (orders,) = messages["jane",]["events"]
    assert (orders["kind"], orders["subject"]) == ("rejected", f"{project.schema}.orders")
    assert orders["branch"] == done.branch
    assert orders["reasons"] == ["test orders_are_unique failed (1 row)"]
    (test,) = orders["tests"]
    assert test["sample"]["columns"] == ["unique_field", "n_records"]
    assert test["sample"]["rows"] == [["2", "2"]]
    assert "dbt retry" in {way["command"] for way in orders["next"]}
    assert "wap_discard" in str(orders["next"])

    (customers,) = messages["joe@example.com",]["events"]
    (test,) = customers["tests"]
    assert test["sample"]["rows"] == []
    assert "withheld" in test["sample"]["withheld"]
    # No text has a personal value or the secret address.
    assert not any("ann.smith" in request.body.decode() for request in hook.received)
    written = [done.text, str(reader.ledger("alerts"))]
    written += (path.read_text() for path in (project.folder / "logs").glob("*.log*"))
    written += (path.read_text() for path in (project.folder / "target").glob("*.json*"))
    assert not any(SECRET in text for text in written)
    rows = reader.ledger("alerts", run_id=done.run_id)
    assert {(r["subject"], r["outcome"]) for r in rows} == {
        (f"{project.schema}.orders", "sent"),
        (f"{project.schema}.customers", "sent"),
    }

    # The same problem is sent once a day, by any process.
    project.dbt("build").failed()
    assert len(hook.received) == 2
    project.operation("wap_discard", branch=done.branch).succeeded()


def test_a_slow_endpoint_neither_stops_nor_delays_a_publish(
    project: Project, reader: Reader, hook: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("ALERTS_BAD", "amounts")
    monkeypatch.setenv("ALERTS_V", "2")
    hook.answers = [-100] * 9
    published: list[float] = []
    project.listeners.append(lambda _: published.append(time.monotonic()))
    done = project.dbt("build", wap_publish="lineage").failed()
    project.listeners.clear()
    # The clean tables are live, also by dbt's run results.
    assert done.verdict("notes") == "published"
    assert reader.table(project.schema, "notes").values("v") == [2]
    assert "alert not sent to team" in done.text
    assert "within 2 s" in done.text
    longest = max(b - a for a, b in itertools.pairwise(published))
    assert longest < 60, "sending took longer than its limit"

    # The next check sends the message that was not delivered.
    hook.answers = []
    hook.received.clear()
    assert check(project) == 0
    kinds = {
        (event["kind"], event["subject"].partition(".")[2])
        for request in hook.received
        for event in request.json["events"]
    }
    assert ("rejected", "orders") in kinds
    assert check(project) == 0
    assert "There is nothing new." in capsys.readouterr().out


def test_a_rollback_sends_a_message(
    project: Project, reader: Reader, hook: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALERTS_V", "3")
    before = reader.table(project.schema, "orders").seen()
    done = project.dbt("build", "--select", "orders").succeeded()
    assert hook.received == []
    rolled = project.operation("wap_rollback", run=done.run_id[:8]).succeeded()
    assert reader.table(project.schema, "orders").seen() == before
    assert "alert sent to team: 1 table rolled back" in rolled.text
    (request,) = hook.received
    (event,) = request.json["events"]
    assert (event["kind"], event["subject"]) == ("rolled_back", f"{project.schema}.orders")
    assert request.json["owners"] == ["jane"]
    assert done.run_id[:8] in event["reasons"][0]
    assert check(project) == 0
