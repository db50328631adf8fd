"""Many dbt runs at once on one lake, killed now and then, beside writers that know no gate.

What readers saw all the while is judged by the checker of
`tests/integration/histories/test_histories.py`:
each version audited and whole, no publish lost, all of it as one run after the other would give.
Some builds of it; ``SOAK=1`` takes minutes (``SPARKWAP_SECONDS`` says how many seconds).
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.catalogs import TRANSACTIONS
from helpers.histories.checker import Version, faults
from helpers.histories.watcher import Watcher
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Project
from pyhive.exc import Error as SparkError
from pyiceberg.exceptions import CommitFailedException, ValidationException
from sqlalchemy.exc import OperationalError

from sparkwap.gate.settings import Upkeep
from sparkwap.maintenance.maintainer import Maintainer
from sparkwap.publish.lake import Lake

SECONDS = float(os.environ.get("SPARKWAP_SECONDS") or (300 if os.environ.get("SOAK") else 20))
PATIENCE = 15
"""On a busy machine so many times as long, until something has happened."""
ENOUGH = 2
KILL_AFTER = 3
"""So many builds come to their end for each that is killed, and one for each write past the gate:
by the clock, a slow machine would never see one get through."""
LONGEST_BUILD_SECONDS = 8.0
ONE_RUN_SECONDS = 300
START = "start"

SELECTIONS = (("a", "b", "c"), ("a", "b"), ("b", "c"))
"""The tables that each of the dbt processes builds, again and again; `total` comes with b."""
NOISY = ("a", "c")
"""The tables to which somebody writes past the gate; not b, of which `total` tells."""

APPEND = """
    {{ config(materialized='incremental', incremental_strategy='append') }}
    {% if is_incremental() %}
    select '{{ env_var("HISTORY_RUN") }}' as `by`, max(number) + 1 as number, {{ OK }} as ok
    from {{ this }}
    {% else %}
    select '{{ env_var("HISTORY_RUN") }}' as `by`, 1L as number, {{ OK }} as ok
    {% endif %}
