"""Finds the subject in the lake: its rows and files, how to remove them, and what blocks that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparkwap.catalog import Identifier, OpenBranch, TableState
from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import plain_location
from sparkwap.core import names
from sparkwap.core.errors import ConfigError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.core.sqltext import quote
from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.lake_files import LakeFiles
from sparkwap.erasure.progress import ErasureProgress
from sparkwap.erasure.proof import Proof
from sparkwap.erasure.request import Erase
from sparkwap.erasure.rewrite import Rewrite, Update, cleared, fewer_rows, literal, rows_gone
from sparkwap.erasure.search import Search
from sparkwap.erasure.subject_tables import (
    FILE_ROWS,
    NodeColumns,
    SubjectTable,
    derived,
    key_texts,
    places,
    with_columns,
)
from sparkwap.maintenance import file_references, live_manifests
from sparkwap.publish.lake import Lake

Sql = Callable[[str], Sequence[Sequence[Any]]]


@dataclass
class Found:
    """What was found.

    Attributes:
        places: The tables that may hold the subject.
        rewrites: How each of them loses it.
        counts: Rows in all, rows that go, rows that change; of each table with some.
        proof: The files, and which of them hold the subject.
        reach: File -> the tables that refer to it.
        search: What the proof looks for.
        shared: Number of personal values that others have too, which no proof can look for.
        blockers: What has to be done before, in words.
        heads: The snapshot of ``main`` that was looked at, of each of the places.
    """

    places: tuple[SubjectTable, ...]
    rewrites: list[Rewrite] = field(default_factory=list)
    counts: dict[Identifier, tuple[int, int, int]] = field(default_factory=dict)
    proof: Proof = field(default_factory=lambda: Proof(()))
    reach: Mapping[str, set[Identifier]] = field(default_factory=dict)
    search: Search = field(default_factory=lambda: Search(frozenset()))
    shared: int = 0
    blockers: list[str] = field(default_factory=list)
    heads: Mapping[Identifier, int | None] = field(default_factory=dict)

    def tables_with_files(self) -> set[Identifier]:
        """The tables that refer to files which hold the subject."""
        holding = (plain_location(file.path) for file in self.proof.holding)
        return set().union(*(self.reach.get(path, set()) for path in holding))


class SubjectFinder:
    """Finds the subject; changes only the progress in memory, which learns its values.

    Args:
        files: The lake's files.
        sql: Runs a statement in a Spark session that reads ``main``, and returns its rows.
        nodes: The project's models, snapshots, seeds, sources and tests.
        request: What is asked for.
        journal: What a former call of the same request has learned.
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
        self._request = request
        self._journal = journal
        self._states = self._lake.states(row.identifier for row in self._lake.store.backend.all())
        self._open_branches: Sequence[OpenBranch] = self._lake.branches.all()

    def find(self) -> Found:
        """Look.

        Raises:
            ConfigError: The marks, the keys or the new values have errors.
        """
        request, journal = self._request, self._journal
        marked = places(self._nodes, request.subject)
        if request.source is not None:
            marked = _with_source(marked, request.source)
        tables = {name: s for name, s in self._states.items() if s.kind == "table"}
        columns = {name: [c.name for c in s.columns] for name, s in tables.items()}
        every = [*marked, *derived(self._nodes, marked, columns)]
        found = Found(
            tuple(with_columns(p, columns[p.identifier]) for p in every if p.identifier in columns)
        )
        _check_values(request, found.places)
        found.heads = {place.identifier: tables[place.identifier].main for place in found.places}
        journal.learn(self._keys(columns), {}, ())
        journal.learn(self._spellings(found.places), {}, ())
        self._read(found)
        for place in found.places:
            rewrite = self._plan_table(found, place, tables[place.identifier])
            if rewrite is not None:
                found.rewrites.append(rewrite)
        found.blockers = self._blockers(found)
        return found

    def _keys(self, columns: Mapping[Identifier, Sequence[str]]) -> tuple[str, ...]:
        request = self._request
        if request.source is None:
            return key_texts(request.keys or ())
        identifier, column = request.source
        if column not in columns.get(identifier, ()):
            raise ConfigError(
                f"There is no column {'.'.join((*identifier, column))} that could list the keys; "
                "nothing was changed."
            )
        table = ".".join(map(quote, identifier))
        query = f"select distinct cast({quote(column)} as string) from {table} version as of 'main'"
        rows = self._sql(query) if self._states[identifier].main is not None else ()
        # A former call may have emptied the list already.
        return key_texts([*(row[0] for row in rows), *self._journal.keys])

    def _spellings(self, reached: Sequence[SubjectTable]) -> set[str]:
        """The texts by which raw columns call the keys that typed ones have as whole numbers."""
        kinds = {name: self._types(name) for name in (place.identifier for place in reached)}
        typed = [kinds[place.identifier][key] for place in reached for key in place.keys]
        keys = [key for key in self._journal.keys if key.removeprefix("-").isdecimal()]
        if not keys or not any(_is_whole_number(kind) for kind in typed):
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

    def _types(self, identifier: Identifier) -> dict[str, str]:
        return {column.name: column.type for column in self._states[identifier].columns}

    def _read(self, found: Found) -> None:
        """Read every file: for the subject's personal values first, then for all that it left."""
        journal, ignored = self._journal, self._request.ignored
        by_key = Search.of(journal.keys, {}, ())
        scanner = self._files.scanner(by_key, found.places, self._states, ignored)
        paths = self._files.paths()
        collected = self._files.each(paths, scanner.collect)
        values = {name: {text for text, _ in those} for name, those in collected.items()}
        texts = {text for those in collected.values() for text, is_text in those if is_text}
        journal.learn((), values, texts)
        own = {name: frozenset(those) for name, those in journal.values.items()}
        shared = self._files.each(paths, lambda path, data: scanner.shared(path, data, own))
        found.shared = sum(map(len, shared.values()))
        found.search = _search(self._request, journal, shared)
        scanner = self._files.scanner(found.search, found.places, self._states, ignored)
        found.proof = self._files.scan(scanner, paths)
        found.reach = file_references.reachable(self._lake)

    def _plan_table(self, found: Found, place: SubjectTable, state: TableState) -> Rewrite | None:
        """How a table loses the subject; None if nothing of it is in its rows."""
        if state.main is None:
            return None
        rewrite = self._rewrite(found, place, state)
        rows, going, changing = (int(n) for n in self._sql(rewrite.count())[0])
        # Rows that delete files hide are not seen by a query, and still are in data files.
        hides = live_manifests.has_delete_files(self._lake, place.identifier)
        # Manifests of the newer format cannot be written here, so that no file of it can stay.
        newer = state.format_version > live_manifests.WRITABLE_VERSION
        hidden = (hides or newer) and place.identifier in found.tables_with_files()
        if not (going or changing or hidden):
            return None
        found.counts[place.identifier] = rows, going, changing
        modes = {state.properties.get(f"write.{verb}.mode") for verb in ("delete", "update")}
        whole = newer or hides or "merge-on-read" in modes
        return replace(rewrite, whole=whole, settle=newer)

    def _rewrite(self, found: Found, place: SubjectTable, state: TableState) -> Rewrite:
        request, conditions = self._request, Conditions(self._journal.salt)
        columns = [column.name for column in state.columns]
        types = {column.name: column.type for column in state.columns}
        rewrite = Rewrite(place.identifier, columns)
        by_key = Search(frozenset(self._journal.keys))
        keyed = conditions.rows(replace(place, any_cell=False), by_key, {}, columns)
        # An erasure looks for keys in texts and cells too; a rectification for former values only.
        loose = replace(found.search, keys=by_key.keys) if request.erases else found.search
        naming = self._naming(place, rewrite.main, loose, types)
        delete = conditions.rows(replace(place, keys=()), loose, naming, columns)
        updates: list[Update] = []
        if request.erases and place.action == "delete":
            delete = _either(keyed, delete)
        elif keyed != "false":
            updates = _changes(keyed, self._new_values(place, types))
        if FILE_ROWS in types and delete != "false":
            gone = {path: int(n) for path, n in self._sql(rows_gone(rewrite.main, delete))}
            self._journal.outside = sorted({*self._journal.outside, *gone})
            updates += [fewer_rows(conditions, gone)] if gone else []
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

    def _naming(
        self, place: SubjectTable, main: str, search: Search, types: Mapping[str, str]
    ) -> dict[str, list[str]]:
        """The free texts that name the subject, matched here: no statement may hold a value."""
        names = dict.fromkeys(place.texts, search.in_raw)
        if place.any_cell:
            # Nobody has said which cells of a failure are texts; a short key counts in raw ones.
            texts = (column for column, kind in types.items() if kind == "string")
            names = {**dict.fromkeys(texts, search.in_text), **names}
        found: dict[str, list[str]] = {}
        for column, holds in names.items():
            query = f"select distinct {quote(column)} from {main} where {quote(column)} is not null"
            # Spark's trim takes spaces only.
            found[column] = [row[0].strip(" ") for row in self._sql(query) if holds(row[0])]
        return found

    # -- what is in the way ----------------------------------------------------------------------

    def _blockers(self, found: Found) -> list[str]:
        reached = {place.identifier for place in found.places}
        blockers = [
            f"audit branch {branch} has {tables}: publish it (dbt run-operation wap_publish "
            f"--args '{{branch: {branch}}}') or drop it (dbt run-operation wap_discard --args "
            f"'{{branch: {branch}}}')"
            for branch, tables in self._open(found, reached)
        ]
        for identifier in sorted(reached):
            blockers.extend(self._own_blockers(self._states[identifier]))
        return [*blockers, *self._unmarked(found, reached)]

    def _open(self, found: Found, reached: set[Identifier]) -> Iterable[tuple[str, str]]:
        holding = found.tables_with_files()
        for one in self._open_branches:
            if one.branch == self._journal.branch:
                continue
            tables = [t.identifier for t in one.tables if t.identifier in reached]
            for side in one.side:
                schema = names.split_side_schema(side.identifier[0], one.branch)
                live = (str(schema), side.identifier[1])
                if live in reached or side.identifier in holding:
                    tables.append(side.identifier)
            if tables:
                yield one.branch, ", ".join(".".join(table) for table in sorted(tables))

    def _own_blockers(self, state: TableState) -> Iterable[str]:
        name = ".".join(state.identifier)
        known = {md.MAIN, self._journal.branch, *(one.branch for one in self._open_branches)}
        for ref, at in state.refs.items():
            if at.type == "branch" and ref not in known:
                yield f"{name} has a branch {ref}: alter table {name} drop branch {ref}"
        if state.format_version > live_manifests.READABLE_VERSION:
            yield (
                f"{name} has Iceberg's format version {state.format_version}, which sparkwap "
                "cannot read: build it anew with format_version "
                f"{live_manifests.READABLE_VERSION} or less"
            )

    def _unmarked(self, found: Found, reached: set[Identifier]) -> Iterable[str]:
        # What stands in a side schema is told of with its branch.
        known = reached | {s.identifier for b in self._open_branches for s in b.side}
        told: dict[Identifier, set[str]] = {}
        for file in found.proof.holding:
            for identifier in found.reach.get(plain_location(file.path), ()):
                if identifier not in known and identifier[0] != LEDGER_SCHEMA:
                    told.setdefault(identifier, set()).update(file.found)
        for identifier, where in sorted(told.items()):
            name = ".".join(identifier)
            kind = self._states[identifier].kind if identifier in self._states else "table"
            yield (
                f"the {kind} {name} holds the subject ({'; '.join(sorted(where)[:3])}) and has no "
                "mark: mark its columns, or drop it, or say that the column means something else "
                f"(ignore: [{name}.<column>])"
            )


