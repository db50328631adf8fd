"""A Python model's errors name its file and line."""

from __future__ import annotations

import ast
import threading
import traceback
from types import SimpleNamespace
from typing import Any

import pytest
from dbt_common.exceptions import DbtRuntimeError
from pyspark.sql.connect import proto

from dbt.adapters.sparkwap import python_models
from dbt.adapters.sparkwap.python_models import model_frame, named_in
from dbt.adapters.sparkwap.statements import AtWork, StatementGuard
from sparkwap.runs.trail import Trail

DBT = "\n\nclass dbtObj:\n    def __init__(self, load):\n        self.ref = load\n"


class Spark:
    def table(self, name: str) -> str:
        return name

    def sql(self, query: str) -> str:
        return f"({query})"


def run(code: str) -> Any:
    model = {"name": "m", "original_file_path": "models/m.py"}
    return model_frame(Spark(), model, code + DBT, "/nowhere")  # type: ignore[arg-type]


def test_a_parse_is_repeated_after_a_system_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CPython 3.11 raises this error if several threads parse at the same time."""
    broken = iter(range(3))

    def parsed(code: str) -> ast.Module:
        if next(broken, None) is not None:
            raise SystemError("AST constructor recursion depth mismatch (before=96, after=93)")
        return ast.parse(code)

    # Not in the module `ast` itself, because pytest uses it too.
    seen = SimpleNamespace(parse=parsed, walk=ast.walk, Constant=ast.Constant)
    monkeypatch.setattr(python_models, "ast", seen)
    assert ("shop", "orders") in named_in("x = 'select * from shop.orders'")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def model(dbt, session):\n    x = 1\n    return 1 / 0\n", "models/m.py, line 3: Zero"),
        ("def model(dbt, session)\n    return 1\n", "models/m.py, line 1: expected ':'"),
        ("import no_such_module\n", "models/m.py, line 1: ModuleNotFoundError"),
        ("x = 1\n", "models/m.py: a Python model must define `model("),
        ("def model(dbt, session):\n    return 1\n", "model() returned builtins.int"),
    ],
)
def test_errors_name_file_and_line(code: str, told: str) -> None:
    with pytest.raises(DbtRuntimeError) as error:
        run(code)
    assert told in str(error.value)


def test_an_error_shows_its_line_without_secrets() -> None:
    code = "def model(dbt, session):\n    raise ValueError('postgresql://me:a%40b@db/x', 'no')\n"
    with pytest.raises(DbtRuntimeError) as error:
        run(code)
    assert "raise ValueError('postgresql://me:***@db/x', 'no')" in str(error.value)
    assert "a%40b" not in "".join(traceback.format_exception(error.value))


def test_a_ref_is_a_table_and_in_a_replay_a_table_at_a_snapshot() -> None:
    code = "def model(dbt, session):\n    raise ValueError(dbt.ref('{}'))\n"
    for name, read in (
        ("shop.orders", "shop.orders"),
        ("shop.orders version as of 7", r"\(select \* from shop.orders version as of 7\)"),
    ):
        with pytest.raises(DbtRuntimeError, match=f"ValueError: {read}"):
            run(code.format(name))


def test_an_error_shows_its_line() -> None:
    with pytest.raises(DbtRuntimeError, match="raise ValueError"):
        run("def model(dbt, session):\n    raise ValueError('no')\n")


def test_reads_of_a_model_in_its_own_threads_are_recorded() -> None:
    trail = Trail()
    statements = object.__new__(StatementGuard)
    run = SimpleNamespace(trail=trail, settings=SimpleNamespace(guard=False), main=None)
    runs: Any = SimpleNamespace(active=run, closed=None)
    statements._runs, statements.at_work = runs, AtWork()
    table = proto.Read(named_table=proto.Read.NamedTable(unparsed_identifier="lake.s.t"))
    request = proto.ExecutePlanRequest(plan=proto.Plan(root=proto.Relation(read=table)))
    thread = threading.Thread(target=statements.check_request, args=(request, "model.p.m"))
    thread.start()
    thread.join()
    assert ("s", "t") in trail.naming["model.p.m"].relations
