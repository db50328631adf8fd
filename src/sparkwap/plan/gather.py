"""Gathers the facts of a plan from dbt's manifest, the ledger and the catalog, without Spark."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from sparkwap.catalog.read_dependencies import NOTHING, columns
from sparkwap.core.errors import MetadataFileMissing
from sparkwap.ledger.code import (
    BUILT,
    BUILTINS,
    INTERNAL,
    NAMING,
    ProjectMacros,
    name_of,
    parts,
    plain_name,
    unit_tests,
)
from sparkwap.ledger.manifests import Document, reduced, unpack
from sparkwap.ledger.records import CLOCKS_DIFFER, time_of, token_of
from sparkwap.ledger.tables import ex
from sparkwap.plan.decide import Facts, Input, Known, Plan, decide
from sparkwap.plan.uncertain import DBT_MACROS, declared, why_hook_uncertain, why_uncertain
from sparkwap.runs.candidates import VIEW

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier, TableState
    from sparkwap.catalog.model import PublishedEntry
    from sparkwap.ledger.records import LedgerPublish
    from sparkwap.publish.lake import Lake

_LAST_BUILDS = 5
"""The number of builds or results whose median is the expected time."""
_OF_NODES = (
    "run_id", "branch", "node_id", "schema", "name", "verdict", "candidate_snapshot",
    "candidate_metadata", "built_on", "reads", "named", "built_at",
)  # fmt: skip
_OF_TESTS = (
    "run_id", "test_id", "status", "failures", "audited", "reads", "named", "seconds",
    "executed_at",
)  # fmt: skip
_SESSION = "settings of Spark in the profile, or dispatch"
_PASSED = frozenset({"pass", "warn"})


class Gatherer:
    """Gathers what is known of the nodes and tests of a project.

    Args:
        lake: The lake; None if there is none yet.
        unread: The number of unread landing files of the raw models, by table.
        session: A token of the profile's settings of Spark, and of dbt's ``dispatch``.
        dispatch: The entries of ``dispatch`` in ``dbt_project.yml``.
    """

    def __init__(
        self,
        manifest: Mapping[str, Any],
        lake: Lake | None,
        unread: Mapping[Identifier, int],
        session: str | None = None,
        dispatch: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._manifest = manifest
        self._macros = manifest["macros"]
        self._lake = lake
        self._unread = unread
        self._session = session
        self._nodes = {
            key: node
            for key, node in manifest["nodes"].items()
            if node["resource_type"] in {*BUILT, "test"} and node["config"].get("enabled", True)
        }
        self._code = _code(reduced(manifest))
        self._code_of = cache(self._code_of_hash)
        self._words = ProjectMacros(self._macros)
        self._searched = {manifest["metadata"]["project_name"]}.union(
            *(one["search_order"] for one in dispatch if one["macro_namespace"] in INTERNAL)
        )
        self._overridden = cache(self._overridden_in)

    def plan(self) -> Plan:
        """Return the plan of a build of the whole project."""
        built = {
            key
            for key, node in self._nodes.items()
            if node["resource_type"] in BUILT and not _is_ephemeral(node)
        }
        order = TopologicalSorter({key: self._parents(key) & built for key in sorted(built)})
        tests = sorted(key for key, one in self._nodes.items() if one["resource_type"] == "test")
        return decide(
            [self._facts(key, self._live(key)) for key in order.static_order()],
            [self._facts(key, self._last_result(key)) for key in tests],
            {key: name_of(key) for key in self._nodes},
        )

    def _facts(self, key: str, known: Known | None) -> Facts:
        inlined = self._inlined(key)
        table = self._table(key)
        return Facts(
            key,
            tuple(sorted(self._parents(key))),
            _with_inlined(self._code, key, inlined) | {_SESSION: str(self._session)},
            next(filter(None, map(self._uncertain, (key, *sorted(inlined)))), None),
            known,
            self._unread.get(table, 0) if table else 0,
            self._seconds.get(key),
        )

    # -- the manifest ----------------------------------------------------------------------------

    def _depends_on(self, key: str) -> list[str]:
        return list((self._nodes[key].get("depends_on") or {}).get("nodes") or ())

    def _inlined(self, key: str) -> set[str]:
        """Return the ephemeral models that are part of a node's query."""
        found: set[str] = set()
        waiting = self._depends_on(key)
        while waiting:
            one = waiting.pop()
            if one in self._nodes and one not in found and _is_ephemeral(self._nodes[one]):
                found.add(one)
                waiting += self._depends_on(one)
        return found

    def _parents(self, key: str) -> set[str]:
        """Return the nodes and sources that a node reads, ephemeral models looked through."""
        inlined = self._inlined(key)
        return {one for other in (key, *inlined) for one in self._depends_on(other)} - inlined

    def _behind(self, key: str) -> set[str]:
        """Return the nodes and sources that a node reads, also those behind views."""
        found: set[str] = set()
        waiting = list(self._parents(key))
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                if one in self._nodes and self._nodes[one]["config"]["materialized"] == "view":
                    waiting += self._parents(one)
        return found

    def _table(self, key: str) -> Identifier | None:
        node = self._nodes.get(key)
        if node is not None:
            return node["schema"], node["alias"]
        source = self._manifest["sources"].get(key)
        return (source["schema"], source["identifier"]) if source else None

    def _overridden_in(self, package: str) -> set[str]:
        """Return the plain names of macros that may replace those of dbt for a package's nodes.

        How a project names its schemas is no part of a query.
        """
        packages = {*self._searched, package} - INTERNAL
        own = [one["name"] for one in self._macros.values() if one["package_name"] in packages]
        return {plain_name(name) for name in own} - NAMING

    def _uncertain(self, key: str) -> str | None:
        node = self._nodes[key]
        why = why_uncertain(node, self._called(node))
        return why or (None if declared(node) else self._hooks_uncertain)

    def _called(self, node: Mapping[str, Any]) -> dict[str, Any]:
        overridden = self._overridden(node["package_name"])
        found = self._words.of(node, overrides=DBT_MACROS | BUILTINS | overridden)
        return {one: self._macros[one] for one in found}

    @cached_property
    def _hooks_uncertain(self) -> str | None:
        """Why `on-run-start` may change what nodes read, or how; None if it cannot."""
        hooks = filter(_is_first, self._manifest["nodes"].values())
        why = (why_hook_uncertain(hook, self._called(hook)) for hook in hooks)
        return next((f"on-run-start: {one}" for one in why if one), None)

    # -- the lake --------------------------------------------------------------------------------

    @cached_property
    def now(self) -> dict[Identifier, str]:
        """The present states of all tables that are built or read, as in ``reads``."""
        keys = {*self._nodes, *self._manifest["sources"]}
        names = {table for key in keys if (table := self._table(key))}
        found = self._lake.read(names) if self._lake else []
        return {one.identifier: one.token for one in found}

    @cached_property
    def _states(self) -> Mapping[Identifier, Any]:
        return self._lake.states(self.now) if self._lake else {}

    # -- the ledger ------------------------------------------------------------------------------

    @cached_property
    def _publishes(self) -> dict[Identifier, tuple[LedgerPublish, PublishedEntry]]:
        """The last publish of each table, also if it was undone."""
        tables = {table for key in self._nodes if (table := self._table(key))}
        found: dict[Identifier, tuple[LedgerPublish, PublishedEntry]] = {}
        for publish in self._lake.ledger.last_publishes(tables) if self._lake else ():
            for entry in publish.entries:
                found.setdefault(entry.identifier, (publish, entry))
        return found

    @cached_property
    def _builds(self) -> Mapping[str, list[dict[str, Any]]]:
        """The rows of each node on the branches that were published last, oldest first."""
        branches = {publish.branch for publish, _ in self._publishes.values()}
        if self._lake is None or not branches:
            return {}
        rows = self._lake.ledger.read("nodes", ex.In("branch", branches), _OF_NODES)
        return _by_key(rows, "node_id", "built_at")

    @cached_property
    def _results(self) -> Mapping[str, list[dict[str, Any]]]:
        """The rows of each test since the oldest live table was built, oldest first."""
        if self._lake is None:
            return {}
        built = [row["at"] for key in self._nodes if (row := self._published_row(key))]
        # A test has the clock of its machine.
        since = min(built) - CLOCKS_DIFFER if built else None
        rows = self._lake.ledger.recent("tests", since, _OF_TESTS)
        return _by_key(rows, "test_id", "executed_at")

    @cached_property
    def _runs(self) -> dict[str, dict[str, Any]]:
        if self._lake is None:
            return {}
        columns = ("run_id", "manifest_hash", "session")
        rows = self._lake.ledger.read("runs", ex.NotNull("manifest_hash"), columns)
        return {row["run_id"]: row for row in rows}

    @cached_property
    def _seconds(self) -> dict[str, float]:
        columns = ("node_id", "seconds", "built_at")
        rows = self._lake.ledger.read("nodes", ex.NotNull("seconds"), columns) if self._lake else ()
        builds = _by_key(rows, "node_id", "built_at")
        known = {
            key: [row["seconds"] for row in rows if row["seconds"] is not None]
            for key, rows in {**builds, **self._results}.items()
        }
        return {key: statistics.median(all_[-_LAST_BUILDS:]) for key, all_ in known.items() if all_}

    def _code_of_hash(self, code_hash: str) -> dict[str, dict[str, str]] | None:
        stored = self._lake.ledger.manifest(code_hash) if self._lake else None
        return None if stored is None else _code(unpack(stored[1]))

    def _code_in(self, run_id: str, key: str, inlined: Collection[str]) -> dict[str, str] | None:
        """Return the digests of a node's code in a run; None if the run's code is not stored."""
        run = self._runs.get(run_id)
        code = self._code_of(run["manifest_hash"]) if run else None
        if run is None or code is None or key not in code or not code.keys() >= set(inlined):
            return None
        return _with_inlined(code, key, inlined) | {_SESSION: str(run["session"])}

    @cache  # noqa: B019 - the object lives as long as its command
    def _published_row(self, key: str) -> dict[str, Any] | None:
        """Return the row of the build that the last publish of a node has made live."""
        table = self._table(key)
        if table is None or table not in self._publishes:
            return None
        publish, _ = self._publishes[table]
        rows = [row for row in self._builds.get(key, ()) if (row["schema"], row["name"]) == table]
        of_publish = [
            row for row in rows if row["run_id"] == publish.run_id and row["verdict"] == "published"
        ]
        if not of_publish:
            return None
        token = token_of(of_publish[-1])
        # An earlier run may have built it and left it held; then its code and reads count.
        return next(
            (row for row in rows if token_of(row) == token and row["branch"] == publish.branch),
            None,
        )

    def _live(self, key: str) -> Known | None:
        """Return the build of a node that was published last; None if it was never published."""
        table, row = self._table(key), self._published_row(key)
        if table is None or table not in self._publishes:
            return None
        publish, entry = self._publishes[table]
        if row is None:
            problem = "its last publish was by another project or program"
            return Known(publish.run_id, publish.published_at, None, (), problem)
        return Known(
            row["run_id"],
            publish.published_at,
            self._code_in(row["run_id"], key, self._inlined(key)),
            self._inputs(key, dict(row.get("built_on") or ()), row),
            self._problem(table, publish, entry),
        )

    def _problem(
        self, table: Identifier, publish: LedgerPublish, entry: PublishedEntry
    ) -> str | None:
        if entry not in publish.left:
            return "its last publish was rolled back"
        state = self._states.get(table)
        if state is None:
            return "it does not exist any more"
        if (state.main or state.metadata_location) != (
            entry.candidate or entry.published_metadata_location
        ):
            return "it has changed since its last publish"
        if state.kind == "table" and not self._has_same_columns(state, entry):
            return "its columns have changed since its last publish"
        return None

    def _has_same_columns(self, state: TableState, entry: PublishedEntry) -> bool:
        """Return whether a table has the columns of its publish; a new column has no snapshot."""
        then, now = entry.published_metadata_location, state.metadata_location
        if then == now:
            return True
        assert self._lake is not None
        try:
            documents = [self._lake.store.load(one) for one in (str(then), now)]
        except MetadataFileMissing:
            return False
        return len(set(map(columns, documents))) == 1

    def _token(self, key: str) -> str | None:
        """Return the token of a node's live candidate, as in ``built_on`` and ``audited``."""
        table, row = self._table(key), self._published_row(key)
        if table is None or row is None:
            return None
        publish, entry = self._publishes[table]
        return None if self._problem(table, publish, entry) else token_of(row)

    def _inputs(
        self, key: str, candidates: Mapping[str, str], row: Mapping[str, Any]
    ) -> tuple[Input, ...]:
        """Return then and now of all that a node or test has read.

        Args:
            candidates: The candidates that it has read, node to token.
            row: Its row, with the states on ``main`` that it has read in ``reads``, name to token.
        """
        reads = dict(row.get("reads") or ())
        found, seen = [], set()
        for one in sorted(self._behind(key)):
            table = self._table(one)
            name = ".".join(table) if table else one
            seen.add(name)
            if one in candidates:
                then, live = candidates[one], self._published_row(one)
                # The mark of a view is a hash of its text, in which a publish changes names.
                is_same_view = then.startswith(VIEW) and live and live["run_id"] == row["run_id"]
                now = then if is_same_view and self._token(one) else self._token(one)
                found.append(Input(name, then, now))
            else:
                now = self.now.get(table) if table else None
                now = None if now == NOTHING else now
                if one not in self._nodes and str(now).startswith(VIEW):
                    # What is behind the view of another project is not known.
                    now = None
                found.append(Input(name, reads.get(name), now))
        # It has read what its present code does not name, or what dbt knows nothing of.
        found += [Input(name, then, None) for name, then in reads.items() if name not in seen]
        own = self._table(key)
        listed = {name.lower() for name in (*seen, ".".join(own) if own else "")}
        # The rows of a seed are not searched for names.
        named = [] if self._nodes[key]["resource_type"] == "seed" else row.get("named")
        if named is None:
            found.append(Input("other tables", None, None))
        else:
            found += [Input(name, None, None) for name in named if name not in listed]
        return tuple(found)

    def _last_result(self, key: str) -> Known | None:
        """Return the last result of a test; None if it has none of what is live."""
        for row in reversed(self._results.get(key, [])):
            inputs = self._inputs(key, dict(row.get("audited") or ()), row)
            if all(one.then is not None and one.then == one.now for one in inputs):
                failed = row["status"] not in _PASSED
                return Known(
                    row["run_id"],
                    row["at"],
                    self._code_in(row["run_id"], key, self._inlined(key)),
                    inputs,
                    f"its last result is {row['status']}" if failed else None,
                    row["status"] == "pass" and row["failures"] == 0,
                )
        return None


