"""The Prefect example with a real Prefect, in an environment of its own, on a real small lake.

Part of `make soak`: the environment has a hundred packages. ``SPARKWAP_PREFECT`` names the Python
of one that is there already.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.lake import Reader
from helpers.landing import make_landing_project
from helpers.project import MakeProject

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "prefect"

pytestmark = pytest.mark.skipif(
    not (os.environ.get("SOAK") or os.environ.get("SPARKWAP_PREFECT")), reason="long: make soak"
)


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment with Prefect as the example pins it."""
    given = os.environ.get("SPARKWAP_PREFECT")
    if given:
        return given
    folder = tmp_path_factory.mktemp("prefect")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    lock = str(EXAMPLE / "requirements.lock")
    install = [python, "-m", "pip", "install", "-q", "--require-hashes", "-r", lock]
    subprocess.run(install, check=True)
    return python


def test_a_run_a_retry_and_arrivals(
    make_project: MakeProject, reader: Reader, prefect: str, tmp_path: Path
) -> None:
    entry: dict[str, Any] = {
        "entity": "readings",
        "kind": "extract",
        "format": "csv",
        "key": ["id"],
        "columns": {"id": "bigint"},
        "files": [{"match": "*.csv"}],
    }
    made = make_landing_project(
        make_project, reader, "prefect", {"readings": entry}, bare=["readings"]
    )
    made.write()
    folder = made.project.folder
    # The first try of the first build dies, as of a lost connection.
    once = tmp_path / "once"
    flaky = tmp_path / "sparkwap"
    flaky.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = build ] && [ ! -e {once} ]; then touch {once}; exit 1; fi\n'
        f'exec {sys.executable} -m sparkwap.cli "$@" --profiles-dir {folder}\n'
    )
    flaky.chmod(0o755)

    def flow(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [prefect, str(EXAMPLE / "flow.py"), *arguments],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "NO_PROXY": "127.0.0.1,localhost",
                "SPARKWAP_JARS": os.environ.get("SPARKWAP_JARS", ""),
                "PROJECT": str(folder),
                "LANDING": "landing",
                "SPARKWAP": str(flaky),
                "SETTLE": "0.5",
                "RETRY_DELAY": "0.5",
                "PREFECT_HOME": str(tmp_path / "home"),
                "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
                "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "200",
                "DO_NOT_TRACK": "1",
            },
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    made.deliver("readings/load_date=2024-01-31/all.csv", "id\n1\n")
    ran = flow("once")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.rstrip().endswith("published")
    assert once.exists()
    assert "ended with code 1" in ran.stdout + ran.stderr
    assert [row["id"] for row in made.rows("raw_readings", "row")] == ["1"]

    assert flow("arrivals").stdout.rstrip().endswith("nothing new")
    made.deliver("readings/load_date=2024-02-29/all.csv", "id\n2\n")
    ran = flow("arrivals")
    assert ran.stdout.rstrip().endswith("published"), ran.stdout + ran.stderr
    assert [row["id"] for row in made.rows("raw_readings", "row")] == ["1", "2"]
