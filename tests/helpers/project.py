"""A small dbt project, run in this process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from dbt.adapters.factory import reset_adapters
from dbt.cli.main import dbtRunner
from dbt_common.events.base_types import EventLevel, EventMsg
from jsonschema import Draft202012Validator
from output_schema import schema

from helpers.catalogs import PYTHON_MODELS
from sparkwap.core import command_end

ORDERS_AND_PEOPLE = {
    "models/orders.sql": """
        {{ config(materialized='table') }} select id, {{ var('amount', 1) }} as amount from range(3)
    """,
    "models/people.sql": "{{ config(materialized='table') }} select id from range(3)",
    "models/properties.yml": """
        models:
          - name: orders
            columns:
              - name: amount
                data_tests: [{accepted_values: {name: small, values: [1, 2], quote: false}}]
          - name: people
            columns: [{name: id, config: {meta: {subject: person}}}]
    """,
}
"""Files of a project: orders with a test that `amount` can fail, and people who can be erased."""

VERDICT = re.compile(r"^ +(published|rejected|held) +(\S+) +(.*)$")
ALIKE = re.compile(r"^ +(published|rejected|held) +[\d,]+ tables: (.*)$")
NAMES = re.compile(r"^ {15}(\S+\.\S+(?:, \S+\.\S+)*)$")
SHOWN = (EventLevel.INFO, EventLevel.WARN, EventLevel.ERROR)


@dataclass(frozen=True)
class Outcome:
    """What one dbt command came to.

    Attributes:
        ok: its exit code is 0.
        run_id: dbt's invocation id.
        text: all that it printed, and the exception that ended it, if one did.
        statuses: dbt's status of each node and test, by name.
        verdicts: what the summary says of each table: (outcome, first reason), by ``schema.name``.
        document: what it has left for programs; None if it has left nothing.
    """

    ok: bool
    run_id: str
    text: str
    statuses: dict[str, str]
    verdicts: dict[str, tuple[str, str]]
    document: dict[str, Any] | None = None

    @property
    def branch(self) -> str:
        """The audit branch that the summary names."""
        found = re.search(r"^sparkwap  run \w+ on branch (\w+)$", self.text, re.MULTILINE)
        assert found is not None, f"no summary in:\n{self.text}"
        return found[1]

    def verdict(self, name: str) -> str:
        """What the gate said of a table, by its name without the schema."""
        return self._told(name)[0]

    def reason(self, name: str) -> str:
        """What stands behind the verdict in the summary, in its first line."""
        return self._told(name)[1]

    def _told(self, name: str) -> tuple[str, str]:
        found = [told for full, told in self.verdicts.items() if full.endswith(f".{name}")]
        assert found, f"the summary does not name {name}:\n{self.text}"
        return found[0]

    def succeeded(self) -> Outcome:
        """Itself, or a failure that shows all that dbt said."""
        assert self.ok, self.text
        return self

    def failed(self) -> Outcome:
        """Itself, or a failure if dbt took the command for a success."""
        assert not self.ok, f"a non-zero exit was expected:\n{self.text}"
        return self


def verdicts(text: str) -> dict[str, tuple[str, str]]:
    """Verdict and first reason of each table that a summary tells of, by ``schema.name``."""
    found: dict[str, tuple[str, str]] = {}
    told = ("", "")
    for line in text.splitlines():
        if alike := ALIKE.match(line):
            told = (alike[1], alike[2])
        elif one := VERDICT.match(line):
            found[one[2]] = (one[1], one[3])
        elif names := NAMES.match(line):
            found |= dict.fromkeys(names[1].split(", "), told)
    return found


@cache
def _schema() -> Draft202012Validator:
    return Draft202012Validator(schema())


def checked(path: Path, told: Mapping[str, tuple[str, str]], *, ok: bool) -> dict[str, Any] | None:
    """Return a command's document, after a check that it agrees with schema, summary and dbt."""
    document = command_end.read(path)
    if document is None:
        return None
    _schema().validate(document)
    if document["command"].startswith("dbt run-operation"):
        return document
    result = document["result"]
    assert result is not None
    # A table is there twice if a candidate of another node has taken its place on the branch.
    tables = {(table["table"], table["outcome"]) for table in result["tables"]}
    outcomes = {outcome for _, outcome in tables}
    # The line of the tables that the summary leaves out has no name.
    said = {name: outcome for name, (outcome, _) in told.items() if "." in name}
    assert said.items() <= tables
    if ok:
        worst = "held" if outcomes - {"published"} else "published"
        assert document["outcome"] == (worst if outcomes else "done")
    assert bool(result["publish_id"]) == ("published" in outcomes), document
    return document


