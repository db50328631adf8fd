"""The gate's decisions: a table of cases, and properties that hold for every input."""

from dataclasses import replace

import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkwap.core.errors import GateError
from sparkwap.gate.audit_outcomes import rejects
from sparkwap.gate.facts import NOT_RUN, Acceptance, AuditTest, BuiltNode, TestResult, TestRule
from sparkwap.gate.settings import GateSettings
from sparkwap.gate.verdicts import UNKNOWN_TESTS, Decision, Verdict, decide

RUN = GateSettings()
LINEAGE = GateSettings(publish="lineage")
NEVER = GateSettings(publish="never")


def node(key: str, *parents: str, status: str = "built", kind: str = "model") -> BuiltNode:
    candidate = f"{key}@2" if status == "built" else None
    return BuiltNode(key, f"s.{key}", kind, status, candidate, None, frozenset(parents))


def test_of(*keys: str, name: str | None = None, kind: str = "data") -> AuditTest:
    label = name or "t_" + "_".join(keys)
    return AuditTest(label, label, frozenset(keys), kind)


test_of.__test__ = False  # type: ignore[attr-defined]


def result(test: AuditTest, status: str = "pass", rows: int | None = None) -> TestResult:
    return TestResult(test.test_id, status, rows, None, {key: f"{key}@2" for key in test.nodes})


def outcomes(decision: Decision) -> dict[str, str]:
    return {key: verdict.outcome for key, verdict in decision.verdicts.items()}


def of_one(
    status: str | None,
    gate: GateSettings = RUN,
    built: BuiltNode | None = None,
    **change: object,
) -> Verdict:
    """Return the verdict on the table `a` with one test that ended with `status`."""
    test = test_of("a")
    results = [] if status is None else [replace(result(test, status, 3), **change)]  # type: ignore[arg-type]
    return decide([built or node("a")], [test], results, gate).verdicts["a"]


# --- one table ----------------------------------------------------------------------------------


def test_a_passed_candidate_is_published() -> None:
    test = test_of("a")
    decision = decide([node("a")], [test], [result(test)], RUN)
    assert decision == Decision(
        {"a": Verdict("published", passed=1, expected=1)}, ("a",), "published", False
    )


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        ("fail", "rejected", "test t_a failed (3 rows)"),
        ("error", "rejected", "test t_a ended in an error"),
        ("no-op", "rejected", "test t_a ended with the unknown status 'no-op'"),
        ("skipped", "held", "test t_a did not run (skipped)"),
        (None, "held", "test t_a did not run"),
    ],
)
def test_a_candidate_that_did_not_pass_is_not_published(
    status: str | None, outcome: str, reason: str
) -> None:
    verdict = of_one(status)
    assert (verdict.outcome, verdict.reasons) == (outcome, (reason,))
    assert (verdict.passed, verdict.expected) == (0, 1)


def test_the_message_of_an_error_is_one_line() -> None:
    verdict = of_one("error", message="  Table not found\n at line 3", failures=None)
    assert verdict.reasons == ("test t_a ended in an error (Table not found)",)


def test_one_failed_row_is_singular() -> None:
    assert of_one("fail", failures=1).reasons == ("test t_a failed (1 row)",)
    assert of_one("fail", failures=12000).reasons == ("test t_a failed (12,000 rows)",)


ACCEPTED = Acceptance(3, "by ada: a shop was closed")


def accepted(status: str, rows: int | None, gate: GateSettings = RUN, *more: TestResult) -> Verdict:
    test = replace(test_of("a"), accepted=ACCEPTED)
    return decide([node("a")], [test], [result(test, status, rows), *more], gate).verdicts["a"]


