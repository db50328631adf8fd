"""The commands that messages recommend.

Settings of one command are environment variables (`sparkwap.gate.settings.from_environment`):
changed ``--vars`` would make dbt parse the whole project again. All commands have the target and
the profile of the present command, so that they change the same lake.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

VARIABLE, OFF = "SPARKWAP_NEXT", "off"
"""The environment variable that takes the next commands out of dbt's summary, because the caller
prints them: ``off``, or the file that dbt writes them to.
"""
_SELECTED = 3
"""The most nodes that a command selects by name."""

_TEXT = "tag:yaml.org,2002:str"

_given = ""


def set_target(target: str | None, profile: str | None = None) -> None:
    """Set the options of all later commands.

    Others read the commands elsewhere, without the environment of the present command.
    """
    global _given
    pairs = {"target": target, "profile": profile}
    _given = "".join(
        f" --{option} {shlex.quote(value)}" for option, value in pairs.items() if value
    )


def install(extra: str) -> str:
    """Return the command that installs sparkwap with an extra.

    Without a release it needs a checkout; the name on the package index may be another's.
    """
    return f"pip install '<checkout of sparkwap>[{extra}]'"


def sparkwap(command: str) -> str:
    """Return a command of sparkwap: ``pr audit`` -> ``sparkwap pr audit --target prod``."""
    return f"sparkwap {command}{_given}"


def dbt(command: str, *, branch: str = "", **settings: str) -> str:
    """Return a dbt command on an audit branch: ``SPARKWAP_BRANCH=march dbt test``.

    Args:
        command: The arguments after `dbt`.
        branch: The branch; empty for none.
        settings: More settings of the gate, without the prefix ``wap_``.
    """
    given = {"branch": branch, **settings}
    variables = [f"SPARKWAP_{key.upper()}={value}" for key, value in given.items() if value]
    return " ".join([*variables, "dbt", command]) + _given


def operation(
    name: str, branch: str = "", *, settings: Mapping[str, str] | None = None, **arguments: object
) -> str:
    """Return a run-operation: ``dbt run-operation wap_discard --args '{branch: march}'``.

    Args:
        settings: Settings of the gate, without the prefix ``wap_``.
        arguments: Its other arguments.
    """
    given = {"branch": branch} if branch else {}
    texts = [f"{key}: {_yaml(value)}" for key, value in {**given, **arguments}.items()]
    args = ["--args", shlex.quote(f"{{{', '.join(texts)}}}")] if texts else []
    return dbt(" ".join(["run-operation", name, *args]), **(settings or {}))


def build(node_ids: Sequence[str], branch: str = "", *, upstream: bool = False) -> str:
    """Return the command that builds nodes and their descendants; all nodes if these are many.

    Args:
        node_ids: dbt's ids of the nodes; empty for all.
        upstream: Whether it also builds what the nodes are built from.
    """
    few = node_ids if len(node_ids) <= _SELECTED else ()
    selection = "".join(f" {'+' * upstream}{selected(one)}+" for one in few)
    return dbt(f"build{' --select' if selection else ''}{selection}", branch=branch)


def _yaml(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"\w[\w.-]*", value):
        # YAML reads 01234567, on and null as other values.
        loader: Any = yaml.SafeLoader("")
        if loader.resolve(yaml.ScalarNode, value, (True, False)) == _TEXT:
            return value
    return json.dumps(value, default=str, ensure_ascii=False)


def selected(node_id: str) -> str:
    """Return a node's name for dbt's selection: ``model.shop.orders.v2`` -> ``orders.v2``."""
    return node_id.split(".", 2)[-1]
