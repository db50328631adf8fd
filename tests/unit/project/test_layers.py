"""The adapter's place above the packages of sparkwap.

The contracts in pyproject.toml leave the adapter out: import-linter accepts no package within one
that has an ``__init__.py``, and dbt's own `dbt.adapters` has one.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterable
from pathlib import Path

SRC = Path(__file__).parents[3] / "src"
ADAPTER = "dbt.adapters.sparkwap"


def modules(package: str) -> dict[str, Path]:
    folder = SRC / package.replace(".", "/")
    paths = {p: p.relative_to(SRC).with_suffix("") for p in folder.rglob("*.py")}
    return {".".join(n.parts).removesuffix(".__init__"): p for p, n in paths.items()}


def imported(path: Path) -> Iterable[str]:
    """The modules and names that a module imports, also within functions and for types."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{path} imports by a relative name"
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)


def test_only_the_command_line_imports_the_adapter() -> None:
    below = {name: path for name, path in modules("sparkwap").items()
             if not name.startswith("sparkwap.cli")}  # fmt: skip
    assert len(below) > 200
    found = {name for name, path in below.items()
             if any(f"{one}.".startswith(f"{ADAPTER}.") for one in imported(path))}  # fmt: skip
    assert not found


def test_the_adapter_imports_no_command_line() -> None:
    above = ("sparkwap.cli.", "sparkwap.pr.", "sparkwap.page.")
    found = {name for name, path in modules(ADAPTER).items()
             if any(f"{one}.".startswith(above) for one in imported(path))}  # fmt: skip
    assert not found


def test_no_circle_of_modules_within_the_adapter() -> None:
    known = modules(ADAPTER)
    # `__init__` is what dbt loads; importing a module of the package does not mean it.
    inside = {name: set(imported(path)) & (known.keys() - {ADAPTER, name})
              for name, path in known.items()}  # fmt: skip
    assert sum(map(len, inside.values())) > 50
    graphlib.TopologicalSorter(inside).prepare()
