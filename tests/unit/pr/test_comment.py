"""The comment on a pull request."""

from __future__ import annotations

from sparkwap.pr import comment

from .conftest import audit, node, run, stands


def test_the_comment_lists_failures_and_next_steps() -> None:
    failed = audit("ids", status="fail", failures=1234)
    bad = node(verdict="rejected", reason="test ids failed (1,234 rows)")
    good = node("totals", how="side", base_metadata=None)
    text = comment.render(stands(good, bad, tests=(failed, audit("known"))))
    lines = text.splitlines()
    assert lines[:2] == ["<!-- sparkwap pr pr_1 -->", "### sparkwap: `pr_1` was rejected"]
    row = "| `shop.orders` | on a branch of the table | **rejected**: test ids failed (1,234 rows)"
    assert f"{row} | 1 of 2 |" in lines
    assert "| `shop.totals` | new | passed | none |" in lines
    assert "| `ids` | failed | 1,234 |" in lines
    assert "sparkwap pr audit --branch pr_1   # after a fix" in lines
    assert not any("known" in line for line in lines), "passed tests are only counted"


def test_the_rejected_version_of_a_model_is_looked_at() -> None:
    for name, ref in (("orders", "ref('orders')"), ("orders.v1", "ref('orders', v='1')")):
        text = comment.render(stands(node(name, verdict="rejected", reason="x")))
        assert f'dbt show --inline "select * from {{{{ {ref} }}}}"   # look at it' in text


def test_the_comment_has_no_values_and_no_markup() -> None:
    values = "build failed: cannot cast 'Ann Smith' to int"
    error = "test ids ended in an error (division of 'Ann Smith')"
    rows = [node(verdict="rejected", reason=one) for one in (values, error)]
    for row in rows:
        assert "Ann" not in comment.render(stands(row))
    text = comment.render(stands(node(verdict="rejected", reason="a | b\n@team <img> `x`")))
    assert "a \\| b @\u200bteam &lt;img> 'x' |" in text


def test_the_comment_of_a_published_branch_has_the_rollback() -> None:
    done = stands(node(verdict="published"), is_open=False, runs=(run(publish_id="1a2b3c4d"),))
    assert "wap_rollback --args '{run: 1a2b3c4d}'" in comment.render(done)


def test_a_long_comment_leaves_out_the_diff_first() -> None:
    found = stands(*(node(f"table_{n}") for n in range(200)))
    assert "THE DIFF" in comment.render(found, "THE DIFF")
    assert "and 150 more" in comment.render(found, "")
    short = comment.render(found, "THE DIFF" + "x" * 60_000)
    assert len(short) < comment.LIMIT
    assert "wap_diff" in short
    assert "sparkwap pr publish" in short
    assert len(comment.render(found, "y" * 500, limit=1_000)) <= 1_000
