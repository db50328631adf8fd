"""A lake that is put back into the state in which a scenario begins, and processes that die."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from vocabulary.lake import Reader

from crashes.scenarios import DROPPED, SCENARIOS, open_lake
from sparkwap import faults, steps
from sparkwap.errors import SparkwapError
from sparkwap.server import ServerConfig, state
from sparkwap.server.defaults import marker

RAISED, TOLD = 3, 4
"""Exit codes: the injected exception; an error of sparkwap's, whose text is in ``error``."""

State = dict[tuple[str, str], tuple[Any, ...]]
"""What readers see of each table and view."""


class World:
    """Lakes as scenarios begin, what they end with, and processes that die in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reader = Reader(folder)
        self._kept = folder.parent / "kept"
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["crashes.world", "pyiceberg.io.pyarrow"])

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
            fault: As the environment gives it to the fault injector.
            log: Where the steps are written down.
            limit: How many bytes a file may have.
        """
        child = self._context.Process(
            target=_child, args=(self.folder, name, part, fault, log, limit), daemon=True
        )
        child.start()
        child.join(60)
        assert child.exitcode is not None, "it hangs"
        return child.exitcode

    @contextmanager
    def server(self) -> Iterator[subprocess.Popen[bytes]]:
        """A process that the lake's files say is its server."""
        layout = ServerConfig(lake=self.folder).layout
        layout.create()
        sleep = "import time; time.sleep(600)"
        stand_in = subprocess.Popen([sys.executable, "-S", "-c", sleep, marker(layout.lake)])
        try:
            state.write(layout, state.State(stand_in.pid, 0.0, 1, 2, "", stand_in.pid, {}, True))
            yield stand_in
        finally:
            stand_in.kill()
            stand_in.wait()

    def look(self) -> State:
        """What a reader sees of all schemas that are not on the branch."""
        return {
            (schema, name): look.seen()
            for schema in ("s", DROPPED)
            for name, look in self.reader.look(schema).items()
        }


def _child(
    folder: Path, name: str, part: str, fault: str, log: Path | None, limit: int | None
) -> None:
    lake = open_lake(folder)
    work = getattr(SCENARIOS[name], part)
    if fault:
        os.environ["SPARKWAP_FAULT"] = fault
        os.environ["SPARKWAP_FAULT_LAKE"] = str(folder)
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
        steps.listen(faults.Injector.from_environment())
    if log is not None:
        seen: list[str] = []
        steps.listen(lambda step, _facts: seen.append(step.name))
    if limit is not None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        work(lake)
    except faults.InjectedFault:
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
