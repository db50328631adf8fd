"""The memory that reading a landing file takes has a bound."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENTRY = {
    "entity": "t",
    "kind": "extract",
    "key": ["id"],
    "columns": {"id": "bigint", "name": "string"},
    "files": [{"match": "*"}],
}
HEADER = b"id,name\n"
MEASURED = """
import resource, sys
from pathlib import Path
from sparkwap import landing
from sparkwap.landing.errors import LandingError
entry = landing.parse_entry({entry!r})
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
try:
    print(landing.look_into(Path(sys.argv[1]), entry.layouts[0], entry).rows)
except LandingError as error:
    print(error)
print(peak() - before)
"""


@pytest.mark.parametrize("shape", ["rows", "line", "bomb"])
def test_memory_has_a_bound(tmp_path: Path, shape: str) -> None:
    entry = {**ENTRY, "max_row_bytes": 4_000_000}
    path = tmp_path / ("a.csv.gz" if shape == "bomb" else "a.csv")
    chunk = b"a" * (1 << 20) if shape == "line" else b"1,aaaaaaaaaaaaa\n" * (1 << 16)
    with gzip.open(path, "wb", 1) if shape == "bomb" else path.open("wb") as file:
        file.write(HEADER)
        for _ in range(100):
            file.write(chunk)
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED.format(entry=entry), str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    told, kilobytes = ended.stdout.splitlines()
    assert told == str(100 << 16) if shape != "line" else "max_row_bytes" in told
    # The text has 100 MB.
    assert int(kilobytes) < 40_000
