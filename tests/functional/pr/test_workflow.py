"""Pull requests by the steps of the workflow file, and what readers of production see.

One is opened, changes all kinds of things, fails its audit, is corrected and merged. The next one
is merged when a table that it read has moved.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from helpers.catalogs import TRANSACTIONS
from helpers.ci import Ended, GitHub, Place
from helpers.lake import Look, Poller, Reader, SparkReader
from helpers.project import MakeProject, Project

from sparkwap.core.dbt_cli import VARIABLES
from sparkwap.ledger import manifests

TABLE = "{{ config(materialized='table') }} "
SNAPSHOT = """
    {{% snapshot prices %}}
        {{{{ config(strategy='check', unique_key='id', check_cols=['price']) }}}}
        select id, id * {} as price from range(1, 3)
    {{% endsnapshot %}}
"""
BEFORE = {
    "models/customers.sql": TABLE + "select id, 'c' || id as name from range(1, 4)",
    "models/orders.sql": TABLE + "select id, 10 as amount from {{ ref('customers') }}",
    "models/totals.sql": TABLE + "select sum(amount) as total from {{ ref('orders') }}",
    "models/wide.sql": TABLE + "select 1 as a, 2 as b, 3 as c",
    "models/seen.sql": "{{ config(materialized='view') }} select id from {{ ref('orders') }}",
    "models/names.sql": TABLE + "select name from {{ ref('customers') }}",
    "snapshots/prices.sql": SNAPSHOT.format(10),
    "models/properties.yml": """
        models:
          - name: orders
            columns:
              - {name: id, data_tests: [unique]}
              - {name: amount, data_tests: [{not_null: {name: amounts_are_known}}]}
          - {name: totals, columns: [{name: total, data_tests: [not_null]}]}
          - {name: customers, columns: [{name: id, data_tests: [unique]}]}
    """,
}
CHANGED = {
    "models/orders.sql": TABLE + "select id, cast(nullif(id, 2) as int) as amount"
    " from {{ ref('customers') }}",
    "models/wide.sql": TABLE + "select 1 as a, 3 as c",
    "models/seen.sql": "{{ config(materialized='view') }} select id, 1 as one"
    " from {{ ref('orders') }}",
    "models/fresh.sql": TABLE + "select max(name) as name from {{ ref('customers') }}",
    "snapshots/prices.sql": SNAPSHOT.format(20),
}
FIXED = {
    # One order is removed, one stays, one changes, one is added.
    "models/orders.sql": TABLE
    + "select id + 1 as id, cast(if(id = 3, 18, 5 * id) as int) as amount"
    " from {{ ref('customers') }}",
}
NEXT = {"models/names.sql": TABLE + "select upper(name) as name from {{ ref('customers') }}"}
ON_BRANCH = {"orders", "totals", "prices"}
"""What the first one builds on an Iceberg branch of the table; of the rest, what is beside it."""
BESIDE = {"wide", "seen", "fresh"}
BRANCH = "pr_7"
KEYS = {"orders": ["id"], "totals": [], "prices": ["dbt_scd_id"], "wide": [], "seen": []}
"""The columns by which rows of existing tables are paired."""


@dataclass
class Story:
    """The steps in order; a reader reads after each step, and polls all the time."""

    project: Project
    reader: Reader
    spark: SparkReader
    github: GitHub
    jobs: dict[str, Ended] = field(default_factory=dict)
    seen: dict[str, dict[str, Look]] = field(default_factory=dict)
    polls: dict[str, Poller] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> str:
        return self.project.schema

    @property
    def side(self) -> str:
        return f"{self.schema}__{BRANCH}"

    def look(self, step: str) -> None:
        self.seen[step] = self.reader.look(self.schema)

    def event(self, step: str, action: str, number: int = 7, **more: bool) -> None:
        ((_, self.jobs[step]),) = self.github.pull_request(action, number, **more).items()
        self.look(step)

    def comments(self) -> list[str]:
        """The written comments, in order."""
        text = (self.project.folder / "comments.md").read_text()
        return text.split("<!-- sparkwap pr ")[1:]

    def refs(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.reader.metadata(self.schema, name).get("refs") or {}
        return found

    def branched(self, branch: str = BRANCH) -> dict[str, int]:
        """Table -> snapshot, of the tables that have a branch."""
        kinds = {name: kind for name, (kind, _) in self.reader.pointers(self.schema).items()}
        return {
            name: self.refs(name)[branch]["snapshot-id"]
            for name, kind in kinds.items()
            if kind == "table" and branch in self.refs(name)
        }


@pytest.fixture(scope="module")
def opened(
    make_project: MakeProject,
    reader: Reader,
    spark: SparkReader,
    tmp_path_factory: pytest.TempPathFactory,
) -> Story:
    """The first pull request after its first audit, which fails."""
    project = make_project("pr", BEFORE)
    project.dbt("build").succeeded()
    profiles = (project.folder / "profiles.yml").read_text()
    project.write({"requirements.txt": "", "profiles/profiles.yml": profiles})
    environment = {"DBT_USE_COLORS": "false"}
    place = Place(project.folder, tmp_path_factory.mktemp("programs"), environment)
    # The replacement of GitHub's program stores the comment.
    place.program("gh", '[ "$2" = --paginate ] || cat comment.md >> comments.md')
    place.program("pip", "")
    story = Story(project, reader, spark, GitHub(place))
    story.look("before")
    # As a checkout by GitHub: without files of an earlier job.
    project.clear("target").write(CHANGED)
    with reader.polling(project.schema) as story.polls["first audit"]:
        story.event("opened", "opened")
    return story


@pytest.fixture(scope="module")
def story(opened: Story) -> Story:
    """All steps of both pull requests."""
    story, project, reader, event = opened, opened.project, opened.reader, opened.event
    with reader.polling(project.schema) as story.polls["audits"]:
        event("merged too early", "closed", merged=True)
        story.told["left"] = (set(story.branched()), set(reader.pointers(story.side)))
        event("closed", "closed")
        story.told["closed"] = (story.branched(), reader.pointers(story.side))
        project.write(FIXED)
        event("reopened", "reopened")
    story.told["candidates"] = story.branched()
    story.told["beside"] = {n: k for n, (k, _) in reader.pointers(story.side).items()}
    story.told["frames"] = {name: frame(story, name) for name in sorted(ON_BRANCH | BESIDE)}
    story.told["main"] = {name: frame(story, name, "main") for name in sorted(KEYS)}
    with reader.polling(project.schema) as story.polls["merge"]:
        event("merged", "closed", merged=True)
    # The project is parsed again, and not built.
    parsed = (project.folder / "target/manifest.json").read_text()
    story.told["parsed"] = manifests.pack({**json.loads(parsed), VARIABLES: {}}).hash
    project.write(NEXT)
    event("next", "opened", 8)
    story.told["main of names"] = story.refs("names")["main"]["snapshot-id"]
    customers = reader.catalog.load_table((story.schema, "customers"))
    late = pa.table({"id": [9], "name": ["late"]}, schema=customers.schema().as_arrow())
    customers.append(late)
    with reader.polling(project.schema) as story.polls["next merge"]:
        event("next merged", "closed", 8, merged=True)
    return story


def frame(story: Story, name: str, state: str = BRANCH) -> pd.DataFrame:
    """Return the rows of one state, read by PyIceberg."""
    if name == "seen":
        # PyIceberg reads no views; the query has the text of the two views.
        orders = frame(story, "orders", state)[["id"]]
        return orders if state == "main" else orders.assign(one=1)
    if state != "main" and name in BESIDE:
        return story.reader.catalog.load_table((story.side, name)).scan().to_pandas()
    table = story.reader.catalog.load_table((story.schema, name))
    return table.scan().use_ref(state).to_pandas()


@dataclass(frozen=True)
class Diff:
    """The differences of a table: rows, columns, and the number of changed rows per column."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    columns: str = ""
    differs: dict[str, int] = field(default_factory=dict)


