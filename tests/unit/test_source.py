"""``sparkwap source add``: what a sample file tells, and what is written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from sparkwap.cli import main
from sparkwap.errors import ConfigError
from sparkwap.landing import LandingError, parse_entry
from sparkwap.landing.guessing import guess, read_sample, text_kind


def sample(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    data = content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def entry(path: Path, *key: str) -> dict[str, Any]:
    found = guess(read_sample(path), "things", key).entry
    parse_entry(found)
    return found


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20"], "bigint"),
        (["01", "2"], "string"),
        (["1.50", "2.25"], "decimal(18,2)"),
        (["-1.0000", "-9.0738", "12345678901234567890.5000"], "decimal(24,4)"),
        (["1.50", "20"], "double"),
        (["1", "100000000000000000000"], "decimal(38,0)"),
        (["0.25"], "double"),
        (["35.349300384521484", "-9.0738"], "double"),
        (["9.07383000000000000001", "1.5"], "string"),
        (["1.50", "99999999999999999999999999999999999999.25"], "string"),
        (["1E6"], "string"),
        (["2024-01-31"], "date"),
        (["2024-01-31 10:00:00.5", "2024-01-31T10:00:00Z"], "timestamp"),
        (["true", "FALSE"], "boolean"),
        (["NA", "1"], "string"),
        ([], "string"),
    ],
)
def test_the_type_is_the_narrowest_that_takes_all(texts: list[str], kind: str) -> None:
    assert text_kind(texts) == kind


def test_a_csv_extract(tmp_path: Path) -> None:
    path = sample(tmp_path, "p.csv.gz", "name;id;price\nA;01;1.5\nA;02;\n")
    assert entry(path) == {
        "entity": "things",
        "kind": "extract",
        "format": "csv",
        "key": ["id"],
        "columns": {"name": "string", "id": "string", "price": "double"},
        "files": [{"match": "*.csv*", "load": "full"}],
        "delimiter": ";",
    }


def test_changes_as_dms_delivers_them(tmp_path: Path) -> None:
    rows = "U,2024-01-01 00:00:00,7,x,20240101000000000000000000000000001\n"
    path = sample(tmp_path, "c.csv", f"Op,changed_at,id,note,change_seq\n{rows}{rows}")
    found = entry(path)
    assert (found["kind"], found["key"]) == ("changes", ["id"])
    assert (found["operation"], found["codes"]["D"]) == ("Op", "delete")
    assert found["sequence"] == {"changed_at": "timestamp", "change_seq": "decimal(38,0)"}
    assert found["columns"] == {"id": "bigint", "note": "string"}
    assert [f["load"] for f in found["files"]] == ["full", "changes"]


@pytest.mark.parametrize("wrapped", [True, False])
def test_debezium(tmp_path: Path, wrapped: bool) -> None:
    change = {"op": "u", "before": {"id": 1}, "after": {"id": 1, "at": "2024-01-31", "vip": True}}
    text = json.dumps({"payload": change} if wrapped else change)
    found = entry(sample(tmp_path, "d.jsonl", f"{text}\nnull\n{text}\n"))
    assert (found["format"], found["kind"], found["key"]) == ("debezium", "changes", ["id"])
    assert found["columns"] == {"id": "bigint", "at": "date", "vip": "boolean"}
    assert "files" not in found


def test_json_lines_and_documents(tmp_path: Path) -> None:
    rows = [{"id": 1, "price": 1, "tags": ["a"]}, {"id": 2, "price": 1.5, "when": None}]
    lines = sample(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)))
    document = sample(tmp_path, "b.json", json.dumps(rows, indent=1))
    assert entry(lines)["columns"] == {
        "id": "bigint", "price": "double", "tags": "string", "when": "string",
    }  # fmt: skip
    assert entry(document) == entry(lines) | {"multiline": True}


def test_parquet_knows_its_types(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    table = pa.table({"id": pa.array([1, 2], "int32"), "at": pa.array([0, 1], pa.timestamp("us"))})
    pq.write_table(table, path)
    assert entry(path)["columns"] == {"id": "int", "at": "timestamp"}


def test_what_tells_no_key_wants_one(tmp_path: Path) -> None:
    path = sample(tmp_path, "p.csv", "a,b\n1,x\n1,x\n")
    with pytest.raises(LandingError, match=r"no column looks like a key\. .*columns are a, b"):
        entry(path)
    with pytest.raises(LandingError, match="it has no column c"):
        entry(path, "a", "c")
    assert entry(path, "a", "b")["key"] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content"), [("p.csv", "a,b\n"), ("p.json", "{"), ("p.csv.gz", ""), ("p.parquet", "x")]
)
def test_no_sample_no_guess(tmp_path: Path, name: str, content: str) -> None:
    path = sample(tmp_path, name, content)
    with pytest.raises(LandingError, match="cannot serve as a sample"):
        read_sample(path)


# ---------------------------------------------------------------- the command


def add(project: Path, path: Path, *more: str) -> int:
    (project / "dbt_project.yml").write_text("name: shop\n")
    names = ["--source", "shop", "--entity", "things", "--project-dir", str(project)]
    return main(["source", "add", str(path), *names, *more])


def test_models_are_written_and_nothing_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sample(tmp_path, "p.csv", "Item No,price\n7,1.5\n8,2\n")
    assert add(tmp_path, path, "--key", "Item No") == 0
    told = capsys.readouterr().out
    assert "dbt build --select +stg_shop__things +quarantine_shop__things" in told
    raw = (tmp_path / "models/raw/shop/raw_shop__things.py").read_text()
    assert len([line for line in raw.splitlines() if line.strip()]) == 4
    document = yaml.safe_load((tmp_path / "models/raw/shop/_shop__things__models.yml").read_text())
    (model,) = document["models"]
    assert parse_entry(model["config"]["meta"]["landing"]).key == ("Item No",)
    staging = (tmp_path / "models/staging/shop/stg_shop__things.sql").read_text()
    assert "'Item No': 'bigint as item_no'," in staging
    assert "'price': 'double'," in staging

    assert add(tmp_path, path) == 1
    assert "there already. Nothing was written" in capsys.readouterr().err


def test_names_are_those_of_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample(tmp_path, "p.csv", "id\n7\n")
    assert add(tmp_path, path, "--source", "Shop 1") == 1
    assert "--source is 'Shop 1'" in capsys.readouterr().err
    (tmp_path / "dbt_project.yml").unlink()
    from sparkwap.source import add as add_source

    with pytest.raises(ConfigError, match="is no dbt project"):
        add_source(path, "shop", "things", [], tmp_path)