def _check_values(request: Erase, reached: Sequence[SubjectTable]) -> None:
    """Refuse a new value for a column that no table has, which would go unseen.

    Raises:
        ConfigError: No marked table has such a personal column.
    """
    legal = {name.lower() for place in reached for name in place.personal}
    unknown = sorted(set(request.new_values) - legal)
    if unknown:
        raise ConfigError(
            f"No table has a personal column {', '.join(unknown)} of subject {request.subject}; "
            f"nothing was changed. There are: {', '.join(sorted(legal)) or 'none'}."
        )


def _with_source(
    marked: Sequence[SubjectTable], source: tuple[Identifier, str]
) -> tuple[SubjectTable, ...]:
    """The list of keys names the subject too, so that it is emptied with the rest."""
    identifier, column = source
    others = [place for place in marked if place.identifier != identifier]
    known = next((p for p in marked if p.identifier == identifier), SubjectTable(identifier))
    keys = tuple(dict.fromkeys([*known.keys, column]))
    return (*others, replace(known, keys=keys))


def _search(
    request: Erase, journal: ErasureProgress, shared: Mapping[str, Iterable[str]]
) -> Search:
    """What nobody but the subject may have left in the lake."""
    common = {text for those in shared.values() for text in those}
    values = {
        name: [text for text in those if text not in set(shared.get(name, ()))]
        for name, those in journal.values.items()
    }
    texts = [text for text in journal.texts if text not in common]
    if request.erases:
        return Search.of(journal.keys, values, texts)
    new = {str(value).strip() for value in request.new_values.values() if value is not None}
    former = {
        name: [text for text in those if text not in new]
        for name, those in values.items()
        if name in request.new_values
    }
    return Search.of((), former, [t for t in texts if any(t in f for f in former.values())])


def _is_whole_number(kind: str) -> bool:
    return kind in ("tinyint", "smallint", "int", "bigint") or (
        kind.startswith("decimal") and kind.replace(" ", "").endswith(",0)")
    )


def _either(one: str, other: str) -> str:
    parts = [part for part in (one, other) if part != "false"]
    return f"({' or '.join(parts)})" if parts else "false"


def _changes(where: str, sets: Mapping[str, str]) -> list[Update]:
    """An update of those rows that do not have the new values already."""
    differs = " or ".join(f"{quote(name)} is distinct from {value}" for name, value in sets.items())
    return [Update(f"({where} and ({differs}))", sets)] if sets else []
