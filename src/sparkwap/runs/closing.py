"""Closes a run: decides on its facts, publishes, and writes the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sparkwap.catalog import (
    Candidate,
    CommitUnknown,
    Difference,
    LedgerRows,
    Mismatch,
    PublishRefused,
    PublishTorn,
    PublishUnverified,
    Read,
)
from sparkwap.core import checkpoints, names
from sparkwap.core.checkpoints import checkpoint
from sparkwap.core.errors import SparkwapError
from sparkwap.gate.verdicts import Decision, decide
from sparkwap.ledger.manifests import Packed
from sparkwap.publish.lake import Lake
from sparkwap.runs import rebase
from sparkwap.runs.gathering import ClosingFacts
from sparkwap.runs.rows import Rows, refused_rows
from sparkwap.runs.types import DAY_MS, Invocation, RunEnd, RunNotes

REBASED_COMMANDS = frozenset({"build", "run", "test", "seed", "snapshot"})
"""dbt's commands after which a rebase follows if main has moved."""

_TRIES = 3
"""How often a publish is tried while compactions move main."""


@dataclass(frozen=True, slots=True)
class ClosingPlan:
    """The planned writes of a closing run.

    Attributes:
        candidates: The tables and views to publish, all or nothing.
        reads: Each table read from ``main`` -> the published nodes that it was read for.
        code_hash: The hash of the project's code; None if the ledger does not store the code.
    """

    candidates: tuple[Candidate, ...]
    rows: tuple[LedgerRows, ...]
    reads: Mapping[Read, Collection[str]]
    code_hash: str | None


