"""Each custom audit passes on good rows and fails on bad ones, so that none is there for show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.functional.pipeline.conftest import NewPipeline, Pipeline


PROJECT = """
name: audits
version: "1.0.0"
profile: sparkwap
models: {audits: {+materialized: table}}
"""

TWO = "(1, date '2024-01-01'), (2, date '2024-01-01')"
ONE = "(1, date '2024-02-01')"
D1, D2, D3, D4, D5 = (f"date '2024-01-0{day}'" for day in range(1, 6))
# One file of two rows: the columns of a raw table that the audits look at.
LOG = "_kind, _file_path, _row, _batch, _file_rows, id"
OF_LOG = ", date '2024-01-01' as _load_date, 'insert' as _op, '1' as _sequence, 0 as _part"
FILE = "('file', 'f', cast(null as bigint), 1, 2, null)"
NEW = f"{FILE.replace(', 1, 2,', ', 3, 2,')}, ('bad', 'f', 1, 3, null, 'a')"
HALF_BAD = "('row', 'f', 1, 1, null, 'a'), ('bad', 'f', 2, 1, null, 'b')"
MODELS = {
    # name: (columns, good rows, bad rows)
    "emptied": ("id", "(1)", None),
    "shrunk": ("id, as_of", TWO, ONE),
    "accepted": ("id, as_of", TWO, ONE),
    "stale": (
        "entity, load_date",
        "('a', date '2024-01-01'), ('b', date '2024-01-03')",
        "('a', date '2024-01-01'), ('b', date '2024-01-04')",
    ),
    "old": ("load_date", "(current_date())", "(date '2020-01-01')"),
    "small": ("value", "(0), (null)", "(-1)"),
    "open_range": ("value", "(1), (null)", "(0)"),
    "large": ("value", "(9), (null)", "(10)"),
    "logged": (LOG, f"{FILE}, {HALF_BAD}, ('row', 'f', 2, 2, null, 'b')", NEW),
    "tolerant": (LOG, f"{FILE}, {HALF_BAD}", f"{NEW}, ('bad', 'f', 2, 3, null, 'b')"),
    "twice": (LOG, f"{FILE}, {HALF_BAD}", f"{FILE}, {FILE}, {HALF_BAD}"),
    "quarantine": ("file_path, line", "('f', 2)", "('f', 1), ('f', 3)"),
    "state": ("id, _sequence, _file_path, _row, _part", "('a', '1', 'f', 1, 0)",
              "('c', '1', 'f', 9, 0)"),
    "history": (
        "id, dbt_valid_from, dbt_valid_to",
        f"(1, {D1}, {D3}), (1, {D5}, null), (2, {D1}, {D2}), (2, {D2}, {D4})",
        f"(1, {D1}, null), (1, {D5}, null), (2, {D1}, {D3}), (2, {D2}, {D4}), (3, {D2}, {D2})",
    ),
}  # fmt: skip

TESTS = """
models:
  - name: emptied
    data_tests: [not_empty]
  - name: shrunk
    data_tests: [{row_count_drop: {arguments: {max_drop: 0.4}}}]
  - name: accepted
    data_tests: [{row_count_drop: {arguments: {max_drop: 0.4, accepted: ["2024-02-01"]}}}]
  - name: stale
    data_tests:
      - recency:
          name: recency_of_each_entity
          arguments:
            field: load_date
            datepart: day
            interval: 2
            group_by_columns: [entity]
            reference: newest
  - name: old
    data_tests:
      - recency:
          name: recency_from_now
          arguments: {field: load_date, datepart: day, interval: 2, ignore_time_component: true}
  - name: small
    columns:
      - {name: value, data_tests: [{accepted_range: {arguments: {min_value: 0}}}]}
  - name: open_range
    columns:
      - name: value
        data_tests: [{accepted_range: {arguments: {min_value: 0, inclusive: false}}}]
  - name: large
    columns:
      - {name: value, data_tests: [{accepted_range: {arguments: {min_value: 0, max_value: 9}}}]}
  - name: logged
    data_tests: [quarantine_below, files_add_up]
    config: {meta: {landing: {threshold: 0}}}
  - name: tolerant
    data_tests:
      - quarantine_below: {arguments: {threshold: 1}, name: below_a_count}
      - quarantine_below: {arguments: {threshold: 0.5}, name: below_a_share}
  - name: twice
    data_tests: [files_add_up]
  - name: quarantine
    data_tests:
      - rows_add_up: {arguments: {raw: ref('twice'), state: ref('state'), key: [id]}}
  - name: history
    data_tests:
      - scd2_one_current: {arguments: {key: id}}
      - scd2_no_overlap: {arguments: {key: id}}
      - scd2_in_order
"""


def write_models(project: Path, good: bool) -> None:
    for name, (columns, good_rows, bad_rows) in MODELS.items():
        rows = good_rows if good or bad_rows is None else bad_rows
        where = "where false" if bad_rows is None and not good else ""
        more = OF_LOG if columns == LOG else ""
        sql = f"select *{more} from values {rows} as t ({columns}) {where}\n"
        (project / "models" / f"{name}.sql").write_text(sql)


@pytest.fixture(scope="module")
def audits(new_pipeline: NewPipeline) -> Pipeline:
    pipeline = new_pipeline("audits")
    project = pipeline.project = pipeline.folder / "project"
    (project / "models").mkdir(parents=True)
    (project / "dbt_project.yml").write_text(PROJECT)
    (project / "models" / "models.yml").write_text(TESTS)
    return pipeline


def test_good_rows_pass(audits: Pipeline) -> None:
    write_models(audits.project, good=True)
    done = audits.dbt("build")
    assert done.returncode == 0, done.stdout


def test_bad_rows_fail(audits: Pipeline) -> None:
    write_models(audits.project, good=False)
    assert audits.dbt("build").returncode != 0
    failed = {name for name in audits.failures() if name not in MODELS}
    assert sorted(failed) == [
        "accepted_range_large_value__9__0",
        "accepted_range_open_range_value__False__0",
        "accepted_range_small_value__0",
        "below_a_count",
        "below_a_share",
        "files_add_up_logged_",
        "files_add_up_twice_",
        "not_empty_emptied_",
        "quarantine_below_logged_",
        "recency_from_now",
        "recency_of_each_entity",
        "row_count_drop_shrunk_0_4",
        "rows_add_up_quarantine_id__ref_twice___ref_state_",
        "scd2_in_order_history_",
        "scd2_no_overlap_history_id",
        "scd2_one_current_history_id",
    ]


@pytest.mark.parametrize(
    ("audit", "message"),
    [
        ("row_count_drop(model='x', max_drop=2)", "max_drop is '2'; it must be a number"),
        (
            "recency(model='x', field='y', datepart='day', interval=1, reference='today')",
            "reference is 'today'; legal values: now, newest",
        ),
        ("accepted_range(model='x', column_name='y')", "neither min_value nor max_value"),
        ("quarantine_below(model='x', threshold=1.5)", "threshold is '1.5'; it must be a number"),
    ],
)  # fmt: skip
def test_illegal_arguments_are_answered_with_the_legal_ones(
    audits: Pipeline, audit: str, message: str
) -> None:
    done = audits.dbt("compile", "--inline", f"{{{{ test_{audit} }}}}")
    assert done.returncode != 0
    assert message in done.stdout
