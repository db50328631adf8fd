"""The methods that macros call as ``adapter.wap``, from several parts of the gate.

To add a method, mark it as ``available`` in one of the parts, as in a dbt adapter. Use
``available.parse`` for a method that returns another value while dbt parses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from dbt.adapters.sparkwap.audits import Audits
from dbt.adapters.sparkwap.command import DbtCommand
from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.connections import SparkWapConnectionManager
from dbt.adapters.sparkwap.histories import Describe, Histories
from dbt.adapters.sparkwap.hooks import RunHooks
from dbt.adapters.sparkwap.microbatches import Microbatches
from dbt.adapters.sparkwap.nodes import Nodes
from dbt.adapters.sparkwap.operations import Operations
from dbt.adapters.sparkwap.placement import Placement
from dbt.adapters.sparkwap.python_models import PythonModels
from dbt.adapters.sparkwap.reuse import Reuse
from dbt.adapters.sparkwap.shared_statements import SharedStatements
from dbt.adapters.sparkwap.sql_helpers import SqlHelpers
from dbt.adapters.sparkwap.statements import StatementGuard
from dbt.adapters.sparkwap.unit_tests import UnitTests


class Gate:
    """The gate of one dbt command; its parts share the run and the connections."""

    PARTS = (
        SqlHelpers,
        Placement,
        Microbatches,
        PythonModels,
        Histories,
        Audits,
        SharedStatements,
        Reuse,
        RunHooks,
        Operations,
        UnitTests,
    )

    def __init__(
        self,
        config: Any,
        connections: SparkWapConnectionManager,
        dbt_manifest: Callable[[], Any],
        describe: Describe,
    ) -> None:
        self.command = DbtCommand(config, connections, dbt_manifest)
        self.runs = CommandRun(self.command)
        statements = StatementGuard(self.runs)
        reuse = Reuse(self.runs)
        self.nodes = Nodes(self.runs, statements, reuse)
        self.hooks = RunHooks(self.runs, reuse, statements)
        self.shared = SharedStatements(self.runs, statements, reuse)
        placement = Placement(self.runs)
        self._parts = (
            SqlHelpers(),
            placement,
            Microbatches(self.runs, statements),
            PythonModels(self.runs, placement, statements),
            Histories(self.command, placement, describe),
            Audits(self.runs, reuse),
            self.shared,
            reuse,
            self.hooks,
            Operations(self.runs, statements),
            UnitTests(self.command, placement),
        )

    @cached_property
    def macro_calls(self) -> SimpleNamespace:
        """The methods of all parts that macros may call."""
        found = {name: getattr(part, name) for part in self._parts for name in _calls(type(part))}
        return SimpleNamespace(**found)


def while_parsing() -> SimpleNamespace:
    """Return the methods of ``adapter.wap`` while dbt parses, without a lake."""
    helpers = SqlHelpers()
    return SimpleNamespace(
        **{
            name: getattr(method, "_parse_replacement_", None) or getattr(helpers, name)
            for part in Gate.PARTS
            for name, method in _calls(part).items()
        }
    )


def _calls(part: type) -> dict[str, Any]:
    """Return the methods of a part that macros may call."""
    return {name: call for name, call in vars(part).items() if hasattr(call, "_is_available_")}


class Wap:
    """The adapter's attribute ``wap``, which dbt makes available to macros like a method."""

    _is_available_ = True
    _parse_replacement_ = while_parsing()

    def __get__(self, adapter: Any, owner: Any = None) -> Any:
        return self if adapter is None else adapter.gate.macro_calls
