"""The commands that messages advise, as they are typed.

What is for one call goes by environment variables (`sparkwap.gate.settings.from_environment`): with
other ``--vars`` than the last time dbt parses the whole project anew.
"""

from __future__ import annotations

VARIABLE, OFF = "SPARKWAP_NEXT", "off"
"""The environment variable, and its value, by which a command tells dbt's summary that it will say
itself what comes next.
"""


def dbt(command: str, *, branch: str = "", **settings: str) -> str:
    """A dbt command on an audit branch: ``SPARKWAP_BRANCH=march dbt test``.

    Args:
        command: What comes behind `dbt`.
        branch: The branch; empty for none.
        settings: More settings of the gate, without the prefix ``wap_``.
    """
    given = {"branch": branch, **settings}
    variables = [f"SPARKWAP_{key.upper()}={value}" for key, value in given.items() if value]
    return " ".join([*variables, "dbt", command])


def operation(name: str, branch: str, **settings: str) -> str:
    """A run-operation on an audit branch: ``dbt run-operation wap_discard --args ...``."""
    return dbt(f"run-operation {name} --args '{{branch: {branch}}}'", **settings)


def selected(node_id: str) -> str:
    """The name by which dbt selects a node: ``model.shop.orders.v2`` -> ``orders.v2``."""
    return node_id.split(".", 2)[-1]
