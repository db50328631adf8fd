"""The outcome of each audit: whether a test passed on the present candidates of the branch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sparkwap.core.text import counted, first_line, some_of
from sparkwap.gate.facts import NOT_RUN, PARTIAL, AuditTest, BuiltNode, TestResult, TestRule

_SKIPPED = 2
_SEVERITIES = {"pass": 0, "warn": 1, **dict.fromkeys(NOT_RUN, _SKIPPED), "fail": 3, "error": 4}
_UNKNOWN = 5
_LET_THROUGH = ("pass", "warn", "accepted")
_OUTDATED = "changed since the last pass, so that a new run is needed"
_OF_EARLIER = " in an earlier run; it is not a test of this run"


def rejects(status: str) -> bool:
    """Return whether this status of a test rejects the tables that the test read."""
    return _SEVERITIES.get(status, _UNKNOWN) > _SKIPPED


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """The outcome of a test for the present candidates.

    Attributes:
        state: `pass`, `warn`, `accepted` (it found no more rows than `wap_accept` allows),
            `missing` (it did not audit the candidates) or `bad` (a failure, an error, an unknown
            status).
        text: The message. For `missing` without the test's name, so that tests with the same cause
            share one reason.
        acceptable: It failed on a number of rows, so `wap_accept` can accept it.
        changed: The change of its rule since the last publish of `main`; empty for none.
    """

    test: AuditTest
    state: Literal["pass", "warn", "accepted", "missing", "bad"]
    text: str
    acceptable: bool = False
    changed: str = ""

    @property
    def lets_through(self) -> bool:
        """Whether this test allows the publish of the candidates."""
        return self.state in _LET_THROUGH


def audit_outcome(
    test: AuditTest, results: Sequence[TestResult], nodes: Mapping[str, BuiltNode]
) -> AuditOutcome:
    """Return the outcome of a test: the worst of its valid results."""
    read = [nodes[key] for key in sorted(test.nodes & nodes.keys())]
    saw = [result for result in results if all(_saw(result, node) for node in read)]
    valid = [result for result in saw if not _is_outdated(test, result)]
    if not valid:
        return AuditOutcome(test, "missing", _OUTDATED if saw else _why_missing(results, read))
    worst = max(valid, key=lambda one: (_effective_severity(test, one), one.failures or 0))
    changed = [_changed(test.former, one) for one in valid if one.status in _LET_THROUGH]
    # One result of the former rule is enough.
    changed_rule = min(changed) if changed else ""
    if test.accepted is not None and _is_accepted(test, worst):
        text = f"{format_result(test, worst)}, accepted {test.accepted.terms}"
        return AuditOutcome(test, "accepted", text, changed=changed_rule)
    severity = _severity(worst)
    if severity == _SKIPPED:
        return AuditOutcome(test, "missing", NOT_RUN[worst.status])
    if severity > _SKIPPED:
        may = worst.status == "fail" and test.kind == "data" and bool(worst.failures)
        return AuditOutcome(test, "bad", format_result(test, worst), acceptable=may)
    state: Literal["pass", "warn"] = "pass" if severity == 0 else "warn"
    return AuditOutcome(test, state, format_result(test, worst), changed=changed_rule)


def _changed(former: TestRule | None, result: TestResult) -> str:
    """Return the change by which a rule may pass rows that the former rule rejected, or ''."""
    now = result.rule
    if former is None or now is None:
        return ""
    # A test that passed found no rows, unless it has thresholds: dbt does not report rows below
    # them.
    lets = result.status == "warn" or "_if " in now.severity
    if lets and now.severity != former.severity:
        return f"its severity was '{former.severity}'"
    if now.inputs is None or former.inputs is None:
        return ""
    others = _changed_inputs(now.inputs, former.inputs)
    if others:
        return f"{some_of(others)} {'was another' if len(others) == 1 else 'were others'}"
    # The same code made another query, so one of the given variables has changed it.
    same_code = now.code is not None and now.code == former.code
    if not same_code or None in (now.sql, former.sql) or now.sql == former.sql:
        return ""
    others = _changed_inputs(now.given, former.given)
    so = "so was" if len(others) == 1 else "so were"
    return f"its query was another, and {so} {some_of(others)}" if others else ""


def _changed_inputs(now: Mapping[str, str], former: Mapping[str, str]) -> list[str]:
    # A variable that is not given has the value in the project's code.
    return sorted(name for name, token in now.items() if former.get(name) != token)


def _effective_severity(test: AuditTest, result: TestResult) -> int:
    return _SEVERITIES["warn"] if _is_accepted(test, result) else _severity(result)


def _is_accepted(test: AuditTest, result: TestResult) -> bool:
    accepted = test.accepted
    return (
        accepted is not None
        and result.status in ("fail", "warn")
        and result.failures is not None
        and 0 < result.failures <= accepted.failures
    )


def _is_outdated(test: AuditTest, result: TestResult) -> bool:
    """Return whether a test passed with other code than it has now; a failure stays valid."""
    code = result.rule.code if result.rule else None
    lets = _effective_severity(test, result) <= _SEVERITIES["warn"]
    return lets and None not in (code, test.code) and code != test.code


def _saw(result: TestResult, node: BuiltNode) -> bool:
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
        return f"could not audit it, as {some_of(absent)} {verb} not {'wholly ' * partly}built"
    if not results:
        return "did not run"
    if all(_severity(result) == _SKIPPED for result in results):
        return NOT_RUN[results[-1].status]
    seen = [(node, result.audited.get(node.node_id)) for result in results for node in read]
    stale = dict.fromkeys(node.name for node, token in seen if token and token != node.candidate)
    if stale:
        return f"audited an older candidate of {some_of(list(stale))}"
    blind = some_of(list(dict.fromkeys(node.name for node, token in seen if not token)))
    return (
        f"did not read {blind} as it is on the branch: read it with ref(), not a metadata table "
        "or `version as of`, and build the views in between in the same run"
    )


def format_result(test: AuditTest, result: TestResult) -> str:
    """Return a test's result in words, such as `test not_null_x failed (1 row)`."""
    verbs = {"pass": "passed", "warn": "warned", "fail": "failed", "error": "ended in an error"}
    verb = verbs.get(result.status, f"ended with the unknown status {result.status!r}")
    detail = first_line(result.message)
    if result.status in ("warn", "fail") and result.failures is not None:
        detail = first_line(result.finding) or counted(result.failures, "row")
    text = f"test {test.name} {verb}" + (f" ({detail})" if detail else "")
    return text if test.known else text + _OF_EARLIER
