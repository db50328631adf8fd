"""The dbt command of the adapter: its flags, settings, lake and manifest."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click
from dbt.flags import get_flags
from dbt_common.events.functions import fire_event
from dbt_common.events.types import Note
from dbt_common.exceptions import DbtRuntimeError
from dbt_common.invocation import get_invocation_id

from dbt.adapters.sparkwap import rebase
from dbt.adapters.sparkwap.connections import SparkWapConnectionManager
from dbt.adapters.sparkwap.credentials import SparkWapCredentials
from dbt.adapters.sparkwap.dbt_nodes import BUILT_TYPES, built_by
from dbt.adapters.sparkwap.manifest import ProjectManifest
from dbt.adapters.sparkwap.run_results import to_retry
from sparkwap import server
from sparkwap.core import next_command, steplog
from sparkwap.core.caller import Caller, this_caller
from sparkwap.core.dbt_cli import VARIABLES, project_variables
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.core.redaction import redact
from sparkwap.core.text import some_of
from sparkwap.gate.settings import GateSettings, from_environment, of_one_call, settings_of
from sparkwap.ledger import manifests
from sparkwap.runs import main_history, replay_moment, time_travel
from sparkwap.runs.state import RESULTS, LastRun, run_of

# The modules of the catalog (PyIceberg, PyArrow, SQLAlchemy) are imported at their first use: the
# import takes a second, and commands such as `dbt parse` and `dbt ls` do not need them.
if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

RUN_COMMANDS = frozenset({"build", "run", "test", "seed", "snapshot", "clone"})
"""Commands that write or audit, and so open a run. All others read ``main`` or ``wap_branch``."""
_LOOKING = frozenset({"show", "compile"})
"""Commands that compile nodes and open no run."""
_DBT_CLOCK = len("12:34:56  ")
_NARROWEST = 40


class DbtCommand:
    """One dbt command.

    Attributes:
        dbt_manifest: Returns dbt's manifest; None before dbt has read it.
        name: ``build``, ``test``, ...; empty for `dbt debug`.
        given_vars: The vars of the command line.
        part: The part of the rows that dbt reads: none (``--empty``) or some (``--sample``).
        calls: The macros that nodes call, as far as dbt knows before it runs the first node.
    """

    def __init__(
        self,
        config: Any,
        connections: SparkWapConnectionManager,
        dbt_manifest: Callable[[], Any],
    ) -> None:
        self.config = config
        self.connections = connections
        self.dbt_manifest = dbt_manifest
        logs = getattr(get_flags(), "LOG_PATH", None)
        if logs:  # dbt's log contains code of models, and Spark's errors contain rows
            steplog.make_private(Path(str(logs)), "dbt.log*")
        args = getattr(config, "args", None)
        next_command.set_target(getattr(args, "target", None), getattr(args, "profile", None))
        self.name = str(getattr(args, "which", "") or getattr(args, "WHICH", ""))
        self.opens_run = self.name in RUN_COMMANDS
        self.project_name = str(getattr(config, "project_name", ""))
        self.project_root = str(getattr(config, "project_root", "."))
        self.target_name = str(getattr(config, "target_name", ""))
        self.target_path = Path(self.project_root) / str(getattr(config, "target_path", "target"))
        self.given_vars: Mapping[str, Any] = getattr(config, "cli_vars", None) or {}
        sampled = getattr(args, "SAMPLE", None) is not None
        self.part: Literal["empty", "sample"] | None = "sample" if sampled else None
        if getattr(args, "EMPTY", False):
            self.part = "empty"
        # `config.args` has the repeated command, not `retry`.
        context = click.get_current_context(silent=True)
        self.is_retry = context is not None and context.info_name == "retry"
        self.calls: manifests.Calls | None = None
        self._lock = threading.RLock()
        self._lake: Lake | None = None

    @property
    def run_id(self) -> str:
        """dbt's invocation id."""
        return get_invocation_id()

    @property
    def credentials(self) -> SparkWapCredentials:
        return cast(SparkWapCredentials, self.config.credentials)

    # -- the gate's settings ---------------------------------------------------------------------

    @cached_property
    def settings(self) -> GateSettings:
        """The gate's settings: the project's vars, overridden by those of the command line."""
        variables = self.config.vars.to_dict() if hasattr(self.config, "vars") else {}
        given = {**from_environment(self.environment), **self.given_vars}
        settings = settings_of({"name": self.project_name, "vars": variables}, given)
        if given.get(replay_moment.VARIABLE) and "wap_publish" not in self.given_vars:
            # The environment may be that of a job of production, which publishes.
            settings = replace(settings, publish="never")
        rebuilt = rebase.rebuilt_branch()
        return settings if rebuilt is None else replace(settings, branch=rebuilt[0])

    @cached_property
    def environment(self) -> dict[str, str]:
        """The environment variables that are settings of this call.

        A retry also has the settings of the retried run: dbt restores only its vars.
        """
        before = self.retried.settings if self.retried else {}
        return {**before, **of_one_call(os.environ)}

    @property
    def as_of(self) -> time_travel.Replay | None:
        """The moment of a replay; None for the present.

        Read from the command line only, because a project may use a var of this name for something
        else.
        """
        with self._lock:
            return self._as_of

    @cached_property
    def _as_of(self) -> time_travel.Replay | None:
        wanted = replay_moment.asked(self.given_vars.get(replay_moment.VARIABLE), datetime.now(UTC))
        if wanted is None:
            return None
        args = getattr(self.config, "args", None)
        if self.name == "clone" or getattr(args, "defer", False) or getattr(args, "DEFER", 0):
            raise ConfigError(
                f"{replay_moment.VARIABLE} cannot be used with `dbt clone` or --defer, whose "
                "tables belong to another state of the project. Nothing was run. Omit one of them."
            )
        rows = self.lake.ledger.rows("publishes")
        moment = replay_moment.named(wanted, rows) if isinstance(wanted, str) else wanted
        return time_travel.Replay(moment, self.lake.histories, main_history.changes(rows))

    def require_no_replay(self) -> None:
        """Refuse a replay by a command that opens no run, because it would read the present."""
        if self.name in _LOOKING and self.given_vars.get(replay_moment.VARIABLE):
            raise DbtRuntimeError(
                f"`dbt {self.name}` always reads the present and does not support "
                f"{replay_moment.VARIABLE}. Nothing was run. To look at a replay: "
                f"dbt build --vars '{replay_moment.VARIABLE}: ...', "
                f"then {next_command.dbt(self.name, branch='<its branch>')}."
            )

    # -- `dbt retry` -----------------------------------------------------------------------------

    @property
    def retried_results(self) -> Path:
        """The ``run_results.json`` that `dbt retry` repeats."""
        folder = Path(getattr(self.config.args, "state", None) or self.target_path)
        return Path(self.project_root) / folder / RESULTS

    @cached_property
    def to_retry(self) -> list[str]:
        """The nodes that `dbt retry` repeats; first read before the file is overwritten."""
        return to_retry(self.retried_results)

    @cached_property
    def retried(self) -> LastRun | None:
        """The run that `dbt retry` repeats, if it is the last one of this target folder."""
        last = LastRun.read(self.target_path) if self.is_retry else None
        return last if last and last.run_id == run_of(self.retried_results) else None

    def require_retryable(self) -> None:
        """Refuse a retry of nodes or tests that the project no longer has.

        dbt itself would end in a traceback.
        """
        manifest = self.dbt_manifest()
        if not self.is_retry or self.name in ("", "run-operation") or manifest is None:
            return
        known = {**manifest.nodes, **manifest.unit_tests}
        gone = [
            one
            for one in self.to_retry
            if one not in known and one.partition(".")[0] in (*BUILT_TYPES, "test", "unit_test")
        ]
        if not gone:
            return
        again = sorted(
            {key for one in self.to_retry if one in known for key in built_by(known[one])}
        )
        command = next_command.build(again, self.retried.branch if self.retried else "")
        names = some_of([one.split(".")[2] for one in gone])
        raise DbtRuntimeError(
            f"dbt retry repeats the last command, but the project no longer has {names}. A test "
            "with changed arguments is another test to dbt. Nothing was changed. What the last "
            "command built and did not publish is still on its branch, unless that was discarded. "
            f"Build it again:\n  {command}"
        )

    # -- the lake and the manifest ---------------------------------------------------------------

    @property
    def lake(self) -> Lake:
        """The lake's catalog, used without Spark."""
        from sparkwap.publish.lake import Lake

        with self._lock:
            if self._lake is None:
                if self.credentials.embedded and not self._needs_catalog_only:
                    # The server creates the lake at its first start.
                    self.connections.endpoint()
                settings = self.credentials.catalog_settings(self.project_root)
                self._lake = Lake(self.credentials.catalog_name, settings, self._caller)
            return self._lake

    @lake.setter
    def lake(self, lake: Lake) -> None:
        self._lake = lake

    @property
    def _needs_catalog_only(self) -> bool:
        # Of the run-operations, those that send statements start the server with their connection.
        return self.name == "run-operation" and server.at_rest(
            self.credentials.server_config(self.project_root)
        )

    @property
    def _caller(self) -> Caller:
        # A run-operation is known by its macro.
        name = str(getattr(self.config.args, "macro", None) or self.name)
        if self.settings.actor == "never":
            return Caller(project=self.project_name, command=name)
        return this_caller(self.project_name, name)

    @cached_property
    def manifest(self) -> ProjectManifest:
        return self.read_manifest()

    def read_manifest(self) -> ProjectManifest:
        """Return dbt's manifest as it is now; dbt changes it while nodes run."""
        return ProjectManifest(
            self.dbt_manifest(), self.given_vars, self.settings.varying, self.config, self.calls
        )

    def packed_manifest(self) -> manifests.Packed:
        """Return the project's code in the ledger's format."""
        return manifests.pack(self.whole_manifest(), calls=self.calls)

    def whole_manifest(self) -> manifests.Document:
        """Return dbt's manifest, and the project's variables."""
        whole = self.dbt_manifest().writable_manifest().to_dict(omit_none=False)
        return {**whole, VARIABLES: project_variables(self.config.vars.to_dict())}


@contextmanager
def as_dbt_error() -> Iterator[None]:
    """Raise sparkwap's errors as dbt's: dbt prints a traceback for all others."""
    try:
        yield
    except SparkwapError as error:
        raise DbtRuntimeError(str(error)) from error


def tell(lines: list[str]) -> None:
    """Print a summary outside of macros, without the adapter's name before each line."""
    for line in lines:
        fire_event(Note(msg=redact(line)))


def width() -> int | None:
    """Return the terminal's columns that remain after dbt's clock; None without a terminal."""
    columns = shutil.get_terminal_size((0, 0)).columns
    return max(columns - _DBT_CLOCK, _NARROWEST) if columns else None


def tells_next() -> bool:
    """Return whether the summary shows the next steps; if not, the calling command shows them."""
    return not os.environ.get(next_command.VARIABLE)


def next_to_tell(lines: list[str]) -> list[str]:
    """Return the lines of the next steps if the summary shows them; if not, hand them over."""
    wanted = os.environ.get(next_command.VARIABLE)
    if wanted and wanted != next_command.OFF:
        text = "".join(f"{redact(line)}\n" for line in lines)
        Path(wanted).write_text(text, encoding="utf-8")
    return lines if tells_next() else []
