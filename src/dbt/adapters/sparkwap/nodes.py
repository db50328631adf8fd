"""The begin and end of nodes, tests and hooks: begins their candidates and checks `main`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.relation import BaseRelation
from dbt.flags import get_flags

from dbt.adapters.sparkwap.command import as_dbt_error
from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.dbt_nodes import BUILT_TYPES
from dbt.adapters.sparkwap.manifest import READING_TYPES, TEST_TYPES
from dbt.adapters.sparkwap.relation import identifier_of
from dbt.adapters.sparkwap.reuse import Reuse
from dbt.adapters.sparkwap.run_results import all_batches
from dbt.adapters.sparkwap.sessions import logger
from dbt.adapters.sparkwap.statements import StatementGuard
from sparkwap.core import checkpoints, next_command
from sparkwap.core.checkpoints import checkpoint
from sparkwap.core.errors import SparkwapError

if TYPE_CHECKING:
    from sparkwap.runs.run import Run

_BEGUN_ANEW = (
    "built again from main, without the rows that earlier commands have on the branch: these were "
    "only a part of the rows (--empty, --sample), or its parents were built again there"
)


class Nodes:
    """The nodes, tests and hooks of a command."""

    def __init__(self, runs: CommandRun, statements: StatementGuard, reuse: Reuse) -> None:
        self._runs = runs
        self._reuse = reuse
        self._command = runs.command
        self._at_work = statements.at_work

    @contextmanager
    def main_checked(self, node: Any) -> Iterator[None]:
        """Check at the end of a node, test or hook whether `main` has moved."""
        self._at_work.node_id = getattr(node, "unique_id", None)
        try:
            yield
        finally:
            run = self._runs.active
            main = run.main if run is not None else None
            if main is not None:
                main.answered()
                try:
                    main.check()
                except SparkwapError as error:
                    # Closing the run checks again, and fails if the error persists.
                    logger.debug(f"main was not checked: {error}")
            self._at_work.node_id = self._at_work.batch = None

    def begin(self, node: Any) -> bool:
        """Begin a node, test or hook; return whether its table was reset to that on ``main``."""
        kind = getattr(node, "resource_type", None)
        config = getattr(node, "config", None)
        self._at_work.writes = config.get("wap_writes") if config is not None else None
        if (
            config is not None
            and config.get("incremental_strategy") == "microbatch"
            and config.get("concurrent_batches") is None
        ):
            # By default, dbt would run the batches of most models together. Rows that a batch
            # returns for the time range of another one are right only one after another.
            config.concurrent_batches = False
        run = self._runs.active
        if kind in BUILT_TYPES and run is not None and self._reuse.leave_out(run, node):
            return False
        begun = kind in BUILT_TYPES and run is not None and self._begin_build(run, node)
        if run is not None and kind in READING_TYPES:
            with as_dbt_error():
                run.read(node.unique_id, self._command.manifest.read_by(node))
        if run is not None and kind in TEST_TYPES:
            checkpoint(
                checkpoints.AUDIT_BEGINS,
                run_id=run.run_id,
                branch=run.branch,
                node_id=node.unique_id,
            )
        return begun

    @contextmanager
    def reading(self, node: Any) -> Iterator[None]:
        """Record the reads of a node's or test's statements on its trail."""
        # A seed reads no table; its rows must not be searched for table names.
        kind, outer = getattr(node, "resource_type", None), self._at_work.reader
        if kind in READING_TYPES and kind != "seed":
            self._at_work.reader = node.unique_id
        try:
            yield
        finally:
            self._at_work.reader = outer

    def looked_at(self, relation: BaseRelation) -> None:
        """Record on the trail that the node reads a table's metadata."""
        run, reader = self._runs.active, self._at_work.reader
        if run is not None and reader is not None and relation.schema and relation.identifier:
            run.looked_at(reader, identifier_of(relation))

    def _begin_build(self, run: Run, node: Any) -> bool:
        command, table = self._command, (node.schema, node.alias)
        if command.is_retry and getattr(node.config, "incremental_strategy", None) == "microbatch":
            # dbt repeats the failed batches only, to add them to the successful ones.
            left = getattr(node, "previous_batch_results", None)
            if left is not None and run.may_add_to_candidate(node.unique_id, table):
                return False
            if node.unique_id not in run.trail.begun:
                # The successful batches are no longer on the branch, or were rejected too.
                node.previous_batch_results = all_batches(command.retried_results, node.unique_id)
        if _adds(node):
            if self._runs.continues_branch and run.may_add_to_candidate(node.unique_id, table):
                return False
            if self._runs.continues_branch:
                run.candidates.require_publishable(node.unique_id, table)
                if node.unique_id in run.candidates.found:
                    run.notes.add_notice(node.unique_id, _BEGUN_ANEW)
            elif run.candidates.has_added(node.unique_id):
                raise SparkwapError(
                    f"{node.schema}.{node.alias} has unpublished rows of several commands on the "
                    f"branch {run.branch}. A build from main would keep only the rows of this "
                    "command, so the table was not built. Discard the branch, then repeat the "
                    f"commands one by one: {next_command.operation('wap_discard', run.branch)}"
                )
        return run.begin(node.unique_id, table)


def _adds(node: Any) -> bool:
    """Return whether a build of the node adds to its existing rows."""
    if str(node.resource_type) == "snapshot":
        return True
    full_refresh = node.config.full_refresh
    if full_refresh is None:
        full_refresh = get_flags().FULL_REFRESH
    return node.config.materialized == "incremental" and not full_refresh
