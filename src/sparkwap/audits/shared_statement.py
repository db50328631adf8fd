"""One statement for the queries of several tests.

The tests of one table whose SQL has a known form are answered by one scan of it: the filters of
rows (`not_null`, ranges, expressions), `unique` and `accepted_values`. Every other query is counted
by itself, exactly as dbt's own statement of the test does it, so that Spark plans and runs it as if
it were alone. If one of them fails, the statement fails, and all of them are sent alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sparkwap.catalog import Identifier
from sparkwap.core.sqllex import ANY_RELATION, FILES, Token, relation_names, tokens

_NAME = r"(?:\w+|`[^`]+`)"
_RELATION = rf"(?P<relation>{_NAME}(?: \. {_NAME})+)"
_ROWS = re.compile(rf"select (?:\*|1|{_NAME}) from {_RELATION} where .+", re.IGNORECASE)
_UNIQUE = re.compile(
    rf"select (?P<key>{_NAME}) as unique_field , count \( \* \) as n_records from {_RELATION} "
    r"where (?P=key) is not null group by (?P=key) having count \( \* \) > 1",
    re.IGNORECASE,
)
_ACCEPTED = re.compile(
    rf"with all_values as \( select (?P<key>{_NAME}) as value_field , count \( \* \) as n_records "
    rf"from {_RELATION} group by (?P=key) \) select \* from all_values "
    r"where value_field not in \( (?P<values>.+) \)",
    re.IGNORECASE,
)
"""The queries of dbt's generic tests, their tokens with blanks between them."""
_CLAUSES = frozenset(
    {
        "select", "from", "group", "having", "order", "sort", "cluster", "distribute", "limit",
        "offset", "window", "over", "union", "except", "intersect", "minus", "lateral", "join",
        "qualify", "tablesample", "pivot", "unpivot", "with", "values", "table", "|", ";", "/*+",
    }
)  # fmt: skip
"""What a condition of single rows has not."""
_VOLATILE_NAMES = frozenset(
    {"random", "randstr", "uniform", "uuid", "shuffle", "unix_timestamp", "curdate", "curtime"}
)
_VOLATILE_CALLS = re.compile(
    "|".join(sorted(_VOLATILE_NAMES)) + r"|now|rand|randn|user|monotonically_increasing_id"
    r"|spark_partition_id|input_file_\w+|current_\w+|localtimestamp|session_user|version|reflect"
    r"|java_method|try_reflect|aes_encrypt|read_files|http_request"
)
_VOLATILE_WORDS = frozenset(
    {
        "current_timestamp", "current_date", "current_time", "current_user", "session_user",
        "localtimestamp", "tablesample", "user",
    }
)  # fmt: skip
_VOLATILE_TEXTS = frozenset({"now", "today", "yesterday", "tomorrow"})
"""Texts that Spark converts to the present date or time."""
_ELSEWHERE = frozenset({"global_temp", "spark_catalog", FILES, ANY_RELATION[0]})
"""First parts of names that stand for what is in no catalog of the lake."""


@dataclass(frozen=True, slots=True)
class Form:
    """A query of a known form.

    Attributes:
        relation: The table, as the query names it.
        count: An aggregate over all its rows; 0 if and only if the query has no row.
        key: The column of `unique`; None for other tests.
        condition: The tokens of what fails a row, or of the column.
    """

    relation: str
    count: str
    key: str | None
    condition: tuple[Token, ...]

    @property
    def table(self) -> tuple[str, ...]:
        """The parts of the table's name, in lower case."""
        return tuple(one.value.lower() for one in tokens(self.relation) if one.is_name)


@dataclass(frozen=True, slots=True)
class Added:
    """The rows that were added to a table since a query had no row.

    Attributes:
        relation: A table that has them.
        within: A condition that each of their keys fulfils: Iceberg skips the other files of the
            table. None if none is known.
    """

    relation: str
    within: str | None = None


def statement(queries: Mapping[int, str], added: Mapping[int, Added] | None = None) -> str:
    """Return one statement that counts the rows of queries.

    Args:
        queries: The queries, by number.
        added: What was added since a query had no row, by the number of the query, which has a
            known form.

    Returns:
        SQL whose rows are `at`, the number of a query as text, and `found`, the number of its rows.
        Of dbt's `unique` and `accepted_values`, it is the number of repeated or unknown values; it
        is 0 if and only if the query has no row.
    """
    parts = []
    counts: dict[str, list[str]] = {}
    for number, query in queries.items():
        # Spark writes numbers into the code that it compiles, but no texts: tables with the same
        # tests share their compiled code.
        at = f"'{number}' as at"
        form, new = form_of(query), (added or {}).get(number)
        if form is None:
            parts.append(f"select {at}, count(*) as found from (\n{query}\n) as audited")
        elif form.key is not None and new is not None:
            within = f"{new.within} and " if new.within else ""
            parts.append(
                f"select {at}, count(*) as found from (select 1 from {form.relation} where "
                f"{within}{form.key} in (select {form.key} from {new.relation}) "
                f"group by {form.key} having count(*) > 1) as audited"
            )
        else:
            pair = f"struct({at}, {form.count} as found)"
            counts.setdefault(new.relation if new else form.relation, []).append(pair)
    for relation, pairs in counts.items():
        parts.append(f"select inline(array({', '.join(pairs)})) from {relation}")
    return "\nunion all\n".join(parts)


