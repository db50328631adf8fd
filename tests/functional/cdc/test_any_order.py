"""States of drawn event sets, load by load and whole, against the oracle; without dbt.

A few examples, always the same; ``SPARKWAP_EXAMPLES=200`` draws more, and new ones each time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from helpers.reference_model import Row, deliver, event_set, rows_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from tests.functional.cdc.logs import assert_true, by_key, log_table

from sparkwap import cdc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = int(os.environ.get("SPARKWAP_EXAMPLES", "4"))


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `event_set`."""
    return {
        "seed": draw(st.integers(0, 10**9)),
        "keys": draw(st.integers(1, 40)),
        "changes": draw(st.integers(1, 300)),
        "key": draw(st.sampled_from([("id",), ("id", "part")])),
        "partial": draw(st.booleans()),
        "tied": draw(st.booleans()),
        "truncates": draw(st.integers(0, 2)),
        "loads": draw(st.integers(0, 3)),
    }


@settings(
    max_examples=EXAMPLES,
    derandomize="SPARKWAP_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(table=tables(), seed=st.integers(0, 10**9), batches=st.integers(2, 5))
def test_load_by_load_and_whole_are_the_same(
    session: SparkSession, table: dict[str, Any], seed: int, batches: int
) -> None:
    events, partial = event_set(**table), table["partial"]
    delivered = deliver(events, seed, batches=batches, shuffle=not table["tied"])

    def frame(rows: pa.Table) -> DataFrame:
        # Without a schema Spark refuses a table that is empty.
        return session.createDataFrame(rows, from_arrow_schema(rows.schema))

    def log_of(loads: Sequence[list[Row]]) -> DataFrame:
        return frame(log_table(rows_of(loads), events.columns))

    whole = cdc.state(log_of(delivered), events.key, partial=partial).toArrow()
    assert_true(whole.to_pylist(), rows_of(delivered), events.key, events.columns)

    first = cdc.state(log_of(delivered[:1]), events.key, partial=partial).toArrow()
    rows = by_key(first.to_pylist(), events.key)
    for number in range(2, batches + 1):
        present = frame(pa.Table.from_pylist(list(rows.values()), whole.schema))
        loads = delivered[:number]
        news = cdc.increment(log_of(loads), present, events.key, partial=partial).toArrow()
        rows |= by_key(news.to_pylist(), events.key)
        assert_true(rows.values(), rows_of(loads), events.key, events.columns)
    assert rows == by_key(whole.to_pylist(), events.key)
