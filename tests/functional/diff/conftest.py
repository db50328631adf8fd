"""A Spark session that writes branches, and the expected differences by pandas."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.catalogs import RunningCatalog
from pyhive import hive

from sparkwap import server
from sparkwap.core.personal import Hidden
from sparkwap.diff.differ import Differ
from sparkwap.diff.model import TableDiff
from sparkwap.publish.lake import Lake

# Only these tests use it; other tests use the lake too.
BRANCH = f"diff_{secrets.token_hex(2)}"
NO_CACHE = {"set:hiveconf:spark.sql.catalog.lake.cache-enabled": "false"}

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Truth:
    """The differences of two states of a table."""

    added: int
    removed: int
    changed: int = 0
    columns: dict[str, int] = field(default_factory=dict)

    @classmethod
    def told(cls, found: TableDiff) -> Truth:
        """Return the differences in a diff."""
        return cls(found.added, found.removed, found.changed, dict(found.columns))

    @classmethod
    def of(cls, before: Rows, after: Rows, names: Sequence[str], key: Sequence[str] = ()) -> Truth:
        """Return the differences by pandas: subtract the counts of rows, then pair rows by key."""
        counted = [
            pd.DataFrame([list(map(repr, row)) for row in rows], columns=list(names))
            .groupby(list(names))
            .size()
            for rows in (before, after)
        ]
        net = counted[1].sub(counted[0], fill_value=0).astype(int)
        differ = net[net != 0].rename("__n").reset_index()
        added, removed = differ[differ["__n"] > 0], differ[differ["__n"] < 0]
        if not key:
            return cls(int(added["__n"].sum()), int(-removed["__n"].sum()))
        pairs = removed.merge(added, on=list(key), suffixes=("_old", "_new"))
        once = pairs.groupby(list(key)).size()
        pairs = pairs.set_index(list(key)).loc[once[once == 1].index].reset_index()
        pairs = pairs[(pairs["__n_old"] == -1) & (pairs["__n_new"] == 1)]
        rest = [name for name in names if name not in key]
        changes = {n: int((pairs[f"{n}_old"] != pairs[f"{n}_new"]).sum()) for n in rest}
        return cls(
            int(added["__n"].sum()) - len(pairs),
            int(-removed["__n"].sum()) - len(pairs),
            len(pairs),
            {name: n for name, n in changes.items() if n},
        )


class Desk:
    """A schema, a session that writes to it, and comparisons."""

    def __init__(self, lake: Lake, connection: hive.Connection, warehouse: Path) -> None:
        self.lake = lake
        self.schema = f"diff_{secrets.token_hex(3)}"
        self.statements: list[str] = []
        self._connection = connection
        self._warehouse = warehouse
        lake.ensure_schema(self.schema)

    def sql(self, statement: str) -> Rows:
        """Return the rows of a statement."""
        self.statements.append(statement)
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def table(self, name: str, definition: str, *statements: str) -> str:
        """Create a table on ``main``; ``{t}`` in statements is its name."""
        full = f"{self.schema}.{name}"
        self.sql(f"create table {full} {definition}")
        self.run(full, *statements)
        return name

    def run(self, full: str, *statements: str) -> None:
        """Run statements on a table."""
        for statement in statements:
            self.sql(statement.format(t=full))

    def branch(self, name: str, *statements: str) -> None:
        """Run statements on the audit branch of a table."""
        self.lake.branches.open((self.schema, name), BRANCH)
        self.sql(f"set spark.wap.branch={BRANCH}")
        try:
            self.run(f"{self.schema}.{name}", *statements)
        finally:
            self.sql("reset spark.wap.branch")

    def clone(self, name: str, *statements: str) -> None:
        """Run statements on a clone of a table in the side schema."""
        side = f"{self.schema}__{BRANCH}"
        self.lake.branches.clone((self.schema, name), side)
        self.run(f"{side}.{name}", *statements)

    def diff(
        self, name: str, *key: str, sample: int = 5, hidden: Hidden | None = None
    ) -> TableDiff:
        """Compare a table with ``main``; check that this leaves no files in the lake."""
        files = self.left()
        self.statements.clear()
        differ = Differ(
            self.lake,
            self.sql,
            keys={(self.schema, name): key},
            sample=sample,
            hidden=hidden,
        )
        (found,) = differ.compare(BRANCH, tables=[f"{self.schema}.{name}"]).tables
        assert found.change != "failed", found.notes
        assert self.left() == files
        return found

    def truth(self, name: str, *key: str, **shown: str) -> Truth:
        """Compare both states as a whole by pandas; columns as they are, or as ``shown``."""
        state = self.lake.state((self.schema, name))
        assert state is not None
        names = [column.name for column in state.columns]
        listed = ", ".join(shown.get(column, column) for column in names)
        states = [
            self.sql(f"select {listed} from {self.schema}.{name} version as of '{ref}'")
            for ref in ("main", BRANCH)
        ]
        return Truth.of(*states, names, key)

    def left(self) -> set[Path]:
        """Return the files and folders that comparisons have made."""
        found = self._warehouse.rglob("*")
        return {path for path in found if path.name.startswith(("wap-diff-", "wap_diff-"))}


@pytest.fixture(scope="module")
def desk(lake_dir: Path, config: server.ServerConfig, running: RunningCatalog) -> Iterator[Desk]:
    """One session for all tests of a module."""
    endpoint = running.endpoint(config)
    lake = Lake("lake", running.properties(config))
    connection = hive.connect(
        endpoint.host,
        endpoint.thrift_port,
        username="writer",
        auth="NONE",
        configuration=NO_CACHE,
    )
    yield Desk(lake, connection, lake_dir / "warehouse")
    lake.branches.discard(BRANCH)
    connection.close()
    lake.close()
