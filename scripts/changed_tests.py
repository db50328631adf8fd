"""Selects the tests of a change that `make test` leaves out, within a budget of seconds.

    python scripts/changed_tests.py --budget 600 [--base <commit>]
    python scripts/changed_tests.py --record target/tests/*.xml
    python scripts/changed_tests.py --record target/smoke.xml --table tests/durations-smoke.csv

The first form prints one file per line, for ``pytest -m "long or not (unit or smoke)"``; files
without enough time go to standard error. The base is ``--base``, else the commit where the branch
left ``origin/main``, else the parent of HEAD. Without a base, all tests are selected. The other
forms read pytest's JUnit reports of such a run, or of the smoke tests, and write the seconds of
each file into a table. Slow files run first (``tests/conftest.py``).
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("unit", "integration", "functional")
UNKNOWN_SECONDS = 120.0
"""The assumed seconds of a file that has not been measured."""
WORKERS = 2

AREAS: Mapping[str, tuple[str, ...]] = {
    "docs/deploy/kubernetes.md": ("examples",),
    "docs/deploy/runbook.md": ("operations",),
    "docs/page.md": ("examples", "page"),
    "examples/": ("pipeline", "project"),
    "examples/airflow/": ("orchestration",),
    "examples/ci/": ("examples", "pr"),
    "examples/dagster/": ("orchestration",),
    "examples/deployment/": ("examples",),
    "examples/load/": ("examples",),
    "examples/prefect/": ("examples", "orchestration"),
    "macros/audits/": ("pipeline", "report", "scd2", "project", "macros"),
    "macros/cdc/": ("cdc", "pipeline"),
    "macros/landing/": ("pipeline", "replay"),
    "macros/scd2/": ("macros", "scd2"),
    "macros/wap/": ("gate", "adapter", "conflicts"),
    "models/": ("pipeline", "project"),
    "snapshots/": ("pipeline",),
    "src/dbt/": ("adapter", "gate", "attacks", "replay"),
    "src/sparkwap/alerts/": ("alerts",),
    "src/sparkwap/audits/": ("audits", "report"),
    "src/sparkwap/catalog/": ("catalog", "publish", "catalogs", "crashes", "readers", "histories"),
    "src/sparkwap/cdc/": ("cdc", "pipeline"),
    "src/sparkwap/cli/": ("cli", "pipeline", "streams", "foreign"),
    "src/sparkwap/core/": ("core", "gate", "crashes", "hostile"),
    "src/sparkwap/diff/": ("diff", "pr"),
    "src/sparkwap/erasure/": ("erasure",),
    "src/sparkwap/gate/": ("gate", "attacks", "conflicts"),
    "src/sparkwap/landing/": ("landing", "streams", "pipeline", "hostile", "replay"),
    "src/sparkwap/ledger/": ("ledger", "gate", "report"),
    "src/sparkwap/lineage/": ("lineage",),
    "src/sparkwap/maintenance/": ("maintenance", "sweep", "erasure", "crashes"),
    "src/sparkwap/metrics/": ("metrics",),
    "src/sparkwap/page/": ("page",),
    "src/sparkwap/plan/": ("plan",),
    "src/sparkwap/pr/": ("pr",),
    "src/sparkwap/publish/": (
        "publish",
        "catalog",
        "catalogs",
        "crashes",
        "conflicts",
        "histories",
    ),
    "src/sparkwap/report/": ("report",),
    "src/sparkwap/runs/": ("runs", "gate", "conflicts", "replay", "crashes"),
    "src/sparkwap/server/": ("server", "catalogs"),
    "tests/helpers/": ("helpers", "gate"),
    "tests/helpers/crashes/": ("crashes",),
    "tests/helpers/histories/": ("histories",),
}
"""Path prefix to the test folders for changes below it; the longest matching prefix counts."""

OF_ALL = (
    ".ci/",
    "Makefile",
    "dbt_project.yml",
    "profiles/",
    "pyproject.toml",
    "requirements",
    "scripts/",
    "seeds/",
    "tests/conftest.py",
    "tests/data/",
    "tests/functional/conftest.py",
)
"""Prefixes of paths that any test may depend on."""


@dataclass(frozen=True)
class Choice:
    """The test files to run, in order, and the files without enough time."""

    chosen: tuple[str, ...]
    left_out: tuple[str, ...]


def wanted(changed: Iterable[str] | None, files: Sequence[str]) -> list[str]:
    """Return the test files for changed paths, changed test files first; all files for None."""
    if changed is None:
        return list(files)
    paths = set(changed)
    areas = [area for path in sorted(paths) for area in _areas(path)]
    by_change = [file for file in files if file in paths]
    # The area with the most changed paths comes first.
    by_area = [
        file for area, _ in Counter(areas).most_common() for file in files if _area_of(file) == area
    ]
    return list(dict.fromkeys((*by_change, *by_area)))


def choose(files: Sequence[str], seconds: Mapping[str, float], budget: float) -> Choice:
    """Select files in order, and leave out each file that does not fit into the budget."""
    chosen, left_out, spent = [], [], 0.0
    for file in files:
        cost = seconds.get(file, UNKNOWN_SECONDS)
        if not cost:  # all of its tests are smoke tests
            continue
        # A file runs in one worker, so it may take at most the whole budget.
        if cost <= budget and spent + cost <= budget * WORKERS:
            chosen.append(file)
            spent += cost
        else:
            left_out.append(file)
    return Choice(tuple(chosen), tuple(left_out))


def _areas(path: str) -> tuple[str, ...]:
    if path.startswith(OF_ALL):
        return tuple(dict.fromkeys(area for areas in AREAS.values() for area in areas))
    fitting = [prefix for prefix in AREAS if path.startswith(prefix)]
    return AREAS[max(fitting, key=len)] if fitting else ()


def _area_of(file: str) -> str:
    return Path(file).parts[2]


def test_files() -> list[str]:
    """Return all files with tests that `make test` leaves out, the quick kinds first."""
    return [
        str(path.relative_to(ROOT))
        for kind in KINDS
        for path in sorted((ROOT / "tests" / kind).glob("*/test_*.py"))
        if kind != "unit" or "mark.long" in path.read_text()
    ]


def changed_paths(base: str | None) -> list[str] | None:
    """Return the paths that changed since the base; None without a base."""
    for candidate in [base] if base else ["origin/main", "HEAD~1"]:
        fork = _git("merge-base", candidate, "HEAD")
        # On main itself, origin/main is not a base.
        if fork and (base or fork != _git("rev-parse", "HEAD")):
            named = _git("diff", "--name-only", "--no-renames", fork, "HEAD")
            return named.splitlines() if named is not None else None
    return None


def _git(*arguments: str) -> str | None:
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return ended.stdout.strip() if ended.returncode == 0 else None


def known_seconds(table: Path) -> dict[str, float]:
    """Return the measured seconds of each file."""
    with table.open(newline="") as rows:
        return {row["file"]: float(row["seconds"]) for row in csv.DictReader(rows)}


def record(table: Path, reports: Iterable[Path]) -> None:
    """Write the seconds of the files in the reports into the table."""
    measured: Counter[str] = Counter()
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            # tests.unit.gate.test_net, possibly followed by a class.
            parts = case.attrib["classname"].split(".")[:4]
            measured[f"{'/'.join(parts)}.py"] += float(case.attrib["time"])
    known = known_seconds(table) if table.exists() else {}
    known |= {file: round(seconds, 1) for file, seconds in measured.items()}
    existing = set(test_files())
    with table.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", "seconds"])
        writer.writerows(sorted((f, s) for f, s in known.items() if f in existing))


def main() -> None:
    """Print the selected files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", help="the commit to compare with")
    parser.add_argument("--budget", type=float, default=600, help="seconds, with two workers")
    parser.add_argument("--record", nargs="+", type=Path, help="JUnit reports of pytest")
    parser.add_argument("--table", type=Path, default=ROOT / "tests/durations.csv")
    given = parser.parse_args()
    if given.record:
        record(given.table, given.record)
        return
    changed = changed_paths(given.base)
    choice = choose(wanted(changed, test_files()), known_seconds(given.table), given.budget)
    since = "no commit to compare with" if changed is None else f"{len(changed)} paths changed"
    print(
        f"changed-tests: {since}: {len(choice.chosen)} files within {given.budget:.0f} s"
        f"; left out, for `make check-all`: {', '.join(choice.left_out) or 'none'}",
        file=sys.stderr,
    )
    print(*choice.chosen, sep="\n")


if __name__ == "__main__":
    main()
