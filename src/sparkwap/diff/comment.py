"""The data diff as a comment for a pull request, for callers outside dbt."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sparkwap.core.dbt_cli import DBT, as_yaml
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
    """Return the data diff of a branch as Markdown.

    Calls ``dbt run-operation wap_diff`` in a process of its own, because dbt supports only one
    project per process.

    Args:
        against: The state to compare with; see `Differ.compare`.
        project_dir: The dbt project, which has the keys and the marks of personal columns.
        sample: Number of sample rows of each kind. The default is 0, because a comment leaves the
            lake; values of hidden columns are never shown.
        dbt_arguments: More arguments for dbt, such as ``["--target", "pr"]``.

    Raises:
        SparkwapError: Nothing could be compared. The text names single tables that failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "diff.md"
        arguments = {
            "branch": branch,
            "against": against,
            "format": "markdown",
            "file": str(output),
            "sample": sample,
            "limit": limit,
        }
        command = [*DBT, "--no-use-colors", "run-operation", "wap_diff"]
        command += ["--args", as_yaml(arguments), *dbt_arguments]
        ended = subprocess.run(
            [*command, "--project-dir", str(project_dir)],
            capture_output=True,
            text=True,
            check=False,
        )
        if output.exists():
            return output.read_text(encoding="utf-8")
    output_lines = (ended.stdout or ended.stderr).strip().splitlines()[-_SHOWN_LINES:]
    raise SparkwapError(
        f"The branch {branch} was not compared with {against}; nothing was changed. dbt's last "
        "lines:\n" + "\n".join(output_lines)
    )
