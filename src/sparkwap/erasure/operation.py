"""``wap_erase`` and ``wap_rectify``: from the marks in the YAML to the proof.

The steps, each of which may be the last one before a crash; calling the operation again goes on:

1. look: read the lake, find the subject's rows, values and files; tell the plan (dry run ends here)
2. rewrite: DELETE and UPDATE on an audit branch, audited there
3. publish: all tables in one transaction
4. forget: snapshots, branches, tags and logs of these tables, then the files that nothing refers to
5. prove: read every file of the lake
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sparkwap import names
from sparkwap.catalog import BranchItem, Identifier, Lake, LedgerRows, TableState
from sparkwap.catalog import expire as forgetting
from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import plain_location
from sparkwap.erasure import report
from sparkwap.erasure.journal import Journal
from sparkwap.erasure.plan import (
    FILE_ROWS,
    Conditions,
    NodeColumns,
    Place,
    derived,
    key_texts,
    places,
    quote,
    with_columns,
)
from sparkwap.erasure.proof import Owned, Proof, Scanner, scan
from sparkwap.erasure.request import Request
from sparkwap.erasure.rewrite import Rewrite, Update, cleared, fewer_rows, literal, rows_gone
from sparkwap.erasure.search import Search
from sparkwap.errors import ConfigError, GateError, SparkwapError
from sparkwap.ledger import NAMESPACE

Sql = Callable[[str], Sequence[Sequence[Any]]]


class ProofFailed(GateError):
    """Files of the lake still hold the subject."""


@dataclass
class Found:
    """What a look at the lake has found.

    Attributes:
        places: The tables that may hold the subject.
        rewrites: How each of them loses it.
        counts: Rows in all, rows that go, rows that change; of each table with some.
        proof: The files, and which of them hold the subject.
        reach: File -> the tables that refer to it.
        search: What the proof looks for.
        shared: Number of personal values that others have too, which no proof can look for.
        blockers: What has to be done before, in words.
    """

    places: tuple[Place, ...]
    rewrites: list[Rewrite] = field(default_factory=list)
    counts: dict[Identifier, tuple[int, int, int]] = field(default_factory=dict)
    proof: Proof = field(default_factory=lambda: Proof(()))
    reach: Mapping[str, set[Identifier]] = field(default_factory=dict)
    search: Search = field(default_factory=lambda: Search(frozenset()))
    shared: int = 0
    blockers: list[str] = field(default_factory=list)

    def tables_with_files(self) -> set[Identifier]:
        """The tables that refer to files which hold the subject."""
        holding = (plain_location(file.path) for file in self.proof.holding)
        return set().union(*(self.reach.get(path, set()) for path in holding))


class Erasure:
    """The two operations on one lake.

    Args:
        lake: The lake.
        sql: Runs a statement in a Spark session that reads ``main``, and returns its rows.
        run_id: dbt's invocation id.
        nodes: The project's models, snapshots, seeds, sources and tests.
        project: Its name, for the ledger.
        target_name: dbt's target, for the ledger.
        folder: Where reports and the notes of an interrupted operation are kept.
        tag_max_age_ms: How long the receipt keeps its snapshot; None for ever.
        beside: Further files and folders of the lake that are read, besides the warehouse.
        scratch: Folders of a running server's scratch files. They are read and told of, but go
            only when the server stops, so that the proof does not depend on them.
    """

    def __init__(
        self,
        lake: Lake,
        sql: Sql,
        *,
        run_id: str,
        nodes: Callable[[], Sequence[NodeColumns]],
        project: str,
        target_name: str,
        folder: Path,
        tag_max_age_ms: int | None = None,
        beside: Sequence[Path] = (),
        scratch: Sequence[Path] = (),
    ) -> None:
        self._lake = lake
        self._sql = sql
        self._run_id = run_id
        self._nodes = nodes
        self._project = project
        self._target_name = target_name
        self._folder = folder
        self._tag_max_age_ms = tag_max_age_ms
        self._beside = beside
        self._scratch = scratch
        self._started = datetime.now(UTC)

    def call(self, operation: str, arguments: Mapping[str, Any]) -> list[str]:
        """Run an operation; the lines to print.

        Raises:
            ConfigError: Arguments or marks have errors, or something is in the way; nothing has
                changed.
            ProofFailed: It was done, and files still hold the subject.
            SparkwapError: It was interrupted; the message says how to go on.
        """
        request = Request.of(operation, arguments)
        path = self._folder / f"open_{request.token}.json"
        journal = Journal.read(path, secrets.token_hex(8))
        found = self._look(request, journal)
        plan = report.plan(request, found, self._states(p.identifier for p in found.places))
        if not request.confirmed:
            return [*plan, *report.ways_on(request, found.blockers)]
        if found.blockers:
            raise ConfigError("\n".join([*plan, *report.ways_on(request, found.blockers)]))
        if not journal.report:
            journal.report = report.before(found)
        journal.write(path)
        try:
            self._at("noted")
            self._rewrite(found, journal, path)
            forgotten = self._forget(found)
        except SparkwapError as error:
            raise type(error)(f"{error}\n{report.go_on(request)}") from error
        except Exception as error:
            raise SparkwapError(f"{error}\n{report.go_on(request)}") from error
        return [*plan, *self._prove(request, found, journal, path, forgotten)]

    def _at(self, step: str) -> None:
        """Passed after each step; tests interrupt here."""

    # -- looking ---------------------------------------------------------------------------------

    def _look(self, request: Request, journal: Journal) -> Found:
        nodes = self._nodes()
        marked = places(nodes, request.subject)
        if request.source is not None:
            marked = _with_source(marked, request.source)
        states = self._states(row.identifier for row in self._lake.store.rows.all())
        tables = {name: s for name, s in states.items() if s.kind == "table"}
        columns = {name: [c.name for c in s.columns] for name, s in tables.items()}
        every = [*marked, *derived(nodes, marked, columns)]
        found = Found(
            tuple(with_columns(p, columns[p.identifier]) for p in every if p.identifier in columns)
        )
        _check_values(request, found.places)
        journal.learn(self._keys(request, columns, journal), {}, ())
        self._read(request, journal, found, states)
        conditions = Conditions(journal.salt)
        by_name = {place.identifier: place for place in found.places}
        for name, place in by_name.items():
            rewrite = self._plan_table(request, journal, found, place, tables[name], conditions)
            if rewrite is not None:
                found.rewrites.append(rewrite)
        found.blockers = self._blockers(request, journal, found, states)
        return found

    def _keys(
        self, request: Request, columns: Mapping[Identifier, Sequence[str]], journal: Journal
    ) -> tuple[str, ...]:
        if request.source is None:
            return key_texts(request.keys)
        identifier, column = request.source
        if column not in columns.get(identifier, ()):
            raise ConfigError(
                f"There is no column {'.'.join((*identifier, column))} that could list the keys; "
                "nothing was changed."
            )
        table = ".".join(map(quote, identifier))
        query = f"select distinct cast({quote(column)} as string) from {table} version as of 'main'"
        state = self._lake.state(identifier)
        rows = self._sql(query) if state is not None and state.main is not None else ()
        return key_texts([*(row[0] for row in rows), *journal.keys])

    def _read(
        self,
        request: Request,
        journal: Journal,
        found: Found,
        states: Mapping[Identifier, TableState],
    ) -> None:
        """Read every file: for the subject's personal values first, then for all that it left."""
        scanner = self._scanner(Search.of(journal.keys, {}, ()), found.places, states, request)
        paths = self._paths()
        collected = self._each(paths, scanner.collect)
        values: dict[str, set[str]] = {}
        texts: set[str] = set()
        for one in collected:
            for name, those in one.items():
                values.setdefault(name, set()).update(text for text, _ in those)
                texts.update(text for text, is_text in those if is_text)
        journal.learn((), values, texts)
        own = {name: frozenset(those) for name, those in journal.values.items()}
        others = self._each(paths, lambda path, data: scanner.shared(path, data, own))
        shared: dict[str, set[str]] = {}
        for theirs in others:
            for name, those in theirs.items():
                shared.setdefault(name, set()).update(those)
        found.shared = sum(map(len, shared.values()))
        found.search = _search(request, journal, shared)
        found.proof = self._scan(found, states, request)
        found.reach = forgetting.reachable(self._lake)

    def _plan_table(
        self,
        request: Request,
        journal: Journal,
        found: Found,
        place: Place,
        state: TableState,
        conditions: Conditions,
    ) -> Rewrite | None:
        """How a table loses the subject; None if nothing of it is in its rows."""
        if state.main is None:
            return None
        columns = [column.name for column in state.columns]
        types = {column.name: column.type for column in state.columns}
        by_key = Search(frozenset(journal.keys))
        rewrite = Rewrite(place.identifier, columns)
        naming = self._texts(place, rewrite.main, request, found.search, by_key)
        keyed = conditions.rows(replace(place, any_cell=False), by_key, {}, columns)
        loose = replace(place, keys=())
        cells = found.search if not request.erases else _with_keys(found.search, journal.keys)
        others = conditions.rows(loose, cells, naming, columns)
        updates: list[Update] = []
        delete = others
        if request.erases and place.action == "delete":
            delete = _either(keyed, others)
        elif keyed != "false":
            sets = (
                cleared([*place.keys, *place.personal], types)
                if request.erases
                else _new_values(request, place, types)
            )
            differs = " or ".join(f"{quote(n)} is distinct from {v}" for n, v in sets.items())
            updates += [Update(f"({keyed} and ({differs}))", sets)] if sets else []
        if FILE_ROWS in types and delete != "false":
            gone = {path: int(n) for path, n in self._sql(rows_gone(rewrite.main, delete))}
            journal.outside = sorted({*journal.outside, *gone})
            updates += [fewer_rows(conditions, gone)] if gone else []
        rewrite = replace(rewrite, delete=delete, updates=tuple(updates))
        rows, going, changing = (int(n) for n in self._sql(rewrite.count())[0])
        # Rows that delete files hide are not seen by a query, and still are in data files.
        hides = forgetting.has_delete_files(self._lake, place.identifier)
        hidden = hides and place.identifier in found.tables_with_files()
        if not (going or changing or hidden):
            return None
        found.counts[place.identifier] = rows, going, changing
        modes = {state.properties.get(f"write.{verb}.mode") for verb in ("delete", "update")}
        return replace(rewrite, whole=hides or "merge-on-read" in modes)

    def _texts(
        self, place: Place, main: str, request: Request, search: Search, by_key: Search
    ) -> dict[str, list[str]]:
        """The free texts that name the subject, matched here: no statement may hold a value."""
        if request.erases:
            search = _with_keys(search, by_key.keys)
        found: dict[str, list[str]] = {}
        for column in place.texts:
            query = f"select distinct {quote(column)} from {main} where {quote(column)} is not null"
            found[column] = [row[0].strip(" ") for row in self._sql(query) if search.in_raw(row[0])]
        return found

    # -- what is in the way ----------------------------------------------------------------------

    def _blockers(
        self,
        request: Request,
        journal: Journal,
        found: Found,
        states: Mapping[Identifier, TableState],
    ) -> list[str]:
        reached = {place.identifier for place in found.places}
        blockers = [
            f"audit branch {branch} has {tables}: publish it (dbt run-operation wap_publish "
            f"--args '{{branch: {branch}}}') or drop it (dbt run-operation wap_discard --args "
            f"'{{branch: {branch}}}')"
            for branch, tables in self._open(found, reached, journal)
        ]
        for identifier in sorted(reached):
            blockers.extend(self._own_blockers(identifier, states[identifier], journal))
        return [*blockers, *self._unmarked(found, reached, states)]

    def _open(
        self, found: Found, reached: set[Identifier], journal: Journal
    ) -> Iterable[tuple[str, str]]:
        holding = found.tables_with_files()
        for one in self._lake.open_branches():
            if one.branch == journal.branch:
                continue
            tables = [t.identifier for t in one.tables if t.identifier in reached]
            for side in one.side:
                schema = names.split_side_schema(side.identifier[0], one.branch)
                live = (str(schema), side.identifier[1])
                if live in reached or side.identifier in holding:
                    tables.append(side.identifier)
            if tables:
                yield one.branch, ", ".join(".".join(table) for table in sorted(tables))

    def _own_blockers(
        self, identifier: Identifier, state: TableState, journal: Journal
    ) -> Iterable[str]:
        name = ".".join(identifier)
        known = {one.branch for one in self._lake.open_branches()} | {md.MAIN, journal.branch}
        for ref, at in state.refs.items():
            if at.type == "branch" and ref not in known:
                yield f"{name} has a branch {ref}: alter table {name} drop branch {ref}"
        if state.format_version > 2:
            yield (
                f"{name} has Iceberg's format version {state.format_version}, whose manifests "
                "cannot be rewritten: build it anew with format_version 2"
            )

    def _unmarked(
        self, found: Found, reached: set[Identifier], states: Mapping[Identifier, TableState]
    ) -> Iterable[str]:
        # What stands in a side schema is told of with its branch.
        known = reached | {s.identifier for b in self._lake.open_branches() for s in b.side}
        told: dict[Identifier, set[str]] = {}
        for file in found.proof.holding:
            for identifier in found.reach.get(plain_location(file.path), ()):
                if identifier not in known and identifier[0] != NAMESPACE:
                    told.setdefault(identifier, set()).update(file.found)
        for identifier, where in sorted(told.items()):
            name = ".".join(identifier)
            kind = states[identifier].kind if identifier in states else "table"
            yield (
                f"the {kind} {name} holds the subject ({'; '.join(sorted(where)[:3])}) and has no "
                "mark: mark its columns, or drop it, or say that the column means something else "
                f"(ignore: [{name}.<column>])"
            )

    # -- rewriting and publishing ----------------------------------------------------------------

    def _rewrite(self, found: Found, journal: Journal, path: Path) -> None:
        """Rewrite the tables on an audit branch of the operation's own, audit, publish."""
        if journal.branch is not None:
            # What a call that died has left half-rewritten.
            self._lake.discard(journal.branch, self._run_id)
        if not found.rewrites:
            return
        branch = names.audit_branch(self._run_id, None)
        journal.branch = branch
        journal.write(path)
        items: list[BranchItem] = []
        for rewrite in found.rewrites:
            forgetting.require_supported(
                rewrite.identifier, {"format-version": self._version(rewrite.identifier)}
            )
            base = self._lake.open_branch(rewrite.identifier, branch).base
            for statement in rewrite.statements(branch):
                self._sql(statement)
            candidate = forgetting.sweep_branch(
                self._lake, rewrite.identifier, branch, self._run_id
            )
            self._audit(rewrite, branch)
            items.append(BranchItem(rewrite.identifier, branch, base, candidate))
            self._at("rewritten")
        self._lake.publish(
            items,
            run_id=self._run_id,
            tag=names.publish_tag(self._run_id),
            tag_max_age_ms=self._tag_max_age_ms,
            branch=branch,
        )
        self._at("published")

    def _version(self, identifier: Identifier) -> int:
        state = self._lake.state(identifier)
        return state.format_version if state is not None else 2

    def _audit(self, rewrite: Rewrite, branch: str) -> None:
        expected, there = (tuple(map(str, self._sql(query)[0])) for query in rewrite.audit(branch))
        if expected != there:
            raise GateError(
                f"{'.'.join(rewrite.identifier)}: the branch {branch} does not hold what it must "
                f"(rows, sum and check of hashes: expected {', '.join(expected)}; found "
                f"{', '.join(there)}). Nothing was published; readers of main see what they saw."
            )

    # -- forgetting ------------------------------------------------------------------------------

    def _forget(self, found: Found) -> list[forgetting.Expired]:
        """Expire what held the subject, and delete the files that nothing refers to any more."""
        self._clean_ledger(found)
        reached = {place.identifier for place in found.places} | self._ledger_tables()
        touched = found.tables_with_files() | {r.identifier for r in found.rewrites}
        forgotten = []
        for identifier in sorted(touched & reached):
            self._require_alone(identifier)
            forgotten.append(forgetting.expire(self._lake, identifier, self._run_id))
            self._at("expired")
        self._delete(found, {one.identifier for one in forgotten})
        return forgotten

    def _require_alone(self, identifier: Identifier) -> None:
        """A run that began meanwhile started from rows with the subject in them."""
        state = self._lake.state(identifier)
        branches = [
            name
            for name, ref in (state.refs if state is not None else {}).items()
            if ref.type == "branch" and name != md.MAIN
        ]
        if branches:
            raise GateError(
                f"{'.'.join(identifier)} got the audit branch {branches[0]} while its rows were "
                "erased. The erasure is published, but former snapshots still hold the rows. "
                "Publish or discard that branch (dbt run-operation wap_discard --args "
                f"'{{branch: {branches[0]}}}')."
            )

    def _delete(self, found: Found, expired: set[Identifier]) -> None:
        reach = forgetting.reachable(self._lake)
        folders = [f"{plain_location(state.location)}/" for state in self._states(expired).values()]
        holding = {file.path for file in found.proof.holding}
        warehouse = f"{plain_location(str(self._lake.properties['warehouse']))}/"
        paths = [
            path
            for path in self._paths()
            if path in holding or any(plain_location(path).startswith(f) for f in folders)
        ]
        doomed = forgetting.unreachable(paths, reach)
        # Beside the warehouse are the catalog's database and the server's own files.
        doomed = [path for path in doomed if plain_location(path).startswith(warehouse)]
        forgetting.delete_files(self._lake, doomed)
        self._at("deleted")

    # -- the ledger ------------------------------------------------------------------------------

    def _ledger_tables(self) -> set[Identifier]:
        return {(NAMESPACE, name) for name in self._lake.relations(NAMESPACE)}

    def _clean_ledger(self, found: Found) -> None:
        """Put a word in the place of messages that name the subject."""
        import pyarrow as pa

        for identifier in sorted(found.tables_with_files() & self._ledger_tables()):
            table = self._lake.catalog.load_table(identifier)
            rows = table.scan().to_arrow()
            changed = False
            for index, column in enumerate(rows.schema):
                if not pa.types.is_string(column.type) and not pa.types.is_large_string(
                    column.type
                ):
                    continue
                texts = rows.column(index).to_pylist()
                clean = [report.ERASED if t and found.search.in_text(t) else t for t in texts]
                if clean != texts:
                    changed = True
                    rows = rows.set_column(index, column, pa.array(clean, column.type))
            if changed:
                table.overwrite(rows)

    # -- proving ---------------------------------------------------------------------------------

    def _prove(
        self,
        request: Request,
        found: Found,
        journal: Journal,
        path: Path,
        forgotten: Sequence[forgetting.Expired],
    ) -> list[str]:
        states = self._states(row.identifier for row in self._lake.store.rows.all())
        proof = self._scan(found, states, request)
        scratch = self._scan_paths(self._files(self._scratch), found, states, request)
        conditions = Conditions(journal.salt)
        document = report.document(
            request,
            proof,
            run_id=self._run_id,
            keys=sorted(conditions.digest(key) for key in journal.keys),
            salt=journal.salt,
            before=journal.report,
            forgotten=forgotten,
            outside=journal.outside,
            scratch=[file.path for file in scratch.holding],
            shared=found.shared,
        )
        written = report.write(self._folder, names.short_run_id(self._run_id), document)
        outcome = "proven" if proof.clean else "not proven"
        message = report.message(request, document, written[0])
        row = {
            "run_id": self._run_id,
            "branch": names.audit_branch(self._run_id, None),
            "command": request.operation,
            "project": self._project,
            "target": self._target_name,
            "started_at": self._started,
            "ended_at": datetime.now(UTC),
            "outcome": outcome,
            "message": message,
        }
        self._lake.ledger.append(LedgerRows("runs", [row]))
        lines = report.result(document, written)
        if not proof.clean:
            raise ProofFailed("\n".join([*lines, report.go_on(request)]))
        path.unlink(missing_ok=True)
        return lines

    # -- files -----------------------------------------------------------------------------------

    def _paths(self) -> list[str]:
        warehouse = forgetting.files_of(self._lake, str(self._lake.properties["warehouse"]))
        return [*warehouse, *self._files(self._beside)]

    def _files(self, folders: Sequence[Path]) -> list[str]:
        scratch = [f"{folder}/" for folder in self._scratch]
        return [
            path
            for folder in folders
            for path in forgetting.files_of(self._lake, str(folder))
            if folder in self._scratch or not path.startswith(tuple(scratch))
        ]

    def _each(self, paths: Sequence[str], read: Callable[[str, bytes], Any]) -> list[Any]:
        """What a reader has of each data file, of those that are there and can be read."""

        def one(path: str) -> Any:
            if not path.endswith(".parquet"):
                return {}
            try:
                return read(path, forgetting.content(self._lake, path))
            except FileNotFoundError:
                return {}
            except Exception:
                return {}  # the scan tells of a file that cannot be read

        return self._lake.store.map(one, paths)

    def _scanner(
        self,
        search: Search,
        reached: Sequence[Place],
        states: Mapping[Identifier, TableState],
        request: Request,
    ) -> Scanner:
        by_name = {place.identifier: place for place in reached}
        tables = [
            _owned(state, self._lake.store.load(state.metadata_location), by_name.get(name))
            for name, state in states.items()
        ]
        return Scanner(search, tables, request.ignored)

    def _scan(
        self, found: Found, states: Mapping[Identifier, TableState], request: Request
    ) -> Proof:
        return self._scan_paths(self._paths(), found, states, request)

    def _scan_paths(
        self,
        paths: Sequence[str],
        found: Found,
        states: Mapping[Identifier, TableState],
        request: Request,
    ) -> Proof:
        scanner = self._scanner(found.search, found.places, states, request)

        def read(path: str) -> bytes:
            return forgetting.content(self._lake, path)

        return scan(scanner, paths, read, self._lake.store.map)

    def _states(self, identifiers: Iterable[Identifier]) -> dict[Identifier, TableState]:
        return self._lake.states(identifiers)


