"""A table that breaks a constraint of its contract is not published."""

from __future__ import annotations

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Project

CUSTOMERS = "{{ config(materialized='table') }} select id from values (1), (2) as t (id)"
ORDERS = """
{{ config(materialized='incremental', incremental_strategy='append', on_schema_change='fail') }}
select * from values {{ var('orders', '(1, 1, 5), (2, 2, 5), (3, null, null)') }}
as t (id, customer_id, price)
"""
SCHEMA = """
models:
  - name: orders
    config: {contract: {enforced: true}}
    constraints:
      - {type: primary_key, columns: [id]}
      - {type: foreign_key, columns: [customer_id], to: ref('customers'), to_columns: [id]}
    columns:
      - {name: id, data_type: int}
      - {name: customer_id, data_type: int}
      - {name: price, data_type: int, constraints: [{type: check, expression: price > 0}]}
"""


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    files = {
        "models/customers.sql": CUSTOMERS,
        "models/orders.sql": ORDERS,
        "models/schema.yml": SCHEMA,
    }
    return make_project("constraints", files)


def ids(reader: Reader, project: Project, table: str = "orders") -> list[int]:
    return sorted(reader.table(project.schema, table).values("id"))


@pytest.mark.smoke
def test_a_broken_constraint_rejects_the_table(project: Project, reader: Reader) -> None:
    project.dbt("build").succeeded()
    assert ids(reader, project) == [1, 2, 3]
    broken = project.dbt("build", orders="(3, 1, 5), (4, 9, 5), (5, 2, -1)").failed()
    assert "The candidate of orders breaks its contract, so it is not published:" in broken.text
    for line in (
        "primary_key (id): keys that occur more than once: 1",
        "foreign_key (customer_id): rows that refer to no row of",
        "check (price > 0): rows for which it is false: 1",
    ):
        assert line in broken.text
    assert broken.verdict("orders") == "rejected"
    assert ids(reader, project) == [1, 2, 3]
    project.dbt("build", orders="(4, 2, 1)").succeeded()
    assert ids(reader, project) == [1, 2, 3, 4]


def test_a_first_build_is_checked_against_the_candidate_of_its_parent(
    project: Project, reader: Reader
) -> None:
    broken = project.dbt("build", orders="(1, 3, 5)").failed()
    assert "foreign_key (customer_id): rows that refer to no row of" in broken.text
    assert "orders" not in reader.look(project.schema)
    project.write({"models/customers.sql": CUSTOMERS.replace("(2)", "(2), (3)")})
    project.dbt("build", orders="(1, 3, 5)").succeeded()
    assert ids(reader, project) == [1]


def test_a_table_keeps_the_rows_that_others_refer_to(project: Project, reader: Reader) -> None:
    project.dbt("build").succeeded()
    project.write({"models/customers.sql": CUSTOMERS.replace(", (2)", "")})
    broken = project.dbt("build", "--select", "customers").failed()
    assert "foreign_key (customer_id) of orders: rows that refer to no row of" in broken.text
    assert ids(reader, project, "customers") == [1, 2]
