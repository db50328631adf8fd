"""``sparkwap sweep`` and ``sparkwap maintain``: run-operations as commands, for schedulers."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from sparkwap.core.arguments import Arguments, plain
from sparkwap.core.dbt_cli import add_dbt_options, call_of
from sparkwap.runs.operations.maintain import Maintain
from sparkwap.runs.operations.sweep import Sweep

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands


def register_sweep(commands: Commands) -> None:
    """Register ``sparkwap sweep``."""
    _register(commands, "sweep", Sweep)


def register_maintain(commands: Commands) -> None:
    """Register ``sparkwap maintain``."""
    _register(commands, "maintain", Maintain)


def _register(commands: Commands, command: str, operation: type[Arguments]) -> None:
    """Register a command for a run-operation, with the operation's arguments as options."""
    parser = commands.add_parser(command, help=operation.__doc__, description=operation.__doc__)
    hints = get_type_hints(operation)
    for name, what in operation.legal():
        kind, more = plain(hints[name]), dict[str, Any]()
        if kind is bool:
            more = {"action": "store_true", "default": None}
        elif kind is int:
            more = {"type": int, "metavar": "NUMBER"}
        elif get_origin(kind) is Literal:
            more = {"choices": get_args(kind)}
        elif get_origin(kind) is tuple:
            more = {"nargs": "+", "metavar": "NAME"}
        parser.add_argument(f"--{name.replace('_', '-')}", help=what, **more)
    add_dbt_options(parser)
    parser.set_defaults(handler=lambda parsed: _call(parsed, operation))


def _call(parsed: argparse.Namespace, operation: type[Arguments]) -> int:
    """Call the run-operation; return dbt's exit code."""
    found = {field.name: getattr(parsed, field.name) for field in fields(operation)}
    arguments = {key: value for key, value in found.items() if value is not None}
    more = ("--args", json.dumps(arguments)) if arguments else ()
    return call_of(parsed).run("run-operation", operation.name, *more)
