"""Tests that one aggregate query can prove for all tests of a table: a shared scan.

A test passes if its query returns no row. For three shapes of queries an aggregate proves it:

- rows by a condition (`not_null`): the number of these rows is 0;
- keys that occur twice (`unique`): there are as many rows as distinct keys;
- groups by a condition on their key (`accepted_values`): no row has such a key.

The rows of a left join without a match (`relationships`) are counted beside these. The shape is
read from the compiled SQL, never from the name of a test. `read` understands a query only if it
understands each token; it returns None for any other query, and the test runs alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparkwap.core.sqllex import Token, tokens


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FUNCTIONS = _words(
    "abs cast ceil ceiling coalesce concat contains date day dayofmonth endswith exp floor greatest"
    " if ifnull instr isnan isnotnull isnull least left len length ln lower ltrim mod month nullif"
    " nvl nvl2 pow power quarter regexp regexp_like replace right round rtrim sign size split sqrt"
    " startswith substr substring to_date trim try_cast upper year decimal varchar char"
)
"""Functions and types with arguments that have one value for one row."""
_OPERATORS = _words("and or not in between like rlike when then")
"""Keywords that a bracket may follow."""
_WORDS = _OPERATORS | _words("is null true false case else end as escape")
"""Words of conditions that are no names."""
_REFUSED = _words(
    "select from where group having order limit offset join union except intersect minus window"
    " over lateral cluster distribute sort qualify pivot unpivot tablesample exists any some all"
    " with current_date current_time current_timestamp localtimestamp current_user user"
    " session_user current_catalog current_schema current_database"
    " values table _file _pos _partition _spec_id _deleted _row_id _last_updated_sequence_number"
)
"""Words that no condition may have: subqueries, other clauses, and values that change."""
_JOINS = _words("anti cross full inner left natural on right semi using")
_MOMENTS = _words("date timestamp timestamp_ltz timestamp_ntz")
_NAME = r"(?:\w+|`[^`]+`)"
_RELATION = rf"{_NAME}(?: \. {_NAME})*"
_RELATIONSHIPS = re.compile(
    rf"with child as \( select (?P<key>{_NAME}) as from_field from (?P<child>{_RELATION}) "
    r"where (?P=key) is not null \) , "
    rf"parent as \( select {_NAME} as to_field from (?P<parent>{_RELATION}) \) "
    r"select from_field from child left join parent on child \. from_field = parent \. to_field "
    r"where parent \. to_field is null",
    re.IGNORECASE,
)
_SYMBOLS = frozenset("()+-*/%=<>!,.|&^~")


@dataclass(frozen=True, slots=True)
class Proof:
    """The parts of an aggregate that proves that a test's query returns no row.

    Attributes:
        relation: The table or view that the query reads, with its alias, as written.
        conditions: The conditions of the rows that count; all of them hold.
        keys: The columns in which no two rows may have the same values; empty if no row may fulfil
            the conditions.
        columns: Other columns that the query names; they have to exist.
        names: The parts of the name of each table or view that the query reads.
    """

    relation: str
    conditions: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    names: tuple[tuple[str, ...], ...] = ()

    def aggregate(self) -> str:
        """Return an aggregate over the relation that is 0 exactly if the query returns no row."""
        if not self.keys:
            return f"count({self._where('1')})"
        key = f"struct({', '.join(self.keys)})"
        # Only types that can be grouped have a greatest value: maps would be compared as written.
        sortable = f"if(max({key}) is null, 0, 0)"
        return f"count({self._where('1')}) - count(distinct {self._where(key)}) + {sortable}"

    def _where(self, value: str) -> str:
        """Return an expression: a value for rows that fulfil all conditions, null for others.

        Like a filter, `if` takes no condition that would have to be cast to a boolean.
        """
        exist = (f"({one}) is null or ({one}) is not null" for one in self.columns)
        for condition in reversed([*self.conditions, *exist]):
            value = f"if({condition}, {value}, null)"
        return value


def statement(proofs: Sequence[Proof]) -> str:
    """Return one query for proofs of any number of relations.

    Args:
        proofs: The proofs.

    Returns:
        SQL whose rows are `at`, the index of a proof, and `found`, which is 0 where the test's own
        query returns no row.
    """
    relations: dict[str, list[int]] = {}
    for at, proof in enumerate(proofs):
        relations.setdefault(proof.relation, []).append(at)
    parts = []
    for relation, members in relations.items():
        pairs = ", ".join(
            f"struct({at} as at, {proofs[at].aggregate()} as found)" for at in members
        )
        parts.append(f"select inline(array({pairs})) from {relation}")
    return "\nunion all\n".join(parts)


def read(sql: str) -> Proof | None:
    """Return the proof that a query returns no row; None if its shape is not understood."""
    found = tuple(tokens(sql))
    # Double quotes are those of a name where a session says so.
    if not found or any(one.kind == "unclosed" or one.text[0] == '"' for one in found):
        return None
    related = _RELATIONSHIPS.fullmatch(" ".join(token.text for token in found))
    if related:
        names = tuple(
            tuple(part.value for part in tokens(related[one]) if part.is_name)
            for one in ("child", "parent")
        )
        return Proof(f"(\n{sql}\n) as audited", names=names)
    try:
        return _Reader(sql, found).whole().proof()
    except _NotUnderstood:
        return None


class _NotUnderstood(Exception):
    """The query has another shape."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a relation that fulfil conditions, or groups of them.

    Attributes:
        relation: The relation, with its alias, as written.
        name: The parts of its name.
        conditions: The conditions.
        columns: The columns that a select has named.
        star: Whether all columns of the relation can be named.
        closed: Whether columns of the groups were selected, so that no condition may follow.
        keys: The columns of groups, by their names outside of the query.
        twice: Whether only groups of more than one row count.
    """

    relation: str
    name: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    star: bool = True
    closed: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)
    twice: bool = False

    def proof(self) -> Proof:
        keys = tuple(self.keys.values()) if self.twice else ()
        return Proof(self.relation, self.conditions, keys, self.columns, (self.name,))


class _Reader:
    """Reads one query by recursive descent."""

    def __init__(self, sql: str, found: Sequence[Token]) -> None:
        self._sql = sql
        self._tokens = found
        self._at = 0
        self._queries: dict[str, _Rows] = {}
        self._defined: set[str] = set()

    # -- tokens ----------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _is(self, *texts: str) -> bool:
        """Return whether these tokens come next; keywords in lower case."""
        following = self._tokens[self._at : self._at + len(texts)]
        return len(following) == len(texts) and all(
            token.kind in ("word", "symbol") and token.text.lower() == text
            for token, text in zip(following, texts, strict=True)
        )

    def _take(self, *texts: str) -> bool:
        if self._is(*texts):
            self._at += len(texts)
            return True
        return False

    def _need(self, *texts: str) -> None:
        if not self._take(*texts):
            raise _NotUnderstood

    def _name(self) -> Token:
        token = self._peek()
        if token is None or not token.is_name or token.text[0].isdigit():
            raise _NotUnderstood
        if token.kind == "word" and token.text.lower() in _REFUSED | _WORDS:
            raise _NotUnderstood
        self._at += 1
        return token

    def _text(self, start: int) -> str:
        """Return the text from a token up to the present one."""
        return self._sql[self._tokens[start].start : self._tokens[self._at - 1].end]

    # -- queries ---------------------------------------------------------------------------------

    def whole(self) -> _Rows:
        if self._take("with"):
            while True:
                name = self._name().value
                if name.lower() in self._defined:
                    raise _NotUnderstood
                self._need("as", "(")
                rows = self._select()
                self._need(")")
                self._defined.add(name.lower())
                self._queries[name] = rows
                if not self._take(","):
                    break
        rows = self._select()
        if self._peek() is not None or self._queries:
            raise _NotUnderstood
        return rows

    def _select(self) -> _Rows:
        self._need("select")
        columns = self._columns()
        self._need("from")
        rows = self._source()
        if self._take("where"):
            rows = _filtered(rows, self._expression(("group", "having")))
        if self._take("group", "by"):
            return self._grouped(columns, rows)
        if columns is None:
            return rows
        named = [text for text, _ in columns if not _is_literal(text)]
        # An aggregate without `group by` returns a row of no rows.
        if "count(*)" in named or any("." in one for one in named):
            raise _NotUnderstood
        if rows.keys:
            if not {text.strip("`") for text, _ in columns} <= set(rows.keys):
                raise _NotUnderstood
            return replace(rows, closed=True)
        if not rows.star:
            raise _NotUnderstood
        return replace(rows, columns=(*rows.columns, *named), star=False)

    def _columns(self) -> list[tuple[str, str]] | None:
        """Return the columns of a select, each with its name; None for `*`."""
        if self._take("*"):
            return None
        found = []
        while True:
            start = self._at
            if self._take("count", "(", "*", ")"):
                text = "count(*)"
            elif (token := self._peek()) is not None and (
                token.kind == "string" or token.text.isdecimal()
            ):
                self._at += 1
                text = token.text
            else:
                self._column()
                text = self._text(start)
            name = self._name().value if self._take("as") else text.rpartition(".")[2].strip("`")
            found.append((text, name))
            if not self._take(","):
                return found

    def _column(self) -> None:
        self._name()
        while self._take("."):
            self._name()

    def _source(self) -> _Rows:
        if self._take("("):
            rows = self._select()
            self._need(")")
            self._alias()
            return rows
        start = self._at
        self._column()
        if self._at == start + 1:
            # Each part of the query has one reader: one that has none might not even be valid.
            alone = self._tokens[start].value
            known = self._queries.pop(alone, None)
            if known is not None:
                self._alias()
                return known
            if alone.lower() in self._defined:
                raise _NotUnderstood
        name = tuple(part.value for part in self._tokens[start : self._at] if part.is_name)
        self._alias()
        return _Rows(self._text(start), name)

    def _alias(self) -> None:
        """Skip an alias, if there is one."""
        token = self._peek()
        if self._take("as"):
            self._name()
        elif token is not None and token.is_name and not token.is_word("where", "group", "having"):
            if token.is_word(*_JOINS):
                raise _NotUnderstood
            self._name()

    def _expression(self, ends: Sequence[str]) -> str:
        """Return an expression with one value per row, up to one of these keywords or the end."""
        start, depth = self._at, 0
        while (token := self._peek()) is not None:
            if token.kind == "word" and depth == 0 and token.text.lower() in ends:
                break
            if token.text == ")" and token.kind == "symbol" and depth == 0:
                break
            following = self._peek(1)
            opens = following is not None and following.text == "(" and token.kind != "symbol"
            lower = token.text.lower()
            if token.kind == "word" and lower in _REFUSED:
                raise _NotUnderstood
            if opens and (token.kind != "word" or lower not in _FUNCTIONS | _OPERATORS):
                raise _NotUnderstood
            literal = following is not None and following.kind == "string" and following.value
            if lower in _MOMENTS and literal and not literal[:1].isdigit():
                # `date 'today'` is another day tomorrow.
                raise _NotUnderstood
            if token.kind == "symbol":
                if token.text not in _SYMBOLS:
                    raise _NotUnderstood
                depth += (token.text == "(") - (token.text == ")")
            self._at += 1
        if depth or self._at == start:
            raise _NotUnderstood
        return self._text(start)

    def _grouped(self, columns: list[tuple[str, str]] | None, rows: _Rows) -> _Rows:
        if columns is None or not rows.star:
            raise _NotUnderstood
        keys = []
        while True:
            start = self._at
            self._column()
            keys.append(self._text(start))
            if not self._take(","):
                break
        names = {name: text for text, name in columns if text != "count(*)"}
        outside = {name.lower() for _, name in columns}
        if len(outside) < len(columns) or sorted(names.values()) != sorted(keys):
            raise _NotUnderstood
        if any("." in key for key in keys):
            raise _NotUnderstood
        twice = self._take("having")
        if twice:
            self._need("count", "(", "*", ")", ">", "1")
        return replace(rows, keys=names, twice=twice, star=False)


def _filtered(rows: _Rows, condition: str) -> _Rows:
    if rows.keys:
        return _filtered_groups(rows, condition)
    if not rows.star or _has_dots(condition):
        raise _NotUnderstood
    return replace(rows, conditions=(*rows.conditions, condition))


def _filtered_groups(rows: _Rows, condition: str) -> _Rows:
    """Return groups under a condition on their keys: without such a row, there is no group."""
    if rows.twice or rows.closed or _has_dots(condition):
        raise _NotUnderstood
    parts: list[str] = []
    end = 0
    found = list(tokens(condition))
    for at, token in enumerate(found):
        is_function = at + 1 < len(found) and found[at + 1].text == "("
        if token.is_name and not is_function and token.value in rows.keys:
            parts += [condition[end : token.start], f"({rows.keys[token.value]})"]
            end = token.end
        elif token.kind == "quoted" or (
            token.kind == "word"
            and not is_function
            and not token.text[0].isdigit()
            and token.text.lower() not in _WORDS
        ):
            # The number of rows of a group, or a column that is no key.
            raise _NotUnderstood
    text = "".join(parts) + condition[end:]
    return replace(rows, conditions=(*rows.conditions, text), keys={})


def _has_dots(condition: str) -> bool:
    """Return whether a condition names a column by its table, or a field."""
    found = list(tokens(condition))
    return any(
        token.text == "." and not (at and found[at - 1].text.isdecimal())
        for at, token in enumerate(found)
    )


def _is_literal(text: str) -> bool:
    return text[0] == "'" or text.isdecimal()
