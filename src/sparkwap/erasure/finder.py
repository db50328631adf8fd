"""Finds the subject in the lake: its rows and files, how to remove them, and what blocks this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sparkwap.catalog import Identifier, OpenBranch, TableState
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.file_plan import StateFiles
from sparkwap.catalog.files import plain_location
from sparkwap.catalog.snapshot_files import Snapshot, Unreadable
from sparkwap.catalog.sparksql import current_schema
from sparkwap.core import names, next_command
from sparkwap.core.errors import ConfigError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.core.sqltext import quote
from sparkwap.core.text import counted
from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.file_formats import Data
from sparkwap.erasure.lake_files import LakeFiles
from sparkwap.erasure.progress import ErasureProgress
from sparkwap.erasure.proof import Proof, Scanner
from sparkwap.erasure.request import Erase
from sparkwap.erasure.rewrite import (
    ORDER,
    Rewrite,
    Update,
    cleared,
    fewer_rows,
    literal,
    rows_gone,
)
from sparkwap.erasure.search import Search, canonical, text_of
from sparkwap.erasure.subject_tables import (
    FILE_ROWS,
    NodeColumns,
    SubjectTable,
    check_columns,
    derived,
    is_number,
    key_texts,
    key_values,
    message_columns,
    places,
    with_columns,
)
from sparkwap.maintenance import file_references, live_manifests, orphans
from sparkwap.maintenance.rules import keeps_files
from sparkwap.publish.lake import Lake

Sql = Callable[[str], Sequence[Sequence[Any]]]


@dataclass
class Found:
    """The result of a look at the lake.

    Attributes:
        places: The tables that may hold the subject.
        counts: All rows, deleted rows and changed rows, for each table with a rewrite.
        reach: File -> the tables that refer to it.
        others: The tables of other catalogs in the same database that refer to files of the
            subject.
        orphans: Files of the subject to which nothing refers, and that are to be deleted.
        strangers: Those that may belong to others, and why, in words.
        search: The keys and values for which the proof searches.
        shared: Column -> the number of personal values that also belong to others, so the proof
            cannot search for them.
        skipped: The number of listed keys (``keys_from``) that cannot be a value of a key column.
        staying: Marked table -> the columns in which rows that stay would hold the subject.
        unseen: Tables of which it is not known yet which rows stay.
        blockers: What to do before the operation, in words.
        heads: The snapshot of ``main`` of each place.
        histories: The tables of whose snapshots `scd2_from_changes` makes a history.
        returning: Raw log -> the number of its keys that would be those of a former owner again.
    """

    places: tuple[SubjectTable, ...]
    rewrites: list[Rewrite] = field(default_factory=list)
    counts: dict[Identifier, tuple[int, int, int]] = field(default_factory=dict)
    proof: Proof = field(default_factory=lambda: Proof(()))
    reach: Mapping[str, set[Identifier]] = field(default_factory=dict)
    others: set[Identifier] = field(default_factory=set)
    orphans: set[str] = field(default_factory=set)
    strangers: Mapping[str, str] = field(default_factory=dict)
    search: Search = field(default_factory=lambda: Search(frozenset()))
    shared: Mapping[str, int] = field(default_factory=dict)
    skipped: int = 0
    staying: Mapping[Identifier, set[str]] = field(default_factory=dict)
    unseen: set[Identifier] = field(default_factory=set)
    blockers: list[str] = field(default_factory=list)
    heads: Mapping[Identifier, int | None] = field(default_factory=dict)
    histories: set[Identifier] = field(default_factory=set)
    returning: dict[Identifier, int] = field(default_factory=dict)

    def tables_with_files(self) -> set[Identifier]:
        """Return the tables that refer to files which hold the subject."""
        return self.proof.tables(self.reach)

    def touched(self) -> set[Identifier]:
        """Return the tables that hold the subject or are rewritten."""
        return self.tables_with_files() | {rewrite.identifier for rewrite in self.rewrites}


class SubjectFinder:
    """Finds the subject. It changes only the progress in memory, to which it adds values.

    Args:
        sql: Runs a statement in a Spark session that reads ``main``, and returns its rows.
        journal: The progress of earlier calls with the same request.
    """

    def __init__(
        self,
        files: LakeFiles,
        sql: Sql,
        nodes: Sequence[NodeColumns],
        request: Erase,
        journal: ErasureProgress,
    ) -> None:
        self._files = files
        self._lake: Lake = files.lake
        self._sql = sql
        self._nodes = nodes
        self._entry_keys = {node.identifier: node.entry_key for node in nodes if node.entry_key}
        self._request = request
        self._journal = journal
        self._states = self._lake.states(row.identifier for row in self._lake.store.backend.all())
        self._open_branches: Sequence[OpenBranch] = self._lake.branches.all()

    def find(self) -> Found:
        """Find the subject.

        Raises:
            ConfigError: The marks, the keys or the new values have errors.
        """
        request, journal = self._request, self._journal
        marked = places(self._nodes, request.subject)
        tables = {name: s for name, s in self._states.items() if s.kind == "table"}
        columns = {name: [c.name for c in s.columns] for name, s in tables.items()}
        load = self._lake.store.load
        check_columns(
            marked,
            {
                place.identifier: current_schema(load(tables[place.identifier].metadata_location))
                for place in marked
                if place.identifier in tables
            },
        )
        listed = marked if request.source is None else _with_source(marked, request.source)
        every = [*listed, *derived(self._nodes, listed, columns)]
        found = Found(
            tuple(with_columns(p, columns[p.identifier]) for p in every if p.identifier in columns)
        )
        self._check_values(found.places)
        found.histories = {node.identifier for node in self._nodes if node.has_history}
        found.heads = {place.identifier: tables[place.identifier].main for place in found.places}
        keys, kinds = self._keys(columns), self._key_types(found, marked)
        values = key_values(keys, kinds, skip=request.source is not None)
        found.skipped = len(keys) - len(values)
        learned = set[str]().union(*values.values())
        if not learned.isdisjoint(name for place in found.places for name in place.nobody):
            raise ConfigError(
                "Some of the keys are nobody's, by the mark `nobody` of a key column; nothing was "
                "changed. Leave them out, or correct the mark."
            )
        journal.learn(learned, {}, ())
        journal.learn(self._spellings(found.places), {}, ())
        scanner = self._read(found)
        for place in found.places:
            rewrite = self._plan_table(found, place, tables[place.identifier])
            if rewrite is not None:
                found.rewrites.append(rewrite)
        found.staying = self._staying(found, scanner)
        found.blockers = self._blockers(found)
        return found

    def _check_values(self, reached: Sequence[SubjectTable]) -> None:
        """Refuse a new value for a column that no table has, or that is nested."""
        columns = [(place.identifier, name) for place in reached for name in place.personal]
        legal = {name.lower() for _, name in columns}
        legal -= {n.lower() for table, n in columns if "<" in self._types(table).get(n, "<")}
        unknown = sorted(set(self._request.new_values) - legal)
        if unknown:
            raise ConfigError(
                f"No table has a personal column {', '.join(unknown)} of subject "
                f"{self._request.subject}, or it is nested; nothing was changed. Its personal "
                f"columns: {', '.join(sorted(legal)) or 'none'}."
            )

    def _keys(self, columns: Mapping[Identifier, Sequence[str]]) -> tuple[str, ...]:
        request = self._request
        if request.source is None:
            return key_texts(request.keys or ())
        identifier, column = request.source
        if column not in columns.get(identifier, ()):
            raise ConfigError(
                f"There is no column {'.'.join((*identifier, column))} (keys_from); nothing was "
                "changed."
            )
        table = ".".join(map(quote, identifier))
        query = f"select distinct cast({quote(column)} as string) from {table} version as of 'main'"
        rows = self._sql(query) if self._states[identifier].main is not None else ()
        # An earlier call may have erased the list already.
        return key_texts([*(row[0] for row in rows), *self._journal.keys])

    def _spellings(self, reached: Sequence[SubjectTable]) -> set[str]:
        """Return the spellings of whole-number keys in columns of raw text, such as ``007``."""
        kinds = {name: self._types(name) for name in (place.identifier for place in reached)}
        typed = [kinds[place.identifier][key] for place in reached for key in place.keys]
        keys = [key for key in self._journal.keys if key.removeprefix("-").isdecimal()]
        if not keys or not any(map(is_number, typed)):
            return set()
        found: set[str] = set()
        for place in reached:
            texts = [key for key in place.keys if kinds[place.identifier][key] == "string"]
            if self._states[place.identifier].main is None:
                continue
            for key in texts:
                wanted = Conditions(self._journal.salt).spelled(key, keys)
                rows = self._sql(
                    f"select distinct {quote(key)} "
                    f"from {Rewrite(place.identifier, ()).main} where {wanted}"
                )
                found.update(row[0].strip() for row in rows)
        return found

    def _key_types(self, found: Found, marked: Iterable[SubjectTable]) -> set[str]:
        names = {place.identifier for place in marked}
        places = (place for place in found.places if place.identifier in names)
        return {self._types(place.identifier)[key] for place in places for key in place.keys}

    def _types(self, identifier: Identifier) -> dict[str, str]:
        return {column.name: column.type for column in self._states[identifier].columns}

    def _read(self, found: Found) -> Scanner:
        """Read every file: first to collect the subject's personal values, then to find them."""
        journal, ignored = self._journal, self._request.ignored
        by_key = Search.of(journal.keys, {}, ())
        rows = self._lake.store.backend
        found.reach = file_references.reachable(self._lake, rows.all())
        scanner = self._files.scanner(by_key, found.places, self._states, ignored, found.reach)
        scanner = replace(scanner, replaced=self._files.replaced(found.places))
        paths = self._files.paths([*journal.files, *found.reach])
        collected = self._files.each(paths, scanner.collect)
        values = {name: {text for text, _ in pairs} for name, pairs in collected.items()}
        texts = {text for pairs in collected.values() for text, is_text in pairs if is_text}
        journal.learn((), values, texts)
        own = {name: frozenset(found_texts) for name, found_texts in journal.values.items()}
        shared = self._files.each(paths, lambda path, data: scanner.shared(path, data, own))
        found.shared = {name: len(texts) for name, texts in sorted(shared.items())}
        found.search = _search(self._request, journal, shared).with_names(self._names())
        scanner = replace(scanner, search=found.search)
        found.proof = self._files.scan(scanner, paths)
        others = file_references.reachable(self._lake, rows.others())
        found.others = found.proof.tables(others)
        self._find_orphans(found, {*found.reach, *others})
        return scanner

    def _find_orphans(self, found: Found, reached: set[str]) -> None:
        """Find the subject's files to which nothing refers, and which of them may be of others."""
        holding = (file.path for file in found.proof.holding)
        lone = set(file_references.unreachable(holding, {*reached, *self._journal.files}))
        if lone:
            states = (self._states[place.identifier] for place in found.places)
            found.orphans = lone.intersection(self._files.settled(states))
            if not self._request.unreferenced:
                found.strangers = orphans.strangers(self._lake, found.orphans, reached)
                found.orphans -= found.strangers.keys()

    def _names(self) -> str:
        """Return the names of tables, columns, folders and nodes, one in a line."""
        rows = self._lake.store.backend.known()
        documents = self._lake.store.documents(rows)
        schemas = (one.get(kind) for one in documents for kind in ("schemas", "partition-specs"))
        found = {
            self._lake.warehouse,
            *(part for row in rows for part in row.identifier),
            *(str(one.get("location")) for one in documents),
            *(name for schema in schemas for name in _named(schema)),
            *(node.node_id for node in self._nodes),
        }
        return "\n".join(sorted(map(canonical, found)))

    def _staying(self, found: Found, scanner: Scanner) -> dict[Identifier, set[str]]:
        """Search the rows of `main` that the rewrites leave, as the proof will do it."""
        holding = {plain_location(file.path): file.path for file in found.proof.holding}
        staying: dict[Identifier, set[str]] = {}
        for place in found.places:
            types = self._types(place.identifier)
            clears = self._request.erases and place.action == "clear"
            if place.any_cell or (clears and message_columns(types)):
                continue  # Spark tells which rows go.
            changed = None
            if clears or not self._request.erases:
                changed = {name.lower() for name in self._new_values(place, types)}
            files = self._files_of_main(self._states[place.identifier])
            live = {plain_location(one.path) for one in files.data} if files else set[str]()
            live &= holding.keys()
            hidden = self._files.hidden_rows(files.deletes) if files and live else {}
            if files is None or hidden is None:
                found.unseen.add(place.identifier)
                continue
            keys = self._journal.keys if place.identifier in found.counts else None

            def read(
                path: str,
                data: Data,
                keys: Any = keys,
                changed: Any = changed,
                hidden: Any = hidden,
            ) -> Any:
                gone = hidden.get(plain_location(path))
                return {"": scanner.staying(path, data, keys, changed, gone)}

            columns = self._files.each([holding[path] for path in live], read).get("")
            if columns:
                staying[place.identifier] = columns
        return staying

    def _files_of_main(self, state: TableState) -> StateFiles | None:
        """Return the files of `main`; None if they cannot be read."""
        document = self._lake.store.load(state.metadata_location)
        snapshot = md.snapshot(document, md.main_of(document) or -1)
        if snapshot is None:
            return StateFiles()
        with suppress(Unreadable):
            return Snapshot(self._lake.store, document, snapshot).files()
        return None

    def _plan_table(self, found: Found, place: SubjectTable, state: TableState) -> Rewrite | None:
        """Return the rewrite that removes the subject from a table; None if there is no need."""
        if state.main is None:
            return None
        rewrite = self._rewrite(found, place, state)
        rows, going, changing = (int(n) for n in self._sql(rewrite.count())[0])
        # A query does not return rows that delete files hide, but the data files still have them.
        hides = live_manifests.has_delete_files(self._lake, place.identifier)
        # sparkwap cannot write manifests of the newer format, so no file of the table can stay.
        newer = state.format_version > live_manifests.WRITABLE_VERSION
        hidden = (hides or newer) and place.identifier in found.tables_with_files()
        if not (going or changing or hidden):
            return None
        found.counts[place.identifier] = rows, going, changing
        key = self._entry_keys.get(place.identifier)
        present = {name.lower() for name in rewrite.columns}
        # A raw log that was built before its entry had this key has other columns.
        if going and key and {*map(str.lower, key), *ORDER} <= present:
            count = int(self._sql(rewrite.returning(key))[0][0])
            found.returning |= {place.identifier: count} if count else {}
        modes = {state.properties.get(f"write.{verb}.mode") for verb in ("delete", "update")}
        whole = newer or hides or "merge-on-read" in modes
        return replace(rewrite, whole=whole, settle=newer)

    def _rewrite(self, found: Found, place: SubjectTable, state: TableState) -> Rewrite:
        request, conditions = self._request, Conditions(self._journal.salt)
        types = self._types(place.identifier)
        rewrite = Rewrite(place.identifier, list(types))
        by_key = Search(frozenset(self._journal.keys))
        keyed = conditions.rows(replace(place, any_cell=False), by_key, {}, types)
        # An erasure also searches texts and cells for keys; a rectification only for old values.
        loose = replace(found.search, keys=by_key.keys) if request.erases else found.search
        naming = self._naming(place, rewrite.main, loose, types)
        delete = conditions.rows(replace(place, keys=()), loose, naming, types)
        updates: list[Update] = []
        if request.erases and place.action == "delete":
            delete = _either(keyed, delete)
        elif keyed != "false":
            updates = _changes(keyed, self._new_values(place, types))
        if request.erases and place.action == "clear":
            named = self._messages_naming(place, rewrite.main, loose, types)
            # Nobody can use a bad row; it may have the subject's values in unmarked columns.
            delete = _either(
                delete, "false" if named == "false" else f"(_kind = 'bad' and {named})"
            )
            if named != "false":
                updates.append(Update(named, cleared(message_columns(types), types)))
        if FILE_ROWS in types and delete != "false":
            gone = {path: int(n) for path, n in self._sql(rows_gone(rewrite.main, delete))}
            self._journal.outside = sorted({*self._journal.outside, *gone})
            updates += [fewer_rows(conditions, gone, types)] if gone else []
        return replace(rewrite, delete=delete, updates=tuple(updates))

    def _new_values(self, place: SubjectTable, types: Mapping[str, str]) -> dict[str, str]:
        if self._request.erases:
            return cleared([*place.keys, *place.personal], types)
        given = self._request.new_values
        return {
            name: literal(given[name.lower()], types[name])
            for name in place.personal
            if name.lower() in given
        }

    def _messages_naming(
        self, place: SubjectTable, main: str, search: Search, types: Mapping[str, str]
    ) -> str:
        """Return a condition for the messages whose key or headers name the subject, or "false"."""
        own = replace(place, texts=message_columns(types), any_cell=False)
        if not own.texts:
            return "false"
        naming = self._naming(own, main, search, types)
        conditions = Conditions(self._journal.salt)
        return conditions.rows(own, Search(search.keys), naming, types)

    def _naming(
        self, place: SubjectTable, main: str, search: Search, types: Mapping[str, str]
    ) -> dict[str, list[str]]:
        """Return the free texts that name the subject, by column.

        They are matched in Python, because no statement may contain a value; Spark sends only those
        that have the hash of a part of a value.
        """
        conditions = Conditions(self._journal.salt)
        names = dict.fromkeys(place.texts, (search.in_raw, search.raw_tokens))
        if place.any_cell:
            # Any text column of stored failures may name the subject.
            texts = (column for column, kind in types.items() if kind == "string")
            names = {**dict.fromkeys(texts, (search.in_text, search.tokens)), **names}
        found: dict[str, list[str]] = {}
        for column, (holds, tokens) in names.items():
            query = f"select distinct {quote(column)} from {main} where {quote(column)} is not null"
            if tokens is not None:
                query += f" and {conditions.can_name(column, tokens)}"
            # As Spark's trim, which removes only spaces.
            found[column] = [row[0].strip(" ") for row in self._sql(query) if holds(row[0])]
        return found

    def _blockers(self, found: Found) -> list[str]:
        reached = {place.identifier for place in found.places}
        conditions = Conditions(self._journal.salt)
        blockers = [
            f"audit branch {branch} has {tables}: {how_to_end(self._lake, branch)}"
            for branch, tables in self._open(found, reached)
        ]
        blockers += [
            f"{conditions.folders(paths, found.places)}: these files hold the subject, no table of "
            f"this catalog refers to them, and they may belong to others ({why}): delete them, "
            "move them out of the lake, erase the subject with their own catalog, or let this "
            "command delete them, with all that others have in them (unreferenced: true)"
            for why in sorted(set(found.strangers.values()))
            for paths in [[path for path, of in found.strangers.items() if of == why]]
        ]
        for identifier in sorted(reached):
            blockers.extend(self._own_blockers(self._states[identifier]))
        for identifier in sorted(found.touched() & reached):
            document = self._lake.store.load(self._states[identifier].metadata_location)
            if keeps_files(document):
                name = ".".join(identifier)
                blockers.append(
                    f"{name} has gc.enabled=false, so its files may belong to another table: erase "
                    "the subject there first, rewrite this table, and remove the property (alter "
                    f"table {name} unset tblproperties ('gc.enabled'))"
                )
        for identifier, columns in sorted(found.staying.items()):
            name = ".".join(identifier)
            place = next(one for one in found.places if one.identifier == identifier)
            blockers.append(
                f"rows of {name} that stay hold the subject (column {', '.join(sorted(columns))}): "
                f"give the keys as they have them, or {self._ways(place, columns)}, or correct "
                f"them, or ignore the column if it has other data (ignore: [{name}.<column>])"
            )
        blockers += [
            f"{'.'.join(identifier)}: without the person's rows, {counted(count, 'key')} of the "
            "source would be of a former owner again, in every later build: keep these rows "
            "without the person (`on_erase: clear` beside `subject`), here and in the tables that "
            "are built from it"
            for identifier, count in sorted(found.returning.items())
        ]
        return [*blockers, *self._unmarked(found, reached)]

    def _ways(self, place: SubjectTable, columns: Iterable[str]) -> str:
        """Return what would remove the subject from rows that stay."""
        if not self._request.erases:
            return "give the column a new value, too (`values`; it needs the mark `personal`)"
        if all(map(place.is_personal, columns)):
            return (
                "set the key in these rows, or mark the column also as `subject_text` to delete "
                "the rows that name the subject"
            )
        return (
            "mark the column (`personal` to clear it with on_erase: clear, `subject_text` to "
            "delete the rows that name the subject)"
        )

    def _open(self, found: Found, reached: set[Identifier]) -> Iterable[tuple[str, str]]:
        holding = found.tables_with_files()
        for branch in self._open_branches:
            if branch.branch == self._journal.branch:
                continue
            tables = [t.identifier for t in branch.tables if t.identifier in reached]
            for side in branch.side:
                schema = names.split_side_schema(side.identifier[0], branch.branch)
                live = (str(schema), side.identifier[1])
                if live in reached or side.identifier in holding:
                    tables.append(side.identifier)
            if tables:
                yield branch.branch, ", ".join(".".join(table) for table in sorted(tables))

    def _own_blockers(self, state: TableState) -> Iterable[str]:
        name = ".".join(state.identifier)
        known = {md.MAIN, self._journal.branch, *(b.branch for b in self._open_branches)}
        for ref, target in state.refs.items():
            if target.type == "branch" and ref not in known:
                yield f"{name} has a branch {ref}: alter table {name} drop branch {ref}"
        if state.format_version > live_manifests.READABLE_VERSION:
            yield (
                f"{name} has Iceberg's format version {state.format_version}, which sparkwap "
                "cannot read: build it again with format_version "
                f"{live_manifests.READABLE_VERSION} or less"
            )

    def _unmarked(self, found: Found, reached: set[Identifier]) -> Iterable[str]:
        # Objects in a side schema are reported with their branch.
        known = reached | {s.identifier for b in self._open_branches for s in b.side}
        holding: dict[Identifier, set[str]] = {}
        for file in found.proof.holding:
            for identifier in found.reach.get(plain_location(file.path), ()):
                if identifier not in known and identifier[0] != LEDGER_SCHEMA:
                    holding.setdefault(identifier, set()).update(file.found)
        for identifier, where in sorted(holding.items()):
            name = ".".join(identifier)
            kind = self._states[identifier].kind if identifier in self._states else "table"
            drop = (
                "with its files (drop table .. purge)" if kind == "table" else f"(drop {kind} ..)"
            )
            yield (
                f"the {kind} {name} holds the subject ({'; '.join(sorted(where)[:3])}) and has no "
                f"mark: mark its columns, or drop it {drop}, or "
                f"ignore the column if it has other data (ignore: [{name}.<column>])"
            )


