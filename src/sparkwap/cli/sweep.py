"""``sparkwap sweep``: the run-operation ``wap_sweep`` as a command, for schedulers."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from sparkwap.core.dbt_cli import add_dbt_options, call_of

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def register_sweep(commands: Commands) -> None:
    """``sparkwap sweep``."""
    text = "take away what runs have left behind: old audit branches, tags, files without a use"
    parser = commands.add_parser("sweep", help=text, description=text)
    for name, what in {
        "older-than": "since anything happened on a run's own audit branch (default: 7)",
        "named-older-than": "the same for branches that users have named (default: 30)",
        "files-older-than": "since a file was written that nothing refers to (default: 3)",
    }.items():
        parser.add_argument(f"--{name}", type=int, metavar="DAYS", help=f"days {what}")
    parser.add_argument("--dry-run", action="store_true", help="tell, and change nothing")
    add_dbt_options(parser)
    parser.set_defaults(handler=sweep)


def sweep(parsed: argparse.Namespace) -> int:
    """Call the run-operation; returns dbt's exit code."""
    call = call_of(parsed)
    wanted = {
        "older_than": parsed.older_than,
        "named_older_than": parsed.named_older_than,
        "files_older_than": parsed.files_older_than,
        "dry_run": parsed.dry_run or None,
    }
    arguments = {key: value for key, value in wanted.items() if value is not None}
    more = ("--args", json.dumps(arguments)) if arguments else ()
    return call.run("run-operation", "wap_sweep", *more)
