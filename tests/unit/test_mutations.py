"""Each guard of the gate, taken away, is missed by a test.

A guard that no test misses is a promise that nothing keeps. See `mutants/guards.py` for the list,
`tests/functional/gate/test_mutation.py` for the gate as a whole on a live server.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mutants.guard import Guard
from mutants.guards import GUARDS

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
REFUSALS = (
    "sparkwap/publish/planner.py",
    "sparkwap/catalog/planning.py",
    *(f"sparkwap/runs/{name}.py" for name in ("run", "candidates", "checks", "trail", "gathering")),
)
"""Files of which every refusal has to be in the list."""

Ask = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Runs tests with a module changed; see `mutants.nursery`."""
    folders = [str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-m", "mutants.nursery"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    assert json.loads(process.stdout.readline()) == {"ready": True}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    yield answer
    process.stdin.close()
    process.wait(timeout=10)


def span(file: str, function: str) -> tuple[int, int]:
    """Where a function is in its file: the offsets of its first and last character.

    A function or method is named by its path, such as ``Run.built``.
    """
    source = (SOURCES / file).read_text()
    nodes: list[ast.stmt] = ast.parse(source).body
    found: ast.stmt | None = None
    for part in function.split("."):
        kinds = (ast.FunctionDef, ast.ClassDef)
        found = next((n for n in nodes if isinstance(n, kinds) and n.name == part), None)
        assert isinstance(found, kinds), f"{file} has no {function}"
        nodes = found.body
    assert found is not None and found.end_lineno is not None
    starts = [0, *(match.end() for match in re.finditer("\n", source)), len(source)]
    return starts[found.lineno - 1], starts[found.end_lineno]


def without(guard: Guard) -> str:
    """The source of a guard's file without the guard."""
    source = (SOURCES / guard.file).read_text()
    start, end = span(guard.file, guard.function)
    body = source[start:end]
    assert body.count(guard.old) == 1, f"{guard.function} has not {guard.old!r} once:\n{body}"
    assert guard.old != guard.new
    changed = source[:start] + body.replace(guard.old, guard.new) + source[end:]
    compile(changed, guard.file, "exec")
    return changed


def module_of(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


@pytest.mark.parametrize("guard", GUARDS, ids=lambda g: g.says.replace(" ", "-"))
def test_a_test_misses_it(guard: Guard, ask: Ask) -> None:
    done = ask(
        {
            "module": module_of(guard.file),
            "source": without(guard),
            "path": str(SOURCES / guard.file),
            "tests": [f"tests/unit/{guard.test}"],
        }
    )
    assert done["code"] != 0, f"No test misses the guard: {guard.says}\n{done['text'][-2000:]}"
    # A test of its own failed; no file that could not be read, and no name that is not there.
    assert done["code"] == 1, done["text"][-4000:]
    assert not re.search(r"^E +(NameError|UnboundLocalError|SyntaxError)", done["text"], re.M)


def test_without_a_change_they_pass(ask: Ask) -> None:
    tests = sorted({f"tests/unit/{guard.test}" for guard in GUARDS})
    done = ask({"module": "", "source": "", "path": "", "tests": tests})
    assert done["code"] == 0, done["text"][-4000:]


def test_the_list_has_no_guard_twice() -> None:
    patches = [(guard.file, guard.function, guard.old, guard.new) for guard in GUARDS]
    assert len(set(patches)) == len(patches)
    assert len({guard.says for guard in GUARDS}) == len(GUARDS)


def test_every_refusal_is_in_the_list() -> None:
    """A `raise Differs`, or a problem of a target, whose function has no guard in the list."""
    missing = []
    for file in REFUSALS:
        listed = {guard.function for guard in GUARDS if guard.file == file}
        tree = ast.parse((SOURCES / file).read_text())
        for name, function in _functions(tree.body):
            count = sum(map(_is_refusal, ast.walk(function)))
            guards = sum(guard.function == name for guard in GUARDS if guard.file == file)
            if count > guards:
                missing.append(f"{file}: {name} refuses {count} times, and {guards} are listed")
        assert listed <= {name for name, _ in _functions(tree.body)}
    assert missing == []


def _functions(body: list[ast.stmt], within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{within}{node.name}", node


def _is_refusal(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        raised = node.exc.func
        return isinstance(raised, ast.Name) and raised.id in ("Differs", "SparkwapError")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "replace":
        return any(word.arg == "problem" for word in node.keywords)
    return False
