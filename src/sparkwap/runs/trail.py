"""Records what the statements of a run have read, and which nodes were built before them."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property

from sparkwap.audits.incremental import Answer
from sparkwap.catalog import Candidate, Identifier
from sparkwap.catalog.files import plain_location
from sparkwap.core import names
from sparkwap.core.sqllex import ANY_RELATION
from sparkwap.gate.facts import BuiltNode
from sparkwap.publish.lake import Lake
from sparkwap.runs.candidates import Candidates
from sparkwap.runs.types import TestFact

_READ_TOO_EARLY = (
    "it read {} before this run had built that, as dbt does not know that it does; name it by "
    "ref(), which gives the order, or build this one again"
)
_READ_LIVE = (
    "it read {} as readers of main have it, not as built here; name it by ref(), and build the "
    "views in between along"
)


_ELSEWHERE = frozenset({"global_temp", "spark_catalog"})
"""First parts of names that every session knows, beside those of the lake's catalog."""

_PATTERN = re.compile(r"[*?\[{]")


@dataclass(slots=True)
class Named:
    """The relations that the statements of a node or test have named.

    Attributes:
        first: The step of the first statement.
        last: The step of the last statement.
        relations: All relations that they may have read.
        present: The relations whose rows of that time they may have read.
    """

    first: int
    last: int = 0
    relations: set[Identifier] = field(default_factory=set)
    present: set[Identifier] = field(default_factory=set)


class Trail:
    """The order in which a run's nodes began and ended, and what nodes and tests have read.

    Safe for use by dbt's threads.

    Attributes:
        begun: The step at which a node was begun, by node.
        continued: The nodes that add to a candidate of an earlier run.
        candidates_at_build: The candidates that were on the branch when a node was built, by node.
        reads: What a node or test has read from ``main``: name to token.
        reused: The nodes and tests that were left out, because their results are known.
        written: The tables, folded, that statements have written to or changed, with `wap_reuse`.
    """

    def __init__(self) -> None:
        self.shared: dict[str, Answer] = {}
        self.reused: set[str] = set()
        self.written: set[Identifier] = set()
        self.begun: dict[str, int] = {}
        self.continued: set[str] = set()
        self.candidates_at_build: dict[str, dict[str, str]] = {}
        self.naming: dict[str, Named] = {}
        self.reads: dict[str, dict[str, str]] = {}
        self._done: dict[str, int] = {}
        self._steps = itertools.count(1)
        self._lock = threading.Lock()

    def begin(self, node_id: str) -> bool:
        """Record that a node is begun; return whether it is for the first time."""
        with self._lock:
            first = node_id not in self.begun
            self.begun.setdefault(node_id, next(self._steps))
        return first

    def may_add_to_candidate(self, node_id: str, is_current: Callable[[], bool]) -> bool:
        """Return whether a node may add to an earlier run's candidate; if so, the node is begun.

        Args:
            is_current: Returns whether the candidate is unchanged; called until it returns True or
                the node is begun.
        """
        with self._lock:
            if node_id not in self.begun and is_current():
                self.begun[node_id] = next(self._steps)
                self.continued.add(node_id)
            return node_id in self.continued

    def end(self, node_id: str, candidates: dict[str, str]) -> None:
        """Record that a node is built, and the candidates that were on the branch then."""
        with self._lock:
            if node_id not in self.continued:
                candidates.pop(node_id, None)
            self.candidates_at_build.setdefault(node_id, candidates)
            self._done[node_id] = next(self._steps)

    def finished(self, node_id: str) -> float:
        """Return the step at which a node was built: infinity if it only began, 0 if it did not."""
        return self._done.get(node_id, math.inf if node_id in self.begun else 0)

    def named(
        self,
        reader: str,
        relations: AbstractSet[Identifier],
        present: AbstractSet[Identifier] | None = None,
    ) -> None:
        """Record what a statement of a node or test names, whether dbt knows of it or not.

        Args:
            relations: See `sparkwap.core.sqllex.relation_names`.
            present: The relations whose present rows it reads; None for all.
        """
        with self._lock:
            step = next(self._steps)
            named = self.naming.setdefault(reader, Named(first=step))
            named.last = step
            named.relations |= relations
            named.present |= relations if present is None else present

    def read(self, reader: str, tokens: dict[str, str]) -> None:
        """Record what a node or test reads from ``main``: name to token."""
        with self._lock:
            self.reads[reader] = tokens


