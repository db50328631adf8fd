"""Answers the tests that are due together by one statement, see `sparkwap.audits.shared_statement`.

The first test of a batch sends the statement, with the predicted queries of the other tests. A test
takes its answer only if its compiled SQL is exactly the predicted one, and if all tables that it
reads are as they were when the statement was sent. In every other case, and if its query has a row
or fails, the test runs alone.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.adapters.contracts.connection import ConnectionState
from dbt.flags import get_flags
from dbt_common.clients.agate_helper import table_from_rows
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.predicted_queries import PredictedQueries
from dbt.adapters.sparkwap.reuse import Reuse
from dbt.adapters.sparkwap.sessions import logger
from dbt.adapters.sparkwap.statements import StatementGuard
from sparkwap.audits.incremental import Answer, Question
from sparkwap.audits.shared_statement import (
    counts_of,
    is_enclosed,
    is_volatile,
    may_read_others,
    statement,
)
from sparkwap.core.names import folded

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.increments import Checked, IncrementFinder, Increments
    from sparkwap.catalog import Identifier
    from sparkwap.runs.run import Run

MOST_TESTS = 60
"""The maximum of one statement: Spark plans a longer one for longer than it saves."""
AHEAD = 2
"""The statements that Spark answers at a time while dbt's other threads report tests."""
SMALL_ROWS = 50_000
"""The rows of a batch's tables that Spark reads sooner than it compiles a plan for them."""
_INTERPRETED = (
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.codegen.factoryMode=NO_CODEGEN",
    "spark.sql.adaptive.enabled=false",
)
_WORTH_SETTING = 5
"""The tests whose plan takes longer to compile than these statements, and those that restore."""
_FALSE_AT_ZERO = r"(?:(?:!=|<>)\s*0|>\s*[0-9]{1,9}|(?:>=|=)\s*[1-9][0-9]{0,8})"
_BEFORE = re.compile(
    r"\s*select\s+count\(\*\) as failures,"
    rf"\s+count\(\*\)\s+{_FALSE_AT_ZERO}\s+as should_warn,"
    rf"\s+count\(\*\)\s+{_FALSE_AT_ZERO}\s+as should_error"
    r"\s+from \(\s*"
)
_AFTER = re.compile(r"\s*\) dbt_internal_test\s*")
"""dbt's own statement of a test around its query, with thresholds that no rows do not reach."""


@dataclass(frozen=True)
class _Member(Question):
    """A test of a batch; ``proven`` becomes how the statement has proven it, None if not."""

    proven: Future[Answer | None] = field(default_factory=Future)


