"""The commands that messages recommend.

Settings of one command are environment variables (`sparkwap.gate.settings.from_environment`):
changed ``--vars`` would make dbt parse the whole project again.
"""

from __future__ import annotations

VARIABLE, OFF = "SPARKWAP_NEXT", "off"
"""The environment variable and value that turn off the next command in dbt's summary, because the
caller prints it.
"""


def dbt(command: str, *, branch: str = "", **settings: str) -> str:
    """Return a dbt command on an audit branch: ``SPARKWAP_BRANCH=march dbt test``.

    Args:
        command: The arguments after `dbt`.
        branch: The branch; empty for none.
        settings: More settings of the gate, without the prefix ``wap_``.
    """
    given = {"branch": branch, **settings}
    variables = [f"SPARKWAP_{key.upper()}={value}" for key, value in given.items() if value]
    return " ".join([*variables, "dbt", command])


def operation(name: str, branch: str, **settings: str) -> str:
    """Return a run-operation on a branch: ``dbt run-operation wap_discard --args ...``."""
    return dbt(f"run-operation {name} --args '{{branch: {branch}}}'", **settings)


def selected(node_id: str) -> str:
    """Return a node's name for dbt's selection: ``model.shop.orders.v2`` -> ``orders.v2``."""
    return node_id.split(".", 2)[-1]
