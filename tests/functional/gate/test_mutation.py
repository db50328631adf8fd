"""The tests of the gate bite: with its decision forced to "publish", they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from helpers.catalogs import RunningCatalog

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RULES = (
    "test_run_publishes_nothing_when_one_table_is_rejected",
    "test_lineage_publishes_what_is_clean_and_closed_upward",
    "test_require_tests_holds_what_no_test_reads",
    "test_run_holds_and_test_audits_and_publishes",
    "test_excluded_test_holds",
    "test_moved_branch_is_rejected",
)
MATERIALIZATIONS = (
    "test_first_build_is_invisible_until_the_publish",
    "test_failing_test_keeps_the_old_rows",
)


def test_forced_publish_fails_the_tests_of_the_gate(
    lake_dir: Path, running: RunningCatalog, tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("-p", "helpers.publish_everything", "--junit-xml", str(report)),
        *(str(HERE / "test_rules.py"), str(HERE / "test_materializations.py")),
        *("-k", " or ".join([*RULES, *MATERIALIZATIONS])),
    ]
    folders = [str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),  # plugins are imported before pytest's own path
    }
    # A server that sparkwap does not start is not known by the address of its catalog.
    if running.server is None:
        environment["SPARKWAP_TEST_LAKE"] = str(lake_dir)
        environment["SPARKWAP_TEST_CATALOG_URI"] = running.uri or ""
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert report.exists(), ended.stdout + ended.stderr
    cases = ElementTree.parse(report).findall(".//testcase")
    names = {case.attrib["name"].partition("[")[0] for case in cases}
    assert names == {*RULES, *MATERIALIZATIONS}
    # Failed by an assertion of their own: an error in a fixture would prove nothing.
    survived = [case.attrib["name"] for case in cases if case.find("failure") is None]
    assert survived == []
    reasons = {case.attrib["name"]: case.find("failure").attrib["message"] for case in cases}  # type: ignore[union-attr]
    wrong = {n: r for n, r in reasons.items() if not r.startswith(("assert ", "AssertionError"))}
    assert wrong == {}
