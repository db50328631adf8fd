"""The forms of tests whose answer follows from an earlier one and from what has changed. Pure.

A form is recognised by the compiled SQL of a test, never by its name: a project may override the
test. A name in another case than before may be another column, or a variable.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sparkwap.audits.row_condition import follows_from_the_row
from sparkwap.core.sqllex import Token, tokens

_NAME = r"(?:\w+|`[^`]+`)"
_TABLE = rf"{_NAME}(?: \. {_NAME})+"
_RELATION = rf"(?P<relation>{_TABLE})"
_KEYS = rf"(?P<keys>{_NAME}(?: , {_NAME})*)"
_CURRENT = rf"(?P<end>{_NAME}) is null or cast \( (?-i:(?P=end)) as string \) > = '9999-12-31'"
_ENDED = (
    rf"if \( cast \( (?P<end>{_NAME}) as string \) < '9999-12-31' , "
    r"(?P<ended>(?-i:(?P=end))|date_add \( (?-i:(?P=end)) , 1 \)) , null \)"
)
_VERSIONS = (
    rf"with versions as \( select {_KEYS} , (?P<start>{_NAME}) , {_ENDED} as ended , "
    r"lead \( (?-i:(?P=start)) \) over \( partition by (?-i:(?P=keys)) "
    r"order by (?-i:(?P=start)) , (?-i:(?P=end)) "
    rf"nulls last \) as next_valid_from from {_RELATION} \) select \* from versions where "
)
_ROWS = re.compile(
    rf"select (?:\*|1|(?P<selected>{_NAME})) from {_RELATION} where (?P<condition>.+)",
    re.IGNORECASE,
)
_UNIQUE = re.compile(
    rf"select (?P<keys>{_NAME}) as unique_field , count \( \* \) as n_records from {_RELATION} "
    r"where (?-i:(?P=keys)) is not null group by (?-i:(?P=keys)) having count \( \* \) > 1",
    re.IGNORECASE,
)
_ACCEPTED = re.compile(
    rf"with all_values as \( select (?P<key>{_NAME}) as value_field , count \( \* \) as n_records "
    rf"from {_RELATION} group by (?-i:(?P=key)) \) select \* from all_values "
    r"where value_field not in \( (?P<values>.+) \)",
    re.IGNORECASE,
)
_COMBINATION = re.compile(
    rf"with validation_errors as \( select {_KEYS} from {_RELATION} group by (?-i:(?P=keys)) "
    r"having count \( \* \) > 1 \) select \* from validation_errors",
    re.IGNORECASE,
)
_ONE_CURRENT = re.compile(
    rf"select {_KEYS} , count \( \* \) as current_versions from {_RELATION} where {_CURRENT} "
    r"group by (?-i:(?P=keys)) having count \( \* \) > 1",
    re.IGNORECASE,
)
_NO_OVERLAP = re.compile(
    _VERSIONS + r"next_valid_from is not null and \( ended is null or next_valid_from < ended \)",
    re.IGNORECASE,
)
_IN_ORDER = re.compile(
    rf"select \* from {_RELATION} where "
    rf"(?P<condition>(?P<start>{_NAME}) is null or {_ENDED} < = (?-i:(?P=start)))",
    re.IGNORECASE,
)
_NO_GAP = re.compile(_VERSIONS + r"next_valid_from > ended", re.IGNORECASE)
_RELATIONSHIPS = re.compile(
    rf"with child as \( select (?P<keys>{_NAME}) as from_field from {_RELATION} "
    rf"where (?-i:(?P=keys)) is not null \) , parent as \( select (?P<field>{_NAME}) as to_field "
    rf"from (?P<parent>{_TABLE}) \) select from_field from child left join parent "
    r"on child \. from_field = parent \. to_field where parent \. to_field is null",
    re.IGNORECASE,
)
"""The queries of dbt's generic tests, of dbt_utils' and of sparkwap's, their tokens with blanks
between them."""
_CLAUSES = frozenset(
    {
        "select", "from", "group", "having", "order", "sort", "cluster", "distribute", "limit",
        "offset", "window", "over", "union", "except", "intersect", "minus", "lateral", "join",
        "qualify", "tablesample", "pivot", "unpivot", "with", "values", "table", "|", ";", "/*+",
    }
)  # fmt: skip
"""What a condition of single rows has not."""


@dataclass(frozen=True, slots=True)
class Form:
    """A query of a known form.

    Attributes:
        relation: The table, as the query names it.
        span: Where in the query its name begins and ends.
        conditions: The tokens of what each row is asked for: a condition, or a column.
        count: An aggregate over all rows of the table; 0 if and only if the query has no row. None
            if the query is counted by itself.
        keys: The columns of a query that looks at the rows of each key apart; empty for others.
        has_null: Whether rows with NULL in a key belong to a key too.
        by_loss: Whether a key may fail because rows of it are gone.
        parent: Of a query for the keys that another table lacks, that table.
        field: The column of the parent.
    """

    query: str
    relation: str
    span: tuple[int, int]
    conditions: tuple[tuple[Token, ...], ...]
    count: str | None = None
    keys: tuple[str, ...] = ()
    has_null: bool = False
    by_loss: bool = False
    parent: str | None = None
    field: str | None = None

    @property
    def tables(self) -> tuple[tuple[str, ...], ...]:
        """The parts of the names of the table and of the parent, in lower case."""
        named = (self.relation, self.parent) if self.parent else (self.relation,)
        return tuple(
            tuple(one.value.lower() for one in tokens(name) if one.is_name) for name in named
        )

    def follows_from_rows(
        self, fields: Iterable[Mapping[str, Any]], of_parent: Iterable[Mapping[str, Any]] = ()
    ) -> bool:
        """Return whether the answer follows from the values in the rows alone.

        Args:
            fields: The columns of the table, as Iceberg's schema has them.
            of_parent: Those of the parent.
        """
        fields, of_parent = list(fields), list(of_parent)
        if not all(follows_from_the_row(one, fields) for one in self.conditions) or any(
            _type(key, fields) is None for key in self.keys
        ):
            return False
        if self.field is not None:
            # Keys that Spark would have to cast may be equal to several keys of the parent.
            if not follows_from_the_row(tuple(tokens(self.field)), of_parent):
                return False
            kinds = {_type(self.keys[0], fields), _type(self.field, of_parent)}
            return kinds <= {"int", "long"} or (
                len(kinds) == 1 and kinds <= {"string", "date", "timestamp", "timestamptz"}
            )
        return True

    def on(self, relation: str) -> str:
        """Return the query with another relation in place of the table."""
        start, end = self.span
        return self.query[:start] + relation + self.query[end:]


class _Query:
    """A query whose tokens are compared with patterns."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = tuple(tokens(sql))
        self._text = " ".join(one.text for one in self._tokens)
        self._starts = list(accumulate((len(one.text) + 1 for one in self._tokens), initial=0))
        self._match: re.Match[str] | None = None

    @property
    def is_ascii(self) -> bool:
        """Whether its bare words have no letters that are another word's but for their case."""
        # Without case, a pattern takes a dotless i for an i, which is another function to Spark.
        return all(one.text.isascii() for one in self._tokens if one.kind == "word")

    def has_form(self, pattern: re.Pattern[str]) -> bool:
        """Return whether the query matches a pattern, whose groups are then known."""
        self._match = pattern.fullmatch(self._text)
        return self._match is not None

    def tokens(self, group: str) -> tuple[Token, ...]:
        """Return the tokens of a group, as the query has them."""
        assert self._match is not None
        start, end = (bisect_left(self._starts, at) for at in self._match.span(group))
        return self._tokens[start:end]

    def text(self, group: str) -> str:
        """Return the tokens of a group with blanks between them."""
        return " ".join(one.text for one in self.tokens(group))

    def written(self, group: str) -> str:
        """Return a group as it is written."""
        start, end = self.span(group)
        return self._sql[start:end]

    def span(self, group: str) -> tuple[int, int]:
        """Return where a group begins and ends."""
        found = self.tokens(group)
        return found[0].start, found[-1].end

    def form(self, *conditions: Sequence[Token], **more: Any) -> Form:
        """Return the form of the query; see there."""
        asked = tuple(map(tuple, conditions))
        return Form(self._sql, self.text("relation"), self.span("relation"), asked, **more)

    def by_key(self, *conditions: Sequence[Token], **more: Any) -> Form:
        """Return the form of a query that looks at the rows of each key apart.

        Args:
            conditions: What else it asks each row for.
        """
        names = [one for one in self.tokens("keys") if one.is_name]
        asked = ([one] for one in names)
        return self.form(*asked, *conditions, keys=tuple(one.text for one in names), **more)

    def count_of_condition(self) -> str:
        """Return an aggregate that counts the rows with the condition."""
        return f"count_if(\n{self.written('condition')}\n)"

    def selected(self) -> tuple[Token, ...]:
        """Return the name that the query selects; empty if it is none, or the condition has it."""
        assert self._match is not None
        name, condition = self._match["selected"], self._match["condition"]
        if name is None or condition.removeprefix(f"{name} ").lower() == "is null":
            return ()
        return self.tokens("selected")

    def version(self) -> Sequence[Token]:
        """Return the comparison of a version's start and end; the tokens are not in the query."""
        return tuple(tokens(f"{self.text('start')} < {self.text('ended')}"))