def truth(story: Story, name: str) -> Diff:
    """Return the differences by a full join, or by counting all rows of both states."""
    after = story.told["frames"][name]
    if name not in KEYS:
        return Diff(added=len(after))
    before, key = story.told["main"][name], KEYS[name]
    new, gone = set(after) - set(before), set(before) - set(after)
    columns = " ".join(f"{sign}{len(some)}" for sign, some in (("+", new), ("−", gone)) if some)
    common = [column for column in before if column in after]
    if not key:
        left = after[common].value_counts(dropna=False)
        left = left.sub(before[common].value_counts(dropna=False), fill_value=0)
        return Diff(int(left.clip(lower=0).sum()), int(-left.clip(upper=0).sum()), 0, columns)
    both = before[common].merge(
        after[common], how="outer", on=key, suffixes=("", " now"), indicator=True
    )
    sides, pairs = both["_merge"].value_counts(), both[both["_merge"] == "both"]
    differs = pd.DataFrame(
        {
            column: (pairs[column] != pairs[f"{column} now"])
            & ~(pairs[column].isna() & pairs[f"{column} now"].isna())
            for column in common
            if column not in key
        }
    )
    counts = {column: int(count) for column, count in differs.sum().items() if count}
    changed = int(differs.any(axis=1).sum())
    return Diff(int(sides["right_only"]), int(sides["left_only"]), changed, columns, counts)


def told_diff(comment: str) -> dict[str, Diff]:
    """Return table -> its differences in the comment."""
    text = re.sub(r"</?code>", "", html.unescape(comment))
    found = {}
    for line in text.partition("### Data diff")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "table":
            numbers = [int(cell) if cell.isdecimal() else 0 for cell in cells[1:4]]
            found[cells[0].split()[0].split(".")[1]] = Diff(*numbers, cells[4])
        elif line.startswith("<details>"):
            table = found[re.split("[.:]", line)[1]]
        elif differs := re.match(r"- (\w+) differs in (\d+) rows?$", line):
            table.differs[differs[1]] = int(differs[2])
    return found


def require_unseen(story: Story, poll: str, *steps: str) -> None:
    poller = story.polls[poll]
    assert len(poller.states) == 1, [sorted(state) for state in poller.states]
    before = {name: look.seen() for name, look in story.seen["before"].items()}
    for step in steps:
        assert {n: look.seen() for n, look in story.seen[step].items()} == before, step


