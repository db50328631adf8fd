"""Decides from which files a test that has passed before can be answered again. Pure.

A test of single rows that has passed on a state passes on a later state if no added row fails it.
`unique` passes if no key of an added row occurs twice. A later state is one that grew from the
earlier one: a data file never changes, and its deletes only become more. So only rows of data files
that the earlier state did not have can be new.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sparkwap.catalog import metadata as md
from sparkwap.catalog.file_plan import DeleteFile, StateFiles
from sparkwap.catalog.sparksql import current_schema
from sparkwap.core.sqllex import Token, tokens

_FUNCTIONS = frozenset(
    """
    abs ceil ceiling floor round sign mod pmod power sqrt exp greatest least coalesce nullif ifnull
    nvl nvl2 if isnull isnotnull isnan length char_length character_length octet_length lower upper
    trim ltrim rtrim btrim substring substr left right concat concat_ws replace startswith endswith
    contains instr locate position regexp regexp_like rlike split size cardinality array_contains
    element_at year quarter month day dayofmonth dayofweek hour minute second date_trunc trunc
    datediff date_add date_sub add_months last_day cast try_cast decimal varchar char numeric
    like in and or not
    """.split()  # noqa: SIM905 - a page of one word a line
)
"""Functions of Spark whose result follows from their arguments, and types with a size."""
_METADATA_COLUMNS = (
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated"
)  # fmt: skip
"""Columns of Iceberg that are not in the rows; names that begin like them are taken for them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a shared statement has answered a test.

    Attributes:
        how: ``alone``: by a statement of its own; ``shared``: from all rows; ``incremental``: from
            the rows that were added since it passed.
        basis: See `basis`; None if no later answer can build on this one.
        whole_at: When all rows of the table were last audited.
        since: The audits of added rows alone since then.
        snapshot: The snapshot that the statement has read.
        location: The metadata file of the table that it has read.
    """

    how: Literal["alone", "shared", "incremental"] = "shared"
    basis: str | None = None
    whole_at: datetime | None = None
    since: int = 0
    snapshot: int | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """An earlier result of a test: its query had no row.

    Attributes:
        snapshot: The snapshot that it read.
        whole_at: When all rows of the table were last audited.
        since: The audits of added rows alone since then.
    """

    snapshot: int
    whole_at: datetime
    since: int


def passed(rows: Iterable[Mapping[str, Any]], basis: str) -> list[Passed]:
    """Return the earlier results of a test that a later answer can build on.

    Args:
        rows: The test's rows in the ledger's ``tests``.
        basis: See `basis`.
    """
    found = []
    for row in rows:
        clean = row["status"] == "pass" and row["failures"] == 0
        if clean and row["basis"] == basis and row["whole_at"] and row["snapshot"] is not None:
            found.append(Passed(row["snapshot"], row["whole_at"], int(row["increments"] or 0)))
    return found


def basis(query: str, document: md.Document, session: Iterable[Sequence[Any]]) -> str:
    """Return a digest of all that the answer follows from, besides the rows.

    Args:
        query: The compiled query.
        document: The table's metadata; its columns count, and how files without ids are read.
        session: The settings of the session, the versions, the time zone, the user.
    """
    mapping = md.properties_of(document).get("schema.name-mapping.default")
    fields = current_schema(document).get("fields")
    known = [query, fields, mapping, sorted(map(list, session))]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def latest(results: Iterable[Passed], document: md.Document, head: int | None) -> Passed | None:
    """Return the newest earlier result from which the state ``head`` grew; None if there is none.

    Args:
        results: Earlier results with the same `basis`.
        document: The table's metadata.
        head: The snapshot to audit.
    """
    by_snapshot: dict[int, list[Passed]] = {}
    for one in results:
        by_snapshot.setdefault(one.snapshot, []).append(one)
    for snapshot in md.ancestors(document, head):
        if found := by_snapshot.get(int(snapshot["snapshot-id"])):
            return max(found, key=lambda one: (one.whole_at, -one.since))
    return None


def is_due(base: Passed, now: datetime, days: float, audits: int) -> bool:
    """Return whether all rows are to be audited again.

    Args:
        base: The result that an audit of the added rows would build on.
        now: The present time.
        days: The most days since all rows were audited.
        audits: The most audits of added rows since then.
    """
    return base.since >= audits or now - base.whole_at >= timedelta(days=days)


def added_files(before: StateFiles, after: StateFiles) -> frozenset[str] | None:
    """Return the data files that hold all rows of ``after`` that ``before`` did not have.

    Args:
        before: The files of a state.
        after: The files of a state that grew from it.

    Returns:
        The paths; None if a deleted row may be back, because deletes of a kept file are gone.
    """
    old, new = set(before.data), set(after.data)
    removed = {file.path for file in old - new}
    gone = {one for one in set(before.deletes) - set(after.deletes) if one.target not in removed}
    # Only a deletion vector has all rows that its predecessors have.
    vectors = {one.target for one in after.deletes if one.offset is not None}
    if any(one.equality or one.target is None or one.target not in vectors for one in gone):
        return None
    deleted, before_that = _deleted(after.deletes), _deleted(before.deletes)
    if any(deleted[target] < before_that[target] for target in before_that.keys() - removed):
        return None
    return frozenset(file.path for file in new - old)


def key_range(
    key: str, document: md.Document, bounds: Callable[[int], Sequence[tuple[bytes, bytes]] | None]
) -> str | None:
    """Return a condition that each key in some files fulfils; None if none is known.

    Iceberg has a lower and an upper bound of each column in each file. Those of texts are not used:
    the server's logs would have values of the data.

    Args:
        key: The column, as a query names it.
        document: The table's metadata.
        bounds: Returns the bounds of a column in each of the files, by its field id.
    """
    name = "".join(one.value for one in tokens(key)).lower()
    fields = [one for one in current_schema(document)["fields"] if one["name"].lower() == name]
    if len(fields) != 1 or fields[0]["type"] not in ("int", "long"):
        return None
    encoded = bounds(fields[0]["id"])
    if not encoded:
        return None
    lows, highs = zip(*encoded, strict=True)
    return f"{key} between {min(map(_integer, lows))} and {max(map(_integer, highs))}"


def _integer(encoded: bytes) -> int:
    return int.from_bytes(encoded, "little", signed=True)


def _deleted(deletes: Iterable[DeleteFile]) -> Counter[str]:
    """Return the number of deleted rows by data file."""
    found: Counter[str] = Counter()
    for one in deletes:
        if one.target is not None and not one.equality:
            found[one.target] += one.rows
    return found


def follows_from_the_row(condition: Sequence[Token]) -> bool:
    """Return whether the truth of a condition follows from the values of a row alone.

    Only known functions are allowed: any other one may be the project's own. Names with dots are
    not, because what they mean depends on the name of the table.
    """
    for before, token, after in zip(
        [None, *condition], condition, [*condition[1:], None], strict=False
    ):
        called = after is not None and after.text == "("
        if token.kind == "string" and token.text.startswith('"'):
            return False
        if token.text == "." and before is not None and not before.text.isdecimal():
            return False
        if not token.is_name:
            continue
        word = token.value.lower()
        if word == "user" or word.startswith(_METADATA_COLUMNS):
            return False
        if called and (token.kind == "quoted" or word not in _FUNCTIONS):
            return False
    return True