@pytest.mark.parametrize("status", ["fail", "warn"])
@pytest.mark.parametrize("gate", [RUN, GateSettings(warnings="hold")])
def test_an_accepted_failure_is_published_with_its_terms(status: str, gate: GateSettings) -> None:
    verdict = accepted(status, 3, gate)
    assert (verdict.outcome, verdict.passed) == ("published", 1)
    (notice,) = verdict.notices
    assert notice.endswith("(3 rows), accepted by ada: a shop was closed")


@pytest.mark.parametrize(
    ("status", "rows"), [("fail", 4), ("fail", None), ("fail", 0), ("error", 3), ("error", None)]
)
def test_more_rows_than_accepted_are_rejected(status: str, rows: int | None) -> None:
    assert accepted(status, rows).outcome == "rejected"


def test_the_result_with_more_rows_than_accepted_counts() -> None:
    beyond = result(test_of("a"), "fail", 4)
    assert accepted("fail", 3, RUN, beyond).outcome == "rejected"
    assert accepted("fail", 3, RUN, replace(beyond, audited={})).outcome == "published"


@pytest.mark.parametrize(
    ("statuses", "then", "outcome"),
    [
        (("pass",), "before", "held"),
        (("warn",), "before", "held"),
        (("fail",), "before", "rejected"),
        (("pass",), "now", "published"),
        (("pass",), None, "published"),
        (("pass", "pass"), "before", "published"),
        (("warn", "fail"), "before", "rejected"),
    ],
)
def test_a_test_that_changed_after_it_passed_has_to_run_again(
    statuses: tuple[str, ...], then: str | None, outcome: str
) -> None:
    test = replace(test_of("a"), code="now")
    codes = (then, "now")
    results = [
        replace(result(test, status), rule=TestRule("error", code=code))
        for status, code in zip(statuses, codes, strict=False)
    ]
    verdict = decide([node("a")], [test], results, RUN).verdicts["a"]
    assert verdict.outcome == outcome
    assert ("changed since the last pass" in "".join(verdict.reasons)) == (outcome == "held")


def test_a_failure_names_the_test_to_accept() -> None:
    assert of_one("fail").failed == ("t_a",)
    assert of_one("error").failed == of_one("fail", failures=None).failed == ()


@pytest.mark.parametrize(("status", "words"), NOT_RUN.items())
def test_a_test_without_a_valid_audit_holds(status: str, words: str) -> None:
    assert of_one(status) == Verdict("held", (f"test t_a {words}",), (), 0, 1)


@pytest.mark.parametrize("part", ["empty", "sample"])
@pytest.mark.parametrize("status", ["pass", "fail", "empty", None])
def test_a_partial_build_is_held_even_if_its_tests_pass(part: str, status: str | None) -> None:
    built = replace(node("a"), status=part)
    verdict = of_one(status, built=built)
    assert (verdict.outcome, len(verdict.reasons)) == ("held", 1)
    assert verdict.reasons[0].startswith(f"it was built with --{part}")
    assert decide([built], [], [], RUN).publish == ()


def test_a_test_cannot_audit_together_with_an_empty_build() -> None:
    both = test_of("a", "b")
    beside = [node("a"), replace(node("b"), status="empty")]
    decision = decide(beside, [both], [result(both)], LINEAGE)
    assert outcomes(decision) == {"a": "held", "b": "held"}
    assert decision.verdicts["a"].reasons == (
        "test t_a_b could not audit it, as s.b was not wholly built",
    )


FORMER = TestRule("error", {"var most": "1", "env_var DAY": "7"})
QUERIED = TestRule("error", {}, "code", "sql", {"the target": "dev", "var off": "1"})


