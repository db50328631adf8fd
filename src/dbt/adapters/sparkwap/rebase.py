"""Another dbt on the same audit branch: builds again what main moved away under.

A process of its own, as dbt keeps adapters, flags and the invocation's id for the whole process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.cli.flags import command_params
from dbt.cli.types import Command
from dbt.utils.utils import args_to_dict

from sparkwap.runs.state import run_of

if TYPE_CHECKING:
    from sparkwap.runs.rebase_loop import Ended

BRANCH_VARIABLE = "SPARKWAP_REBUILD_BRANCH"
RUN_VARIABLE = "SPARKWAP_REBUILD_OF"
"""Environment variables, as other vars would make dbt parse the whole project anew."""

FOLDER = "rebuild"
_DBT = (sys.executable, "-c", "from dbt.cli.main import cli; cli()")
_PARSED = "partial_parse.msgpack"
_OUTPUT = "output.txt"
# What says which nodes, and where artifacts go; and what dbt's own retry leaves out too.
_LEFT_OUT = frozenset(
    {
        "which", "select", "models", "exclude", "selector", "selector_name", "indirect_selection",
        "resource_type", "resource_types", "exclude_resource_type", "exclude_resource_types",
        "target_path", "invocation_command", "show", "output", "inline", "quiet", "log_format",
        "use_colors", "fail_fast", "deprecated_state", "profiles_dir_exists_false",
    }
)  # fmt: skip
_SCOPE_VARIABLES = frozenset({"DBT_RESOURCE_TYPES", "DBT_EXCLUDE_RESOURCE_TYPES"})
# Linux takes no longer argument; then the whole selection is built, which has them in it.
_LONGEST_SELECTION = 100_000
_WORDS = 300
# dbt cancels its statements on an interrupt, which takes a moment; a signal that is ignored is
# followed by the next one.
_ENDINGS = ((signal.SIGINT, 30.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, None))


def rebuilt_branch() -> tuple[str, str] | None:
    """Branch and run that this invocation builds again for; None for one of its own."""
    branch, run_id = os.environ.get(BRANCH_VARIABLE), os.environ.get(RUN_VARIABLE)
    return (branch, run_id) if branch and run_id else None


def arguments(given: Mapping[str, Any], selected: Sequence[str], target_path: Path) -> list[str]:
    """The command line of a `dbt build` with the flags of another command.

    :param given: the flags of that command, as dbt records them.
    :param selected: what to build, as dbt's node selection has it.
    """
    chosen = " ".join(selected)
    flags = {key: value for key, value in given.items() if key not in _LEFT_OUT}
    if len(chosen) > _LONGEST_SELECTION:
        scope = ("select", "models", "exclude", "selector")
        flags |= {key: given[key] for key in scope if given.get(key)}
    else:
        flags["select"] = [chosen]
    flags = {key: _text(value) for key, value in flags.items() if value not in ([], {}, "")}
    # Colours and formats are for people; here the last lines are kept as words.
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
    """Run the `dbt build` and wait for its end, or end it.

    :param config: dbt's configuration of the run that it is for.
    :param target_path: dbt's target folder of that run; the build's is in it.
    :param limit: seconds that it may take; None for as long as it likes.
    :param settings: environment variables that are settings of that run.
    """
    target_path = target_path.resolve()
    folder = target_path / FOLDER
    _prepare(target_path, folder)
    given = {**args_to_dict(config.args), "project_dir": str(config.project_root)}
    command = [*_DBT, *arguments(given, selected, folder)]
    environment = {
        **{key: value for key, value in os.environ.items() if key not in _SCOPE_VARIABLES},
        **settings,
        BRANCH_VARIABLE: branch,
        RUN_VARIABLE: run_id,
        # All tests that read what is built, whatever the project's default is.
        "DBT_INDIRECT_SELECTION": "eager",
    }
    ending = run_until(command, environment, folder / _OUTPUT, limit)
    words = f"{ending}: {_last_line(folder / _OUTPUT)} (see {folder})"
    # Here, as the adapter's start does not need what it brings along.
    from sparkwap.runs.rebase_loop import Ended

    return Ended(run_of(folder / "run_results.json"), words)


def run_until(
    command: Sequence[str], environment: Mapping[str, str], output: Path, limit: float | None
) -> str:
    """Run a command to its end, or end it after ``limit`` seconds; says which, in words.

    Only the process itself is ended: a Spark server that it has started serves others too.
    """
    # A file, as a server that it starts would keep a pipe open.
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
            _end(child, politely=True)
            return (
                f"dbt was still building after {limit:g} s and was stopped; `dbt retry` builds "
                "again, wap_rebuild_timeout sets another limit"
            )
        except BaseException:
            # Who stops the run means this one too, and waits.
            _end(child, politely=False)
            raise


def _end(child: subprocess.Popen[bytes], *, politely: bool) -> None:
    # A job in the background ignores interrupts, and so does what it starts.
    heeds = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    for sent, patience in _ENDINGS[0 if politely and heeds else 1 :]:
        child.send_signal(sent)
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            return


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:_WORDS] if said else "it said nothing"


def _prepare(target_path: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # An old record would be taken for the new one's if that dies.
    (folder / "run_results.json").unlink(missing_ok=True)
    if (target_path / _PARSED).exists():
        shutil.copyfile(target_path / _PARSED, folder / _PARSED)


def _text(value: Any) -> Any:
    """A flag's value as the command line takes it."""
    if isinstance(value, Mapping):
        return json.dumps(value, default=str)
    if hasattr(value, "start") and hasattr(value, "end"):  # dbt's sample window
        return json.dumps({"start": str(value.start), "end": str(value.end)})
    return value
