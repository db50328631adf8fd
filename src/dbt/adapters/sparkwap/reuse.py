"""Leaves out what need not run again, if `wap_reuse` is set; `sparkwap.plan` decides what that is.

A node that is left out has no candidate, as if it was not selected, and a test no new result.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.flags import get_flags

from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.sessions import logger
from sparkwap.core.dbt_cli import LakePlace
from sparkwap.core.names import folded
from sparkwap.core.text import counted, first_line
from sparkwap.plan.decide import REBUILDS, asked_again

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier
    from sparkwap.plan.decide import Plan
    from sparkwap.runs.run import Run

_OWN = ("table", "incremental", "view", "seed", "snapshot", "scd2")
"""Materializations that ask `is_reused`; those of a project do not."""

_DONE = ("success", "pass")


class Reuse:
    """The nodes and tests of a command that need not run."""

    def __init__(self, runs: CommandRun) -> None:
        self._runs = runs
        self._command = runs.command
        self._known: frozenset[str] = frozenset()
        self._planned: Mapping[Identifier, str] = {}

    def find(self, run: Run) -> None:
        """Find the nodes and tests that need not run; none in doubt."""
        if not run.settings.reuse:
            return
        why = self._why_none(run)
        if why is None:
            try:
                self._known = self._found(self._plan(run))
            except Exception as error:
                why = first_line(str(error)) or type(error).__name__
        if why is not None:
            logger.info(f"sparkwap  wap_reuse: everything runs ({why})")

    def is_known(self, node_id: str) -> bool:
        """Return whether a node or test needs not run, if nothing that it reads is built."""
        return node_id in self._known

    def covers(self, run: Run, node: Any) -> bool:
        """Return whether a node or test needs not run: nothing that it reads has changed either."""
        if node.unique_id not in self._known:
            return False
        manifest = self._command.manifest
        if not run.trail.begun.keys().isdisjoint(manifest.parents(node)):
            return False
        own = manifest.table(node.unique_id)
        tables = [*manifest.read_by(node), *([own] if own else ())]
        # A hook may have written to a table, or another program since the plan.
        if not run.trail.written.isdisjoint(map(folded, tables)):
            return False
        found = self._command.lake.read(tables)
        return all(self._planned.get(one.identifier) == one.token for one in found)

    def leave_out(self, run: Run, node: Any) -> bool:
        """Leave a model, seed or snapshot out if it need not be built; return whether it is so."""
        if not self.covers(run, node):
            return False
        kind = str(node.config.materialized)
        config, manifest = self._command.config, self._command.dbt_manifest()
        macro = manifest.find_materialization_macro_by_name(
            config.project_name, kind, config.credentials.type
        )
        own = kind in _OWN and macro is not None and macro.package_name == "dbt_sparkwap"
        if own:
            run.trail.reused.add(node.unique_id)
        return own

    @available.parse(lambda *a, **k: False)
    def is_reused(self, node_id: str) -> bool:
        """Return whether a materialization has nothing to do."""
        run = self._runs.active
        return run is not None and node_id in run.trail.reused

    def without(self, run: Run, results: Sequence[Any]) -> list[Any]:
        """Return dbt's results without those of what was left out."""
        return [one for one in results if not _is_left_out(run, one)]

    def line(self, run: Run, results: Sequence[Any]) -> str | None:
        """Return the summary's line about what was left out; None if nothing was."""
        kinds = Counter(
            "test" if str(one.node.resource_type) == "test" else "node"
            for one in results
            if _is_left_out(run, one)
        )
        if not kinds:
            return None
        what = " and ".join(counted(kinds[kind], kind) for kind in ("node", "test") if kinds[kind])
        verb = "is" if kinds.total() == 1 else "are"
        return f"{what} {verb} reused: code and inputs are as at the last publish."

    def _why_none(self, run: Run) -> str | None:
        """Return why everything has to run; None if only some of it has to."""
        if self._command.is_retry:
            return "dbt retry runs what is left of a command"
        if run.replay is not None:
            return "a replay reads an earlier state"
        if self._is_begun(run):
            return f"the branch {run.branch} has nodes of earlier commands"
        given = {**self._command.config.vars.to_dict(), **self._command.given_vars}
        if asked := asked_again(given, os.environ):
            return asked
        flags = get_flags()
        on = [name for name in REBUILDS if getattr(flags, name.upper(), None)]
        return "--" + on[0].replace("_", "-") if on else None

    def _is_begun(self, run: Run) -> bool:
        """Return whether earlier commands have left anything on the branch, or of failed nodes."""
        lake = self._command.lake
        return not run.invocation.is_own and (
            bool(lake.ledger.branch_history(run.branch).nodes)
            or any(one.branch == run.branch for one in lake.branches.all())
        )

    def _plan(self, run: Run) -> Plan:
        from sparkwap.landing.raw_models import unread
        from sparkwap.ledger.manifests import pack, unpack
        from sparkwap.plan.gather import Gatherer

        command = self._command
        # As it is read from the ledger, so that only real differences count.
        whole = command.whole_manifest()
        manifest = unpack(pack(whole, calls=command.calls))
        place = LakePlace(
            command.credentials.catalog_name,
            command.credentials.catalog_settings(command.project_root),
        )
        # What the ledger keeps has no meta, where the landing entries are.
        files = unread(place, whole, Path(command.project_root), command.target_path)
        session, dispatch = run.invocation.session, command.config.dispatch
        gatherer = Gatherer(manifest, command.lake, files, session, dispatch)
        self._planned = gatherer.now
        return gatherer.plan()

    def _found(self, plan: Plan) -> frozenset[str]:
        nodes = [one for one in plan.nodes if one.action == "reuse"]
        # A test that has found rows may store them, or show them in its message.
        tests = [
            one
            for one in plan.tests
            if one.action == "reuse" and one.known is not None and one.known.clean
        ]
        return frozenset(one.node_id for one in (*nodes, *tests))


def _is_left_out(run: Run, result: Any) -> bool:
    # A node that failed before its materialization is an error.
    return result.node.unique_id in run.trail.reused and str(result.status) in _DONE
