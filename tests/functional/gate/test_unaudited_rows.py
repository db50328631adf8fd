"""Ways to get rows past the gate that no test has passed: each is held or rejected, and says why.

Ways that are rules of the gate (a misspelled ref, an excluded test, a moved branch, unit tests,
stored failures) are in `test_rules.py`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

TABLE = "{{ config(materialized='table') }} "
NULL = TABLE + "select id, if(id = 2, null, {{ env_var('SHOP_V') }}) as v from {{ ref('orders') }}"
GOOD = TABLE + "select id, {{ env_var('SHOP_V') }} as v from {{ ref('orders') }}"


def customers_test(**config: Any) -> str:
    """Properties by which `v` of the customers is not null."""
    test = {"not_null": {"name": "customers_have_v", "config": config}}
    columns = [{"name": "v", "data_tests": [test]}]
    return json.dumps({"models": [{"name": "customers", "columns": columns}]})


class TestFewerRows:
    def test_empty_and_sample(self, shop: Any) -> None:
        # On no rows every test passes.
        bad = {"models/customers.sql": NULL, "models/properties.yml": customers_test()}
        shop.project.write(bad)
        for flag, told in ((("--empty",), "--empty"), (("--sample", "1 day"), "--sample")):
            built = shop.dbt("build", "--select", "customers", *flag)
            assert f"it was built with {told}" in built.reason("customers"), built.text
            assert shop.new() == set()
        empty = shop.dbt("build", "--select", "customers", "--empty").succeeded()
        assert "build it whole" in empty.text
        tested = shop.dbt("test", "--select", "customers_have_v").succeeded()
        assert tested.branch == empty.branch
        assert "it was built with --empty" in tested.reason("customers")
        published = shop.project.operation("wap_publish", branch=empty.branch).failed()
        assert "it was built with --empty" in published.text
        assert shop.new() == set()
        whole = shop.dbt("build", "--select", "customers", wap_branch=empty.branch).failed()
        assert whole.reason("customers") == "test customers_have_v failed (1 row)"
        assert shop.new() == set()

    def test_tests_alone_with_empty(self, shop: Any) -> None:
        bad = {"models/customers.sql": NULL, "models/properties.yml": customers_test()}
        shop.project.write(bad)
        held = shop.dbt("run", "--select", "customers").succeeded()
        only = ("--exclude-resource-type", "model", "--empty")
        tested = shop.dbt("build", "--select", "customers", *only, wap_branch=held.branch)
        assert "ran with --empty, on no rows" in tested.reason("customers")
        published = shop.project.operation("wap_publish", branch=held.branch).failed()
        assert "ran with --empty, on no rows" in published.text
        assert shop.new() == set()


class TestTestsThatDoNotRun:
    @pytest.mark.parametrize(
        "flags",
        [
            ("--indirect-selection", "empty"),
            ("--exclude-resource-type", "test"),
            ("--exclude", "customers_are_unique"),
        ],
    )
    def test_by_a_flag(self, shop: Any, flags: tuple[str, ...]) -> None:
        done = shop.dbt("build", "--select", "customers", *flags).succeeded()
        assert done.verdict("customers") == "held"
        assert "did not run" in done.reason("customers")
        assert shop.new() == set()

    def test_by_a_failure_elsewhere_with_fail_fast(self, shop: Any) -> None:
        bad = {"models/customers.sql": NULL, "models/properties.yml": customers_test()}
        shop.project.write(bad)
        done = shop.dbt("build", "--select", "orders+", "--fail-fast", wap_publish="lineage")
        assert done.failed().verdict("customers") == "rejected"
        published = {name for name, (outcome, _) in done.verdicts.items() if outcome == "published"}
        assert {f"{shop.project.schema}.{name}" for name in shop.new()} == published
        assert f"{shop.project.schema}.customers" not in published

    @pytest.mark.smoke
    def test_by_being_disabled(self, shop: Any) -> None:
        enabled = "{{ not var('hasty', false) }}"
        bad = {"models/customers.sql": NULL}
        shop.project.write({**bad, "models/properties.yml": customers_test(enabled=enabled)})
        done = shop.dbt("build", "--select", "customers", hasty=True).succeeded()
        assert done.reason("customers").startswith("test customers_have_v did not run: disabled")
        assert shop.new() == set()
        assert "SPARKWAP_DISABLED_TESTS=publish dbt run-operation wap_publish" in done.text
        arguments = ("--args", json.dumps({"branch": done.branch}))
        accepted = {"wap_disabled_tests": "publish", "hasty": True}
        shop.dbt("run-operation", "wap_publish", *arguments, **accepted).succeeded()
        assert shop.new() == {"customers"}

    def test_by_a_column_that_was_renamed(self, shop: Any) -> None:
        renamed = {"models/customers.sql": GOOD.replace("as v", "as version")}
        shop.project.write({**renamed, "models/properties.yml": customers_test()})
        done = shop.dbt("build", "--select", "customers").failed()
        assert done.verdict("customers") == "rejected"
        assert "test customers_have_v ended in an error ([UNRESOLVED_COLUMN" in done.reason(
            "customers"
        )
        assert shop.new() == set()

    def test_by_what_dbt_has_parsed_before(self, shop: Any) -> None:
        typo = "select * from {{ ref('customers') }} join {{ ref('custmers') }} using (id)"
        shop.project.write({"tests/customers_typo.sql": typo})
        silence = json.dumps({"silence": ["NodeNotFoundOrDisabled"]})
        for flags in ((), ("--partial-parse",), ("--warn-error-options", silence)):
            done = shop.dbt("build", "--select", "customers", *flags).failed()
            assert "customers_typo ended in an error (dbt dropped it" in done.reason("customers")
        shop.dbt("build", "--select", "customers", "--warn-error").failed()
        assert shop.new() == set()


class TestLaxRules:
    def test_severity_of_the_command_line(self, shop: Any) -> None:
        severity = "{{ var('severity', 'error') }}"
        shop.project.write({"models/properties.yml": customers_test(severity=severity)})
        shop.dbt("build", "--select", "customers").succeeded()
        published = shop.look()["customers"].seen()
        shop.project.write({"models/customers.sql": NULL})
        for _ in range(2):
            done = shop.dbt("build", "--select", "customers", severity="warn").succeeded()
            assert done.reason("customers").startswith(
                "test customers_have_v warned (1 row), but its severity was 'error' when main was"
            )
            assert shop.look()["customers"].seen() == published
        accepted = {"severity": "warn", "wap_warnings": "publish"}
        shop.dbt("test", "--select", "customers", **accepted).succeeded()
        assert None in shop.look()["customers"].values("v")

    def test_thresholds_of_the_command_line(self, shop: Any) -> None:
        lax = {
            "error_if": "{{ var('error_if', '!= 0') }}",
            "warn_if": "{{ var('error_if', '!= 0') }}",
        }
        shop.project.write({"models/properties.yml": customers_test(**lax)})
        shop.dbt("build", "--select", "customers").succeeded()
        published = shop.look()["customers"].seen()
        shop.project.write({"models/customers.sql": NULL})
        done = shop.dbt("build", "--select", "customers", error_if="> 5").succeeded()
        assert done.statuses["customers_have_v"] == "pass"
        assert done.reason("customers").startswith(
            "test customers_have_v passed, but its severity was 'error' when main was"
        )
        assert shop.look()["customers"].seen() == published

    def test_a_limit_of_0_is_an_error(self, shop: Any) -> None:
        blind = {"models/customers.sql": NULL, "models/properties.yml": customers_test(limit=0)}
        shop.project.write(blind)
        done = shop.dbt("build", "--select", "customers").failed()
        assert "its config has `limit: 0`, so it cannot fail" in done.reason("customers")
        assert shop.new() == set()

    def test_tables_of_another_state(self, shop: Any) -> None:
        bad = {"models/customers.sql": NULL, "models/properties.yml": customers_test()}
        shop.project.write(bad)
        held = shop.dbt("run", "--select", "customers").succeeded()
        manifest = json.loads((shop.project.folder / "target/manifest.json").read_text())
        # A state in which another table, whose rows are good, is the customers'.
        manifest["nodes"]["model.shop.customers"]["alias"] = "notes"
        shop.project.write({"state/manifest.json": json.dumps(manifest)})
        state = ("--defer", "--favor-state", "--state", str(shop.project.folder / "state"))
        done = shop.dbt("test", "--select", "customers", *state, wap_branch=held.branch)
        assert done.statuses["customers_have_v"] == "pass"
        assert done.reason("customers") == (
            "test customers_have_v read the tables of another state (--favor-state)"
        )
        assert shop.new() == set()


class TestOtherHands:
    def test_property_taken_off_between_build_and_test(self, shop: Any) -> None:
        shop.dbt("run", "--select", "customers").succeeded()
        table = shop.reader.catalog.load_table((shop.project.schema, "customers"))
        off = {"write.wap.enabled": "false"}
        table.transaction().set_properties(off).commit_transaction()
        done = shop.dbt("test", "--select", "customers").failed()
        assert "the property write.wap.enabled was removed" in done.reason("customers")
        assert shop.new() == set()
        shop.restore()
        shop.dbt("build", "--select", "customers").succeeded()
        assert shop.new() == {"customers"}

    @pytest.mark.smoke
    def test_table_dropped_and_made_again(self, shop: Any) -> None:
        shop.dbt("run", "--select", "customers").succeeded()
        catalog, name = shop.reader.catalog, (shop.project.schema, "customers")
        rows = catalog.load_table(name).scan().to_arrow()
        catalog.drop_table(name)
        catalog.create_table(name, rows.schema).append(rows)
        before = shop.look()["customers"].seen()
        done = shop.dbt("test", "--select", "customers").failed()
        assert done.verdict("customers") == "rejected"
        assert "no longer on the branch" in done.reason("customers")
        assert shop.look()["customers"].seen() == before
        shop.restore()
        shop.dbt("build", "--select", "customers").succeeded()
        assert shop.look()["customers"].values("v") == [shop.v] * 3


@pytest.mark.smoke
def test_flags_that_switch_dbt_off_do_not_switch_the_gate_off(shop: Any) -> None:
    flags = (
        *("--no-write-json", "--no-partial-parse", "--no-populate-cache", "--no-version-check"),
        *("--no-static-parser", "--no-print", "--store-failures", "--quiet"),
    )
    shop.project.write({"models/customers.sql": NULL, "models/properties.yml": customers_test()})
    shop.dbt("build", "--select", "customers", *flags).failed()
    assert shop.new() == set()
    shop.project.write({"models/customers.sql": GOOD})
    shop.dbt("build", "--select", "customers", *flags).succeeded()
    assert shop.new() == {"customers"}
