"""Which conditions follow from the values of a row alone."""

from __future__ import annotations

from typing import Any

import pytest

from sparkwap.audits.forms import form_of

TYPES: dict[str, Any] = {
    "id": "long",
    "x": "int",
    "y": "double",
    "z": "decimal(9, 2)",
    "code": "string",
    "txt": "string",
    "my col": "string",
    "at": "timestamptz",
    "day": "date",
    "user_id": "long",
    "Current_Date": "int",
    "timestamp": "int",
    "tags": {"type": "list", "element": "string"},
    "days": {
        "type": "map",
        "key": "int",
        "value": {"type": "struct", "fields": [{"type": "date"}]},
    },
    "nano": "timestamp_ns",
    "other": "variant",
    "_partition_key": "int",
    "\u017fum": "int",
    "current_t\u0131mestamp": "timestamptz",
    "u\u017fer": "string",
}
FIELDS = [{"name": name, "type": kind} for name, kind in TYPES.items()]


def follows(condition: str) -> bool:
    form = form_of(f"select * from s.t where {condition}")
    return form is not None and form.follows_from_rows(FIELDS)


@pytest.mark.parametrize(
    "condition",
    [
        "id is null",
        "not (x between 1 and 2)",
        "lower(trim(code)) not in ('a', 'today')",
        "cast(x as decimal(9, 2)) < 0 or length(`my col`) > 3",
        "coalesce(x, 0) < 0 and case when x = 1 then y else z end > 2",
        "x > 1.5 or y > 1e3 or id = 5L or z < 2BD",
        "user_id IS NULL",
        "cast(txt as int) > 3",
        "at > timestamp '2024-01-31 12:00:00' or day >= date '2024-01-31' or day < '2024-01-31'",
        "date_trunc('month', at) = at and year(day) > 2000",
        "coalesce(day, date '2024-01-31') > cast(at as date) or not at between day and at",
        "day not between '2024-01-31' and '2024-02-29' and x not in (1, 2) and (x in (3))",
        "case x when 1 then true else (y > 2) end",
        "code not like '!%' escape '!' and x is not null and tags[0] is null",
        "cast(x as string) = '1' and cast(z as decimal(5, 1)) % 2 = 1.5",
        "size(tags) > 3 and array_contains(tags, 'x')",
        "size(days) > 3",
        "code like 'a%' or code rlike '^b' or code in ('c') or concat(code, 'd') = 'e'",
        "`\u017fum` > 3",
    ],
)
def test_known_conditions(condition: str) -> None:
    assert follows(condition)


@pytest.mark.parametrize(
    "condition",
    [
        # Functions that may be the project's own.
        "my_udf(x) > 0",
        "s.my_udf(x) > 0",
        "`lower`(code) = 'a'",
        "exists(array(1), x -> x > 0)",
        # The time.
        "now() > at",
        "day > current_date",
        "day > `current_date`",
        "day > current_timestamp()",
        "day > current_time\u017ftamp",
        "day = 'today'",
        "day = date 'today'",
        "day = date 'today Europe/Paris'",
        "at < '00:00'",
        "at < 'to' 'day'",
        "at < concat('to', 'day')",
        "cast(concat('to', 'day') as date) > day",
        "date'today' > day",
        "cast('12:00' as timestamp) > at",
        # A text of the table may be a time of today.
        "cast(txt as timestamp) > at",
        "cast(txt as timestamp) is null",
        "txt < at",
        "year(txt) > 2000",
        "date_trunc('day', txt) is null",
        # A text after a name may be of another type.
        "x = X'1F'",
        "day + interval '1' day > at",
        # A condition with dates that makes texts of them.
        "at > right('2026-01-01 12:00', 5)",
        "cast(substring(cast(at as string), 12) as timestamp) < at",
        "day = concat(substring('month', 4, 1), 'day')",
        "cast(cast(cast(825375280 as binary) as string) as timestamp) > at",
        "cast(x as varchar(9)) = '1' and day is null",
        # Variables of the session, which keywords may name, and functions of the project.
        "day > date",
        "x > string",
        "x > 1e",
        "x > end",
        "x > 1e5y",
        *(f"x > {word}" for word in ("case", "when", "not", "like", "in", "between")),
        *(f"x > {word} - 1" for word in ("case", "when", "not", "like", "in", "between", "1e")),
        *(f"{word}(x) = 1" for word in ("case", "when", "like", "in", "between", "and", "as")),
        "case > 1",
        "(case) = 1",
        "coalesce(case, 9) > 1",
        "x between 1 and case",
        "not like = 1",
        "not in = 1",
        "not in (x) = '1'",
        "not like(code, txt)",
        "not case(x)",
        "x is not like",
        "x is end",
        "x > 1e-x",
        "x > 1 and not",
        "x -> x",
        # All columns.
        "nullif(*) is null",
        "date '2024-01-31' in (*)",
        "x in (x, *)",
        "coalesce(*) is null",
        "1. > x",
        "escape(x) = 1",
        "varchar(x) = 77",
        "numeric(x) > 1",
        "case when x = 1 then 2 else else(x) end > 2",
        "x and then(x)",
        "x and in (x)",
        "code = '${foo}'",
        "x > ${foo}",
        "x > :foo",
        "txt:a is null",
        "x::date is null",
        "x ^ 2 > 3",
        # Names in another case may be variables; Spark reads keywords with a dotless i.
        "USER_ID is null",
        "`Code` = 'a'",
        "at > current_t\u0131mestamp",
        "code <> u\u017fer",
        "x > 1 */ 2",
        # Columns of Iceberg, of the session, of no table.
        "_file like 'a%'",
        "_pos > 3",
        "_partition_key > 3",
        "`_last_updated_sequence_number` > 3",
        "code <> user",
        "unknown > 3",
        "\u212aey > 3",
        # What a name with dots means depends on the name of the table.
        "s.t.x > 1",
        "t.x > 1",
        "s.trim(code) = 'a'",
        "\"code\" = 'a'",
        # Types whose values are not known.
        "nano is null",
        "other is null",
        "cast(x as time) is null",
        "cast(x as variant) is null",
    ],
)
def test_unknown_conditions(condition: str) -> None:
    assert not follows(condition)


def accepted(column: str, values: str) -> bool:
    form = form_of(
        f"with all_values as (select {column} as value_field, count(*) as n_records from s.t "
        f"group by {column}) select * from all_values where value_field not in ({values})"
    )
    assert form is not None
    return form.follows_from_rows(FIELDS)


def test_accepted_values() -> None:
    assert accepted("code", "'a', 'today'")
    assert accepted("day", "'2024-01-31'")
    assert not accepted("day", "'today'")
    assert not accepted("at", "'2024-01-31', '12:00'")
