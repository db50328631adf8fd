"""The gate: which tables of a run are published, held or rejected, and why.

The decision uses facts alone: what was built on the audit branch, which tests read it, and what
each test found. It fails closed: anything missing, stale or unknown keeps a table on the branch.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sparkwap.core.errors import GateError
from sparkwap.core.text import some_of
from sparkwap.gate.audit_outcomes import AuditOutcome, audit_outcome, format_result, rejects
from sparkwap.gate.facts import PARTIAL, AuditTest, BuiltNode, TestResult
from sparkwap.gate.settings import GateSettings

Outcome = Literal["published", "held", "rejected"]
RunOutcome = Literal["published", "partial", "held", "rejected", "nothing"]

PUBLISHING_OFF = "publishing is off (wap_publish: never)"
UNTESTED = "no test reads it, and wap_require_tests is true"
UNKNOWN_TESTS = "it is not in the project of this command, so its tests are not known"
HELD_WARNING = "and wap_warnings is hold"
CHANGED_RULE = "when main was last published (wap_warnings: publish accepts it)"
"""Reasons, or ends of reasons, for which the summary names a command."""

STALE = "it was built on rows that have changed since: build it again on the present rows of"
"""Beginning of a reason: an upstream table was built again after it."""

OTHER_CODE = (
    "it was built from other code than this checkout has: publish it from the checkout that built "
    "it, or build it again here"
)

# Such as a failed unit test of an ephemeral parent, which has no candidate.
_UNNAMED = "dbt skipped it because of a failure that is in dbt's log"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's decision about one node.

    Attributes:
        reasons: Why it is not published; empty for a published node.
        notices: Notices about a published node.
        passed: Number of tests that the present candidate passed, warnings included.
        expected: Number of tests that it must pass.
        failed: Names of failed tests that `wap_accept` can accept.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    passed: int = 0
    expected: int = 0
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The gate's decision about a run.

    Attributes:
        verdicts: The verdict by node id, in the order of the nodes.
        publish: Ids of the nodes to publish now, all in one transaction.
        outcome: `published` (all), `partial` (some), `rejected` or `held` (none), or `nothing`
            if there are no nodes. Tables of stored failures count only if there are no others.
        failed: A node was rejected, so the exit code must not be 0.
    """

    verdicts: dict[str, Verdict]
    publish: tuple[str, ...]
    outcome: RunOutcome
    failed: bool


def decide(
    nodes: Iterable[BuiltNode],
    tests: Iterable[AuditTest],
    results: Iterable[TestResult],
    settings: GateSettings,
) -> Decision:
    """Decide which tables of a run are published.

    Args:
        nodes: All nodes on the audit branch, from this run and earlier ones.
        results: All known results. Of several results of a test, those that audited the present
            candidates count, and the worst of these wins. Results of other tests do not count.
    """
    by_id = _index(nodes)
    tests = tuple(tests)
    gated = {key: node for key, node in by_id.items() if node.kind != "failures"}
    own = _own_verdicts(gated, tests, results, settings)
    if settings.publish == "run":
        verdicts = _whole_run(gated, own)
    elif settings.publish == "lineage":
        verdicts = _closed(gated, tests, own)
    else:
        verdicts = _hold_clean(own, PUBLISHING_OFF)
    complete = all(verdict.outcome == "published" for verdict in verdicts.values())
    verdicts |= {
        key: _stored_failures(node, complete=complete, settings=settings)
        for key, node in by_id.items()
        if key not in gated
    }
    ordered = {key: verdicts[key] for key in by_id}
    return Decision(
        verdicts=ordered,
        publish=tuple(key for key, verdict in ordered.items() if verdict.outcome == "published"),
        outcome=_run_outcome([ordered[key].outcome for key in gated or by_id]),
        failed=any(verdict.outcome == "rejected" for verdict in ordered.values()),
    )


def _index(nodes: Iterable[BuiltNode]) -> dict[str, BuiltNode]:
    by_id: dict[str, BuiltNode] = {}
    for node in nodes:
        if node.node_id in by_id:
            # Either record could publish a candidate that the other one rejects.
            raise GateError(
                f"The gate got two records of {node.name} ({node.node_id}). Nothing was "
                "published; all tables are still on the audit branch. See them with: "
                "dbt run-operation wap_status"
            )
        by_id[node.node_id] = node
    return by_id


