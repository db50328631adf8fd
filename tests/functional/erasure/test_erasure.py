"""One of three people is erased from a lake; an independent reader checks it."""

from __future__ import annotations

import json
import unicodedata
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.lake import Reader, SparkReader
from helpers.people import ANNA, BO, FORMER, LakeFiles
from helpers.project import Outcome, Project

from sparkwap.erasure import operation
from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.search import Search
from sparkwap.publish.publishing import Publishing

KEYS = {"subject": "customer", "keys": ["42"]}
NAME = "Anna \u00c5berg"
SPELLED = (unicodedata.normalize("NFD", NAME), NAME.replace(" ", "\u00a0"), NAME.replace(" ", "  "))
TABLES = ("raw_shop__customers", "stg_shop__customers", "snp_shop__customers")


def run(spark: SparkReader, statement: str) -> None:
    """Run a statement that returns no rows."""
    spark.rows("select 1")
    with closing(spark._connection.cursor()) as cursor:
        cursor.execute(statement)


def others(reader: Reader, project: Project) -> dict[str, Any]:
    """Return the rows of all people except Anna."""
    look = reader.look(project.schema)
    return {
        name: sorted(repr(r) for r in look[name].rows if str(r["customer_id"]) in ("41", "43"))
        for name in (*TABLES, "fct_visits")
    }


def found(operation: Outcome) -> dict[str, Any]:
    """Return what an operation tells programs."""
    assert operation.document is not None
    told: dict[str, Any] = operation.document["result"]["found"]
    return told


@pytest.mark.smoke
def test_one_person_is_erased_with_proof(
    people: Project, people_reader: Reader, lake_files: LakeFiles
) -> None:
    before = others(people_reader, people)
    files = lake_files.paths()
    assert lake_files.holding(ANNA) and lake_files.holding(FORMER)
    assert any(path.endswith(".avro") for path in lake_files.holding(ANNA))
    held = people.dbt("run", "--select", "stg_shop__customers").succeeded()

    # Without confirm, nothing changes, and the blockers are listed.
    plan = people.operation("wap_erase", **KEYS).succeeded()
    assert "raw_shop__customers   2 of 6 rows to delete, 1 to change" in plan.text
    assert "snp_shop__customers   2 of 4 rows to delete, 0 to change" in plan.text
    assert f"wap_discard --args '{{branch: {held.branch}}}'" in plan.text
    assert found(plan)["state"] == "blocked"
    refused = people.operation("wap_erase", **KEYS, confirm=True).failed()
    assert held.branch in refused.text
    assert refused.document is not None and refused.document["outcome"] == "usage"
    assert files <= lake_files.paths()
    people.operation("wap_discard", branch=held.branch).succeeded()

    done = people.operation("wap_erase", **KEYS, confirm=True).succeeded()
    assert "none holds the subject" in done.text
    assert "one.csv" in done.text
    told = found(done)
    assert (told["state"], told["holding"], told["blockers"]) == ("proven", 0, [])
    rows = {one["table"].split(".")[1]: one for one in told["tables"]}
    assert (rows["raw_shop__customers"]["deleted"], rows["raw_shop__customers"]["rows"]) == (2, 6)
    assert lake_files.holding(ANNA, FORMER) == []
    assert lake_files.holding(BO) != []
    assert others(people_reader, people) == before

    look = people_reader.look(people.schema)
    for name in TABLES:
        assert "42" not in {str(row["customer_id"]) for row in look[name].rows}
        assert len(people_reader.metadata(people.schema, name)["snapshots"]) == 1
    raw = look["raw_shop__customers"].rows
    assert [r["_file_rows"] for r in raw if r["_kind"] == "file"] == [3]
    assert [r["_raw"] for r in raw if r["_kind"] == "bad"] == ["43;cleo;;;"]
    assert look["quarantine_shop__customers"].values("raw_text") == ["43;cleo;;;"]
    # A fact stays without the person; a total has no person.
    assert sorted(map(str, look["fct_visits"].values("customer_id"))) == ["41", "43", "None"]
    assert look["totals"].rows == ({"customers": 3, "amount": 42},)

    (row,) = people_reader.ledger("runs", command="wap_erase")
    assert row["outcome"] == "proven"
    (report,) = (people.folder / "target/erasure").glob("proof_*.json")
    assert Path(told["report"]).name == report.name
    written = json.loads(report.read_text())
    assert written["clean"] and written["outside_the_lake"] == ["one.csv"]
    assert {file["result"] for file in written["files"]} == {"does not hold the subject"}
    for text in (row["message"], report.read_text()):
        assert ANNA not in text and FORMER not in text
    assert list((people.folder / "target/erasure").glob("open_*")) == []

    # A later build works; the same erasure again has nothing to do.
    again = people.operation("wap_erase", **KEYS, confirm=True).succeeded()
    assert "none holds the subject" in again.text
    people.dbt("build", "--select", "totals", "snp_shop__customers").succeeded()


