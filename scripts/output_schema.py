"""Writes the schema of ``--output json``, and the tables of docs/output.md.

A unit test fails if they are outdated; `python scripts/output_schema.py` writes them again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter

from sparkwap.alerts.command import AlertsSent
from sparkwap.cli import DoctorReport, ServerLog, ServerState
from sparkwap.cli.build import BuildResult
from sparkwap.cli.operations import ALL
from sparkwap.cli.quarantine import QuarantineList, QuarantineReplay
from sparkwap.cli.source import SourceAdded
from sparkwap.cli.stream import StreamBuild
from sparkwap.core.command_end import EXIT_CODES, SCHEMA_VERSION, Outcome
from sparkwap.metrics.command import MetricsResult
from sparkwap.page.command import PageResult
from sparkwap.plan.render import PlanResult
from sparkwap.pr.results import CommentResult, PullRequestState, StateResult
from sparkwap.report.command import ReportResult
from sparkwap.runs.operations.found import OperationResult
from sparkwap.runs.results import RunResults

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, SCHEMA = DOCS / "output.md", DOCS / f"schemas/output-{SCHEMA_VERSION}.json"
BEGIN, END = "<!-- results: scripts/output_schema.py -->\n", "<!-- end of results -->\n"
RESULTS: Mapping[str, type] = {
    "server start": ServerState,
    "server stop": ServerState,
    "server status": ServerState,
    "server logs": ServerLog,
    "alerts test": AlertsSent,
    "alerts check": AlertsSent,
    "build": BuildResult,
    "doctor": DoctorReport,
    "metrics": MetricsResult,
    "page": PageResult,
    "plan": PlanResult,
    "pr audit": PullRequestState,
    "pr publish": PullRequestState,
    "pr close": PullRequestState,
    "pr comment": CommentResult,
    "pr state": StateResult,
    "quarantine list": QuarantineList,
    "quarantine replay": QuarantineReplay,
    "report": ReportResult,
    "source add": SourceAdded,
    "stream": StreamBuild,
    **{one.name.removeprefix("wap_"): OperationResult for one in ALL},
    **{f"dbt {one}": RunResults for one in ("build", "run", "test", "seed", "snapshot", "clone")},
    **{f"dbt run-operation {one.name}": OperationResult for one in ALL},
}
"""Command -> the class of its ``result``. Those of dbt are in ``target/sparkwap_results.json``."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all documents."""
    types = {one.__name__: one for one in RESULTS.values()}
    refs, described = TypeAdapter.json_schemas(
        [(name, "serialization", TypeAdapter(one)) for name, one in sorted(types.items())],
    )
    for one in described["$defs"].values():
        if one.get("type") == "object" and "properties" in one:
            one["required"] = list(one["properties"])
    by_name = {name: ref for (name, _), ref in refs.items()}
    text = {"type": "string"}
    nothing = {"type": "null"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"sparkwap --output json, version {SCHEMA_VERSION}",
        "type": "object",
        "required": [
            "schema_version", "sparkwap", "command", "outcome", "exit_code", "message", "result",
        ],
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "sparkwap": text,
            "command": {"enum": ["", *RESULTS]},
            "outcome": {"enum": list(get_args(Outcome))},
            "exit_code": {"type": "integer"},
            "message": {"anyOf": [text, nothing]},
        },
        "allOf": [
            {
                "if": {"properties": {"command": {"const": command}}},
                "then": {"properties": {"result": {"anyOf": [by_name[one.__name__], nothing]}}},
            }
            for command, one in RESULTS.items()
        ]
        + [
            {
                "if": {"properties": {"outcome": {"const": outcome}}},
                "then": {"properties": {"exit_code": {"const": code}}},
            }
            for outcome, code in EXIT_CODES.items()
        ],
        "$defs": described["$defs"],
    }  # fmt: skip


def text() -> str:
    """Return the schema as a file."""
    return json.dumps(schema(), indent=1) + "\n"


def page(before: str) -> str:
    """Return the page with a new table."""
    commands: dict[str, list[str]] = {}
    for command, result in RESULTS.items():
        commands.setdefault(result.__name__, []).append(f"`{command}`")
    rows = [f"| {', '.join(names)} | `{result}` |" for result, names in commands.items()]
    table = "\n".join(["| commands | result |", "|---|---|", *rows]) + "\n"
    head, rest = before.split(BEGIN)
    return f"{head}{BEGIN}{table}{END}{rest.split(END)[1]}"


def main() -> None:
    SCHEMA.parent.mkdir(exist_ok=True)
    SCHEMA.write_text(text())
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
