"""The statements that remove a subject from a table on an audit branch, and their audit. Pure.

The audit compares the rows of the branch with the expected rows, which are a query over `main`: the
number of rows and the sum of their hashes must be equal. This one check shows that all found rows
of the subject are deleted and that no other row has changed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkwap.catalog.model import Identifier
from sparkwap.core.personal import ERASED_FILE
from sparkwap.core.sqltext import fingerprint, quote
from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.subject_tables import FILE_ROWS

ORDER = ("_sequence", "_file_path", "_row", "_part")
"""The columns of a raw log that order its events."""


@dataclass(frozen=True)
class Update:
    """New values of columns, as SQL expressions, for the rows of a condition."""

    where: str
    sets: Mapping[str, str]


@dataclass(frozen=True)
class Rewrite:
    """The rewrite that removes the subject from a table.

    Attributes:
        columns: All of its columns.
        delete: The condition of the rows to delete; ``false`` for none.
        updates: The changes in other rows.
        whole: Rewrite the whole table. If delete files hide rows, the data files with these rows
            would stay otherwise.
        settle: Add an empty commit after the rewrite of the whole table. With it, Spark drops the
            manifests that name only removed files. It is needed if sparkwap cannot write manifests
            of the table's format version.
    """

    identifier: Identifier
    columns: Sequence[str]
    delete: str = "false"
    updates: Sequence[Update] = ()
    whole: bool = False
    settle: bool = False

    @property
    def main(self) -> str:
        """The table as readers see it, in SQL."""
        return f"{_table(self.identifier)} version as of 'main'"

    def count(self) -> str:
        """Return the query for the numbers of all rows, deleted rows and changed rows."""
        changes = " or ".join(update.where for update in self.updates) or "false"
        return (
            f"select count(*), count_if({self.delete}), "
            f"count_if(not {self.delete} and ({changes})) from {self.main}"
        )

    def returning(self, key: Sequence[str]) -> str:
        """Return the query for the number of keys of a raw log whose last row is deleted alone.

        Their older rows, of others, would be the last ones then.
        """
        last = f"max_by({self.delete}, struct({', '.join(ORDER)}))"
        return (
            f"select count(*) from (select 1 from {self.main} where _kind = 'row' "
            f"group by {', '.join(map(quote, key))} having {last} and not bool_and({self.delete}))"
        )

    def statements(self, branch: str) -> list[str]:
        """Return the statements to run, in order."""
        target = _table((*self.identifier, f"branch_{branch}"))
        if self.whole:
            overwrite = f"insert overwrite table {target} {self._expected()}"
            empty = f"insert into {target} select * from {self.main} where false"
            return [overwrite, empty] if self.settle else [overwrite]
        found = [] if self.delete == "false" else [f"delete from {target} where {self.delete}"]
        for update in self.updates:
            sets = ", ".join(f"{quote(name)} = {value}" for name, value in update.sets.items())
            found.append(f"update {target} set {sets} where {update.where}")
        return found

    def audit(self, branch: str) -> tuple[str, str]:
        """Return two queries that must have the same result: expected rows and actual rows."""
        listed = ", ".join(map(quote, self.columns))
        actual = f"select {listed} from {_table(self.identifier)} version as of '{branch}'"
        return fingerprint(self._expected(), self.columns), fingerprint(actual, self.columns)

    def _expected(self) -> str:
        columns = [self._value(name) for name in self.columns]
        return f"select {', '.join(columns)} from {self.main} where not {self.delete}"

    def _value(self, name: str) -> str:
        value = quote(name)
        for update in self.updates:
            if name in update.sets:
                value = f"if({update.where}, {update.sets[name]}, {value})"
        return value if value == quote(name) else f"{value} as {quote(name)}"


def _table(parts: Sequence[str]) -> str:
    return ".".join(map(quote, parts))


def literal(value: Any, kind: str) -> str:
    """Return SQL for a value of a column's type; the value is encoded, not in plain text."""
    if value is None:
        return f"cast(null as {kind})"
    encoded = base64.b64encode(str(value).encode()).decode()
    return f"cast(cast(unbase64('{encoded}') as string) as {kind})"


def cleared(columns: Sequence[str], types: Mapping[str, str]) -> dict[str, str]:
    """Return null for each column."""
    return {name: literal(None, types[name]) for name in columns}


# -- raw logs ------------------------------------------------------------------------------------


def rows_gone(main: str, delete: str) -> str:
    """Return the query for landing files of a raw log, with the numbers of deleted file rows.

    A message that changes a key is two rows of the log; it counts if both are deleted.
    """
    return (
        "select _file_path, count(*) from ("
        f"select _file_path, _row, bool_and({delete}) as gone from {main} "
        "where _kind <> 'file' group by _file_path, _row) where gone group by _file_path"
    )


def fewer_rows(conditions: Conditions, gone: Mapping[str, int], types: Mapping[str, str]) -> Update:
    """Return the update of the files in the log, after rows of them are deleted.

    They have fewer rows, and a mark in the digest, since their owner may take the rows out of them.
    """
    by_digest = {conditions.digest(path): count for path, count in gone.items()}
    cases = " ".join(f"when '{digest}' then {n}" for digest, n in sorted(by_digest.items()))
    where = f"(coalesce(_kind = 'file', false) and {conditions.is_in('_file_path', gone)})"
    less = f"case {conditions.hashed('_file_path')} {cases} else 0 end"
    # An earlier erasure may have marked it.
    digest = f"concat('{ERASED_FILE}', substr(`_file_sha256`, -64))"
    sets = {FILE_ROWS: f"{quote(FILE_ROWS)} - {less}", "_file_sha256": digest}
    return Update(where, {name: value for name, value in sets.items() if name in types})
