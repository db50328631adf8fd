"""The run-operations: passes the lake and the needed parts of dbt to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dbt.adapters.base.meta import available

from dbt.adapters.sparkwap import lineage
from dbt.adapters.sparkwap.command import as_dbt_error, tell, tells_next, width
from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.dbt_nodes import maintenance_rules
from dbt.adapters.sparkwap.statements import StatementGuard
from sparkwap.core import command_end
from sparkwap.core.command_end import CommandEnd, Outcome
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.runs import state


class Operations:
    """The run-operations of a command."""

    def __init__(self, runs: CommandRun, statements: StatementGuard) -> None:
        self._runs = runs
        self._command = runs.command
        self._statements = statements

    @available.parse(lambda *a, **k: [])
    def operation(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """Run ``wap_status``, ``wap_publish``, ...; returns the lines to print."""
        with as_dbt_error():
            if self._command.name != "run-operation":
                return self._call(name, arguments, [])
            return self._documented(name, arguments)

    def _documented(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """Run an operation, and write its document."""
        # If a later document cannot be written, this one stays.
        self._write(name, CommandEnd("failed", message=state.UNFINISHED))
        found: list[CommandEnd] = []
        try:
            lines = self._call(name, arguments, found)
        except Exception as error:
            outcome = error.outcome if isinstance(error, SparkwapError) else "failed"
            with suppress(ConfigError):
                self._write(name, _end(name, found, str(error).splitlines(), outcome, str(error)))
            raise
        with suppress(ConfigError):
            self._write(name, _end(name, found, lines))
        return lines

    def _write(self, name: str, end: CommandEnd) -> None:
        path = command_end.results_file(self._command.target_path)
        try:
            command_end.write(path, f"dbt run-operation {name}", end)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror}. Nothing was changed."
            ) from error

    def _call(self, name: str, arguments: Mapping[str, Any], found: list[CommandEnd]) -> list[str]:
        from sparkwap.runs.operations import OPERATIONS

        if name == "wap_diff":
            return self._diff(arguments, found)
        only_reads = any(one.only_reads for one in OPERATIONS if one.name == name)
        if self._command.name != "run-operation" and not only_reads:
            raise ConfigError(
                f"{name} was called by `dbt {self._command.name}`, which calls it whenever it "
                "compiles a node or runs a hook. Nothing was changed. Call it by itself: "
                f"dbt run-operation {name}"
            )
        if name in ("wap_erase", "wap_rectify"):
            return self._erase(name, arguments, found)
        return self._operate(name, arguments, found)

    def _operate(
        self, name: str, arguments: Mapping[str, Any], found: list[CommandEnd]
    ) -> list[str]:
        from dbt.adapters.sparkwap.alerting import rolled_back
        from sparkwap.runs.operations import LakeOperations

        command = self._command
        self._runs.start_log()
        operations = LakeOperations(
            command.lake,
            run_id=command.run_id,
            settings=command.settings,
            project=command.project_name,
            target_name=command.target_name,
            tests=lambda: command.manifest.tests(),
            known=lambda: command.manifest.known(),
            unfinished=state.unfinished_run(command.target_path),
            manifest=command.packed_manifest,
            table_of_node=lambda node_id: command.manifest.table(node_id),
            code_of_node=lambda node_id: command.manifest.code(node_id),
            width=width(),
            next_steps=tells_next(),
            execute=command.connections.rows_of,
            rules=lambda: maintenance_rules(command.dbt_manifest()),
            found=found,
        )
        with self._statements.own():
            try:
                lines = operations.call(name, arguments)
            except SparkwapError:
                tell(lineage.published(command, found))  # A part may be published.
                raise
        lines += lineage.published(command, found)
        if operations.rolled_back:
            lines += rolled_back(command, operations.rolled_back)
        return lines

    def _erase(self, name: str, arguments: Mapping[str, Any], found: list[CommandEnd]) -> list[str]:
        # Imported late, because it loads PyArrow, which takes half a second.
        from dbt.adapters.sparkwap.erasing import erasure
        from sparkwap.erasure import Erase, Rectify

        request = (Erase if name == "wap_erase" else Rectify).of(arguments)
        work = erasure(self._command)
        with self._statements.own():
            try:
                return work.call(request)
            finally:
                if work.result is not None:
                    found.append(CommandEnd(result=work.result))

    def _diff(self, arguments: Mapping[str, Any], found: list[CommandEnd]) -> list[str]:
        # Imported late, because only this operation needs it.
        from dbt.adapters.sparkwap.diffing import diff
        from sparkwap.diff.operation import Diff

        with self._statements.own():
            return diff(self._command, Diff.of(arguments), found)


def _end(
    name: str,
    found: Sequence[CommandEnd],
    lines: Sequence[str],
    outcome: Outcome = "done",
    message: str | None = None,
) -> CommandEnd:
    """Return the end of an operation; ``found`` is that which it has set itself, if any."""
    from sparkwap.runs.operations.found import OperationResult

    for one in found:
        # An error that follows is not better for what was found before it.
        outcome = one.outcome if one.exit_code or message is None else outcome
    result = OperationResult(name, tuple(lines), next((one.result for one in found), None))
    return CommandEnd(outcome, result, message)
