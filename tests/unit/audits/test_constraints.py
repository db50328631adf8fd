"""The queries of a contract's constraints, by SQL's sense of NULL."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from sparkwap.audits.constraints import Constraint, constraints_of, require_kept
from sparkwap.core.errors import ConfigError, GateError


def model(
    *constraints: dict[str, Any], enforced: bool = True, **columns: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "name": "orders",
        "config": {"contract": {"enforced": enforced}},
        "constraints": list(constraints),
        "columns": {name: {"name": name, "constraints": given} for name, given in columns.items()},
    }


def found(constraint: Constraint) -> dict[str, int]:
    """What a constraint finds in a small table, without what finds nothing."""
    lake = sqlite3.connect(":memory:")
    lake.executescript(
        """
        create table orders (id, line, customer, price);
        insert into orders values
            (1, 1, 7, 5), (1, 2, 7, -5), (2, 1, null, null), (2, 1, 9, 3), (null, 1, 8, 2),
            (null, 1, 8, 2);
        create table customers (id);
        insert into customers values (7), (8), (null);
        """
    )
    counts = {
        what: lake.execute(f"select count(*) from ({sql})").fetchone()[0]
        for what, sql in constraint.queries("orders").items()
    }
    return {what: count for what, count in counts.items() if count}


def one(given: dict[str, Any]) -> Constraint:
    (constraint,) = constraints_of(model(given))
    return constraint


REPEATED = "keys that occur more than once"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "unique", "columns": ["id"]}, {REPEATED: 2}),
        ({"type": "unique", "columns": ["id", "line"]}, {REPEATED: 1}),
        ({"type": "unique", "columns": ["id", "line", "customer"]}, {}),
        (
            {"type": "primary_key", "columns": ["id", "line"]},
            {REPEATED: 1, "rows where id is NULL": 2},
        ),
        ({"type": "not_null", "columns": ["customer"]}, {"rows where customer is NULL": 1}),
        ({"type": "check", "expression": "price > 0 -- of one"}, {"rows for which it is false": 1}),
        (
            {
                "type": "foreign_key",
                "columns": ["customer"],
                "to": "customers",
                "to_columns": ["id"],
            },
            {"rows that refer to no row of customers": 1},
        ),
        (
            {
                "type": "foreign_key",
                "columns": ["id", "line"],
                "to": "orders",
                "to_columns": ["id", "line"],
            },
            {},
        ),
    ],
    ids=lambda value: "" if "type" not in value else f"{value['type']}-{value.get('columns')}",
)
def test_what_breaks_a_constraint(given: dict[str, Any], expected: dict[str, int]) -> None:
    assert found(one(given)) == expected


def test_constraints_of_columns_and_of_the_model() -> None:
    given = model(
        {"type": "primary_key", "columns": ["id"], "name": "pk"},
        {"type": "custom", "expression": "any"},
        id=[{"type": "not_null"}],
        price=[{"type": "check", "expression": "price > 0"}],
        note=[],
    )
    assert [constraint.words for constraint in constraints_of(given)] == [
        "primary_key pk (id)",
        "not_null (id)",
        "check (price > 0)",
    ]


def test_a_foreign_key_as_an_expression() -> None:
    given = {"type": "foreign_key", "columns": ["a", "b"], "expression": "references s.t (x, y)"}
    assert (one(given).to, one(given).to_columns) == ("s.t", ("x", "y"))


def test_a_model_without_an_enforced_contract_has_none() -> None:
    assert constraints_of(model({"type": "unique", "columns": ["id"]}, enforced=False)) == []
    assert constraints_of({"name": "seed", "config": {}}) == []


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        ({"type": "unique"}, "`columns`"),
        ({"type": "check", "expression": " "}, "`expression`"),
        ({"type": "foreign_key", "columns": ["a"], "expression": "customers"}, "`to`"),
        (
            {"type": "foreign_key", "columns": ["a", "b"], "to": "t", "to_columns": ["id"]},
            "as many `to_columns` as columns",
        ),
    ],
)
def test_an_incomplete_constraint_is_an_error(given: dict[str, Any], lacks: str) -> None:
    with pytest.raises(ConfigError, match=f"of orders needs {lacks}"):
        constraints_of(model(given))


def test_the_message_of_a_broken_contract() -> None:
    key = one({"type": "primary_key", "columns": ["id"]})
    require_kept("orders", [(key, REPEATED, 0)])
    with pytest.raises(GateError) as error:
        require_kept("orders", [(key, REPEATED, 1200), (key, "rows where id is NULL", 0)])
    assert str(error.value) == (
        "The candidate of orders breaks its contract, so it is not published:\n"
        "  primary_key (id): keys that occur more than once: 1,200"
    )
