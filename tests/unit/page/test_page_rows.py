"""What the page shows, from plain rows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from sparkwap.diff.model import (
    AddedColumn,
    RemovedColumn,
    RenamedColumn,
    RetypedColumn,
    SchemaChange,
)
from sparkwap.landing.raw_models import BadRow
from sparkwap.ledger.schemas import SCHEMAS
from sparkwap.page import charts, comparison, key_history, open_branches, quarantine, run_history
from sparkwap.page.comparison import TableComparison, TableSide
from sparkwap.page.formats import (
    VERDICTS,
    escape_markdown,
    format_age,
    format_duration,
    format_status,
    format_time,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
FIRST = "1a2b3c4d-0000-4000-8000-000000000000"
SECOND = "2b3c4d5e-0000-4000-8000-000000000000"


def row(table: str, **more: Any) -> dict[str, Any]:
    """A row as the ledger gives it: all columns are there."""
    assert set(more) <= set(SCHEMAS[table].names)
    return {**dict.fromkeys(SCHEMAS[table].names), **more}


def run(run_id: str, hours_ago: float, outcome: str, seconds: float = 5, **more: Any) -> Any:
    at = NOW - timedelta(hours=hours_ago)
    ended = at + timedelta(seconds=seconds)
    return row(
        "runs", run_id=run_id, started_at=at, ended_at=ended, outcome=outcome, command="build",
        **more,
    )  # fmt: skip


def node(run_id: str, name: str, verdict: str | None, **more: Any) -> Any:
    given = {"schema": "s", "name": name, "node_id": f"model.shop.{name}", "built_at": NOW}
    return row("nodes", run_id=run_id, verdict=verdict, **{**given, **more})


def result(run_id: str, name: str, status: str, hours_ago: float, **more: Any) -> Any:
    at = NOW - timedelta(hours=hours_ago)
    given = {"test_id": f"test.{name}", "test_name": name, "executed_at": at}
    return row("tests", run_id=run_id, status=status, **{**given, **more})


# Words


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, ""), (0.04, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")],
)
def test_how_long_it_took(seconds: float | None, told: str) -> None:
    assert format_duration(seconds) == told


@pytest.mark.parametrize(
    ("ago", "told"),
    [
        (timedelta(seconds=59), "less than a minute old"),
        (timedelta(minutes=1), "1 minute old"),
        (timedelta(hours=25), "1 day old"),
        (timedelta(days=9), "9 days old"),
    ],
)
def test_how_old_it_is(ago: timedelta, told: str) -> None:
    assert format_age(NOW - ago, NOW) == told
    assert format_age(None, NOW) == "of unknown age"


def test_a_text_of_the_lake_is_no_markup_of_the_page() -> None:
    hostile = "![x](http://evil/?q) **b** $a$ :red[c] `d` <b> # e | f"
    escaped = escape_markdown(hostile)
    assert escaped.replace("\\", "") == hostile
    for sign in "![]()*$:`<>#|/":
        assert escaped.count(f"\\{sign}") == hostile.count(sign)


def test_each_verdict_has_a_sign_and_a_colour_of_its_own() -> None:
    badges = [*VERDICTS.values()]
    assert len({badge.mark for badge in badges}) == len({badge.colour for badge in badges}) == 3
    # Told apart without any colour, by how dark they are.
    lights = sorted(_luminance(badge.colour) for badge in badges)
    assert all(b - a > 0.07 for a, b in pairwise(lights)), lights
    assert format_status("rejected") == "✖ rejected"
    assert format_status(None) == "· unknown"


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# Runs


def test_runs_have_the_verdicts_of_their_tables_newest_first() -> None:
    found = run_history.overviews(
        [run(FIRST, 5, "published"), run(SECOND, 1, "rejected", 75)],
        [
            node(FIRST, "a", "published"),
            node(FIRST, "b", "published"),
            node(SECOND, "a", "rejected"),
            node(SECOND, "b", "held"),
        ],
    )
    assert [(one.short, one.outcome, one.seconds) for one in found] == [
        ("2b3c4d5e", "rejected", 75),
        ("1a2b3c4d", "published", 5),
    ]
    assert [one.counts for one in found] == [{"rejected": 1, "held": 1}, {"published": 2}]
    assert run_history.verdict_totals(found) == {"published": 2, "held": 1, "rejected": 1}
    bars = run_history.verdict_bars(found)
    assert [(bar["run"], bar["verdict"], bar["tables"]) for bar in bars] == [
        (f"{format_time(found[1].started)[:16]} · 1a2b3c4d", "published", 2),
        (f"{format_time(found[0].started)[:16]} · 2b3c4d5e", "held", 1),
        (f"{format_time(found[0].started)[:16]} · 2b3c4d5e", "rejected", 1),
    ]
    assert [one["took"] for one in run_history.duration_bars(found)] == ["5.0 s", "1 min 15 s"]


def test_a_run_that_said_nothing_of_itself_is_shown_all_the_same() -> None:
    found = run_history.overviews([row("runs", run_id=FIRST, ended_at=NOW)], [])
    assert (found[0].outcome, found[0].seconds, found[0].counts) == ("unknown", None, {})
    assert run_history.verdict_bars(found) == run_history.duration_bars(found) == []


def test_what_was_rejected_in_a_run_comes_first_with_its_reason_as_it_may_be_told() -> None:
    nodes = [
        node(FIRST, "a", "published"),
        node(FIRST, "b", "rejected", reason="build failed: the value 'Ann'"),
        node(SECOND, "c", "rejected"),
    ]
    told = {"model.shop.b": "build failed"}
    found = run_history.tables_of_run(FIRST, nodes, told)
    assert [(one["table"], one["verdict"], one["why"]) for one in found] == [
        ("s.b", "✖ rejected", "build failed"),
        ("s.a", "✔ published", ""),
    ]


def test_a_publish_that_was_rolled_back_is_not_shown_as_published() -> None:
    rows = [run(FIRST, 5, "published"), run(SECOND, 1, "published")]
    found = run_history.overviews(rows, [], ended_otherwise={FIRST: "rolled back"})
    assert {one.run_id: one.outcome for one in found} == {
        FIRST: "rolled back", SECOND: "published",
    }  # fmt: skip
    assert format_status("rolled back") == "↩ rolled back"


def test_what_needs_attention_is_newest_first() -> None:
    found = run_history.overviews(
        [run(FIRST, 5, "died"), run(SECOND, 1, "published")], [], {SECOND: "rolled back"}
    )
    at = {one.run_id: one.started for one in found}
    branches = [
        ("old", at[FIRST], ["held", "rejected"], False),
        ("busy", at[SECOND], [], True),
        ("left", None, [], False),
    ]
    items = open_branches.attention_items(branches, found, [("s.raw", 3), ("s.clean", 0)])
    told = [one.what for one in items]
    assert told[0].endswith("was rolled back")
    assert told[1] == "The branch old is rejected"
    assert told[2].endswith("died")
    assert told[3:] == [
        "The branch left is open: its run did not end", "3 rows of s.raw in quarantine",
    ]  # fmt: skip
    assert [one.view for one in items] == ["Runs", "Branches", "Runs", "Branches", "Quarantine"]


# Tests


def test_a_skipped_test_counts_neither_way() -> None:
    tests = [
        result(FIRST, "ids", "pass", 5),
        result(SECOND, "ids", "skipped", 1),
        result(SECOND, "never", "skipped", 1),
    ]
    assert run_history.test_grid(tests, failed_only=True) == []
    rates = [
        (one["test"], one["results"], one["pass rate"]) for one in run_history.pass_rates(tests)
    ]
    assert rates == [("ids", 1, 1.0), ("never", 0, None)]


def test_the_grid_has_each_result_in_order_and_can_leave_out_what_always_passed() -> None:
    tests = [
        result(SECOND, "ids", "fail", 1, failures=3),
        result(FIRST, "ids", "pass", 5),
        result(FIRST, "sums", "pass", 5),
        result(SECOND, "sums", "no such status", 1),
        result(FIRST, "names", "pass", 5),
    ]
    found = run_history.test_grid(tests, failed_only=True)
    assert [(one["test"], one["status"]) for one in found] == [
        ("ids", "pass"),
        ("sums", "pass"),
        ("ids", "fail"),
        ("sums", "skipped"),
    ]
    assert found[0]["run"] == "2026-01-31 07:00 · 1a2b3c4d"
    assert len(run_history.test_grid(tests, failed_only=False)) == 5
    assert {one["test"] for one in run_history.test_grid(tests, failed_only=False, text="NAM")} == {
        "names"
    }
    worst = run_history.pass_rates(tests)
    assert [(one["test"], one["now"], one["pass rate"]) for one in worst] == [
        ("ids", "✖ fail", 0.5),
        ("sums", "· no such status", 0.5),
        ("names", "✔ pass", 1.0),
    ]
    assert worst[0]["failures now"] == 3


def test_a_metric_is_a_line_with_its_band() -> None:
    def metric(hours_ago: float, value: float | None, **more: Any) -> Any:
        at = NOW - timedelta(hours=hours_ago)
        names = {"schema": "s", "name": "a", "metric": "row_count", "measured_at": at}
        return row("metrics", value=value, **{**names, **more})

    rows = [
        metric(1, 10.0, low=95.0, high=105.0, state="anomalous"),
        metric(2, 100.0, state="learning"),
        metric(3, None),
        metric(1, 5.0, scope="id < 9"),
    ]
    assert run_history.metric_names(rows) == ["s.a  row_count", "s.a  row_count where id < 9"]
    points = run_history.metric_points(rows, "s.a  row_count")
    assert [(one["value"], one["state"]) for one in points] == [
        (100.0, "learning"),
        (10.0, "anomalous"),
    ]


# Branches and states


def side(rows: int | None = 1, snapshot: int | None = 1, **more: Any) -> TableSide:
    columns = more.pop("columns", (("id", "bigint"),))
    return TableSide("table", "on the table", rows, snapshot, NOW, more, columns)


@pytest.mark.parametrize(
    ("new", "old", "same", "told"),
    [
        (side(5), side(3), False, "+2 rows"),
        (side(3), side(5), False, "-2 rows"),
        (side(5), side(5), False, "as many rows"),
        (side(5), side(5), True, "the same snapshot"),
        (side(None), side(5), False, "another snapshot"),
        (side(5), None, False, "new table"),
        (None, side(5), False, "not there"),
    ],
)
def test_what_differs_in_few_words(
    new: TableSide | None, old: TableSide | None, same: bool, told: str
) -> None:
    assert TableComparison("s.a", new, old, SchemaChange(), same).change == told


def test_changes_of_columns_are_told_one_by_one() -> None:
    change = SchemaChange(
        (AddedColumn("vat", "string"),),
        (RemovedColumn("fax", "string"),),
        (RetypedColumn("n", "int", "bigint", True),),
        (RenamedColumn("a", "b"),),
    )
    told = TableComparison("s.a", side(5), side(5), change, False).change
    assert told == (
        "column vat added (string); column fax removed (string); column n was int, is bigint; "
        "column a is called b; as many rows"
    )


def test_commits_tell_what_they_wrote() -> None:
    commits = [
        {"operation": "overwrite", "added-records": "10", "deleted-records": "4"},
        {"operation": "append", "added-records": "5", "total-records": "x"},
    ]
    one = TableComparison("s.a", side(), side(), SchemaChange(), False, commits)
    assert one.written == "2 commits (append, overwrite): 15 in, 4 out"
    assert TableComparison("s.a", side(), side(), SchemaChange(), True).written == ""


def test_the_tables_of_a_branch_with_what_was_rejected_first() -> None:
    compared = [TableComparison(f"s.{n}", side(5), side(3), SchemaChange(), False) for n in "abc"]
    nodes = [node(FIRST, "a", "held", reason="x"), node(FIRST, "b", "rejected", reason="y")]
    found = open_branches.branch_rows(nodes, compared)
    assert [(one["table"], one["verdict"]) for one in found] == [
        ("s.b", "✖ rejected"),
        ("s.a", "◆ held"),
        ("s.c", "· none: its run did not end"),
    ]
    assert {(one["rows on main"], one["rows here"], one["change"]) for one in found} == {
        (3, 5, "+2 rows")
    }


def test_two_states_side_by_side() -> None:
    big = 2**60 + 1
    changed = TableComparison(
        "s.b",
        side(5, big, operation="append", columns=(("id", "bigint"), ("vat", "string"))),
        side(3, 7, operation="overwrite"),
        SchemaChange((AddedColumn("vat", "string"),)),
        False,
    )
    same = TableComparison("s.a", side(), side(), SchemaChange(), True)
    rows = comparison.comparison_rows([same, changed])
    assert [one["table"] for one in rows] == ["s.b", "s.a"]
    # A number would lose its last digits in a browser.
    assert rows[0]["snapshot right"] == str(big)
    assert comparison.column_rows(changed) == [
        {"column": "id", "left": "bigint", "right": "bigint", "": ""},
        {"column": "vat", "left": "—", "right": "string", "": "◄ differs"},
    ]
    assert comparison.summary_rows(changed) == [
        {"key": "operation", "left": "overwrite", "right": "append"}
    ]


@pytest.mark.parametrize(
    ("verdicts", "first"),
    [
        ({"rejected"}, "build again after a fix"),
        ({"held"}, "run the tests again and publish"),
        (set(), ""),
    ],
)
def test_the_commands_that_go_on(verdicts: set[str], first: str) -> None:
    found = open_branches.next_commands("pr_1", verdicts)
    assert found[0][0] == (first or "build again after a fix")
    assert found[-1] == ("drop the branch", "dbt run-operation wap_discard --args '{branch: pr_1}'")
    published = [what for what, _ in found if "publish" in what]
    assert bool(published) == ("held" in verdicts)


def test_a_rejected_load_is_loaded_again_and_not_built() -> None:
    found = [
        command for _, command in open_branches.next_commands("load_1", {"rejected"}, loaded=True)
    ]
    assert not any(" dbt build" in command or " dbt test" in command for command in found)
    assert found[-1] == "dbt run-operation wap_discard --args '{branch: load_1}'"


@pytest.mark.parametrize(
    ("verdicts", "in_use", "why"),
    [
        (["held", "published"], False, ""),
        (["held", "rejected"], False, "has rejected it"),
        (["held"], True, "A run is building on this branch"),
        ([], False, "did not end"),
        (["held", None], False, "did not end"),
    ],
)
def test_only_what_may_be_published_can_be_approved(
    verdicts: list[str | None], in_use: bool, why: str
) -> None:
    found = open_branches.publish_blocker(verdicts, in_use)
    assert (why in found) if why else not found


# A stored comparison


def stored(**more: Any) -> dict[str, Any]:
    table = {
        "schema": "s",
        "name": "a",
        "change": "changed",
        "rows": {"added": 1, "removed": 0, "changed": 2, "before": 5, "after": 6},
        "columns": {"changed": {"amount": 2}},
        "samples": [
            {
                "change": "changed",
                "count": 1,
                "before": {"id": "1", "amount": "5"},
                "after": {"id": "1", "amount": None},
            },
            {"change": "added", "count": 1, "before": None, "after": {"id": "2"}},
        ],
        "notes": [],
        **more,
    }
    return {"at": NOW.isoformat(), "against": "main", "tables": [table]}


def test_a_stored_comparison_is_told_by_table_and_sample() -> None:
    document = stored()
    (told,) = comparison.diff_rows(document)
    assert (told["table"], told["added"], told["changed"]) == ("s.a", 1, 2)
    assert told["columns with changed values"] == "amount (2)"
    assert comparison.diff_samples(document["tables"][0]) == [
        {"change": "changed", "id": "1", "amount": "5 → NULL"},
        {"change": "added", "id": "2"},
    ]


def test_a_comparison_from_before_the_last_build_is_stale() -> None:
    assert not comparison.is_stale(stored(), [node(FIRST, "a", "held", built_at=NOW)])
    later = NOW + timedelta(seconds=1)
    assert comparison.is_stale(stored(), [node(FIRST, "a", "held", built_at=later)])


# Quarantine


def test_reasons_are_counted_without_the_values_that_they_quote() -> None:
    rows = [
        BadRow("b.csv", 9, "amount is not a decimal(12,2): Ann", "x"),
        BadRow("a.csv", 3, "amount is not a decimal(12,2): Bob", "y"),
        BadRow("a.csv", 4, 'operation "Cy" is not one of I, U, D', "z"),
    ]
    found = quarantine.group_reasons(rows)
    assert found == [
        {
            "reason": "amount is not a decimal(12,2)",
            "rows": 2,
            "files": 2,
            "first": "a.csv, line 3",
        },
        {
            "reason": "operation … is not one of I, U, D",
            "rows": 1,
            "files": 1,
            "first": "a.csv, line 4",
        },
    ]


# Versions of a key


def test_versions_tell_what_changed_and_hide_what_is_personal() -> None:
    rows = [
        {"id": 1, "city": "Rome", "email": "a@b", "valid_from": date(2026, 1, 1),
         "valid_to": date(2026, 1, 10), "row_hash": "x", "_batch": 1, "loaded_at": NOW},
        {"id": 1, "city": "Oslo", "email": "c@d", "valid_from": date(2026, 1, 10),
         "valid_to": date(9999, 12, 31), "row_hash": "y", "_batch": 2},
        {"id": 1, "city": "Oslo", "email": "e@f", "valid_from": date(2026, 1, 20),
         "valid_to": None, "row_hash": "z", "_batch": 3},
    ]  # fmt: skip
    found = key_history.versions(rows, "valid_from", "valid_to", {"email"})
    assert [one.what for one in found] == [
        "first version",
        "changed: city",
        "no shown column changed",
    ]
    assert [dict(one.values) for one in found] == [
        {"id": "1", "city": city} for city in ("Rome", "Oslo", "Oslo")
    ]
    bars = key_history.timeline(found, NOW)
    assert [(bar["valid_from"][:10], bar["end"][:10], bar["state"]) for bar in bars] == [
        ("2026-01-01", "2026-01-10", "ended"),
        ("2026-01-10", "2026-01-31", "current"),
        ("2026-01-20", "2026-01-31", "current"),
    ]


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1),
        date(2026, 1, 1),
        "2026-01-01",
        "2026-01-01T00:00:00+00:00",
    ],
)
def test_a_beginning_may_be_of_any_type(value: Any) -> None:
    (one,) = key_history.versions([{"f": value, "t": None}], "f", "t", ())
    assert one.start == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_version_without_a_beginning_begins_with_the_first_known_one() -> None:
    rows = [{"f": None, "t": date(2026, 1, 5)}, {"f": date(2026, 1, 5), "t": None}]
    bars = key_history.timeline(key_history.versions(rows, "f", "t", ()), NOW)
    assert bars[0]["valid_from"] == "unknown"
    assert bars[0]["start"] <= bars[0]["end"]


# Plots


def test_plots_have_their_data_and_the_colours_of_the_verdicts() -> None:
    found = run_history.overviews([run(FIRST, 5, "published")], [node(FIRST, "a", "published")])
    spec = charts.verdicts(run_history.verdict_bars(found)).to_dict()
    assert spec["data"]["values"][0]["tables"] == 1
    scale = spec["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
        name: badge.colour for name, badge in VERDICTS.items()
    }


@pytest.mark.parametrize(
    "chart",
    [
        charts.verdicts([{"run": "a"}]),
        charts.durations([{"run": "a", "outcome": "held"}]),
        charts.tests([{"test": "a"}]),
        charts.metric([{"at": "a"}]),
        charts.reasons([{"reason": "a"}]),
        charts.timeline([{"version": "a"}]),
    ],
)
def test_plots_are_legal_and_bring_their_data(chart: Any) -> None:
    # Altair checks them against the schema of Vega-Lite.
    assert len(json.loads(chart.to_json())["data"]["values"]) == 1


def test_each_reason_is_told_once_with_its_tables_and_published_ones_have_none() -> None:
    nodes = [
        node(FIRST, "a", "held", reason="all or none"),
        node(FIRST, "b", "rejected", reason="ids failed (3)"),
        node(FIRST, "c", "held", reason="all or none"),
        node(FIRST, "d", "published", reason="a warning"),
        node(FIRST, "e", "rejected"),
    ]
    assert open_branches.unpublished_reasons(nodes, {"model.shop.b": "ids failed"}) == [
        ("ids failed", ["s.b"]),
        ("all or none", ["s.a", "s.c"]),
    ]