def _check_values(request: Request, reached: Sequence[Place]) -> None:
    """Refuse a new value for a column that no table has, which would go unseen.

    Raises:
        ConfigError: No marked table has such a personal column.
    """
    legal = {name.lower() for place in reached for name in place.personal}
    unknown = sorted(set(request.values) - legal)
    if unknown:
        raise ConfigError(
            f"No table has a personal column {', '.join(unknown)} of subject {request.subject}; "
            f"nothing was changed. There are: {', '.join(sorted(legal)) or 'none'}."
        )


def _with_source(marked: Sequence[Place], source: tuple[Identifier, str]) -> tuple[Place, ...]:
    """The list of keys names the subject too, so that it is emptied with the rest."""
    identifier, column = source
    others = [place for place in marked if place.identifier != identifier]
    known = next((p for p in marked if p.identifier == identifier), Place(identifier))
    keys = tuple(dict.fromkeys([*known.keys, column]))
    return (*others, replace(known, keys=keys))


def _with_keys(search: Search, keys: Iterable[str]) -> Search:
    return replace(search, keys=frozenset(keys))


def _search(request: Request, journal: Journal, shared: Mapping[str, Iterable[str]]) -> Search:
    """What nobody but the subject may have left in the lake."""
    common = {text for those in shared.values() for text in those}
    values = {
        name: [text for text in those if text not in set(shared.get(name, ()))]
        for name, those in journal.values.items()
    }
    texts = [text for text in journal.texts if text not in common]
    if request.erases:
        return Search.of(journal.keys, values, texts)
    new = {str(value).strip() for value in request.values.values() if value is not None}
    former = {
        name: [text for text in those if text not in new]
        for name, those in values.items()
        if name in request.values
    }
    return Search.of((), former, [t for t in texts if any(t in f for f in former.values())])


