"""Landing files with hostile names, columns and rows: nothing of them is taken for SQL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from helpers.landing import make_landing_project

if TYPE_CHECKING:
    from helpers.lake import Reader
    from helpers.project import MakeProject

NAMES = (
    'it\'s "a" `b`; drop table t.csv',
    "100%25 {a,b} [c] *?+ \\ $x.csv",
    "ünïcode😀 ${env_HOME}.csv",
    "x" * 200 + ".csv",
)
COLUMNS = (
    "x` string, `y",
    "it's",
    'say "hi"; drop table t',
    "back\\slash",
    "a-- b /* c",
    "😀 {{ 1 }}",
    "100% ${x}",
    "${env:HOME} ${spark.app.name}",
)
CSV: dict[str, Any] = {
    "entity": "odd",
    "kind": "extract",
    "format": "csv",
    "key": ["id"],
    "columns": {"id": "bigint", "na`me": "string"},
    "files": [{"match": "*.csv"}],
}
LINES: dict[str, Any] = {
    "entity": "lines",
    "kind": "extract",
    "format": "json",
    "key": ["id"],
    "columns": {"id": "bigint", "name": "string"},
    "files": [{"match": "*.jsonl"}],
    "threshold": 0.9,
}
DEEP = 3000
ROWS = (
    '{"id": 1, "name": "a\\u0000b"}',
    '{"id": 2, "name": ' + "[" * DEEP + "]" * DEEP + "}",
    "[" * DEEP,
    '{"id": 3, "name": "' + "x" * 2_000_000 + '"}',
    '{"id": "4; drop table t", "name": ""}',
    '{"id": 5, "name": "\x00"}',
    '{"id": 1e400, "name": "big"}',
    '{"id": 6, "name": "\'; drop table t; --"}',
)


def quoted(values: tuple[str, ...]) -> str:
    return ",".join('"' + value.replace('"', '""') + '"' for value in values)


def test_names_columns_and_rows(make_project: MakeProject, reader: Reader) -> None:
    made = make_landing_project(
        make_project, reader, "hostile", {"odd": CSV, "lines": LINES}, bare=("odd", "lines")
    )
    for number, name in enumerate(NAMES):
        content = f'\ufeffid,na`me\n{number},"it\'s; ""{number}"""\n'
        made.deliver(f"odd/load_date=2024-01-01/{name}", content)
    made.deliver("lines/load_date=2024-01-01/rows.jsonl", "\n".join(ROWS) + "\n")
    made.build("--exclude", "cdc_lines").succeeded()
    files = {row["_file_path"] for row in made.rows("raw_odd", "file")}
    assert files == {f"odd/load_date=2024-01-01/{name}" for name in NAMES}
    found = {(row["id"], row["na`me"], row["_file_path"]) for row in made.rows("raw_odd", "row")}
    assert found == {
        (str(n), f'it\'s; "{n}"', f"odd/load_date=2024-01-01/{name}")
        for n, name in enumerate(NAMES)
    }
    good = {row["id"]: row["name"] for row in made.rows("raw_lines", "row")}
    assert good["1"] == "a\x00b"
    assert good["3"] == "x" * 2_000_000
    assert good["6"] == "'; drop table t; --"
    bad = {row["_row"]: row["_error"] for row in made.rows("raw_lines", "bad")}
    assert {3, 5} <= set(bad)
    assert bad[5] == "id is not a bigint: 4; drop table t"
    # Each row is in the one or the other.
    assert len(made.rows("raw_lines", "row")) + len(bad) == len(ROWS)

    # New columns, by which the table is altered.
    values = tuple(f"value {n}" for n in range(len(COLUMNS)))
    header = quoted(("id", "na`me", *COLUMNS))
    made.deliver(
        "odd/load_date=2024-02-01/new.csv", f"{header}\n{quoted(('9', 'nine', *values))}\n"
    )
    made.build("--select", "raw_odd+").succeeded()
    for name in ("raw_odd", "cdc_odd"):
        (row,) = (row for row in made.rows(name) if row["id"] == "9")
        assert {column: row[column] for column in COLUMNS} == dict(
            zip(COLUMNS, values, strict=True)
        )


def test_names_in_the_yaml_of_a_model(make_project: MakeProject, reader: Reader) -> None:
    odd, text = "a`b'; drop ${x}", "it's `so` \\ \"done\"; --\n'); drop table t ${env:HOME} ${x}"
    sql = f"""
        {{{{ config(materialized='table', tblproperties={json.dumps({"my.text": text})},
                    persist_docs={{'relation': true, 'columns': true}}) }}}}
        select 1 as id, 2 as `{odd.replace("`", "``")}`
    """
    columns = [{"name": odd, "quote": True, "description": text}]
    model = {"name": "odd", "description": text, "columns": columns}
    project = make_project(
        "quoted",
        {"models/odd.sql": sql, "models/odd.yml": json.dumps({"models": [model]})},
    )
    project.dbt("build").succeeded()
    look = reader.table(project.schema, "odd")
    assert look.columns == ("id", odd)
    document = reader.metadata(project.schema, "odd")
    assert document["properties"]["my.text"] == text
    assert document["properties"]["comment"] == text
    assert document["schemas"][-1]["fields"][1]["doc"] == text