@pytest.mark.parametrize(
    ("status", "rule", "told"),
    [
        ("warn", TestRule("warn", {}), "its severity was 'error'"),
        ("pass", TestRule("error, error_if > 9", {}), "its severity was 'error'"),
        ("pass", TestRule("error", {"var most": "2"}), "var most was another"),
        ("warn", TestRule("error", {"var new": "1"}), "var new was another"),
        (
            "pass",
            TestRule("error", {"var most": "2", "env_var DAY": "8"}),
            "env_var DAY, var most were",
        ),
    ],
)
def test_a_changed_rule_that_passes_rows_holds_until_accepted(
    status: str, rule: TestRule, told: str
) -> None:
    test = replace(test_of("a"), former=FORMER)
    found = replace(result(test, status, 3), rule=rule)

    def verdict(gate: GateSettings, *more: TestResult) -> Verdict:
        return decide([node("a")], [test], [found, *more], gate).verdicts["a"]

    held = verdict(RUN)
    assert held.outcome == "held"
    assert f"but {told}" in held.reasons[0]
    assert "when main was last published" in held.reasons[0]
    assert verdict(GateSettings(warnings="publish")).outcome == "published"
    assert verdict(RUN, replace(found, rule=FORMER, status="pass")).outcome == "published"


@pytest.mark.parametrize(
    ("former", "rule"),
    [
        (None, TestRule("warn", {"var most": "2"})),
        (FORMER, None),
        (FORMER, TestRule("warn", {})),
        (FORMER, TestRule("error", FORMER.inputs)),
        (TestRule("error"), TestRule("error", {"var most": "2"})),
        (FORMER, TestRule("error")),
    ],
)
def test_a_rule_that_passes_no_more_rows_holds_nothing(
    former: TestRule | None, rule: TestRule | None
) -> None:
    test = replace(test_of("a"), former=former)
    passed = replace(result(test, "pass", 0), rule=rule)
    assert decide([node("a")], [test], [passed], RUN).publish == ("a",)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"the target": "prod"}, "its query was another, and so was the target when"),
        ({"var x": "1", "var off": "2"}, "its query was another, and so were var off, var x when"),
        ({}, ""),
        (dict(QUERIED.given), ""),
    ],
)
def test_another_query_of_the_same_code_holds_if_given_values_differ(
    change: dict[str, str], told: str
) -> None:
    test = replace(test_of("a"), former=QUERIED)
    now = replace(QUERIED, sql="other", given=change)

    def verdict(rule: TestRule) -> Verdict:
        passed = replace(result(test, "pass", 0), rule=rule)
        return decide([node("a")], [test], [passed], RUN).verdicts["a"]

    found = verdict(now)
    assert (found.outcome, told in str(found.reasons)) == ("held" if told else "published", True)
    for same in (replace(now, sql="sql"), replace(now, sql=None)):
        assert verdict(same).outcome == "published"
    for changed in (replace(now, code="other"), replace(now, code=None)):
        assert verdict(changed).outcome == "published"


def test_warnings_publish_with_a_notice_or_hold() -> None:
    assert of_one("warn") == Verdict("published", (), ("test t_a warned (3 rows)",), 1, 1)
    held = of_one("warn", GateSettings(warnings="hold"))
    assert held.outcome == "held"
    assert held.reasons == ("test t_a warned (3 rows), and wap_warnings is hold",)


UNNAMED = "not built: dbt skipped it because of a failure that is in dbt's log"
BLIND = (
    "did not read s.a as it is on the branch: read it with ref(), not a metadata table or "
    "`version as of`, and build the views in between in the same run"
)


@pytest.mark.parametrize(
    ("audited", "reason"),
    [
        ({"a": "a@1"}, "test t_a audited an older candidate of s.a"),
        ({}, "test t_a " + BLIND),
        ({"b": "a@2"}, "test t_a " + BLIND),
    ],
)
@pytest.mark.parametrize("status", ["pass", "warn", "fail", "error"])
def test_only_an_audit_of_the_present_candidate_counts(
    status: str, audited: dict[str, str], reason: str
) -> None:
    verdict = of_one(status, audited=audited)
    assert (verdict.outcome, verdict.reasons) == ("held", (reason,))


