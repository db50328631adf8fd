"""What every dbt command imports, also one that reaches no catalog and no server."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.smoke

HEAVY = (
    "grpc", "numpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "sqlalchemy",
    "sparkwap.ledger.ledger", "sparkwap.publish", "sparkwap.runs.run",
)  # fmt: skip


def test_the_adapter_imports_nothing_that_reaches_a_catalog() -> None:
    code = (
        "import sys, dbt.cli.main, dbt.adapters.spark; before = set(sys.modules)\n"
        "import dbt.adapters.sparkwap\n"
        f"print(*sorted(set({HEAVY!r}) & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_adapter_needs_neither_spark_nor_what_comes_with_it() -> None:
    code = (
        "import sys\n"
        "for name in ('pyspark', 'pandas', 'grpc', 'py4j'): sys.modules[name] = None\n"
        "import dbt.adapters.sparkwap\n"
        "from sparkwap.publish.lake import Lake\n"
        "from sparkwap.cli import _parser\n"
        "_parser()\n"
        "from sparkwap.runs import operations, rebase_loop, run\n"
        "from dbt.adapters.sparkwap import diffing, erasing, probing\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
