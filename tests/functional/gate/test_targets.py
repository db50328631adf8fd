"""One project built into two schemas of one lake, as its targets do: neither holds up the other."""

from __future__ import annotations

import json
import re
from typing import Any

from helpers.lake import Reader
from helpers.project import MakeProject

ORDERS = """
    {{ config(materialized='table') }}
    select * from values (1, null), (2, 20) as t (id, amount)
"""


def known(**config: Any) -> str:
    test = {"not_null": {"name": "amounts_known", "config": config}}
    columns = [{"name": "amount", "data_tests": [test]}]
    return json.dumps({"models": [{"name": "orders", "columns": columns}]})


def test_rules_and_acceptances_of_one_target_are_none_of_another(
    make_project: MakeProject, reader: Reader
) -> None:
    severity = "{{ var('severity', 'error') }}"
    files = {"models/orders.sql": ORDERS, "models/properties.yml": known(severity=severity)}
    one, other = make_project("one", files), make_project("other", files)
    failed = one.dbt("build").failed()
    (advised,) = re.findall(r"wap_accept --args '(.+)'", failed.text)
    arguments = str(advised).replace('"<why>"', "known, until: 2999-12-31")
    one.dbt("run-operation", "wap_accept", "--args", arguments).succeeded()
    one.dbt("build").succeeded()
    assert reader.table(one.schema, "orders").values("amount") == [20, None]
    # Accepted is a table, not all that has its name.
    assert other.dbt("build").failed().verdict("orders") == "rejected"
    assert reader.look(other.schema) == {}
    # There the table is new, and no rule has let less through.
    other.dbt("build", severity="warn").succeeded()
    assert reader.table(other.schema, "orders").values("amount") == [20, None]
    # Here it is not.
    held = one.dbt("build", severity="warn").succeeded()
    assert held.verdict("orders") == "held", held.text
