"""A small shop, which most tests of the gate's rules build in schemas of their own."""

from __future__ import annotations

import pytest
from vocabulary import MakeProject, Project

SHOP = {
    "models/orders.sql": """
        {{ config(materialized='table') }}
        select id, id * {{ var('v') }} as amount from range(1, {{ 1 + var('n', 3) }})
        {% if var('bad', false) %} union all select null, 0 {% endif %}
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
        select id, 'name' || id as name, {{ var('v') }} as v from range(1, 4)
    """,
    "models/notes.sql": "{{ config(materialized='table') }} select {{ var('v') }} as v",
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


@pytest.fixture
def shop(make_project: MakeProject) -> Project:
    """The shop, with nothing built."""
    return make_project("shop", SHOP, variables={"v": 1})


@pytest.fixture
def open_shop(shop: Project) -> Project:
    """The shop, with version 1 published."""
    shop.dbt("build", v=1).succeeded()
    return shop