@dataclass(frozen=True, slots=True)
class Closer:
    """Closes a run: decides on its facts, then plans and makes all writes.

    Attributes:
        manifest: Returns the code of the project; None if the ledger does not store it.
    """

    invocation: Invocation
    lake: Lake
    notes: RunNotes
    manifest: Callable[[], Packed] | None

    def close(self, facts: ClosingFacts, *, watched: bool) -> RunEnd:
        """Decide, publish and write the ledger; nothing is written before the decision."""
        decision = decide(facts.nodes, facts.expected, facts.results, facts.settings)
        checkpoint(
            checkpoints.DECIDED, run_id=self.invocation.run_id, branch=self.invocation.branch
        )
        started = datetime.now(UTC)
        plan = self._plan(facts, decision)
        refused: str | None = None
        publish_id: str | None = None
        refusals: dict[str, tuple[Difference, ...]] = {}
        again: rebase.Rebase | rebase.GiveUp = rebase.GiveUp()
        picked: set[str] = set()
        for tries_left in reversed(range(_TRIES if plan.candidates else 0)):
            try:
                publish_id = self._publish(plan)
                self._tell_picked(picked)
                break
            except (CommitUnknown, PublishTorn, PublishUnverified):
                raise
            except SparkwapError as error:
                moved = self._cherry_picked(error, facts) if tries_left else {}
                failures = self._replacing_failures(error, facts) if tries_left else {}
                if moved or failures:
                    picked |= moved.keys()
                    facts = facts.with_moved(moved | failures)
                    plan = self._plan(facts, decision)
                    continue
                refused = str(error)
                if isinstance(error, PublishRefused):
                    refusals = _stopped(error.mismatches, facts, plan.reads)
                    again = self._plan_rebase(refusals, facts)
                # The run continues with a rebase; its row is written when the rebase has ended.
                rebase_follows = isinstance(again, rebase.Rebase)
                rows = refused_rows(plan.rows, refused, refusals, rebase_follows=rebase_follows)
                refused = self._record_refusal(rows, refused)
                break
        if not plan.candidates and facts.nodes:
            self.lake.ledger.append(plan.rows)
        return RunEnd(
            decision,
            facts.nodes,
            published=0 if refused else len(plan.candidates),
            refused=refused,
            seconds=(datetime.now(UTC) - started).total_seconds(),
            earlier=facts.earlier,
            notices=self._notices(facts),
            refusals=refusals,
            rebase=again if isinstance(again, rebase.Rebase) else None,
            gave_up=again.reason if isinstance(again, rebase.GiveUp) else "",
            sequential=not self.lake.store.backend.atomic,
            watched=watched,
            caught=facts.caught,
            continued=facts.continued,
            code_hash=plan.code_hash,
            publish_id=publish_id,
            tests=facts.expected,
            results=facts.results,
        )

    def _plan(self, facts: ClosingFacts, decision: Decision) -> ClosingPlan:
        code: Packed | None = None
        if self.manifest is not None and facts.nodes:
            # A later command may publish what this one leaves on the branch.
            code = self.manifest()
        rows = Rows(self.invocation, self.notes, facts, decision).all(code)
        return ClosingPlan(
            tuple(facts.candidates[node_id] for node_id in decision.publish),
            tuple(rows),
            self._all_reads(facts, decision),
            code.hash if code else None,
        )

    def _cherry_picked(self, error: SparkwapError, facts: ClosingFacts) -> dict[str, Candidate]:
        """Move refused candidates to their `main` where it was only compacted; return these."""
        of_table = {one.identifier: node_id for node_id, one in facts.candidates.items()}
        mismatches = error.mismatches if isinstance(error, PublishRefused) else ()
        moved: dict[str, Candidate] = {}
        for mismatch in mismatches:
            node_id = of_table.get(mismatch.identifier, "")
            if mismatch.kind != "main" or not facts.is_of_this_run(node_id):
                continue
            candidate, found = facts.candidates[node_id], None
            if candidate.how == "branch":
                with suppress(SparkwapError):  # The publish is then refused, as it was.
                    found = self.lake.branches.cherry_pick(candidate)
            if found is not None:
                moved[node_id] = found
        return moved

    def _replacing_failures(
        self, error: SparkwapError, facts: ClosingFacts
    ) -> dict[str, Candidate]:
        """Return refused tables of stored failures, to replace those that another run published."""
        of_table = {
            facts.candidates[node.node_id].identifier: node.node_id
            for node in facts.nodes
            if node.kind == "failures"
        }
        mismatches = error.mismatches if isinstance(error, PublishRefused) else ()
        tables = {one.identifier for one in mismatches if one.kind == "standing"} & of_table.keys()
        try:
            # A model of another project may have got the name meanwhile.
            tables -= self.lake.ledger.owners().keys() if tables else set()
            live = self.lake.states(tables)
        except SparkwapError:  # The publish is then refused, as it was.
            return {}
        return {
            of_table[table]: replace(
                facts.candidates[of_table[table]],
                base=live[table].main if table in live else None,
                base_metadata=live[table].metadata_location if table in live else None,
            )
            for table in tables
        }

    def _tell_picked(self, node_ids: Collection[str]) -> None:
        for node_id in node_ids:
            self.notes.add_notice(
                node_id,
                "main was compacted meanwhile, which changed no row: the audited change was put on "
                "the compacted files",
            )

    def _publish(self, plan: ClosingPlan) -> str:
        settings = self.invocation.settings
        days = settings.tag_retention_days
        receipt = self.lake.publishing.publish(
            list(plan.candidates),
            run_id=self.invocation.run_id,
            tag=names.publish_tag(self.invocation.run_id),
            tag_max_age_ms=None if days is None else days * DAY_MS,
            branch=self.invocation.branch,
            appends=list(plan.rows),
            read=list(plan.reads),
            strict_reads=settings.reads == "strict",
            manifest_hash=plan.code_hash,
        )
        self._tell_moved(receipt.moved_reads, plan.reads)
        return receipt.publish_id

    def _all_reads(self, facts: ClosingFacts, decision: Decision) -> dict[Read, set[str]]:
        """Return each table read from ``main`` -> the published nodes that it was read for."""
        publish = set(decision.publish)
        read_for = {node_id: {node_id} for node_id in publish}
        read_for |= {test.test_id: set(test.reads) & publish for test in facts.tests}
        found: dict[Read, set[str]] = {}
        for reader, tokens in facts.reads.items():
            for name, token in tokens.items():
                schema, _, table = name.partition(".")
                nodes = read_for.get(reader)
                if nodes and (schema, table) not in facts.tables:
                    found.setdefault(Read((schema, table), token), set()).update(nodes)
        return found

    def _notices(self, facts: ClosingFacts) -> dict[str, tuple[str, ...]]:
        notes = self.notes.notices
        return {
            node_id: (*notes.get(node_id, ()), *facts.notices.get(node_id, ()))
            for node_id in dict.fromkeys([*notes, *facts.notices])
        }

    def _plan_rebase(
        self, refusals: Mapping[str, Collection[Difference]], facts: ClosingFacts
    ) -> rebase.Rebase | rebase.GiveUp:
        run = self.invocation
        if run.rebuild_of is not None or run.command not in REBASED_COMMANDS:
            # The first run repeats a rebase that failed; an operation builds nothing.
            return rebase.GiveUp()
        buildable = {node.node_id for node in facts.nodes} if run.repeats else facts.now
        # Several runs have added to these: one more build would contain only a part.
        buildable = buildable - facts.continued
        tries = run.settings.rebuilds
        return rebase.decide(refusals, facts.nodes, buildable, tried=0, tries=tries)

    def _tell_moved(self, moved: Sequence[Mismatch], reads: Mapping[Read, Collection[str]]) -> None:
        for one in moved:
            nodes = {
                n for read, ns in reads.items() if read.identifier == one.identifier for n in ns
            }
            self.notes.add_notice(
                min(nodes),
                f"{'.'.join(one.identifier)} was read at {one.expected}, and is at {one.found} now "
                "(with wap_reads: strict, the run would have been built again)",
            )

    def _record_refusal(self, rows: Sequence[LedgerRows], refused: str) -> str:
        try:
            self.lake.ledger.append(rows)
        except SparkwapError as error:
            # The cause, such as a full disk, may also prevent writes to the ledger.
            return f"{refused}\nThe ledger has no row of this run: {error}"
        return refused


def _stopped(
    mismatches: Sequence[Mismatch], facts: ClosingFacts, reads: Mapping[Read, Collection[str]]
) -> dict[str, tuple[Difference, ...]]:
    """Return node id -> the kinds of differences for which its publish was refused."""
    of_table = {one.identifier: node_id for node_id, one in facts.candidates.items()}
    found: dict[str, set[Difference]] = {}
    for mismatch in mismatches:
        if mismatch.kind == "read":
            readers = (ns for read, ns in reads.items() if read.identifier == mismatch.identifier)
            stopped = {node_id for nodes in readers for node_id in nodes}
        else:
            stopped = {of_table.get(mismatch.identifier, ".".join(mismatch.identifier))}
        for node_id in stopped:
            found.setdefault(node_id, set()).add(mismatch.kind)
    return {node_id: tuple(sorted(kinds)) for node_id, kinds in found.items()}
