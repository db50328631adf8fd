"""Checks candidates on an audit branch, after their build and before a publish."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkwap.catalog import Candidate, Identifier, TableState
from sparkwap.catalog import metadata as md
from sparkwap.core import names
from sparkwap.publish.lake import Lake
from sparkwap.runs import rebase

UNGATED = (
    "the property write.wap.enabled was removed from the table, so that writes go directly to "
    "main; build it again, which sets the property"
)
ON_A_BRANCH = (
    "the table in the side schema has write.wap.enabled=true, so its rows are on a branch of that "
    "table, and a publish would show a table without them; take the property out of hooks and of "
    "the catalog's table-default.* and table-override.* settings, then build it again"
)


@dataclass(frozen=True, slots=True)
class Checks:
    """Checks the candidates of a run."""

    lake: Lake
    run_id: str
    branch: str

    def left(self, placed: Candidate, *, must_write: bool) -> Candidate:
        """Return a candidate with its token, or with the problem of its build.

        Args:
            must_write: Whether the build must have moved the head of the branch.
        """
        if placed.how == "side":
            state = self.lake.state(placed.place)
            if state is None:
                return replace(placed, problem="its build left nothing in the side schema")
            strangers = (
                self._strangers(placed.place, state.main, placed.since) if state.main else None
            )
            problem = ON_A_BRANCH if md.is_gated(state.properties) else strangers
            problem = problem or _view_problem(self.lake.view_problem(placed.place, self.branch))
            return replace(placed, token=state.metadata_location, problem=problem)
        state = self.lake.state(placed.identifier)
        if state is None:
            return replace(placed, problem="the table was dropped during the run")
        if state.main != placed.base and not self._moved_by_others(placed, state):
            return replace(
                placed,
                problem=f"main moved from {placed.base} to {state.main} during the build. If no "
                "other job writes to the table, this catalog does not isolate Iceberg branches, "
                "and sparkwap cannot protect the table",
            )
        if not md.is_gated(state.properties):
            return replace(placed, problem=UNGATED)
        head = state.refs.get(self.branch)
        if head is None:
            return replace(placed, problem=f"its audit branch {self.branch} is gone")
        token = str(head.snapshot_id)
        if must_write and token == placed.token:
            return replace(
                placed,
                problem="the build wrote nothing to the audit branch; it may have written to "
                "another place",
            )
        strangers = self._strangers(placed.identifier, head.snapshot_id, placed.since)
        return replace(placed, token=token, problem=strangers)

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
            f"a statement of run {ids} was still running on the server, and wrote to the table's "
            "audit branch during the build"
        )

    def _moved_by_others(self, candidate: Candidate, state: TableState) -> bool:
        """Return whether another writer moved ``main``; the publish then refuses it."""
        head = state.refs.get(self.branch)
        wrote = False
        if head is not None and head.snapshot_id != candidate.base:
            written = self.lake.snapshot_summary(candidate.identifier, head.snapshot_id)
            wrote = written.get("wap_run") == self.run_id
        summaries = self.lake.summaries(candidate.identifier, candidate.base, state.main)
        return rebase.moved_by_others(summaries, self.run_id, wrote_to_branch=wrote)

    def still_there(self, candidate: Candidate, is_beside: bool) -> Candidate | None:
        """Return the present state of an earlier run's candidate; None if it was discarded."""
        if candidate.token is None:
            return None
        if candidate.how == "side":
            return candidate if is_beside else None
        state = self.lake.state(candidate.identifier)
        head = state.refs.get(self.branch) if state else None
        if head is None:
            return None
        if str(head.snapshot_id) != candidate.token:
            return replace(
                candidate,
                problem=f"the head of {self.branch} is {head.snapshot_id}, not the candidate "
                f"{candidate.token} that the run left there: somebody else wrote to it",
            )
        return (
            candidate
            if state and md.is_gated(state.properties)
            else replace(candidate, problem=UNGATED)
        )


def _view_problem(found: str | None) -> str | None:
    if found is None:
        return None
    return (
        f"the view's text {found}, so its readers would see unaudited rows or an error. Name each "
        "table that it reads by ref(), source() or schema.table only, and build it again"
    )