def counts_of(rows: Iterable[Sequence[Any]]) -> dict[int, int]:
    """Return the number of rows of each query, by its number, from the rows of `statement`."""
    return {int(at): int(found) for at, found in rows}


def form_of(query: str) -> Form | None:
    """Return the form of a query; None if it is not known."""
    found = tuple(tokens(query))
    text = " ".join(token.text for token in found)
    if unique := _UNIQUE.fullmatch(text):
        key = unique["key"]
        count = f"count({key}) - count(distinct {key})"
        return Form(unique["relation"], count, key, tuple(tokens(key)))
    if accepted := _ACCEPTED.fullmatch(text):
        key, values = accepted["key"], accepted["values"]
        count = f"count_if({key} not in ({values}))"
        known = _are_literals(values)
        condition = tuple(tokens(f"{key} not in ({values})"))
        return Form(accepted["relation"], count, None, condition) if known else None
    rows = _ROWS.fullmatch(text)
    if rows is None:
        return None
    start = next(at for at, token in enumerate(found) if token.is_word("where")) + 1
    condition = found[start:]
    if any(token.text.lower() in _CLAUSES or token.kind == "unclosed" for token in condition):
        return None
    written = query[condition[0].start : condition[-1].end]
    return Form(rows["relation"], f"count_if(\n{written}\n)", None, condition)


def _are_literals(values: str) -> bool:
    """Return whether a list has only texts, whole numbers and truth values."""
    items: list[list[Token]] = [[]]
    for token in tokens(values):
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


def is_volatile(query: str) -> bool:
    """Return whether a query may have another answer a moment later: by the clock, by chance."""
    return volatile_in(query) is not None


def volatile_in(text: str) -> str | None:
    """Return a word of a text by which a value may change although the rows do not; None if none.

    Texts in quotes count too, because they may become SQL.

    Args:
        text: SQL, also with Jinja in it.
    """
    found = [*tokens(text), None]
    for token, following in pairwise(found):
        if token is None:
            continue
        value = token.value.lower()
        called = token.is_name and following is not None and following.text == "("
        if called and _VOLATILE_CALLS.fullmatch(value):
            return token.text
        if token.kind == "word" and value in _VOLATILE_WORDS:
            return token.text
        if token.kind == "unclosed" and (inner := volatile_in(token.text[1:])):
            return inner
        if token.kind == "string":
            # A time zone may follow.
            if _VOLATILE_TEXTS.intersection(value.split()[:1]):
                return token.text
            if inner := volatile_in(value):
                return inner
    return None


def begins_volatile(piece: str) -> bool:
    """Return whether a piece of at least three letters is the begin of a volatile word."""
    return len(piece) >= 3 and any(
        word.startswith(piece) and word != piece
        for word in (_VOLATILE_WORDS | _VOLATILE_NAMES) - {"tablesample"}
    )


def is_enclosed(query: str) -> bool:
    """Return whether a query in brackets stays in them: it closes its own, and leaves none open."""
    depth = 0
    for token in tokens(query):
        if token.kind == "unclosed" or token.text == ";":
            return False
        if token.kind == "symbol":
            depth += (token.text == "(") - (token.text == ")")
        if depth < 0:
            return False
    # A backslash continues a comment in the next line.
    return depth == 0 and not query.rstrip().endswith("\\")


def may_read_others(
    query: str, known: Iterable[Identifier], existing: Callable[[str], AbstractSet[Identifier]]
) -> bool:
    """Return whether a query may read other tables or views than the known ones.

    Args:
        query: SQL.
        known: Schema and name of the known tables, in lower case.
        existing: Returns schema and name of the tables and views of a schema, in lower case.
    """
    names = relation_names(query)
    if any(schema in _ELSEWHERE or "/" in name for schema, name in names):
        return True
    there = frozenset().union(*map(existing, {schema for schema, _ in names}))
    return bool((names & there) - frozenset(known))
