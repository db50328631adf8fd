"""What the expected rows of a unit test are compared with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.gate.unit_tests import UnitTest, compared

TABLE = {"wap_expect": "table"}
TEST = UnitTest("merges", TABLE, "incremental", "merge", gives_this=True)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, "table"),
        ({"is_incremental": True}, "table"),
        ({"strategy": None}, "table"),
        ({"meta": {}}, "select"),
        ({"meta": {"wap_expect": "select"}}, "select"),
        # A build that begins the table leaves the rows of the select.
        ({"gives_this": False}, "select"),
        ({"is_incremental": False}, "select"),
        ({"gives_this": False, "strategy": "microbatch"}, "select"),
        ({"materialized": "view"}, "select"),
        ({"materialized": "table"}, "select"),
        ({"materialized": "ephemeral"}, "select"),
        ({"meta": {"wap_expect": "snp"}, "snapshots": ("snp",)}, "snapshot"),
        (
            {"meta": {"wap_expect": "snp"}, "snapshots": ("snp",), "materialized": "view"},
            "snapshot",
        ),
        ({"snapshots": ("snp",)}, "table"),
    ],
)
def test_what_is_compared(changes: dict[str, Any], found: str) -> None:
    assert compared(replace(TEST, **changes)) == found


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"meta": {"wap_expect": "tabel"}}, "is 'tabel' in the unit test merges"),
        ({"meta": {"wap_expect": None}}, "there is none"),
        ({"meta": {"wap_expect": "spn"}, "snapshots": ("snp", "a")}, r"\(a, snp\)"),
        ({"materialized": "scd2"}, "its model is materialized as scd2"),
        ({"strategy": "microbatch"}, "which rows a batch would replace"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        compared(replace(TEST, **changes))
