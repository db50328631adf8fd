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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.core import names
from sparkwap.core.dbt_cli import DbtCall, add_dbt_options, call_of
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.report.answers import ReportFacts, answers, as_built, as_they_stand, ours, utc_now

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

PYTHON = "SPARKWAP_ELEMENTARY_PYTHON"
"""Environment variable: a Python that has the package ``elementary-data``."""

PAGE = "index.html"


def register_report(commands: Commands) -> None:
    """``sparkwap report``."""
    text = "the Elementary report: tests, runs, verdicts of the gate and lineage, as one page"
    parser = commands.add_parser("report", help=text, description=text)
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="where the page goes (default: target/report)"
    )
    parser.add_argument(
        "--days", type=_count, default=30, help="days of history that it shows (default: 30)"
    )
    parser.add_argument(
        "--samples",
        type=_count,
        default=0,
        metavar="ROWS",
        help="rows that tests with store_failures have kept, of each test; they are data of the "
        "lake, and whoever has the page has them (default: 0)",
    )
    parser.add_argument(
        "--all-schemas",
        action="store_true",
        help="show the runs of the target in every schema, for a project whose schemas depend on a "
        "variable; default: those in the schemas that dbt has parsed last, as other developers may "
        "use the same name of a target",
    )
    parser.add_argument(
        "--python", type=Path, help=f"a Python that has elementary-data (default: {PYTHON}, or own)"
    )
    add_dbt_options(parser)
    parser.set_defaults(handler=report)


def report(parsed: argparse.Namespace) -> int:
    """Write the page; returns 0."""
    call = call_of(parsed)
    python = find_python(parsed.python)
    target = call.project_dir / call.target_path
    found = collect(
        call, target, days=parsed.days, samples=parsed.samples, all_schemas=parsed.all_schemas
    )
    page = (parsed.output or target / "report").resolve() / PAGE
    last = max(found.runs, key=lambda run: run["started_at"], default={})
    write(found, page, env=call.target or last.get("target") or "default", python=python)
    print(page)
    return 0


def find_python(given: Path | None) -> Path:
    """The Python that has Elementary: the given one, that of the environment, or this one.

    Raises:
        ConfigError: There is none.
    """
    named = given or (Path(os.environ[PYTHON]) if os.environ.get(PYTHON) else None)
    if named is not None and not named.exists():
        raise ConfigError(
            f"There is no {named}, which was to have elementary-data. Nothing was written. "
            "Name another one: sparkwap report --python ..."
        )
    if named is None and importlib.util.find_spec("elementary") is None:
        raise ConfigError(
            "The report's page is that of the package elementary-data, which is not installed "
            "here. Nothing was written. In this repository: make report. Elsewhere: "
            "pip install 'dbt-sparkwap[elementary]', or name a Python that has it: "
            "sparkwap report --python ..."
        )
    return named.absolute() if named else Path(sys.executable)


def collect(
    call: DbtCall, target: Path, *, days: int, samples: int, all_schemas: bool = False
) -> ReportFacts:
    """All that the report is made of, from the lake's ledger and dbt's target folder.

    Args:
        call: Which project and profile.
        target: dbt's target folder.
        days: Days of history.
        samples: How many stored rows of each failed test, at most.

    Raises:
        ConfigError: Nothing was built here yet.
    """
    from sparkwap.ledger.records import ended_otherwise
    from sparkwap.publish.lake import Lake

    described = call.lake()
    if described.open() is None:
        raise ConfigError(
            "There is no lake yet, so there is nothing to report. Build one first: dbt build"
        )
    manifest = _json(target / "manifest.json")
    if manifest is None:
        raise ConfigError(
            f"There is no manifest.json in {target}, by which the report names tables and tests. "
            "Nothing was written. dbt leaves one when it runs, and this is enough: dbt parse"
        )
    lake = Lake(described.name, described.properties)
    try:
        tables = ("runs", "nodes", "tests", "metrics")
        whole = {name: lake.ledger.rows(name) for name in tables}
        manifest = as_built(manifest, whole, described.target, all_schemas=all_schemas)
        rows = ours(manifest, whole, described.target, all_schemas=all_schemas)
        publishes = lake.ledger.publishes()
        undone = {
            (one.run_id, *entry.identifier)
            for one in publishes
            for entry in set(one.entries) - set(one.left)
        }
        later = ended_otherwise(rows["runs"], publishes)
        # A closed pull request's audit says nothing of what there is.
        going = {run_id for run_id, became in later.items() if became == "discarded"}
        rows = {
            name: [r for r in found if r["run_id"] not in going] for name, found in rows.items()
        }
        facts = ReportFacts(
            manifest,
            rows["runs"],
            as_they_stand(rows["nodes"], undone),
            rows["tests"],
            rows["metrics"],
            database=lake.name,
            now=utc_now(),
            days=days,
            sources=_json(target / "sources.json"),
        )
        return replace(facts, samples=stored_rows(lake, facts.nodes, samples))
    finally:
        lake.close()


def stored_rows(
    lake: Lake, nodes: Iterable[Mapping[str, Any]], limit: int
) -> dict[str, list[dict[str, Any]]]:
    """Rows that tests with ``store_failures`` have kept, by the test's id.

    Args:
        lake: The lake.
        nodes: The ledger's ``nodes``.
        limit: How many of each test, at most; 0 reads nothing.
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
        return []  # discarded since, or a view
    rows: list[dict[str, Any]] = table.scan(limit=limit).to_arrow().to_pylist()
    return rows


def write(facts: ReportFacts, page: Path, *, env: str, python: Path) -> None:
    """Write the page by Elementary's own code, in a process of its own.

    Elementary's packages need not be those of dbt and sparkwap: what goes between is a file.

    Args:
        facts: All that the report is made of.
        page: The HTML file; ``elementary_output.json``, its data, comes beside it.
        env: The environment that the page names.
        python: A Python that has ``elementary-data``.

    Raises:
        SparkwapError: Elementary failed.
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
        told = (done.stderr or done.stdout).strip().splitlines()
        raise SparkwapError(
            f"Elementary could not make the report: {told[-1] if told else 'it said nothing'}. "
            "The lake was only read. Versions that go together are in requirements-elementary.lock."
        )


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
