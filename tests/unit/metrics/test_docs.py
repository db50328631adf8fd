"""docs/metrics.md has all metrics, and its alert rules use metrics and labels that there are."""

from __future__ import annotations

import re

import metrics_table
import pytest
import yaml
from helpers.documents import blocks

from sparkwap.metrics.decide import NAMED, OUTCOMES, OWN, REPLAY, STATES, STATUSES
from sparkwap.metrics.exposition import METRICS, Definition

BY_NAME = {metric.name: metric for metric in METRICS}
VALUES = {
    "branch_kind": (OWN, NAMED, REPLAY),
    "outcome": OUTCOMES,
    "state": STATES,
    "status": STATUSES,
    "verdict": ("held", "rejected"),
}
PAGE = metrics_table.PAGE.read_text()
(RULES,) = blocks(metrics_table.PAGE, "yaml")


def test_the_table_is_up_to_date() -> None:
    assert metrics_table.page(PAGE) == PAGE, "python scripts/metrics_table.py writes it again"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions_of_prometheus(metric: Definition) -> None:
    assert re.fullmatch(r"sparkwap_[a-z_]+", metric.name)
    assert metric.labels[:2] == ("project", "target")
    assert metric.help.endswith(".")
    if metric.help.startswith(("Time", "Change time")):
        assert metric.name.endswith("_timestamp_seconds")
    if metric.help.startswith("Seconds"):
        assert metric.name.endswith(("_seconds", "_seconds_total"))


def test_the_alert_rules_use_metrics_and_labels_that_there_are() -> None:
    (group,) = yaml.safe_load(RULES)["groups"]
    used = set()
    for rule in group["rules"]:
        found = re.findall(r"(sparkwap_\w+)(?:\{(.*?)\})?", rule["expr"])
        assert found, rule["alert"]
        of_rule = {label for name, _ in found for label in BY_NAME[name].labels}
        for name, selectors in found:
            used.add(name)
            for label, value in re.findall(r'(\w+)="(.*?)"', selectors):
                assert label in BY_NAME[name].labels, rule["alert"]
                assert value in VALUES.get(label, (value,)), rule["alert"]
        summary = rule["annotations"]["summary"]
        assert set(re.findall(r"\$labels\.(\w+)", summary)) <= of_rule, rule["alert"]
    assert used <= set(BY_NAME)


def test_all_names_on_the_page_are_metrics() -> None:
    assert set(re.findall(r"\bsparkwap_[a-z_]+", PAGE)) == set(BY_NAME)


def test_the_states_are_explained() -> None:
    for label in ("branch_kind", "state"):
        for value in VALUES[label]:
            assert f"`{value}`" in PAGE