@pytest.mark.parametrize(
    ("built", "reason"),
    [
        (replace(node("a"), status="failed"), "build failed"),
        (replace(node("a"), status="failed", problem="disk full"), "build failed: disk full"),
        (replace(node("a"), status="?"), "build ended with the unknown status '?'"),
        (replace(node("a"), problem="main moved"), "main moved"),
        (replace(node("a"), problem=""), "an invariant did not hold"),
        (replace(node("a"), candidate=None), "build left no candidate"),
        (replace(node("a"), candidate=""), "build left no candidate"),
    ],
)
def test_a_bad_build_is_rejected_even_if_its_tests_pass(built: BuiltNode, reason: str) -> None:
    test = test_of("a")
    seen = TestResult(test.test_id, "pass", 0, None, {"a": built.candidate or ""})
    decision = decide([built], [test], [seen], RUN)
    assert decision.verdicts["a"].outcome == "rejected"
    assert decision.verdicts["a"].reasons == (reason,)
    assert decision.failed


def test_the_worst_matching_result_counts() -> None:
    test = test_of("a")
    stale = replace(result(test, "fail"), audited={"a": "a@1"})

    def outcome(*results: TestResult) -> str:
        return decide([node("a")], [test], results, RUN).verdicts["a"].outcome

    assert outcome(stale, result(test)) == "published"
    assert outcome(result(test), result(test, "fail")) == "rejected"
    assert outcome(result(test, "weird"), result(test)) == "rejected"
    assert outcome(result(test), result(test, "skipped")) == "held"


@pytest.mark.parametrize("kind", ["model", "snapshot", "seed"])
def test_without_tests(kind: str) -> None:
    nodes = [node("a", kind=kind)]
    verdict = decide(nodes, [], [], RUN).verdicts["a"]
    assert verdict == Verdict("published", (), ("published without any test",))
    verdict = decide(nodes, [], [], GateSettings(require_tests=True)).verdicts["a"]
    assert verdict == Verdict("held", ("no test reads it, and wap_require_tests is true",))


def test_unit_tests_alone_give_a_notice() -> None:
    unit = test_of("a", kind="unit")
    verdict = decide([node("a")], [unit], [result(unit)], RUN).verdicts["a"]
    assert verdict.outcome == "published"
    assert verdict.notices == ("published with unit tests only: no test has read its rows",)


@pytest.mark.parametrize("tests", [[], [test_of("a")]])
def test_a_table_whose_tests_are_not_known_is_held_even_if_known_tests_pass(
    tests: list[AuditTest],
) -> None:
    strange = replace(node("a"), known=False)
    passed = [result(test) for test in tests]
    decision = decide([strange, node("b")], tests, passed, GateSettings(require_tests=bool(tests)))
    assert decision.publish == ()
    assert decision.verdicts["a"] == Verdict("held", (UNKNOWN_TESTS,), (), len(tests), len(tests))
    assert decide([strange, node("b")], [], [], LINEAGE).publish == ("b",)


def test_a_failed_test_of_an_earlier_run_is_named_as_such() -> None:
    gone = replace(test_of("a"), known=False)
    decision = decide([node("a")], [gone], [result(gone, "fail", 2)], RUN)
    assert decision.verdicts["a"].reasons == (
        "test t_a failed (2 rows) in an earlier run; it is not a test of this run",
    )


def test_the_statuses_that_reject() -> None:
    statuses = ("pass", "warn", "fail", "error", "odd", *NOT_RUN)
    assert [status for status in statuses if rejects(status)] == ["fail", "error", "odd"]


def test_results_of_tests_that_are_not_expected_do_not_count() -> None:
    gone = result(test_of("a", name="removed"), "fail")
    assert decide([node("a")], [], [gone], RUN).publish == ("a",)


