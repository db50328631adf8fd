"""The landing folder: its files, new files, the files of a run, and refusals."""

import gzip
import re
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkwap import landing
from sparkwap.core.node import Node, building
from sparkwap.landing import LandingError, LandingFile, drift, row_sql
from sparkwap.landing.contents import Contents
from sparkwap.landing.errors import any_of
from sparkwap.landing.formats import FORMATS, json_sql
from sparkwap.landing.log_state import NOTHING
from sparkwap.landing.reading import Reader

ENTRY: dict[str, Any] = {
    "entity": "policies",
    "kind": "changes",
    "key": ["policy_id"],
    "columns": {"policy_id": "bigint", "state": "string"},
    "files": [
        {"match": "*_full.csv*", "load": "full"},
        {
            "match": "*_cdc.csv*",
            "load": "changes",
            "header": False,
            "operation": "operation",
            "codes": {"I": "insert", "U": "update", "D": "delete"},
        },
    ],
}


def deliver(root: Path, day: str, name: str, text: str | bytes = "policy_id,state\n1,NY\n") -> Path:
    path = root / "policies" / f"load_date={day}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def listed(root: Path) -> list[LandingFile]:
    return landing.list_files(root, landing.parse_entry(ENTRY))


def names(files: list[LandingFile]) -> list[str]:
    return [f.name.removeprefix("policies/load_date=") for f in files]


def test_an_entry_reports_all_its_faults_at_once() -> None:
    with pytest.raises(LandingError) as error:
        landing.parse_entry(
            {
                "entity": "policies",
                "kind": "deltas",
                "format": "xml",
                "sort": "x",
                "key": ["id"],
                "columns": {
                    "_op": "text",
                    "Row_Hash": "text",
                    "price": "money",
                    "size": "decimal(40, 2)",
                },
                "sequence": {"weight": "double"},
                "renames": {"ID": "nowhere"},
                "threshold": 1.5,
                "load_date": "[0-9]",
                "rules": ["x"],
                "on_new_columns": "guess",
                "files": [{"match": "*", "load": "changes", "codes": {"X": "purge"}}],
            }
        )
    for fault in (
        "unknown setting 'sort'",
        "kind 'deltas' is not one of 'changes', 'extract'",
        f"format 'xml' is not one of {any_of(FORMATS)}",
        "key column 'id' is not among the columns",
        "column '_op' begins with '_'",
        "column 'Row_Hash' has the name of a column of the state",
        "column 'price' has the type 'money', which is not one of",
        "column 'size' has the type 'decimal(40, 2)'",
        "sequence column 'weight' has the type 'double'",
        "rename 'ID: nowhere' names a column that does not exist",
        "'rules' is not a mapping",
        "threshold '1.5' is neither a count of rows nor a share below 1",
        "load_date '[0-9]' needs exactly one group",
        "on_new_columns 'guess' is not one of 'append', 'fail', 'ignore'",
        "need 'operation' and 'codes'",
        "operation 'purge' is not one of 'delete', 'insert', 'load', 'truncate', 'update'",
    ):
        assert fault in str(error.value)


def test_times_are_read_in_utc_whatever_the_zone_of_the_server() -> None:
    settings: dict[str, str] = {}
    session: Any = SimpleNamespace(
        conf=SimpleNamespace(set=settings.__setitem__),
        createDataFrame=lambda rows, schema: rows,
    )
    with building(Node("model.shop.raw", meta={"landing": ENTRY}, replay=True)):
        landing.model(None, session)
    assert settings == {"spark.sql.session.timeZone": "UTC"}


def test_an_extract_has_full_loads_only() -> None:
    with pytest.raises(LandingError, match="kind 'extract' allows files with load 'full' only"):
        landing.parse_entry({**ENTRY, "kind": "extract"})


def test_a_missing_entry_is_an_error() -> None:
    with pytest.raises(LandingError, match="'entity' is missing"):
        landing.parse_entry(None)


