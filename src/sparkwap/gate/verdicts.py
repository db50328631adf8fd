"""The gate: which tables of a run are published, held or rejected, and why.

A decision is made from facts alone: what was built on the audit branch, which tests read it, and
what each test saw. It fails closed: whatever is missing, stale or unknown keeps a table on the
branch.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sparkwap.core.errors import GateError
from sparkwap.gate.settings import GateSettings

Outcome = Literal["published", "held", "rejected"]
RunOutcome = Literal["published", "partial", "held", "rejected", "nothing"]

PUBLISHING_OFF = "publishing is off (wap_publish: never)"
UNTESTED = "no test reads it, and wap_require_tests is true"
UNKNOWN_TESTS = "its tests are not known to this command, which does not have it in its project"
HELD_WARNING = "and wap_warnings is hold"
CHANGED_RULE = "when main was last published (wap_warnings: publish accepts it)"
"""Reasons, or their ends, that call for a command of their own."""

STALE = "it was built on rows that are not there any more: build it again, on those of"
"""The beginning of a reason: an upstream table was built anew after it."""

PARTIAL = {
    "empty": "it was built with --empty, without its rows",
    "sample": "it was built with --sample, on a part of its rows",
}
"""Statuses of nodes that were built on fewer rows than there are: never to be published."""

NOT_RUN = {
    "skipped": "did not run (skipped)",
    "disabled": "is disabled (wap_disabled_tests: publish accepts it)",
    "empty": "ran with --empty, on no rows",
    "sample": "ran with --sample, on a part of the rows",
    "gone": "is not there with the --vars of this call (wap_warnings: publish accepts it)",
    "elsewhere": "is of the project that built it last (wap_warnings: publish accepts it)",
    "deferred": "read the tables of another state (--favor-state)",
}
"""Statuses of tests that saw nothing, or not what is to be published, in words."""

_OTHER_TEXT = "passed with another text than now, so that it has to run again"
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class BuiltNode:
    """A table or view that dbt built, or should have built, on the audit branch.

    Attributes:
        node_id: dbt's unique id.
        name: `schema.table`, for people.
        kind: `model`, `snapshot`, `seed`, or `failures` for the table of a test with
            `store_failures`.
        status: `built`, `failed`, or `skipped` when dbt did not try; `empty` or `sample` for a
            build on none or a part of the rows. Any other text rejects.
        candidate: A token that names exactly what the build left, and differs for every build;
            None when there is nothing.
        problem: An invariant that did not hold (`main` moved, the branch head did not move, the
            table is not WAP-enabled), in words; None when all held.
        parents: Ids of upstream nodes: at least the direct ones. Ids that are not among the nodes
            of the decision do not matter, so a caller puts what it reads itself in the place of
            an ephemeral model or of a view that was not built.
        known: The caller knows all tests that read it. Those of another project on the same branch
            it does not: the tests that it expects are then not all there are.
        stale: Names of upstream tables of which it has read other candidates than those that are
            there now, such as ones that were rejected since.
    """

    node_id: str
    name: str
    kind: str
    status: str
    candidate: str | None
    problem: str | None = None
    parents: frozenset[str] = frozenset()
    known: bool = True
    stale: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """By what a test judges rows, as far as that may be another without another code.

    Attributes:
        severity: Its severity, with thresholds: `error`, `warn, error_if > 10`.
        inputs: What it uses that came from outside of the project: each variable, such as
            `var max_age` or `env_var MAX_AGE` -> a token of its value; None if not known.
        code: A token of the code that makes its query; None if the same code may make another one
            in each run, or if not known.
        sql: A token of its query, without the names of the run; None if not known.
        given: As `inputs`, all that its command was given, whether the test uses it or not.
    """

    severity: str
    inputs: Mapping[str, str] | None = None
    code: str | None = None
    sql: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What somebody has put on record of a test that fails: that its rows are right as they are.

    Attributes:
        failures: Up to so many failing rows are accepted.
        told: By whom, until when and why, in words.
    """

    failures: int
    told: str