def test_a_seat_does_not_go_back_to_its_former_owner(
    people: Project, people_reader: Reader
) -> None:
    model = """
        {{ config(materialized='table', meta={'landing': {'key': ['seat']}}) }}
        select seat, customer_id, sequence as _sequence, 'seats.csv' as _file_path, 1 as _row,
            0 as _part, 'row' as _kind
        from values ('A1', '41', '1'), ('A1', '42', '2'), ('A2', '42', '1'), ('A2', '41', '2'),
            ('A3', '42', '1') as rows(seat, customer_id, sequence)
    """
    marks = """
        models:
          - name: raw_shop__seats
            columns: [{name: customer_id, config: {meta: {subject: customer}}}]
    """
    people.write({"models/raw_shop__seats.sql": model, "models/seats.yml": marks})
    people.dbt("build", "--select", "raw_shop__seats").succeeded()
    before = people_reader.table(people.schema, "raw_shop__seats").rows
    refused = people.operation("wap_erase", **KEYS, confirm=True).failed()
    assert "raw_shop__seats: without the person's rows, 1 key of the source" in refused.text
    assert people_reader.table(people.schema, "raw_shop__seats").rows == before
    clear = marks.replace("subject: customer", "subject: customer, on_erase: clear")
    people.write({"models/seats.yml": clear})
    people.operation("wap_erase", **KEYS, confirm=True).succeeded()
    after = people_reader.table(people.schema, "raw_shop__seats").rows
    owners = sorted((row["seat"], row["_sequence"], row["customer_id"]) for row in after)
    assert owners == [
        ("A1", "1", "41"), ("A1", "2", None), ("A2", "1", None), ("A2", "2", "41"),
        ("A3", "1", None),
    ]  # fmt: skip


