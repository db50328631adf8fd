"""The facts for the gate's decision: the built nodes of a run, their tests and the results."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PARTIAL = {
    "empty": "it was built with --empty, without its rows",
    "sample": "it was built with --sample, on a part of its rows",
}
"""Statuses of nodes that were built on a part of their rows: never published."""

NOT_RUN = {
    "skipped": "did not run (skipped)",
    "disabled": "did not run: disabled (wap_disabled_tests: publish accepts it)",
    "empty": "ran with --empty, on no rows",
    "sample": "ran with --sample, on a part of the rows",
    "gone": "did not exist with the --vars of this call (wap_warnings: publish accepts it)",
    "elsewhere": "belonged to the project that built it last (wap_warnings: publish accepts it)",
    "deferred": "read the tables of another state (--favor-state)",
}
"""Statuses of tests that did not audit the candidates, with their texts."""

NO_NODE = "no node of this project has this table now"
LEFTOVER = "leftover"
"""Kind of an object that an earlier run left on the branch without a recorded candidate."""

LOAD = "load"
"""Kind of a table that a program other than dbt has written (`examples/load`)."""

MOVED = "moved"
"""Kind of a table that a run moved past the gate, when no node is known to have moved it."""


@dataclass(frozen=True, slots=True)
class BuiltNode:
    """A table or view that dbt built, or should have built, on the audit branch.

    Attributes:
        name: `schema.table`, for messages.
        kind: `model`, `snapshot`, `seed`, or `failures` for the table of a test with
            `store_failures`.
        status: `built`, `failed`, or `skipped` when dbt did not try; `empty` or `sample` for a
            build on none or a part of the rows. Any other text rejects.
        candidate: A token of the candidate, which differs for every build; None if there is none.
        problem: An invariant that did not hold (`main` moved, the branch head did not move, the
            table is not WAP-enabled), in words; None if all held.
        parents: Ids of upstream nodes: at least the direct ones. Ids that are not among the nodes
            of the decision are ignored. An ephemeral model, or a view that was not built, is
            replaced by the nodes that it reads.
        known: The caller knows all tests that read it; False for a node of another project on the
            same branch.
        stale: Names of upstream tables whose candidate has been replaced since this node read it,
            for example because it was rejected.
        outdated: An earlier run built it from other code than that of this project.
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
    outdated: bool = False


@dataclass(frozen=True, slots=True)
class TestRule:
    """The rule of a test: everything that can change its result although its code is the same.

    Attributes:
        severity: Its severity, with thresholds: `error`, `warn, error_if > 10`.
        inputs: The values from outside of the project that it uses, as a token by variable, such
            as `var max_age` or `env_var MAX_AGE`; None if not known.
        code: A token of the code that makes its query; None if not known.
        sql: A token of its query, without the names of the run; None if the same code may make
            another query in each run, or if not known.
        given: All values of its command, as in `inputs`, whether the test uses them or not.
    """

    severity: str
    inputs: Mapping[str, str] | None = None
    code: str | None = None
    sql: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A failing test that somebody has accepted with `wap_accept`.

    Attributes:
        failures: The greatest number of failing rows that is accepted.
        terms: By whom, until when and why, in words.
    """

    failures: int
    terms: str


@dataclass(frozen=True, slots=True)
class AuditTest:
    """An expected test: it is enabled in the manifest and reads at least one built node.

    Or a test that the caller does not have and that failed on one of the nodes.

    Attributes:
        nodes: Ids of the nodes it reads, built in this run or not.
        kind: `data` or `unit`.
        former: Its rule when its rows were last published; None if they never were, or if no
            change of the rule could matter.
        known: The caller has it; if False, only its results are known.
        accepted: The acceptance by `wap_accept`; None for none.
        code: As in `TestRule`, of the test as it is now.
    """

    test_id: str
    name: str
    nodes: frozenset[str]
    kind: str = "data"
    former: TestRule | None = None
    known: bool = True
    accepted: Acceptance | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class TestResult:
    """A result of a test, and the candidates that it read.

    Attributes:
        status: `pass`, `warn`, `fail`, `error`, or one of `NOT_RUN`. Any other text rejects.
        failures: Number of rows that failed; None if not known.
        audited: The candidate token that the test read, by node id. A node that is missing was
            not audited. For a unit test: the candidate that the tested code built.
        finding: The finding in words, if a number of rows is not enough.
    """

    __test__ = False  # pytest would collect it as a test class

    test_id: str
    status: str
    failures: int | None = None
    message: str | None = None
    audited: Mapping[str, str] = field(default_factory=dict)
    finding: str | None = None
    rule: TestRule | None = None
