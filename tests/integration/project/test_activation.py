"""``activate`` names the profile's folder to dbt, and ``deactivate`` takes the name back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts/activation"
OLD = (
    '\n# sparkwap: where dbt finds the profile\nexport DBT_PROFILES_DIR="${DBT_PROFILES_DIR:-/x}"\n'
)


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("activation") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    activate = folder / "bin/activate"
    # As an earlier version has left it.
    activate.write_text(activate.read_text() + OLD)
    for _ in range(2):
        subprocess.run([SCRIPT, folder, "/p q/profiles"], check=True)
    return folder


@pytest.mark.parametrize(
    ("before", "within"), [(None, "/p q/profiles"), ("", "/p q/profiles"), ("/own", "/own")]
)
@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_the_environment_is_left_as_it_was(
    venv: Path, shell: str, before: str | None, within: str
) -> None:
    show = 'echo "[${DBT_PROFILES_DIR-unset}]"'
    commands = f". '{venv}/bin/activate'; {show}; deactivate; {show}; . '{venv}/bin/activate'"
    environment = {"PATH": "/usr/bin:/bin"}
    environment |= {} if before is None else {"DBT_PROFILES_DIR": before}
    done = subprocess.run(
        [shell, "-c", f"{commands}; {show}"], env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"[{within}]", f"[{before or 'unset'}]", f"[{within}]"]
    assert done.stderr == ""
