"""Whose rows and values an erasure finds, with the hashed conditions of its statements."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.bench import BRANCH, SIDE, Bench
from helpers.people import PEOPLE
from pyroaring import BitMap64

from sparkwap.catalog import LedgerRows, RollbackRefused, deletion_vectors
from sparkwap.catalog.file_plan import DeleteFile, StateFiles
from sparkwap.catalog.snapshot_files import Snapshot
from sparkwap.core.errors import ConfigError
from sparkwap.erasure import Erase, NodeColumns
from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.operation import Erasure
from sparkwap.erasure.request import Rectify
from sparkwap.publish.lake import Lake

KEY, PERSONAL = {"subject": "customer"}, {"personal": "customer"}
MARKS = {"customer_id": KEY, "email": PERSONAL}
ANNA = "anna.berg@mail.example"
ASKED = {"subject": "customer", "keys": ["42"], "confirm": True}
RUN = "1a2b3c4d-0000-4000-8000-000000000000"
_HASHED = re.compile(r"sha2\(concat\('(\w+):', (.+?)\), 256\) in \(([^)]+)\)")
_SET = re.compile(r"`(\w+)` = cast\((?:null|cast\(unbase64\('([^']*)'\) as string\)) as \w+\)")


def text(value: Any, expression: str) -> str:
    """Return a value as Spark has it in an expression of `Conditions`."""
    if "trim(`" in expression:
        return re.sub(r"^[+]?(-?)0*([0-9]+)([.]0*)?$", r"\1\2", value.strip(" "))
    if "% 1 = 0" in expression and value % 1 == 0:
        return str(int(value))
    return str(value).strip(" ")


def holds(row: dict[str, Any], condition: str) -> bool:
    """Return whether a row meets a condition whose parts are hashes, one of which must match."""
    for salt, expression, digests in _HASHED.findall(condition):
        value = row[re.findall("`(.+?)`", expression)[0]]
        if value is not None and not isinstance(value, list | dict):
            known = hashlib.sha256(f"{salt}:{text(value, expression)}".encode()).hexdigest()
            if known in digests:
                return True
    return False


class Engine:
    """Replaces Spark: evaluates the hashed conditions of the statements."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def __call__(self, statement: str) -> Sequence[Sequence[Any]]:
        schema, name = re.findall(r"`(\w+)`\.`(\w+)`", statement)[0]
        table = self.lake.catalog.load_table((schema, name))
        change = re.search(r"`branch_(\w+)`", statement)
        ref = change or re.search(r"version as of '(\w+)'", statement)
        assert ref is not None
        rows = table.scan(snapshot_id=table.metadata.refs[ref[1]].snapshot_id).to_arrow()
        listed, condition = rows.to_pylist(), statement.partition(" where ")[2]
        if change:
            left = []
            for row in listed:
                if not holds(row, condition):
                    left.append(row)
                elif statement.startswith("update"):
                    sets = _SET.findall(statement.partition(" where ")[0])
                    new = {n: base64.b64decode(v).decode() if v else None for n, v in sets}
                    left.append({**row, **new})
            table.overwrite(pa.Table.from_pylist(left, rows.schema), branch=change[1])
            return []
        if column := re.match(r"select distinct (?:cast\()?`(\w+)`", statement):
            every = not condition or "rlike" in condition
            found = (row[column[1]] for row in listed if every or holds(row, condition))
            return [(str(value),) for value in found if value is not None]
        if counts := re.findall(r"count_if\((.*?)\)(?=, count_if| from)", statement):
            gone = [holds(row, counts[0]) for row in listed]
            changed = [not g and holds(r, counts[1]) for g, r in zip(gone, listed, strict=True)]
            return [(len(listed), sum(gone), sum(changed))]
        return [(0, 0, 0)]


