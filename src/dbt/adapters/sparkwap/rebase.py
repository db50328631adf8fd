"""The rebuild of a rebase: a second dbt builds nodes again on the same audit branch.

It runs in another process, because adapters, flags and the invocation's id are global in dbt.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.cli.flags import command_params
from dbt.cli.types import Command
from dbt.utils.utils import args_to_dict

from sparkwap.core import command_end
from sparkwap.core.dbt_cli import DBT
from sparkwap.runs.state import run_of

if TYPE_CHECKING:
    from sparkwap.runs.rebase_loop import Ended

BRANCH_VARIABLE = "SPARKWAP_REBUILD_BRANCH"
RUN_VARIABLE = "SPARKWAP_REBUILD_OF"
"""Environment variables, because with other vars dbt would parse the whole project again."""

FOLDER = "rebuild"
_PARSED = "partial_parse.msgpack"
_OUTPUT = "output.txt"
# Flags that select nodes or place artifacts, and flags that dbt's own retry omits.
_LEFT_OUT = frozenset(
    {
        "which", "select", "models", "exclude", "selector", "selector_name", "indirect_selection",
        "resource_type", "resource_types", "exclude_resource_type", "exclude_resource_types",
        "target_path", "invocation_command", "show", "output", "inline", "quiet", "log_format",
        "use_colors", "fail_fast", "deprecated_state", "profiles_dir_exists_false",
    }
)  # fmt: skip
_NOT_HANDED_ON = frozenset(
    {"DBT_RESOURCE_TYPES", "DBT_EXCLUDE_RESOURCE_TYPES", command_end.VARIABLE}
)
# Linux limits the length of an argument; a longer selection builds the run's whole selection.
_LONGEST_SELECTION = 100_000
_WORDS = 300
# dbt needs time to cancel its statements after an interrupt.
_PATIENCE = 30.0


def rebuilt_branch() -> tuple[str, str] | None:
    """Return the branch and run that this invocation rebuilds; None if it is no rebuild."""
    branch, run_id = os.environ.get(BRANCH_VARIABLE), os.environ.get(RUN_VARIABLE)
    return (branch, run_id) if branch and run_id else None


def arguments(given: Mapping[str, Any], selected: Sequence[str], target_path: Path) -> list[str]:
    """Return the command line of a `dbt build` with the flags of another command."""
    chosen = " ".join(selected)
    flags = {key: value for key, value in given.items() if key not in _LEFT_OUT}
    if len(chosen) > _LONGEST_SELECTION:
        scope = ("select", "models", "exclude", "selector")
        flags |= {key: given[key] for key in scope if given.get(key)}
    else:
        flags["select"] = [chosen]
    flags = {key: _text(value) for key, value in flags.items() if value not in ([], {}, "")}
    # The last line of the output becomes part of a message, so it must be plain text.
    flags |= {"target_path": str(target_path), "use_colors": False}
    return list(command_params(Command.BUILD, flags))


def build(
    config: Any,
    selected: Sequence[str],
    *,
    branch: str,
    run_id: str,
    target_path: Path,
    limit: float | None,
    settings: Mapping[str, str],
) -> Ended:
    """Run the `dbt build` and wait for its end, or stop it.

    Args:
        target_path: The target folder of that run; contains the folder of the build.
        limit: The maximum duration in seconds; None for no limit.
    """
    target_path = target_path.resolve()
    folder = target_path / FOLDER
    _prepare(target_path, folder)
    given = {**args_to_dict(config.args), "project_dir": str(config.project_root)}
    command = [*DBT, *arguments(given, selected, folder)]
    environment = {
        **{key: value for key, value in os.environ.items() if key not in _NOT_HANDED_ON},
        **settings,
        BRANCH_VARIABLE: branch,
        RUN_VARIABLE: run_id,
        # Run all tests of the built nodes, whatever the project's default is.
        "DBT_INDIRECT_SELECTION": "eager",
    }
    ending = run_until(command, environment, folder / _OUTPUT, limit)
    words = f"{ending}: {_last_line(folder / _OUTPUT)} (see {folder})"
    # Imported late, because it loads modules that the adapter's start does not need.
    from sparkwap.runs.rebase_loop import Ended

    return Ended(run_of(folder / "run_results.json"), words)


def run_until(
    command: Sequence[str], environment: Mapping[str, str], output: Path, limit: float | None
) -> str:
    """Run a command until its end or for ``limit`` seconds; returns how it ended, in words.

    Stops only the process itself: other processes use a Spark server that it has started.
    """
    # Use a file, because a server that the command starts would keep a pipe open.
    with output.open("wb") as file:
        child = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            return f"dbt ended with exit code {child.wait(limit)}"
        except subprocess.TimeoutExpired:
            _end(child)
            return (
                f"dbt was still building after {limit:g} s and was stopped; `dbt retry` builds "
                "again, wap_rebuild_timeout sets another limit"
            )
        except BaseException:
            # An interrupt of the run also stops the build, and waits for its end.
            _end(child)
            raise


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_PATIENCE)
    child.kill()
    child.wait()


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    filled = [line.strip() for line in lines if line.strip()]
    return filled[-1][:_WORDS] if filled else "it printed nothing"


def _prepare(target_path: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # If the new build is killed, the results of an older one must not be read.
    (folder / "run_results.json").unlink(missing_ok=True)
    if (target_path / _PARSED).exists():
        shutil.copyfile(target_path / _PARSED, folder / _PARSED)


def _text(value: Any) -> Any:
    """Return a flag's value in the form of the command line."""
    if isinstance(value, Mapping):
        return json.dumps(value, default=str)
    if hasattr(value, "start") and hasattr(value, "end"):  # dbt's sample window
        return json.dumps({"start": str(value.start), "end": str(value.end)})
    return value