def _own_verdicts(
    nodes: Mapping[str, BuiltNode],
    tests: Iterable[AuditTest],
    results: Iterable[TestResult],
    settings: GateSettings,
) -> dict[str, Verdict]:
    """Return the verdict on each node by itself; `published` for a clean one."""
    results_of: defaultdict[str, list[TestResult]] = defaultdict(list)
    for result in results:
        results_of[result.test_id].append(result)
    audits_of: defaultdict[str, list[AuditOutcome]] = defaultdict(list)
    for test in tests:
        audit = audit_outcome(test, results_of[test.test_id], nodes)
        for key in test.nodes & nodes.keys():
            audits_of[key].append(audit)
    verdicts = {
        key: _not_built(node, audits_of[key], results_of)
        if node.status == "skipped"
        else _own_verdict(node, audits_of[key], settings)
        for key, node in nodes.items()
    }
    return _name_causes(nodes, verdicts)


def _own_verdict(
    node: BuiltNode, audits: Sequence[AuditOutcome], settings: GateSettings
) -> Verdict:
    warned = [audit.text for audit in audits if audit.state == "warn"]
    accepted = [audit.text for audit in audits if audit.state == "accepted"]
    passed = sum(audit.lets_through for audit in audits)
    verdict = Verdict("published", passed=passed, expected=len(audits))
    reasons = _build_faults(node) + [audit.text for audit in audits if audit.state == "bad"]
    if reasons:
        failed = [audit.test.name for audit in audits if audit.acceptable]
        return replace(
            verdict, outcome="rejected", reasons=_unique(reasons), failed=_unique(failed)
        )
    reasons = [PARTIAL[node.status]] if node.status in PARTIAL else _missing(audits)
    if node.stale:
        reasons.append(f"{STALE} {', '.join(node.stale)}")
    if node.outdated:
        reasons.append(OTHER_CODE)
    if settings.warnings == "hold":
        reasons += [f"{text}, {HELD_WARNING}" for text in warned]
    if settings.warnings == "known":
        reasons += _changed_rules(audits)
    if not node.known:
        reasons.append(UNKNOWN_TESTS)
    elif settings.require_tests and not audits:
        reasons.append(UNTESTED)
    if reasons:
        return replace(verdict, outcome="held", reasons=_unique(reasons))
    return replace(verdict, notices=_unique(accepted + warned + _thin_audit(audits)))


def _build_faults(node: BuiltNode) -> list[str]:
    detail = f": {node.problem}" if node.problem else ""
    if node.status == "failed":
        return [f"build failed{detail}"]
    if node.status != "built" and node.status not in PARTIAL:
        return [f"build ended with the unknown status {node.status!r}{detail}"]
    if node.problem is not None:
        return [node.problem or "an invariant did not hold"]
    # An empty token does not distinguish two builds.
    return [] if node.candidate else ["build left no candidate"]


def _changed_rules(audits: Sequence[AuditOutcome]) -> list[str]:
    """Return a reason for each passed test with another rule than at the last publish.

    A severity, a threshold or an argument may come from a variable of the command line.
    """
    return [
        f"{audit.text}, but {audit.changed} {CHANGED_RULE}"
        for audit in audits
        if audit.lets_through and audit.changed
    ]


def _thin_audit(audits: Sequence[AuditOutcome]) -> list[str]:
    if not audits:
        return ["published without any test"]
    if all(audit.test.kind == "unit" for audit in audits):
        return ["published with unit tests only: no test has read its rows"]
    return []


def _missing(audits: Sequence[AuditOutcome]) -> list[str]:
    """Return one reason for each cause why tests did not audit the present candidates."""
    by_cause: defaultdict[str, list[str]] = defaultdict(list)
    for audit in audits:
        if audit.state == "missing":
            by_cause[audit.text].append(audit.test.name)
    return [
        f"{'test' if len(names) == 1 else 'tests'} {some_of(names)} {cause}"
        for cause, names in by_cause.items()
    ]


def _not_built(
    node: BuiltNode, audits: Sequence[AuditOutcome], results_of: Mapping[str, Sequence[TestResult]]
) -> Verdict:
    """Return the verdict on a node that dbt skipped; `_name_causes` adds a missing reason."""
    # dbt runs a model's unit tests before the model, and skips the model if one of them fails: the
    # result then has no candidate.
    failed = [
        f"not built: unit {format_result(audit.test, result)}"
        for audit in audits
        if audit.test.kind == "unit"
        for result in results_of[audit.test.test_id]
        if rejects(result.status) and result.audited.get(node.node_id) in (None, node.candidate)
    ]
    outcome: Outcome = "rejected" if failed else "held"
    return Verdict(outcome, _unique(failed), expected=len(audits))