@dataclass(frozen=True, slots=True)
class AuditTest:
    """A test that is expected: enabled in the manifest, and it reads at least one built node.

    Or one that the caller does not have, and that failed on what is to be decided on.

    Attributes:
        test_id: dbt's unique id.
        name: The test's name, for people.
        nodes: Ids of the nodes it reads, built in this run or not.
        kind: `data` or `unit`.
        former: The rule that it had when its rows were last published; None if they never were,
            or if nothing could let rows through by another one.
        known: The caller has it; else only its results are known.
        accepted: What it may find, as somebody has accepted that; None for nothing.
        code: As in `Rule`, of the test as it is now.
    """

    test_id: str
    name: str
    nodes: frozenset[str]
    kind: str = "data"
    former: Rule | None = None
    known: bool = True
    accepted: Acceptance | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class TestResult:
    """What a test said, and about what.

    Attributes:
        test_id: dbt's unique id.
        status: `pass`, `warn`, `fail`, `error`, or one of `NOT_RUN`. Any other text rejects.
        failures: Number of rows that failed; None where that is not known.
        message: dbt's message; None where there is none.
        audited: The candidate token that the test saw, by node id. A node that is missing was
            not audited. For a unit test: the candidate that the tested code has built.
        finding: What it found, in words, where that says more than a number of rows.
        rule: By what it judged; None if not known.
    """

    __test__ = False  # or pytest takes it for a test class

    test_id: str
    status: str
    failures: int | None = None
    message: str | None = None
    audited: Mapping[str, str] = field(default_factory=dict)
    finding: str | None = None
    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate says about one node.

    Attributes:
        outcome: `published`, `held` or `rejected`.
        reasons: Why it is not published; empty for a published node.
        notices: What a reader should know although it stops nothing.
        passed: Number of tests that let the present candidate through, warnings included.
        expected: Number of tests that must do so.
        failed: Names of the tests that failed on it and that somebody may accept.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    passed: int = 0
    expected: int = 0
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate says about a run.

    Attributes:
        verdicts: The verdict by node id, in the order of the nodes.
        publish: Ids of the nodes to publish now, all in one transaction.
        outcome: `published` (all), `partial` (some), `rejected` or `held` (none), or `nothing`
            when there were no nodes. Tables of stored failures count only when alone.
        failed: Something was rejected, so the exit code must not be 0.
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
    """Decide what of a run is published.

    Args:
        nodes: All nodes on the audit branch, from this run and earlier ones.
        tests: All tests that are expected for them.
        results: The results at hand. Of several for one test those that audited the present
            candidates count, and the worst of them wins. Results of other tests do not count.
        settings: The mode of publishing, and what to do with warnings and missing tests.

    Raises:
        GateError: A node is given twice.
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
            # Taking either could publish a candidate that the other says is bad.
            raise GateError(
                f"The gate was told twice about {node.name} ({node.node_id}); nothing was "
                "published, and all is still on the audit branch. See it with: "
                "dbt run-operation wap_status"
            )
        by_id[node.node_id] = node
    return by_id


# --- each node by itself ------------------------------------------------------------------------


def _own_verdicts(
    nodes: Mapping[str, BuiltNode],
    tests: Iterable[AuditTest],
    results: Iterable[TestResult],
    settings: GateSettings,
) -> dict[str, Verdict]:
    """Return each node's verdict as if it were alone; a clean one is `published`."""
    results_of: defaultdict[str, list[TestResult]] = defaultdict(list)
    for result in results:
        results_of[result.test_id].append(result)
    audits_of: defaultdict[str, list[_Audit]] = defaultdict(list)
    for test in tests:
        audit = _audit(test, results_of[test.test_id], nodes)
        for key in test.nodes & nodes.keys():
            audits_of[key].append(audit)
    verdicts = {
        key: _not_built(node, audits_of[key], results_of)
        if node.status == "skipped"
        else _own_verdict(node, audits_of[key], settings)
        for key, node in nodes.items()
    }
    return _name_causes(nodes, verdicts)