def test_files_come_by_load_date_then_name(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-02-01", "b_cdc.csv")
    deliver(tmp_path, "2024-02-01", "a_cdc.csv")
    deliver(tmp_path, "2024-01-01", "z_full.csv")
    deliver(tmp_path, "2024-01-01", "_SUCCESS")
    deliver(tmp_path, "2024-01-01", ".z_full.csv.part")
    deliver(tmp_path, "2024-01-01", "y_full.csv._COPYING_")
    assert names(listed(tmp_path)) == [
        "2024-01-01/z_full.csv",
        "2024-02-01/a_cdc.csv",
        "2024-02-01/b_cdc.csv",
    ]


def test_the_layout_is_the_first_that_matches(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_cdc.csv")
    deliver(tmp_path, "2024-01-01", "a_full.csv")
    assert [f.layout.load for f in listed(tmp_path)] == ["changes", "full"]


@pytest.mark.parametrize(
    ("day", "name", "message"),
    [
        ("2024-01-01", "notes.txt", "matches no layout of the landing entry of 'policies'"),
        ("2024-13-01", "a_full.csv", "is not a folder named load_date=YYYY-MM-DD"),
        ("tomorrow", "a_full.csv", "is not a folder named load_date=YYYY-MM-DD"),
    ],
)
def test_unexpected_files_and_folders_are_refused(
    tmp_path: Path, day: str, name: str, message: str
) -> None:
    deliver(tmp_path, day, name)
    with pytest.raises(LandingError, match=message):
        listed(tmp_path)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "policies/load_date=2024-01-01/a_full.csv").mkdir(parents=True)
    with pytest.raises(LandingError, match=r"a_full\.csv is not a file, so it matches no layout"):
        listed(tmp_path)


def test_a_missing_landing_folder_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(LandingError, match=r"There is no landing folder .*Set `drop.root`"):
        listed(tmp_path / "nowhere")
    with pytest.raises(LandingError, match=r"has no folder 'policies'.*--exclude"):
        listed(tmp_path)


def test_a_file_is_pending_until_it_was_read(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_full.csv")
    deliver(tmp_path, "2024-02-01", "b_cdc.csv")
    files = listed(tmp_path)
    known = {files[0].name: files[0].sha256}
    assert landing.pending(files, {}) == files
    assert landing.pending(files, known) == files[1:]


def test_a_changed_file_under_an_old_name_is_refused(tmp_path: Path) -> None:
    path = deliver(tmp_path, "2024-01-01", "a_full.csv")
    known = {f.name: f.sha256 for f in listed(tmp_path)}
    path.write_text("policy_id,state\n1,NJ\n")
    with pytest.raises(LandingError, match=r"a_full\.csv was read before with other content"):
        landing.pending(listed(tmp_path), known)
    # An erasure has named it, so it may be edited.
    erased = {name: f"erased:{sha}" for name, sha in known.items()}
    assert landing.pending(listed(tmp_path), erased) == []


def test_extracts_are_read_by_drop_and_changes_at_once(tmp_path: Path) -> None:
    for day in ("2024-03-01", "2024-01-01", "2024-02-01"):
        deliver(tmp_path, day, "a_full.csv")
        deliver(tmp_path, day, "b_full.csv")
    files = listed(tmp_path)
    assert names(landing.choose(files, "extract", None)) == [
        "2024-01-01/a_full.csv",
        "2024-01-01/b_full.csv",
    ]
    assert landing.choose(files, "changes", None) == files
    for kind in landing.KINDS:
        assert landing.choose(files, kind, date(2024, 2, 1)) == files[:4]
        assert landing.choose([], kind, None) == []


@pytest.mark.parametrize("value", ["2024-01-31", date(2024, 1, 31)])
def test_landing_until_is_a_date(value: object) -> None:
    assert landing.parse_until(value) == date(2024, 1, 31)


@pytest.mark.parametrize("value", [None, "", "None"])
def test_landing_until_may_be_empty(value: object) -> None:
    assert landing.parse_until(value) is None


def test_landing_until_refuses_other_values() -> None:
    with pytest.raises(LandingError, match="landing_until is 'soon', which is not a date"):
        landing.parse_until("soon")


# ---------------------------------------------------------------- Debezium, DMS

DEBEZIUM: dict[str, Any] = {
    "entity": "customers",
    "kind": "changes",
    "format": "debezium",
    "key": ["customer_id"],
    "columns": {"customer_id": "BIGINT", "name": "text"},
}


def test_debezium_has_defaults_for_its_messages() -> None:
    entry = landing.parse_entry(DEBEZIUM)
    assert entry.key == ("customer_id",)
    assert entry.columns == {"customer_id": "bigint", "name": "string"}
    assert entry.sequence == (("source.lsn", "bigint"),)
    assert entry.event_time == ("source.ts_ms", "bigint")
    assert entry.partial
    assert entry.layouts[0].load == "changes"
    with pytest.raises(LandingError, match="'debezium' has its own operations"):
        landing.parse_entry({**DEBEZIUM, "files": [{"match": "*"}], "operation": "op"})


def test_operation_and_codes_apply_to_all_layouts() -> None:
    files = [{"match": "LOAD*"}, {"match": "*", "load": "changes"}]
    dms = {**ENTRY, "files": files, "operation": "Op", "codes": {"I": "insert"}}
    entry = landing.parse_entry({**dms, "sequence": {"at": "timestamp", "seq": "numeric(35)"}})
    assert [layout.operation for layout in entry.layouts] == ["Op", "Op"]
    assert entry.sequence == (("at", "timestamp"), ("seq", "decimal(35,0)"))
    assert entry.event_time == ("at", "timestamp")
    assert entry.service_columns == {"Op", "at", "seq"}


@pytest.mark.parametrize(("given", "meant"), [(3, 3), (0.25, 0.25), (0, 0)])
def test_a_threshold_is_a_count_or_a_share(given: float, meant: float) -> None:
    assert landing.parse_entry({**ENTRY, "threshold": given}).threshold == meant


# ---------------------------------------------------------------- folders and names

UNDATED = {**DEBEZIUM, "path": "crm/*/customers"}


def write(root: Path, name: str, content: str | bytes = "{}\n") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_files_without_a_date_come_first(tmp_path: Path) -> None:
    write(tmp_path, "crm/eu/customers/0001.jsonl")
    write(tmp_path, "crm/us/customers/load_date=2024-01-01/0000.jsonl")
    files = landing.list_files(tmp_path, landing.parse_entry(UNDATED))
    assert [(f.name, f.load_date) for f in files] == [
        ("crm/eu/customers/0001.jsonl", None),
        ("crm/us/customers/load_date=2024-01-01/0000.jsonl", date(2024, 1, 1)),
    ]
    assert landing.choose(files, "changes", date(2023, 1, 1)) == files[:1]


def test_a_date_in_the_name_counts(tmp_path: Path) -> None:
    write(tmp_path, "crm/eu/customers/LOAD00000001.jsonl")
    write(tmp_path, "crm/eu/customers/20240131-093000.jsonl")
    entry = landing.parse_entry({**UNDATED, "load_date": r"(\d{8})"})
    dates = {f.path.name: f.load_date for f in landing.list_files(tmp_path, entry)}
    assert dates == {"LOAD00000001.jsonl": None, "20240131-093000.jsonl": date(2024, 1, 31)}


def test_an_extract_without_a_date_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "policies/policies_full.csv")
    raw = {**ENTRY, "kind": "extract", "files": [{"match": "*.csv"}], "load_date": r"(\d{8})"}
    with pytest.raises(LandingError, match="has no date that matches"):
        landing.list_files(tmp_path, landing.parse_entry(raw))


# ---------------------------------------------------------------- deliveries of the same bytes


def test_copies_of_changes_are_read_once_under_any_name(
    tmp_path: Path,
) -> None:
    entry = landing.parse_entry(UNDATED)
    for name in ("a/customers/1.jsonl", "b/customers/9.jsonl", "b/customers/2.jsonl"):
        write(tmp_path, f"crm/{name}", "{}\n" if "2" not in name else "{} {}\n")
    first, other, again = landing.list_files(tmp_path, entry)
    assert landing.copies([first, other, again], {}, entry) == {again: first.name}
    for mark in ("", "erased:"):
        assert landing.copies([again], {"old": mark + again.sha256}, entry) == {again: "old"}


def test_an_equal_extract_of_another_month_is_new_data(tmp_path: Path) -> None:
    entry = landing.parse_entry({**ENTRY, "kind": "extract", "files": [{"match": "*.csv"}]})
    for day in ("2024-01-31", "2024-02-29"):
        deliver(tmp_path, day, "a.csv")
    deliver(tmp_path, "2024-02-29", "a (1).csv")
    files = landing.list_files(tmp_path, entry)
    twice = landing.copies(files, {}, entry)
    assert {f.path.name: first for f, first in twice.items()} == {
        "a.csv": "policies/load_date=2024-02-29/a (1).csv"
    }
    assert landing.copies(files[:1], {"policies/load_date=2024-02-29/a.csv": files[0].sha256},
                          entry) == {}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "load"), [("extract", "full"), ("changes", "full"), ("changes", "inserts")]
)
def test_an_extract_that_returns_to_an_earlier_state_is_read(
    tmp_path: Path, kind: str, load: str
) -> None:
    dated = {"load_date": r"_(\d{8})", "files": [{"match": "*.csv", "load": load}]}
    entry = landing.parse_entry({**ENTRY, "kind": kind, **dated})
    for name in ("p_20240101", "p_20240102", "p_20240103", "p_20240103 (1)"):
        write(tmp_path, f"policies/{name}.csv", "b" if "0102" in name else "a")
    files = landing.list_files(tmp_path, entry)
    known = {f.name: f.sha256 for f in files[:2]}
    twice = landing.copies(files[2:], known, entry)
    assert {f.path.name: first for f, first in twice.items()} == {
        "p_20240103.csv": "policies/p_20240103 (1).csv"
    }


