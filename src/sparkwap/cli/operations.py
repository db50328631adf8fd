"""The run-operations as commands, for schedulers and programs: ``sparkwap status``, ..."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from sparkwap.core.arguments import Arguments, plain
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import add_dbt_options, call_of
from sparkwap.runs.operations import OPERATIONS

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands


def register_operations(commands: Commands) -> None:
    """Register ``sparkwap status``, ``publish``, ``sweep`` and so on, by the run-operations."""
    for operation in OPERATIONS:
        _register(commands, operation)


def _register(commands: Commands, operation: type[Arguments]) -> None:
    """Register a command for a run-operation, with the operation's arguments as options."""
    command = operation.name.removeprefix("wap_")
    text = str(operation.__doc__)
    listed = text[:1].lower() + text[1:].removesuffix(".")  # as all other commands are
    parser = commands.add_parser(command, help=listed, description=text)
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
    parser.set_defaults(handler=partial(_call, operation))


def _call(operation: type[Arguments], parsed: argparse.Namespace) -> CommandEnd:
    """Call the run-operation."""
    found = {field.name: getattr(parsed, field.name) for field in fields(operation)}
    arguments = {key: value for key, value in found.items() if value is not None}
    more = ("--args", json.dumps(arguments)) if arguments else ()
    end = call_of(parsed).run("run-operation", operation.name, *more)
    return CommandEnd(end.outcome, end.result, end.message)