def form_of(sql: str) -> Form | None:
    """Return the form of a query; None if it is not known."""
    query = _Query(sql)
    if not query.is_ascii:
        return None
    if query.has_form(_UNIQUE):
        key = query.text("keys")
        return query.by_key(count=f"count({key}) - count(distinct {key})")
    if query.has_form(_ACCEPTED):
        key, values = query.text("key"), query.text("values")
        asked = f"{key} not in ({values})"
        if not _are_literals(query.tokens("values")):
            return None
        return query.form(tuple(tokens(asked)), count=f"count_if({asked})")
    if query.has_form(_COMBINATION):
        return query.by_key(has_null=True)
    if query.has_form(_ONE_CURRENT):
        return query.by_key(query.tokens("end"), has_null=True)
    if query.has_form(_NO_OVERLAP) or query.has_form(_NO_GAP):
        return query.by_key(query.version(), has_null=True, by_loss=True)
    if query.has_form(_IN_ORDER):
        return query.form(query.version(), count=query.count_of_condition())
    if query.has_form(_RELATIONSHIPS):
        return query.by_key(parent=query.text("parent"), field=query.text("field"))
    if not query.has_form(_ROWS) or any(
        one.text.lower() in _CLAUSES or one.kind == "unclosed" for one in query.tokens("condition")
    ):
        return None
    condition, count = query.tokens("condition"), query.count_of_condition()
    if not (selected := query.selected()):
        return query.form(condition, count=count)
    # Spark refuses the query if the table has no such column.
    return query.form(condition, selected, count=f"{count} + 0 * count({query.text('selected')})")


def _type(column: str, fields: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the type of a key as a query names it; None if it cannot be one.

    Spark cannot compare maps. Iceberg 1.11 loses rows by a filter on a column with a default that
    an older file does not have.
    """
    (name,) = tokens(column)
    if name.kind == "word" and (name.is_word("true", "false", "null") or name.text[0].isdecimal()):
        return None  # a literal, although a column has this name
    found = [one for one in fields if one["name"] == name.value]
    kind = found[0]["type"] if len(found) == 1 else None
    return kind if isinstance(kind, str) and "initial-default" not in found[0] else None


def _are_literals(values: Iterable[Token]) -> bool:
    """Return whether a list has only texts, whole numbers and truth values."""
    items: list[list[Token]] = [[]]
    for token in values:
        if token.text == ",":
            items.append([])
        elif token.text != "-" or items[-1]:
            items[-1].append(token)
    return all(
        len(item) == 1
        and (
            (item[0].kind == "string" and item[0].text[0] == "'")
            or (item[0].kind == "word" and re.fullmatch(r"[0-9]+|true|false", item[0].text))
        )
        for item in items
    )
