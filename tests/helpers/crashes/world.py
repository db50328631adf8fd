"""A lake that is put back into the state in which a scenario begins, and processes that die."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from helpers.catalogs import RestSource
from helpers.crashes.injector import InjectedFault, inject
from helpers.crashes.scenarios import DROPPED, JOURNALLED, MANY, SCENARIOS, Scenario, open_lake
from helpers.lake import Reader
from helpers.rest import RestServer
from sparkwap.catalog.rest_backend import MULTI_TABLE
from sparkwap.core import checkpoints
from sparkwap.core.errors import SparkwapError
from sparkwap.publish.lake import Lake

RAISED, TOLD = 3, 4
"""Exit codes: the injected exception; an error of sparkwap's, whose text is in ``error``."""

State = dict[tuple[str, str], tuple[Any, ...]]
"""What readers see of each table and view."""

Rows = Mapping[str, list[tuple[Any, ...]]]
"""The rows of the tables of the REST server's database."""

# A second on a machine that has time; a busy one has had it wait for more than one minute.
_PATIENCE_SECONDS = 600
_TABLES = ("iceberg_tables", "iceberg_namespace_properties")
_ASIDE = "__wap_former_"


class World:
    """Lakes as scenarios begin, what they end with, and processes that die in them."""

    scenarios: Mapping[str, Scenario] = SCENARIOS
    properties: Mapping[str, str] | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "catalog.db"
        self.reader = Reader(folder)
        self._kept = folder.parent / "kept"
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["helpers.crashes.world", "pyiceberg.io.pyarrow"])

    def open(self) -> Lake:
        """The lake, for what is done in this process."""
        return open_lake(self.folder, self.properties)

    def begin(self, name: str) -> State:
        """Put the lake in the state in which the scenario begins."""
        kept = self._kept / name
        shutil.rmtree(self.folder, ignore_errors=True)
        if not kept.exists():
            self.folder.mkdir(parents=True)
            assert self.run(name, "prepare") == 0
            shutil.copytree(self.folder, kept)
        else:
            shutil.copytree(kept, self.folder)
        return self.look()

    @cache  # noqa: B019
    def told(self, name: str) -> tuple[list[str], State, State]:
        """The steps of a scenario left alone, and what readers see before and after it."""
        before = self.begin(name)
        log = self.folder / "steps"
        assert self.run(name, "act", log=log) == 0
        return log.read_text().split(), before, self.look()

    def run(
        self,
        name: str,
        part: str,
        fault: str = "",
        log: Path | None = None,
        limit: int | None = None,
    ) -> int:
        """Do a part of a scenario in a process of its own; its exit code.

        Args:
            name: The scenario.
            part: ``prepare`` or ``act``.
            fault: As `crashes.injector` takes it.
            log: Where the steps are written down.
            limit: How many bytes a file may have.
        """
        child = self._context.Process(
            target=_child,
            args=(self.folder, self.properties, name, part, fault, log, limit),
            daemon=True,
        )
        child.start()
        child.join(_PATIENCE_SECONDS)
        assert child.exitcode is not None, "it hangs"
        return child.exitcode

    def look(self) -> State:
        """What a reader sees of all schemas that are not on the branch, but tables set aside."""
        return {key: seen for key, seen in self._seen().items() if _ASIDE not in key[1]}

    def aside(self) -> list[tuple[str, str]]:
        """The replaced tables that a REST catalog keeps until the journal is closed."""
        return [key for key in self._seen() if _ASIDE in key[1]]

    def _seen(self) -> State:
        return {
            (schema, name): look.seen()
            for schema in ("s", DROPPED, MANY[0])
            for name, look in self.reader.look(schema).items()
        }


class SequentialWorld(World):
    """The same on a REST catalog that moves one table at a time: publishes go by the journal.

    Args:
        folder: Where the server keeps its catalog and its files.
        rest: The server.
    """

    scenarios = JOURNALLED

    def __init__(self, folder: Path, rest: RestServer) -> None:
        super().__init__(folder)
        self.database = folder / "rest.db"
        self.properties = {**rest.properties, MULTI_TABLE: "false"}
        self.reader = Reader(folder, RestSource(rest.uri, rest.warehouse))
        self._rows: dict[str, Rows] = {}

    def begin(self, name: str) -> State:
        """Put files and rows back under the server, which keeps nothing in its memory."""
        kept, warehouse = self._kept / name, self.folder / "warehouse"
        shutil.rmtree(warehouse, ignore_errors=True)
        if name not in self._rows:
            self._put({table: [] for table in _TABLES})
            assert self.run(name, "prepare") == 0
            shutil.copytree(warehouse, kept)
            with closing(sqlite3.connect(self.database, timeout=60)) as database:
                found = {t: database.execute(f"select * from {t}").fetchall() for t in _TABLES}
            self._rows[name] = found
        else:
            shutil.copytree(kept, warehouse)
            self._put(self._rows[name])
        return self.look()

    def _put(self, rows: Rows) -> None:
        with closing(sqlite3.connect(self.database, timeout=60)) as database, database:
            for table, values in rows.items():
                database.execute(f"delete from {table}")
                for value in values:
                    marks = ", ".join("?" * len(value))
                    database.execute(f"insert into {table} values ({marks})", value)


def _child(
    folder: Path,
    properties: Mapping[str, str] | None,
    name: str,
    part: str,
    fault: str,
    log: Path | None,
    limit: int | None,
) -> None:
    lake = open_lake(folder, properties)
    work = getattr({**SCENARIOS, **JOURNALLED}[name], part)
    if fault:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
        inject(fault)
    if log is not None:
        seen: list[str] = []
        checkpoints.listen(lambda step, _facts: seen.append(step.name))
    if limit is not None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        work(lake)
    except InjectedFault:
        os._exit(RAISED)
    except SparkwapError as error:
        _lift_limit()
        (folder / "error").write_text(str(error))
        os._exit(TOLD)
    except Exception:
        _lift_limit()
        (folder / "error").write_text(traceback.format_exc())
        os._exit(1)
    if log is not None:
        log.write_text("\n".join(seen))
    os._exit(0)


def _lift_limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
