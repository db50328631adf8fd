"""Runs tests with one module of sparkwap changed, as fast as pytest itself: a fork for each.

``python -m mutants.nursery`` reads requests from standard input, one JSON object a line, and
answers each by a line: ``code``, pytest's exit code, and ``text``. What takes long to import is
imported once, before the forks; sparkwap is not among it.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import dbt.adapters.spark.impl
import dbt.artifacts.schemas.results  # noqa: F401
import hypothesis.strategies  # noqa: F401
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow  # noqa: F401
import pytest

TIMEOUT_SECONDS = 120
SECONDS_PER_TEST = 10
OPTIONS = (
    *("-x", "-q", "-W", "ignore", "--tb=short", "--assert=plain"),
    # What a single test can do without, and takes half of its time.
    *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:unraisableexception"),
)


class Changed(importlib.abc.InspectLoader, importlib.abc.MetaPathFinder):
    """Finds one module, with a source of its own."""

    def __init__(self, module: str, source: str, path: Path) -> None:
        self._module = module
        self._source = source
        self._path = path

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return spec_from_loader(name, self) if name == self._module else None

    def get_source(self, fullname: str) -> str:
        return self._source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, str(self._path), "exec")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run the tests of a request in a process of their own."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            _run(request, output.fileno())
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return {"code": os.waitstatus_to_exitcode(status), "text": output.read()}


def _run(request: dict[str, Any], output: int) -> None:
    code = 70
    try:
        # A loop whose end was taken away is ended by the alarm, and found out by it.
        signal.alarm(TIMEOUT_SECONDS + SECONDS_PER_TEST * len(request["tests"]))
        os.dup2(output, 1)
        os.dup2(output, 2)
        if request["module"]:
            changed = Changed(request["module"], request["source"], Path(request["path"]))
            sys.meta_path.insert(0, changed)
        code = int(pytest.main([*OPTIONS, *request["tests"]]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def main() -> None:
    """Answer until the input ends."""
    gc.freeze()  # no child has to look through what the imports have left
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