@dataclass
class Project:
    """A dbt project in a folder of its own, in a schema of its own.

    Attributes:
        folder: where its files are.
        schema: the schema that it builds.
        output: the profile's output; ``schema`` is added.
        variables: vars of every command.
        settings: more of ``dbt_project.yml``.
        listeners: called with each event of a dbt command, while it runs.
    """

    folder: Path
    schema: str
    output: dict[str, Any]
    variables: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    listeners: list[Callable[[EventMsg], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        project = {
            "name": "shop",
            "version": "1.0",
            "profile": "shop",
            "flags": {"send_anonymous_usage_stats": False},
            **self.settings,
        }
        output = {"threads": 3, **self.output, "schema": self.schema}
        profile = {"shop": {"target": "test", "outputs": {"test": output}}}
        # JSON is YAML.
        files = {"dbt_project.yml": json.dumps(project), "profiles.yml": json.dumps(profile)}
        self.write(files)

    def write(self, files: dict[str, str]) -> Project:
        """Write files by their paths in the project; indented text is moved to the left.

        Skips where a model is in Python, and Spark runs none.
        """
        if not PYTHON_MODELS and any(path.endswith(".py") for path in files):
            pytest.skip("Python models need Spark 4.0")
        for path, text in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(dedent(text).lstrip("\n"))
        return self

    def clear(self, *folders: str) -> Project:
        """Delete folders, as far as they are there."""
        for folder in folders:
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        return self

    def dbt(self, *arguments: str, **variables: Any) -> Outcome:
        """Run a dbt command; keywords are vars."""
        events: list[EventMsg] = []
        command = self._command(arguments, variables)
        self.document.unlink(missing_ok=True)
        ended = dbtRunner(callbacks=[events.append, *self.listeners]).invoke(command)
        # dbt keeps the last adapter, and what registers one next would be given it, with its lake.
        reset_adapters()
        lines = [event.info.msg for event in events if event.info.level in SHOWN]
        if ended.exception is not None:
            lines.append(str(ended.exception))
        # The summary is logged line by line, with the time of dbt's own lines left out.
        text = "\n".join(lines)
        # `docs generate` has the results of its compilation beside the catalog.
        ran = getattr(ended.result, "_compile_results", None) or ended.result
        told = verdicts(text)
        return Outcome(
            ok=ended.success,
            run_id=events[0].info.invocation_id if events else "",
            text=text,
            statuses={
                result.node.name: str(result.status)
                for result in getattr(ran, "results", None) or []
                if hasattr(result, "node")
            },
            verdicts=told,
            document=checked(self.document, told, ok=ended.success),
        )

    @property
    def document(self) -> Path:
        """The document of the last dbt command."""
        return self.folder / "target" / command_end.FILE_NAME

    @property
    def errors(self) -> Path:
        """The standard error of what was started last."""
        return self.folder / "errors.txt"

    def start(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        first: str = "pass",
        **variables: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a dbt command in a process of its own, to be killed.

        ``environment`` is added to this process's own, ``first`` is run before dbt. What it
        writes to the standard error is in `errors`.
        """
        # A job in the background of a shell, and all that it starts, ignores interrupts.
        heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        code = f"{heed}; {first}; from dbt.cli.main import cli; cli()"
        command = [sys.executable, "-c", code, *self._command(arguments, variables)]
        with self.errors.open("wb") as errors:
            return subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def operation(self, name: str, **arguments: Any) -> Outcome:
        """Call a run-operation."""
        return self.dbt("run-operation", name, "--args", json.dumps(arguments))

    def _command(self, arguments: Sequence[str], variables: Mapping[str, Any]) -> list[str]:
        given = {**self.variables, **variables}
        return [
            *arguments,
            *(("--vars", json.dumps(given)) if given else ()),
            "--project-dir",
            str(self.folder),
            "--profiles-dir",
            str(self.folder),
            "--log-path",
            str(self.folder / "logs"),
            "--no-use-colors",
        ]


MakeProject = Callable[..., Project]
"""The fixture ``make_project``: a name, files by path, and more fields of :class:`Project`."""
