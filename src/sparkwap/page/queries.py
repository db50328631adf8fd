"""Reads the ledger, metadata, and rows of single tables for the page, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import Identifier, OpenBranch, TableState, content_equality
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.core import names
from sparkwap.core.dbt_cli import LakePlace
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.diff import states
from sparkwap.diff.plan import match_columns
from sparkwap.diff.states import TableVersion
from sparkwap.ledger.records import BranchHistory, ended_otherwise
from sparkwap.ledger.tables import ex
from sparkwap.page.comparison import TableComparison, TableSide
from sparkwap.publish.lake import Lake

if TYPE_CHECKING:
    from pyiceberg.table import Table

Row = Mapping[str, Any]

STARTS = ("valid_from", "dbt_valid_from")
"""Names of the column with the beginning of a version; the column of the end has ``to``."""

_MOST_ROWS = 10_000
_KEYS_READ = 100_000
_KEYS = 200
_TAGS = 20


@dataclass(frozen=True, slots=True)
class RecentHistory:
    """The ledger's rows of the last days, with the columns of its `SCHEMAS`.

    ``ended_otherwise`` has the outcome of runs that changed after they ended, by run id.
    """

    runs: tuple[Row, ...]
    nodes: tuple[Row, ...]
    tests: tuple[Row, ...]
    metrics: tuple[Row, ...]
    ended_otherwise: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BranchOverview:
    """An open audit branch; ``lease`` is the run that uses it, in words; None if none does."""

    open: OpenBranch
    history: BranchHistory
    lease: str | None

    @property
    def name(self) -> str:
        """The branch."""
        return self.open.branch

    @property
    def since(self) -> datetime | None:
        """The time when its first table was written."""
        created = [datetime.fromtimestamp(t.created_ms / 1000, UTC) for t in self.open.tables]
        return min([*created, *(row["built_at"] for row in self.history.nodes)], default=None)


@contextmanager
def opened(described: LakePlace) -> Iterator[Lake | None]:
    """Open the lake; None if there is none yet, because opening it would create it."""
    if not described.exists:
        yield None
        return
    with closing(Lake(described.name, dict(described.properties))) as lake:
        yield lake


def recent_history(lake: Lake, days: int, now: datetime) -> RecentHistory:
    """Read the ledger's rows of the last days."""
    since = now - timedelta(days=days)
    runs, nodes, tests, metrics = (
        tuple(lake.ledger.recent(table, since)) for table in ("runs", "nodes", "tests", "metrics")
    )
    return RecentHistory(
        runs, nodes, tests, metrics, ended_otherwise(runs, lake.ledger.publishes())
    )


def branch_overviews(lake: Lake) -> list[BranchOverview]:
    """Return the open audit branches, by name."""
    leases = {
        lease.branch: leasing.describe(lease, lives=True) for lease in leasing.living(lake.leases)
    }
    return [
        BranchOverview(open_, lake.ledger.branch_history(open_.branch), leases.get(open_.branch))
        for open_ in lake.branches.all()
    ]


def compare(lake: Lake, new: str, old: str) -> list[TableComparison]:
    """Compare the tables of two branches, tags or ``main`` by their metadata.

    A table that a branch does not have is taken from ``main``, as in a session on that branch.

    Raises:
        ConfigError: There is no such branch or tag.
    """
    after, before = states.states_of(lake, new), states.states_of(lake, old)
    now = states.published(lake, {*after, *before})
    return [
        _compared(name, after.get(name, now.get(name)), before.get(name, now.get(name)))
        for name in sorted({*after, *before})
    ]


