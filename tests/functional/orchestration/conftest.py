"""A shop whose builds the gate publishes, holds or rejects, for orchestrators that call dbt."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Project

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"

ORDERS = "{{{{ config(materialized='table') }}}} select id, id * {v} as amount from range(1, 4)"
TOTALS = (
    "{{{{ config(materialized='table') }}}} select {total} as total from {{{{ ref('orders') }}}}"
)
TESTS = """
models:
  - {{name: orders, columns: [{{name: id, data_tests: [unique: {{name: ids_are_unique}}]}}]}}
  - name: totals
    columns:
      - name: total
        data_tests:
          - not_null: {{name: totals_are_known, config: {{enabled: {enabled}}}}}
"""


@dataclass
class Gated:
    """orders -> totals, each with a test.

    Attributes:
        v: the version that was delivered last; the total is six times as large.
    """

    project: Project
    reader: Reader
    v: int = 0
    before: dict[str, Any] = field(default_factory=dict)

    def deliver(self, *, total: str = "sum(amount)", tested: bool = True) -> None:
        """Have the next build write other rows; without a total or its test, if so said."""
        self.v += 1
        self.before = self.seen()
        self.project.write(
            {
                "models/orders.sql": ORDERS.format(v=self.v),
                "models/totals.sql": TOTALS.format(total=total),
                "models/shop.yml": TESTS.format(enabled=str(tested).lower()),
            }
        )

    def seen(self) -> dict[str, list[Any]]:
        """What a reader of main sees."""
        look = self.reader.look(self.project.schema)
        columns = {"orders": "amount", "totals": "total"}
        return {name: look[name].values(columns[name]) for name in columns if name in look}

    def new(self) -> set[str]:
        """The tables of main that are not as they were before the last delivery."""
        seen = self.seen()
        changed = {name for name, rows in seen.items() if rows != self.before.get(name)}
        expected = {"orders": [self.v, 2 * self.v, 3 * self.v], "totals": [6 * self.v]}
        assert all(seen[name] == expected[name] for name in changed), seen
        return changed

    def published(self, publish: str) -> set[tuple[str, str]]:
        """The tables of a publish, each with its run, by the ledger."""
        rows = self.reader.ledger("publishes", publish_id=publish)
        return {(row["name"], row["run_id"]) for row in rows}

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of an orchestrator of this project; dbt is this one's."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.project.folder),
            "NO_PROXY": "127.0.0.1,localhost",
            "SPARKWAP_JARS": os.environ["SPARKWAP_JARS"],
            "DO_NOT_TRACK": "1",
            "PROJECT": str(self.project.folder),
            "DBT": str(Path(sys.executable).parent / "dbt"),
            **more,
        }


@pytest.fixture
def gated(make_project: MakeProject, reader: Reader) -> Iterator[Gated]:
    """A shop of which nothing is published yet."""
    yield Gated(make_project("gated", {}), reader)


Install = Callable[[str], Path]


@pytest.fixture(scope="session")
def installed() -> Install:
    """The programs of an orchestrator's own environment; skips where it is not made."""

    def programs(name: str) -> Path:
        venv = ROOT / f".venv-{name}"
        lock, made = EXAMPLES / name / "requirements.lock", venv / "installed.lock"
        if not made.is_file() or made.read_bytes() != lock.read_bytes():
            pytest.skip(
                f".venv-{name} is not made, or of another lock: scripts/orchestrators {name}"
            )
        return venv / "bin"

    return programs