# ---------------------------------------------------------------- a look into a file


def look(root: Path, **entry: Any) -> Contents:
    full = {"files": ENTRY["files"][:1]} if "format" in entry else {}
    parsed = landing.parse_entry({**ENTRY, **full, **entry})
    file = landing.list_files(root, parsed)[0]
    return landing.look_into(file.path, file.layout, parsed)


def test_the_header_gives_the_order_of_the_columns(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_full.csv.gz", gzip.compress(b'"state",policy_id\nNY,1\n'))
    assert look(tmp_path) == Contents(("state", "policy_id"), 1)


def test_a_byte_order_mark_is_not_part_of_the_header(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_full.csv", b"\xef\xbb\xbfpolicy_id,state\n")
    assert look(tmp_path) == Contents(("policy_id", "state"), 0)


def test_without_a_header_the_operation_comes_first(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_cdc.csv", "U,1,NY\r\n\r\nU,2,NY\n \t\nD,1,")
    assert look(tmp_path) == Contents(("operation", "policy_id", "state"), 3)


def test_the_header_is_the_first_line(tmp_path: Path) -> None:
    path = deliver(tmp_path, "2024-01-01", "a_full.csv", "\nstate,policy_id\nNY,1\n")
    with pytest.raises(LandingError, match="its first line is blank, and has to be the header"):
        look(tmp_path)
    path.write_text("\n")
    assert look(tmp_path).rows == 0


def test_a_file_of_no_bytes_is_readable(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_full.csv", b"")
    assert look(tmp_path) == Contents(("policy_id", "state"), 0)


def test_rows_that_span_lines_are_counted_once(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_full.csv", 'policy_id;state\n1;"N\nY"\n2;NJ\n')
    assert look(tmp_path, multiline=True, delimiter=";") == Contents(("policy_id", "state"), 2)


@pytest.mark.parametrize("end", ["", "\n", "\n3,NJ\n", '""\n', "\r\n\r\n"])
def test_a_file_that_ends_inside_quotes_is_unreadable(tmp_path: Path, end: str) -> None:
    text = 'policy_id,state\n1,"N\nY"\n2,"NJ'
    path = deliver(tmp_path, "2024-01-01", "a_full.csv", text + end)
    with pytest.raises(LandingError, match="it ends inside quotes, which row 2 opens"):
        look(tmp_path, multiline=True)
    path.write_text(text + end + '"')
    assert look(tmp_path, multiline=True).rows == 2


def test_quotes_that_a_later_row_closes_make_a_file_unreadable(tmp_path: Path) -> None:
    rows = ["policy_id,state", "1,a", '2,"5 inch', "3,c", '4,"d"', "5,e"]
    path = deliver(tmp_path, "2024-01-01", "a_full.csv", "\n".join(rows))
    with pytest.raises(LandingError, match=r"row 2 opens quotes, .* has to be written twice\."):
        look(tmp_path, multiline=True)
    rows[2:5] = ['2,"5"" \ninch"', '3,"a"b"', '4,5" pipe']
    path.write_text("\n".join(rows))
    assert look(tmp_path, multiline=True).rows == 5


@pytest.mark.parametrize(("text", "rows"), [("[{}, {}]", 2), ('{\n"a": 1}', 1), ("", 0)])
def test_a_json_document_is_a_row_or_a_list_of_them(tmp_path: Path, text: str, rows: int) -> None:
    deliver(tmp_path, "2024-01-01", "a_full.csv", text)
    assert look(tmp_path, format="json", multiline=True).rows == rows


def test_parquet_columns_come_from_the_file(tmp_path: Path) -> None:
    path = deliver(tmp_path, "2024-01-01", "a_full.csv", "")
    pq.write_table(pa.table({"state": ["NY"], "policy_id": [1]}), path)
    found = look(tmp_path, format="parquet")
    assert found == Contents(("state", "policy_id"), 1, ("string", "int64"))


def test_parquet_files_of_different_types_are_read_apart(tmp_path: Path) -> None:
    for name, values in {"a": [1], "b": [1.5], "c": [2]}.items():
        path = deliver(tmp_path, "2024-01-01", f"{name}_full.csv", "")
        pq.write_table(pa.table({"policy_id": values}), path)
    entry = landing.parse_entry({**ENTRY, "format": "parquet", "files": ENTRY["files"][:1]})
    files = landing.list_files(tmp_path, entry)
    looks = {file: landing.look_into(file.path, file.layout, entry) for file in files}
    nothing: Any = None
    groups = Reader(nothing, entry, NOTHING, nothing)._groups(looks)
    assert [[Path(name).name[:1] for name in group.names] for group in groups] == [
        ["a", "c"],
        ["b"],
    ]


@pytest.mark.parametrize(
    ("sequence", "start"),
    [({}, "concat(cast(_load_date as string), '|0')"), ({"seq": "bigint"}, "cast(null as string)")],
)
def test_a_full_load_without_rows_has_no_place_among_sequences(
    sequence: dict[str, str], start: str
) -> None:
    entry = landing.parse_entry({**ENTRY, "sequence": sequence})
    listed: Any = SimpleNamespace(selectExpr=lambda *columns: columns)
    nothing: Any = None
    reader = Reader(nothing, entry, NOTHING, nothing)
    found: Any = reader._with_dates(listed, None, bool(entry.sequence), False)
    assert found == ("*", f"if(_load = 'full', {start}, null) as _sequence")


@pytest.mark.parametrize(
    ("name", "columns", "sequence", "told"),
    [
        ("load_date=2024-06-01/LOAD.csv", "id", {"seq": "bigint"}, True),
        ("load_date=2024-01-01/LOAD.csv", "id", {"seq": "bigint"}, False),
        ("load_date=2024-06-01/LOAD.csv", "id,seq", {"seq": "bigint"}, False),
        ("load_date=2024-06-01/LOAD.csv", "id", {}, False),
        ("load_date=2024-06-01/a.csv", "id,seq", {"seq": "bigint"}, False),
    ],
)
def test_a_later_full_load_without_order_is_told(
    tmp_path: Path, name: str, columns: str, sequence: dict[str, str], told: bool
) -> None:
    files = [{"match": "LOAD*", "load": "full"}, {"match": "*", "load": "inserts"}]
    entry = landing.parse_entry(
        {"entity": "t", "kind": "changes", "key": ["id"], "columns": {"id": "bigint"},
         "sequence": sequence, "files": files}
    )  # fmt: skip
    for path, text in {name: f"{columns}\n1,1\n", "load_date=2024-01-01/b.csv": "id\n1\n"}.items():
        (tmp_path / "t" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / path).write_text(text)
    looks = {
        f: landing.look_into(f.path, f.layout, entry) for f in landing.list_files(tmp_path, entry)
    }
    notices: list[str] = []
    here: Any = SimpleNamespace(tell=notices.append)
    nothing: Any = None
    Reader(nothing, entry, NOTHING, here)._tell_of_reloads(looks)
    assert [f"t/{name}: a full load without" in notice for notice in notices] == [True] * told


@pytest.mark.parametrize(
    ("name", "content", "format_", "message"),
    [
        ("a_full.csv", b"policy_id,state\n1,\xff\xfe\n", "csv", "it is not UTF-8 (invalid start"),
        ("a_full.csv.gz", b"policy_id,state\n", "csv", "BadGzipFile"),
        ("a_full.csv.gz", gzip.compress(b"policy_id,state\n" * 99)[:-9], "json", "EOFError"),
        ("a_full.csv", b"policy_id,state\n", "parquet", "ArrowInvalid"),
    ],
    ids=["not UTF-8", "no archive", "broken archive", "no Parquet"],
)
def test_the_error_names_an_unreadable_file(
    tmp_path: Path, name: str, content: bytes, format_: str, message: str
) -> None:
    path = deliver(tmp_path, "2024-01-01", name, content)
    with pytest.raises(LandingError) as error:
        look(tmp_path, format=format_)
    assert f"{path} cannot be read: {message}" in str(error.value)
    assert "dbt retry" in str(error.value)


# ---------------------------------------------------------------- columns that are not the entry's


def mapped(published: str, extras: str = "", **entry: Any) -> drift.Mapped:
    parsed = landing.parse_entry({**ENTRY, **entry})
    return drift.map_columns(parsed, parsed.layouts[0], published.split(), extras.split(), "a.csv")


def test_a_new_column_is_appended() -> None:
    found = mapped("vat policy_id state")
    assert found.sources == {"policy_id": ("policy_id",), "state": ("state",), "vat": ("vat",)}
    assert found.new == ("vat",)
    assert found.notices == ("a.csv: columns new, appended as text: 'vat'",)


def test_a_column_of_an_earlier_file_is_known() -> None:
    found = mapped("policy_id state", extras="vat")
    assert (found.sources["vat"], found.new, found.notices) == ((), (), ())
    assert mapped("policy_id state vat", extras="vat").notices == ()


def test_a_new_column_may_be_ignored_or_refused() -> None:
    found = mapped("policy_id state vat", on_new_columns="ignore")
    assert "vat" not in found.sources
    assert found.notices == ("a.csv: columns new, ignored: 'vat'",)
    with pytest.raises(LandingError, match=r"a\.csv: new columns 'vat', and on_new_columns is"):
        mapped("policy_id state vat", on_new_columns="fail")


def test_a_missing_column_is_null() -> None:
    found = mapped("policy_id")
    assert found.sources["state"] == ()
    assert found.notices == ("a.csv: columns missing, filled with NULL: 'state'",)


def test_a_renamed_column_is_mapped() -> None:
    found = mapped("policy_id region", renames={"region": "state"})
    assert found.sources["state"] == ("region",)
    assert found.notices == ("a.csv: columns renamed: 'region' is 'state'",)


@pytest.mark.parametrize(
    ("published", "fault"),
    [
        ("state", "no key column 'policy_id'"),
        ("policy_id state state", "column 'state' occurs twice"),
        ("policy_id state State", "columns 'State', 'state' differ in case only"),
        ("policy_id state row_hash", "columns 'row_hash' have no usable names"),
    ],
)
def test_ambiguous_columns_are_refused(published: str, fault: str) -> None:
    with pytest.raises(LandingError, match=fault):
        mapped(published)


def test_changes_need_their_operation_and_their_order() -> None:
    files = [{"match": "*", "load": "changes", "operation": "Op", "codes": {"I": "insert"}}]
    with pytest.raises(LandingError, match=r"no column 'Op', .*no column 'seq'"):
        mapped("policy_id state", files=files, sequence={"seq": "bigint"})


# ---------------------------------------------------------------- SQL


def test_sql_text_and_names_are_quoted() -> None:
    entry = landing.parse_entry({**ENTRY, "columns": {"policy_id": "bigint", "it's`": "date"}})
    text = row_sql.fault(entry, entry.layouts[1], True, list(entry.columns))
    assert "try_cast(_own.`it's``` as date)" in text
    assert r"'it\'s` is not a date: '" in text


def test_a_sequence_is_sortable_text() -> None:
    assert "lpad(cast(try_cast(x as bigint) as string), 19, '0')" in row_sql.sortable_text(
        "x", "bigint"
    )
    assert ", 36, '0')" in row_sql.sortable_text("x", "decimal(35,2)")
    assert row_sql.lowest("decimal(3,0)") == "'000'"
    undated = landing.parse_entry(ENTRY)
    assert row_sql.sequence(undated).startswith("concat(cast(_load_date as string)")


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
def test_a_date_or_time_has_a_day_and_a_year_that_python_has(kind: str) -> None:
    found = row_sql.exact("x", kind)
    assert "x rlike '^\\\\s*\\\\d{4}-\\\\d\\\\d?-" in found
    assert f"year(try_cast(x as {kind})) between 1 and 9999" in found
    assert kind == "timestamp_ntz" or found in row_sql.sortable_text("x", kind)
    assert row_sql.exact("x", "double") == "try_cast(x as double)"


@pytest.mark.parametrize(
    ("event_time", "told"), [("at_ms", "between -62135596800000 and"), ("at", "between 1 and 9999")]
)
def test_an_event_time_is_of_a_year_that_python_has(event_time: str, told: str) -> None:
    columns = {"policy_id": "bigint", "at": "timestamp", "at_ms": "bigint"}
    entry = landing.parse_entry({**ENTRY, "columns": columns, "event_time": event_time})
    assert told in row_sql.event_time(entry)


def test_the_reason_names_a_wider_type_that_fits() -> None:
    raw = {**ENTRY, "columns": {"policy_id": "int", "state": "string"}}
    entry = landing.parse_entry({**raw, "on_wider_types": "quarantine"})
    assert "(fits bigint)" in row_sql.fault(entry, entry.layouts[0], False, ["policy_id"])
    entry = landing.parse_entry(raw)
    assert row_sql.typed(entry, "policy_id") == "try_cast(_own.`policy_id` as bigint)"


def test_a_rule_is_not_for_deletes() -> None:
    entry = landing.parse_entry({**ENTRY, "rules": {"named": "state <> ''"}})
    found = row_sql.fault(entry, entry.layouts[1], True, list(entry.columns))
    assert "when _op not in ('delete', 'truncate') and not (state <> '') then" in found


# ---------------------------------------------------------------- numbers in JSON


def marked(document: str) -> str:
    """The result of Spark's regexp_replace for a document, with # for the mark."""
    found, at = "", 0
    while match := re.compile(json_sql._FRACTION).match(document, at):  # \G: from the last match on
        found += f'{match[1]}"#{match[2]}"'
        at = match.end()
    return found + document[at:]


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        ('{"a": 1.10}', '{"a": "#1.10"}'),
        ('{"a":-1.5E+300 ,"b":2e-7}', '{"a":"#-1.5E+300" ,"b":"#2e-7"}'),
        ('{"a": 123456789012345678901234.567890}', '{"a": "#123456789012345678901234.567890"}'),
        ('{"a": [-0, -0.0, {"b": 0.1}]}', '{"a": ["#-0", "#-0.0", {"b": "#0.1"}]}'),
        ('{"before": null, "after": {"a": 1.0}}', '{"before": null, "after": {"a": "#1.0"}}'),
        ("[1.5,\n2.5\n]", '["#1.5",\n"#2.5"\n]'),
    ],
)
def test_a_number_with_a_fraction_is_put_in_quotes(given: str, exact: str) -> None:
    assert marked(given) == exact


@pytest.mark.parametrize(
    "document",
    [
        '{"a": 12345678901234567890123456789012345678901, "b": -5, "c": 0}',
        r'{"a": "1.5, \" 2.5, ", "1.5": "x"}',
        # None of this is JSON, and must not become it.
        '{"a": 01.5}',
        '{"a": 1.}',
        '{"a": .5}',
        '{"a": 1.5x}',
        "{1.5: 2}",
        '{"a": 1.5 "b": 2.5}',
        '{"a": "1.5',
    ],
)
def test_other_json_is_unchanged(document: str) -> None:
    assert marked(document) == document
