"""Separate commands give what one `dbt build` gives: each continues the branch of the last one.

The class: a pipeline written as `dbt seed && dbt run && dbt test`, in any order and split, in one
checkout; and what must not be gone on with: what was rejected, is in use, is of another target or
checkout, or is published or discarded already.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project

FILES = {
    "seeds/raw_orders.csv": """
        id,amount
        1,10
        2,20
    """,
    "models/stg_orders.sql": """
        select id, amount * 2 as amount from {{ ref('raw_orders') }}
    """,
    "models/orders.sql": """
        {{ config(materialized='incremental', incremental_strategy='append') }}
        select id, amount from {{ ref('stg_orders') }}
        {% if is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}
    """,
    "models/totals.sql": """
        {{ config(materialized='table') }}
        select count(*) as orders, sum(amount) as amount from {{ ref('orders') }}
    """,
    "snapshots/history.sql": """
        {% snapshot history %}
        {{ config(strategy='check', unique_key='id', check_cols=['amount']) }}
        select id, amount from {{ ref('stg_orders') }}
        {% endsnapshot %}
    """,
    "models/properties.yml": """
        seeds:
          - name: raw_orders
            columns: [{name: id, data_tests: [{unique: {name: raw_is_unique}}]}]
        models:
          - name: stg_orders
            columns: [{name: id, data_tests: [{not_null: {name: stg_is_known}}]}]
          - name: orders
            columns:
              - name: id
                data_tests:
                  - unique: {name: orders_are_unique}
                  - relationships:
                      name: orders_are_raw
                      arguments: {to: ref('raw_orders'), field: id}
          - name: totals
            columns: [{name: amount, data_tests: [{not_null: {name: totals_are_known}}]}]
        snapshots:
          - name: history
            columns: [{name: id, data_tests: [{not_null: {name: history_is_known}}]}]
    """,
}
TWO = "id,amount\n1,10\n2,20\n"
THREE = TWO + "3,30\n"
BUILT = {
    TWO: {"orders": [1, 2], "amount": [60], "versions": 2},
    THREE: {"orders": [1, 2, 3], "amount": [120], "versions": 3},
}


def run(project: Project, steps: str) -> list[Outcome]:
    """Run `seed run:a,b test` as three commands, each of which succeeds."""
    done = []
    for step in steps.split():
        command, _, chosen = step.partition(":")
        select = ("--select", *chosen.split(",")) if chosen else ()
        done.append(project.dbt(command, *select).succeeded())
    return done


def look(reader: Reader, project: Project) -> dict[str, object]:
    found = reader.look(project.schema)
    return {
        "orders": sorted(found["orders"].values("id")),
        "amount": found["totals"].values("amount"),
        "versions": len(found["history"].rows),
    }


@pytest.mark.smoke
def test_separate_commands_publish_what_a_build_publishes(
    make_project: MakeProject, reader: Reader
) -> None:
    project = make_project("apart", FILES)
    for rows in (TWO, THREE):
        project.write({"seeds/raw_orders.csv": rows})
        seed, *others = run(project, "seed run snapshot test")
        assert look(reader, project) == BUILT[rows]
        assert "sparkwap  continues" not in seed.text
        for one, before in zip(others, ["seed", "run", "snapshot"], strict=True):
            assert one.branch == seed.branch
            assert f"continues {seed.branch} (dbt {before}, less than a minute" in one.text
    assert "wap_" not in json.dumps(reader.metadata(project.schema, "orders")["refs"]).replace(
        "wap_pub_", ""
    )


@pytest.mark.parametrize(
    "steps",
    [
        "seed snapshot:+history run:stg_orders,orders,totals test",
        "seed run test:raw_orders,stg_orders snapshot test",
        "seed run run build",
        "seed build",
    ],
)
def test_any_order_gives_the_same_tables(
    make_project: MakeProject, reader: Reader, steps: str
) -> None:
    project = make_project("orders", FILES).write({"seeds/raw_orders.csv": THREE})
    run(project, steps.replace("snapshot:+history run", "run:stg_orders snapshot run"))
    assert look(reader, project) == BUILT[THREE]


SMALL = {
    "seeds/raw.csv": """
        n
        1
    """,
    "models/made.sql": """
        {{ config(materialized='table') }}
        select n {{ env_var('APART_SQL', '') }} as n from {{ ref('raw') }}
    """,
    "models/alone.sql": "{{ config(materialized='table') }} select 1 as n",
    "models/properties.yml": """
        seeds: [{name: raw, columns: [{name: n, data_tests: [{not_null: {name: raw_known}}]}]}]
        models: [{name: made, columns: [{name: n, data_tests: [{not_null: {name: made_known}}]}]}]
    """,
}


@pytest.fixture(scope="module")
def published(make_project: MakeProject) -> Project:
    project = make_project("small", SMALL)
    project.dbt("build").succeeded()
    return project


@dataclass
class Small:
    """The small project, of which `raw` and `made` are published with ``n = before``."""

    project: Project
    reader: Reader
    before: int

    @property
    def dbt(self) -> Callable[..., Outcome]:
        return self.project.dbt

    def seen(self) -> list[int]:
        return sorted(
            row["n"]
            for name in ("raw", "made")
            for row in self.reader.table(self.project.schema, name).rows
        )


@pytest.fixture
def small(published: Project, reader: Reader) -> Iterator[Small]:
    """With a new row in the seed, and nothing to go on with."""
    published.write(SMALL).clear("target/other")
    (published.folder / "target/sparkwap_run.json").unlink(missing_ok=True)
    before = reader.table(published.schema, "raw").values("n")[0]
    published.write({"seeds/raw.csv": f"n\n{before + 1}\n"})
    yield Small(published, reader, before)


def test_what_was_rejected_is_not_built_on(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = small.dbt("seed").succeeded()
    monkeypatch.setenv("APART_SQL", "+ null")
    assert small.dbt("run").succeeded().branch == seed.branch
    failed = small.dbt("test").failed()
    assert failed.verdict("made") == "rejected"
    monkeypatch.delenv("APART_SQL")
    other = small.dbt("run", "--select", "made").succeeded()
    assert other.branch != seed.branch
    assert (
        f"does not continue {seed.branch} (dbt test, less than a minute ago), which was reje"
        in (other.text)
    )
    assert small.seen() == [small.before] * 2
    # The line names the way to do so, and a retry does.
    monkeypatch.setenv("SPARKWAP_BRANCH", seed.branch)
    small.dbt("run", "--select", "made").succeeded()
    small.dbt("test").succeeded()
    assert small.seen() == [small.before + 1] * 2


def test_a_part_of_the_tests_holds_and_the_rest_publishes(small: Small) -> None:
    seed = small.dbt("seed").succeeded()
    assert small.dbt("test", "--select", "raw").succeeded().branch == seed.branch
    assert small.reader.table(small.project.schema, "raw").values("n") == [small.before + 1]
    made = small.dbt("run", "--select", "made").succeeded()
    assert made.branch != seed.branch
    assert "go on with" not in made.text
    done = small.dbt("test", "--select", "made").succeeded()
    assert done.branch == made.branch
    assert small.seen() == [small.before + 1] * 2


@pytest.mark.parametrize("how", ["wap_publish", "wap_discard"])
def test_what_somebody_has_published_or_discarded_is_not_gone_on_with(
    small: Small, how: str
) -> None:
    seed = small.dbt("seed").succeeded()
    if how == "wap_publish":
        small.dbt("build", "--select", "raw", "--target-path", "target/other",
                  wap_branch=seed.branch).succeeded()  # fmt: skip
    else:
        small.project.operation("wap_discard", branch=seed.branch).succeeded()
    made = small.dbt("build", "--select", "made").succeeded()
    assert made.branch != seed.branch
    assert "go on with" not in made.text
    assert "sparkwap  continues" not in made.text
    expected = small.before + (how == "wap_publish")
    assert small.seen() == [expected] * 2


def test_another_target_or_checkout_opens_its_own_branch(small: Small) -> None:
    seed = small.dbt("seed").succeeded()
    elsewhere = small.dbt("run", "--select", "made", "--target-path", "target/other").succeeded()
    assert elsewhere.branch != seed.branch
    profile = json.loads((small.project.folder / "profiles.yml").read_text())
    outputs = profile["shop"]["outputs"]
    outputs["second"] = outputs["test"]
    small.project.write({"profiles.yml": json.dumps(profile)})
    second = small.dbt("run", "--select", "made", "--target", "second").succeeded()
    assert second.branch != seed.branch
    # Neither took anything away from the first one.
    assert small.dbt("build").succeeded().branch == seed.branch
    assert small.seen() == [small.before + 1] * 2


def test_dbt_counts_in_one_way_what_was_rejected(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class: a number of errors in one line of the console, and another one elsewhere."""
    monkeypatch.setenv("APART_SQL", "+ null")
    both = SMALL["models/properties.yml"].replace(
        "{not_null: {name: made_known}}",
        "{not_null: {name: made_known}}, {unique: {name: made_once}}",
    )
    small.project.write({"models/properties.yml": both})
    done = small.dbt("build", "--select", "made").failed()
    # made, and its failing test; the other one passed, on rows that are to be built again.
    assert "Completed with 2 errors" in done.text
    assert re.search(r"ERROR=2 SKIP=1 ", done.text), done.text
    assert "1 test passed above on rows that are rejected now" in done.text
    record = json.loads((small.project.folder / "target/run_results.json").read_text())
    counted = Counter(one["status"] for one in record["results"])
    assert (counted["error"] + counted["fail"], counted["skipped"]) == (2, 1)
    assert small.seen() == [small.before] * 2