def test_tests_with_the_same_cause_share_a_reason() -> None:
    tests = [test_of("a", name=f"t{number}") for number in range(8)]
    skipped = [replace(result(test, "skipped"), audited={}) for test in tests[:3]]
    unread = replace(result(tests[3]), audited={})
    verdict = decide([node("a")], tests, [*skipped, unread], RUN).verdicts["a"]
    assert verdict.reasons == (
        "tests t0, t1, t2 did not run (skipped)",
        "test t3 " + BLIND,
        "tests t4, t5, t6 and 1 more did not run",
    )


def test_a_duplicate_node_stops_the_gate() -> None:
    with pytest.raises(GateError, match="two records of"):
        decide([node("a"), node("a")], [], [], RUN)


def test_nothing_built() -> None:
    assert decide([], [], [], RUN) == Decision({}, (), "nothing", False)


# --- tests over several tables ------------------------------------------------------------------


def test_a_test_of_two_tables_must_read_both_candidates() -> None:
    both = test_of("a", "b")
    half = replace(result(both), audited={"a": "a@2", "b": "b@1"})
    decision = decide([node("a"), node("b")], [both], [half], LINEAGE)
    assert outcomes(decision) == {"a": "held", "b": "held"}
    assert decision.verdicts["a"].reasons == ("test t_a_b audited an older candidate of s.b",)


def test_tables_that_were_not_built_need_no_audit() -> None:
    both = test_of("a", "prod")
    seen = replace(result(both), audited={"a": "a@2"})
    assert decide([node("a")], [both], [seen], RUN).publish == ("a",)


@pytest.mark.parametrize("token", ["b@2", "", None])
@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_test_cannot_audit_together_with_a_table_that_was_not_built(
    status: str, token: str | None
) -> None:
    both = test_of("a", "b")
    absent = replace(node("b"), status=status, candidate=token)
    seen = replace(result(both), audited={"a": "a@2", "b": token or ""})
    decision = decide([node("a"), absent], [both], [seen], LINEAGE)
    assert outcomes(decision)["a"] == "held"
    assert decision.verdicts["a"].reasons == (
        "test t_a_b could not audit it, as s.b was not built",
    )


def test_a_test_cannot_audit_a_build_without_a_candidate() -> None:
    both = test_of("a", "b", "c")
    hollow = [replace(node(key), candidate="") for key in "bc"]
    seen = replace(result(both), audited={"a": "a@2", "b": "", "c": ""})
    decision = decide([node("a"), *hollow], [both], [seen], LINEAGE)
    assert decision.verdicts["a"].reasons == (
        "test t_a_b_c could not audit it, as s.b, s.c were not built",
    )


def test_a_failed_test_rejects_every_table_that_it_reads() -> None:
    both = test_of("a", "b")
    decision = decide([node("a"), node("b")], [both], [result(both, "fail", 2)], LINEAGE)
    assert outcomes(decision) == {"a": "rejected", "b": "rejected"}


# --- several tables -----------------------------------------------------------------------------

CHAIN = [node("a"), node("b", "a"), node("c", "b"), node("x")]


def chain(gate: GateSettings, bad: str, status: str = "fail") -> Decision:
    """Decide on a -> b -> c and x, with one test each; the test of `bad` does not pass."""
    tests = [test_of(item.node_id) for item in CHAIN]
    results = [result(test, status if bad in test.nodes else "pass") for test in tests]
    return decide(CHAIN, tests, results, gate)


def test_run_publishes_all_or_nothing() -> None:
    assert chain(RUN, bad="").publish == ("a", "b", "c", "x")
    decision = chain(RUN, bad="b")
    assert (decision.publish, decision.outcome, decision.failed) == ((), "rejected", True)
    assert decision.verdicts["a"] == Verdict(
        "held", ("waits for the run: 1 of 4 tables cannot publish (s.b)",), (), 1, 1
    )
    decision = chain(RUN, bad="b", status="skipped")
    assert (decision.publish, decision.outcome, decision.failed) == ((), "held", False)