def test_an_interrupted_erasure_is_completed(
    people: Project,
    people_reader: Reader,
    lake_files: LakeFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = others(people_reader, people)
    request = "{{ config(materialized='table') }} select 42 as customer_id"
    people.write({"models/requests.sql": request})
    people.dbt("build", "--select", "requests").succeeded()
    # The list of requests is erased too, so a later call needs the stored progress.
    asked = {
        "subject": "customer",
        "keys_from": f"{people.schema}.requests.customer_id",
        "confirm": True,
    }
    reached: list[str] = []

    def interrupt(_: Any, step: str) -> None:
        if step not in reached:
            reached.append(step)
            raise RuntimeError("somebody pulled the plug")

    with monkeypatch.context() as patch:
        patch.setattr(operation.Erasure, "_at", interrupt)
        for step in ("noted", "rewritten", "published", "expired", "deleted"):
            died = people.operation("wap_erase", **asked).failed()
            assert reached[-1] == step
            assert "Run the same command again, with the same arguments" in died.text
            assert found(died)["state"] == "begun"
            assert others(people_reader, people) == before
    assert list((people.folder / "target/erasure").glob("proof_*")) == []
    done = people.operation("wap_erase", **asked).succeeded()
    assert "none holds the subject" in done.text
    rows = {one["table"].split(".")[1]: one["deleted"] for one in found(done)["tables"]}
    assert (found(done)["state"], rows["raw_shop__customers"]) == ("proven", 2)
    assert lake_files.holding(ANNA, FORMER) == []
    assert others(people_reader, people) == before


def test_a_file_that_still_holds_the_subject_fails_the_proof(
    people: Project, lake_files: LakeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = operation.file_references.delete_files

    def all_but_one(lake: Any, paths: list[str]) -> None:
        # The metadata files of replaced tables, which go before their files, do not hold her.
        left = next((path for path in lake_files.holding(ANNA) if path in set(paths)), None)
        delete(lake, [path for path in paths if path != left])

    with monkeypatch.context() as patch:
        patch.setattr(operation.file_references, "delete_files", all_but_one)
        failed = people.operation("wap_erase", **KEYS, confirm=True).failed()
    assert "NOT PROVEN: 1 of" in failed.text
    assert "column email" in failed.text
    assert (found(failed)["state"], found(failed)["holding"]) == ("not proven", 1)
    done = people.operation("wap_erase", **KEYS, confirm=True).succeeded()
    assert "none holds the subject" in done.text


def test_hidden_places_are_erased(
    people: Project, people_reader: Reader, people_spark: SparkReader, lake_files: LakeFiles
) -> None:
    schema = people.schema
    for statement in (
        # A row that a delete file hides, in a data file that stays.
        f"create table {schema}.calls (customer_id int, said string) tblproperties"
        "('format-version'='2', 'write.delete.mode'='merge-on-read')",
        f"insert into {schema}.calls select /*+ coalesce(1) */ * from values "
        f"(41, 'hello'), (42, 'I am {ANNA}'), (43, 'bye') as calls(customer_id, said)",
        f"delete from {schema}.calls where customer_id = 42",
        # In the newest format, a deletion vector hides the row.
        f"create table {schema}.letters (customer_id int, said string) tblproperties"
        "('format-version'='3', 'write.delete.mode'='merge-on-read')",
        f"insert into {schema}.letters select /*+ coalesce(1) */ * from values "
        f"(41, 'hello'), (42, 'I am {ANNA}'), (43, 'bye') as letters(customer_id, said)",
        f"delete from {schema}.letters where customer_id = 42",
        # Keys that were whole numbers once, and nested values.
        f"create table {schema}.orders (customer_id double, paid decimal(12,2), contact "
        "struct<emails: array<string>>)",
        f"insert into {schema}.orders values (42.0, 42.00, named_struct('emails', "
        f"array('{ANNA}'))), "
        "(42.5, 42.50, null), (double('nan'), 41.00, null), (double('1e300'), null, null)",
        # Other formats than Parquet, which PyIceberg does not read: her name is known from one,
        # and spelled otherwise in the other.
        f"create schema {schema}_files",
        f"create table {schema}_files.faxes (customer_id int, full_name string) tblproperties"
        "('write.format.default'='orc')",
        f"insert into {schema}_files.faxes values (41, 'Bo Lund'), (42, '{NAME}')",
        f"create table {schema}_files.memos (customer_id int, memo string) tblproperties"
        "('write.format.default'='avro')",
        f"insert into {schema}_files.memos values (41, 'hello'), (42, 'x'), (43, 'bye')",
        *(f"insert into {schema}_files.memos values (41, 'from {name}.')" for name in SPELLED),
        # The log spells her key differently than staging; JSON may escape any letter.
        f"insert into {schema}.raw_shop__customers values "
        "('+042', 'x', 'two.csv', 1, 'row', null, null), "
        "('0420', 'y', 'two.csv', 2, 'row', null, null), (null, null, 'two.csv', 3, 'skipped', "
        '\'{"to": "ANNA.Berg\\\\u0040mail.example"}\', null)',
        # A stored failure with a text that names her.
        f"insert into {stored(people_reader, people)} values ('{ANNA} called', 1)",
        # A table without marks.
        f"create table {schema}.mailing (address string)",
        f"insert into {schema}.mailing values ('{ANNA}'), ('{BO}')",
    ):
        run(people_spark, statement)
    source = """
        sources:
          - name: phone
            schema: "{{ target.schema }}"
            tables:
              - name: calls
                columns: [{name: customer_id, config: {meta: {subject: customer}}}]
              - name: letters
                columns: [{name: customer_id, config: {meta: {subject: customer}}}]
              - name: orders
                columns:
                  - {name: customer_id, config: {meta: {subject: customer}}}
                  - {name: paid, config: {meta: {subject: customer}}}
                  - {name: contact.emails, config: {meta: {personal: customer}}}
          - name: files
            schema: "{{ target.schema }}_files"
            tables:
              - name: faxes
                columns:
                  - {name: customer_id, config: {meta: {subject: customer}}}
                  - {name: full_name, config: {meta: {personal: customer}}}
              - name: memos
                columns:
                  - {name: customer_id, config: {meta: {subject: customer}}}
                  - {name: memo, config: {meta: {subject_text: customer}}}
    """
    wrong = f"""
        {{{{ config(materialized='table') }}}}
        select cast(raise_error('{ANNA} is unknown') as string) as a from {{{{ ref('totals') }}}}
    """
    people.write({"models/sources.yml": source, "models/wrong.sql": wrong})
    # The ledger gets a message that names her, and a discarded table leaves no trace.
    failed = people.dbt("build", "--select", "wrong").failed()
    people.operation("wap_discard", branch=failed.branch).succeeded()
    assert any("wap_ledger" in path for path in lake_files.holding(ANNA))
    rows = pa.table({"customer_id": [42], "email": [FORMER]})
    orphan = lake_files.write(f"{schema}/gone/data/left.parquet", rows)

    hold_her = lake_files.holding(NAME, *SPELLED)
    assert {Path(path).suffix for path in hold_her} >= {".orc", ".avro"}

    refused = people.operation("wap_erase", **KEYS, confirm=True).failed()
    assert f"the table {schema}.mailing holds the subject" in refused.text
    assert "column address" in refused.text
    run(people_spark, f"drop table {schema}.mailing")
    refused = people.operation("wap_erase", **KEYS, confirm=True).failed()
    assert "no table of this catalog refers to them" in refused.text
    done = people.operation("wap_erase", **KEYS, unreferenced=True, confirm=True).succeeded()
    assert "none holds the subject" in done.text
    # Spark has logged the error, and still writes the log.
    if "method" in people.output:  # the profile knows no more of the server than its address
        assert "Not searched: the log and scratch files of the Spark server" in done.text
    else:
        assert str(lake_files.lake / "server/server.log") in done.text
    assert lake_files.holding(ANNA, FORMER, NAME, *SPELLED) == []
    assert orphan not in lake_files.paths()
    assert people_spark.rows(f"select * from {schema}_files.faxes") == [(41, "Bo Lund")]
    assert people_spark.rows(f"select memo from {schema}_files.memos") == [("bye",), ("hello",)]
    assert people_reader.table(schema, "calls").values("customer_id") == [41, 43]
    assert people_reader.table(schema, "letters").values("customer_id") == [41, 43]
    assert len(people_reader.table(schema, "orders").rows) == 3
    assert people_reader.metadata(schema, "letters")["format-version"] == 3
    letters = [path for path in lake_files.paths() if "/letters/" in path]
    assert [path for path in letters if path.endswith(".puffin")] == []
    raw = [r for r in people_reader.table(schema, "raw_shop__customers").rows if r["email"] == "y"]
    assert [row["customer_id"] for row in raw] == ["0420"]
    (row,) = people_reader.ledger("nodes", name="wrong")
    assert "(erased)" in (row["problem"], row["reason"])


def test_new_rows_of_the_subject_are_erased_too(
    people: Project,
    people_reader: Reader,
    people_spark: SparkReader,
    lake_files: LakeFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = others(people_reader, people)
    schema = people.schema
    writers = {
        # The table has changed since the look.
        "noted": f"insert into {schema}.stg_shop__customers "
        "values (42, 'anna.2@x.example', 'Oslo')",
        # The table has changed since the audit branch was opened.
        "audited": f"insert into {schema}.raw_shop__customers values "
        "('042', 'anna.3@x.example', 'two.csv', 1, 'row', null, null)",
        # The table has changed since the publish.
        "published": f"insert into {schema}.fct_visits values (42, 4)",
        # The operation is done.
        "deleted": f"insert into {schema}.stg_shop__customers "
        "values (42, 'anna.5@x.example', 'Oslo')",
    }
    written: list[str] = []

    def write(_: Any, step: str) -> None:
        if step in writers and step not in written:
            written.append(step)
            run(people_spark, writers[step])

    publish = Publishing.publish

    def published(publishing: Publishing, *arguments: Any, **named: Any) -> Any:
        write(None, "audited")
        return publish(publishing, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(operation.Erasure, "_at", write)
        patch.setattr(Publishing, "publish", published)
        failed = people.operation("wap_erase", **KEYS, confirm=True).failed()
    assert written == list(writers)
    assert "NOT PROVEN" in failed.text and "Run the same command again" in failed.text
    assert lake_files.holding("anna.2@", "anna.3@") == []
    done = people.operation("wap_erase", **KEYS, confirm=True).succeeded()
    assert "none holds the subject" in done.text
    assert lake_files.holding(ANNA, FORMER, *(f"anna.{n}@" for n in range(2, 6))) == []
    assert others(people_reader, people) == before
    raw = people_reader.table(schema, "raw_shop__customers").values("customer_id")
    assert sorted(key for key in raw if key) == ["41", "43"]


def stored(reader: Reader, project: Project) -> str:
    """Return the table of stored failures of the test for accepted values."""
    schema = f"{project.schema}_dbt_test__audit"
    (name,) = (n for n in reader.look(schema) if n.startswith("accepted_values"))
    return f"{schema}.{name}"


def test_values_are_corrected_everywhere(
    people: Project, people_reader: Reader, lake_files: LakeFiles
) -> None:
    new = "anna@new.example"
    asked = {**KEYS, "values": {"email": new}}
    people.operation("wap_rectify", **asked).succeeded()
    done = people.operation("wap_rectify", **asked, confirm=True).succeeded()
    assert "none holds the subject" in done.text
    assert lake_files.holding(ANNA, FORMER) == []
    look = people_reader.look(people.schema)
    for name in TABLES:
        emails = {r["email"] for r in look[name].rows if str(r["customer_id"]) == "42"}
        assert emails == {new}
        assert BO in look[name].values("email") or BO in map(str, look[name].values("email"))


def test_spark_selects_the_texts_that_may_name_the_subject(people_spark: SparkReader) -> None:
    search = Search.of(["42"], {}, ["Jörg Åberg", "ANNA.berg@mail.example"])
    naming = [
        "42", "x;42;y", "(42)\n", "JÖRG\tåberg", "joerg, Jörg Åberg!", "to:Anna.Berg@Mail.Example",
        unicodedata.normalize("NFD", "Jörg Åberg"), "Jörg\u00a0Åberg", "ＡＮＮＡ.berg@mail.example",
        '{"to": "anna\\u0040mail.example", "id": "\\u0034\\u0032"}', "base64:NDI=",
        "anna.berg@mail.example's",
    ]  # fmt: skip
    others = ["", "421", "142;x", "Jörgen", "berg", "mail", "O'Neill\n", "÷42é", "%'\""]
    assert all(map(search.in_raw, naming))
    assert not any(map(search.in_raw, others))
    texts = ", ".join(f"('{text.encode().hex()}')" for text in (*naming, *others))
    condition = Conditions("ab12").can_name("a text", search.raw_tokens or ())
    found = people_spark.rows(
        "select `a text` as text from (select decode(unhex(code), 'utf-8') as `a text` "
        f"from values {texts} as rows(code)) where {condition}"
    )
    assert {text for (text,) in found} >= set(naming)
    assert {text for (text,) in found} & set(others) <= {"mail", "÷42é"}
