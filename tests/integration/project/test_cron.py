"""The lines of the pages for cron run their command in a checkout where nothing has run yet."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.documents import PAGES, blocks

from sparkwap import cli

LINES = [line for page in PAGES for block in blocks(page, "cron") for line in block.splitlines()]


@pytest.mark.skipif(not shutil.which("flock"), reason="the lines need flock")
@pytest.mark.parametrize("line", LINES)
def test_a_line_runs_its_command(line: str, tmp_path: Path) -> None:
    program = tmp_path / ".venv/bin/sparkwap"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$@" >> calls\n')
    program.chmod(0o755)
    (tmp_path / "logs").mkdir()  # as the pages say
    command = line.split(maxsplit=5)[5].replace("/srv/lake", str(tmp_path))
    subprocess.run(["sh", "-c", command], check=True)
    cli._parser().parse_args((tmp_path / "calls").read_text().split())
