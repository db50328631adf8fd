"""What is published, held and rejected, and how a run that was not published goes on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project

ALL = {"orders", "totals", "customers", "notes"}
BAD_ORDERS = """
    {{ config(materialized='table') }}
    select id, id * {{ env_var('SHOP_V') }} as amount from range(1, 4)
    union all select null, 0
"""


@pytest.mark.smoke
class TestModes:
    def test_build_publishes_when_all_is_clean(self, shop: Any) -> None:
        done = shop.dbt("build").succeeded()
        assert shop.new() == ALL
        assert shop.look()["totals"].values("total") == [12 * shop.v]
        assert done.verdicts[f"{shop.project.schema}.notes"] == ("published", "no tests")
        assert done.verdicts[f"{shop.project.schema}.customers"] == ("published", "2/2 tests")

    def test_run_publishes_nothing_when_one_table_is_rejected(self, shop: Any) -> None:
        shop.project.write({"models/orders.sql": BAD_ORDERS})
        done = shop.dbt("build").failed()
        assert shop.new() == set()
        assert done.verdict("orders") == "rejected"
        assert done.reason("orders") == "test orders_have_ids failed (1 row)"
        assert done.verdict("totals") == "held"
        assert done.statuses["totals"] == "skipped"
        assert "not built: upstream" in done.reason("totals")
        assert done.verdict("customers") == done.verdict("notes") == "held"
        assert "waits for the run" in done.reason("notes")
        assert "after a fix" in done.text
        assert "dbt retry" in done.text

    def test_lineage_publishes_what_is_clean_and_closed_upward(self, shop: Any) -> None:
        shop.project.write({"models/orders.sql": BAD_ORDERS})
        done = shop.dbt("build", wap_publish="lineage").failed()
        assert shop.new() == {"notes"}
        assert done.verdict("orders") == "rejected"
        assert done.verdict("totals") == "held"
        # No test has seen the new customers beside the old orders.
        assert done.verdict("customers") == "held"
        assert "its tests also read" in done.reason("customers")

    def test_failing_model_skips_what_is_downstream_and_publishes_nothing(self, shop: Any) -> None:
        broken = "{{ config(materialized='table') }} select no_such_column from range(3)"
        shop.project.write({"models/orders.sql": broken})
        done = shop.dbt("build").failed()
        assert shop.new() == set()
        assert done.verdict("orders") == "rejected"
        assert "build failed" in done.reason("orders")
        assert done.reason("orders").startswith("build failed: [UNRESOLVED_COLUMN")
        assert "no_such_column" in done.reason("orders")
        assert done.statuses["totals"] == "skipped"


class TestWarningsAndMissingTests:
    def test_warnings_publish_with_a_notice_or_hold(self, shop: Any) -> None:
        properties = """
            models:
              - name: totals
                columns:
                  - name: total
                    data_tests:
                      - accepted_values:
                          name: totals_are_low
                          arguments: {values: [-1], quote: false}
                          config: {severity: warn}
        """
        shop.project.write({"models/properties.yml": properties})
        held = shop.dbt("build", "--select", "totals", wap_warnings="hold").succeeded()
        assert shop.new() == set()
        assert (
            held.reason("totals") == "test totals_are_low warned (1 row), and wap_warnings is hold"
        )
        assert "accept the warnings" in held.text
        accepted = shop.dbt("test", wap_warnings="publish").succeeded()
        # orders is still the published one, so the total is that of the version before.
        assert accepted.verdict("totals") == "published"
        assert "test totals_are_low warned (1 row)" in accepted.reason("totals")
        assert accepted.branch == held.branch

    def test_require_tests_holds_what_no_test_reads(self, shop: Any) -> None:
        done = shop.dbt("build", "--select", "notes", wap_require_tests=True).succeeded()
        assert done.verdict("notes") == "held"
        assert done.reason("notes") == "no test reads it, and wap_require_tests is true"
        assert shop.new() == set()


class TestRunThenTest:
    @pytest.mark.smoke
    def test_run_holds_and_test_audits_and_publishes(self, shop: Any) -> None:
        held = shop.dbt("run").succeeded()
        assert shop.new() == set()
        assert held.verdict("orders") == "held"
        assert held.reason("orders") == "tests orders_have_ids, orders_have_customers did not run"
        assert f"SPARKWAP_BRANCH={held.branch} dbt test" in held.text
        done = shop.dbt("test").succeeded()
        assert done.branch == held.branch
        assert done.run_id != held.run_id
        assert {v for v, _ in done.verdicts.values()} == {"published"}
        assert shop.new() == ALL

    @pytest.mark.smoke
    def test_run_publishes_a_table_without_tests_with_a_notice(self, shop: Any) -> None:
        done = shop.dbt("run", "--select", "notes").succeeded()
        assert done.verdicts[f"{shop.project.schema}.notes"] == ("published", "no tests")
        assert shop.new() == {"notes"}

    def test_a_part_of_the_tests_holds(self, shop: Any) -> None:
        shop.dbt("run").succeeded()
        part = shop.dbt("test", "--exclude", "orders_have_ids").succeeded()
        assert part.reason("orders") == "test orders_have_ids did not run"
        assert shop.new() == set()
        shop.dbt("test", "--select", "orders_have_ids").succeeded()
        assert shop.new() == ALL


class TestSelection:
    def test_select_publishes_what_it_built(self, shop: Any) -> None:
        done = shop.dbt("build", "--select", "customers").succeeded()
        # The relationship is audited between the new customers and the published orders.
        assert done.statuses["orders_have_customers"] == "pass"
        assert set(done.verdicts) == {f"{shop.project.schema}.customers"}
        assert shop.new() == {"customers"}

    def test_a_relationship_to_a_published_table_can_fail(self, shop: Any) -> None:
        fewer = "{{ config(materialized='table') }} select id, 0 as v from range(1, 3)"
        shop.project.write({"models/customers.sql": fewer})
        done = shop.dbt("build", "--select", "customers").failed()
        assert done.reason("customers") == "test orders_have_customers failed (1 row)"
        assert shop.new() == set()

    def test_excluded_test_holds(self, shop: Any) -> None:
        done = shop.dbt("build", "--exclude", "customers_are_unique").succeeded()
        assert done.reason("customers") == "test customers_are_unique did not run"
        assert shop.new() == set()

    def test_named_branch_is_continued_by_later_commands(self, shop: Any) -> None:
        first = shop.dbt("run", "--select", "orders", wap_branch="rules_7").succeeded()
        assert first.branch == "rules_7"
        # totals reads orders from the branch: nobody has published them.
        second = shop.dbt("build", "--select", "totals", wap_branch="rules_7").succeeded()
        assert second.verdict("orders") == second.verdict("totals") == "held"
        assert shop.new() == set()
        shop.dbt("test", "--select", "orders", wap_branch="rules_7").succeeded()
        assert shop.new() == {"orders", "totals"}
        assert shop.look()["totals"].values("total") == [12 * shop.v]


class TestRetry:
    def test_two_retries_go_on_with_the_branch_of_the_failed_run(self, shop: Any) -> None:
        shop.project.write({"models/orders.sql": BAD_ORDERS})
        failed = shop.dbt("build").failed()
        worse = BAD_ORDERS + " union all select null, 1"
        shop.project.write({"models/orders.sql": worse})
        again = shop.dbt("retry").failed()
        assert again.branch == failed.branch
        assert again.reason("orders") == "test orders_have_ids failed (2 rows)"
        assert shop.new() == set()
        good = (
            "{{ config(materialized='table') }} select id, id * {{ env_var('SHOP_V') }} as amount"
        )
        shop.project.write({"models/orders.sql": good + " from range(1, 4)"})
        done = shop.dbt("retry").succeeded()
        assert done.branch == failed.branch
        assert {v for v, _ in done.verdicts.values()} == {"published"}
        assert shop.new() == ALL
        assert shop.look()["totals"].values("total") == [12 * shop.v]

    @pytest.mark.smoke
    def test_rejected_by_test_is_built_again_as_the_summary_says(self, shop: Any) -> None:
        shop.project.write({"models/orders.sql": BAD_ORDERS})
        held = shop.dbt("run").succeeded()
        failed = shop.dbt("test").failed()
        # `dbt retry` would repeat the test on the same rows.
        command = f"SPARKWAP_BRANCH={held.branch} dbt build --select +orders+"
        assert f"after a fix           {command}" in failed.text
        assert shop.new() == set()
        good = (
            "{{ config(materialized='table') }} select id, id * {{ env_var('SHOP_V') }} as amount"
        )
        shop.project.write({"models/orders.sql": good + " from range(1, 4)"})
        shop.dbt("build", "--select", "+orders+", wap_branch=held.branch).succeeded()
        assert shop.new() == ALL

    def test_failed_run_goes_on_by_retry_and_test(self, shop: Any) -> None:
        shop.project.write({"models/orders.sql": "{{ config(materialized='table') }} select no"})
        failed = shop.dbt("run").failed()
        shop.restore_models()
        retried = shop.dbt("retry").succeeded()
        assert retried.branch == failed.branch
        assert {v for v, _ in retried.verdicts.values()} == {"held"}
        assert shop.dbt("test").succeeded().branch == failed.branch
        assert shop.new() == ALL

    @pytest.mark.smoke
    def test_failed_batch_goes_on_with_those_that_did_not_fail(self, shop: Any) -> None:
        year = date.today().year
        model = """
            {{ config(materialized='incremental', incremental_strategy='microbatch',
                      event_time='ts', batch_size='year', begin='%d-01-01', lookback=1) }}
            select ts, cast(if(year(ts) = %d, '%s', '1') as int) as n
            from values (timestamp '%d-02-01'), (timestamp '%d-02-01') as t (ts)
            where ts >= timestamp '{{ model.batch.event_time_start }}'
                and ts < timestamp '{{ model.batch.event_time_end }}'
        """
        bad = model % (year - 1, year, "no number", year - 1, year)
        good = model % (year - 1, year, "2", year - 1, year)
        shop.project.write({"models/batched.sql": bad})
        failed = shop.dbt("build", "--select", "batched").failed()
        assert failed.statuses["batched"] in ("partial success", "error")
        shop.project.write({"models/batched.sql": good})
        shop.dbt("retry").succeeded()
        assert shop.look()["batched"].values("n") == [1, 2]


class TestAccepting:
    """What a test found is right as it is: somebody says so, and goes on as the messages advise."""

    def test_retry_builds_what_waited_for_an_accepted_table(self, shop: Any) -> None:
        shop.project.write({"models/orders.sql": BAD_ORDERS})
        failed = shop.dbt("build").failed()
        assert shop.new() == set()
        shop.dbt("run-operation", "wap_accept", "--args", accepting(failed)).succeeded()
        assert shop.new() == set()
        done = shop.dbt("retry").succeeded()
        assert done.branch == failed.branch
        assert "accepted by ada: a gap" in done.text
        assert shop.new() == ALL
        # It was for that branch.
        shop.before = shop.look()
        shop.dbt("build").failed()
        assert shop.new() == set()

    def test_what_was_built_and_tested_is_published_as_it_is(self, shop: Any) -> None:
        shop.project.write({"models/orders.sql": BAD_ORDERS})
        shop.dbt("run").succeeded()
        failed = shop.dbt("test").failed()
        accepted = shop.dbt("run-operation", "wap_accept", "--args", accepting(failed)).succeeded()
        (command,) = re.findall(r"publish it as audited +dbt (.+)", accepted.text)
        published = shop.dbt(*shlex.split(command)).succeeded()
        assert "accepted by ada: a gap" in published.text
        assert shop.new() == ALL


LOADS = {
    "models/loads.sql": """
        {{ config(materialized='table') }}
        select id, date '{{ env_var('DAY') }}' as as_of from range({{ env_var('ROWS') }})
    """,
    "models/loaded.sql": """
        {{ config(materialized='table') }} select count(*) as loads from {{ ref('loads') }}
    """,
    "models/properties.yml": """
        models:
          - name: loads
            data_tests:
              - row_count_drop: {arguments: {max_drop: 0.4}}
              - not_empty
    """,
}


@dataclass
class Accepted:
    """A drop in a load that was rejected, and is then accepted in the project by its date.

    The changed argument makes another test, of which dbt's results know nothing.
    """

    project: Project
    rejected: Outcome
    retried: Outcome


def advised(text: str) -> tuple[str, list[str]]:
    """The branch and the words of the build that a text advises."""
    ((branch, command),) = set(re.findall(r"SPARKWAP_BRANCH=(\w+) dbt (build .+?)\s*$", text, re.M))
    return branch, shlex.split(command)


@pytest.fixture(scope="module", params=["build", "run and test"])
def accepted(request: pytest.FixtureRequest, make_project: MakeProject) -> Iterator[Accepted]:
    project = make_project("accepted", LOADS)
    with pytest.MonkeyPatch.context() as patch:

        def load(day: str, rows: str) -> Outcome:
            patch.setenv("DAY", day)
            patch.setenv("ROWS", rows)
            if request.param == "build":
                return project.dbt("build")
            project.dbt("run").succeeded()
            return project.dbt("test")

        load("2024-01-01", "10").succeeded()
        rejected = load("2024-01-02", "2").failed()
        assert rejected.verdict("loads") == "rejected"
        changed = LOADS["models/properties.yml"].replace("0.4", "0.4, accepted: ['2024-01-02']")
        project.write({"models/properties.yml": changed})
        yield Accepted(project, rejected, project.dbt("retry").failed())


def test_a_retry_after_a_date_was_accepted_names_the_command(accepted: Accepted) -> None:
    assert "Traceback" not in accepted.retried.text
    assert advised(accepted.retried.text)[0] == accepted.rejected.branch


def test_a_date_is_accepted_in_the_project(
    accepted: Accepted, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = accepted.project
    assert len(reader.table(project.schema, "loads").rows) == 10
    branch, command = advised(accepted.rejected.text)
    monkeypatch.setenv("SPARKWAP_BRANCH", branch)
    project.dbt(*command).succeeded()
    look = reader.look(project.schema)
    assert len(look["loads"].rows) == 2
    assert look["loaded"].values("loads") == [2]


def accepting(failed: Any) -> str:
    """The arguments that the summary advises, with a reason."""
    (advised,) = re.findall(r"wap_accept --args '(.+)'", failed.text)
    return str(advised).replace('"<why>"', "a gap, by: ada")


class TestReading:
    def test_show_reads_the_branch_that_is_named_else_main(self, shop: Any) -> None:
        held = shop.dbt("run").succeeded()
        inline = ("show", "--inline", "select max(v) as seen from {{ ref('customers') }}")
        on_branch = shop.dbt(*inline, wap_branch=held.branch).succeeded()
        assert f"| {shop.v:4} |" in on_branch.text
        published = shop.before["customers"].values("v")[0]
        assert f"| {published:4} |" in shop.dbt(*inline).succeeded().text
        # Looking around closes nothing.
        assert shop.dbt("test").succeeded().branch == held.branch
        assert shop.new() == ALL

    def test_tests_without_a_held_branch_read_main(self, shop: Any) -> None:
        done = shop.dbt("test").succeeded()
        assert set(done.statuses.values()) <= {"pass", "success"}
        assert done.verdicts == {}
        assert shop.new() == set()


class TestVanishedTests:
    """dbt drops a test with a misspelled ref with a warning; the gate misses it."""

    def test_generic(self, shop: Any) -> None:
        properties = """
            models:
              - name: customers
                columns:
                  - name: id
                    data_tests:
                      - relationships:
                          name: customers_have_orders
                          arguments: {to: ref('ordrs'), field: id}
        """
        shop.project.write({"models/properties.yml": properties})
        done = shop.dbt("build", wap_publish="lineage").failed()
        assert done.verdict("customers") == "rejected"
        assert "test customers_have_orders ended in an error (dbt dropped it" in done.reason(
            "customers"
        )
        assert "customers" not in shop.new()

    @pytest.mark.smoke
    def test_singular(self, shop: Any) -> None:
        both = "select o.id from {{ ref('ordrs') }} o join {{ ref('customers') }} c using (id)"
        shop.project.write({"tests/no_orders.sql": both})
        done = shop.dbt("build").failed()
        assert done.verdict("customers") == "rejected"
        assert "test no_orders ended in an error (dbt dropped it" in done.reason("customers")
        assert shop.new() == set()

    def test_tests_of_what_is_not_there_or_disabled_reject_nothing(self, shop: Any) -> None:
        leftover = """
            models:
              - name: gone
                columns:
                  - name: id
                    data_tests:
                      - unique
                      - relationships: {arguments: {to: ref('customers'), field: id}}
              - name: switched_off
                config: {enabled: false}
                columns:
                  - name: id
                    data_tests:
                      - unique
                      - relationships: {arguments: {to: ref('customers'), field: id}}
        """
        shop.project.write(
            {
                "models/leftover.yml": leftover,
                "models/switched_off.sql": "select id from {{ ref('orders') }}",
                "tests/alone.sql": "select * from {{ ref('gone') }}",
            }
        )
        done = shop.dbt("build").succeeded()
        assert shop.new() == ALL
        notices = [line for line in done.text.splitlines() if "which holds no table" in line]
        assert len(notices) == 1
        assert "tests of disabled or missing models" in notices[0]
        # dbt parses them once more when what they refer to has changed, and lists them elsewhere.
        changed = "{{ config(materialized='table') }} select id, 0 as v from range(1, 4)"
        shop.project.write({"models/customers.sql": changed})
        assert shop.dbt("build").succeeded().verdict("customers") == "published"


class TestOtherWriters:
    @pytest.mark.smoke
    def test_two_runs_at_once_publish_both(self, shop: Any) -> None:
        target = ("--target-path", "target/second")
        first = shop.project.start("build", "--select", "customers")
        second = shop.project.start("build", "--select", "notes", *target)
        assert (first.wait(), second.wait()) == (0, 0)
        assert shop.new() == {"customers", "notes"}

    @pytest.mark.smoke
    def test_moved_main_is_refused_and_left_as_the_other_writer_left_it(self, shop: Any) -> None:
        held = shop.dbt("run").succeeded()
        table = shop.reader.catalog.load_table((shop.project.schema, "orders"))
        table.append(pa.table({"id": pa.array([99], pa.int64()), "amount": pa.array([9], "int64")}))
        left = shop.look()
        done = shop.dbt("test").failed()
        assert "the catalog no longer holds what was audited" in done.text
        assert f"{shop.project.schema}.orders: main: expected snapshot" in done.text
        now = shop.look()
        assert {n: look.seen() for n, look in now.items()} == {
            n: look.seen() for n, look in left.items()
        }
        assert 99 in now["orders"].values("id")
        # The way on that the summary names: the new base, the same branch.
        assert f"build on main as it is   SPARKWAP_BRANCH={held.branch} dbt build" in done.text
        again = shop.dbt("build", wap_branch=held.branch).succeeded()
        assert {v for v, _ in again.verdicts.values()} == {"published"}
        assert shop.look()["orders"].values("id") == [1, 2, 3]

    @pytest.mark.smoke
    def test_moved_branch_is_rejected(self, shop: Any) -> None:
        held = shop.dbt("run").succeeded()
        table = shop.reader.catalog.load_table((shop.project.schema, "orders"))
        row = pa.table({"id": pa.array([98], pa.int64()), "amount": pa.array([9], "int64")})
        table.append(row, branch=held.branch)
        done = shop.dbt("test").failed()
        assert done.verdict("orders") == "rejected"
        assert "somebody else wrote to it" in done.reason("orders")
        assert shop.new() == set()


class TestOtherKindsOfTest:
    def test_stored_failures_are_published_with_the_run(self, shop: Any) -> None:
        audit = f"{shop.project.schema}_dbt_test__audit"
        properties = """
            models:
              - name: notes
                columns:
                  - name: v
                    data_tests:
                      - not_null: {name: notes_have_v, config: {store_failures: true}}
        """
        null = "{{ config(materialized='table') }} select cast(null as int) as v"
        good = "{{ config(materialized='table') }} select 1 as v"
        shop.project.write({"models/properties.yml": properties, "models/notes.sql": null})
        failed = shop.dbt("build", "--select", "notes").failed()
        assert failed.reason("notes") == "test notes_have_v failed (1 row)"
        assert shop.reader.look(audit) == {}
        shop.project.write({"models/notes.sql": good})
        shop.dbt("retry").succeeded()
        assert shop.reader.look(audit)["notes_have_v"].rows == ()
        assert shop.look()["notes"].values("v") == [1]

    @pytest.mark.parametrize(("big", "verdict"), [("false", "rejected"), ("true", "published")])
    def test_unit_tests(self, shop: Any, big: str, verdict: str) -> None:
        model = """
            {{ config(materialized='table') }}
            select id, amount >= 10 as big from {{ ref('orders') }}
        """
        properties = f"""
            unit_tests:
              - name: ten_is_big
                model: flags_{big}
                given: [{{input: ref('orders'), rows: [{{id: 1, amount: 10}}]}}]
                expect: {{rows: [{{id: 1, big: {big}}}]}}
        """
        shop.project.write({f"models/flags_{big}.sql": model, "models/properties.yml": properties})
        done = shop.dbt("build", "--select", f"flags_{big}")
        assert done.ok == (verdict == "published")
        assert done.verdict(f"flags_{big}") == verdict
        assert shop.new() == ({f"flags_{big}"} if verdict == "published" else set())

    @pytest.mark.smoke
    def test_hooks_write_to_the_branch(self, shop: Any) -> None:
        hooked = """
            {{ config(materialized='table', post_hook="insert into {{ this }} values (77)") }}
            select {{ env_var('SHOP_V') }} as v
        """
        shop.project.write({"models/notes.sql": hooked})
        held = shop.dbt("run", "--select", "notes", wap_publish="never").succeeded()
        assert shop.new() == set()
        shop.project.operation("wap_publish", branch=held.branch).succeeded()
        assert shop.look()["notes"].values("v") == sorted([77, shop.v], key=repr)