def _by_key(rows: Iterable[dict[str, Any]], key: str, time: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row[key]].append({**row, "at": time_of(row[time])})
    for of_one in found.values():
        of_one.sort(key=lambda row: row["at"])
    return found


def _code(manifest: Document) -> dict[str, dict[str, str]]:
    """Return the digests of the code of each node by part, with what runs it as a part."""
    made_by = manifest["metadata"]
    hooks = {
        f"hook {key}": str(node.get("raw_code"))
        for key, node in manifest["nodes"].items()
        if _is_hook(node)
    }
    if first := list(filter(_is_first, manifest["nodes"].values())):
        called = set().union(*(ProjectMacros(manifest["macros"]).of(one, ()) for one in first))
        hooks |= {f"hook {one}": str(manifest["macros"][one]["macro_sql"]) for one in called}
    of_unit_tests: dict[str, dict[str, str]] = defaultdict(dict)
    known = unit_tests(manifest)
    for key, test in manifest["unit_tests"].items():
        for tested in (test.get("depends_on") or {}).get("nodes") or ():
            of_unit_tests[tested][f"unit test {name_of(key)}"] = known[key]
    version = {
        f"version of {one}": str(made_by.get(f"{one}_version")) for one in ("dbt", "sparkwap")
    }
    entries = _landing_entries(manifest)
    return {
        key: {**found, **version, **hooks, **of_unit_tests[key], **entries(key)}
        for key, found in parts(manifest).items()
    }