def _compared(
    name: Identifier, after: TableVersion | None, before: TableVersion | None
) -> TableComparison:
    one_table = (
        after is not None
        and before is not None
        and md.identity(after.document) == md.identity(before.document)
    )
    columns = match_columns(
        before.columns if before else (), after.columns if after else (), same_table=one_table
    )
    same, commits = False, list[Mapping[str, str]]()
    if after is not None:
        base = before if one_table else None
        old = base.snapshot if base else None
        commits = content_equality.between(after.document, old, after.snapshot)
        # Columns belong to the table, not to a snapshot. A view is identified by its metadata file.
        same = bool(base and not columns.change and _token(after) == _token(base))
    return TableComparison(
        ".".join(name), _side(after), _side(before), columns.change, same, commits
    )


def _token(state: TableVersion) -> object:
    return state.row.location if state.kind == "view" else state.snapshot


def _side(state: TableVersion | None) -> TableSide | None:
    if state is None:
        return None
    return TableSide(
        kind=state.kind,
        rows=state.rows(),
        snapshot=state.snapshot,
        summary=dict((state.found or {}).get("summary") or {}),
        columns=tuple((column.name, column.spark_type) for column in state.columns),
    )


def tags(lake: Lake) -> list[str]:
    """Return the tags of the last publishes, newest first."""
    publishes = lake.ledger.publishes()
    return [names.publish_tag(p.run_id) for p in publishes if not p.rolled_back][:_TAGS]


@dataclass(frozen=True, slots=True)
class Versioned:
    """A table whose rows are versions, from their column ``start`` to their column ``end``."""

    identifier: Identifier
    start: str
    end: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Schema and name with a dot."""
        return ".".join(self.identifier)


def versioned(lake: Lake) -> list[Versioned]:
    """Return the tables on ``main`` whose rows have a beginning and an end, by name."""
    found = []
    for identifier, state in sorted(published_tables(lake).items()):
        columns = tuple(column.name for column in state.columns)
        for start in STARTS:
            end = start.replace("from", "to")
            if start in columns and end in columns:
                # Arrays, maps and structs cannot be counted.
                keys = (c.name for c in state.columns if "<" not in c.type)
                own = tuple(k for k in keys if k not in (start, end) and not k.startswith("_"))
                if own:
                    found.append(Versioned(identifier, start, end, columns, own))
                break
    return found


def published_tables(lake: Lake) -> Mapping[Identifier, TableState]:
    """Return the tables on ``main`` without those of the ledger."""
    backend = lake.store.backend
    others = {*backend.side_schemas(), LEDGER_SCHEMA}
    found = (row.identifier for row in backend.all() if row.kind == "table")
    return lake.states([one for one in found if one[0] not in others])


def keys(lake: Lake, table: Versioned, key: str) -> list[tuple[str, int]]:
    """Return values of the key column with their number of versions, most versions first.

    Of a large table, only the first rows are read. NULL is no key.
    """
    loaded = lake.catalog.load_table(table.identifier)
    values = loaded.scan(selected_fields=(key,), limit=_KEYS_READ).to_arrow()[key]
    counts = sorted(
        (
            (_literal(row["values"]), int(row["counts"]))
            for row in values.value_counts().to_pylist()
            if row["values"] is not None
        ),
        key=lambda pair: (-pair[1], pair[0]),
    )
    return counts[:_KEYS]


def _literal(value: Any) -> str:
    """Return a value in the form that Iceberg reads as a literal."""
    return str(value.isoformat() if isinstance(value, date) else value)


def versions(
    lake: Lake, table: Versioned, key: str, value: str, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the rows of a key, oldest first.

    Args:
        value: Its value as text, which Iceberg casts to the column's type.

    Raises:
        ValueError: The text is not a value of the column's type.
    """
    loaded: Table = lake.catalog.load_table(table.identifier)
    scan = loaded.scan(ex.EqualTo(key, value), selected_fields=tuple(columns), limit=_MOST_ROWS)
    try:
        rows: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    except TypeError as error:  # as for a binary column
        raise ValueError(f"{key} has no values that can be typed") from error
    return sorted(rows, key=lambda row: str(row[table.start] or ""))


def artifact(path: Path) -> dict[str, Any] | None:
    """Return a JSON file of dbt or of a button; None if it is missing or cannot be read."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found
