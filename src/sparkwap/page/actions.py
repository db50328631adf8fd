"""The buttons: each calls one of dbt's run-operations as a separate process.

The gate decides what may be published: a button runs the command that a person would type, and
shows its output.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkwap.core import next_command
from sparkwap.core.dbt_cli import DBT, DbtCall, as_yaml
from sparkwap.core.errors import ConfigError
from sparkwap.core.redaction import redact
from sparkwap.page.access import without_secrets

OPERATIONS = ("wap_publish", "wap_discard", "wap_diff")
"""The operations that the page can call."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of an operation: the command as typed, and its output without secrets."""

    command: str
    ok: bool
    text: str


def perform(
    call: DbtCall,
    operation: str,
    arguments: Mapping[str, Any],
    *,
    open_branches: Sequence[str],
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
) -> Done:
    """Call one of `OPERATIONS` for an open audit branch.

    Args:
        arguments: Its arguments, with ``branch``.
        open_branches: The audit branches that the catalog has now.

    Raises:
        ConfigError: The page has no such button, or the branch is no longer open.
    """
    if operation not in OPERATIONS:
        raise ConfigError(f"The page does not call {operation}. Nothing was done.")
    branch = arguments.get("branch")
    if branch not in open_branches:
        raise ConfigError(
            f"The audit branch {branch} is no longer open: it was published or discarded after "
            "the page was drawn. Nothing was done. Reload the page."
        )
    if "file" in arguments:
        # It contains rows: no other user of the machine may read it.
        file = Path(arguments["file"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        file.chmod(0o600)
    given = ("run-operation", operation, "--args", as_yaml(arguments))
    ended = run(
        [*DBT, "--no-use-colors", *call.arguments(*given)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=without_secrets(os.environ),
    )
    command = next_command.operation(operation, **arguments)
    return Done(command, ended.returncode == 0, redact(ended.stdout.strip()))


def diff_file(folder: Path, branch: str) -> Path:
    """Return the file of the last comparison of a branch with ``main``."""
    return folder / f"diff_{branch}.json"


def forget(folder: Path, open_branches: Sequence[str]) -> None:
    """Delete the comparisons of branches that are no longer open, because they contain rows."""
    kept = {diff_file(folder, branch) for branch in open_branches}
    for file in set(folder.glob("diff_*.json")) - kept:
        file.unlink(missing_ok=True)


def diff_arguments(folder: Path, branch: str) -> dict[str, Any]:
    """Return the arguments with which ``wap_diff`` writes this file."""
    return {"branch": branch, "format": "json", "file": str(diff_file(folder, branch))}
