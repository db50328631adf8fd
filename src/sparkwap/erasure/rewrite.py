"""The statements that take a subject out of a table on an audit branch, and their audit. Pure.

The audit is one comparison: what the branch holds, and what it must hold by one query over `main`,
as the number of rows and the sum of their hashes. That the subject's rows went, that as many went
as were found, and that no other row changed are one and the same check.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkwap.catalog.model import Identifier
from sparkwap.core.sqltext import quote
from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.subject_tables import FILE_ROWS


@dataclass(frozen=True)
class Update:
    """Give columns new values, as SQL expressions, where a condition holds."""

    where: str
    sets: Mapping[str, str]


@dataclass(frozen=True)
class Rewrite:
    """How a table loses the subject.

    Attributes:
        identifier: The table.
        columns: All of its columns.
        delete: Which rows go; ``false`` for none.
        updates: What changes in the rows that stay.
        whole: Write the whole table anew: where delete files hide rows, files that keep them
            would stay.
        settle: Let Spark drop the manifests that name removed files, as they cannot be written
            here: those of a table that is written anew name nothing else, and go with the next
            commit, which adds no row.
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
        """The query for the number of rows, of those that go, and of those that change."""
        changes = " or ".join(update.where for update in self.updates) or "false"
        return (
            f"select count(*), count_if({self.delete}), "
            f"count_if(not {self.delete} and ({changes})) from {self.main}"
        )

    def statements(self, branch: str) -> list[str]:
        """What to run, in order."""
        target = _table((*self.identifier, f"branch_{branch}"))
        if self.whole:
            anew = f"insert overwrite table {target} {self._expected()}"
            nothing = f"insert into {target} select * from {self.main} where false"
            return [anew, nothing] if self.settle else [anew]
        found = [] if self.delete == "false" else [f"delete from {target} where {self.delete}"]
        for update in self.updates:
            sets = ", ".join(f"{quote(name)} = {value}" for name, value in update.sets.items())
            found.append(f"update {target} set {sets} where {update.where}")
        return found

    def audit(self, branch: str) -> tuple[str, str]:
        """Two queries that must give the same: what must be there, and what is."""
        listed = ", ".join(map(quote, self.columns))
        is_there = f"select {listed} from {_table(self.identifier)} version as of '{branch}'"
        return _fingerprint(self._expected(), self.columns), _fingerprint(is_there, self.columns)

    def _expected(self) -> str:
        columns = [self._value(name) for name in self.columns]
        return f"select {', '.join(columns)} from {self.main} where not {self.delete}"

    def _value(self, name: str) -> str:
        value = quote(name)
        for update in self.updates:
            if name in update.sets:
                value = f"if({update.where}, {update.sets[name]}, {value})"
        return value if value == quote(name) else f"{value} as {quote(name)}"


def _fingerprint(query: str, columns: Sequence[str]) -> str:
    row = ", ".join(map(quote, columns))
    # As JSON, since Spark hashes no maps; nulls are named, so that they are not just left out.
    text = f"to_json(struct({row}), map('ignoreNullFields', 'false'))"
    return (
        "select count(*), coalesce(sum(cast(h as decimal(38, 0))), 0), coalesce(bit_xor(h), 0) "
        f"from (select xxhash64({text}) as h from ({query}))"
    )


def _table(parts: Sequence[str]) -> str:
    return ".".join(map(quote, parts))


def literal(value: Any, kind: str) -> str:
    """A value as SQL of a column's type, without the value in clear in the statement."""
    if value is None:
        return f"cast(null as {kind})"
    encoded = base64.b64encode(str(value).encode()).decode()
    return f"cast(cast(unbase64('{encoded}') as string) as {kind})"


def cleared(columns: Sequence[str], types: Mapping[str, str]) -> dict[str, str]:
    """The columns emptied."""
    return {name: literal(None, types[name]) for name in columns}


# -- raw logs ------------------------------------------------------------------------------------


def rows_gone(main: str, delete: str) -> str:
    """The query for each landing file of a raw log and the number of its rows that go wholly.

    A message that changes a key is two rows of the log; the file has lost it when both are gone.
    """
    return (
        "select _file_path, count(*) from ("
        f"select _file_path, _row, bool_and({delete}) as gone from {main} "
        "where _kind <> 'file' group by _file_path, _row) where gone group by _file_path"
    )


def fewer_rows(conditions: Conditions, gone: Mapping[str, int]) -> Update:
    """Let the log's rows of files say how many rows are left, so that counts add up."""
    by_digest = {conditions.digest(path): count for path, count in gone.items()}
    cases = " ".join(f"when '{digest}' then {n}" for digest, n in sorted(by_digest.items()))
    where = f"(coalesce(_kind = 'file', false) and {conditions.is_in('_file_path', gone)})"
    less = f"case {conditions.hashed('_file_path')} {cases} else 0 end"
    return Update(where, {FILE_ROWS: f"{quote(FILE_ROWS)} - {less}"})