def _landing_entries(manifest: Document) -> Callable[[str], dict[str, str]]:
    """Return a function that returns the landing entries that a node may use, by part.

    `added_columns`, `landing_key` and `cdc.model` use those of other nodes.
    """
    nodes = manifest["nodes"]
    metas = {key: (node.get("unrendered_config") or {}).get("meta") for key, node in nodes.items()}
    of_raw = {key: meta["landing"] for key, meta in metas.items() if meta and "landing" in meta}

    @cache
    def above(key: str) -> frozenset[str]:
        reads = nodes.get(key, {}).get("depends_on", {}).get("nodes") or ()
        return frozenset().union(of_raw.keys() & {key}, *map(above, reads))

    def entries(key: str) -> dict[str, str]:
        words = set(re.findall(r"\w+", str(nodes[key].get("raw_code"))))
        named = (one for one in of_raw if nodes[one]["name"] in words)
        return {
            f"landing entry of {name_of(one)}": str(of_raw[one]) for one in above(key).union(named)
        }

    return entries


def _with_inlined(
    code: Mapping[str, Mapping[str, str]], key: str, inlined: Collection[str]
) -> dict[str, str]:
    """Return the parts of a node's code, with those of the ephemeral models in its query."""
    found = dict(code[key])
    for one in sorted(inlined):
        found |= {f"{part} of {name_of(one)}": text for part, text in code[one].items()}
    return found


def _is_hook(node: Mapping[str, Any]) -> bool:
    return bool(node["resource_type"] == "operation" and node["package_name"] != "dbt_sparkwap")


def _is_first(node: Mapping[str, Any]) -> bool:
    return _is_hook(node) and "on-run-start" in (node.get("tags") or ())


def _is_ephemeral(node: Mapping[str, Any]) -> bool:
    return bool(node["config"].get("materialized") == "ephemeral")
