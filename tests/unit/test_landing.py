"""The landing folder: what is there, what is new, what a run takes, and what is refused."""

import gzip
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sparkwap import landing
from sparkwap.landing import LandingError, LandingFile

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
                "columns": {"_op": "string"},
                "files": [{"match": "*", "load": "changes", "codes": {"X": "purge"}}],
            }
        )
    for fault in (
        "unknown setting 'sort'",
        "kind 'deltas' is none of 'changes', 'extract'",
        "format 'xml' is none of 'csv'",
        "key column 'id' is not among the columns",
        "column '_op' begins with '_'",
        "need 'operation' and 'codes'",
        "operation 'purge' is none of 'delete', 'insert', 'update'",
    ):
        assert fault in str(error.value)


def test_an_extract_has_full_loads_only() -> None:
    with pytest.raises(LandingError, match="kind 'extract' allows files with load 'full' only"):
        landing.parse_entry({**ENTRY, "kind": "extract"})


def test_a_missing_entry_is_told() -> None:
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
        ("2024-01-01", "notes.txt", "is not a file that the landing entry of 'policies' knows"),
        ("2024-13-01", "a_full.csv", "is not a folder named load_date=YYYY-MM-DD"),
        ("tomorrow", "a_full.csv", "is not a folder named load_date=YYYY-MM-DD"),
    ],
)
def test_nothing_in_the_folder_is_passed_over(
    tmp_path: Path, day: str, name: str, message: str
) -> None:
    deliver(tmp_path, day, name)
    with pytest.raises(LandingError, match=message):
        listed(tmp_path)


def test_a_missing_landing_folder_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(LandingError, match=r"There is no landing folder .*Set LANDING"):
        listed(tmp_path / "nowhere")
    with pytest.raises(LandingError, match=r"has no folder 'policies'.*LANDING and SOURCES"):
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


def test_an_extract_goes_drop_by_drop_and_changes_go_at_once(tmp_path: Path) -> None:
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


def test_landing_until_refuses_the_rest() -> None:
    with pytest.raises(LandingError, match="landing_until is 'soon', which is not a date"):
        landing.parse_until("soon")


def check(root: Path) -> tuple[str, ...]:
    return landing.check_file(listed(root)[0], landing.parse_entry(ENTRY))


def test_the_header_gives_the_order_of_the_columns(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_full.csv.gz", gzip.compress(b'"state",policy_id\nNY,1\n'))
    assert check(tmp_path) == ("state", "policy_id")


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_full.csv", b"\xef\xbb\xbfpolicy_id,state\n")
    assert check(tmp_path) == ("policy_id", "state")


def test_without_a_header_the_operation_comes_first(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_cdc.csv", "U,1,NY\n")
    assert check(tmp_path) == ("operation", "policy_id", "state")


def test_a_file_of_no_bytes_is_readable(tmp_path: Path) -> None:
    deliver(tmp_path, "2024-01-01", "a_full.csv", b"")
    assert check(tmp_path) == ("policy_id", "state")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a_full.csv", b"policy_id,state\n1,\xff\xfe\n", "cannot be read: UnicodeDecodeError"),
        ("a_full.csv.gz", b"policy_id,state\n", "cannot be read: BadGzipFile"),
        ("a_full.csv.gz", gzip.compress(b"policy_id,state\n" * 99)[:-9], "cannot be read: EOFErr"),
        ("a_full.csv", b"policy_id,region\n", "missing 'state', unknown 'region', 2 in all"),
        ("a_full.csv", b"policy_id,state,state\n", "missing none, unknown none, 3 in all"),
    ],
)
def test_an_unreadable_file_is_named(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = deliver(tmp_path, "2024-01-01", name, content)
    with pytest.raises(LandingError) as error:
        check(tmp_path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "dbt retry" in str(error.value)


def test_sql_text_and_names_are_quoted() -> None:
    entry = landing.parse_entry({**ENTRY, "columns": {"policy_id": "bigint", "it's`": "date"}})
    sql = landing._error(entry, entry.layouts[1])
    assert "try_cast(`it's``` as date)" in sql
    assert r"'it\'s` is not a date: '" in sql