"""
FILES = {
    "models/a.sql": APPEND.replace("{{ OK }}", "true"),
    # Only the second one ever has a row that must not pass; the others are as good as any.
    "models/b.sql": APPEND.replace("{{ OK }}", "{{ env_var('HISTORY_OK') }}"),
    "models/c.sql": APPEND.replace("{{ OK }}", "true"),
    "models/total.sql": """
        {{ config(materialized='table') }}
        select max_by(`by`, number) as `by`, max(number) as number, true as ok from {{ ref('b') }}
    """,
    "models/properties.yml": "models:\n"
    + "".join(
        f"""
          - name: {name}
            columns:
              - {{name: by, quote: true, data_tests: [unique]}}
              - {{name: ok, data_tests: [{{accepted_values: {{values: [true], quote: false}}}}]}}
        """
        for name in "abc"
    ),
}
OVERTAKEN = (CommitFailedException, ValidationException, OperationalError, ValueError)
"""What PyIceberg raises where another writer was faster; ValueError for a sequence number."""


@dataclass
class Runs:
    """One process after the other that builds some of the tables, until it is told to stop.

    Attributes:
        project: The project.
        tables: What is built.
        chance: Draws which builds have a bad row.
        told: The builds of which dbt has said that all went well.
        begun: All builds.
        ended: How many came to an end of their own.
    """

    project: Project
    tables: tuple[str, ...]
    chance: random.Random
    told: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    ended: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """The tables as one word."""
        return "".join(self.tables)

    def loop(self) -> None:
        """Build; what was killed is tried again, by `dbt retry` if there is anything to retry."""
        while not self.stop.is_set():
            run = f"{self.name}-{len(self.begun) + 1}"
            self.begun.append(run)
            ok = "false" if self.chance.random() < 0.2 else "true"
            build = ("build", "--select", *self.tables, "total")
            given = {"HISTORY_RUN": run, "HISTORY_OK": ok}
            code = self._dbt(given, *build)
            if code < 0 and not self.stop.is_set():
                # Before the run was opened, `dbt retry` would be of the run before it.
                code = self._dbt(given, *(("retry",) if self._is_open() else build))
            if code == 0:
                self.told.append(run)
            self.ended += code >= 0

    def end(self) -> None:
        """Stop; the build that is on comes to its end."""
        self.stop.set()

    def kill(self) -> bool:
        """SIGKILL, wherever it is; false if nothing was there to be killed."""
        process = self.process
        if process is None or process.poll() is not None:
            return False
        process.kill()
        return True

    @property
    def _target(self) -> Path:
        return self.project.folder / f"target_{self.name}"

    def _is_open(self) -> bool:
        record = self._target / "sparkwap_run.json"
        return record.exists() and '"open"' in record.read_text()

    def _dbt(self, given: Mapping[str, str], *arguments: str) -> int:
        self.process = self.project.start(
            *arguments, "--target-path", str(self._target), environment=given
        )
        return self.process.wait(timeout=ONE_RUN_SECONDS)


@dataclass
class Noise:
    """Who moves `main` beside the runs: rows by PyIceberg, compactions by Spark and by sparkwap.

    Attributes:
        due: How often it may have written by now.
    """

    project: Project
    reader: Reader
    spark: SparkReader
    chance: random.Random
    due: Callable[[], int]
    rows: int = 0
    compactions: int = 0
    maintained: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def loop(self) -> None:
        """Write a row or compact a table, whenever it is due."""
        while not self.stop.wait(self.chance.uniform(0.0, LONGEST_BUILD_SECONDS)):
            self._maintain()
            if self.rows + self.compactions >= self.due():
                continue
            if not self.rows or self.chance.random() < 0.6:
                self._append(self.chance.choice(NOISY))
            else:
                self._compact(self.chance.choice("abc"))

    def _append(self, table: str) -> None:
        columns = {"by": [f"noise-{self.rows}"], "number": [0], "ok": [True]}
        with suppress(*OVERTAKEN):
            loaded = self.reader.catalog.load_table((self.project.schema, table))
            loaded.append(pa.table(columns))
            self.rows += 1

    def _maintain(self) -> None:
        lake = Lake("lake", dict(self.reader.catalog.properties))
        work = Maintainer(lake, self.spark.rows, run_id=str(uuid.uuid4()), upkeep=Upkeep())
        report = work.maintain([self.project.schema], everything=True)
        lake.close()
        assert report.failed == []
        self.maintained += sum(one.done is not None for one in report.tables)

    def _compact(self, table: str) -> None:
        with suppress(SparkError):
            self.spark.rows(
                f"call lake.system.rewrite_data_files(table => '{self.project.schema}.{table}', "
                "options => map('rewrite-all', 'true'))"
            )
            self.compactions += 1


@pytest.fixture(scope="module")
def project(make_project: MakeProject) -> Iterator[Project]:
    project = make_project("history", FILES, variables={"wap_rebuild_wait": 0.2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HISTORY_RUN", START)
        patch.setenv("HISTORY_OK", "true")
        project.dbt("build").succeeded()
        yield project


def test_readers_see_audited_whole_and_serial_states(
    project: Project, reader: Reader, spark: SparkReader
) -> None:
    chance = random.Random(int(os.environ.get("SPARKWAP_SEED") or 7))
    loops = [Runs(project, tables, random.Random(chance.random())) for tables in SELECTIONS]

    def ended() -> int:
        return sum(one.ended for one in loops)

    noise = Noise(project, reader, spark, random.Random(chance.random()), lambda: 1 + ended())
    killed = 0
    with Watcher(reader, project.schema) as watcher:
        threads = [threading.Thread(target=one.loop) for one in (*loops, noise)]
        for thread in threads:
            thread.start()
        try:
            began = time.monotonic()
            while (spent := time.monotonic() - began) < SECONDS or (
                spent < PATIENCE * SECONDS and sum(len(one.told) for one in loops) < ENOUGH
            ):
                # Somewhere in the course of a build.
                time.sleep(chance.uniform(0.0, LONGEST_BUILD_SECONDS))
                if ended() >= KILL_AFTER * (killed + 1) - 2:
                    killed += chance.choice(loops).kill()
        finally:
            for one in loops:
                one.end()
            for thread in threads[:-1]:
                thread.join()
            noise.stop.set()
            threads[-1].join()
    told = [run for one in loops for run in one.told]
    builds = {run: one.tables for one in loops for run in one.begun}
    published = published_runs(reader, watcher, project.schema)
    seen = watcher.versions()
    print(
        f"{watcher.looks} looks, {len(seen)} versions; {len(builds)} builds, {len(published)} "
        f"published, {killed} killed; {noise.rows} rows past the gate, {noise.compactions} "
        f"compactions past it, {noise.maintained} by maintenance"
    )
    # Where a publish is sequential, whole versions are promised at its end.
    wholes = seen if TRANSACTIONS else seen[-1:]
    wrong = [f"version {at}: {word}" for at, one in enumerate(wholes) for word in untrue_total(one)]
    assert wrong == []
    tables = [{name: rows for name, rows in one.items() if name != "total"} for one in seen]
    if TRANSACTIONS:
        assert faults(tables, published, told, builds) == []
    else:
        assert faults(tables[-1:], published, told, builds) == []
        for name in tables[-1]:
            alone = {run: [name] if name in built else [] for run, built in builds.items()}
            assert faults([{name: one[name]} for one in tables], published, told, alone) == []
    assert len(told) >= ENOUGH, "too little has happened"
    assert noise.rows, "nobody wrote past the gate"


def untrue_total(version: Version) -> Iterator[str]:
    """The total is built with b and from it, so it tells of that b with which it is seen."""
    (total,) = version["total"]
    last = max(version["b"], key=lambda row: row.number)
    if (total.by, total.number) != (last.by, last.number):
        yield f"the total tells of {total}, and b has {last}"


def published_runs(reader: Reader, watcher: Watcher, schema: str) -> list[str]:
    """The builds that the ledger says were published, oldest first, by the rows they brought.

    A build that was tried again is published by another run of dbt; its rows say which it was.
    """
    rows = reader.ledger("publishes", schema=schema, name="b", action="publish")
    location = reader.pointers(schema)["b"][1]
    found = []
    for row in sorted(rows, key=lambda row: row["published_at"]):
        (run,) = {
            fact.by
            for fact in rows_of(watcher, location, row["candidate_snapshot"])
            - rows_of(watcher, location, row["base_snapshot"])
        }
        found.append(run)
    return found


def rows_of(watcher: Watcher, location: str, snapshot: int | None) -> frozenset[Any]:
    """The rows of one snapshot; none for none."""
    return watcher.rows_at(location, snapshot) if snapshot is not None else frozenset()
