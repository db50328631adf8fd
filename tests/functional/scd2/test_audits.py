"""Each audit of histories passes on good rows and fails on bad ones."""

from __future__ import annotations

import pytest
from helpers.project import Project

from .conftest import MakeHistories

HISTORIES = {
    # name: (good versions, bad versions) of (a, b, valid_from, valid_to)
    "one_current": ("('x', 1, 1, 3), ('x', 1, 5, 9)", "('x', 1, 1, 9), ('x', 1, 5, 9)"),
    "no_overlap": ("('x', 1, 1, 3), ('x', 2, 2, 9)", "('x', 1, 1, 3), ('x', 1, 3, 9)"),
    "no_gap": ("('x', 1, 1, 3), ('x', 1, 4, 9)", "('x', 1, 1, 3), ('x', 1, 5, 9)"),
    "in_order": ("('x', 1, 1, 1), ('x', 1, 2, 9)", "('x', 1, 2, 1)"),
    "versions": ("('x', 1, 1, 3), ('x', 1, 4, 9)", None),
    "sold": ("('x', 1, 1, 0), ('x', 1, 3, 0), ('x', 1, 7, 0)", "('x', 1, 1, 0), ('y', 1, 2, 0)"),
    "resold": ("('x', 1, 4, 0)", "('x', 2, 4, 0)"),
}
SQL = """
    select a, b, make_date(2024, 1, f) as valid_from,
        if(t = 9, date '9999-12-31', make_date(2024, 1, if(t = 0, 1, t))) as valid_to
    from values {rows} as t (a, b, f, t)
"""
PROPERTIES = """
    models:
      - name: one_current
        data_tests: [{scd2_one_current: {arguments: {key: [a, b], valid_to: valid_to}}}]
      - name: no_overlap
        data_tests: [{scd2_no_overlap: {arguments: &days {
            key: [a, b], valid_from: valid_from, valid_to: valid_to, expire: day_before}}}]
      - name: no_gap
        data_tests: [{scd2_no_gap: {arguments: *days}}]
      - name: in_order
        data_tests:
          - scd2_in_order:
              arguments: {valid_from: valid_from, valid_to: valid_to, expire: day_before}
      - name: sold
        data_tests: [{scd2_exactly_one_version: {arguments: &fact {
            history: ref('versions'), key: [a, b], moment: valid_from, valid_from: valid_from,
            valid_to: valid_to, expire: day_before}}}]
      - name: resold
        data_tests: [{scd2_exactly_one_version: {arguments: *fact}}]
"""
AUDITED = set(HISTORIES) - {"versions"}


@pytest.fixture(scope="module")
def audits(make_histories: MakeHistories) -> Project:
    files = {"models/properties.yml": PROPERTIES}
    return make_histories("scd2_audits", {}, **files)


def write(project: Project, good: bool) -> None:
    for name, (good_rows, bad_rows) in HISTORIES.items():
        rows = good_rows if good or bad_rows is None else bad_rows
        project.write({f"models/{name}.sql": SQL.format(rows=rows)})


@pytest.mark.smoke
def test_good_versions_pass(audits: Project) -> None:
    write(audits, good=True)
    audits.dbt("build").succeeded()


@pytest.mark.smoke
def test_bad_versions_fail(audits: Project) -> None:
    write(audits, good=False)
    done = audits.dbt("build").failed()
    failed = {
        model
        for test, status in done.statuses.items()
        for model in AUDITED
        if status == "fail" and f"_{model}_" in test
    }
    assert failed == AUDITED


@pytest.mark.parametrize("audit", ["no_overlap", "no_gap", "in_order", "exactly_one_version"])
def test_illegal_arguments_are_answered_with_the_legal_ones(audits: Project, audit: str) -> None:
    more = ", history='y', moment='m'" if audit == "exactly_one_version" else ""
    key = "" if audit == "in_order" else ", key='k'"
    call = f"{{{{ test_scd2_{audit}(model='x'{key}{more}, expire='later') }}}}"
    done = audits.dbt("compile", "--inline", call).failed()
    assert "expire is 'later'; legal values: next_start, day_before" in done.text