def _own_verdict(node: BuiltNode, audits: Sequence["_Audit"], settings: GateSettings) -> Verdict:
    warned = [audit.text for audit in audits if audit.state == "warn"]
    accepted = [audit.text for audit in audits if audit.state == "accepted"]
    passed = sum(audit.state in _LET_THROUGH for audit in audits)
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
    # An empty token cannot tell one build from another.
    return [] if node.candidate else ["build left no candidate"]


def _changed_rules(audits: Sequence["_Audit"]) -> list[str]:
    """Return a reason for each test that may have let rows through by another rule than before.

    A severity, a threshold, or an argument, may come from a variable of the command line.
    """
    return [
        f"{audit.text}, but {audit.changed} {CHANGED_RULE}"
        for audit in audits
        if audit.state in _LET_THROUGH and audit.changed
    ]


def _thin_audit(audits: Sequence["_Audit"]) -> list[str]:
    if not audits:
        return ["published without any test"]
    if all(audit.test.kind == "unit" for audit in audits):
        return ["published with unit tests only: no test has read its rows"]
    return []


def _missing(audits: Sequence["_Audit"]) -> list[str]:
    """Return one reason for each way in which tests did not audit the present candidates."""
    by_cause: defaultdict[str, list[str]] = defaultdict(list)
    for audit in audits:
        if audit.state == "missing":
            by_cause[audit.text].append(audit.test.name)
    return [
        f"{'test' if len(names) == 1 else 'tests'} {_some(names)} {cause}"
        for cause, names in by_cause.items()
    ]


def _not_built(
    node: BuiltNode, audits: Sequence["_Audit"], results_of: Mapping[str, Sequence[TestResult]]
) -> Verdict:
    """Return the verdict on a node that dbt skipped; `_name_causes` adds a missing reason."""
    # dbt runs a model's unit tests before the model, and skips the model when one of them fails:
    # such a result has no candidate that it could have audited.
    failed = [
        f"not built: unit {_said(audit.test, result)}"
        for audit in audits
        if audit.test.kind == "unit"
        for result in results_of[audit.test.test_id]
        if _severity(result) > _SKIPPED
        and result.audited.get(node.node_id) in (None, node.candidate)
    ]
    outcome: Outcome = "rejected" if failed else "held"
    return Verdict(outcome, _unique(failed), expected=len(audits))


def _name_causes(
    nodes: Mapping[str, BuiltNode], verdicts: Mapping[str, Verdict]
) -> dict[str, Verdict]:
    """Give the skipped nodes their reason: the nearest rejected node upstream of them."""
    causes = nearest_upstream(nodes, _with_outcome(verdicts, "rejected"))
    named = dict(verdicts)
    for key, verdict in verdicts.items():
        if not verdict.reasons and nodes[key].status == "skipped":
            cause = causes.get(key)
            reason = f"upstream {nodes[cause].name} was rejected" if cause else _UNNAMED
            named[key] = replace(verdict, reasons=(f"not built: {reason}",))
    return named


# --- the tests ----------------------------------------------------------------------------------

# Such as a failed unit test of an ephemeral parent, which has no candidate.
_UNNAMED = "dbt skipped it for a failure that its log names"
_SKIPPED = 2
_SEVERITIES = {"pass": 0, "warn": 1, **dict.fromkeys(NOT_RUN, _SKIPPED), "fail": 3, "error": 4}
_UNKNOWN = 5
_LET_THROUGH = ("pass", "warn", "accepted")
_OF_EARLIER = " in an earlier run, and is not among the tests of this one"


def rejects(status: str) -> bool:
    """Whether a test that ended so rejects what it has read."""
    return _SEVERITIES.get(status, _UNKNOWN) > _SKIPPED


@dataclass(frozen=True, slots=True)
class _Audit:
    """How a test stands to the present candidates.

    Attributes:
        test: The test.
        state: `pass`, `warn`, `accepted` (it failed, or would have, on no more rows than somebody
            has accepted), `missing` (it did not audit them) or `bad` (a failure, an error, an
            unknown status).
        text: What to say about it. For `missing` without the test's name, so that tests with the
            same cause can share one reason.
        acceptable: It counted rows that fail it, which somebody may find to be right.
        changed: By what it judged otherwise when `main` was last published; empty for nothing.
    """

    test: AuditTest
    state: Literal["pass", "warn", "accepted", "missing", "bad"]
    text: str
    acceptable: bool = False
    changed: str = ""


