"""Python models, which run in the dbt process and use the cluster through Spark Connect."""

from __future__ import annotations

import ast
import linecache
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dbt.adapters.base.meta import available
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.placement import Placement
from dbt.adapters.sparkwap.relation import is_as_of
from dbt.adapters.sparkwap.spark_errors import short_error
from dbt.adapters.sparkwap.statements import StatementGuard
from sparkwap.core.errors import SparkwapError
from sparkwap.core.node import Node, building
from sparkwap.core.redaction import redact
from sparkwap.core.sqllex import relation_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRIES = 20
ACCEPTED = "a Spark, pandas, pandas-on-Spark or Arrow frame"


class PythonModels:
    """The Python models of a command."""

    def __init__(self, runs: CommandRun, placement: Placement, statements: StatementGuard) -> None:
        self._runs = runs
        self._statements = statements
        self._command = runs.command
        self._placement = placement

    @available.parse(lambda *a, **k: "")
    def python_view(self, model: Mapping[str, Any], code: str, name: str) -> None:
        """Run a Python model, and make its frame the temporary view ``name`` for the node's SQL."""
        run = self._runs.current()
        if run is not None:
            run.trail.named(str(model["unique_id"]), named_in(code))
        session = self._command.connections.connect_session()
        session.gatekeeper.check = partial(
            self._statements.check_request, reader=str(model["unique_id"])
        )
        # PySpark annotates the classic session only.
        spark = cast("SparkSession", session)
        with building(self._node(model)):
            frame = model_frame(spark, model, code, self._command.project_root)
        frame.createOrReplaceTempView(name)

    def _node(self, model: Mapping[str, Any]) -> Node:
        """Return the context of a Python model; see :mod:`sparkwap.core.node`."""
        node_id = str(model["unique_id"])
        return Node(
            node_id=node_id,
            meta=model["config"].get("meta") or {},
            parents=tuple((model.get("depends_on") or {}).get("nodes") or ()),
            run_id=self._command.run_id,
            meta_of=self._command.manifest.meta,
            tell=partial(self._placement.tell, node_id),
            published=lambda: self._placement.published_name((model["schema"], model["alias"])),
            replay=self._command.as_of is not None,
            settings=self._command.environment,
            project=Path(self._command.project_root),
            target_folder=self._command.target_path,
        )


def model_frame(
    spark: SparkSession, model: Mapping[str, Any], code: str, project_root: str
) -> DataFrame:
    """Run a Python model and return its result as a Spark frame that is not yet computed.

    Args:
        code: The compiled code: the user's module with dbt's API appended.
        project_root: A folder to append to the import path.

    Raises:
        DbtRuntimeError: The model's own error with its file and line, or a result that is not a
            frame.
    """
    path = str(model["original_file_path"])
    # A traceback reads its source lines from this cache; the file need not exist any more.
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
    # Other adapters define the global `spark` in Python models too.
    module: dict[str, Any] = {
        "__name__": f"dbt_model_{model['name']}",
        "__file__": path,
        "spark": spark,
    }
    if project_root not in sys.path:
        sys.path.append(project_root)
    with _located(path), _active(spark):
        exec(compile(code, path, "exec"), module)
        dbt = module["dbtObj"](lambda name: _table(spark, name))
        if "model" not in module:
            raise DbtRuntimeError(f"{path}: a Python model must define `model(dbt, session)`.")
        return _as_frame(spark, module["model"](dbt, spark), path)


def named_in(code: str) -> frozenset[tuple[str, str]]:
    """Return the tables that the string constants of a Python model name.

    See :func:`sparkwap.core.sqllex.relation_names`. Compiled code also has its refs and sources.
    """
    values = (node.value for node in ast.walk(_parsed(code)) if isinstance(node, ast.Constant))
    return frozenset().union(*(relation_names(text) for text in values if isinstance(text, str)))


def _parsed(code: str) -> ast.Module:
    for _ in range(_TRIES):
        # CPython 3.11 adds up the recursion depths of all threads that parse at the same time.
        with suppress(SystemError):
            return ast.parse(code)
    return ast.parse(code)


def _table(spark: SparkSession, name: str) -> DataFrame:
    """Return the frame of ``dbt.ref()`` or ``dbt.source()``; in a replay at a snapshot."""
    return spark.sql(f"select * from {name}") if is_as_of(name) else spark.table(name)


def _as_frame(spark: SparkSession, result: Any, path: str) -> DataFrame:
    from pyspark.sql import DataFrame

    if isinstance(result, DataFrame):
        if result.sparkSession is not spark:
            raise DbtRuntimeError(
                f"{path}: model() returned a frame of another Spark session, which does not have "
                "the settings of this run. Nothing was written. Create the frame with `session`, "
                "the argument of model()."
            )
        return result
    if hasattr(result, "to_spark"):
        return result.to_spark()  # type: ignore[no-any-return]
    kind = f"{type(result).__module__}.{type(result).__name__}"
    if kind.startswith(("pandas.", "pyarrow.")) and kind.endswith((".DataFrame", ".Table")):
        return spark.createDataFrame(result)
    raise DbtRuntimeError(f"{path}: model() returned {kind}; expected {ACCEPTED}.")


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Make the node's session the active one of its thread.

    PySpark uses the active session for commands that return a frame (`localCheckpoint`), and would
    otherwise use the session of another thread.
    """
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    local = ConnectSession._active_session
    before = getattr(local, "session", None)
    local.session = spark
    try:
        yield
    finally:
        local.session = before


@contextmanager
def _located(path: str) -> Iterator[None]:
    """Turn a model's exception into one message that names its file and line."""
    try:
        yield
    except SyntaxError as error:
        raise DbtRuntimeError(f"{path}, line {error.lineno}: {error.msg}") from error
    except DbtRuntimeError:
        raise
    except Exception as error:
        own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
        where = f"{path}, line {own[-1].lineno}" if own else path
        # The line shows where the error is; redact it, because it may contain a secret.
        line = f"\n    {own[-1].line}" if own and own[-1].line else ""
        # dbt's log also shows the cause, so drop a cause that contains a secret.
        clean = redact(f"{error}{line}") == f"{error}{line}"
        kind = "" if isinstance(error, SparkwapError) else f"{type(error).__name__}: "
        raise DbtRuntimeError(f"{where}: {kind}{short_error(str(error))}{redact(line)}") from (
            error if clean else None
        )
