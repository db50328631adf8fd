import json
import re
from datetime import date, datetime
from decimal import Decimal

from dbt.adapters.sparkwap.sql_helpers import ROWS_PER_TEXT, column_types, seed_sql


def test_rows_are_json_and_are_cast_to_their_types() -> None:
    sql = seed_sql([("id", "bigint"), ("na me", "string")], [[1, "a'b\\c"], [None, "ü"]])
    assert sql.startswith("select cast(c0 as bigint) as `id`, cast(c1 as string) as `na me` from (")
    text = re.search(r"from_json\('(.*)', 'array", sql)
    assert text is not None
    rows = json.loads(text[1].replace("\\'", "'").replace("\\\\", "\\"))
    assert rows == [{"c0": "1", "c1": "a'b\\c"}, {"c1": "ü"}]


def test_values_are_written_as_spark_reads_them() -> None:
    values = [True, Decimal("1E+3"), date(2024, 1, 31), datetime(2024, 1, 31, 8, 5)]
    sql = seed_sql([(f"c{i}", "string") for i in range(4)], [values])
    for text in ('"true"', '"1000"', '"2024-01-31"', '"2024-01-31 08:05:00"'):
        assert text in sql


def test_many_rows_are_several_texts_and_no_rows_are_one_empty_text() -> None:
    sql = seed_sql([("id", "bigint")], [[i] for i in range(ROWS_PER_TEXT + 1)])
    assert sql.count("from_json") == 2
    assert "from_json('[]'" in seed_sql([("id", "bigint")], [])


def test_configured_types_override_inferred_types_in_any_case() -> None:
    types = column_types(["Id", "day"], ["bigint", "date"], {"ID": "string"})
    assert types == [("Id", "string"), ("day", "date")]
