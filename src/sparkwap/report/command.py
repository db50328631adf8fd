"""``sparkwap report``: the Elementary report of a lake, without Spark and without a network."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.core import names, next_command
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import DbtCall, add_dbt_options, call_of
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.report.answers import answers
from sparkwap.report.facts import ReportFacts
from sparkwap.report.history import rows_of_project, with_last_runs, with_rollbacks

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands
    from sparkwap.publish.lake import Lake

PYTHON = "SPARKWAP_ELEMENTARY_PYTHON"
"""Environment variable with the path of a Python that has the package ``elementary-data``."""

PAGE = "index.html"


@dataclass(frozen=True)
class ReportResult:
    """The HTML file of the report."""

    page: Path


def register_report(commands: Commands) -> None:
    """Add ``sparkwap report``."""
    text = "write the Elementary report: tests, runs, the gate's verdicts and lineage on one page"
    parser = commands.add_parser("report", help=text, description=text)
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="folder of the page (default: target/report)"
    )
    parser.add_argument(
        "--days", type=_days, default=30, help="days of history to show (default: 30)"
    )
    parser.add_argument(
        "--samples",
        type=_count,
        default=0,
        metavar="ROWS",
        help="stored rows to show of each failed test with store_failures; these are rows of your "
        "tables, and everyone who has the page can read them (default: 0)",
    )
    parser.add_argument(
        "--all-schemas",
        action="store_true",
        help="show the runs of the target in every schema, for a project whose schemas depend on a "
        "variable; default: only the schemas in manifest.json, because other developers may use a "
        "target of the same name",
    )
    parser.add_argument(
        "--python",
        type=Path,
        help=f"a Python that has elementary-data (default: {PYTHON}, or the current Python)",
    )
    add_dbt_options(parser)
    parser.set_defaults(handler=report)


def report(parsed: argparse.Namespace) -> CommandEnd:
    """Write the page."""
    call = call_of(parsed)
    python = find_python(parsed.python)
    target = call.project_dir / call.target_path
    found = collect(
        call, target, days=parsed.days, samples=parsed.samples, all_schemas=parsed.all_schemas
    )
    page = (parsed.dir or target / "report").resolve() / PAGE
    last = max(found.runs, key=lambda run: run["started_at"], default={})
    write(found, page, env=call.target or last.get("target") or "default", python=python)
    print(page)
    return CommandEnd(result=ReportResult(page))


def find_python(given: Path | None) -> Path:
    """Return a Python that has Elementary: the given one, that of the environment, or this one."""
    named = given or (Path(os.environ[PYTHON]) if os.environ.get(PYTHON) else None)
    if named is not None and not named.exists():
        raise ConfigError(
            f"There is no {named}, so the report cannot use its elementary-data. Nothing was "
            "written. Name another Python: sparkwap report --python ..."
        )
    if named is None and importlib.util.find_spec("elementary") is None:
        raise ConfigError(
            "The report needs the package elementary-data, which is not installed here. Nothing "
            "was written. In this repository, run: make report. Elsewhere, run: "
            f"{next_command.install('elementary')}, or name a Python that has the package: "
            "sparkwap report --python ..."
        )
    return named.absolute() if named else Path(sys.executable)


def collect(
    call: DbtCall, target: Path, *, days: int, samples: int, all_schemas: bool = False
) -> ReportFacts:
    """Read the data of the report from the lake's ledger and dbt's target folder."""
    from sparkwap.ledger.records import ended_otherwise, own_rows
    from sparkwap.publish.lake import Lake

    described = call.lake()
    if not described.exists:
        raise ConfigError(
            "There is no lake yet, so there is nothing to report. The first build creates it: "
            "dbt build"
        )
    manifest = _json(target / "manifest.json")
    if manifest is None:
        raise ConfigError(
            f"There is no whole manifest.json in {target}. The report needs it for the names of "
            "tables and tests. Nothing was written. This command writes the file: dbt parse"
        )
    with closing(Lake(described.name, described.properties)) as lake:
        tables = ("runs", "nodes", "tests", "metrics")
        whole = {name: lake.ledger.rows(name) for name in tables}
        manifest = with_last_runs(manifest, whole, described.target, all_schemas=all_schemas)
        rows = rows_of_project(manifest, whole, described.target, all_schemas=all_schemas)
        publishes = lake.ledger.publishes()
        undone = {
            (publish.run_id, *entry.identifier)
            for publish in publishes
            for entry in set(publish.entries) - set(publish.left)
        }
        outcomes = ended_otherwise(rows["runs"], publishes)
        rows["runs"] = own_rows(rows["runs"])
        # The tables of a discarded run, such as that of a closed pull request, no longer exist.
        discarded = {run_id for run_id, outcome in outcomes.items() if outcome == "discarded"}
        rows = {
            name: [r for r in found if r["run_id"] not in discarded] for name, found in rows.items()
        }
        facts = ReportFacts(
            manifest,
            rows["runs"],
            with_rollbacks(rows["nodes"], undone),
            rows["tests"],
            rows["metrics"],
            database=lake.name,
            now=datetime.now(UTC),
            days=days,
            sources=_json(target / "sources.json"),
        )
        return replace(facts, samples=stored_rows(lake, facts.nodes, samples))


def stored_rows(
    lake: Lake, nodes: Iterable[Mapping[str, Any]], limit: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the stored rows of tests with ``store_failures``, by the test's id.

    Args:
        nodes: Rows of the ledger's table ``nodes``.
        limit: Greatest number of rows of each test; 0 reads nothing.
    """
    failures = [row for row in nodes if row["resource_type"] == "failures"] if limit else []
    last = {row["node_id"]: row for row in sorted(failures, key=lambda row: row["built_at"])}
    found = {test_id: _stored(lake, row, limit) for test_id, row in last.items()}
    return {test_id: rows for test_id, rows in found.items() if rows}


def _stored(lake: Lake, row: Mapping[str, Any], limit: int) -> list[dict[str, Any]]:
    from pyiceberg.exceptions import NoSuchTableError

    schema = row["schema"]
    if row["verdict"] != "published":
        schema = names.side_schema(schema, row["branch"])
    try:
        table = lake.catalog.load_table((schema, row["name"]))
    except NoSuchTableError:
        return []  # it was discarded, or it is a view
    rows: list[dict[str, Any]] = table.scan(limit=limit).to_arrow().to_pylist()
    return rows


def write(facts: ReportFacts, page: Path, *, env: str, python: Path) -> None:
    """Write the page with Elementary's own code, in a process of its own.

    Elementary may be in another environment than sparkwap, so a file carries the answers.

    Args:
        page: The HTML file. Its data, ``elementary_output.json``, is written to the same folder.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    given = {
        "answers": answers(facts),
        "database": facts.database,
        "project": facts.project,
        "env": env,
        "days": facts.days,
    }
    with tempfile.TemporaryDirectory() as folder:
        handed = Path(folder) / "answers.json"
        handed.write_text(json.dumps(given, default=str))
        command: Sequence[str] = [str(python), str(Path(__file__).parent / "page.py")]
        done = subprocess.run(
            [*command, str(handed), str(page)], capture_output=True, text=True, check=False
        )
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise SparkwapError(
            f"Elementary could not make the report: {output[-1] if output else 'no message'}. "
            "The lake was not changed. requirements-elementary.lock has versions that work."
        )


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):  # another dbt may be writing it
        return None
    return found


def _days(text: str) -> int:
    return min(_count(text), 36_500)  # there is no date of a million days ago


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
