"""The statements that build histories: which ones are sent, and what they read and write.

What they compute is tested on Spark, against the oracle: see tests/functional/scd2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from sparkwap.cdc import history
from sparkwap.cdc.event_sql import copy_number
from sparkwap.cdc.history import Extension, HistoryMarks, HistorySettings, steps
from sparkwap.cdc.history.versions import versions
from sparkwap.core.errors import ConfigError

LOG = {
    "_op": "string", "_sequence": "string", "_event_time": "timestamp", "_file_path": "string",
    "_row": "bigint", "_part": "int", "_batch": "bigint",
}  # fmt: skip
TYPES = {"id": "int", "name": "string", "city": "string", **LOG}
FULL = {"_absent": "array<string>", "_load": "string", "_load_date": "date"}


def settings(types: dict[str, str] = TYPES, **config: Any) -> HistorySettings:
    return history.read_settings("dim", {"unique_key": "id", **config}, "select log", types)


class Spark:
    """Records statements, and answers queries.

    Args:
        increment: rows, last batch, first sequence, first reset, rows that leave columns out.
        older: whether the log has rows for which a reset is late.
        late: how many keys of the increment are late.
        unknown: how many keys of it have no current version.
        found: how many of all these are late in the end.
        changes: how many rows change.
    """

    def __init__(
        self,
        increment: Sequence[Any] = (3, 8, "0004", None, 0),
        older: int = 0,
        late: int = 0,
        unknown: int = 0,
        found: int = 0,
        changes: int = 1,
    ) -> None:
        self.sent: list[str] = []
        self._answers: dict[str, Sequence[Any]] = {
            r"select count\(\*\), max\(_batch\)": increment,
            r"select count\(\*\) from \(select 1": [older],
            r"select count_if": [0, 0],
            r"from t_keys$": [late, "1", "9", unknown, "2", "5"],
            r"from t_late$": [found, "1", "5"],
            r"select count\(\*\) from t_changes": [changes],
        }

    def __call__(self, sql: str) -> Sequence[Any]:
        self.sent.append(sql)
        found = (a for asks, a in self._answers.items() if re.search(asks, sql))
        return [] if sql.startswith(("cache", "drop")) else next(found)

    def staged(self, name: str) -> str | None:
        head = f"cache lazy table t_{name} as\n"
        return next((sql for sql in self.sent if sql.startswith(head)), None)


def extend(spark: Spark, of: HistorySettings | None = None, **more: Any) -> str | None:
    given = {"marks": HistoryMarks(7, 40), "restate": None, **more}
    return Extension(of or settings(), "s.t", stage="t_", run=spark, **given).merge_sql()


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        history.read_settings(
            "dim",
            {"expire": "day_before", "deletes": "x", "open_end": "2999-01-01",
             "tracked_columns": "town", "surrogate_key": "name"},
            "select log",
            {c: kind for c, kind in TYPES.items() if c != "_row"},
        )  # fmt: skip
    for fault in (
        "deletes is 'x'; legal values: close, record",
        "expire 'day_before' needs grain 'date'",
        "open_end is '2999-01-01'; legal values: null, '9999-12-31'",
        "unique_key is missing",
        "the query has no column town",
        "the query has no column _row",
        "the query's column name has the name of a column that the history adds",
    ):
        assert fault in str(told.value)


def test_the_columns_determine_the_kinds_of_events() -> None:
    plain, full = settings(), settings(TYPES | FULL, surrogate_key=True, open_end="9999-12-31")
    assert (plain.partial, plain.loads, plain.surrogate_key) == (False, False, None)
    assert (full.partial, full.loads, full.surrogate_key) == (True, True, "version_key")
    assert full.columns[:4] == ["version_key", "id", "name", "city"]


def test_a_restatement_is_of_one_model() -> None:
    asked = [{"model": "dim", "where": "id = 1"}, {"model": "fct", "where": "id = 2"},
             {"model": "dim", "where": "id > 8"}]  # fmt: skip
    assert history.restated("dim", asked) == "(id = 1) or (id > 8)"
    assert history.restated("dim", asked[0]) == "(id = 1)"
    assert history.restated("dim", asked[1]) is None
    assert history.restated("dim", None) is None


@pytest.mark.parametrize("asked", ["dim", [{"model": "dim"}], {"where": "id = 1"}])
def test_a_restatement_names_model_and_rows(asked: Any) -> None:
    with pytest.raises(ConfigError, match="It needs model and where"):
        history.restated("dim", asked)


def test_nothing_is_written_without_new_events() -> None:
    spark = Spark(increment=(0, None, None, None, 0))
    assert extend(spark) is None
    assert [sql.split()[0] for sql in spark.sent] == ["cache", "select"]


def test_events_that_change_nothing_write_nothing() -> None:
    spark = Spark(changes=0)
    assert extend(spark) is None
    assert spark.staged("changes")


def test_later_events_read_neither_closed_versions_nor_the_log() -> None:
    spark = Spark()
    merge = extend(spark)
    assert merge is not None
    assert "and (DBT_INTERNAL_DEST.is_current)" in merge
    assert spark.staged("late") is None
    changes = spark.staged("changes") or ""
    assert "select log" not in changes
    assert changes.count("head.is_current") == 2
    assert "cast(8 as bigint) as _batch" in changes


def test_a_late_key_is_built_from_the_log_within_the_bounds_of_all_late_keys() -> None:
    spark = Spark(late=2, unknown=3, found=4)
    merge = extend(spark) or ""
    bounds = "between cast('{}' as int) and cast('{}' as int)"
    late, changes = spark.staged("late") or "", spark.staged("changes") or ""
    assert "_path = 'late'" in late
    assert f"logged._batch <= 7 and logged.`id` {bounds.format(2, 5)}" in late
    assert f"or (DBT_INTERNAL_DEST.`id` {bounds.format(1, 5)})" in merge
    assert changes.count(f"known.`id` {bounds.format(1, 5)}") == 2
    assert changes.count("left anti join t_late") == 3


def test_the_first_batch_has_no_older_log_to_look_through() -> None:
    spark = Spark(unknown=3)
    assert extend(spark, marks=HistoryMarks(-1, 0))
    assert spark.staged("late") is None


def test_a_restatement_makes_keys_late() -> None:
    spark = Spark(increment=(0, None, None, None, 0), found=1)
    assert extend(spark, restate="(id = 1)")
    late = spark.staged("late") or ""
    assert "select `id` from s.t where (id = 1)" in late
    assert late.count("(id = 1)") == 2
    assert "cast(7 as bigint) as _batch" in (spark.staged("changes") or "")


def test_a_reset_that_is_late_builds_every_key_again() -> None:
    spark = Spark(increment=(3, 8, "0004", "0005", 0), older=1)
    merge = extend(spark, settings(TYPES | FULL)) or ""
    (asked,) = (sql for sql in spark.sent if "select 1" in sql)
    assert "_sequence >= '0005' or (_op = 'full_load' and _load_date in" in asked
    assert "is_current" not in merge.split("when matched")[0]
    assert spark.staged("keys") is None


def test_a_reset_in_time_touches_all_current_versions() -> None:
    spark = Spark(increment=(3, 8, "0004", "0005", 0))
    assert extend(spark)
    keys = spark.staged("keys") or ""
    assert "full outer join heads" in keys
    assert "least(touched._first_sequence, resets._sequence) > heads._sequence" in keys


def test_a_partial_event_follows_a_version_with_all_columns() -> None:
    rule = "and not coalesce(touched._is_partial, false)"
    for tracked, holds in ((None, False), ("name", True)):
        spark = Spark()
        extend(spark, settings(TYPES | FULL, tracked_columns=tracked))
        assert (rule in (spark.staged("keys") or "")) == holds


def test_a_new_key_before_a_reset_of_the_log_is_late() -> None:
    spark = Spark(unknown=3)
    extend(spark)
    assert (
        "where _path = 'unknown' and _first_sequence <= (select max(_sequence) "
        "from (select log) as logged where logged._batch <= 7 and _op in ('truncate', 'full_load') "
        "and _sequence >= '0004')"
    ) in (spark.staged("late") or "")


def test_a_key_with_a_recorded_deletion_that_returns_is_late() -> None:
    spark = Spark()
    extend(spark, settings(deletes="record"))
    rule = "not (heads.change_flag = 'D' and touched._first_sequence is not null)"
    assert rule in (spark.staged("keys") or "")


def test_a_key_whose_order_as_text_may_differ_skips_no_files() -> None:
    spark = Spark(late=2, found=2)
    merge = extend(spark, settings({**TYPES, "id": "double"}))
    assert merge is not None
    assert "between cast(" not in "".join(spark.sent) + merge


def test_a_run_drops_its_temporary_tables() -> None:
    spark = Spark()
    Extension(settings(), "s.t", HistoryMarks(7, 0), "t_", None, spark).drop()
    names = ("changes", "late", "keys", "increment")
    assert spark.sent == [f"drop view if exists t_{name}" for name in names]


def test_new_surrogate_keys_continue_from_the_highest() -> None:
    spark = Spark()
    extend(spark, settings(surrogate_key=True))
    assert "coalesce(_number, 40 + row_number()" in (spark.staged("changes") or "")


def test_a_published_version_keeps_its_surrogate_key() -> None:
    of, kept = settings(surrogate_key="nr"), "left join s.t as known"
    build = history.HistoryBuild(of, None, Spark())
    assert kept in build.whole("s.t", ["nr", "id"])
    assert kept not in build.whole("s.t", ["id"])
    assert kept not in build.whole(None, [])


def test_marks_come_from_bounds_if_all_files_have_them() -> None:
    sent: list[str] = []

    def run(sql: str) -> Sequence[Any]:
        sent.append(sql)
        return answers.pop(0)

    answers: list[Sequence[Any]] = [(7, 40, 0)]
    assert history.marks("s.t", "nr", run) == HistoryMarks(7, 40)
    answers = [(7, 40, 1), (8, 41)]
    assert history.marks("s.t", "nr", run) == HistoryMarks(8, 41)
    answers = [(None, 0), (None,)]
    assert history.marks("s.t", None, run) == HistoryMarks(-1, 0)
    assert [".files" in sql for sql in sent] == [True, True, False, True, False]


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("resets", [None, "select resets"])
def test_each_step_reads_the_one_before(resets: str | None, partial: bool) -> None:
    of = settings(TYPES | FULL if partial else TYPES)
    sql = versions(of, steps.events(of, "select log"), resets)
    assert ("cross join (select resets)" in sql) == (resets is not None)
    assert ("_life" in sql) == partial
    parts = re.findall(r"(?:with|\),\n?)\s*(\w+) as \(", sql)
    reads = [re.search(rf"from \(?(?:[^()]* from )?{part}\b", sql) for part in parts]
    assert all(reads)


def test_an_old_reset_with_the_sequence_of_a_known_version_does_not_delete_it() -> None:
    sql = versions(settings(), "select steps", "select resets")
    assert "_head_from is null or one.at._sequence > followed._at._sequence" in sql


@pytest.mark.parametrize("types", [TYPES, TYPES | FULL])
def test_times_are_compared_with_microseconds(types: dict[str, str]) -> None:
    of = settings(types)
    for sql in (versions(of, "select steps"), steps.events(of, "select log")):
        formats = "'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX', 'timestampNTZFormat', 'yyyy"
        assert "to_json(struct(`city`, `name`), map('ignoreNullFields', '" in sql
        assert formats in sql


def test_one_rule_finds_copies() -> None:
    of = settings()
    assert copy_number("_sequence") in of.resets("select log")
    assert copy_number("`id`, _at._sequence, _op, _content", "_at.") in versions(of, "select steps")


def test_a_history_by_day_has_utc_days() -> None:
    of = settings(grain="date", expire="day_before", open_end="9999-12-31")
    sql = versions(of, steps.events(of, "select log"))
    assert "cast(to_utc_timestamp(_event_time, current_timezone()) as date) as _time" in sql
    assert "coalesce(date_sub(_until, 1), cast('9999-12-31' as date)) as valid_to" in sql


def test_a_recorded_deletion_has_the_last_values() -> None:
    close, record = (versions(settings(deletes=how), "select steps") for how in ("close", "record"))
    assert close.rstrip().endswith("where not _gone")
    assert "_image.`name` as `name`" in record
    assert "where not _gone" not in record
