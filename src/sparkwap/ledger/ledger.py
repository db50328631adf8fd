"""The ledger: the history of runs, nodes, test results and publishes, as Iceberg tables.

The tables stand in the schema ``wap_ledger`` of the same catalog, so that rows about a publish are
committed in the database transaction of the publish, and anyone can query them with Spark. They
are only ever appended to, but for the manifests of code that is of no use any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args

import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import DBAPIError

from sparkwap.catalog import journal
from sparkwap.catalog import metadata as md
from sparkwap.catalog.difference import difference
from sparkwap.catalog.files import write_failed
from sparkwap.catalog.model import How, Identifier, LedgerRows, PublishedEntry, merge_rows
from sparkwap.catalog.sql_backend import Pointer, PointerUpdate
from sparkwap.catalog.store import Staged
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.core.retry import retrying, rule_of
from sparkwap.core.steps import LEDGER_CREATED, LEDGER_CREATING, reached
from sparkwap.ledger.manifests import Packed
from sparkwap.ledger.rollback_plan import Undone, undone_entries
from sparkwap.ledger.schemas import SCHEMAS

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from sparkwap.catalog.store import Store

__all__ = ["LEDGER_SCHEMA", "BranchHistory", "Ledger", "LedgerPublish", "LedgerRows"]

R = TypeVar("R")

_TABLE_PROPERTIES = {
    "format-version": "2",
    # Each append is a commit: without these, metadata and manifests grow with every run.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.previous-versions-max": "10",
}
_KEPT_SNAPSHOTS = 10
_WRITTEN = {
    "runs": "ended_at",
    "nodes": "built_at",
    "tests": "executed_at",
    "metrics": "measured_at",
}
# PyIceberg's expressions take a column's name and a value, but are not typed so.
_ex: Any = expressions
LOADED = "load."
"""What the ids of tables begin with that another program has filled: no dbt project knows them."""
_ID_LENGTH = 8
_JOURNAL_KEY_AND_STATE = ("publish_id", "run_id", "action", "intended_at", "state")


@dataclass(frozen=True, slots=True)
class BranchHistory:
    """What the ledger says of an audit branch since it was last discarded.

    Attributes:
        nodes: The latest row of each node.
        tests: The latest row of each test; ``audited`` is a dict.
    """

    nodes: tuple[dict[str, Any], ...]
    tests: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class LedgerPublish:
    """A publish as the ledger has it.

    Attributes:
        publish_id: Its id.
        run_id: The run that published.
        branch: Its audit branch.
        published_at: When.
        entries: All tables and views of it.
        left: Those that were not rolled back; what a rollback takes.
        manifest_hash: The code that was published, if it was kept.
    """

    publish_id: str
    run_id: str
    branch: str
    published_at: datetime
    entries: tuple[PublishedEntry, ...]
    left: tuple[PublishedEntry, ...]
    manifest_hash: str | None = None

    @property
    def rolled_back(self) -> bool:
        """Whether nothing of it is left."""
        return not self.left


@dataclass(frozen=True, slots=True)
class _Change:
    """What becomes of one table of the ledger; ``make`` does it in a transaction, if at all."""

    table: str
    make: Callable[[Transaction], None]
    only_if: Callable[[Table], bool] = lambda table: True


@dataclass(frozen=True, slots=True)
class KeptManifest:
    """A manifest of the ledger without its content; ``stored_at`` is UTC."""

    hash: str
    project: str
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class Told:
    """An alert that was delivered."""

    route: str
    fingerprint: str
    at: datetime


class Place(Protocol):
    """What the ledger needs of the lake that it is in."""

    @property
    def store(self) -> Store: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def warehouse(self) -> str: ...
    def relations(self, schema: str) -> Mapping[str, str]: ...
    def ensure_schema(self, schema: str) -> Any: ...


class Ledger:
    """The ledger of a lake; safe for use by several threads.

    Args:
        lake: The lake whose history it holds.
    """

    def __init__(self, lake: Place) -> None:
        self._lake = lake
        self._checked: set[str] = set()
        self._lock = threading.Lock()

    def append(self, rows: LedgerRows | Sequence[LedgerRows]) -> None:
        """Append rows, of several tables in one transaction where the catalog has them.

        Raises:
            ValueError: A table or a column is not one of the ledger's.
            CatalogError: The catalog failed, or the disk; nothing was appended.
        """
        appends = [rows] if isinstance(rows, LedgerRows) else list(rows)
        merged = merge_rows(appends)
        self.ensure({append.table for append in merged})
        together = [merged] if self._lake.store.backend.atomic else [[one] for one in merged]
        for part in together:
            # As a series, each commits by itself: one that is tried again must not repeat another.
            self._lake.store.commit(partial(self.stage, part), "ledger")

    def open_journals(self) -> list[dict[str, Any]]:
        """The rows of publishes and rollbacks that were begun and not brought to an end."""
        rows = self._read("journal", None)
        ended = {_journal_key(row) for row in rows if journal.is_closed({row["state"]})}
        found = [r for r in rows if r["state"] == "intended" and _journal_key(r) not in ended]
        return sorted(found, key=lambda row: _time(row["intended_at"]))

    def journal_states(self, row: Mapping[str, Any]) -> list[str]:
        """The states that a journal has had; ``row`` is any of its rows."""
        found = self._read("journal", _of_journal(row))
        return [one["state"] for one in found if _journal_key(one) == _journal_key(row)]

    def settle(self, row: Mapping[str, Any]) -> list[str]:
        """Write a state of a journal, unless it is closed or the other way was decided.

        By compare and swap: nobody else has written of the journal between the look and the row.

        Returns:
            The states that the journal has now.

        Raises:
            CatalogError: The catalog failed, or the disk; nothing was written.
        """
        states: list[str] = []

        def may(table: Table) -> bool:
            rows = table.scan(_of_journal(row), selected_fields=_JOURNAL_KEY_AND_STATE).to_arrow()
            found = [one for one in rows.to_pylist() if _journal_key(one) == _journal_key(row)]
            states[:] = [one["state"] for one in found]
            return journal.may_follow(states, row["state"])

        change = replace(_append(LedgerRows("journal", [row])), only_if=may)
        self._lake.store.commit(lambda: self._stage([change]), "ledger")
        return [*states, row["state"]] if journal.may_follow(states, row["state"]) else states

    def branch_history(self, branch: str) -> BranchHistory:
        """The latest rows of an audit branch, from the last discard of that name on."""
        since = self._last_discard(branch)
        nodes = self._of_branch("nodes", branch, "built_at", since)
        return BranchHistory(
            _latest(self._without_unbegun(nodes), "node_id", "built_at"),
            _latest(
                self._of_branch("tests", branch, "executed_at", since), "test_id", "executed_at"
            ),
        )

    def _without_unbegun(self, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Without what says "published" of a publish that has never begun.

        Where each table of the ledger commits by itself, the verdicts come before the journal: a
        process that died between the two has published nothing, and never will.
        """
        if self._lake.store.backend.atomic or all(row["verdict"] != "published" for row in nodes):
            return nodes
        begun = {row["run_id"] for table in ("journal", "publishes") for row in self.rows(table)}
        return [row for row in nodes if row["verdict"] != "published" or row["run_id"] in begun]

    def of_run(self, table: str, run_id: str) -> list[dict[str, Any]]:
        """The rows that one run has left in a table."""
        return self._read(table, _ex.EqualTo("run_id", run_id))

    def published_tests(
        self, test_ids: Iterable[str], stands: Callable[[str], Identifier | None]
    ) -> dict[str, dict[str, Any]]:
        """The row of each test when rows that it saw were last published; absent if never.

        A publish that was rolled back since is none, and no more is one of another target, whose
        tables are others.

        Args:
            test_ids: The tests.
            stands: Tells schema and name of the table that a node is now.
        """
        found = self._read("tests", _ex.In("test_id", set(test_ids)))
        saw = {node for row in found for node in dict(row["audited"] or ())}
        live = self._published({node: key for node in saw if (key := stands(node)) is not None})
        counted = [
            row for row in found if not live.keys().isdisjoint(dict(row["audited"] or ()).items())
        ]
        return {row["test_id"]: row for row in _latest(counted, "test_id", "executed_at")}

    def tests_of(self, nodes: Mapping[str, Identifier]) -> list[dict[str, Any]]:
        """The rows of the tests that saw what was last published of some nodes.

        Args:
            nodes: Node -> schema and name of its table.
        """
        last: dict[str, tuple[Any, str]] = {}
        for (node, token), at in self._published(nodes).items():
            last[node] = max(last.get(node, (at, token)), (at, token))
        now = {(node, token) for node, (_, token) in last.items()}
        rows = self._read("tests", None) if now else []
        saw = [row for row in rows if not now.isdisjoint(dict(row["audited"] or ()).items())]
        return list(_latest(saw, "test_id", "executed_at"))

    def tests_of_others(
        self, nodes: Mapping[Identifier, str]
    ) -> dict[Identifier, list[dict[str, Any]]]:
        """The rows of the tests that other projects have of some tables which they built last.

        Args:
            nodes: Schema and name of each table -> the node that builds it now.
        """
        if not nodes:
            return {}
        wanted = _ex.And(
            _ex.In("name", {name for _, name in nodes}), _ex.EqualTo("verdict", "published")
        )
        last = _last_of_names(self._read("nodes", wanted))
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
        """The candidates of some nodes that were published and not rolled back -> when.

        One node stands at another place in each target of its project.
        """
        if not nodes:
            return {}
        published = _ex.And(_ex.In("node_id", set(nodes)), _ex.EqualTo("verdict", "published"))
        ids = {row["run_id"]: row["publish_id"] for row in self._read("runs", None)}
        undone = undone_entries(self.rows("publishes"))
        return {
            (row["node_id"], str(token_of(row))): row["built_at"]
            for row in self._read("nodes", published)
            if (row["schema"], row["name"]) == nodes[row["node_id"]]
            and (ids.get(row["run_id"]), row["schema"], row["name"]) not in undone
        }

    def builds(self, node_id: str, identifier: Identifier) -> list[tuple[dict[str, Any], bool]]:
        """The rows of all builds of a node under a name, oldest first.

        With each row, whether what it tells of was published and not rolled back.
        """
        schema, name = identifier
        rows = self._read(
            "nodes",
            _ex.And(
                _ex.EqualTo("node_id", node_id),
                _ex.EqualTo("schema", schema),
                _ex.EqualTo("name", name),
            ),
        )
        live = self._published({node_id: identifier})
        rows.sort(key=lambda row: _time(row["built_at"]))
        return [
            (row, row["verdict"] == "published" and (node_id, str(token_of(row))) in live)
            for row in rows
        ]

    def acceptances(
        self, branch: str, stands: Callable[[str], Identifier | None]
    ) -> dict[str, dict[str, Any]]:
        """The acceptances that hold for an audit branch now: test id -> the latest row.

        Args:
            branch: The audit branch.
            stands: Tells schema and name of the table that a node is now: what was accepted of the
                tables of one target is not accepted of those of another.
        """
        rows = self._read("acceptances", None)
        if not rows:
            return {}
        ended = _ex.And(
            _ex.EqualTo("branch", branch), _ex.In("outcome", {"published", "discarded"})
        )
        since = max((row["ended_at"] for row in self._read("runs", ended)), default=_time(None))
        # A run that publishes some of its tables leaves the branch open for the others.
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
                    and all(row["accepted_at"] > _time(published.get(t)) for t in tables.values())
                )
                or (row["until"] is not None and row["until"] > now)
            )
            and all(".".join(stands(node) or ()) == table for node, table in tables.items())
        ]
        return {row["test_id"]: row for row in _latest(holding, "test_id", "accepted_at")}

    def _published_from(self, branch: str) -> dict[str, datetime]:
        """The tables, as ``schema.name``, that were published from an audit branch -> when last."""
        found: dict[str, datetime] = {}
        condition = _ex.And(_ex.EqualTo("branch", branch), _ex.EqualTo("action", "publish"))
        for row in self._read("publishes", condition):
            table = f"{row['schema']}.{row['name']}"
            found[table] = max(_time(found.get(table)), row["published_at"])
        return found

    def builder(self, identifier: Identifier) -> tuple[str, str] | None:
        """The node that was last published under a name, and its project; None for none.

        Rows that another program has written (`LOADED`) have none.
        """
        schema, name = identifier
        wanted = _ex.And(
            _ex.EqualTo("schema", schema),
            _ex.EqualTo("name", name),
            _ex.EqualTo("verdict", "published"),
        )
        rows = [row for row in self._read("nodes", wanted)
                if not row["node_id"].startswith(LOADED)]  # fmt: skip
        if not rows:
            return None
        last = max(rows, key=lambda row: _time(row["built_at"]))
        runs = self._read("runs", _ex.EqualTo("run_id", last["run_id"]))
        return last["node_id"], next((row["project"] for row in runs), "")

    def owners(self) -> dict[Identifier, str]:
        """What was last published under each name, stored failures left out."""
        last = _last_of_names(self._read("nodes", _ex.EqualTo("verdict", "published")))
        return {
            key: str(row["node_id"])
            for key, row in last.items()
            if row["resource_type"] != "failures"
        }

    def runs(self, branch: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
        """Rows of ``runs``, newest first, of one audit branch or of all."""
        condition = _ex.EqualTo("branch", branch) if branch else None
        found = self._read("runs", condition)
        found.sort(key=lambda row: _time(row["started_at"]), reverse=True)
        return found[:limit]

    def publish(self, some_id: str) -> list[LedgerPublish]:
        """The publishes with a publish id or run id, newest first.

        Args:
            some_id: Either id; its first eight digits or more will do.
        """
        if len(some_id) < _ID_LENGTH:
            return []
        ids = _ex.Or(_ex.StartsWith("publish_id", some_id), _ex.StartsWith("run_id", some_id))
        named = {p.publish_id for p in self._publishes(self._read("publishes", ids))}
        # Read again by publish id: the row of a rollback carries the run that rolled back.
        return (
            self._publishes(self._read("publishes", _ex.In("publish_id", named))) if named else []
        )

    def standing_publishes(self, run_id: str) -> list[LedgerPublish]:
        """The publishes of a run, and of what built again for it, that were not rolled back."""
        rebuilds = [row["run_id"] for row in self.rows("runs") if row.get("rebuild_of") == run_id]
        found = [one for some_id in (run_id, *rebuilds) for one in self.publish(some_id)]
        return [one for one in found if not one.rolled_back]

    def publishes(self, limit: int | None = None) -> list[LedgerPublish]:
        """All publishes, newest first."""
        return self._publishes(self._read("publishes", None))[:limit]

    def published_nodes(self, publish: LedgerPublish) -> list[dict[str, Any]]:
        """The rows of ``nodes`` of what a publish made live."""
        of_run = _ex.And(
            _ex.EqualTo("run_id", publish.run_id), _ex.EqualTo("branch", publish.branch)
        )
        names = {entry.identifier for entry in publish.entries}
        return [
            row
            for row in self._read("nodes", of_run)
            if row["verdict"] == "published" and (row["schema"], row["name"]) in names
        ]

    def branch_rows(self, table: str, branch: str) -> list[dict[str, Any]]:
        """All rows of ``nodes`` or ``tests`` of an audit branch since it was last discarded."""
        time = {"nodes": "built_at", "tests": "executed_at"}[table]
        return self._of_branch(table, branch, time, self._last_discard(branch))

    def manifest(self, some_hash: str) -> tuple[str, Packed] | None:
        """The project and the manifest of a hash; None if it is not kept."""
        found = self._read("manifests", _ex.EqualTo("hash", some_hash))
        return (found[0]["project"], Packed(some_hash, found[0]["content"])) if found else None

    def manifest_projects(self) -> dict[str, str]:
        """Hash -> project of all manifests that are kept."""
        return {one.hash: one.project for one in self.kept_manifests()}

    def kept_manifests(self) -> list[KeptManifest]:
        """All manifests that are kept, each once, by hash."""
        found = self._read("manifests", None, ("hash", "project", "stored_at"))
        kept = {r["hash"]: KeptManifest(r["hash"], r["project"], r["stored_at"]) for r in found}
        return [kept[one] for one in sorted(kept)]

    def forget_manifests(self, hashes: Collection[str]) -> None:
        """Delete manifests.

        Their files stay until the last snapshots of the table that have them are trimmed, and a
        sweep finds that nothing refers to them.

        Args:
            hashes: The manifests; those that are not kept are passed over.

        Raises:
            CatalogError: The catalog failed, or the disk; nothing was deleted.
        """
        condition = _ex.In("hash", set(hashes))

        def stage() -> Staged[None]:
            # Somebody else may have deleted them by now.
            if not self._read("manifests", condition, ("hash",)):
                return Staged(None)
            return self._stage([_Change("manifests", lambda change: change.delete(condition))])

        self._lake.store.commit(stage, "ledger")

    def told_since(self, since: datetime) -> list[Told]:
        """The alerts that were delivered since then."""
        sent = _ex.And(
            _ex.GreaterThanOrEqual("at", since.isoformat()), _ex.EqualTo("outcome", "sent")
        )
        rows = self._read("alerts", sent)
        return [Told(row["route"], row["fingerprint"], row["at"]) for row in rows]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of one of the ledger's tables; none for one that has never been written."""
        return self._read(table, None)

    def recent(self, table: str, since: datetime) -> list[dict[str, Any]]:
        """The rows of ``runs``, ``nodes``, ``tests`` or ``metrics`` since a moment.

        Columns that the ledger does not have yet, as an older version wrote it, are None.
        """
        rows = self._read(table, _ex.GreaterThanOrEqual(_WRITTEN[table], since.isoformat()))
        return [{**dict.fromkeys(SCHEMAS[table].names), **row} for row in rows]

    def ensure_all(self) -> None:
        """Create all tables that each run needs: the journal where a publish is a series."""
        unneeded = {"alerts", "acceptances"} | (
            {"journal"} if self._lake.store.backend.atomic else set()
        )
        self.ensure(set(SCHEMAS) - unneeded)

    def ensure(self, tables: Collection[str]) -> None:
        """Create the ledger's schema and those tables where they lack; add columns that lack.

        Raises:
            ValueError: A table is not one of the ledger's.
        """
        unknown = sorted(set(tables) - set(SCHEMAS))
        if unknown:
            raise ValueError(f"no tables of the ledger: {unknown}; there are {sorted(SCHEMAS)}")
        if not tables:
            return
        standing = self._lake.relations(LEDGER_SCHEMA)
        for name in sorted(tables):
            if name in standing and name in self._checked:
                continue
            try:
                self._ensure(name, new=name not in standing)
            except OSError as error:
                raise write_failed(f"The ledger ({LEDGER_SCHEMA})", error) from error
            except DBAPIError as error:
                raise CatalogError(
                    f"The catalog's database failed: {error.orig}. The ledger could not be made, "
                    "so nothing was changed. Check the database (space, rights, connection), then "
                    "run the same command again."
                ) from error
            with self._lock:
                self._checked.add(name)

    def beside(self, staged: Staged[R], appends: Iterable[LedgerRows]) -> Staged[R]:
        """A commit with appends in its transaction; see `stage`.

        The files of the commit are deleted if the appends cannot be staged.
        """
        try:
            own = self.stage(appends)
        except BaseException:
            self._lake.store.delete(staged.files)
            raise
        return replace(
            staged,
            swaps=[*staged.swaps, *own.swaps],
            files=[*staged.files, *own.files],
            obsolete=[*staged.obsolete, *own.obsolete],
        )

    def stage(self, appends: Iterable[LedgerRows]) -> Staged[None]:
        """Write the files of appends and return the row changes that commit them.

        The tables must exist, see `ensure`, and each be named once, see `merge_rows`. A manifest
        that is kept already is left out.
        """
        return self._stage([_append(one) for one in map(self._new, appends) if one.rows])

    def _stage(self, changes: Sequence[_Change]) -> Staged[None]:
        swaps: list[PointerUpdate] = []
        files: list[str] = []
        obsolete: list[str] = []
        try:
            for change in changes:
                self._stage_one(change, swaps, files, obsolete)
        except OSError as error:
            self._lake.store.delete(files)
            raise write_failed(f"The ledger ({LEDGER_SCHEMA})", error) from error
        except BaseException:
            self._lake.store.delete(files)
            raise
        return Staged(None, swaps, files, obsolete=obsolete)

    def _new(self, append: LedgerRows) -> LedgerRows:
        """An append without the manifests that are kept already, by this run or another one."""
        if append.table != "manifests":
            return append
        hashes = {row["hash"] for row in append.rows}
        known = self._read("manifests", _ex.In("hash", hashes), ("hash",))
        kept = {row["hash"] for row in known}
        return LedgerRows("manifests", [row for row in append.rows if row["hash"] not in kept])

    def _stage_one(
        self, change: _Change, swaps: list[PointerUpdate], files: list[str], obsolete: list[str]
    ) -> None:
        identifier = (LEDGER_SCHEMA, change.table)
        table = self._lake.catalog.load_table(identifier)
        if not change.only_if(table):
            return
        transaction = table.transaction()
        change.make(transaction)
        grown = transaction.table_metadata
        before_it = {snapshot.snapshot_id for snapshot in table.snapshots()}
        for snapshot in grown.snapshots:
            if snapshot.snapshot_id not in before_it:
                files.extend(_new_files(table, snapshot))
        trimmed, dropped = _trim(_document(grown))
        growth = difference(_document(table.metadata), trimmed)
        row = Pointer(identifier, "table", table.metadata_location)
        grown_swaps, metadata_files = self._lake.store.grow([(row, growth)])
        swaps.extend(grown_swaps)
        files.extend(metadata_files)
        log = growth.document(row.location)["metadata-log"]
        kept = {entry["metadata-file"] for entry in log}
        obsolete.extend(e.metadata_file for e in grown.metadata_log if e.metadata_file not in kept)
        obsolete.extend(dropped)

    def _ensure(self, name: str, *, new: bool) -> None:
        """Try again while another run, which begins to use the ledger too, is faster."""
        for attempt in retrying(lambda error: rule_of(error) in ("retry", "refresh")):
            with attempt:
                if attempt.retry_state.attempt_number > 1:
                    new = name not in self._lake.relations(LEDGER_SCHEMA)
                self._ensure_one(name, new=new)

    def _ensure_one(self, name: str, *, new: bool) -> None:
        catalog, schema = self._lake.catalog, SCHEMAS[name]
        if new:
            self._lake.ensure_schema(LEDGER_SCHEMA)
            reached(LEDGER_CREATING, table=f"{LEDGER_SCHEMA}.{name}")
            table = catalog.create_table_if_not_exists(
                (LEDGER_SCHEMA, name),
                schema,
                location=f"{self._lake.warehouse}/{LEDGER_SCHEMA}/{name}",
                properties=dict(_TABLE_PROPERTIES),
            )
            reached(LEDGER_CREATED, table=f"{LEDGER_SCHEMA}.{name}")
        else:
            table = catalog.load_table((LEDGER_SCHEMA, name))
        present = {field.name for field in table.schema().fields}
        if not set(schema.names) <= present:
            with table.update_schema() as update:
                update.union_by_name(schema)

    def _read(
        self,
        table: str,
        condition: expressions.BooleanExpression | None,
        columns: tuple[str, ...] = ("*",),
    ) -> list[dict[str, Any]]:
        if table not in self._lake.relations(LEDGER_SCHEMA):
            return []
        loaded = self._lake.catalog.load_table((LEDGER_SCHEMA, table))
        scan = loaded.scan(condition or expressions.AlwaysTrue(), selected_fields=columns)
        found: list[dict[str, Any]] = scan.to_arrow().to_pylist(maps_as_pydicts="strict")
        return found

    def _of_branch(
        self, table: str, branch: str, time: str, since: datetime | None
    ) -> list[dict[str, Any]]:
        condition: expressions.BooleanExpression = _ex.EqualTo("branch", branch)
        if since is not None:
            condition = _ex.And(condition, _ex.GreaterThan(time, since.isoformat()))
        return self._read(table, condition)

    def _last_discard(self, branch: str) -> datetime | None:
        condition = _ex.And(_ex.EqualTo("branch", branch), _ex.EqualTo("outcome", "discarded"))
        return max((row["ended_at"] for row in self._read("runs", condition)), default=None)

    def _publishes(self, rows: Sequence[Mapping[str, Any]]) -> list[LedgerPublish]:
        undone = undone_entries(rows)
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            if row["action"] == "publish":
                groups.setdefault(row["publish_id"], []).append(row)
        found = [_publish(group, undone) for group in groups.values()]
        return sorted(found, key=lambda publish: publish.published_at, reverse=True)


def _same_project(one: str, other: str) -> bool:
    """Whether two nodes are of one project; what another program has written is of none."""
    return one.startswith(LOADED) or one.split(".")[1:2] == other.split(".")[1:2]


def token_of(node: Mapping[str, Any]) -> str | None:
    """The token of a candidate, as ``tests.audited`` has it, of a row of ``nodes``."""
    snapshot = node["candidate_snapshot"]
    return str(snapshot) if snapshot is not None else node["candidate_metadata"]


def ended_otherwise(
    runs: Iterable[Mapping[str, Any]], publishes: Iterable[LedgerPublish]
) -> dict[str, str]:
    """What became of runs after they had ended, by run id.

    ``discarded`` is one whose audit branch was dropped later, with all that it had not published;
    ``rolled back`` and ``partly rolled back`` are those whose publish was undone.

    Args:
        runs: Rows of ``runs``.
        publishes: All publishes.
    """
    runs = list(runs)
    dropped: dict[str, datetime] = {}
    for row in runs:
        if row["outcome"] == "discarded" and row["branch"]:
            dropped[row["branch"]] = max(
                _time(row["ended_at"]), dropped.get(row["branch"], _time(None))
            )
    found = {
        row["run_id"]: "discarded"
        for row in runs
        if not row["publish_id"]
        and _time(row["ended_at"]) <= dropped.get(row["branch"], _time(None))
    }
    undone = [one for one in publishes if len(one.left) < len(one.entries)]
    return found | {
        one.run_id: "rolled back" if one.rolled_back else "partly rolled back" for one in undone
    }


def _arrow(append: LedgerRows) -> pa.Table:
    schema = SCHEMAS[append.table]
    unknown = sorted({key for row in append.rows for key in row} - set(schema.names))
    if unknown:
        raise ValueError(f"no columns of {append.table}: {unknown}; there are {schema.names}")
    rows = [{key: _value(value) for key, value in row.items()} for row in append.rows]
    return pa.Table.from_pylist(rows, schema=schema)


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return list(value.items()) if isinstance(value, Mapping) else value


def _append(rows: LedgerRows) -> _Change:
    content = _arrow(rows)
    return _Change(rows.table, lambda transaction: transaction.append(content))


def _new_files(table: Table, snapshot: Snapshot) -> list[str]:
    """The files that a snapshot came with: to be deleted if it does not come to a commit."""
    files = [snapshot.manifest_list]
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            files.append(manifest.manifest_path)
            files.extend(
                entry.data_file.file_path
                for entry in manifest.fetch_manifest_entry(table.io)
                if entry.status == ManifestEntryStatus.ADDED
                and entry.snapshot_id == snapshot.snapshot_id
            )
    return files


def _document(metadata: TableMetadata) -> md.Document:
    return md.parse(metadata.model_dump_json(exclude_none=True).encode())


def _trim(document: md.Document) -> tuple[md.Document, list[str]]:
    """The document with the latest snapshots only, and the files that only the others needed."""
    named = {ref.snapshot_id for ref in md.refs_of(document).values()}
    snapshots = sorted(document["snapshots"], key=lambda entry: entry["sequence-number"])
    old = [entry for entry in snapshots[:-_KEPT_SNAPSHOTS] if entry["snapshot-id"] not in named]
    gone = {entry["snapshot-id"] for entry in old}
    trimmed = {
        **document,
        "snapshots": [entry for entry in snapshots if entry["snapshot-id"] not in gone],
        "snapshot-log": [
            entry for entry in document.get("snapshot-log", ()) if entry["snapshot-id"] not in gone
        ],
    }
    return trimmed, [entry["manifest-list"] for entry in old]


def _journal_key(row: Mapping[str, Any]) -> tuple[str, str, str, datetime]:
    # With the time, as what a rollback has left may be rolled back by another one.
    return row["publish_id"], row["run_id"], row["action"], row["intended_at"]


def _of_journal(row: Mapping[str, Any]) -> expressions.BooleanExpression:
    found: expressions.BooleanExpression = _ex.EqualTo("publish_id", row["publish_id"])
    return found


def _latest(rows: Iterable[dict[str, Any]], key: str, time: str) -> tuple[dict[str, Any], ...]:
    latest: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = latest.get(row[key])
        if known is None or _time(known[time]) <= _time(row[time]):
            latest[row[key]] = row
    return tuple(latest[name] for name in sorted(latest))


def _last_of_names(rows: Iterable[dict[str, Any]]) -> dict[Identifier, dict[str, Any]]:
    """The row of ``nodes`` that was built last under each name."""
    ordered = sorted(rows, key=lambda row: _time(row["built_at"]))
    return {(row["schema"], row["name"]): row for row in ordered}


def _time(value: datetime | None) -> datetime:
    return value or datetime.min.replace(tzinfo=UTC)


def _publish(rows: Sequence[Mapping[str, Any]], undone: Collection[Undone]) -> LedgerPublish:
    first = rows[0]
    entries = {
        (row["schema"], row["name"]): PublishedEntry(
            (row["schema"], row["name"]),
            _how(row["how"]),
            row["base_snapshot"],
            row["base_metadata"],
            row["candidate_snapshot"],
            row["published_metadata"],
        )
        # Two that complete one journal at once both write it down.
        for row in rows
    }
    names = sorted(entries)
    return LedgerPublish(
        first["publish_id"],
        first["run_id"],
        first["branch"],
        first["published_at"],
        tuple(entries[name] for name in names),
        tuple(entries[name] for name in names if (first["publish_id"], *name) not in undone),
        first.get("manifest_hash"),
    )


def _how(text: str) -> How:
    how: How = next(known for known in get_args(How) if known == text)
    return how
