"""The run-operations as commands, for schedulers and programs: ``sparkwap status``, ..."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from sparkwap.core.arguments import Arguments, plain
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import add_dbt_options, as_yaml, call_of
from sparkwap.diff.operation import Diff
from sparkwap.erasure import Erase, Rectify
from sparkwap.runs.operations import OPERATIONS

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands

ALL: tuple[type[Arguments], ...] = (*OPERATIONS, Erase, Rectify, Diff)
"""The run-operations."""


def register_operations(commands: Commands) -> None:
    """Register ``sparkwap status``, ``publish``, ``sweep`` and so on, by the run-operations."""
    for operation in ALL:
        _register(commands, operation)


def _register(commands: Commands, operation: type[Arguments]) -> None:
    """Register a command for a run-operation, with the operation's arguments as options."""
    command = operation.name.removeprefix("wap_")
    text = str(operation.__doc__)
    listed = text[:1].lower() + text[1:].removesuffix(".")  # as all other commands are
    # An abbreviation, or a key that begins with -t, must not become an option of an erasure.
    parser = commands.add_parser(command, help=listed, description=text, allow_abbrev=False)
    hints = get_type_hints(operation)
    for field in fields(operation):
        name, what = field.name, field.metadata["what"]
        kind, more = plain(hints[name]), dict[str, Any]()
        if kind is bool:
            more = {"action": "store_true", "default": None}
        elif kind is int:
            more = {"type": int, "metavar": "NUMBER"}
        elif get_origin(kind) is Literal:
            more = {"choices": get_args(kind)}
        elif get_origin(kind) is tuple:
            more = {"nargs": "+", "action": "extend", "metavar": name.removesuffix("s").upper()}
        elif get_origin(kind) is Mapping:
            more = {"nargs": "+", "action": "extend", "type": _pair, "metavar": "COLUMN=VALUE"}
        elif kind is Path:
            # dbt changes to the folder of the project.
            more = {"type": os.path.abspath, "metavar": name.upper()}
        if field.default is MISSING:
            more["required"] = True
        parser.add_argument(f"--{name.replace('_', '-')}", help=what, **more)
    add_dbt_options(parser, short=command not in ("erase", "rectify"))
    parser.set_defaults(handler=partial(_call, operation))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not like email=a@b.example")
    return name, value


def _call(operation: type[Arguments], parsed: argparse.Namespace) -> CommandEnd:
    found = {field.name: getattr(parsed, field.name) for field in fields(operation)}
    arguments = {key: value for key, value in found.items() if value is not None}
    hints = get_type_hints(operation)
    for key in arguments:
        if get_origin(plain(hints[key])) is Mapping:
            arguments[key] = dict(arguments[key])
    operation.of(arguments)  # A mistake is told before dbt starts.
    more = ("--args", as_yaml(arguments)) if arguments else ()
    end = call_of(parsed).run("run-operation", operation.name, *more)
    return CommandEnd(end.outcome, end.result, end.message)