class SharedStatements:
    """Sends the shared statements of a command."""

    def __init__(self, runs: CommandRun, statements: StatementGuard, reuse: Reuse) -> None:
        self._runs = runs
        self._reuse = reuse
        self._command = runs.command
        self._statements = statements
        self._lock = threading.Lock()
        self._answer = threading.local()
        self._waiting: dict[str, _Member] = {}
        self._sent: list[_Member] = []
        self._begun: set[str] = set()
        self._queries = PredictedQueries(runs.command, statements)

    @cached_property
    def _increments(self) -> IncrementFinder:
        # It imports what reads files of tables, which most commands do not need.
        from dbt.adapters.sparkwap.increments import IncrementFinder

        return IncrementFinder(self._command)

    @available.parse(lambda *a, **k: None)
    def share(self, test: Mapping[str, Any], query: str, sql: str) -> None:
        """Answer the next statement of this thread, `sql`, if the query is proven to find no row.

        A shared statement or the last result of the test proves it.
        """
        self._answer.sql = None
        run, test_id, query = self._runs.active, str(test["unique_id"]), query.strip()
        if run is None:
            return
        known = self._reuse.covers(run, self._node(test_id))
        if run.settings.audits == "single" and not known:
            return
        # A project may override `get_test_sql`, and may have another sense of zero.
        before, _, after = sql.partition(query)
        default = _BEFORE.fullmatch(before) and _AFTER.fullmatch(after)
        alone = not default or not query or self._is_session_changed()
        if not alone:
            # As if it were sent now: through the guard, and on the trail of the test.
            self._statements.check(query)
        if known and not alone:
            self._answer.sql, self._answer.of = sql.strip(), (test_id, None)
            return
        member = self._settled_member(run, test_id, None if alone else query)
        if member is None or member.query != query:
            return
        missed = member.proven.exception()
        answer = None if missed else member.proven.result()
        if answer is None and missed is None:
            return
        try:
            node = self._node(test_id)
            unchanged = self._places(run, node) == set(member.read)
            unchanged = unchanged and self._command.lake.locations(member.read) == member.read
        except Exception as error:
            logger.debug(f"{test_id} runs alone: {error}")
            return
        if unchanged and missed is not None:
            raise missed
        if unchanged:
            self._answer.sql, self._answer.of = sql.strip(), (test_id, answer)

    def answer(self, sql: str) -> Any:
        """Return the result of a test's statement if `share` has its answer; None to send it."""
        expected, self._answer.sql = getattr(self._answer, "sql", None), None
        run = self._runs.active
        if expected is None or run is None or sql.strip() != expected:
            return None
        test_id, answer = self._answer.of
        if answer is None:
            run.trail.reused.add(test_id)
        else:
            run.trail.shared[test_id] = answer
        return table_from_rows([[0, False, False]], ["failures", "should_warn", "should_error"])

    def _is_session_changed(self) -> bool:
        """Return whether macros have changed this thread's session while dbt compiled the test."""
        connection = self._command.connections.get_thread_connection()
        opened = connection.state == ConnectionState.OPEN  # else, to read the handle would open it
        return opened and bool(getattr(connection.handle, "is_changed", True))

    def _settled_member(self, run: Run, test_id: str, query: str | None) -> _Member | None:
        """Return a test's member, of a new batch if it has none; None if it has to run alone."""
        with self._lock:
            self._begun.add(test_id)
            member = self._waiting.pop(test_id, None)
            if query is None:
                return None
            batch: list[_Member] = []
            unanswered = [one for one in self._sent if not one.proven.done()]
            try:
                if member is None:
                    batch = self._batch(run, test_id, query)
                elif len(unanswered) < min(AHEAD, self._command.config.threads - 1):
                    # dbt runs tests by their names, so the next ones may be of other tables.
                    batch = self._batch(run, test_id)
            except Exception as error:
                logger.debug(f"{test_id} sends no shared statement: {error}")
            self._waiting |= {one.test_id: one for one in batch if one.test_id != test_id}
            self._sent = [*unanswered, *batch[:1]]
        if batch:
            self._send(batch)
        return member or next((one for one in batch if one.test_id == test_id), None)

    # -- the batch -------------------------------------------------------------------------------

    def _batch(self, run: Run, test_id: str, query: str | None = None) -> list[_Member]:
        """Return the members of a new batch, empty if it is not worth a statement.

        Args:
            query: Its query, which is the first of the batch; None for a batch of later tests.
        """
        tested = self._node(test_id)
        due = self._due(run, getattr(tested, "attached_node", None))
        if query is None and len(due) < MOST_TESTS // 2:
            return []  # More become due with the next tables.
        existing = self._relations()
        found: dict[str, tuple[str, set[Identifier]]] = {}
        if query is not None:
            reads = self._reads(run, tested, query, existing) if self._may_share(tested) else None
            if reads is None or self._tables(reads).keys() != reads:
                return []
            found[test_id] = (query, reads)
        for node in due:
            if len(found) == MOST_TESTS:
                break
            predicted = self._queries.of(node) if self._may_share(node) else None
            reads = self._reads(run, node, predicted, existing) if predicted else None
            if predicted is None or reads is None:
                # It is not tried again by each batch to come.
                self._begun.add(node.unique_id)
            else:
                found[node.unique_id] = (predicted, reads)
        self._begun |= found.keys()
        tables = self._tables(set().union(*(reads for _, reads in found.values())))
        batch = [
            _Member(key, sql, {one: tables[one] for one in reads})
            for key, (sql, reads) in found.items()
            if reads <= tables.keys()
        ]
        whole = query is None or (batch and batch[0].test_id == test_id)
        return batch if whole and len(batch) > 1 else []

    def _tables(self, names: set[Identifier]) -> dict[Identifier, tuple[str, str]]:
        """Return the state of each of these tables; views have none."""
        found = self._command.lake.locations(names)
        return {key: state for key, state in found.items() if state[0] == "table"}

    def _node(self, test_id: str) -> Any:
        return self._command.dbt_manifest().nodes[test_id]

    def _due(self, run: Run, about: str | None) -> list[Any]:
        """Return the generic tests that have not begun and whose parents are built.

        The tests of one node come together, those of the node ``about`` first.
        """
        finished = cache(lambda one: 0 < run.trail.finished(one) < math.inf)
        self._tests[:] = [one for one in self._tests if one[0].unique_id not in self._begun]
        due = [node for node, tested in self._tests if all(map(finished, tested))]
        return sorted(due, key=lambda node: node.attached_node != about)

    @cached_property
    def _tests(self) -> list[tuple[Any, frozenset[str]]]:
        """The generic tests to come by what they are about, with the selected nodes they read."""
        from dbt.contracts.graph.nodes import GenericTestNode

        nodes, selected = self._command.dbt_manifest().nodes, self._runs.selected
        tests = [
            node
            for key in selected
            if isinstance(node := nodes.get(key), GenericTestNode) and not self._reuse.is_known(key)
        ]
        tests.sort(key=lambda node: (str(node.attached_node), node.unique_id))
        return [(node, self._command.manifest.tested(node) & selected) for node in tests]

    def _may_share(self, node: Any) -> bool:
        """Return whether dbt counts the rows of a test's query, which is the same each time."""
        config = node.config
        stored = config.store_failures
        if stored is None:
            stored = get_flags().STORE_FAILURES
        if stored or config.limit or config.get("sql_header") or config.fail_calc != "count(*)":
            return False
        # Its macros may make another query each time, or do something.
        return not self._command.manifest.varies(node.unique_id)

    def _reads(
        self, run: Run, node: Any, query: str, existing: Callable[[str], frozenset[Identifier]]
    ) -> set[Identifier] | None:
        """Return the tables that the query of a test reads; None if the test has to run alone."""
        if not is_enclosed(query) or is_volatile(query):
            return None
        try:
            self._statements.require_allowed(query)
        except DbtRuntimeError:
            return None
        reads = self._places(run, node)
        # A table that dbt does not know of, by its name or behind a view, may be built after the
        # statement and before the test.
        if reads is None or may_read_others(query, map(folded, reads), existing):
            return None
        return reads

    def _places(self, run: Run, node: Any) -> set[Identifier] | None:
        """Return where the tables stand that a test reads; None if not all are known."""
        manifest = self._command.manifest
        tested = [manifest.table(one) for one in manifest.tested(node)]
        schema_of = run.candidates.overlay.schema_of
        found = {(schema_of(*one), one[1]) for one in tested if one is not None}
        return None if None in tested else found

    def _relations(self) -> Callable[[str], frozenset[Identifier]]:
        """Return a function that returns the tables and views of a schema, all in lower case."""
        lake = self._command.lake
        schemas = lake.schemas()

        @cache
        def relations_in(schema: str) -> frozenset[Identifier]:
            alike = (one for one in schemas if one.lower() == schema)
            return frozenset(
                (schema, name.lower()) for one in alike for name in lake.relations(one)
            )

        return relations_in

    # -- the statement ---------------------------------------------------------------------------

    def _send(self, batch: list[_Member]) -> None:
        """Send the statement of a batch, and settle its members."""
        try:
            if not self._settle(batch):
                # The tests of the same tables together: one missing column is no reason for the
                # others to run alone.
                parts: dict[frozenset[Identifier], list[_Member]] = {}
                for member in batch:
                    parts.setdefault(frozenset(member.read), []).append(member)
                for part in parts.values() if len(parts) > 1 else ():
                    self._settle(part)
        finally:
            for member in batch:
                if not member.proven.done():
                    member.proven.set_result(None)

    def _settle(self, batch: list[_Member]) -> bool:
        """Send one statement; return whether Spark has answered it."""
        logger.debug(f"{batch[0].test_id} sends a shared statement of {len(batch)} tests")
        try:
            found, increments = self._counts(batch)
        except Exception as error:
            # Each test runs alone and reports its own error.
            logger.debug(f"a shared statement of {len(batch)} tests failed: {error}")
            return False
        for at, member in enumerate(batch):
            changed = found.get(len(batch) + at)
            if at in increments.checked and changed == 0 != found[at]:
                missed = _missed(member, increments.checked[at], found[at])
                member.proven.set_exception(missed)
            else:
                member.proven.set_result(increments.answers[at] if found.get(at) == 0 else None)
        return True

    def _counts(self, batch: list[_Member]) -> tuple[dict[int, int], Increments]:
        """Send the statement of a batch; return the rows of each query, and how it is answered.

        Behind them come the rows that the tests of `checked` find among the changed ones.
        """
        from dbt.adapters.sparkwap.increments import Increments

        rows_of = self._command.connections.rows_of
        queries = dict(enumerate(one.query for one in batch))
        increments = Increments([Answer() for _ in batch])
        with self._statements.own():
            try:
                if self._are_small(batch):
                    # The session is restored when the test returns it.
                    for setting in _INTERPRETED if len(batch) >= _WORTH_SETTING else ():
                        rows_of(f"set {setting}")
                else:
                    self._increments.find(self._runs.active, batch, increments)
                checked = {len(batch) + at: one.changed for at, one in increments.checked.items()}
                more = {number: queries[number - len(batch)] for number in checked}
                sql = statement(queries | more, increments.changed | checked)
                return counts_of(rows_of(sql)), increments
            except Exception as error:
                if not increments.tried:
                    raise
                found = counts_of(rows_of(statement(queries)))
                self._increments.give_up(error)
                return found, Increments([Answer() for _ in batch])
            finally:
                increments.remove()

    def _are_small(self, batch: list[_Member]) -> bool:
        """Return whether the tables of a batch have few rows together."""
        locations = {location for one in batch for _, location in one.read.values()}
        return sum(map(self._command.lake.most_rows, locations)) <= SMALL_ROWS


def _missed(member: _Member, checked: Checked, failures: int) -> DbtRuntimeError:
    return DbtRuntimeError(
        f"{member.test_id} passed on {checked.before}, and nothing that has changed since fails "
        f"it. But {failures:,} rows or values of {checked.now} do. The table is not published. "
        "Either a writer has brought deleted rows back, or sparkwap has built on a result that it "
        "should not have: please report this. To audit all rows in each run: "
        "wap_audits_incremental: never"
    )
