"""``sparkwap source add``: the guesses from sample files, and the written models."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from sparkwap.cli import main
from sparkwap.core.errors import ConfigError
from sparkwap.landing import LandingError, parse_entry
from sparkwap.landing.guessing import SourceAnswers, guess
from sparkwap.landing.landing_files import layout_of
from sparkwap.landing.samples import read_samples
from sparkwap.landing.text_types import text_kind


def sample(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    data = content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def entry(*paths: Path, key: tuple[str, ...] = (), **said: str) -> dict[str, Any]:
    found = guess(read_samples(paths), "things", SourceAnswers(key, **said)).entry
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
def test_the_type_is_the_narrowest_for_all_texts(texts: list[str], kind: str) -> None:
    assert text_kind(texts) == kind


def test_a_csv_extract(tmp_path: Path) -> None:
    path = sample(tmp_path, "p.csv.gz", "name;id;price\nA;01;1.5\nA;02;\n")
    assert entry(path) == {
        "entity": "things",
        "kind": "extract",
        "format": "csv",
        "key": ["id"],
        "columns": {"name": "string", "id": "string", "price": "double"},
        "files": [{"match": "*.csv.gz", "load": "full"}],
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


def test_files_without_a_key_need_the_option(tmp_path: Path) -> None:
    path = sample(tmp_path, "p.csv", "a,b\n1,x\n1,x\n")
    with pytest.raises(LandingError, match=r"no column looks like a key\. .*columns are a, b"):
        entry(path)
    with pytest.raises(LandingError, match="it has no column c"):
        entry(path, key=("a", "c"))
    assert entry(path, key=("a", "b"))["key"] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("p.csv", "a,b\n"), ("p.json", "{"), ("p.csv.gz", ""), ("p.parquet", "x"),
     ("p.csv", "id,v,v\n1,2,3\n")],
)  # fmt: skip
def test_an_invalid_sample_gives_no_guess(tmp_path: Path, name: str, content: str) -> None:
    path = sample(tmp_path, name, content)
    with pytest.raises(LandingError, match="cannot be used as a sample"):
        read_samples([path])


# ---------------------------------------------------------------- several files

LOAD = "at,id,name\n2024-01-01 00:00:00,1,a\n2024-01-01 00:00:00,2,b\n"
CHANGES = "Op,at,id,name,change_seq\nU,2024-02-01 00:00:00,1,c,20240201\n"


def test_a_full_load_is_read_with_the_changes_beside_it(tmp_path: Path) -> None:
    load = sample(tmp_path, "LOAD00000001.csv", LOAD)
    changes = sample(tmp_path, "20240201-1.csv.gz", CHANGES)
    sample(tmp_path, "20240202-1.csv", "Op,at,id,name,change_seq\n")
    sample(tmp_path, "countries.csv", "code,continent\nAD,EU\n")
    (tmp_path / "notes.txt").write_text("not a sample")
    found = entry(load)
    assert found == entry(changes) == entry(load, changes)
    assert (found["kind"], found["operation"], found["key"]) == ("changes", "Op", ["id"])
    assert found["sequence"] == {"at": "timestamp", "change_seq": "decimal(38,0)"}
    assert found["files"] == [
        {"match": "LOAD*.csv", "load": "full"}, {"match": "*.csv.gz", "load": "changes"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "changes", "sequence", "told"),
    [
        ("created_at,updated_at", ("1 01,01", "1 01,02"), ["updated_at"], "order by updated_at"),
        ("birth,moved", ("1 01,01", "1 01,02"), ["moved"], "order by moved"),
        ("birth,changed_at,seq", ("1 01,05,1", "1 01,05,2"), ["changed_at", "seq"],
         "order by changed_at, seq"),
        ("birth,seq", ("1 01,1", "1 01,2"), ["seq"], "order by seq"),
        ("birth,seq", ("1 01,1", "2 02,2"), ["birth", "seq"], "order by birth, seq"),
        ("birth,changed_at", ("1 01,02", "2 01,03"), ["changed_at"], "order by changed_at"),
        ("birth", ("1 01", "2 02"), ["birth"],
         "order by birth; no key of the sample has two changes that show it"),
        ("changed_at", ("1 01", "1 01,"), ["changed_at"],
         "order by changed_at; it is the same in all changes of a key, so correct 'sequence'"),
        ("changed_at,at", ("1 ,01", "1 ,02"), ["at"], "order by at"),
        ("created_at,updated_at", ("1 01,", "1 01,02"), ["updated_at"], "order by updated_at"),
        ("created_at,updated_at", ("1 01,", "2 01,02"), ["updated_at"], "order by updated_at"),
        ("moved,updated_at", ("1 01,02", "2 02,"), ["moved"],
         "order by moved; no key of the sample has two changes that show it"),
        ("birth,closed", ("1 01,02", "1 01,"), [], None),
        ("birth", ("1 01", "1 01,"), [], None),
        ("note", ("1 x", "1 y"), [], None),
    ],
)  # fmt: skip
def test_a_time_that_tells_changes_of_a_key_apart_orders_them(
    tmp_path: Path, columns: str, changes: tuple[str, ...], sequence: list[str], told: str | None
) -> None:
    rows = []
    for op, (key, values) in zip("IU", (change.split(" ") for change in changes), strict=True):
        times = [f"2024-01-{v} 10:00:00" if len(v) == 2 else v for v in values.split(",")]
        rows.append(",".join([op, key, op, *times[: columns.count(",") + 1]]))
    path = sample(tmp_path, "c.csv", "\n".join([f"Op,id,name,{columns}", *rows, ""]))
    found = guess(read_samples([path]), "things")
    assert [*found.entry.get("sequence", {})] == sequence
    line = told and told.replace("order by", "order of changes by")
    line = line or "no column orders the changes; their load date, file name and row do"
    assert line in found.assumed


def test_uploads_that_are_not_complete_match_no_layout(tmp_path: Path) -> None:
    (folder := tmp_path / "things/load_date=2024-01-01").mkdir(parents=True)
    for name in ("a.csv", "b.CSV", "c.csv.part", "d.csv.tmp", "e.csv.md5", "f.csv.bak"):
        sample(folder, name, "id,name\n1,a\n2,b\n")
    found = entry(folder)
    assert [layout["match"] for layout in found["files"]] == ["*.csv", "*.CSV"]
    for name in ("c.csv.part", "d.csv.tmp", "e.csv.md5", "f.csv.bak"):
        assert layout_of(name, parse_entry(found)) is None


def test_the_drops_of_one_table_are_read_together(tmp_path: Path) -> None:
    for day, price in (("01", "1"), ("02", "1.25"), ("03", "x")):
        (tmp_path / f"load_date=2024-01-{day}").mkdir()
        sample(tmp_path / f"load_date=2024-01-{day}", "p.csv", f"id,price\n7,{price}\n8,2\n")
    first = tmp_path / "load_date=2024-01-01/p.csv"
    assert entry(first)["columns"] == {"id": "bigint", "price": "string"}
    assert entry(tmp_path) == entry(first)


def test_a_bad_operation_does_not_change_the_kind(tmp_path: Path) -> None:
    text = CHANGES + "X,2024-02-01 00:00:00,1,c,20240202\n" + CHANGES.splitlines()[1] * 1
    path = sample(tmp_path, "c.csv", text)
    found = guess(read_samples([path]), "things")
    assert found.entry["kind"] == "changes"
    assert "rows whose operation is 'X' go to quarantine" in found.assumed


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"LOAD00000001.csv": LOAD}, "--kind extract.*--kind changes"),
        ({"a1.csv": "id\n" + "".join(f"{n}\n" for n in range(99)), "a2.csv": "id\n1\n"},
         "a2.csv has 1 rows, after the 99 of a1.csv"),
        ({"a.csv": "Op,id\nD,1\ndrill,2\nmill,3\n"}, "'Op' are not operation codes, .* 'drill'"),
        ({"a_1.csv": LOAD, "a_2.csv": CHANGES}, r"no name pattern matches .* --full <pattern"),
    ],
)  # fmt: skip
def test_ambiguous_files_are_an_error(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, text in files.items():
        sample(tmp_path, name, text)
    with pytest.raises(LandingError, match=f"can be read in two ways: .*{said}"):
        entry(tmp_path)


def test_an_option_resolves_the_ambiguity(tmp_path: Path) -> None:
    load = sample(tmp_path, "LOAD00000001.csv", LOAD)
    assert entry(load, kind="extract", key=("id",))["kind"] == "extract"
    found = entry(load, kind="changes", key=("id",))
    assert (found["operation"], found["files"][0]["match"]) == ("Op", "LOAD*.csv")
    full = sample(tmp_path, "x_1.csv", LOAD)
    changes = sample(tmp_path, "x_2.csv", CHANGES)
    assert entry(full, changes, full="x_1*")["files"][0]["match"] == "x_1*.csv"


def test_full_loads_are_found_by_their_name_prefix(tmp_path: Path) -> None:
    sample(tmp_path, "things_full_2024.csv", LOAD)
    sample(tmp_path, "things_cdc_2024.csv", CHANGES)
    assert entry(tmp_path)["files"][0]["match"] == "things_full_*.csv"


def test_a_parquet_load_and_csv_changes_are_one_entry(tmp_path: Path) -> None:
    ids = pa.array([1, 2], "int64")
    pq.write_table(pa.table({"id": ids, "name": ["a", "b"]}), tmp_path / "LOAD1.parquet")
    sample(tmp_path, "20240201.csv", CHANGES)
    found = entry(tmp_path)
    assert found["columns"] == {"id": "bigint", "name": "string"}
    assert found["files"] == [
        {"match": "LOAD*.parquet", "load": "full", "format": "parquet"},
        {"match": "*.csv", "load": "changes"},
    ]
    assert [la.format for la in parse_entry(found).layouts] == ["parquet", "csv"]


_BESIDE = Path(__file__).parents[4] / "shared/data/airports"
AIRPORTS = Path(os.environ.get("AIRPORTS_DATA", _BESIDE))


@pytest.mark.skipif(not AIRPORTS.exists(), reason="no airports data beside the project")
@pytest.mark.parametrize("folder", ["cdc/countries/dms", "cdc_dirty/countries/dms"])
def test_real_deliveries_of_dms(folder: str) -> None:
    files = sorted((AIRPORTS / folder).iterdir())
    found = entry(files[-1])
    assert found == entry(files[0])
    assert (found["kind"], found["key"], found["operation"]) == ("changes", ["id"], "Op")
    assert found["sequence"] == {"last_update_time": "timestamp", "change_seq": "decimal(38,0)"}


# ---------------------------------------------------------------- the command


def add(project: Path, path: Path, *more: str) -> int:
    drop = {"raw": {"+meta": {"drop": {"root": "{{ env_var('LANDING', 'landing') }}"}}}}
    settings = {"name": "shop", "models": {"shop": drop}}
    (project / "dbt_project.yml").write_text(json.dumps(settings))
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
    assert "cast(`Item No` as bigint) as item_no," in staging
    assert "cast(price as double) as price," in staging

    assert add(tmp_path, path) == 2
    assert "exists already. Nothing was written" in capsys.readouterr().err


def landing(project: Path, model: str) -> dict[str, Any]:
    source = model.removeprefix("raw_").partition("__")[0]
    path = project / f"models/raw/{source}/_{model.removeprefix('raw_')}__models.yml"
    (found,) = yaml.safe_load(path.read_text())["models"]
    return {**found["config"]["meta"]["landing"], "tests": found["data_tests"]}


def test_missing_requirements_of_a_build_are_reported_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sample(tmp_path, "p.csv", "id\n7\n")
    (tmp_path / "dbt_project.yml").write_text("name: shop\nmodels: {shop: {+enabled: true}}\n")
    call = ["source", "add", str(path), "--source", "a", "--entity", "things"]
    assert main([*call, "--project-dir", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "has no landing folder for models/raw" in told
    assert yaml.safe_load(told[told.index("models:") :])["models"]["shop"]["raw"]["+meta"]["drop"]
    assert not (tmp_path / "models").exists()


def test_equal_names_of_two_sources_have_folders_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    path = sample(tmp_path / "a", "p.csv", "id\n7\n")
    assert add(tmp_path, path) == 0
    assert add(tmp_path, path, "--source", "crm") == 0
    assert "landing') }}/crm/things/load_date=" in capsys.readouterr().out
    assert "path" not in landing(tmp_path, "raw_shop__things")
    assert landing(tmp_path, "raw_crm__things")["path"] == "crm/things"


def test_files_in_the_landing_folder_are_read_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANDING", str(tmp_path / "landed"))
    folder = tmp_path / "landed/web/parts/load_date=2024-01-31"
    folder.mkdir(parents=True)
    path = sample(folder, "p.csv", "id\n7\n")
    assert add(tmp_path, path) == 0
    assert landing(tmp_path, "raw_shop__things")["path"] == "web/parts"
    assert add(tmp_path, path, "--source", "crm") == 2
    assert "raw_shop__things already reads the folder 'web/parts'" in capsys.readouterr().err


def test_an_extract_has_tests_for_lost_rows(tmp_path: Path) -> None:
    path = sample(tmp_path, "p.csv", "id\n7\n")
    assert add(tmp_path, path) == 0
    drop = {"arguments": {"max_drop": 0.2}}
    assert {"full_load_drop": drop} in landing(tmp_path, "raw_shop__things")["tests"]
    text = (tmp_path / "models/staging/shop/_shop__things__models.yml").read_text()
    assert {"row_count_drop": drop} in yaml.safe_load(text)["models"][1]["data_tests"]


def test_a_history_is_a_snapshot_of_extracts_and_versions_of_changes(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    path = sample(tmp_path / "x", "p.csv", "id,a b\n7,1.5\n")
    assert add(tmp_path, path, "--history") == 0
    text = (tmp_path / "snapshots/shop/snp_shop__things.yml").read_text()
    (snapshot,) = yaml.safe_load(text)["snapshots"]
    assert (snapshot["config"]["unique_key"], snapshot["config"]["strategy"]) == ("id", "check")
    changes = sample(tmp_path / "x", "c.csv", CHANGES)
    assert add(tmp_path, changes, "--history", "--source", "crm", "--key", "id") == 0
    sql = (tmp_path / "models/history/crm/hst_crm__things.sql").read_text()
    assert "materialized='scd2', unique_key=['id']" in sql
    assert "'id': 'cast(`id` as bigint)'," in sql
    assert "'name': '`name`'," in sql


def test_names_must_be_legal_table_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sample(tmp_path, "p.csv", "id\n7\n")
    assert add(tmp_path, path, "--source", "Shop 1") == 2
    assert "--source is 'Shop 1'" in capsys.readouterr().err
    (tmp_path / "dbt_project.yml").unlink()
    from sparkwap.cli.source import add as add_source

    with pytest.raises(ConfigError, match="is not a dbt project"):
        add_source([path], "shop", "things", SourceAnswers(), tmp_path)