@pytest.mark.smoke
def test_readers_do_not_see_the_first_audit(opened: Story) -> None:
    assert opened.polls["first audit"].polls > 30
    require_unseen(opened, "first audit", "opened")


@pytest.mark.smoke
def test_only_changed_nodes_are_built(opened: Story) -> None:
    text = opened.jobs["opened"].failed().text
    assert "--select state:modified+" in text
    for name in ON_BRANCH | BESIDE:
        assert f"{opened.schema}.{name} " in text
    assert f"{opened.schema}.names " not in text
    assert f"{opened.schema}.customers " not in text


def test_readers_do_not_see_audits(story: Story) -> None:
    assert story.polls["audits"].polls > 100
    require_unseen(story, "audits", "merged too early", "closed", "reopened")


def test_the_first_audit_fails_with_its_reason(story: Story) -> None:
    text = story.jobs["opened"].failed().text
    assert "--select state:modified+" in text
    assert text.count("Next:") == 1
    comment = story.comments()[0]
    assert comment.startswith(f"{BRANCH} -->\n### sparkwap: `{BRANCH}` was rejected")
    assert "| `amounts_are_known` | failed | 1 |" in comment
    assert f"| `{story.schema}.orders` | on a branch of the table | **rejected**" in comment


def test_a_rejected_branch_is_not_published(story: Story) -> None:
    assert "was rejected, so nothing was published" in story.jobs["merged too early"].failed().text
    assert story.told["left"][0] >= {"orders"}


def test_a_closed_pull_request_leaves_nothing(story: Story) -> None:
    story.jobs["closed"].succeeded()
    assert story.told["closed"] == ({}, {})


def test_only_changed_nodes_are_built_and_others_are_read_from_main(story: Story) -> None:
    story.jobs["reopened"].succeeded()
    assert set(story.told["candidates"]) == ON_BRANCH
    assert set(story.told["beside"]) == BESIDE
    assert story.told["beside"]["seen"] == "view"
    orders = story.told["frames"]["orders"]
    assert sorted(zip(orders["id"], orders["amount"], strict=True)) == [(2, 5), (3, 10), (4, 18)]


def test_the_comment_lists_exactly_the_differences(story: Story) -> None:
    said = told_diff(story.comments()[2])
    assert said == {name: truth(story, name) for name in ON_BRANCH | BESIDE}
    assert said["orders"] == Diff(1, 1, 1, "", {"amount": 1})
    assert said["wide"] == Diff(columns="−1")


def test_a_merge_publishes_the_candidates_without_a_rebuild(story: Story) -> None:
    text = story.jobs["merged"].succeeded().text
    assert "dbt build" not in text
    old, new = story.polls["merge"].only_move()
    assert set(new) - set(old) == {"fresh"}
    changed = {name for name in old if old[name] != new[name]}
    assert changed == (ON_BRANCH | BESIDE) - {"fresh"}
    for name, snapshot in story.told["candidates"].items():
        assert story.refs(name)["main"]["snapshot-id"] == snapshot


def test_the_merged_changes_are_live(story: Story) -> None:
    seen = story.seen["merged"]
    assert seen["totals"].values("total") == [33]
    assert seen["wide"].columns == ("a", "c")
    assert seen["fresh"].values("name") == ["c3"]
    assert seen["customers"].seen() == story.seen["before"]["customers"].seen()
    current = [row["price"] for row in seen["prices"].rows if row["dbt_valid_to"] is None]
    assert sorted(current) == [20, 40]
    assert len(seen["prices"].rows) == 4, "with the history of before"
    assert story.spark.rows(f"select id, one from {story.schema}.seen") == [
        (n, 1) for n in (2, 3, 4)
    ]


def test_branch_and_clones_are_dropped(story: Story) -> None:
    assert story.branched() == {}
    assert story.reader.pointers(story.side) == {}
    if TRANSACTIONS:
        assert (story.side,) not in story.reader.catalog.list_namespaces()


def test_each_code_is_in_the_ledger_once(story: Story) -> None:
    hashes = [row["hash"] for row in story.reader.ledger("manifests", project="shop")]
    assert len(hashes) == len(set(hashes))
    published = [
        row["manifest_hash"]
        for row in story.reader.ledger("publishes", schema=story.schema, branch=BRANCH)
    ]
    assert len(published) == len(ON_BRANCH | BESIDE)
    assert len(set(published)) == 1
    assert published[0] in hashes
    assert published[0] == story.told["parsed"]


def test_a_merge_after_main_moved_builds_again(story: Story) -> None:
    story.jobs["next"].succeeded()
    text = story.jobs["next merged"].succeeded().text
    assert "main moved since the audit" in text
    old, new = story.polls["next merge"].only_move()
    assert {name for name in new if old.get(name) != new[name]} == {"names"}
    # With the row that was added after the audit.
    seen = story.seen["next merged"]["names"].values("name")
    assert seen == sorted(["C1", "C2", "C3", "LATE"], key=repr)
    assert story.branched("pr_8") == {}
