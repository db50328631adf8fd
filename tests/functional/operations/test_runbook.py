"""The commands of docs/deploy/runbook.md, as the page has them, on lakes with a real server.

What readers see is asked of the catalog and the files, by PyIceberg.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.catalogs import PostgresSource
from helpers.documents import ROOT
from helpers.lake import Reader
from helpers.postgres import running_postgres
from helpers.project import Outcome, Project

from sparkwap import server

PAGE = ROOT / "docs/deploy/runbook.md"
SLEEP = "SLEEP_MS"
FILES = {
    "models/orders.sql": """
        {{ config(materialized='table') }}
        select id, id * {{ var('v') }} as amount {{ ", 'x' as extra" if var('extra', false) }}
        from range(1, 4)
    """,
    "models/seen.sql": """
        {{ config(materialized='incremental') }} select {{ var('v') }} as v
    """,
    "models/newest.sql": """
        {{ config(materialized='view') }} select max(amount) as amount from {{ ref('orders') }}
    """,
    "models/last.sql": f"""
        {{{{ config(materialized='table') }}}}
        select max(amount) as amount from {{{{ ref('orders') }}}}
        where reflect('java.lang.Thread', 'sleep', {{{{ env_var('{SLEEP}', '0') }}}}L) <> ''
    """,
    "models/properties.yml": """
        models:
          - name: orders
            columns:
              - name: id
                data_tests: [unique]
              - name: amount
                data_tests: [{accepted_values: {arguments: {values: [1, 2, 3, 4, 6, 8, 9, 12]}}}]
    """,
}


def steps(heading: str, page: Path = PAGE) -> list[str]:
    """The shell blocks of a section of the page."""
    section = page.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


@dataclass
class Shop:
    """A project with a lake of its own, and its reader."""

    project: Project
    reader: Reader
    environment: dict[str, str]

    @property
    def lake(self) -> Path:
        return self.project.folder / ".lake"

    def run(self, script: str, **names: str) -> str:
        """Run a block of the page in the project's folder; keywords stand for <names>."""
        for name, value in names.items():
            script = script.replace(f"<{name}>", value)
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", script],
            cwd=self.project.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    def build(self, v: int, **variables: Any) -> Outcome:
        return self.project.dbt("build", v=v, **variables)

    def seen(self) -> dict[str, Any]:
        """All that readers of the tables and views see."""
        return {name: look.seen() for name, look in self.reader.look("shop").items()}

    def amounts(self) -> tuple[list[int], list[int], list[int]]:
        tables = self.reader.look("shop")
        columns = (("orders", "amount"), ("seen", "v"), ("last", "amount"))
        orders, seen, last = (sorted(tables[name].values(column)) for name, column in columns)
        return orders, seen, last


def environment(project: Project, **more: str) -> dict[str, str]:
    folder = project.folder
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DBT_PROFILES_DIR": str(folder),
        "LAKE": str(folder / ".lake"),
        "BACKUP": str(folder / "backup"),
        "MOVED": str(folder / "moved"),
        **more,
    }


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A project with two publishes, the last one with ``v`` 2, and a branch that was rejected."""
    lake = tmp_path / ".lake"
    output = {"type": "sparkwap", "lake": str(lake), "memory": "768m"}
    project = Project(tmp_path, "shop", output, {"v": 1}).write(FILES)
    shop = Shop(project, Reader(lake), environment(project))
    shop.build(1).succeeded()
    shop.build(2).succeeded()
    yield shop
    server.stop(lake)


def test_a_backup_that_was_taken_while_a_run_is_at_work_is_restored(shop: Shop) -> None:
    back_up, _, check = steps("Back up")
    restore, _, after = steps("Restore")
    before = shop.seen()
    run = shop.project.start("build", environment={SLEEP: "15000"}, v=3)
    branch = open_branch(shop, run)
    backup = shop.project.folder / "backup"
    half = backup / "warehouse/shop/half"
    half.parent.mkdir(parents=True)
    (backup / "begun").touch()
    half.write_text("the last file of an interrupted backup")
    shop.run(back_up)
    assert not half.exists()
    assert run.poll() is None, "the run is still at work"
    assert shop.run(check) == ""
    assert run.wait() == 0, shop.project.errors.read_text()
    assert shop.amounts() == ([3, 6, 9], [1, 2, 3], [9])

    shutil.rmtree(shop.lake / "warehouse")
    (shop.lake / "catalog.db").unlink()
    shop.run(restore)
    assert shop.seen() == before
    status, discard, build = after.splitlines()
    assert branch in shop.run(status)
    assert "Discarded" in shop.run(discard, branch=branch)
    assert "Published 4 tables" in shop.run(f"{build} --vars '{{v: 4}}'")
    assert shop.amounts() == ([4, 8, 12], [1, 2, 4], [12])

    put_back, read_all = steps("Files are lost")
    tasks = shop.reader.catalog.load_table(("shop", "seen")).scan().plan_files()
    files = [Path("/" + task.file.file_path.removeprefix("file:").lstrip("/")) for task in tasks]
    kept = {one.name for one in backup.rglob("*.parquet")}
    lost = next(one for one in files if one.name in kept)
    lost.unlink()
    with pytest.raises(AssertionError, match=lost.name):
        shop.run(read_all)
    shop.run(put_back)
    assert "shop.seen 3" in shop.run(read_all)

    (move,) = steps("Move")
    shop.run(move)
    assert shop.lake.is_symlink()
    shop.build(1).succeeded()
    assert shop.amounts() == ([1, 2, 3], [1, 1, 2, 4], [3])


def test_a_catalog_in_postgresql_is_backed_up_and_restored(tmp_path: Path) -> None:
    _, back_up, _ = steps("Back up")
    _, restore, after = steps("Restore")
    lake = tmp_path / ".lake"
    with running_postgres() as database:
        output = {"type": "sparkwap", "lake": str(lake), "memory": "768m"}
        project = Project(tmp_path, "shop", {**output, "catalog_uri": database.uri}, {"v": 1})
        source = PostgresSource(database.uri, f"file://{lake}/warehouse", {})
        libpq = database.uri.replace("+psycopg2", "")
        shop = Shop(
            project.write(FILES), Reader(lake, source), environment(project, DATABASE=libpq)
        )
        try:
            shop.build(1).succeeded()
            shop.build(3).succeeded()
            before = shop.seen()
            shop.run(back_up)
            shop.build(4).succeeded()
            shutil.rmtree(lake / "warehouse")
            shop.run(restore)
            assert shop.seen() == before
            assert "No audit branch is open" in shop.run(after.splitlines()[0])
            shop.build(4).succeeded()
            assert shop.amounts() == ([4, 8, 12], [1, 3, 4], [12])
        finally:
            server.stop(lake)


def open_branch(shop: Shop, run: subprocess.Popen[bytes]) -> str:
    """Wait until a run has built on its branch; return the branch."""
    while True:
        assert run.poll() is None, shop.project.errors.read_text()
        table = shop.reader.metadata("shop", "orders")
        heads = {name: ref["snapshot-id"] for name, ref in table["refs"].items()}
        for name, head in heads.items():
            if table["refs"][name]["type"] == "branch" and head != heads["main"]:
                return name
        time.sleep(0.1)
