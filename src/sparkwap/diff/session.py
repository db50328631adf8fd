"""A Spark session during a comparison: its branch, its partitions and its cached results."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from sparkwap.catalog.private_catalog import Sql

_WAP_BRANCH = "spark.wap.branch"
_PARTITIONS = "spark.sql.shuffle.partitions"
_PER_PARTITION = 1_000_000  # rows that a task of the shuffle groups
_ERROR_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")


class Cache:
    """Query results that Spark caches for a session, as views with unique names."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._token = uuid.uuid4().hex[:12]
        self._names: list[str] = []

    def put(self, query: str) -> str:
        """Run a query and cache its result; returns the name of the view."""
        name = f"wap_diff_{self._token}_{len(self._names)}"
        self._sql(f"cache table {name} as {query}")
        self._names.append(name)
        return name

    def clear(self) -> None:
        """Drop all views and their cached results."""
        for name in reversed(self._names):
            self._sql(f"uncache table if exists {name}")
            self._sql(f"drop view if exists {name}")
        self._names.clear()


@contextmanager
def on_branch(sql: Sql, branch: str | None) -> Iterator[None]:
    """Set the audit branch of the session while the block runs: empty for none, None as it is."""
    if branch is None:
        yield
        return
    reset = f"reset {_WAP_BRANCH}"
    sql(f"set {_WAP_BRANCH}={branch}" if branch else reset)
    try:
        yield
    finally:
        sql(reset)


@contextmanager
def partitions_for(sql: Sql, rows: int | None) -> Iterator[None]:
    """Give the session enough shuffle partitions for a number of rows while the block runs."""
    wanted = (rows or 0) // _PER_PARTITION
    default = int(sql(f"set {_PARTITIONS}")[0][1]) if wanted > 1 else wanted
    if wanted <= default:
        yield
        return
    sql(f"set {_PARTITIONS}={wanted}")
    try:
        yield
    finally:
        sql(f"set {_PARTITIONS}={default}")


def error_class(error: Exception) -> str:
    """Return the class of an error without its text, which may contain hidden values."""
    found = _ERROR_CLASS.search(str(error))
    return f"Spark reported {found[1]}" if found else type(error).__name__


def is_true(value: object) -> bool:
    """Return whether a value of a result is true; some servers send booleans as text."""
    return str(value).lower() == "true"
