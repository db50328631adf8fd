"""A small shop, which the tests of the gate's rules build over and over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from helpers.lake import Look, Reader
from helpers.project import MakeProject, Outcome, Project

SHOP = {
    "models/orders.sql": """
        {{ config(materialized='table') }}
        select id, id * {{ env_var('SHOP_V') }} as amount from range(1, 4)
    """,
    "models/doubled.sql": """
        {{ config(materialized='ephemeral') }}
        select id, amount * 2 as amount from {{ ref('orders') }}
    """,
    "models/totals.sql": """
        {{ config(materialized='table') }}
        select count(id) as orders, sum(amount) as total from {{ ref('doubled') }}
    """,
    "models/customers.sql": """
        {{ config(materialized='table') }}
        select id, {{ env_var('SHOP_V') }} as v from range(1, 4)
    """,
    "models/notes.sql": "{{ config(materialized='table') }} select {{ env_var('SHOP_V') }} as v",
    "models/properties.yml": """
        models:
          - name: orders
            columns:
              - name: id
                data_tests:
                  - not_null: {name: orders_have_ids}
                  - relationships:
                      name: orders_have_customers
                      arguments: {to: ref('customers'), field: id}
          - name: totals
            columns: [{name: total, data_tests: [{not_null: {name: totals_are_known}}]}]
          - name: customers
            columns: [{name: id, data_tests: [{unique: {name: customers_are_unique}}]}]
    """,
}
"""orders -> doubled (ephemeral) -> totals; customers; notes, which no test reads."""


@dataclass
class Shop:
    """The shop as one test has it: version :attr:`v` is new, and :attr:`before` is published."""

    project: Project
    reader: Reader
    v: int
    before: dict[str, Look] = field(default_factory=dict)

    def dbt(self, *arguments: str, **variables: Any) -> Outcome:
        """A dbt command; the rows are those of this test."""
        return self.project.dbt(*arguments, **variables)

    def restore(self) -> None:
        """Put the project's files back, with no run to go on with.

        What dbt has parsed goes: where a variable of the environment and a properties file change
        at once, a partial parse brings tests back that are in no file any more.
        """
        self.project.clear("models", "macros", "tests").write(SHOP)
        for left in ("run_results.json", "sparkwap_run.json", "partial_parse.msgpack"):
            (self.project.folder / "target" / left).unlink(missing_ok=True)

    def restore_models(self) -> None:
        """Put the models back, and leave the run as it is."""
        self.project.write(SHOP)

    def look(self) -> dict[str, Look]:
        """What a reader sees now."""
        return self.reader.look(self.project.schema)

    def new(self) -> set[str]:
        """The tables that a reader sees changed."""
        now = self.look()
        return {
            name
            for name in {*now, *self.before}
            if name not in now
            or name not in self.before
            or now[name].seen() != self.before[name].seen()
        }


@pytest.fixture(scope="module")
def versions() -> Iterator[int]:
    return itertools.count()


@pytest.fixture(scope="module")
def published_shop(make_project: MakeProject, versions: Iterator[int]) -> Project:
    project = make_project("shop", SHOP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_V", str(next(versions)))
        project.dbt("build").succeeded()
    return project


@pytest.fixture
def shop(
    published_shop: Project,
    reader: Reader,
    versions: Iterator[int],
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    """The shop with all of its tables published, its files as they were, and no run to go on with.

    Tests share the tables: each compares with what it found, and brings rows of its own version.
    """
    shop = Shop(published_shop, reader, next(versions))
    # Not a var: other vars make dbt parse the whole project again.
    monkeypatch.setenv("SHOP_V", str(shop.v))
    shop.restore()
    shop.before = shop.look()
    return shop
