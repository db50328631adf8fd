"""Reads ranges of messages of a Kafka topic with Spark, as the texts of rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparkwap.core.errors import ConfigError
from sparkwap.core.personal import MESSAGE_HEADERS, MESSAGE_KEY
from sparkwap.landing.contents import Contents
from sparkwap.landing.errors import LandingError
from sparkwap.landing.row_sql import TOMBSTONE, text
from sparkwap.landing.topic import OFFSET, Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    MESSAGE_KEY: "string",
    "_message_time": "timestamp",
    MESSAGE_HEADERS: "string",
}
"""The columns that the log of a topic has besides the others."""
TIMESTAMP = "kafka.timestamp"
"""The name of the time of a message in a landing entry, in milliseconds."""
FIELDS = {OFFSET: "cast(_line as string)", TIMESTAMP: "cast(unix_millis(_message_time) as string)"}
"""SQL of their texts."""
_REFUSED = re.compile(r"\borg\.apache\.kafka\.[\w.]*\.(\w+(?:Exception|Error))\)?:? ([^\n]*)")
"""An error of Kafka's client in one of Spark's."""


def messages(
    session: SparkSession, ranges: Sequence[Range], options: Mapping[str, str]
) -> DataFrame:
    """Return the messages of some ranges of one topic.

    Args:
        ranges: at most one range for each partition.

    Returns:
        ``_path`` (the name of the range), ``_line`` (the offset), ``_text`` (the value; bytes that
        are not UTF-8 as ``base64:...``), and `COLUMNS`.
    """
    topic = ranges[0].topic
    offsets = {
        # Spark wants the offsets of all partitions with one of these options, so it gets the
        # partitions by name.
        "assign": {topic: [r.partition for r in ranges]},
        "startingOffsets": {topic: {str(r.partition): r.first for r in ranges}},
        "endingOffsets": {topic: {str(r.partition): r.next for r in ranges}},
    }
    reader = session.read.format("kafka").options(**options).option("includeHeaders", "true")
    for name, value in offsets.items():
        reader = reader.option(name, json.dumps(value))
    cases = " ".join(f"when {r.partition} then {text(r.name)}" for r in ranges)
    pair = f"named_struct('key', h.key, 'value', {_text_of('h.value')})"
    return reader.load().selectExpr(
        f"case partition {cases} end as _path",
        "offset as _line",
        f"coalesce({_text_of('value')}, {text(TOMBSTONE)}) as _text",
        f"{_text_of('key')} as {MESSAGE_KEY}",
        # Python has no later time, so readers without Spark could not read the log.
        "if(year(timestamp) between 1 and 9999, timestamp, null) as _message_time",
        f"to_json(transform(headers, h -> {pair})) as {MESSAGE_HEADERS}",
    )


def look(keys: DataFrame) -> tuple[dict[str, Contents], dict[str, int]]:
    """Return columns and number, and the bytes, of the messages of each range, by its name.

    Args:
        keys: ``_path``, ``_text`` and ``_keys``, the columns of each message.
    """
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.sql.functions import expr

    grouped = keys.groupBy("_path").agg(
        expr("count(*)"),
        expr("sum(octet_length(_text))"),
        expr("array_distinct(flatten(collect_set(_keys)))"),
    )
    try:
        rows = grouped.collect()
    except PySparkException as error:
        refused = _REFUSED.search(str(error))
        if refused is not None:
            raise LandingError(
                f"The Spark server could not read the topic ({': '.join(refused.groups())}). "
                "Nothing was read; main is as it was, and the messages stay in Kafka. dbt's "
                "machine has reached the broker, so check that the server reaches it too, and that "
                "the user has the right READ on the topic, then: dbt retry"
            ) from error
        if not isinstance(error, AnalysisException) or "data source: kafka" not in str(error):
            raise
        raise ConfigError(
            "The Spark server cannot read Kafka: it has no data source of this name. Nothing was "
            "read; main is as it was. Embedded server: set `kafka: true` in profiles.yml, then: "
            "sparkwap server stop, dbt retry. A server of your own: start it with the package "
            "org.apache.spark:spark-sql-kafka-0-10_2.13 of its version."
        ) from error
    found = {row[0]: Contents(tuple(sorted(row[3])), row[1]) for row in rows}
    return found, {row[0]: row[2] for row in rows}


def _text_of(value: str) -> str:
    """Return SQL for bytes as a text; NULL for none."""
    given = f"cast({value} as string)"
    return f"if(is_valid_utf8({given}), {given}, concat('base64:', base64({value})))"