def _either(one: str, other: str) -> str:
    parts = [part for part in (one, other) if part != "false"]
    return f"({' or '.join(parts)})" if parts else "false"


def _new_values(request: Request, place: Place, types: Mapping[str, str]) -> dict[str, str]:
    return {
        name: literal(request.values[name.lower()], types[name])
        for name in place.personal
        if name.lower() in request.values
    }


def _owned(state: TableState, document: md.Document, place: Place | None) -> Owned:
    """A table as the reader of files knows it."""
    fields: dict[int, str] = {}
    types: dict[int, str] = {}
    schemas = document.get("schemas") or ()
    # The present schema last, so that its names win.
    current = document.get("current-schema-id")
    for schema in sorted(schemas, key=lambda s: s.get("schema-id") == current):
        for one in schema.get("fields", ()):
            if "id" in one:
                fields[one["id"]] = one["name"]
                types[one["id"]] = one["type"] if isinstance(one["type"], str) else ""
    partitions: dict[int, list[tuple[str, str] | None]] = {}
    for spec in document.get("partition-specs") or ():
        partitions[spec["spec-id"]] = [
            (fields.get(part["source-id"], "").lower(), types.get(part["source-id"], ""))
            if part["transform"] == "identity"
            else None
            for part in spec["fields"]
        ]
    return Owned(state.identifier, state.location, place, fields, partitions)