def how_to_end(lake: Lake, branch: str) -> str:
    """Return what to do about an open audit branch."""
    for run in leasing.living(lake.leases):
        if run.branch == branch:
            return (
                f"it is {leasing.describe(run, lives=True)}; wait until this run has ended, or end "
                "it (and `sparkwap stream`, if that has begun it)"
            )
    return (
        f"publish it ({next_command.operation('wap_publish', branch)}) or drop it "
        f"({next_command.operation('wap_discard', branch)})"
    )


def _with_source(
    marked: Sequence[SubjectTable], source: tuple[Identifier, str]
) -> tuple[SubjectTable, ...]:
    """Return the places with the table that lists the keys, because it names the subject too."""
    identifier, column = source
    others = [place for place in marked if place.identifier != identifier]
    known = next((p for p in marked if p.identifier == identifier), SubjectTable(identifier))
    keys = tuple(dict.fromkeys([*known.keys, column]))
    return (*others, replace(known, keys=keys))


def _search(
    request: Erase, journal: ErasureProgress, shared: Mapping[str, Iterable[str]]
) -> Search:
    """Return the search for the keys and values that belong only to the subject."""
    common = {text for found in shared.values() for text in found}
    values = {
        name: [text for text in found if text not in set(shared.get(name, ()))]
        for name, found in journal.values.items()
    }
    texts = [text for text in journal.texts if text not in common]
    if request.erases:
        return Search.of(journal.keys, values, texts)
    new = {text for value in request.new_values.values() if (text := text_of(value))}
    former = {
        name: [text for text in found if text not in new]
        for name, found in values.items()
        if name in request.new_values
    }
    search = Search.of((), former, [t for t in texts if any(t in f for f in former.values())])
    return replace(search, new=frozenset(new))


def _named(schema: Any) -> Iterator[str]:
    """Yield the names of the fields in schemas or partition specs."""
    if isinstance(schema, Mapping):
        if "name" in schema:
            yield str(schema["name"])
        schema = list(schema.values())
    for one in schema if isinstance(schema, list | tuple) else ():
        yield from _named(one)


def _either(first: str, second: str) -> str:
    parts = [part for part in (first, second) if part != "false"]
    return f"({' or '.join(parts)})" if parts else "false"


def _changes(where: str, sets: Mapping[str, str]) -> list[Update]:
    """Return an update of the rows that do not have the new values yet."""
    differs = " or ".join(f"{quote(name)} is distinct from {value}" for name, value in sets.items())
    return [Update(f"({where} and ({differs}))", sets)] if sets else []
