"""The comment for a pull request, for whoever is no part of a dbt command."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sparkwap.core.errors import SparkwapError
from sparkwap.diff.render import LIMIT

_SHOWN_LINES = 15


def comment(
    branch: str,
    *,
    against: str = "main",
    project_dir: Path | str = ".",
    sample: int = 0,
    limit: int = LIMIT,
    dbt_arguments: Sequence[str] = (),
) -> str:
    """What a branch changes, as Markdown.

    Calls ``dbt run-operation wap_diff`` in a process of its own, as dbt keeps one project per
    process.

    Args:
        branch: The audit branch.
        against: What to compare with; see `Differ.compare`.
        project_dir: The dbt project, which has the keys and the marks of personal columns.
        sample: Rows of each kind to show of a table. None by default, as a comment leaves the
            lake; hidden columns are never shown.
        limit: Characters at most.
        dbt_arguments: More of dbt's own, such as ``["--target", "pr"]``.

    Raises:
        SparkwapError: Nothing could be compared. Tables that failed alone are named in the text.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "diff.md"
        arguments = {
            "branch": branch,
            "against": against,
            "format": "markdown",
            "output": str(output),
            "sample": sample,
            "limit": limit,
        }
        code = "from dbt.cli.main import cli; cli()"
        command = [sys.executable, "-c", code, "--no-use-colors", "run-operation", "wap_diff"]
        command += ["--args", json.dumps(arguments), *dbt_arguments]
        ended = subprocess.run(
            [*command, "--project-dir", str(project_dir)],
            capture_output=True,
            text=True,
            check=False,
        )
        if output.exists():
            return output.read_text(encoding="utf-8")
    said = "\n".join((ended.stdout or ended.stderr).strip().splitlines()[-_SHOWN_LINES:])
    raise SparkwapError(
        f"The branch {branch} was not compared with {against}; nothing was changed. dbt said:\n"
        f"{said}"
    )
