"""Three published runs, and the first of them once more: the same rows in the same columns."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project

TABLE = "{{ config(materialized='table') }} "
MODELS = {
    "models/orders.sql": TABLE + "select * from {{ source('web', 'events') }} as events",
    "models/first_seen.sql": """
        {{ config(materialized='incremental') }}
        select orders.id, {{ wap_now() }} as seen_at from {{ ref('orders') }} orders
        {% if is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}
    """,
    "models/in_python.py": """
        def model(dbt, session):
            dbt.config(materialized="table")
            orders = dbt.ref("orders")
            return orders.join(dbt.source("web", "events").select("id"), "id")
    """,
    "models/newest.sql": """
        {{ config(materialized='view') }} select max(id) as id from {{ ref('orders') }}
    """,
    "models/by_view.sql": TABLE + "select id from {{ ref('newest') }}",
}
PROPERTIES = """
    sources:
      - {{name: web, schema: {schema}, tables: [name: events]}}
    models:
      - {{name: orders, columns: [{{name: id, data_tests: [unique, not_null]}}]}}
"""
TABLES = ("orders", "in_python", "first_seen")


@dataclass
class Story:
    """A project of which three states were published, and what readers saw of each."""

    project: Project
    reader: Reader
    look: Any
    source: tuple[str, str]
    runs: list[Outcome] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)

    def publish(self, events: pa.Table) -> None:
        table = self.reader.catalog.load_table(self.source)
        with table.update_schema() as update:
            update.union_by_name(events.schema)
        table.append(events)
        self.runs.append(self.project.dbt("build").succeeded())
        self.states.append({name: self.look.main(name) for name in TABLES})

    def replay(self, as_of: str, *arguments: str) -> Outcome:
        return self.project.dbt("build", *arguments, as_of=as_of)

    def branch(self, outcome: Outcome) -> dict[str, Any]:
        return {name: self.look.branch(name, outcome.branch) for name in TABLES}

    def seen(self) -> dict[str, Any]:
        """What a reader of main can see."""
        return {n: one.seen() for n, one in self.reader.look(self.project.schema).items()}


@pytest.fixture(scope="module")
def story(make_project: MakeProject, reader: Reader, branch_reader: Any) -> Story:
    schema = f"web_{secrets.token_hex(2)}"
    reader.catalog.create_namespace(schema)
    events = pa.table({"id": pa.array([1, 2], pa.int64()), "amount": ["1.10", "2.20"]})
    reader.catalog.create_table((schema, "events"), events.schema)
    project = make_project(
        "replay", {**MODELS, "models/properties.yml": PROPERTIES.format(schema=schema)}
    )
    story = Story(project, reader, branch_reader(reader, project.schema), (schema, "events"))
    story.publish(events)
    story.publish(pa.table({"id": pa.array([3], pa.int64()), "amount": ["3.30"]}))
    story.publish(pa.table({"id": pa.array([4], pa.int64()), "amount": ["4"], "note": ["new"]}))
    return story


@pytest.mark.smoke
def test_the_states_differ(story: Story) -> None:
    columns = [state["orders"].columns for state in story.states]
    assert columns[0] == columns[1] != columns[2]
    assert [len(state["orders"].rows) for state in story.states] == [2, 3, 4]


def test_the_first_state_once_more_and_again(story: Story) -> None:
    before = story.seen()
    (row, *_) = story.reader.ledger("publishes", run_id=story.runs[0].run_id)
    replayed = []
    # By its tag, and by the time of that publish.
    for as_of in (f"wap_pub_{story.runs[0].run_id[:8]}", row["published_at"].isoformat()):
        done = story.replay(as_of).succeeded()
        assert {done.verdict(name) for name in TABLES} == {"held"}
        replayed.append(story.branch(done))
        (run,) = story.reader.ledger("runs", run_id=done.run_id)
        assert run["as_of"].startswith(row["published_at"].isoformat()[:19])
        # All that it did not build itself: the source, at its first snapshot.
        events = story.reader.catalog.load_table(story.source)
        first = next(one for one in events.history()[:1])
        assert dict(run["pins"]) == {".".join(story.source): str(first.snapshot_id)}
        assert "A replay as of" in done.text
    for name in ("orders", "in_python"):
        assert replayed[0][name] == story.states[0][name]
    # The time is that of the replay's moment, and an incremental model is built as a whole.
    seen = {one["seen_at"] for one in replayed[0]["first_seen"].rows}
    assert seen == {row["published_at"]}
    assert [one["id"] for one in replayed[0]["first_seen"].rows] == [1, 2]
    assert replayed[1] == replayed[0]
    assert story.seen() == before


def test_what_is_not_selected_is_read_as_of_then(story: Story) -> None:
    before = story.seen()
    done = story.replay(story.runs[1].run_id, "--select", "in_python").succeeded()
    built = story.look.branch("in_python", done.branch)
    assert built == story.states[1]["in_python"]
    (run,) = story.reader.ledger("runs", run_id=done.run_id)
    assert set(dict(run["pins"])) == {".".join(story.source), f"{story.project.schema}.orders"}
    assert story.seen() == before


@pytest.mark.parametrize(
    ("as_of", "select", "told"),
    [
        ("2020-01-01T00:00:00Z", "orders", "it did not exist then"),
        ("wap_pub_00000000", "orders", "knows of no publish '00000000'"),
        ("2020-01-01", "orders", "a day has many moments"),
        ("first", "by_view", "it is a view, and views have no history; select it"),
    ],
)
def test_what_cannot_be_replayed_is_told_before_anything_is_written(
    story: Story, as_of: str, select: str, told: str
) -> None:
    before = story.seen(), len(story.reader.ledger("nodes"))
    moment = f"wap_pub_{story.runs[0].run_id[:8]}" if as_of == "first" else as_of
    refused = story.replay(moment, "--select", select).failed()
    assert told in refused.text
    assert "Nothing was" in refused.text
    assert (story.seen(), len(story.reader.ledger("nodes"))) == before


def test_a_snapshot_that_has_expired_is_told(story: Story) -> None:
    table = story.reader.catalog.load_table(story.source)
    first = table.history()[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    refused = story.replay(f"wap_pub_{story.runs[0].run_id[:8]}", "--select", "orders").failed()
    assert "events, read by orders: " in refused.text
    assert "expired" in refused.text
