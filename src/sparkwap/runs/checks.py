"""Checks candidates on an audit branch, after their build and before a publish."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkwap.catalog import Identifier, TableState
from sparkwap.core import names
from sparkwap.publish.lake import Lake
from sparkwap.runs import rebase
from sparkwap.runs.types import BuildTarget

UNGATED = (
    "the property write.wap.enabled was removed from the table, so that writes go directly to "
    "main; build it again, which sets the property"
)


@dataclass(frozen=True, slots=True)
class Checks:
    """Checks the candidates of a run."""

    lake: Lake
    run_id: str
    branch: str

    def left(self, target: BuildTarget, *, must_write: bool) -> BuildTarget:
        """Return the target with its candidate, or with the problem of its build.

        Args:
            target: The target, after its build.
            must_write: Whether the build must have moved the head of the branch.
        """
        if target.how == "side":
            beside = (str(target.side_schema), target.identifier[1])
            state = self.lake.state(beside)
            if state is None:
                return replace(target, problem="its build left nothing in the side schema")
            strangers = self._strangers(beside, state.main, target.since) if state.main else None
            problem = strangers or _view_problem(self.lake.view_problem(beside, self.branch))
            return replace(target, candidate=state.metadata_location, problem=problem)
        state = self.lake.state(target.identifier)
        if state is None:
            return replace(target, problem="the table was dropped while the run was on")
        if state.main != target.base and not self._moved_by_others(target, state):
            return replace(
                target,
                problem=f"main moved from {target.base} to {state.main} during the build. If no "
                "other job writes to the table, this catalog does not keep Iceberg branches "
                "apart, and sparkwap cannot protect the table",
            )
        if not _is_gated(state):
            return replace(target, problem=UNGATED)
        head = state.refs.get(self.branch)
        if head is None:
            return replace(target, problem=f"its audit branch {self.branch} is gone")
        candidate = str(head.snapshot_id)
        if must_write and candidate == target.candidate:
            return replace(
                target,
                problem="the build wrote nothing to the audit branch; it may have written to "
                "another place",
            )
        strangers = self._strangers(target.identifier, head.snapshot_id, target.since)
        return replace(target, candidate=candidate, problem=strangers)

    def _strangers(self, identifier: Identifier, head: int, since: int | None) -> str | None:
        """Return a problem if a statement of another run wrote to this run's candidate.

        A server continues a statement for a while after its client was killed, and may commit it
        to the branch while a retry writes to it.
        """
        others = self.lake.branches.writers(identifier, head, since) - {self.run_id}
        if not others:
            return None
        ids = ", ".join(names.short_run_id(one) for one in sorted(others))
        return (
            f"a statement of run {ids}, which was still on at the server, wrote to its audit "
            "branch during the build"
        )

    def _moved_by_others(self, target: BuildTarget, state: TableState) -> bool:
        """Return whether another writer moved ``main``; the publish then refuses it."""
        head = state.refs.get(self.branch)
        wrote = False
        if head is not None and head.snapshot_id != target.base:
            written = self.lake.snapshot_summary(target.identifier, head.snapshot_id)
            wrote = written.get("wap_run") == self.run_id
        summaries = self.lake.summaries(target.identifier, target.base, state.main)
        return rebase.moved_by_others(summaries, self.run_id, wrote_to_branch=wrote)

    def still_there(self, target: BuildTarget, is_beside: bool) -> BuildTarget | None:
        """Return the present state of an earlier run's target; None if it was discarded."""
        if target.candidate is None:
            return None
        if target.how == "side":
            return target if is_beside else None
        state = self.lake.state(target.identifier)
        head = state.refs.get(self.branch) if state else None
        if head is None:
            return None
        if str(head.snapshot_id) != target.candidate:
            return replace(
                target,
                problem=f"the head of {self.branch} is {head.snapshot_id}, not the candidate "
                f"{target.candidate} that the run left there: somebody else wrote to it",
            )
        return target if state and _is_gated(state) else replace(target, problem=UNGATED)


def _view_problem(found: str | None) -> str | None:
    if found is None:
        return None
    return (
        f"the view's text {found}, so its readers would see unaudited rows or an error. Name each "
        "table that it reads by ref(), source() or schema.table only, and build it again"
    )


def _is_gated(state: TableState) -> bool:
    return state.properties.get("write.wap.enabled") == "true"