def test_run_counts_what_blocks_it() -> None:
    nodes = [node(key, status="failed") for key in "abcd"]
    held = AuditTest("t", "t", frozenset("e"))
    decision = decide([*nodes, node("e"), node("f")], [held], [], RUN)
    assert decision.verdicts["f"].reasons == (
        "waits for the run: 5 of 6 tables cannot publish (s.a, s.b, s.c and 2 more)",
    )


def test_lineage_publishes_clean_tables_with_clean_upstreams() -> None:
    decision = chain(LINEAGE, bad="b")
    assert outcomes(decision) == {
        "a": "published",
        "b": "rejected",
        "c": "held",
        "x": "published",
    }
    assert decision.publish == ("a", "x")
    assert (decision.outcome, decision.failed) == ("partial", True)
    assert decision.verdicts["c"].reasons == ("waits for upstream s.b, which is rejected",)
    assert chain(LINEAGE, bad="").outcome == "published"
    assert not any(verdict.notices for verdict in decision.verdicts.values())


def test_lineage_names_the_nearest_cause() -> None:
    nodes = [node("a"), node("b", "a"), node("c", "b"), node("d", "a", "c")]
    tests = [test_of("a"), test_of("b")]
    decision = decide(nodes, tests, [result(test, "fail") for test in tests], LINEAGE)
    assert decision.verdicts["c"].reasons == ("waits for upstream s.b, which is rejected",)
    assert decision.verdicts["d"].reasons == ("waits for upstream s.a, which is rejected",)


def test_lineage_never_separates_tables_that_a_test_read_together() -> None:
    pair = test_of("a", "b")
    failing = test_of("b")
    decision = decide(
        [node("a"), node("b"), node("c", "a")],
        [pair, failing],
        [result(pair), result(failing, "fail")],
        LINEAGE,
    )
    assert decision.publish == ()
    assert decision.verdicts["a"].reasons == ("its tests also read s.b, not published",)
    assert decision.verdicts["c"].reasons == ("waits for upstream s.a, which is held",)


def test_never_holds_clean_tables() -> None:
    decision = chain(NEVER, bad="b")
    assert (decision.publish, decision.outcome, decision.failed) == ((), "rejected", True)
    assert decision.verdicts["c"].reasons == ("publishing is off (wap_publish: never)",)
    assert chain(NEVER, bad="").outcome == "held"


@pytest.mark.parametrize("gate", [RUN, LINEAGE])
def test_a_skipped_node_is_held_and_names_the_rejected_one(gate: GateSettings) -> None:
    nodes = [
        node("a"),
        node("b", "a", status="skipped"),
        node("c", "b", status="skipped"),
        node("d", "c"),
    ]
    test = test_of("a")
    decision = decide(nodes, [test], [result(test, "fail", 1)], gate)
    assert outcomes(decision) == {"a": "rejected", "b": "held", "c": "held", "d": "held"}
    for key in "bc":
        reasons = decision.verdicts[key].reasons
        assert reasons == ("not built: upstream s.a was rejected",)


def test_a_node_skipped_without_a_known_reason_blocks_the_run() -> None:
    decision = decide([node("a"), node("b", status="skipped")], [], [], RUN)
    assert decision.publish == ()
    assert decision.verdicts["b"].reasons == (
        "not built: dbt skipped it because of a failure that is in dbt's log",
    )


def test_a_failed_unit_test_rejects_the_model_that_dbt_then_skips() -> None:
    unit = test_of("a", kind="unit")
    failed = replace(result(unit, "fail", 1), audited={})
    decision = decide([node("a", status="skipped")], [unit], [failed], RUN)
    assert decision.verdicts["a"].outcome == "rejected"
    assert decision.verdicts["a"].reasons == ("not built: unit test t_a failed (1 row)",)


