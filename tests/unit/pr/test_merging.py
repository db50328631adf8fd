"""Which merged code was not audited."""

from __future__ import annotations

from typing import Any

from sparkwap.pr.merging import differing

from .conftest import KEY, audit, node, run, stands


def differs(now: dict[str, str], lake: dict[str, str] | None = None, **tests: str) -> Any:
    found = stands(node(), tests=(audit("ids"),))
    audited = {"code of r1": {KEY: "a", "test.shop.ids.1a2b": "t", "model.shop.notes": "n"}}
    return differing(found, now, audited, lake or {})


def test_the_audited_code_may_be_merged() -> None:
    now = {KEY: "a", "test.shop.ids.1a2b": "t", "model.shop.notes": "n"}
    assert not differs(now)
    assert not differs({KEY: "a"}), "a removed test is no other code"
    # Another pull request was merged and published meanwhile.
    assert not differs({**now, "model.shop.notes": "m"}, {"model.shop.notes": "m"})


def test_other_code_may_not_be_merged() -> None:
    now = {KEY: "a", "test.shop.ids.1a2b": "t", "model.shop.notes": "n"}
    assert differs({**now, KEY: "b"}).changed == (KEY,)
    assert differs({**now, "test.shop.ids.1a2b": "u"}).changed == ("test.shop.ids.1a2b",)
    assert differs({"model.shop.notes": "n"}).absent == (KEY,)
    assert differs({**now, "model.shop.notes": "m"}).unaudited == ("model.shop.notes",)
    assert differs({**now, "seed.shop.new": "s"}).unaudited == ("seed.shop.new",)
    # A node on the branch must have the audited code, even if the lake has the merged code.
    assert differs({**now, KEY: "b"}, {KEY: "b"}).changed == (KEY,)


def test_code_that_is_not_stored_counts_as_other_code() -> None:
    found = stands(node(), runs=(run(manifest_hash=None),))
    assert differing(found, {KEY: "a"}, {}, {KEY: "a"}).changed == (KEY,)


def test_differences_are_named() -> None:
    lines = differs({KEY: "b", "test.shop.ids.1a2b": "t", "snapshot.shop.snap": "s"}).lines()
    assert lines == ["  audited with other code: orders", "  changed, but not audited: snap"]
