"""The plan of a comparison: columns and files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.catalog.file_plan import (
    NOTHING,
    WHOLE,
    DataFile,
    DeleteFile,
    FilePlan,
    StateFiles,
    plan_files,
)
from sparkwap.diff.plan import (
    Column,
    key_in,
    match_columns,
)

STRUCT = {"type": "struct", "fields": [{"id": 9, "name": "x", "type": "int"}]}


def columns(*described: tuple[int, str, object]) -> list[Column]:
    return [Column(number, name, kind) for number, name, kind in described]  # type: ignore[arg-type]


# ---------------------------------------------------------------- columns


def test_columns_are_paired_by_name_in_any_order_and_case() -> None:
    before = columns((1, "id", "long"), (2, "City", "string"), (3, "gone", "int"))
    after = columns((2, "city", "string"), (1, "id", "long"), (4, "new", "date"))
    found = match_columns(before, after, same_table=True)
    assert [(c.before, c.name) for c in found.compared] == [("City", "city"), ("id", "id")]
    assert [c.name for c in found.change.added] == ["new"]
    assert [c.name for c in found.change.removed] == ["gone"]
    assert found.same_files


def test_a_renamed_column_is_compared_under_both_names() -> None:
    before = columns((1, "id", "long"), (2, "amount", "int"))
    after = columns((1, "id", "long"), (2, "total", "int"))
    found = match_columns(before, after, same_table=True)
    assert [(c.before, c.name) for c in found.compared] == [("id", "id"), ("amount", "total")]
    assert [(c.before, c.after) for c in found.change.renamed] == [("amount", "total")]
    assert not (found.change.added or found.change.removed)
    other = match_columns(before, after, same_table=False)
    assert [c.name for c in other.change.added] == ["total"]
    assert [c.name for c in other.change.removed] == ["amount"]


def test_common_files_differ_if_a_name_belongs_to_another_field() -> None:
    before = columns((1, "a", "int"), (2, "b", "int"))
    swapped = columns((1, "b", "int"), (2, "a", "int"))
    anew = columns((1, "a", "int"), (3, "b", "int"))
    assert not match_columns(before, swapped, same_table=True).same_files
    assert not match_columns(before, anew, same_table=True).same_files
    assert not match_columns(before, before, same_table=False).same_files


def test_common_files_differ_if_a_name_in_a_column_belongs_to_another_field() -> None:
    def nested(number: int, element: int = 8) -> list[Column]:
        struct = {"type": "struct", "fields": [{"id": number, "name": "x", "type": "int"}]}
        return columns((1, "a", {"type": "list", "element-id": element, "element": struct}))

    assert match_columns(nested(9), nested(9), same_table=True).same_files
    assert not match_columns(nested(9), nested(10), same_table=True).same_files
    assert not match_columns(nested(9), nested(9, element=11), same_table=True).same_files


@pytest.mark.parametrize(
    ("before", "after", "common"),
    [
        ("int", "long", "bigint"),
        ("long", "int", "bigint"),
        ("float", "double", "double"),
        ("decimal(10, 2)", "decimal(12, 4)", "decimal(12,4)"),
        ("int", "decimal(12, 2)", "decimal(12,2)"),
        ("int", "string", "string"),
        ("date", "timestamp", "timestamp_ntz"),
        ("timestamptz", "date", "timestamp"),
        ("timestamp", "timestamptz", "string"),
        ("double", "decimal(10, 2)", "double"),
        ("int", "double", "double"),
        ("float", "int", "double"),
    ],
)
def test_values_of_two_types_are_compared_without_loss(
    before: str, after: str, common: str
) -> None:
    found = match_columns(columns((1, "a", before)), columns((1, "a", after)), same_table=True)
    assert [c.cast for c in found.compared] == [common]
    assert [(r.name, r.compared) for r in found.change.retyped] == [("a", True)]
    assert bool(found.notes) is (common == "string")


@pytest.mark.parametrize(("before", "after"), [("long", "double"), ("float", "long")])
def test_a_whole_number_is_the_same_as_integer_and_double(before: str, after: str) -> None:
    found = match_columns(columns((1, "a", before)), columns((1, "a", after)), same_table=True)
    assert [(c.cast, c.whole) for c in found.compared] == [("string", True)]
    assert not found.notes


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int", STRUCT), ("binary", "string"), ("variant", "variant"),
        # No type holds all numbers of both.
        ("double", "decimal(18, 2)"), ("float", "decimal(10, 2)"),
        ("decimal(38, 0)", "decimal(38, 10)"),
    ],
)  # fmt: skip
def test_a_note_names_values_that_cannot_be_compared(before: object, after: object) -> None:
    found = match_columns(columns((1, "a", before)), columns((1, "a", after)), same_table=True)
    assert not found.compared
    assert "a" in found.notes[0] and "not compared" in found.notes[0]
    assert all(not r.compared for r in found.change.retyped)


@pytest.mark.parametrize("name", ["variant_id", "avoid_until", "geography", "void_flag"])
def test_names_of_fields_do_not_decide_whether_values_can_be_compared(name: str) -> None:
    struct = {"type": "struct", "fields": [{"id": 9, "name": name, "type": "long"}]}
    both = columns((1, "a", {"type": "list", "element-id": 8, "element": struct}))
    found = match_columns(both, both, same_table=True)
    assert [c.name for c in found.compared] == ["a"] and not found.notes


@pytest.mark.parametrize(
    "kind",
    [
        "geometry(srid:4326)",
        "unknown",
        {"type": "list", "element-id": 8, "element": "variant"},
        {"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": "variant"},
        {"type": "struct", "fields": [{"id": 9, "name": "x", "type": "geography"}]},
    ],
)
def test_values_of_types_without_an_order_are_not_compared_inside_others(kind: object) -> None:
    both = columns((1, "a", kind))
    found = match_columns(both, both, same_table=True)
    assert not found.compared and len(found.notes) == 1


def test_a_key_needs_all_its_columns_without_nested_types() -> None:
    both = columns((1, "Id", "long"), (2, "day", "date"), (3, "s", STRUCT))
    found = match_columns(both, both, same_table=True)
    assert key_in(["id", "DAY"], found) == ("Id", "day")
    assert key_in(["id", "missing"], found) == ()
    assert key_in(["id", "s"], found) == ()
    assert key_in([], found) == ()


# ---------------------------------------------------------------- files


def data(*paths: str) -> tuple[DataFile, ...]:
    return tuple(DataFile(path) for path in paths)


def test_the_same_files_are_not_read() -> None:
    delete = DeleteFile("d", target="a")
    assert (
        plan_files(StateFiles(data("a", "b"), (delete,)), StateFiles(data("b", "a"), (delete,)))
        == NOTHING
    )


def test_files_of_one_state_are_read() -> None:
    found = plan_files(StateFiles(data("a", "b")), StateFiles(data("b", "c")))
    assert found == FilePlan("parts", frozenset("a"), frozenset("c"))


def test_a_common_file_is_read_if_its_deletes_differ() -> None:
    old = StateFiles(data("a", "b"), (DeleteFile("d1", target="a"),))
    new = StateFiles(data("a", "b"), (DeleteFile("d2", target="a"),))
    assert plan_files(old, new) == FilePlan("parts", touched=frozenset("a"))
    vectors = [StateFiles(data("a"), (DeleteFile("p", offset, "a"),)) for offset in (4, 80)]
    assert plan_files(*vectors).touched == frozenset("a")


def test_a_removed_file_with_deletes_is_read_once() -> None:
    old = StateFiles(data("a"), (DeleteFile("d1", target="a"),))
    assert plan_files(old, StateFiles(data("b"))) == FilePlan(
        "parts", frozenset("a"), frozenset("b")
    )


@pytest.mark.parametrize(
    "delete", [DeleteFile("d"), DeleteFile("d", target="a", equality=True)], ids=["loose", "equal"]
)
def test_deletes_for_any_file_require_all_files(delete: DeleteFile) -> None:
    assert plan_files(StateFiles(data("a", "b")), StateFiles(data("a", "b"), (delete,))) == WHOLE
    # Deletes of both states do not.
    both = (delete,)
    assert plan_files(
        StateFiles(data("a"), both), StateFiles(data("a", "b"), both)
    ).added == frozenset("b")


def test_a_path_that_is_added_again_is_another_file() -> None:
    # Earlier deletes do not apply to it.
    deletes = (DeleteFile("d", equality=True, sequence=2),)
    old, new = StateFiles((DataFile("a", 1),), deletes), StateFiles((DataFile("a", 3),), deletes)
    assert plan_files(old, new) == FilePlan("parts", frozenset("a"), frozenset("a"))


# ---------------------------------------------------------------- a model of a table


@dataclass
class Table:
    """Rows in files, and deleted positions; a delete file per change of a data file."""

    files: dict[str, list[int]] = field(default_factory=dict)
    deleted: dict[str, set[int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Table:
        deleted = {path: set(positions) for path, positions in self.deleted.items()}
        return Table(dict(self.files), deleted, dict(self.names))

    def live(self, path: str) -> Counter[int]:
        gone = self.deleted.get(path, set())
        return Counter(v for at, v in enumerate(self.files[path]) if at not in gone)

    def marked(self, path: str) -> Counter[int]:
        return Counter(self.files[path][at] for at in self.deleted.get(path, ()))

    def rows(self) -> Counter[int]:
        return sum((self.live(path) for path in self.files), Counter())

    def as_files(self) -> StateFiles:
        deletes = tuple(DeleteFile(name, target=path) for path, name in self.names.items())
        return StateFiles(tuple(DataFile(path) for path in self.files), deletes)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["append", "drop", "rewrite", "delete", "compact"]),
        st.lists(st.integers(0, 3), max_size=5),
        st.integers(0, 5),
    ),
    max_size=8,
)


def change(table: Table, changes: list[tuple[str, list[int], int]], side: str) -> Table:
    """A table after some commits."""
    found = table.copy()
    for number, (what, values, which) in enumerate(changes):
        paths = sorted(found.files)
        path = paths[which % len(paths)] if paths else None
        if what == "append" or path is None:
            found.files[f"{side}{number}"] = values
            continue
        positions = {value for value in values if value < len(found.files[path])}
        if what == "delete":
            if positions:
                found.deleted[path] = found.deleted.get(path, set()) | positions
                found.names[path] = f"delete-{side}{number}"
            continue
        rows = sorted(found.live(path).elements())
        for gone in (found.files, found.deleted, found.names):
            gone.pop(path, None)
        if what == "rewrite":
            found.files[f"{side}{number}"] = [*rows[1:], *values]
        elif what == "compact":
            found.files[f"{side}{number}"] = rows
    return found


def signs(before: Table, after: Table, plan: FilePlan) -> Counter[int]:
    """Return the sums of signs over the rows that the plan reads."""
    found: Counter[int] = Counter()
    if plan.read == "whole":
        found.update(after.rows())
        found.subtract(before.rows())
    for path in plan.added:
        found.update(after.live(path))
    for path in plan.removed:
        found.subtract(before.live(path))
    for path in plan.touched:
        found.subtract(after.marked(path))
        found.update(before.marked(path))
    return Counter({value: n for value, n in found.items() if n})


@given(start=CHANGES, old=CHANGES, new=CHANGES)
def test_the_sum_of_signs_is_the_difference_of_the_multisets(
    start: list[tuple[str, list[int], int]],
    old: list[tuple[str, list[int], int]],
    new: list[tuple[str, list[int], int]],
) -> None:
    base = change(Table(), start, "s")
    before, after = change(base, old, "o"), change(base, new, "n")
    truth = Counter(after.rows())
    truth.subtract(before.rows())
    expected = Counter({value: n for value, n in truth.items() if n})
    found = plan_files(before.as_files(), after.as_files())
    assert signs(before, after, found) == expected
    if found == NOTHING:
        assert not expected
