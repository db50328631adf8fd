"""What the benchmarks share: a server of their own, and how figures are told."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pyhive import hive

from sparkwap.gate.settings import Upkeep
from sparkwap.maintenance.maintainer import Maintainer
from sparkwap.publish.lake import Lake
from sparkwap.server import Endpoint, ServerConfig, ensure, stop

MEMORY = "4g"
NO_CACHE = {"set:hiveconf:spark.sql.catalog.lake.cache-enabled": "false"}


class Session:
    """A Thrift session that reads the present state of tables.

    Args:
        port: The server's port.
    """

    def __init__(self, port: int) -> None:
        self._connection = hive.connect("127.0.0.1", port, auth="NONE", configuration=NO_CACHE)

    def sql(self, statement: str) -> Sequence[Sequence[Any]]:
        """Return the rows of a statement."""
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def serving() -> Iterator[tuple[ServerConfig, Endpoint]]:
    """A server on an empty lake; it is gone at the end, and so is the lake's folder."""
    home = Path(tempfile.mkdtemp(prefix="sparkwap-bench-"))
    config = ServerConfig(lake=home / ".lake", memory=MEMORY)
    try:
        yield config, ensure(config, lambda line: print(f"  {line}", file=sys.stderr))
    finally:
        stop(config.lake)
        shutil.rmtree(home, ignore_errors=True)


def write_project(folder: Path, files: Mapping[str, str]) -> Path:
    """Write the files of a project, by their paths in its folder; the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def dbt_command(project: Path, *arguments: str) -> dict[str, Any]:
    """The arguments of `subprocess` that call dbt in a project."""
    return {
        "args": [sys.executable, "-c", "from dbt.cli.main import cli; cli()", *arguments],
        "cwd": project,
        "env": {**os.environ, "DBT_PROFILES_DIR": str(project)},
    }


def dbt(project: Path, *arguments: str) -> None:
    """Run a dbt command, without its output if it succeeds."""
    command = dbt_command(project, "--quiet", *arguments)
    done = subprocess.run(**command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(
            f"{project}: dbt {' '.join(arguments)} failed\n{done.stdout}\n{done.stderr}"
        )


def counted(session: Session, table: str) -> tuple[int, int]:
    """The numbers of data files and delete files."""
    data = session.sql(f"select count(*) from {table}.data_files")[0][0]
    return int(data), int(session.sql(f"select count(*) from {table}.delete_files")[0][0])


def maintain(lake: Lake, session: Session, of: str) -> None:
    """Compact a table, or all tables of a schema, and remove their old snapshots."""
    work = Maintainer(lake, session.sql, run_id=str(uuid.uuid4()), upkeep=Upkeep())
    report = work.maintain([of], everything=True)
    if report.failed:
        raise RuntimeError("; ".join(report.failed))


def spread(ratios: Sequence[float]) -> str:
    """Least, median and greatest, the median in bold."""
    return f"{min(ratios):.2f} - **{statistics.median(ratios):.2f}** - {max(ratios):.2f}"


def machine() -> str:
    """The machine in a line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}"
    )
