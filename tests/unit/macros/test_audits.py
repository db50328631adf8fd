"""The generic audits: what their YAML says of their arguments, and queries run on DuckDB."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import jinja2
import pytest
import yaml
from helpers.documents import ROOT

AUDITS = ROOT / "macros/audits"
SIGNATURE = re.compile(r"{%-? *test (\w+)\((.*?)\) *-?%}", re.DOTALL)


def test_the_yaml_of_the_audits_has_exactly_their_arguments() -> None:
    found = {
        f"test_{name}": [one.partition("=")[0].strip() for one in arguments.split(",")]
        for path in AUDITS.glob("*.sql")
        for name, arguments in SIGNATURE.findall(path.read_text())
    }
    described = {
        macro["name"]: [one["name"] for one in macro["arguments"]]
        for path in AUDITS.glob("*.yml")
        for macro in yaml.safe_load(path.read_text())["macros"]
        if macro["name"].startswith("test_")
    }
    assert len(found) >= len(list(AUDITS.glob("*.sql")))
    assert described == found, "correct the YAML files in macros/audits"


LOADS = [
    # (batch, load date, kind, load, rows)
    (1, "2024-01-31", "file", "full", 100),
    (2, "2024-02-29", "file", "full", 50),
    (2, "2024-02-29", "bad", "full", None),
    (3, "2024-03-31", "file", "changes", 5),
]
BAD = (3, "2024-03-31", "bad", "changes", None)


def audit(name: str, up_to: int | None, *more: object, **arguments: Any) -> list[str]:
    """Return the load dates of the rows that an audit of a log finds.

    Args:
        up_to: The last load that is published; None before the first publish.
        more: Rows that the log has beside those of ``LOADS``.
    """
    paths = [AUDITS / f"{name}.sql", *(AUDITS.parent / "landing").glob("un*.sql")]
    paths.append(AUDITS.parent / "landing" / "open_bad_rows.sql")
    text = "\n".join(path.read_text() for path in paths).replace("{% test ", "{% macro ")
    text = text.replace("endtest", "endmacro").replace("left anti join", "anti join")
    given = {
        "execute": True,
        "landing_entry": lambda _: {},
        "wap_published": lambda _: None if up_to is None else "published",
    }
    template = jinja2.Environment(extensions=["jinja2.ext.do"]).from_string(text, given)
    relation = type("Relation", (), {"__str__": lambda _: "log"})()
    with duckdb.connect() as lake:
        lake.execute(
            "create table log (_batch int, _load_date date, _kind text, _load text, "
            "_file_rows int, _file_path text, _row int default 1, _error text)"
        )
        lake.executemany(
            "insert into log (_batch, _load_date, _kind, _load, _file_rows) values (?, ?, ?, ?, ?)",
            [*LOADS, *more],
        )
        lake.execute(f"create table published as from log where _batch <= {up_to or 0}")
        found = lake.sql(str(getattr(template.module, name)(relation, **arguments)))
        return sorted(str(date) for (date,) in found.select("_load_date").fetchall())


@pytest.mark.parametrize(
    ("name", "arguments"), [("quarantine_below", {}), ("full_load_drop", {"max_drop": 0.2})]
)
def test_a_load_is_judged_until_it_is_published(name: str, arguments: dict[str, Any]) -> None:
    # A branch that nobody has published, and goes on, may have several loads.
    for up_to in (None, 1):
        assert audit(name, up_to, **arguments) == ["2024-02-29"], f"published up to {up_to}"
    for up_to in (2, 3):
        assert audit(name, up_to, **arguments) == [], f"published up to {up_to}"


def test_the_threshold_is_that_of_each_load() -> None:
    assert audit("quarantine_below", None, BAD, threshold=1) == []
    assert audit("quarantine_below", None, BAD, threshold=0.1) == ["2024-03-31"]
