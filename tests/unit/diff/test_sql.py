"""The text of the statements."""

from __future__ import annotations

import re

from sparkwap.diff.plan import ComparedColumn
from sparkwap.diff.sql import DiffStatements, Source, seeds_of, value_sql

SEEDS = (11, 22)
LIST = {"type": "list", "element": "int"}
MAP = {"type": "map", "key": "string", "value": {"type": "list", "element": "int"}}


def statements(*columns: ComparedColumn, key: tuple[str, ...] = ()) -> DiffStatements:
    return DiffStatements(columns, key, SEEDS)


def test_names_are_quoted_and_old_rows_have_old_names() -> None:
    columns = ComparedColumn("new`; drop", "old name", "int", "bigint")
    found = statements(columns).signs(
        [Source("n", 1, old=False), Source("o", -1, old=True, condition="_deleted")]
    )
    assert "cast(`new``; drop` as bigint) as c0, 1L as sign from n" in found
    assert "cast(`old name` as bigint) as c0, -1L as sign from o where _deleted" in found
    assert "having sum(sign) <> 0" in found


def test_whole_numbers_have_the_text_of_an_integer() -> None:
    columns = ComparedColumn("n", "n", "string", "string", whole=True)
    assert (
        "if(`n` >= -9223372036854775808D and `n` < 9223372036854775808D and "
        "try_cast(`n` as bigint) = `n`, cast(try_cast(`n` as bigint) as string), "
        "cast(`n` as string)) as c0"
    ) in statements(columns).signs([Source("t", 1, old=False)])


def test_nulls_of_any_number_of_columns_are_hashed() -> None:
    columns = [ComparedColumn(f"x{i}", f"x{i}", "int") for i in range(130)]
    columns[5] = ComparedColumn("x5", "x5", "int", nullable=False)
    found = statements(*columns).signs([Source("t", 1, old=False)])
    first = found[: found.index(" as h1")]
    masked = re.findall(r"if\(c(\d+) is null, (\d+)L, 0L\)", first)
    assert [int(i) for i, _ in masked] == [i for i in range(130) if i != 5]
    assert max(int(bit) for _, bit in masked) == 1 << 62
    assert first.count(" | ") == 129 - 3  # three numbers of up to 63 bits


def test_nested_values_are_hashed_separately() -> None:
    assert value_sql("c0", "int", 7) == "c0"
    assert "size(c0)" in value_sql("c0", LIST, 7)
    found = value_sql("c0", MAP, 7)
    assert "array_sort(transform(map_entries(c0), e1 ->" in found
    assert "transform(e1.value, e2 ->" in found


def test_hidden_columns_are_not_read_for_samples() -> None:
    columns = [ComparedColumn(name, name, "string") for name in ("id", "email", "city")]
    found = statements(*columns, key=("id",)).samples(
        "v", 5, [0, 2], ["removed", "added", "changed"]
    )
    texts = re.findall(r"cast\((\w+\.c\d) as string\)", found)
    assert set(texts) == {"a.c0", "a.c2", "b.c0", "b.c2"}
    # Whether they differ is shown.
    assert "not (a.c1 <=> b.c1)" in found


def test_only_existing_kinds_of_rows_are_selected() -> None:
    found = statements(ComparedColumn("id", "id", "int"), key=("id",)).samples(
        "v", 5, [0], ["changed"]
    )
    assert found.count("select") == 1
    assert "from v where pair order by b.c0 limit 5" in found


def test_seeds_depend_on_the_compared_states() -> None:
    assert seeds_of("a", 1) == seeds_of("a", 1) != seeds_of("a", 2)
    assert all(0 <= seed < 2**62 for seed in seeds_of("x"))


def test_rows_of_a_key_are_sorted_once() -> None:
    columns = [ComparedColumn(name, name, "string") for name in ("id", "city")]
    found = statements(*columns, key=("id",)).paired("(rows)")
    assert set(re.findall(r"over \((partition by r\.c0 order by n)", found)) == {
        "partition by r.c0 order by n"
    }
    assert "where not (pair and n > 0)" in found
    assert "over" not in statements(*columns).paired("(rows)")