def _audit(
    test: AuditTest, results: Sequence[TestResult], nodes: Mapping[str, BuiltNode]
) -> _Audit:
    read = [nodes[key] for key in sorted(test.nodes & nodes.keys())]
    saw = [result for result in results if all(_saw(result, node) for node in read)]
    valid = [result for result in saw if not _is_outdated(test, result)]
    if not valid:
        return _Audit(test, "missing", _OTHER_TEXT if saw else _why_missing(results, read))
    worst = max(valid, key=lambda one: (_counted_as(test, one), one.failures or 0))
    changed = [_changed(test.former, one) for one in valid if one.status in _LET_THROUGH]
    # One by the former rule says enough.
    changed_rule = min(changed) if changed else ""
    if test.accepted is not None and _is_accepted(test, worst):
        told = f"{_said(test, worst)}, accepted {test.accepted.told}"
        return _Audit(test, "accepted", told, changed=changed_rule)
    severity = _severity(worst)
    if severity == _SKIPPED:
        return _Audit(test, "missing", NOT_RUN[worst.status])
    if severity > _SKIPPED:
        may = worst.status == "fail" and test.kind == "data" and bool(worst.failures)
        return _Audit(test, "bad", _said(test, worst), acceptable=may)
    state: Literal["pass", "warn"] = "pass" if severity == 0 else "warn"
    return _Audit(test, state, _said(test, worst), changed=changed_rule)


def _changed(former: Rule | None, result: TestResult) -> str:
    """Return what may have let rows through that the former rule would not have; empty for none."""
    now = result.rule
    if former is None or now is None:
        return ""
    # A test that passed has let none through, unless it has thresholds: dbt does not tell of rows
    # below them.
    lets = result.status == "warn" or "_if " in now.severity
    if lets and now.severity != former.severity:
        return f"its severity was '{former.severity}'"
    if now.inputs is None or former.inputs is None:
        return ""
    others = _given_otherwise(now.inputs, former.inputs)
    if others:
        return f"{_some(others)} {'was another' if len(others) == 1 else 'were others'}"
    # Another query of the same code: by something that was given, though the code does not say so.
    same_code = now.code is not None and now.code == former.code
    if not same_code or None in (now.sql, former.sql) or now.sql == former.sql:
        return ""
    others = _given_otherwise(now.given, former.given)
    so = "so was" if len(others) == 1 else "so were"
    return f"its query was another, and {so} {_some(others)}" if others else ""


def _given_otherwise(now: Mapping[str, str], former: Mapping[str, str]) -> list[str]:
    # What nothing is given for is as the code of the project has it.
    return sorted(name for name, token in now.items() if former.get(name) != token)


def _counted_as(test: AuditTest, result: TestResult) -> int:
    return _SEVERITIES["warn"] if _is_accepted(test, result) else _severity(result)


def _is_accepted(test: AuditTest, result: TestResult) -> bool:
    """Whether a result found no more than was accepted, be it a failure or by now a warning."""
    accepted = test.accepted
    return (
        accepted is not None
        and result.status in ("fail", "warn")
        and result.failures is not None
        and 0 < result.failures <= accepted.failures
    )


def _is_outdated(test: AuditTest, result: TestResult) -> bool:
    """Whether a test let rows through by another text than it has now; a failure stays one."""
    code = result.rule.code if result.rule else None
    lets = _counted_as(test, result) <= _SEVERITIES["warn"]
    return lets and None not in (code, test.code) and code != test.code


def _saw(result: TestResult, node: BuiltNode) -> bool:
    """Return whether a test saw the present candidate of a node; no candidate was ever seen."""
    if node.status != "built" or not node.candidate:
        return False
    return result.audited.get(node.node_id) == node.candidate


def _severity(result: TestResult) -> int:
    return _SEVERITIES.get(result.status, _UNKNOWN)


