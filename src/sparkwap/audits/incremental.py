"""Decides from which files a test that has passed before can be answered again. Pure.

A test of single rows that has passed on a state passes on a later state if no added row fails it.
A test that looks at the rows of each key apart passes if it does for the keys of added rows, and
for those of lost rows where a loss can break it. A test for a parent passes if each added row has
one, and each row whose parent may be gone. A later state is one that grew from the earlier one: a
data file never changes, and its deletes only become more. So only rows of data files that the
earlier state did not have can be new, and only rows of files that are gone, or have more deletes,
can be lost.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sparkwap.catalog import Identifier
from sparkwap.catalog import metadata as md
from sparkwap.catalog.file_plan import DataFile, DeleteFile, StateFiles
from sparkwap.catalog.sparksql import current_schema
from sparkwap.core.sqllex import tokens

_NAME_MAPPING = "schema.name-mapping.default"


@dataclass(frozen=True)
class Question:
    """A test that a shared statement is to answer.

    Attributes:
        read: The state of the tables that it reads, before the statement is sent.
    """

    test_id: str
    query: str
    read: Mapping[Identifier, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """How a shared statement has answered a test.

    Attributes:
        how: ``alone``: by a statement of its own; ``shared``: from all rows; ``incremental``: from
            the rows that were added since it passed.
        basis: See `basis`; None if no later answer can build on this one.
        whole_at: When all rows of the table were last audited.
        since: The audits of added rows alone since then.
        parent_snapshot: The snapshot of the other table, if it has read two.
        locations: The metadata files of the tables that it has read.
    """

    how: Literal["alone", "shared", "incremental"] = "shared"
    basis: str | None = None
    whole_at: datetime | None = None
    since: int = 0
    snapshot: int | None = None
    parent_snapshot: int | None = None
    locations: tuple[str, ...] = ()

    @property
    def states(self) -> set[str]:
        """What it has read, as candidates are named."""
        return {str(self.snapshot), str(self.parent_snapshot), *self.locations}


@dataclass(frozen=True, slots=True)
class Passed:
    """An earlier result of a test: its query had no row.

    Attributes:
        parent: The snapshot of the other table, if it read two.
    """

    snapshot: int
    whole_at: datetime
    since: int
    parent: int | None = None


def passed(rows: Iterable[Mapping[str, Any]], basis: str) -> list[Passed]:
    """Return the earlier results of a test that a later answer can build on.

    Args:
        rows: The test's rows in the ledger's ``tests``.
    """
    found = []
    for row in rows:
        clean = row["status"] == "pass" and row["failures"] == 0
        if clean and row["basis"] == basis and row["whole_at"] and row["snapshot"] is not None:
            since = int(row["increments"] or 0)
            parent = row["parent_snapshot"]
            found.append(Passed(row["snapshot"], row["whole_at"], since, parent))
    return found


def basis(query: str, documents: Iterable[md.Document], session: Iterable[Sequence[Any]]) -> str:
    """Return a digest of all that the answer follows from, besides the rows.

    Args:
        documents: The metadata of the tables; their columns count, and how files without ids are
            read.
        session: The settings of the session, the versions, the time zone, the user.
    """
    tables = [
        (current_schema(one).get("fields"), md.properties_of(one).get(_NAME_MAPPING))
        for one in documents
    ]
    known = [query, tables, sorted(map(list, session))]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def latest(
    results: Iterable[Passed],
    ancestors: Iterable[md.Document],
    of_parent: Iterable[md.Document] | None = None,
) -> Passed | None:
    """Return the newest earlier result from which a state grew; None if there is none.

    Results of format version 1 do not count: its snapshots have no sequence number.

    Args:
        ancestors: The snapshot to audit, and those that it grew from, newest first.
        of_parent: The same for the other table, if the test reads two.
    """
    ranks: dict[int | None, int] = {None: 0}
    if of_parent is not None:
        numbered = (one["snapshot-id"] for one in of_parent if one.get("sequence-number"))
        ranks = {int(one): -at for at, one in enumerate(numbered)}
    by_snapshot: dict[int, list[Passed]] = {}
    for one in results:
        if one.parent in ranks:
            by_snapshot.setdefault(one.snapshot, []).append(one)
    for snapshot in ancestors if by_snapshot else ():
        found = by_snapshot.get(int(snapshot["snapshot-id"]))
        if found and snapshot.get("sequence-number"):
            return max(found, key=lambda one: (ranks[one.parent], one.whole_at, -one.since))
    return None


def is_due(base: Passed, now: datetime, days: float, audits: int) -> bool:
    """Return whether all rows are to be audited again.

    Args:
        days: The most days since all rows were audited.
        audits: The most audits of added rows since then.
    """
    age = (now - base.whole_at).total_seconds()
    return base.since >= audits or not 0 <= age < days * 86_400


def added_files(before: StateFiles, after: StateFiles) -> list[DataFile] | None:
    """Return the data files that hold all rows of ``after`` that ``before`` did not have.

    A file that is listed once more is an added one, too.

    Args:
        before: The files of a state; its table has format version 2 or higher, in which files have
            sequence numbers.
        after: The files of a state that grew from it.

    Returns:
        The files; None if a deleted row may be back, because deletes of a kept file are gone.
    """
    old, new = Counter(before.data), Counter(after.data)
    removed = {file.path for file in old} - {file.path for file in new}
    gone = {one for one in set(before.deletes) - set(after.deletes) if one.target not in removed}
    # Only a deletion vector has all rows that its predecessors have.
    vectors = {one.target for one in after.deletes if one.offset is not None}
    if any(one.equality or one.target is None or one.target not in vectors for one in gone):
        return None
    deleted, before_that = _deleted(after.deletes), _deleted(before.deletes)
    if any(deleted[target] < before_that[target] for target in before_that.keys() - removed):
        return None
    return list(new - old)


def lost_files(before: StateFiles, after: StateFiles) -> list[DataFile] | None:
    """Return the data files of ``before`` that hold all rows that ``after`` does not have.

    Args:
        before: All files of a state.
        after: All files of a state that grew from it.

    Returns:
        The files; None if new deletes may apply to any file.
    """
    deletes = Counter(after.deletes) - Counter(before.deletes)
    if any(one.equality or one.target is None for one in deletes):
        return None
    targets = {one.target for one in deletes}
    gone = Counter(before.data) - Counter(after.data)
    return [file for file in set(before.data) if file in gone or file.path in targets]


def key_range(
    key: str, document: md.Document, bounds: Callable[[int], Sequence[tuple[bytes, bytes]] | None]
) -> tuple[int, int] | None:
    """Return the least and the greatest key in some files; None if they are not known.

    Iceberg has a lower and an upper bound of each column in each file. Those of texts are not used:
    the server's logs would have values of the data. Those of a column of an identity partition are
    not, either: Iceberg reads it from the partition, which a file from elsewhere may contradict.

    Args:
        key: The column, as a query names it.
        bounds: Returns the bounds of a column in each of the files, by its field id.
    """
    name = "".join(one.value for one in tokens(key)).lower()
    fields = [one for one in current_schema(document)["fields"] if one["name"].lower() == name]
    if len(fields) != 1 or fields[0]["type"] not in ("int", "long"):
        return None
    found = fields[0]["id"]
    encoded = None if found in _identities(document) else bounds(found)
    if not encoded:
        return None
    lows, highs = zip(*encoded, strict=True)
    return min(map(_integer, lows)), max(map(_integer, highs))


def _identities(document: md.Document) -> set[int]:
    fields = [one for spec in document.get("partition-specs", ()) for one in spec["fields"]]
    return {one["source-id"] for one in fields if one["transform"] == "identity"}


def _integer(encoded: bytes) -> int:
    return int.from_bytes(encoded, "little", signed=True)


def _deleted(deletes: Iterable[DeleteFile]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in deletes:
        if one.target is not None and not one.equality:
            found[one.target] += one.rows
    return found
