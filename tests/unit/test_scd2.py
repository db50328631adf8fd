"""The SQL that the macros of histories write, rendered without dbt and Spark."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest

FOLDER = Path(__file__).parents[2] / "macros" / "scd2"


class Refused(Exception):
    """What dbt's compiler errors are here."""


def refuse(message: str) -> None:
    raise Refused(message)


@pytest.fixture(scope="module")
def macros() -> Any:
    """The macros of all files, by name."""
    text = "\n".join(path.read_text() for path in sorted(FOLDER.glob("*.sql")))
    environment = jinja2.Environment(extensions=["jinja2.ext.do"])
    environment.globals |= {
        "adapter": SimpleNamespace(quote=lambda name: f"`{name}`"),
        "exceptions": SimpleNamespace(raise_compiler_error=refuse),
        "modules": SimpleNamespace(re=re),
    }
    # dbt's own `return`; what these macros return is not looked at in a render.
    environment.globals["return"] = lambda value: value
    return environment.from_string(text).module


def words(sql: str) -> str:
    return " ".join(sql.split())


def test_a_column_is_left_out_where_what_it_is_made_of_is(macros: Any) -> None:
    sql = words(macros.change_events("log", {"name": "concat(first, ' ', last)", "id": "id"}))
    assert "concat(first, ' ', last) as `name`" in sql
    assert "if(arrays_overlap(_absent, array('concat', 'first', 'last')), 'name', null)" in sql
    assert sql.endswith("from log where _kind = 'row' or (_kind = 'file' and _load = 'full')")


def test_absent_columns_are_not_looked_for_where_there_are_none(macros: Any) -> None:
    assert "_absent" not in macros.change_events("log", {"id": "id"}, partial=False)


@pytest.mark.parametrize(("expire", "sign"), [("next_start", "<"), ("day_before", "<=")])
def test_the_end_of_a_version_belongs_to_it_or_not(macros: Any, expire: str, sign: str) -> None:
    sql = words(macros.scd2_valid_at("at", "h", "began", "ended", expire))
    assert sql == f"(h.began <= at and (h.ended is null or at {sign} h.ended))"


def test_a_join_says_which_kinds_there_are(macros: Any) -> None:
    with pytest.raises(Refused, match="how is 'left'; legal values: outer, inner"):
        macros.scd2_join("id", [], how="left")