class People:
    """A lake with marked tables beside `PEOPLE`."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake = lake
        self.folder = folder
        self.project = "shop"
        self.marks: dict[str, dict[str, Any]] = {"people": MARKS}

    def table(self, name: str, marks: dict[str, Any] | None, **columns: Any) -> None:
        rows = pa.table(columns)
        self.lake.catalog.create_table(("s", name), rows.schema).append(rows)
        self.marks |= {name: marks} if marks is not None else {}

    def call(self, asked: dict[str, Any], request: type[Erase] = Erase) -> str:
        nodes = [
            NodeColumns(f"model.{self.project}.{name}", ("s", name), "model", marks)
            for name, marks in self.marks.items()
        ]
        erasure = Erasure(
            self.lake, Engine(self.lake), run_id=RUN, nodes=lambda: nodes, project=self.project,
            target_name="t", folder=self.folder / "target",
        )  # fmt: skip
        return "\n".join(erasure.call(request.of(asked)))

    def rows(self, name: str) -> list[Any]:
        return list(self.lake.catalog.load_table(("s", name)).scan().to_arrow().to_pylist())

    def snapshots(self, name: str) -> int:
        return len(self.lake.catalog.load_table(("s", name)).metadata.snapshots)


@pytest.fixture
def people(lake: Lake, tmp_path: Path) -> People:
    return People(lake, tmp_path)


def test_a_key_is_read_as_a_value_of_each_key_column(people: People) -> None:
    people.table("raw", MARKS, customer_id=["0042", "42.0", "43"], email=[ANNA, ANNA, "b@b.b"])
    said = people.call({**ASKED, "keys": ["0042"]})
    assert "The keys are compared with s.people.customer_id (bigint), s.raw.customer_id" in said
    assert "Proven" in said and "also belong" not in said
    assert [row["customer_id"] for row in people.rows("people")] == [41, 43]
    assert [row["customer_id"] for row in people.rows("raw")] == ["43"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([42, 43.5, None], pa.float64()),
        pa.array([42, 43.5, None], pa.float32()),
        pa.array([Decimal("42.00"), Decimal("43.50"), None], pa.decimal128(10, 2)),
    ],
)
def test_a_key_column_may_have_numbers_with_fractions(people: People, column: pa.Array) -> None:
    people.table("orders", MARKS, customer_id=column, email=[ANNA, "b@b.b", "c@c.c"])
    assert "Proven" in people.call(ASKED)
    assert [row["email"] for row in people.rows("orders")] == ["b@b.b", "c@c.c"]
    assert len(people.rows("people")) == 2


def test_keys_may_be_listed_as_numbers_with_fractions(people: People) -> None:
    people.table("listed", None, id=[42.0])
    assert "Proven" in people.call(
        {"subject": "customer", "keys_from": "s.listed.id", "confirm": True}
    )
    assert (len(people.rows("people")), people.rows("listed")) == (2, [])


def test_listed_keys_that_are_no_values_are_left_out(people: People) -> None:
    people.table("listed", None, id=["42", "n/a", "4.2"])
    asked = {"subject": "customer", "keys_from": "s.listed.id", "confirm": True}
    said = people.call(asked)
    assert "2 of the keys in s.listed.id cannot be a value" in said and "Proven" in said
    assert len(people.rows("people")) == 2
    assert [row["id"] for row in people.rows("listed")] == ["n/a", "4.2"]
    with pytest.raises(ConfigError, match="2 of 2 keys cannot be a value"):
        people.call(asked)


@pytest.mark.parametrize("key", ["anna", "4.2", "nan", "1e99"])
def test_a_key_that_is_no_value_of_a_key_column_is_refused(people: People, key: str) -> None:
    with pytest.raises(ConfigError, match=r"1 of 2 keys cannot be .* \(their types: bigint\)"):
        people.call({**ASKED, "keys": ["42", key]})
    assert people.rows("people") == PEOPLE.to_pylist()


def test_a_uuid_is_a_key_in_any_case(people: People) -> None:
    key = "0000abcd-0000-4000-8000-000000000000"
    people.table("calls", MARKS, customer_id=[key, "x"], email=["call@her.example", "b@b.b"])
    del people.marks["people"]
    assert "Proven" in people.call({**ASKED, "keys": [key.upper()]})
    assert [row["customer_id"] for row in people.rows("calls")] == ["x"]


def test_rows_with_the_key_of_nobody_are_not_those_of_others(people: People) -> None:
    marks = {**MARKS, "customer_id": {**KEY, "nobody": [-1, 0]}}
    people.table("orders", marks, customer_id=[42, -1, 0], email=[ANNA, ANNA, "b@b.b"])
    with pytest.raises(ConfigError, match=r"rows of s\.orders that stay .*column email\)"):
        people.call(ASKED)
    with pytest.raises(ConfigError, match="the keys are nobody's"):
        people.call({**ASKED, "keys": ["0"]})
    assert people.rows("people") == PEOPLE.to_pylist()


@pytest.mark.parametrize("vector", [False, True])
def test_rows_that_delete_files_hide_do_not_stay(
    people: People, monkeypatch: pytest.MonkeyPatch, vector: bool
) -> None:
    """Before the erasure begins, it knows which of the other rows hold the subject."""
    people.table("orders", MARKS, customer_id=["42", None, "43"], email=[ANNA, ANNA, "b@b.b"])
    (task,) = people.lake.catalog.load_table(("s", "orders")).scan().plan_files()
    path, deletes = task.file.file_path, people.folder / "deletes"
    files_of = Snapshot.files

    def plan(hidden: int, *, equality: bool = False) -> str:
        if vector:
            content, places = deletion_vectors.write({path: BitMap64([hidden])})
            deletes.write_bytes(content)
            offset = places[path][0]
        else:
            pq.write_table(pa.table({"file_path": [path], "pos": [hidden]}), deletes)
        one = DeleteFile(str(deletes), offset if vector else None, path, equality, 9, 1)

        def files(state: Snapshot) -> StateFiles:
            found = files_of(state)
            here = any(file.path == path for file in found.data)
            return replace(found, deletes=(one,) if here else ())

        monkeypatch.setattr(Snapshot, "files", files)
        return people.call({**ASKED, "confirm": False})

    staying = "rows of s.orders that stay hold the subject (column email)"
    assert staying in plan(0)
    assert staying not in plan(1)
    told = plan(0, equality=True)
    assert staying not in told and "Which rows of s.orders stay is not known yet" in told


def test_rows_without_a_key_are_not_those_of_others(people: People) -> None:
    people.table("orders", MARKS, customer_id=["42", None, " "], email=[ANNA, ANNA, "b@b.b"])
    people.table("notes", None, to=[ANNA])
    with pytest.raises(ConfigError, match=r"rows of s\.orders that stay .*column email\)") as told:
        people.call(ASKED)
    assert "the table s.notes holds the subject" in str(told.value)
    assert "set the key in these rows, or mark the column also as `subject_text`" in str(told.value)
    assert people.rows("people") == PEOPLE.to_pylist()
    del people.marks["orders"]
    people.lake.catalog.purge_table(("s", "notes"))
    people.lake.catalog.purge_table(("s", "orders"))
    text = {**PERSONAL, "subject_text": "customer"}
    people.table("texts", {**MARKS, "email": text}, customer_id=["41", None], email=["x@x.x", ANNA])
    plan = people.call({**ASKED, "confirm": False})
    assert "rows of" not in plan


def test_the_plan_counts_the_values_of_others_by_column(people: People) -> None:
    people.marks["people"] = {**MARKS, "city": PERSONAL}
    assert "1 of its personal values also belong to others (city 1)" in people.call(ASKED)


@pytest.mark.parametrize(
    ("marks", "keys", "column"),
    [
        ({"email": KEY}, ["Anna.Berg@mail.example"], "email"),
        (MARKS, ["42"], "ref"),
        ({**MARKS, "customer_id": {**KEY, "on_erase": "clear"}}, ["42"], "ref"),
    ],
)
def test_what_would_stay_is_told_before(
    people: People, marks: Any, keys: list[str], column: str
) -> None:
    del people.marks["people"]
    people.lake.catalog.purge_table(("s", "people"))
    people.table(
        "crm", marks, customer_id=[42, 43], email=[ANNA, "b@b.b"],
        ref=[ANNA if "on_erase" in str(marks) else "", ANNA if column == "ref" else ""],
    )  # fmt: skip
    people.lake.catalog.load_table(("s", "crm")).append(pa.table({"customer_id": [44]}))
    with pytest.raises(ConfigError, match=rf"rows of s\.crm that stay .*column {column}\)"):
        people.call({**ASKED, "keys": keys})
    assert people.snapshots("crm") == 2


def test_a_column_that_keeps_a_corrected_value_is_told(people: People) -> None:
    people.table("crm", MARKS, customer_id=[42], email=[ANNA], ref=[ANNA])
    with pytest.raises(ConfigError, match=r"s\.crm .*column ref\): .* the column a new value"):
        people.call({**ASKED, "values": {"email": "anna@new.example"}}, Rectify)


def test_a_row_that_is_deleted_because_of_a_text_does_not_stay(people: People) -> None:
    people.table(
        "calls", {**MARKS, "said": {"subject_text": "customer"}},
        customer_id=[42, 43], email=[ANNA, "b@b.b"], said=["hi", f"I am {ANNA}"], ref=["", ANNA],
    )  # fmt: skip
    assert "rows of" not in people.call({**ASKED, "confirm": False})


CONTACT = {"contact": [{"email": ANNA, "tag": "VIP people"}, {"email": "b@b.b", "tag": None}]}


@pytest.mark.parametrize(
    ("marked", "columns"),
    [
        ("emails", {"emails": [[ANNA], ["b@b.b"]]}),
        ("contact.email", CONTACT),
        ("CONTACT", CONTACT),
        ("contacts.email", {"contacts": [[{"email": ANNA}], []]}),
    ],
)
def test_values_in_nested_columns_are_searched_for(
    people: People, marked: str, columns: dict[str, Any]
) -> None:
    del people.marks["people"]
    people.lake.catalog.purge_table(("s", "people"))
    people.table("crm", {"customer_id": KEY, marked: PERSONAL}, customer_id=[42, 43], **columns)
    people.table("notes", None, to=[ANNA, "VIP people"])
    people.table("others", None, to=["VIP people"])
    with pytest.raises(ConfigError, match=r"the table s\.notes holds the subject") as told:
        people.call(ASKED)
    assert ("s.others" in str(told.value)) is (marked == "CONTACT")
    people.lake.catalog.drop_table(("s", "notes"))
    people.lake.catalog.drop_table(("s", "others"))
    shutil.rmtree(people.folder / "warehouse" / "s" / "notes")
    shutil.rmtree(people.folder / "warehouse" / "s" / "others")
    assert "Proven" in people.call(ASKED)
    assert [row["customer_id"] for row in people.rows("crm")] == [43]


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ({"customer_nr": KEY}, r"s\.crm\.customer_nr is marked, but the table has no such column"),
        ({"customer_id": KEY, "mail": PERSONAL}, r"s\.crm\.mail is marked, but"),
        ({"customer_id": KEY, "contact.mail": PERSONAL}, r"s\.crm\.contact\.mail is marked, but"),
        ({"contact.id": KEY}, r"s\.crm\.contact\.id: a key cannot be nested"),
        ({"contact": KEY}, r"s\.crm\.contact: a key cannot be nested"),
        ({"contact": {"subject_text": "customer"}}, r"s\.crm\.contact: subject_text needs a col"),
        (
            {"customer_id": {**KEY, "on_erase": "clear"}, "contact.email": PERSONAL},
            r"s\.crm\.contact\.email: on_erase: clear needs the mark on the whole column",
        ),
    ],
)
def test_marks_without_an_effect_are_refused(people: People, marks: Any, said: str) -> None:
    contact = [{"email": ANNA, "id": 42}]
    people.table("crm", marks, customer_id=[42], contact=contact)
    with pytest.raises(ConfigError, match=said):
        people.call(ASKED)
    assert people.rows("people") == PEOPLE.to_pylist()


def test_a_nested_column_gets_no_new_value(people: People) -> None:
    people.table("crm", {"customer_id": KEY, "emails": PERSONAL}, customer_id=[42], emails=[[ANNA]])
    with pytest.raises(ConfigError, match=r"emails of subject customer, or it is nested"):
        people.call({**ASKED, "values": {"emails": "x"}}, Rectify)


def test_no_rollback_to_a_replaced_table_that_has_lost_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    people = People(bench.lake, tmp_path)
    people.table("people", MARKS, **{name: PEOPLE[name] for name in PEOPLE.column_names})
    old = bench.state(("s", "people"))
    bench.lake.ensure_schema(SIDE, BRANCH)
    folder = f"{bench.lake.branches.folder('s', BRANCH)}/people-1a2b3c4d"
    table = bench.lake.catalog.create_table((SIDE, "people"), PEOPLE.schema, location=folder)
    table.append(PEOPLE)
    receipt = bench.publish(bench.side("people", old.metadata_location))
    assert "Proven" in people.call(ASKED)
    for force in (False, True):
        with pytest.raises(RollbackRefused):
            bench.lake.publishing.rollback(
                receipt.entries, run_id="r", publish_id=receipt.publish_id, force=force
            )
    assert [row["customer_id"] for row in people.rows("people")] == [41, 43]


@pytest.mark.parametrize(
    ("former", "new"),
    [
        ("Meier", "Meier-Schulz"),
        ("anna berg", "Anna Berg"),
        ("Anna  Berg", "Anna Berg"),
        ("anna.b@mail.example", "anna.b@mail.example.com"),
        ("Anna@mail.example", "anna@mail.example"),
    ],
)
def test_a_value_may_be_a_part_of_its_correction(people: People, former: str, new: str) -> None:
    marks = {"customer_id": KEY, "last_name": PERSONAL}
    text = {"customer_id": KEY, "said": {"subject_text": "customer"}}
    people.table("crm", marks, customer_id=[42, 43], last_name=[former, "Bo"])
    people.table("calls", text, customer_id=[43, 44, 45], said=["x", f"<{new}>", f"{new} {former}"])
    people.table("raw", None, said=[f"I am {new}"])
    asked = {**ASKED, "values": {"last_name": new}}
    assert "Proven" in people.call(asked, Rectify)
    assert {row["last_name"] for row in people.rows("crm")} == {new, "Bo"}
    left = {row["customer_id"] for row in people.rows("calls")}
    assert left == ({43, 44, 45} if former.replace("  ", " ") == new else {43, 44})


def test_a_correction_may_be_a_part_of_the_value(people: People) -> None:
    people.table("notes", None, said=[f"call {ANNA} today"])
    asked = {**ASKED, "values": {"email": ANNA.rpartition(".")[0]}}
    with pytest.raises(ConfigError, match=r"the table s\.notes holds the subject"):
        people.call(asked, Rectify)


@pytest.mark.parametrize("name", ["Price", "Goods", "Shelf", "Northwind", "Warehouse"])
def test_a_person_may_have_the_name_of_a_column_or_table(people: People, name: str) -> None:
    marks = {"customer_id": KEY, "last_name": PERSONAL}
    people.table("crm", marks, customer_id=[42, 43], last_name=[name, "Smith"], price=[1, 2])
    people.table("goods", None, price=[1.0], at=[{"shelf": 1}], to=["x"])
    now = datetime.now(UTC)
    run = {"run_id": "r1", "project": "northwind", "started_at": now, "outcome": "published"}
    people.lake.ledger.append(LedgerRows("runs", [run]))
    people.project = "northwind"
    said = people.call(ASKED)
    assert "Proven" in said and "1 of its keys and values are also names" in said
    assert [row["last_name"] for row in people.rows("crm")] == ["Smith"]
    assert "northwind" in {row["project"] for row in people.lake.ledger.rows("runs")}


@pytest.mark.parametrize("name", ["Price", "Northwind"])
def test_a_value_that_is_a_name_is_searched_for_in_the_data(people: People, name: str) -> None:
    marks = {"customer_id": KEY, "last_name": PERSONAL}
    text = {"customer_id": KEY, "said": {"subject_text": "customer"}}
    people.table("crm", marks, customer_id=[42, 43], last_name=[name, "Smith"], price=[1, 2])
    people.table("calls", text, customer_id=[43, 44], said=[f"I am {name}", "hi"])
    people.table("notes", None, said=[f"call {name.lower()}"])
    people.project = "northwind"
    with pytest.raises(ConfigError, match=r"the table s\.notes holds .*; column said;"):
        people.call(ASKED)
    people.lake.catalog.drop_table(("s", "notes"))
    shutil.rmtree(people.folder / "warehouse" / "s" / "notes")
    assert "Proven" in people.call(ASKED)
    assert [row["customer_id"] for row in people.rows("calls")] == [44]


@pytest.mark.parametrize(
    ("name", "kept"), [("Northwind", True), ("Branch", True), ("North@wind", False)]
)
def test_the_ledger_keeps_names_of_other_projects(people: People, name: str, kept: bool) -> None:
    marks = {"customer_id": KEY, "last_name": PERSONAL}
    people.table("crm", marks, customer_id=[42, 43], last_name=[name, "Smith"])
    now = datetime.now(UTC)
    run = {"run_id": "r1", "project": name.lower(), "started_at": now, "message": f"for {name}"}
    node: dict[str, Any] = {"run_id": "r1", "node_id": f"model.{name.lower()}.crm"}
    node |= {
        "how": "branch",
        "schema": "s",
        "name": "crm",
        "built_on": {f"s.{name}": "1"},
        "reason": name,
    }
    people.lake.ledger.append(LedgerRows("runs", [{**run, "outcome": "published"}]))
    people.lake.ledger.append(LedgerRows("nodes", [{**node, "status": "built", "built_at": now}]))
    assert "Proven" in people.call(ASKED)
    run = next(row for row in people.lake.ledger.rows("runs") if row["run_id"] == "r1")
    (node,) = people.lake.ledger.rows("nodes")
    assert (run["message"], node["reason"]) == ("(erased)", "(erased)")
    assert (run["project"] == name.lower()) is kept
    assert (node["node_id"] == f"model.{name.lower()}.crm") is kept
    assert node["how"] == "branch"


def test_rows_that_spark_does_not_find_are_told_before(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Conditions, "hashed", lambda *_: "sha2(concat('ab:', `city`), 256)")
    with pytest.raises(ConfigError, match=r"rows of s\.people that stay .*customer_id, email\)"):
        people.call(ASKED)
