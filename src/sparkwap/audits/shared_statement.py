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
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sparkwap.audits.forms import Form, form_of
from sparkwap.catalog import Identifier
from sparkwap.core.sqllex import ANY_RELATION, FILES, relation_names, tokens

Range = tuple[int, int]

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
class Changed:
    """What has changed since a query had no row.

    A range is the least and the greatest key of some rows: Iceberg skips the files of another table
    that have none of these keys. None if it is not known.

    Attributes:
        added: A table that has the rows that were added; None if there are none.
        lost: A table that has the rows that are gone: those of the parent if the query has one.
            None if there are none.
    """

    added: str | None = None
    added_range: Range | None = None
    lost: str | None = None
    lost_range: Range | None = None


def statement(queries: Mapping[int, str], changed: Mapping[int, Changed] | None = None) -> str:
    """Return one statement that counts the rows of queries.

    Args:
        changed: What has changed since a query had no row, by the number of the query, which has a
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
        form, new = form_of(query), (changed or {}).get(number)
        if form is not None and new is not None:
            if not (form.by_loss or form.parent):
                new = replace(new, lost=None)
            if new.added is None and new.lost is None:
                parts.append(f"select {at}, 0 as found")
                continue
            if form.keys:
                query = _of_children(form, new) if form.parent else _of_keys(form, new)
        if form is None or form.count is None or (form.keys and new is not None):
            parts.append(f"select {at}, count(*) as found from (\n{query}\n) as audited")
        else:
            pair = f"struct({at}, {form.count} as found)"
            counts.setdefault((new and new.added) or form.relation, []).append(pair)
    for relation, pairs in counts.items():
        parts.append(f"select inline(array({', '.join(pairs)})) from {relation}")
    return "\nunion all\n".join(parts)


def _of_keys(form: Form, new: Changed) -> str:
    """Return a query for the keys of changed rows alone."""
    keys = ", ".join(form.keys)
    pairs = ((new.added, new.added_range), (new.lost, new.lost_range))
    tables = {name: found for name, found in pairs if name is not None}
    changed = " union all ".join(f"select {keys} from {name}" for name in tables)
    same = "<=>" if form.has_null else "="
    on = " and ".join(f"present.{key} {same} changed.{key}" for key in form.keys)
    within = _within(f"present.{form.keys[0]}", [*tables.values()], form.has_null)
    return form.on(
        f"(select * from {form.relation} as present left semi join ({changed}) as changed "
        f"on {on}{within}) as of_keys"
    )


def _of_children(form: Form, new: Changed) -> str:
    """Return a query for the added rows without a parent, and for those whose parent is gone."""
    (key,), field = form.keys, form.field
    parts = []
    if new.added:
        within = _within(f"parent.{field}", [new.added_range])
        parts.append(
            f"select 1 from (select {key} from {new.added} where {key} is not null) as child "
            f"left anti join (select {field} from {form.parent} as parent{within}) as parent "
            f"on child.{key} = parent.{field}"
        )
    if new.lost:
        within = _within(f"parent.{field}", [new.lost_range])
        gone = (
            f"select lost.{field} from {new.lost} as lost "
            f"left anti join (select {field} from {form.parent} as parent{within}) as parent "
            f"on lost.{field} = parent.{field}"
        )
        within = _within(f"child.{key}", [new.lost_range])
        parts.append(
            f"select 1 from (select {key} from {form.relation} as child{within}) as child "
            f"left semi join ({gone}) as gone on child.{key} = gone.{field}"
        )
    return "\nunion all\n".join(parts)


def _within(column: str, ranges: Sequence[Range | None], has_null: bool = False) -> str:
    """Return a where clause for a column whose values are in one of the ranges."""
    known = [one for one in ranges if one is not None]
    if len(known) < len(ranges):
        return ""
    low, high = min(known)[0], max(high for _, high in known)
    or_null = f" or {column} is null" if has_null else ""
    return f" where ({column} between {low} and {high}{or_null})"


def counts_of(rows: Iterable[Sequence[Any]]) -> dict[int, int]:
    """Return the number of rows of each query, by its number, from the rows of `statement`."""
    return {int(at): int(found) for at, found in rows}


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
        known: Schema and name of the known tables, in lower case.
        existing: Returns schema and name of the tables and views of a schema, in lower case.
    """
    names = relation_names(query)
    if any(schema in _ELSEWHERE or "/" in name for schema, name in names):
        return True
    there = frozenset().union(*map(existing, {schema for schema, _ in names}))
    return bool((names & there) - frozenset(known))