class ByName:
    """What the statements of nodes and tests have read and dbt knows nothing of.

    By a source that names a model of the same run, by a name in the text, through a view, by its
    files: what such a statement has read was the candidate if that was begun before it. What is in
    no catalog of the lake (a global temporary view, a view of Spark's own catalog) may be any.

    A candidate in a side schema is read under the name that it has there, and under no other: its
    live name, or a live view over that, gives what readers of `main` have. One on the branch of its
    table is what the live name gives to a session of the run.

    Attributes:
        first: what a node has read that was built before, by node.
        early: the nodes that a test has read before they were built, by test.
        seen: the nodes whose candidates a test has read where they stand, by test; nothing of tests
            that have sent no statement. Iceberg's metadata tables and reads as of a version show
            `main`, or what it was, whatever the branch of the session.
    """

    def __init__(
        self,
        lake: Lake,
        branch: str,
        trail: Trail,
        candidates: Candidates,
        nodes: Sequence[BuiltNode],
        by_node: Mapping[str, Candidate],
    ) -> None:
        self._lake = lake
        self._branch = branch
        self._trail = trail
        self._by_node = by_node
        self._found = candidates.found
        self._beside = {
            names.folded((side, name)): names.folded((schema, name))
            for (schema, name), side in candidates.overlay.members().items()
        }
        self._of_name = {node.name.lower(): node.node_id for node in nodes}
        self._name_of = {node.node_id: node.name for node in nodes}
        schemas = lake.schemas() if trail.naming else ()
        # Statements are read in lower case: a name is all that differ from it in case only.
        self._schemas: dict[str, list[str]] = {}
        for schema in schemas:
            self._schemas.setdefault(schema.lower(), []).append(schema)
        self._outside = _ELSEWHERE - {lake.name.lower()} - self._schemas.keys()
        self._views: dict[str, dict[str, list[Identifier]]] = {}
        self._behind: dict[tuple[Identifier, bool], frozenset[Identifier]] = {}
        self._members: dict[str, frozenset[str]] = {}
        self.first: dict[str, frozenset[str]] = {}
        self.early: dict[str, set[str]] = {}
        self.seen: dict[str, set[str]] = {}

    def node(self, node: BuiltNode) -> BuiltNode:
        """A node with all that it has read for its parents; read too early, with that problem."""
        told = self._trail.naming.get(node.node_id)
        if told is None:
            return node
        begun, finished = self._trail.begun, self._trail.finished
        found, is_known = self._read_by(node.node_id)
        # One that was begun later, and had left nothing here before, was read from main.
        found = {one for one in found if one in self._found or begun.get(one, 0) < told.last}
        # What only Spark knows may be any of them, and is most likely none.
        named = found if is_known else set()
        early = sorted(one for one in named if finished(one) > told.first)
        # What only Spark knows may be one that was built later: nothing of it was read.
        before = {one for one in found if finished(one) <= told.first}
        self.first[node.node_id] = node.parents | before
        problem = node.problem
        if problem is None and node.status == "built":
            live = sorted((found & self._read_in_place(node.node_id)[1]) - set(early))
            faults = {_READ_TOO_EARLY: early, _READ_LIVE: live}
            problem = "; ".join(
                text.format(", ".join(self._name_of[one] for one in which))
                for text, which in faults.items()
                if which
            )
        return replace(node, parents=node.parents | found, problem=problem or None)

    def test(self, test: TestFact) -> TestFact:
        """A test with all that it has read."""
        told = self._trail.naming.get(test.test_id)
        if told is None:
            return test
        self.seen[test.test_id] = self._read_in_place(test.test_id, present=True)[0]
        named, is_known = self._read_by(test.test_id)
        found = {one for one in named if self._trail.finished(one) < told.first}
        if is_known:
            # It has read what was there before, and nothing of what is to be published.
            early = {one for one in named - found if one in self._trail.begun}
            self.early[test.test_id] = early
            found |= early
        return replace(test, reads=(test.reads - self._not_behind(test)) | found)

    def _not_behind(self, test: TestFact) -> AbstractSet[str]:
        """The nodes that the views of a test read by dbt's manifest and not by their own text.

        The copy of a view by `dbt clone` reads what its original reads. The test says nothing of
        these nodes. It is not asked of views that have no candidate in a side schema.
        """
        views = {self._name_of.get(one, "").lower() for one in test.views}
        candidates = {live for live in self._beside.values() if ".".join(live) in views}
        if not test.behind or len(candidates) < len(views):
            return frozenset()
        reached = self._reached(candidates)
        return frozenset() if reached is None else test.behind - reached

    @cached_property
    def _folders(self) -> dict[str, str]:
        """The folders with the files of tables of the run, and which node each table is."""
        places = {
            node_id: candidate.place
            for node_id, candidate in self._by_node.items()
            if node_id in self._name_of
        }
        states = self._lake.states(places.values())
        return {
            plain_location(states[place].location).lower(): node_id
            for node_id, place in places.items()
            if place in states
        }

    def _of_files(self, pattern: str) -> set[str]:
        """The nodes of which files are read by a path, in which there may be patterns."""
        path = plain_location(_PATTERN.split(pattern, maxsplit=1)[0]).lower()
        return {
            node_id
            for folder, node_id in self._folders.items()
            if folder.startswith(path) or path.startswith(f"{folder}/")
        }

    def named(self, reader: str) -> list[str] | None:
        """The relations of the lake that the statements of a node or test may have named.

        In lower case, by their live names. None if no statement was sent, or if it may be any.
        """
        told = self._trail.naming.get(reader)
        found: set[str] = set()
        for schema, name in told.relations if told else ():
            if (schema, name) == ANY_RELATION or schema in self._outside:
                return None
            if "/" in name:
                if self._of_files(name) != {reader}:
                    return None
                # The location of its own table.
                continue
            live = names.split_side_schema(schema, self._branch)
            if live is not None or name in self._relations_in(schema):
                found.add(f"{live or schema}.{name}")
        return sorted(found) if told else None

    def _relations_in(self, schema: str) -> frozenset[str]:
        if schema not in self._members:
            alike = self._schemas.get(schema, ())
            self._members[schema] = frozenset(
                name.lower() for one in alike for name in self._lake.relations(one)
            )
        return self._members[schema]

    def _read_by(self, reader: str) -> tuple[set[str], bool]:
        """The nodes that a node or test may have read, and whether these are known by name."""
        found = self._reached(self._trail.naming[reader].relations)
        any_of_them = set(self._of_name.values())
        return (any_of_them if found is None else found) - {reader}, found is not None

    def _reached(self, relations: Iterable[Identifier]) -> set[str] | None:
        """The nodes that relations are, or read as views on the branch; None if it may be any."""
        of_name = self._of_name
        seen: set[Identifier] = set()
        todo = set(relations)
        found: set[str] = set()
        while todo:
            schema, name = todo.pop()
            if (schema, name) == ANY_RELATION or schema in self._outside:
                return None
            if "/" in name and schema not in self._schemas:
                found |= self._of_files(name)
            one = (names.split_side_schema(schema, self._branch) or schema, name)
            if one not in seen and one[0] in self._schemas:
                seen.add(one)
                todo |= self._behind_of(one)
        return found | {of_name[".".join(one)] for one in seen if ".".join(one) in of_name}

    def _read_in_place(self, reader: str, *, present: bool = False) -> tuple[set[str], set[str]]:
        """The nodes whose candidates a node or test has read, and those that it has read live."""
        named = self._trail.naming[reader]
        in_place: set[str] = set()
        live: set[str] = set()
        seen: set[Identifier] = set()
        todo = set(named.present if present else named.relations)
        beside = {live: side for side, live in self._beside.items()}
        while todo:
            one = todo.pop()
            if one in seen or one[0] not in self._schemas:
                continue
            seen.add(one)
            todo |= self._view_text(one, present=present)
            node_id = self._of_name.get(".".join(self._beside.get(one, one)))
            if node_id is not None and node_id != reader:
                another = one in beside and not self._is_one_view(one, beside[one])
                (live if another else in_place).add(node_id)
        return in_place, live - in_place

    def _is_one_view(self, live: Identifier, beside: Identifier) -> bool:
        """Whether both are views of one text: a session of the run has the same rows of both."""
        found = [self._views_of(schema).get(name, []) for schema, name in (live, beside)]
        texts = {self._lake.view_content(view) for views in found for view in views}
        return all(found) and len(texts) == 1 and None not in texts

    def _views_of(self, schema: str) -> dict[str, list[Identifier]]:
        if schema not in self._views:
            views: dict[str, list[Identifier]] = {}
            for exact in self._schemas.get(schema, ()):
                for name, kind in self._lake.relations(exact).items():
                    if kind == "view":
                        views.setdefault(name.lower(), []).append((exact, name))
            self._views[schema] = views
        return self._views[schema]

    def _behind_of(self, one: Identifier) -> frozenset[Identifier]:
        """What a view reads, on the branch if it stands there; nothing for a table."""
        side = (names.side_schema(one[0], self._branch).lower(), one[1])
        return self._view_text(side if side[1] in self._views_of(side[0]) else one)

    def _view_text(self, one: Identifier, *, present: bool = False) -> frozenset[Identifier]:
        """What the text of a view reads; nothing for a table."""
        if (one, present) not in self._behind:
            views = self._views_of(one[0]).get(one[1], ())
            texts = (self._lake.view_reads(view, present=present) for view in views)
            self._behind[one, present] = frozenset().union(*texts)
        return self._behind[one, present]