@pytest.mark.parametrize(
    ("status", "audited"), [("pass", {}), ("skipped", {}), ("fail", {"a": "a@1"})]
)
def test_other_unit_tests_do_not_reject_a_skipped_model(
    status: str, audited: dict[str, str]
) -> None:
    unit = test_of("a", kind="unit")
    seen = replace(result(unit, status), audited=audited)
    decision = decide([node("a", status="skipped")], [unit], [seen], RUN)
    assert decision.verdicts["a"].reasons == (
        "not built: dbt skipped it because of a failure that is in dbt's log",
    )


def test_stored_failures_follow_the_run_and_never_block_it() -> None:
    stored = node("f", kind="failures")
    strict = GateSettings(require_tests=True)
    test = test_of("a")
    good = decide([node("a"), stored], [test], [result(test)], strict)
    assert good.publish == ("a", "f")
    bad = decide([node("a"), stored], [test], [result(test, "fail")], LINEAGE)
    assert outcomes(bad) == {"a": "rejected", "f": "held"}
    broken = decide([node("a"), replace(stored, problem="main moved")], [], [], RUN)
    assert outcomes(broken) == {"a": "published", "f": "held"}
    assert (broken.outcome, broken.failed) == ("published", False)
    skipped = decide([node("f", kind="failures", status="skipped")], [], [], RUN)
    assert skipped.verdicts["f"].reasons == (
        "not built: dbt skipped it because of a failure that is in dbt's log",
    )
    assert decide([stored], [], [], RUN).publish == ("f",)
    assert decide([stored], [], [], NEVER).publish == ()


# --- properties ---------------------------------------------------------------------------------

KEYS = [f"n{number}" for number in range(6)]
TOKENS = st.sampled_from(["1", "2", ""])


@st.composite
def graphs(draw: st.DrawFn) -> list[BuiltNode]:
    """Return any acyclic graph of up to six nodes, whose parents may be unknown ids."""
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    return [
        BuiltNode(
            key,
            key,
            draw(st.sampled_from(["model", "model", "snapshot", "seed", "failures"])),
            draw(st.sampled_from(["built"] * 6 + ["failed", "skipped", "odd", "empty", "sample"])),
            draw(st.sampled_from(["1"] * 6 + ["2", "", None])),
            draw(st.sampled_from([None] * 8 + ["", "main moved"])),
            frozenset(draw(st.sets(st.sampled_from([k for k in KEYS if k < key]))))
            if key > KEYS[0]
            else frozenset(),
            draw(st.sampled_from([True] * 8 + [False])),
        )
        for key in keys
    ]


AUDITS = st.lists(
    st.builds(
        AuditTest,
        st.sampled_from(["t1", "t2", "t3", "t4"]),
        st.just("t"),
        st.frozensets(st.sampled_from(KEYS), min_size=1, max_size=3),
        st.sampled_from(["data", "unit"]),
        st.sampled_from([None, None, TestRule("error"), TestRule("error", {"var a": "1"})]),
        st.booleans(),
        st.sampled_from([None, None, Acceptance(4, "by ada: so")]),
    ),
    max_size=5,
)
RESULTS = st.lists(
    st.builds(
        TestResult,
        st.sampled_from(["t1", "t2", "t3", "t4", "other"]),
        st.sampled_from(["pass"] * 8 + ["warn", "fail", "error", "odd", *NOT_RUN]),
        st.none() | st.integers(0, 9),
        st.none() | st.just("message"),
        st.just(dict.fromkeys(KEYS, "1"))
        | st.dictionaries(st.sampled_from(KEYS), TOKENS, max_size=6),
        st.none(),
        st.sampled_from(
            [None, TestRule("error", {}), TestRule("warn", {}), TestRule("error", {"var a": "2"})]
        ),
    ),
    max_size=12,
)
GATES = st.builds(
    GateSettings,
    st.sampled_from(["run", "lineage", "never"]),
    st.sampled_from(["known", "publish", "hold"]),
    st.booleans(),
)


