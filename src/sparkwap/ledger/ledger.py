"""The ledger: the history of runs, nodes, test results and publishes.

Rows are only appended; only manifests are deleted, when no publish or branch needs them any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg import expressions

from sparkwap.catalog.model import Identifier
from sparkwap.catalog.store import Staged
from sparkwap.ledger.journal import JournalTable
from sparkwap.ledger.manifests import Packed
from sparkwap.ledger.records import (
    CLOCKS_DIFFER,
    LOADED,
    BranchHistory,
    DeliveredAlert,
    KeptManifest,
    LedgerPublish,
    group_publishes,
    is_end_of_run,
    latest,
    time_after,
    time_of,
    token_of,
)
from sparkwap.ledger.rollback_plan import undone_entries
from sparkwap.ledger.tables import TableChange, ex

_WRITTEN = {
    "runs": "ended_at",
    "nodes": "built_at",
    "tests": "executed_at",
    "metrics": "measured_at",
    "maintenance": "at",
    "publishes": "published_at",
}
_ID_LENGTH = 8
_NAMED = (
    "run_id", "node_id", "schema", "name", "candidate_snapshot", "candidate_metadata", "built_at",
)  # fmt: skip
_OF_LATE = timedelta(days=30)


class Ledger(JournalTable):
    """The ledger of a lake; safe for use by several threads."""

    def branch_history(self, branch: str) -> BranchHistory:
        """Return the latest rows of an audit branch since it was last discarded."""
        since = self._last_discard(branch)
        nodes = self._of_branch("nodes", branch, "built_at", since)
        tests = self._of_branch("tests", branch, "executed_at", since)
        times = [*(one["built_at"] for one in nodes), *(one["executed_at"] for one in tests), since]
        return BranchHistory(
            latest(self._without_unbegun(nodes), "node_id", "built_at"),
            latest(tests, "test_id", "executed_at"),
            max(filter(None, times), default=None),
        )

    def time_on(self, branch: str) -> datetime:
        """Return the present time, but later than all rows about an audit branch.

        Other machines may have written them, whose clocks are ahead.
        """
        ends = [self._last_end(branch), *self._published_from(branch).values()]
        return time_after(
            max(filter(None, [*ends, self.branch_history(branch).last]), default=None)
        )

    def _without_unbegun(self, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows without those of a publish that never began.

        On a catalog without multi-table transactions, the verdicts are committed before the
        journal. A process that dies between the two commits has published nothing.
        """
        if self.lake.store.backend.atomic or all(row["verdict"] != "published" for row in nodes):
            return nodes
        begun = {row["run_id"] for table in ("journal", "publishes") for row in self.rows(table)}
        return [row for row in nodes if row["verdict"] != "published" or row["run_id"] in begun]

    def of_run(self, table: str, run_id: str) -> list[dict[str, Any]]:
        """Return the rows of one run in a table; of ``runs``, those that tell its end."""
        rows = self.read(table, ex.EqualTo("run_id", run_id))
        return list(filter(is_end_of_run, rows)) if table == "runs" else rows

    def published_tests(
        self, test_ids: Iterable[str], table_of_node: Callable[[str], Identifier | None]
    ) -> dict[str, dict[str, Any]]:
        """Return the last row of each test that audited a published candidate, by test id.

        Publishes that were rolled back do not count, nor do those of another target, which has
        other tables. ``table_of_node`` returns the present table of a node.
        """
        asked, latest_rows = set(test_ids), dict[str, dict[str, Any]]()
        # Most tests have run of late; only those that have not are searched in the whole history.
        for since in (datetime.now(UTC) - _OF_LATE, None):
            missing = asked - latest_rows.keys()
            if missing:
                latest_rows |= self._published_tests(missing, since, table_of_node)
        return latest_rows

    def _published_tests(
        self,
        test_ids: set[str],
        since: datetime | None,
        table_of_node: Callable[[str], Identifier | None],
    ) -> dict[str, dict[str, Any]]:
        condition: expressions.BooleanExpression = ex.In("test_id", test_ids)
        if since is not None:
            condition = ex.And(condition, ex.GreaterThan("executed_at", since.isoformat()))
        found = self.read("tests", condition)
        saw = {node for row in found for node in dict(row["audited"] or ())}
        live = self._published(
            {node: key for node in saw if (key := table_of_node(node)) is not None}
        )
        counted = [
            row for row in found if not live.keys().isdisjoint(dict(row["audited"] or ()).items())
        ]
        return {row["test_id"]: row for row in latest(counted, "test_id", "executed_at")}

    def results_to_build_on(self, since: datetime) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of tests that later answers may build on, by test.

        Rows count if all rows of their table were audited ``since`` then.
        """
        columns = (
            "test_id", "status", "failures", "basis", "snapshot", "parent_snapshot", "whole_at",
            "increments",
        )  # fmt: skip
        new = ex.GreaterThanOrEqual("whole_at", since.isoformat())
        found: dict[str, list[dict[str, Any]]] = {}
        for row in self.read("tests", ex.And(ex.NotNull("basis"), new), columns):
            found.setdefault(str(row["test_id"]), []).append(row)
        return found

    def tests_of(self, nodes: Mapping[str, Identifier]) -> list[dict[str, Any]]:
        """Return the tests that audited the last published candidates of nodes.

        Args:
            nodes: Node -> schema and name of its table.

        Returns:
            The latest row of each test: id, name, what was audited, and when.
        """
        of_nodes = ex.In("node_id", set(nodes))
        built = self.read("nodes", of_nodes, (*_NAMED, "verdict")) if nodes else []
        last: dict[str, tuple[Any, str]] = {}
        for (node, token), at in self._standing(built, nodes).items():
            last[node] = max(last.get(node, (at, token)), (at, token))
        now = {(node, token) for node, (_, token) in last.items()}
        if not now:
            return []
        # No test audits a candidate before it is built, which may be days before its publish;
        # clocks may differ.
        since = min(row["built_at"] for row in built if (row["node_id"], str(token_of(row))) in now)
        since -= CLOCKS_DIFFER
        columns = ("test_id", "test_name", "audited", "executed_at")
        rows = self.read("tests", ex.GreaterThan("executed_at", since.isoformat()), columns)
        saw = [row for row in rows if not now.isdisjoint(dict(row["audited"] or ()).items())]
        return list(latest(saw, "test_id", "executed_at"))

    def tests_of_others(
        self, nodes: Mapping[Identifier, str]
    ) -> dict[Identifier, list[dict[str, Any]]]:
        """Return the rows of other projects' tests, by table that another project published last.

        ``nodes`` are the nodes that build the tables now.
        """
        if not nodes:
            return {}
        wanted = ex.And(
            ex.In("name", {name for _, name in nodes}), ex.EqualTo("verdict", "published")
        )
        last = _last_of_names(self._begun(self.read("nodes", wanted, _NAMED)))
        strange = {
            str(row["node_id"]): key
            for key, row in last.items()
            if key in nodes and not _same_project(row["node_id"], nodes[key])
        }
        found: dict[Identifier, list[dict[str, Any]]] = {}
        for row in self.tests_of(strange) if strange else ():
            for node in strange.keys() & dict(row["audited"]).keys():
                found.setdefault(strange[node], []).append(row)
        return found

    def _published(self, nodes: Mapping[str, Identifier]) -> dict[tuple[str, str], datetime]:
        """Return (node, token) of each candidate that was published and not rolled back -> when.

        A node has another table in each target.
        """
        published = ex.And(ex.In("node_id", set(nodes)), ex.EqualTo("verdict", "published"))
        columns = (*_NAMED, "verdict")
        return self._standing(self.read("nodes", published, columns) if nodes else [], nodes)

    def _standing(
        self, rows: list[dict[str, Any]], nodes: Mapping[str, Identifier]
    ) -> dict[tuple[str, str], datetime]:
        """Return `_published` of these rows of ``nodes``."""
        published = [row for row in rows if row["verdict"] == "published"]
        if not published:
            return {}
        ids = {
            row["run_id"]: row["publish_id"]
            for row in self.read("runs", ex.NotNull("publish_id"), ("run_id", "publish_id"))
        }
        columns = ("publish_id", "schema", "name", "action")
        undone = undone_entries(self.read("publishes", ex.EqualTo("action", "rollback"), columns))
        return {
            (row["node_id"], str(token_of(row))): row["built_at"]
            for row in self._begun(published)
            if (row["schema"], row["name"]) == nodes[row["node_id"]]
            and (ids.get(row["run_id"]), row["schema"], row["name"]) not in undone
        }

    def _begun(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return published rows of ``nodes`` without those whose publish was undone or never began.

        On a catalog without multi-table transactions, the verdicts are committed before the
        journal, and the rows of ``publishes`` after the last table has moved.
        """
        if self.lake.store.backend.atomic or not rows:
            return rows
        columns = ("run_id", "schema", "name")
        found = self.read("publishes", ex.EqualTo("action", "publish"), columns)
        made = {tuple(row[column] for column in columns) for row in found}
        return [
            row
            for row in rows
            if token_of(row) is None or (row["run_id"], row["schema"], row["name"]) in made
        ]

    def builds(self, node_id: str, identifier: Identifier) -> list[tuple[dict[str, Any], bool]]:
        """Return the row of each build of a node under a name, oldest first.

        With it, whether the build was published and not rolled back.
        """
        schema, name = identifier
        rows = self.read("nodes", _all_equal(node_id=node_id, schema=schema, name=name))
        live = self._published({node_id: identifier})
        rows.sort(key=lambda row: time_of(row["built_at"]))
        return [
            (row, row["verdict"] == "published" and (node_id, str(token_of(row))) in live)
            for row in rows
        ]

    def acceptances(
        self, branch: str, table_of_node: Callable[[str], Identifier | None]
    ) -> dict[str, dict[str, Any]]:
        """Return the acceptances that are valid for an audit branch now: test id -> latest row.

        An acceptance is valid for the present tables of its own target only.
        """
        rows = self.rows("acceptances")
        if not rows:
            return {}
        since = time_of(self._last_end(branch))
        # A run that publishes some of its tables keeps the branch open for the others.
        published = self._published_from(branch)
        now = datetime.now(UTC)
        holding = [
            row
            for row in rows
            for tables in (dict(row["tables"] or ()),)
            if (
                (
                    row["branch"] == branch
                    and row["accepted_at"] > since
                    and all(row["accepted_at"] > time_of(published.get(t)) for t in tables.values())
                )
                or (row["until"] is not None and row["until"] > now)
            )
            and all(".".join(table_of_node(node) or ()) == table for node, table in tables.items())
        ]
        return {row["test_id"]: row for row in latest(holding, "test_id", "accepted_at")}

    def _published_from(self, branch: str) -> dict[str, datetime]:
        """Return the last publish time of each table (``schema.name``) from an audit branch."""
        found: dict[str, datetime] = {}
        for row in self.read("publishes", _all_equal(branch=branch, action="publish")):
            table = f"{row['schema']}.{row['name']}"
            found[table] = max(time_of(found.get(table)), row["published_at"])
        return found

    def builder(self, identifier: Identifier) -> tuple[str, str] | None:
        """Return the node last published under a name, and its project; None if there is none.

        Rows that another program has written (`LOADED`) do not count.
        """
        schema, name = identifier
        wanted = _all_equal(schema=schema, name=name, verdict="published")
        rows = [row for row in self._begun(self.read("nodes", wanted, _NAMED))
                if not row["node_id"].startswith(LOADED)]  # fmt: skip
        if not rows:
            return None
        last = max(rows, key=lambda row: time_of(row["built_at"]))
        runs = self.of_run("runs", last["run_id"])
        return last["node_id"], next((row["project"] for row in runs if row["project"]), "")

    def owners(self) -> dict[Identifier, str]:
        """Return the node last published under each name; stored test failures do not count."""
        columns = (*_NAMED, "resource_type")
        rows = self.read("nodes", ex.EqualTo("verdict", "published"), columns)
        last = _last_of_names(self._begun(rows)).items()
        return {key: str(row["node_id"]) for key, row in last if row["resource_type"] != "failures"}

    def runs(self, branch: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
        """Return rows of ``runs``, newest first, of one audit branch or of all."""
        condition = ex.EqualTo("branch", branch) if branch else None
        found = self.read("runs", condition)
        found.sort(key=lambda row: time_of(row["started_at"]), reverse=True)
        return found[:limit]

    def publish(self, some_id: str) -> list[LedgerPublish]:
        """Return the publishes with this publish id or run id, or its start, newest first."""
        if len(some_id) < _ID_LENGTH:
            return []
        ids = ex.Or(ex.StartsWith("publish_id", some_id), ex.StartsWith("run_id", some_id))
        named = {p.publish_id for p in group_publishes(self.read("publishes", ids))}
        # Read again by publish id: rows of a rollback have the run id of the rollback.
        return group_publishes(self.read("publishes", ex.In("publish_id", named))) if named else []

    def standing_publishes(self, run_id: str) -> list[LedgerPublish]:
        """Return the publishes of a run and of its rebuilds that were not rolled back."""
        rebuilds = [row["run_id"] for row in self.rows("runs") if row.get("rebuild_of") == run_id]
        found = [publish for some_id in (run_id, *rebuilds) for publish in self.publish(some_id)]
        return [publish for publish in found if not publish.rolled_back]

    def publishes(self, limit: int | None = None) -> list[LedgerPublish]:
        """Return all publishes, newest first."""
        return group_publishes(self.rows("publishes"))[:limit]

    def last_publishes(self, tables: Collection[Identifier]) -> list[LedgerPublish]:
        """Return the last publishes of tables, newest first, also if they were undone."""
        names = {name for _, name in tables}
        of_tables = ex.And(ex.EqualTo("action", "publish"), ex.In("name", names))
        columns = ("publish_id", "schema", "name", "published_at")
        last = _last_of_names(self.read("publishes", of_tables, columns), "published_at")
        ids = {last[key]["publish_id"] for key in tables if key in last}
        return group_publishes(self.read("publishes", ex.In("publish_id", ids))) if ids else []

    def published_nodes(self, publish: LedgerPublish) -> list[dict[str, Any]]:
        """Return the rows of ``nodes`` that belong to a publish."""
        of_run = _all_equal(run_id=publish.run_id, branch=publish.branch, verdict="published")
        names = {entry.identifier for entry in publish.entries}
        rows = self.read("nodes", of_run)
        return [row for row in rows if (row["schema"], row["name"]) in names]

    def branch_rows(self, table: str, branch: str) -> list[dict[str, Any]]:
        """Return all rows of ``nodes`` or ``tests`` of a branch since it was last discarded."""
        time = {"nodes": "built_at", "tests": "executed_at"}[table]
        return self._of_branch(table, branch, time, self._last_discard(branch))

    def built_on(self, branch: str) -> set[str]:
        """Return the nodes that were built on a branch since its last publish that still stands."""
        standing = (p for p in self.publishes() if p.branch == branch and p.left == p.entries)
        since = max((publish.published_at for publish in standing), default=None)
        return {row["node_id"] for row in self._of_branch("nodes", branch, "built_at", since)}

    def manifest(self, some_hash: str) -> tuple[str, Packed] | None:
        """Return project and content of a stored manifest; None if it is not stored."""
        found = self.read("manifests", ex.EqualTo("hash", some_hash))
        return (found[0]["project"], Packed(some_hash, found[0]["content"])) if found else None

    def manifest_projects(self) -> dict[str, str]:
        """Return hash -> project of all stored manifests."""
        return {kept.hash: kept.project for kept in self.kept_manifests()}

    def kept_manifests(self) -> list[KeptManifest]:
        """Return all stored manifests once, sorted by hash."""
        found = self.read("manifests", columns=("hash", "project", "stored_at"))
        kept = {r["hash"]: KeptManifest(r["hash"], r["project"], r["stored_at"]) for r in found}
        return [kept[key] for key in sorted(kept)]

    def forget_manifests(self, hashes: Collection[str]) -> None:
        """Delete manifests, as far as they are stored.

        Their data files stay until no snapshot of the table refers to them; a sweep deletes them.
        """
        condition = ex.In("hash", set(hashes))

        def stage() -> Staged[None]:
            # Another command may have deleted them since.
            if not self.read("manifests", condition, ("hash",)):
                return Staged(None)
            return self.stage_changes(
                [TableChange("manifests", lambda change: change.delete(condition))]
            )

        self.lake.store.commit(stage, "ledger")

    def delivered_since(self, since: datetime) -> list[DeliveredAlert]:
        """Return the alerts that were delivered since a time."""
        sent = ex.And(ex.GreaterThanOrEqual("at", since.isoformat()), ex.EqualTo("outcome", "sent"))
        rows = self.read("alerts", sent)
        return [DeliveredAlert(row["route"], row["fingerprint"], row["at"]) for row in rows]

    def recent(
        self, table: str, since: datetime | None, columns: tuple[str, ...] = ("*",)
    ) -> list[dict[str, Any]]:
        """Return the rows of a table of `_WRITTEN` since a time; all for None."""
        late = ex.GreaterThanOrEqual(_WRITTEN[table], since.isoformat()) if since else None
        return self.read(table, late, columns)

    def _of_branch(
        self, table: str, branch: str, time: str, since: datetime | None
    ) -> list[dict[str, Any]]:
        condition: expressions.BooleanExpression = ex.EqualTo("branch", branch)
        if since is not None:
            condition = ex.And(condition, ex.GreaterThan(time, since.isoformat()))
        return self.read(table, condition)

    def _last_discard(self, branch: str) -> datetime | None:
        return self._last_end(branch, {"discarded"})

    def _last_end(
        self, branch: str, outcomes: Collection[str] = frozenset({"published", "discarded"})
    ) -> datetime | None:
        condition = ex.And(ex.EqualTo("branch", branch), ex.In("outcome", set(outcomes)))
        return max((row["ended_at"] for row in self.read("runs", condition)), default=None)


def _all_equal(**columns: str) -> Any:
    return ex.And(*(ex.EqualTo(column, value) for column, value in columns.items()))


def _same_project(published: str, present: str) -> bool:
    """Return whether two nodes belong to one project; tables of other programs always match."""
    return published.startswith(LOADED) or published.split(".")[1:2] == present.split(".")[1:2]


def _last_of_names(
    rows: Iterable[dict[str, Any]], time: str = "built_at"
) -> dict[Identifier, dict[str, Any]]:
    """Return the last row under each name."""
    ordered = sorted(rows, key=lambda row: time_of(row[time]))
    return {(row["schema"], row["name"]): row for row in ordered}
