"""The Python that the command uses, and the stored rows that it reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.publish.lake import Lake
from sparkwap.report import command

from .conftest import IDS, NOW, VOLUME


def test_without_elementary_the_error_has_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(command.PYTHON, raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'dbt-sparkwap\[elementary\]'"):
        command.find_python(None)
    with pytest.raises(ConfigError, match="There is no /nowhere/python"):
        command.find_python(Path("/nowhere/python"))
    monkeypatch.setenv(command.PYTHON, sys.executable)
    assert command.find_python(None) == Path(sys.executable)


def test_stored_rows_are_read_only_on_request(tmp_path: Path) -> None:
    import pyarrow as pa

    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"{tmp_path}/w"}
    lake = Lake("lake", properties)
    lake.ensure_schema("audit__b", "b")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    lake.catalog.create_table(("audit__b", "ids"), rows.schema).append(rows)
    kept: Sequence[dict[str, Any]] = [
        {
            "resource_type": "failures",
            "node_id": key,
            "schema": "audit",
            "name": name,
            "branch": "b",
            "verdict": "held",
            "built_at": NOW,
        }
        for key, name in ((IDS, "ids"), (VOLUME, "discarded"))
    ]
    assert command.stored_rows(lake, kept, 0) == {}
    assert command.stored_rows(lake, kept, 2) == {IDS: [{"id": 1}, {"id": 2}]}
    lake.close()