def may_publish(
    item: BuiltNode,
    nodes: dict[str, BuiltNode],
    tests: list[AuditTest],
    results: list[TestResult],
    gate: GateSettings,
) -> bool:
    """Return the verdict on one node by a second, simple implementation of the rule."""
    if item.status != "built" or item.problem is not None or not item.candidate:
        return False
    if not item.known:
        return False
    mine = [test for test in tests if item.node_id in test.nodes]
    if gate.require_tests and not mine:
        return False
    allowed = {"pass"} if gate.warnings == "hold" else {"pass", "warn"}
    for test in mine:
        read = [nodes[k] for k in test.nodes if k in nodes and nodes[k].kind != "failures"]
        if any(other.status != "built" or not other.candidate for other in read):
            return False
        valid = [
            res
            for res in results
            if res.test_id == test.test_id
            and all(res.audited.get(other.node_id) == other.candidate for other in read)
        ]
        most = test.accepted.failures if test.accepted else 0
        found = [res for res in valid if res.status in ("fail", "warn")]
        right = [res for res in found if res.failures and res.failures <= most]
        statuses = {res.status for res in valid if res not in right}
        if not valid or not statuses <= allowed:
            return False
        let = [res for res in valid if res.status in ("pass", "warn")]
        if gate.warnings == "known" and let and all(changed(test, res) for res in let):
            return False
    return True


def changed(test: AuditTest, res: TestResult) -> bool:
    if test.former is None or res.rule is None:
        return False
    if res.status == "warn" and res.rule.severity != test.former.severity:
        return True
    before, now = test.former.inputs, res.rule.inputs
    return before is not None and now is not None and not now.items() <= before.items()


@settings(max_examples=examples(200))
@given(graphs(), AUDITS, RESULTS, GATES)
def test_the_gate_keeps_its_promises(
    graph: list[BuiltNode],
    tests: list[AuditTest],
    results: list[TestResult],
    gate: GateSettings,
) -> None:
    decision = decide(graph, tests, results, gate)
    nodes = {item.node_id: item for item in graph}
    gated = {key for key, item in nodes.items() if item.kind != "failures"}
    clean = {key for key in gated if may_publish(nodes[key], nodes, tests, results, gate)}
    published = set(decision.publish)

    assert list(decision.verdicts) == list(nodes)
    for key, verdict in decision.verdicts.items():
        assert (verdict.outcome == "published") == (key in published)
        assert bool(verdict.reasons) == (key not in published)
    assert decision.failed == ("rejected" in outcomes(decision).values())

    # No node with a failed, missing, stale, unknown or errored audit is published.
    assert published & gated <= clean
    stored = published - gated
    assert all(nodes[k].status == "built" and nodes[k].problem is None for k in stored)
    assert not stored or gated <= published

    def closed() -> set[str]:
        """Return the clean nodes whose parents and test partners are also among them."""
        kept, before = clean, set[str]()
        while kept != before:
            before = kept
            kept = {
                key
                for key in before
                if nodes[key].parents & gated <= before
                and all(test.nodes & gated <= before for test in tests if key in test.nodes)
            }
        return kept

    expected = {
        "never": set(),
        "run": gated if clean == gated else set(),
        "lineage": closed(),
    }
    assert published & gated == expected[gate.publish]
    if gate.publish == "never":
        assert not published


@settings(max_examples=examples(50))
@given(graphs(), AUDITS, RESULTS, GATES, st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(
    graph: list[BuiltNode],
    tests: list[AuditTest],
    results: list[TestResult],
    gate: GateSettings,
    random: "object",
) -> None:
    shuffled = [list(graph), list(tests), list(results)]
    for facts in shuffled:
        random.shuffle(facts)  # type: ignore[attr-defined]
    one = decide(graph, tests, results, gate)
    other = decide(*shuffled, gate)  # type: ignore[arg-type]
    assert outcomes(one) == outcomes(other)
