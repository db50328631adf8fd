"""The catalog's file is never opened beside SQLite: that would take its locks away."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sparkwap.erasure.file_formats import whole
from sparkwap.erasure.lake_files import LakeFiles
from sparkwap.publish.lake import Lake
from sparkwap.server import ServerConfig, catalog_properties
from sparkwap.server.catalog import prepare

ANOTHER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("insert into notes values ('theirs')")
database.close()
"""


def start_a_server(config: ServerConfig) -> None:
    prepare(config)


def read_all_files(config: ServerConfig) -> None:
    lake = Lake("lake", catalog_properties(config))
    database = LakeFiles(lake).read(str(config.layout.sqlite))
    assert whole(database).startswith(b"SQLite format 3")


@pytest.mark.parametrize("touch", [start_a_server, read_all_files])
def test_a_connection_keeps_its_locks(
    tmp_path: Path, touch: Callable[[ServerConfig], None]
) -> None:
    config = ServerConfig(lake=tmp_path / ".lake")
    config.layout.create()
    prepare(config)
    file = config.layout.sqlite
    with closing(sqlite3.connect(file, isolation_level=None)) as mine:
        mine.execute("create table notes (text)")
        touch(config)
        # Were the locks gone, it would take itself for the last one, and remove the log.
        subprocess.run([sys.executable, "-c", ANOTHER, str(file)], check=True)
        mine.execute("insert into notes values ('mine')")
        with closing(sqlite3.connect(file)) as later:
            assert later.execute("select text from notes").fetchall() == [("theirs",), ("mine",)]
            assert later.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert file.with_name("catalog.db-wal").exists()
    assert file.stat().st_mode & 0o077 == 0
