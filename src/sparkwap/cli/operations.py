"""The run-operations as commands, for schedulers and programs: ``sparkwap status``, ..."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import yaml

from sparkwap.core.arguments import Arguments, plain
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import add_dbt_options, call_of
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
    parser = commands.add_parser(command, help=listed, description=text)
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
            more = {"nargs": "+", "metavar": name.removesuffix("s").upper()}
        elif get_origin(kind) is Mapping:
            more = {"type": _mapping, "metavar": "YAML"}
        elif kind is Path:
            # dbt changes to the folder of the project.
            more = {"type": os.path.abspath, "metavar": name.upper()}
        if field.default is MISSING:
            more["required"] = True
        parser.add_argument(f"--{name.replace('_', '-')}", help=what, **more)
    add_dbt_options(parser)
    parser.set_defaults(handler=partial(_call, operation))


def _mapping(text: str) -> dict[str, Any]:
    """Return a mapping from YAML, as dbt reads ``--vars`` and ``--args``."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a mapping such as '{{email: a@b.c}}'")
    return found


def _call(operation: type[Arguments], parsed: argparse.Namespace) -> CommandEnd:
    """Call the run-operation."""
    found = {field.name: getattr(parsed, field.name) for field in fields(operation)}
    arguments = {key: value for key, value in found.items() if value is not None}
    operation.of(arguments)  # A mistake is told before dbt starts.
    more = ("--args", json.dumps(arguments)) if arguments else ()
    end = call_of(parsed).run("run-operation", operation.name, *more)
    return CommandEnd(end.outcome, end.result, end.message)
