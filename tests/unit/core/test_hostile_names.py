"""Hostile names and values stay one identifier or one literal in all generated SQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt.adapters.sparkwap.column import SparkWapColumn
from dbt.adapters.sparkwap.relation import SparkWapRelation
from dbt.adapters.sparkwap.sql_helpers import seed_sql
from sparkwap.cdc import event_sql as cdc_sql
from sparkwap.core import names, sqltext
from sparkwap.core.errors import ConfigError
from sparkwap.gate.settings import GateSettings
from sparkwap.landing import drift, log, parse_entry
from sparkwap.landing import row_sql as landing_sql
from sparkwap.server import ServerConfig
from sparkwap.server.defaults import merged, render_properties

HOSTILE = [
    "a`b",
    "`a`; drop table t; `b`",
    "``",
    "`",
    "a``b`",
    "a'b",
    "a\\",
    "\\'; drop table t; --",
    'a"b',
    "a;b",
    "a.b",
    "a -- b",
    "a /* b",
    "a\nb",
    "a\x00b",
    "a b",
    "ünïcode😀",
    "\u2028",
    "${env:HOME}",
    "{{ 1 }}",
    "%s %(a)s",
    "?",
    ":name",
    "$(rm -rf /)",
    "x" * 500,
]
IDENTIFIER = re.compile(r"`((?:[^`]|``)+)`")
LITERAL = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)


def read_identifier(text: str) -> str:
    """The single identifier of a text, as Spark reads it."""
    match = IDENTIFIER.fullmatch(text)
    assert match is not None, f"{text!r} is no single identifier"
    return match[1].replace("``", "`")


def read_literal(text: str) -> str:
    match = LITERAL.fullmatch(text)
    assert match is not None, f"{text!r} is no single literal"
    return re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL)


@pytest.mark.parametrize("name", HOSTILE)
def test_names(name: str) -> None:
    assert read_identifier(sqltext.quote(name)) == name
    assert read_identifier(cdc_sql.quote(name)) == name
    assert read_identifier(SparkWapColumn(column=name, dtype="string").quoted) == name
    assert read_identifier(landing_sql.own(name).removeprefix("_own.")) == name


@given(st.text(min_size=1))
def test_any_name_and_any_text(text: str) -> None:
    assert read_identifier(sqltext.quote(text)) == text
    assert read_literal(sqltext.literal(text)) == text


@pytest.mark.parametrize("name", HOSTILE)
def test_relations(name: str) -> None:
    rendered = SparkWapRelation.create(schema=name, identifier="t").render()
    schema, table = rendered[: -len(".t")], rendered[-len(".t") :]
    assert table == ".t"
    rendered = SparkWapRelation.create(schema="s", identifier=name).render()
    for part in (schema, rendered.removeprefix("s.")):
        # What is an identifier in quotes already stays as it is.
        if part != name:
            assert read_identifier(part) == name
        else:
            assert re.fullmatch(r"\w+", part, re.ASCII) or IDENTIFIER.fullmatch(part)


def test_plain_names_stay_plain() -> None:
    assert SparkWapRelation.create(schema="s", identifier="t_1").render() == "s.t_1"


@pytest.mark.parametrize("name", HOSTILE)
def test_seeds(name: str) -> None:
    sql = seed_sql([(name, "string")], [[name]])
    head, _, rest = sql.removeprefix("select cast(c0 as string) as ").partition(" from (\n")
    assert read_identifier(head) == name
    text = rest.removeprefix("select inline(from_json(").removesuffix(
        ", 'array<struct<c0: string>>'))\n)"
    )
    read_literal(text)


@pytest.mark.parametrize("name", [n for n in HOSTILE if n.isprintable() and len(n) < 256])
def test_columns_of_landing_files(name: str) -> None:
    entry = parse_entry(
        {
            "entity": "t",
            "kind": "changes",
            "key": ["id"],
            "columns": {"id": "int", name: "int"},
            "sequence": {"seq": "int"},
            "event_time": "at",
            "operation": "op",
            "codes": {name: "insert"},
            "files": [{"match": "*", "load": "changes"}],
        }
    )
    schema = log.schema([name, "id"], entry)
    assert schema.startswith(f"{sqltext.quote(name)} string, `id` string, ")
    fault = landing_sql.fault(entry, entry.layouts[0], True, ["id", name])
    # Without all quoted parts, nothing of the name is left.
    bare = re.sub(r"`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'", "", fault, flags=re.DOTALL)
    assert re.fullmatch(r"[\w\s().<>=,\[\]\"]*", bare, re.ASCII), bare
    operation = landing_sql.operation(entry.layouts[0], True)
    assert read_literal(operation.removeprefix("case _code when ").partition(" then")[0]) == name
    mapped = drift.map_columns(entry, entry.layouts[0], ("id", name, "seq", "op"))
    assert mapped.sources[name] == (name,)


@pytest.mark.parametrize(
    "name", [*HOSTILE, "main", "MAIN", "a__b", "wap_base_x", "é", "A", "1a", "a-b"]
)
def test_branches_have_plain_names_or_none(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        GateSettings.from_vars({"wap_branch": name})
    assert "\n  wap_branch:" in str(error.value)
    assert names.branch_problem(name) is not None


@pytest.mark.parametrize("end", ["\n", "\r\n", " "])
def test_settings_of_the_server_stay_one_setting(tmp_path: Path, end: str) -> None:
    value = f"x{end}spark.driver.bindAddress 0.0.0.0"
    config = ServerConfig(tmp_path, spark_conf={"spark.a": value, "spark.b": "c:\\u0041\\n"})
    text = render_properties(merged(config, 1, 2, "token"))
    keys = [line.partition(" ")[0] for line in text.splitlines()]
    assert keys.count("spark.driver.bindAddress") == 1
    assert all(key.startswith("spark.") for key in keys)
    assert "spark.b c:\\\\u0041\\\\n" in text.splitlines()
    with pytest.raises(ConfigError, match="keys must begin with"):
        ServerConfig(tmp_path, spark_conf={f"spark.a{end}spark.ui.enabled": "true"})
