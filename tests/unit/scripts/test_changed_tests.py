"""The tests that CI adds to `make test`: those of the change, within a budget."""

from __future__ import annotations

from pathlib import Path

import changed_tests
import pytest
from changed_tests import AREAS, KINDS, ROOT, UNKNOWN_SECONDS, choose, known_seconds, record, wanted

FILES = [
    "tests/unit/gate/test_net.py",
    "tests/unit/publish/test_sequential.py",
    "tests/integration/crashes/test_kill_matrix.py",
    "tests/functional/gate/test_rules.py",
    "tests/functional/page/test_page.py",
]


def test_a_package_selects_the_tests_of_its_areas() -> None:
    assert wanted(["src/sparkwap/publish/planner.py"], FILES) == FILES[1:3]
    assert wanted(["src/sparkwap/page/app.py", "README.md"], FILES) == FILES[4:]
    assert wanted(["README.md"], FILES) == []


@pytest.mark.parametrize("path", ["requirements-dev.lock", "profiles/profiles.yml", ".ci/run"])
def test_what_all_tests_depend_on_selects_all_after_those_of_the_change(path: str) -> None:
    found = wanted([path, "src/sparkwap/page/app.py"], FILES)
    assert found[0] == FILES[4]
    assert sorted(found) == sorted(FILES)


def test_the_longest_path_counts() -> None:
    assert wanted(["tests/helpers/crashes/cells.py"], FILES) == [FILES[2]]


def test_a_changed_test_comes_first_then_the_area_that_most_of_the_change_names() -> None:
    changed = [
        "src/sparkwap/page/app.py",
        "src/sparkwap/page/queries.py",
        "src/sparkwap/core/node.py",
    ]
    page, rules = FILES[4], FILES[3]
    found = wanted([*changed, FILES[2]], FILES)
    assert found[:2] == [FILES[2], page]
    assert rules in found


def test_without_a_base_all_tests_are_selected() -> None:
    assert wanted(None, FILES) == FILES


@pytest.mark.parametrize(
    ("budget", "chosen"), [(0, ""), (10, "ab"), (30, "abc"), (45, "abcd"), (1000, "abcd")]
)
def test_files_are_selected_within_the_budget(budget: float, chosen: str) -> None:
    # Two workers have twice the time; no single file may take more than the budget.
    seconds = {"a": 5, "b": 15, "c": 30, "d": 40, "done by make test": 0} | {"b": 10}
    choice = choose([*"abcd", "done by make test"], seconds, budget)
    assert "".join(choice.chosen) == chosen
    assert sorted((*choice.chosen, *choice.left_out)) == list("abcd")


def test_an_unmeasured_file_counts_as_long() -> None:
    assert choose(["new"], {}, UNKNOWN_SECONDS - 1).left_out == ("new",)
    assert choose(["new"], {}, UNKNOWN_SECONDS).chosen == ("new",)


def test_seconds_are_recorded_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_tests, "test_files", lambda: FILES)
    table, report = tmp_path / "durations.csv", tmp_path / "report.xml"
    table.write_text(f"file,seconds\n{FILES[0]},9.0\n{FILES[4]},7.0\ntests/gone.py,1.0\n")
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.unit.gate.test_net" time="1.25"/>'
        '<testcase classname="tests.unit.gate.test_net.TestNet" time="2.0"/></testsuite>'
        "</testsuites>"
    )
    record(table, [report])
    assert known_seconds(table) == {FILES[0]: 3.2, FILES[4]: 7.0}


def test_each_package_and_each_folder_of_tests_has_its_place() -> None:
    packages = {f"src/sparkwap/{p.name}/" for p in (ROOT / "src/sparkwap").iterdir() if p.is_dir()}
    assert {p for p in packages if "__pycache__" not in p} <= set(AREAS)
    tests = [path for kind in KINDS for path in (ROOT / "tests" / kind).glob("*/test_*.py")]
    there = {path.parent.name for path in tests}
    named = {area for areas in AREAS.values() for area in areas}
    assert named <= there, "no such folder of tests"
    assert there - named == {"scripts"}, "no change asks for these tests"