def _name_causes(
    nodes: Mapping[str, BuiltNode], verdicts: Mapping[str, Verdict]
) -> dict[str, Verdict]:
    """Name the nearest rejected upstream node as the reason of each skipped node."""
    rejected = [key for key, verdict in verdicts.items() if verdict.outcome == "rejected"]
    causes = nearest_upstream(nodes, rejected)
    named = dict(verdicts)
    for key, verdict in verdicts.items():
        if not verdict.reasons and nodes[key].status == "skipped":
            cause = causes.get(key)
            reason = f"upstream {nodes[cause].name} was rejected" if cause else _UNNAMED
            named[key] = replace(verdict, reasons=(f"not built: {reason}",))
    return named


def _whole_run(nodes: Mapping[str, BuiltNode], own: Mapping[str, Verdict]) -> dict[str, Verdict]:
    blocking = [key for key, verdict in own.items() if _is_kept(verdict)]
    if not blocking:
        return dict(own)
    names = some_of([nodes[key].name for key in blocking])
    return _hold_clean(
        own, f"waits for the run: {len(blocking)} of {len(own)} tables cannot publish ({names})"
    )


def _closed(
    nodes: Mapping[str, BuiltNode], tests: Iterable[AuditTest], own: Mapping[str, Verdict]
) -> dict[str, Verdict]:
    """Hold the descendants and the test partners of each node that is not published.

    A test of two tables passed on both candidates. If only one of them were published, readers
    would see a pair that no test has read.
    """
    pairs = [sorted(test.nodes & nodes.keys()) for test in tests]
    verdicts = dict(own)
    before: dict[str, Verdict] = {}
    while verdicts != before:
        before = dict(verdicts)
        kept = [key for key, verdict in verdicts.items() if _is_kept(verdict)]
        for key, cause in nearest_upstream(nodes, kept).items():
            if not _is_kept(verdicts[key]):
                blocking = f"{nodes[cause].name}, which is {verdicts[cause].outcome}"
                verdicts[key] = _held(own[key], f"waits for upstream {blocking}")
        for read in pairs:
            apart = [key for key in read if _is_kept(verdicts[key])]
            for key in read:
                if apart and not _is_kept(verdicts[key]):
                    names = some_of([nodes[other].name for other in apart])
                    verdicts[key] = _held(own[key], f"its tests also read {names}, not published")
    return verdicts


def _is_kept(verdict: Verdict) -> bool:
    return verdict.outcome != "published"


def _hold_clean(own: Mapping[str, Verdict], reason: str) -> dict[str, Verdict]:
    return {
        key: verdict if _is_kept(verdict) else _held(verdict, reason)
        for key, verdict in own.items()
    }


def _held(clean: Verdict, reason: str) -> Verdict:
    return replace(clean, outcome="held", reasons=(reason,), notices=())


def _stored_failures(node: BuiltNode, *, complete: bool, settings: GateSettings) -> Verdict:
    """Return the verdict on a table of stored failures: it never stops the publish of the run."""
    faults = [f"not built: {_UNNAMED}"] if node.status == "skipped" else _build_faults(node)
    faults = faults or ([PARTIAL[node.status]] if node.status in PARTIAL else [])
    if faults:
        return Verdict("held", tuple(faults))
    if settings.publish not in ("run", "lineage"):
        return Verdict("held", (PUBLISHING_OFF,))
    if not complete:
        return Verdict("held", ("waits for the run: not all of its tables publish",))
    return Verdict("published")


def nearest_upstream(nodes: Mapping[str, BuiltNode], sources: Iterable[str]) -> dict[str, str]:
    """Return, for each node downstream of `sources`, the nearest of them; a breadth-first walk."""
    children: defaultdict[str, list[str]] = defaultdict(list)
    for key, node in nodes.items():
        for parent in node.parents:
            children[parent].append(key)
    nearest: dict[str, str] = {}
    queue = deque((source, source) for source in sources)
    while queue:
        key, source = queue.popleft()
        for child in children[key]:
            if child not in nearest:
                nearest[child] = source
                queue.append((child, source))
    return nearest


def _run_outcome(outcomes: Sequence[Outcome]) -> RunOutcome:
    kinds = set(outcomes)
    if not kinds:
        return "nothing"
    if "published" in kinds:
        return "published" if len(kinds) == 1 else "partial"
    return "rejected" if "rejected" in kinds else "held"


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
