"""One statement for the queries of several tests.

Each query is counted by itself, exactly as dbt's own statement of the test does it, so that Spark
plans and runs it as if it were alone. If one of them fails, the statement fails, and all of them
are sent alone. Only rows that are NULL in one column (`not_null`) are counted together, in one scan
of their table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from sparkwap.catalog import Identifier
from sparkwap.core.sqllex import ANY_RELATION, FILES, relation_names, tokens

_NAME = r"(?:\w+|`[^`]+`)"
_NULLS = re.compile(
    rf"select (?:\*|(?P<selected>{_NAME})) from (?P<relation>{_NAME}(?: \. {_NAME})+) "
    rf"where (?P<column>{_NAME}) is null",
    re.IGNORECASE,
)
VOLATILE = re.compile(
    r"\b(now|rand|randn|random|uuid|shuffle|unix_timestamp|curdate|monotonically_increasing_id"
    r"|spark_partition_id|input_file_name|input_file_block_\w+|current_\w+|localtimestamp"
    r"|session_user|user|version|reflect|java_method|try_reflect|read_files|http_request)\s*\("
    r"|\b(current_timestamp|current_date|current_time|current_user|localtimestamp|tablesample)\b",
    re.IGNORECASE,
)
"""Functions whose value does not follow from the rows."""
_ELSEWHERE = frozenset({"global_temp", "spark_catalog", FILES, ANY_RELATION[0]})
"""First parts of names that stand for what is in no catalog of the lake."""


def statement(queries: Sequence[str]) -> str:
    """Return one statement that counts the rows of queries.

    Returns:
        SQL whose rows are `at`, the index of a query, and `found`, the number of its rows.
    """
    parts = []
    counts: dict[str, list[str]] = {}
    for at, query in enumerate(queries):
        nulls = _NULLS.fullmatch(" ".join(token.text for token in tokens(query)))
        if nulls and nulls["selected"] in (None, nulls["column"]):
            pair = f"struct({at} as at, count_if({nulls['column']} is null) as found)"
            counts.setdefault(nulls["relation"], []).append(pair)
        else:
            parts.append(f"select {at} as at, count(*) as found from (\n{query}\n) as audited")
    for relation, pairs in counts.items():
        parts.append(f"select inline(array({', '.join(pairs)})) from {relation}")
    return "\nunion all\n".join(parts)


def is_volatile(query: str) -> bool:
    """Return whether a query may have another answer a moment later: by the clock, by chance."""
    return VOLATILE.search(query) is not None


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
