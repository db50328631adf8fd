"""The ledger: the history of runs, nodes, test results and publishes.

Rows are only appended, except for manifests of code that is no longer needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyiceberg import expressions
from pyiceberg.table import Table

from sparkwap.catalog import publish_journal
from sparkwap.catalog.model import Identifier, LedgerRows
from sparkwap.catalog.store import Staged
from sparkwap.ledger.manifests import Packed
from sparkwap.ledger.records import (
    LOADED,
    BranchHistory,
    DeliveredAlert,
    KeptManifest,
    LedgerPublish,
    group_publishes,
    latest,
    time_of,
    token_of,
)
from sparkwap.ledger.rollback_plan import undone_entries
from sparkwap.ledger.schemas import SCHEMAS
from sparkwap.ledger.tables import LedgerTables, TableChange, append_change, ex

_WRITTEN = {
    "runs": "ended_at",
    "nodes": "built_at",
    "tests": "executed_at",
    "metrics": "measured_at",
}
_ID_LENGTH = 8
_JOURNAL_KEY_AND_STATE = ("publish_id", "run_id", "action", "intended_at", "state")


class Ledger(LedgerTables):
    """The ledger of a lake; safe for use by several threads."""

    def open_journals(self) -> list[dict[str, Any]]:
        """Return the journal rows of publishes and rollbacks that have not ended."""
        rows = self.rows("journal")
        ended = {_journal_key(row) for row in rows if publish_journal.is_closed({row["state"]})}
        found = [r for r in rows if r["state"] == "intended" and _journal_key(r) not in ended]
        return sorted(found, key=lambda row: time_of(row["intended_at"]))

    def journal_states(self, row: Mapping[str, Any]) -> list[str]:
        """Return all states of a journal; ``row`` is any of its rows."""
        found = self.read("journal", _of_journal(row))
        return [one["state"] for one in found if _journal_key(one) == _journal_key(row)]

    def settle(self, row: Mapping[str, Any]) -> list[str]:
        """Write a state of a journal, unless it is closed or the other direction was decided.

        By compare and swap: no other row of the journal is written between the check and the row.

        Returns:
            All states that the journal has now.

        Raises:
            CatalogError: The catalog failed, or the disk; nothing was written.
        """
        states: list[str] = []

        def may(table: Table) -> bool:
            rows = table.scan(_of_journal(row), selected_fields=_JOURNAL_KEY_AND_STATE).to_arrow()
            found = [one for one in rows.to_pylist() if _journal_key(one) == _journal_key(row)]
            states[:] = [one["state"] for one in found]
            return publish_journal.may_follow(states, row["state"])

        change = replace(append_change(LedgerRows("journal", [row])), only_if=may)
        self.lake.store.commit(lambda: self.stage_changes([change]), "ledger")
        return (
            [*states, row["state"]] if publish_journal.may_follow(states, row["state"]) else states
        )

    def branch_history(self, branch: str) -> BranchHistory:
        """Return the latest rows of an audit branch since it was last discarded."""
        since = self._last_discard(branch)
        nodes = self._of_branch("nodes", branch, "built_at", since)
        return BranchHistory(
            latest(self._without_unbegun(nodes), "node_id", "built_at"),
            latest(
                self._of_branch("tests", branch, "executed_at", since), "test_id", "executed_at"
            ),
        )

    def _without_unbegun(self, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows without those of a publish that never began.

        If each table of the ledger is a commit of its own, the verdicts are written before the
        journal. A process that died between the two has published nothing.
        """
        if self.lake.store.backend.atomic or all(row["verdict"] != "published" for row in nodes):
            return nodes
        begun = {row["run_id"] for table in ("journal", "publishes") for row in self.rows(table)}
        return [row for row in nodes if row["verdict"] != "published" or row["run_id"] in begun]

    def of_run(self, table: str, run_id: str) -> list[dict[str, Any]]:
        """Return the rows of one run in a table."""
        return self.read(table, ex.EqualTo("run_id", run_id))

    def published_tests(
        self, test_ids: Iterable[str], stands: Callable[[str], Identifier | None]
    ) -> dict[str, dict[str, Any]]:
        """Return the row of each test from when rows that it read were last published.

        A publish that was rolled back does not count, nor one of another target, which has other
        tables.

        Args:
            test_ids: The tests.
            stands: Returns schema and name of the present table of a node.
        """
        found = self.read("tests", ex.In("test_id", set(test_ids)))
        saw = {node for row in found for node in dict(row["audited"] or ())}
        live = self._published({node: key for node in saw if (key := stands(node)) is not None})
        counted = [
            row for row in found if not live.keys().isdisjoint(dict(row["audited"] or ()).items())
        ]
        return {row["test_id"]: row for row in latest(counted, "test_id", "executed_at")}

    def tests_of(self, nodes: Mapping[str, Identifier]) -> list[dict[str, Any]]:
        """Return the rows of the tests that read the last published candidates of some nodes.

        Args:
            nodes: Node -> schema and name of its table.
        """
        last: dict[str, tuple[Any, str]] = {}
        for (node, token), at in self._published(nodes).items():
            last[node] = max(last.get(node, (at, token)), (at, token))
        now = {(node, token) for node, (_, token) in last.items()}
        rows = self.rows("tests") if now else []
        saw = [row for row in rows if not now.isdisjoint(dict(row["audited"] or ()).items())]
        return list(latest(saw, "test_id", "executed_at"))

    def tests_of_others(
        self, nodes: Mapping[Identifier, str]
    ) -> dict[Identifier, list[dict[str, Any]]]:
        """Return the rows of other projects' tests of tables that these projects built last.

        Args:
            nodes: Schema and name of each table -> the node that builds it now.
        """
        if not nodes:
            return {}
        wanted = ex.And(
            ex.In("name", {name for _, name in nodes}), ex.EqualTo("verdict", "published")
        )
        last = _last_of_names(self.read("nodes", wanted))
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
        """Return the candidates of nodes that were published and not rolled back -> when.

        A node has another table in each target of its project.
        """
        if not nodes:
            return {}
        published = ex.And(ex.In("node_id", set(nodes)), ex.EqualTo("verdict", "published"))
        ids = {row["run_id"]: row["publish_id"] for row in self.rows("runs")}
        undone = undone_entries(self.rows("publishes"))
        return {
            (row["node_id"], str(token_of(row))): row["built_at"]
            for row in self.read("nodes", published)
            if (row["schema"], row["name"]) == nodes[row["node_id"]]
            and (ids.get(row["run_id"]), row["schema"], row["name"]) not in undone
        }

    def builds(self, node_id: str, identifier: Identifier) -> list[tuple[dict[str, Any], bool]]:
        """Return the rows of all builds of a node under a name, oldest first.

        With each row, whether the build was published and not rolled back.
        """
        schema, name = identifier
        rows = self.read(
            "nodes",
            ex.And(
                ex.EqualTo("node_id", node_id),
                ex.EqualTo("schema", schema),
                ex.EqualTo("name", name),
            ),
        )
        live = self._published({node_id: identifier})
        rows.sort(key=lambda row: time_of(row["built_at"]))
        return [
            (row, row["verdict"] == "published" and (node_id, str(token_of(row))) in live)
            for row in rows
        ]

    def acceptances(
        self, branch: str, stands: Callable[[str], Identifier | None]
    ) -> dict[str, dict[str, Any]]:
        """Return the acceptances that are valid for an audit branch now: test id -> latest row.

        Args:
            branch: The audit branch.
            stands: Returns schema and name of the present table of a node: an acceptance is valid
                for the tables of its own target only.
        """
        rows = self.rows("acceptances")
        if not rows:
            return {}
        ended = ex.And(ex.EqualTo("branch", branch), ex.In("outcome", {"published", "discarded"}))
        since = max((row["ended_at"] for row in self.read("runs", ended)), default=time_of(None))
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
            and all(".".join(stands(node) or ()) == table for node, table in tables.items())
        ]
        return {row["test_id"]: row for row in latest(holding, "test_id", "accepted_at")}

    def _published_from(self, branch: str) -> dict[str, datetime]:
        """Return the tables (``schema.name``) published from an audit branch -> when last."""
        found: dict[str, datetime] = {}
        condition = ex.And(ex.EqualTo("branch", branch), ex.EqualTo("action", "publish"))
        for row in self.read("publishes", condition):
            table = f"{row['schema']}.{row['name']}"
            found[table] = max(time_of(found.get(table)), row["published_at"])
        return found

    def builder(self, identifier: Identifier) -> tuple[str, str] | None:
        """Return the node last published under a name, and its project; None if there is none.

        Rows that another program has written (`LOADED`) do not count.
        """
        schema, name = identifier
        wanted = ex.And(
            ex.EqualTo("schema", schema),
            ex.EqualTo("name", name),
            ex.EqualTo("verdict", "published"),
        )
        rows = [row for row in self.read("nodes", wanted)
                if not row["node_id"].startswith(LOADED)]  # fmt: skip
        if not rows:
            return None
        last = max(rows, key=lambda row: time_of(row["built_at"]))
        runs = self.read("runs", ex.EqualTo("run_id", last["run_id"]))
        return last["node_id"], next((row["project"] for row in runs), "")

    def owners(self) -> dict[Identifier, str]:
        """Return what was last published under each name, without stored failures."""
        last = _last_of_names(self.read("nodes", ex.EqualTo("verdict", "published")))
        return {
            key: str(row["node_id"])
            for key, row in last.items()
            if row["resource_type"] != "failures"
        }

    def runs(self, branch: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
        """Return rows of ``runs``, newest first, of one audit branch or of all."""
        condition = ex.EqualTo("branch", branch) if branch else None
        found = self.read("runs", condition)
        found.sort(key=lambda row: time_of(row["started_at"]), reverse=True)
        return found[:limit]

    def publish(self, some_id: str) -> list[LedgerPublish]:
        """Return the publishes with a publish id or run id, newest first.

        Args:
            some_id: Either id, or at least its first eight characters.
        """
        if len(some_id) < _ID_LENGTH:
            return []
        ids = ex.Or(ex.StartsWith("publish_id", some_id), ex.StartsWith("run_id", some_id))
        named = {p.publish_id for p in group_publishes(self.read("publishes", ids))}
        # Read again by publish id, as the row of a rollback has the run id of the rollback.
        return group_publishes(self.read("publishes", ex.In("publish_id", named))) if named else []

    def standing_publishes(self, run_id: str) -> list[LedgerPublish]:
        """Return the publishes of a run and of its rebuilds that were not rolled back."""
        rebuilds = [row["run_id"] for row in self.rows("runs") if row.get("rebuild_of") == run_id]
        found = [one for some_id in (run_id, *rebuilds) for one in self.publish(some_id)]
        return [one for one in found if not one.rolled_back]

    def publishes(self, limit: int | None = None) -> list[LedgerPublish]:
        """All publishes, newest first."""
        return group_publishes(self.rows("publishes"))[:limit]

    def published_nodes(self, publish: LedgerPublish) -> list[dict[str, Any]]:
        """Return the rows of ``nodes`` that belong to a publish."""
        of_run = ex.And(ex.EqualTo("run_id", publish.run_id), ex.EqualTo("branch", publish.branch))
        names = {entry.identifier for entry in publish.entries}
        return [
            row
            for row in self.read("nodes", of_run)
            if row["verdict"] == "published" and (row["schema"], row["name"]) in names
        ]

    def branch_rows(self, table: str, branch: str) -> list[dict[str, Any]]:
        """Return all rows of ``nodes`` or ``tests`` of a branch since it was last discarded."""
        time = {"nodes": "built_at", "tests": "executed_at"}[table]
        return self._of_branch(table, branch, time, self._last_discard(branch))

    def manifest(self, some_hash: str) -> tuple[str, Packed] | None:
        """Return project and content of a stored manifest; None if it is not stored."""
        found = self.read("manifests", ex.EqualTo("hash", some_hash))
        return (found[0]["project"], Packed(some_hash, found[0]["content"])) if found else None

    def manifest_projects(self) -> dict[str, str]:
        """Return hash -> project of all stored manifests."""
        return {one.hash: one.project for one in self.kept_manifests()}

    def kept_manifests(self) -> list[KeptManifest]:
        """Return all stored manifests, each once, by hash."""
        found = self.read("manifests", columns=("hash", "project", "stored_at"))
        kept = {r["hash"]: KeptManifest(r["hash"], r["project"], r["stored_at"]) for r in found}
        return [kept[one] for one in sorted(kept)]

    def forget_manifests(self, hashes: Collection[str]) -> None:
        """Delete manifests.

        Their files stay until the last snapshots that refer to them are trimmed; a sweep then
        deletes them.

        Args:
            hashes: The manifests; unknown ones are ignored.

        Raises:
            CatalogError: The catalog failed, or the disk; nothing was deleted.
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

    def recent(self, table: str, since: datetime) -> list[dict[str, Any]]:
        """Return the rows of ``runs``, ``nodes``, ``tests`` or ``metrics`` since a time.

        Columns that a ledger of an older version does not have are None.
        """
        rows = self.read(table, ex.GreaterThanOrEqual(_WRITTEN[table], since.isoformat()))
        return [{**dict.fromkeys(SCHEMAS[table].names), **row} for row in rows]

    def _of_branch(
        self, table: str, branch: str, time: str, since: datetime | None
    ) -> list[dict[str, Any]]:
        condition: expressions.BooleanExpression = ex.EqualTo("branch", branch)
        if since is not None:
            condition = ex.And(condition, ex.GreaterThan(time, since.isoformat()))
        return self.read(table, condition)

    def _last_discard(self, branch: str) -> datetime | None:
        condition = ex.And(ex.EqualTo("branch", branch), ex.EqualTo("outcome", "discarded"))
        return max((row["ended_at"] for row in self.read("runs", condition)), default=None)


def _same_project(one: str, other: str) -> bool:
    """Whether two nodes are of one project; what another program has written is of none."""
    return one.startswith(LOADED) or one.split(".")[1:2] == other.split(".")[1:2]


def _journal_key(row: Mapping[str, Any]) -> tuple[str, str, str, datetime]:
    # With the time, as a second rollback may take what a first one left.
    return row["publish_id"], row["run_id"], row["action"], row["intended_at"]


def _of_journal(row: Mapping[str, Any]) -> expressions.BooleanExpression:
    found: expressions.BooleanExpression = ex.EqualTo("publish_id", row["publish_id"])
    return found


def _last_of_names(rows: Iterable[dict[str, Any]]) -> dict[Identifier, dict[str, Any]]:
    """The row of ``nodes`` that was built last under each name."""
    ordered = sorted(rows, key=lambda row: time_of(row["built_at"]))
    return {(row["schema"], row["name"]): row for row in ordered}