def _why_missing(results: Sequence[TestResult], read: Sequence[BuiltNode]) -> str:
    absent = [node.name for node in read if node.status != "built" or not node.candidate]
    if absent:
        verb = "was" if len(absent) == 1 else "were"
        partly = any(node.status in PARTIAL for node in read)
        return f"could not audit it, as {_some(absent)} {verb} not {'wholly ' * partly}built"
    if not results:
        return "did not run"
    if all(_severity(result) == _SKIPPED for result in results):
        return NOT_RUN[results[-1].status]
    seen = [(node, result.audited.get(node.node_id)) for result in results for node in read]
    stale = _unique(node.name for node, token in seen if token and token != node.candidate)
    if stale:
        return f"audited an older candidate of {_some(stale)}"
    blind = _some(_unique(node.name for node, token in seen if not token))
    return (
        f"did not read {blind} as it stands on the branch: name it by ref(), with no metadata "
        "table or `version as of` of it, and build the views in between along"
    )


def _said(test: AuditTest, result: TestResult) -> str:
    """Return a test's result in words, such as `test not_null_x failed (1 row)`."""
    verbs = {"pass": "passed", "warn": "warned", "fail": "failed", "error": "ended in an error"}
    verb = verbs.get(result.status, f"ended with the unknown status {result.status!r}")
    detail = _first_line(result.message)
    if result.status in ("warn", "fail") and result.failures is not None:
        rows = f"{result.failures:,} {'row' if result.failures == 1 else 'rows'}"
        detail = _first_line(result.finding) or rows
    said = f"test {test.name} {verb}" + (f" ({detail})" if detail else "")
    return said if test.known else said + _OF_EARLIER


# --- the nodes together -------------------------------------------------------------------------


def _whole_run(nodes: Mapping[str, BuiltNode], own: Mapping[str, Verdict]) -> dict[str, Verdict]:
    blocking = [key for key, verdict in own.items() if verdict.outcome != "published"]
    if not blocking:
        return dict(own)
    kinds = {own[key].outcome for key in blocking}
    what = " or ".join(kind for kind in ("rejected", "held") if kind in kinds)
    names = _some([nodes[key].name for key in blocking])
    return _hold_clean(
        own, f"waits for the run: {len(blocking)} of {len(own)} tables {what} ({names})"
    )


def _closed(
    nodes: Mapping[str, BuiltNode], tests: Iterable[AuditTest], own: Mapping[str, Verdict]
) -> dict[str, Verdict]:
    """Hold what hangs on a node that is not published: its descendants, and its test partners.

    A test over two tables has passed on both candidates together; if only one were published,
    readers would get a pair that no test has seen.
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
                    names = _some([nodes[other].name for other in apart])
                    verdicts[key] = _held(own[key], f"its tests also read {names}, not published")
    return verdicts


def _is_kept(verdict: Verdict) -> bool:
    return verdict.outcome != "published"


def _hold_clean(own: Mapping[str, Verdict], reason: str) -> dict[str, Verdict]:
    return {
        key: _held(verdict, reason) if verdict.outcome == "published" else verdict
        for key, verdict in own.items()
    }


def _held(clean: Verdict, reason: str) -> Verdict:
    return replace(clean, outcome="held", reasons=(reason,), notices=())


def _stored_failures(node: BuiltNode, *, complete: bool, settings: GateSettings) -> Verdict:
    """Return the verdict on a table of stored failures: it follows the run, and never stops it."""
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


def _with_outcome(verdicts: Mapping[str, Verdict], outcome: Outcome) -> list[str]:
    return [key for key, verdict in verdicts.items() if verdict.outcome == outcome]


def _run_outcome(outcomes: Sequence[Outcome]) -> RunOutcome:
    kinds = set(outcomes)
    if not kinds:
        return "nothing"
    if "published" in kinds:
        return "published" if len(kinds) == 1 else "partial"
    return "rejected" if "rejected" in kinds else "held"


# --- words --------------------------------------------------------------------------------------


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[0].strip() if lines else ""


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
