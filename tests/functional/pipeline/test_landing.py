"""What landing files become in a raw log, as a reader of the lake sees it."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.landing import LandingProject, make_landing_project

from sparkwap.core.dbt_cli import LakePlace
from sparkwap.landing import parse_entry, raw_models
from sparkwap.landing.formats import json_sql
from sparkwap.landing.raw_models import RawModel
from sparkwap.landing.row_sql import exact, sortable_text, text

if TYPE_CHECKING:
    from helpers.lake import Reader, SparkReader
    from helpers.project import MakeProject, Outcome

DMS = {
    "format": "csv",
    "operation": "Op",
    "codes": {"I": "insert", "U": "update", "D": "delete"},
    "sequence": {"changed_at": "timestamp", "seq": "decimal(20)"},
    "files": [{"match": "LOAD*", "load": "full"}, {"match": "*.csv", "load": "changes"}],
}
ENTRIES: dict[str, dict[str, Any]] = {
    "customers": {
        "entity": "customers",
        "kind": "changes",
        "format": "debezium",
        "key": ["id"],
        "columns": {"id": "bigint", "name": "string", "bio": "string"},
        "rules": {"told": "id <> 3 or bio is not null"},  # a delete of 3 has no bio
        "threshold": 0.9,
    },
    "orders": {
        **DMS,
        "entity": "orders",
        "kind": "changes",
        "path": "shop/orders",
        "load_date": r"^(\d{8})",
        "key": ["id"],
        "columns": {"id": "bigint", "amount": "int", "note": "string"},
        "renames": {"remark": "note"},
        "on_wider_types": "quarantine",
        "threshold": 2,
    },
    "items": {
        "entity": "items",
        "kind": "extract",
        "format": "json",
        "key": ["id"],
        "columns": {"id": "bigint", "price": "decimal(10,2)", "tags": "string", "sold": "boolean"},
        "files": [{"match": "*.jsonl*"}],
        "rules": {"price_in_range": "price between 0 and 50"},
        "threshold": 0.9,
    },
    "readings": {
        "entity": "readings",
        "kind": "changes",
        "format": "parquet",
        "key": ["room", "at"],
        "columns": {"room": "string", "at": "timestamp", "celsius": "int"},
        "files": [{"match": "*.parquet", "load": "inserts"}],
        "threshold": 1,
    },
}


STAGED = """
    {{ config(materialized='table') }}
    select
        cast(id as bigint) as id,
        {{ exact_cast('amount', 'int', ref('cdc_orders'), 'total') }} as total,
        note,
        {{ added_columns('raw_orders') }}
    from {{ ref('cdc_orders') }}
    where not _is_deleted
"""


def message(op: str | None, before: Any, after: Any, lsn: int, wrapped: bool = True) -> str:
    source = {"ts_ms": 1706745600000 + lsn, "lsn": lsn}
    payload = {"before": before, "after": after, "source": source, "op": op}
    return json.dumps({"payload": payload} if wrapped else payload, ensure_ascii=False)


def person(number: int | None, name: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, **more}


CUSTOMERS = [
    '{"payload": {"source": {}, "ddl": "create table customers", "tableChanges": []}}',
    message("r", None, person(1, "Ada", bio=""), 9),
    message("c", None, person(2, "Božena", bio="\n\"x\"\t"), 100, wrapped=False),
    message("u", None, person(1, "Ada", bio="__debezium_unavailable_value"), 20),
    message("u", None, person(1, "Ida"), 30),
    message("u", person(2, "Božena"), person(3, "Božena", bio=None), 110).replace(
        '"bio": null', '"bio": -12345678901234567890.1234567890'
    ),
    "null",
    '{"schema": {}, "payload": null}',
    message("d", person(3, "Božena"), None, 120),
    message("t", None, None, 5),
    message("d", None, None, 130),
    message("u", person(1, "Ida"), person(None, "Ida"), 140),
    message("x", None, person(1, "Ida"), 150),
    "{}",
    message("u", person(1, "Ida"), person(4, "Ida", id="four"), 160),
    '{"payload": {"op": "c", "after": {"id": 5}}}',
    '{"payload": {"op": "c", "after": {"id"',
    message("c", None, person(6, "Eve"), 170).replace("1706745600170", "1706745600000170"),
    message("c", None, person(None, "Eve"), 180).replace("1706745600180", "1893456000000"),
]  # fmt: skip

LOAD = "changed_at,id,amount,note\n2024-01-01 00:00:00,1,10,first\n2024-01-01 00:00:00,2,20,\n"
CHANGES = (
    "Op,changed_at,id,amount,note,seq\n"
    'U,2024-02-01 10:00:00.5,1,11,"a, ""b""",17\n'
    "\n"
    "U,2024-02-01 11:00:00,2\n"
    "I,2024-02-01 12:00:00,3,3000000000,wide,18\n"
)
ITEMS = [
    '{"id": 1, "price": 1.10, "tags": ["a", {"b": 1}], "sold": true}',
    '{"id": 2, "price": 60, "sold": null}',
    '{"id": 3, "price": "cheap"}',
    "[1]",
    '{"id": 4, "tags": "ünï", "extra": 12345678901234567890}',
    '{"id": 5, "price": 4.5E+1, "tags": [1.50, {"a": -0}, "1.50"], '
    '"extra": 123456789012345678901234.567890}',
]


def readings(celsius: list[str]) -> bytes:
    at = [datetime(2024, 1, 1, hour) for hour in range(len(celsius))]
    table = pa.table(
        {"celsius": celsius, "room": ["x"] * len(at), "at": pa.array(at, "timestamp[us]")}
    )
    target = BytesIO()
    pq.write_table(table, target)
    return target.getvalue()


@pytest.fixture(scope="module")
def shop(make_project: MakeProject, reader: Reader) -> LandingProject:
    project = make_landing_project(make_project, reader, "landing", ENTRIES)
    project.project.write({"models/stg_orders.sql": STAGED})
    project.deliver("customers/0001.jsonl", "\n".join(CUSTOMERS))
    project.deliver("shop/orders/LOAD00000001.csv", LOAD)
    project.deliver("shop/orders/20240201-1.csv", CHANGES)
    project.deliver("items/load_date=2024-01-01/i.jsonl.gz",
                    gzip.compress("\n".join(ITEMS).encode()))  # fmt: skip
    project.deliver("readings/load_date=2024-01-01/r.parquet", readings(["20", "21.5", "19"]))
    project.build().succeeded()
    return project


def facts(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def staged(shop: LandingProject) -> tuple[str, dict[int, int]]:
    """The type of a staging model's column, and its values by key."""
    metadata = shop.reader.metadata(shop.project.schema, "stg_orders")
    (schema,) = [s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"]]
    (kind,) = [field["type"] for field in schema["fields"] if field["name"] == "total"]
    return kind, {row["id"]: row["total"] for row in shop.rows("stg_orders")}


@pytest.mark.smoke
class TestDebezium:
    def test_messages_become_changes(self, shop: LandingProject) -> None:
        rows = shop.rows("raw_customers", "row")
        assert facts(rows, "_row", "_part", "_op", "id", "name", "bio", "_absent") == [
            (2, 0, "load", "1", "Ada", None, None),
            (3, 0, "insert", "2", "Božena", '\n"x"\t', None),
            (4, 0, "update", "1", "Ada", None, ["bio"]),
            (5, 0, "update", "1", "Ida", None, ["bio"]),
            (6, 0, "delete", "2", "Božena", None, None),
            (6, 1, "insert", "3", "Božena", "-12345678901234567890.1234567890", None),
            (9, 0, "delete", "3", "Božena", None, None),
            (10, 0, "truncate", None, None, None, None),
        ]
        assert rows[0]["_sequence"] == "0000000000000000009"
        assert rows[1]["_sequence"] > rows[0]["_sequence"]
        assert rows[0]["_event_time"] == datetime(2024, 2, 1, 0, 0, 0, 9000, UTC)
        assert {row["_load_date"] for row in rows} == {date(2024, 2, 1)}

    def test_what_says_nothing_is_counted(self, shop: LandingProject) -> None:
        rows = shop.rows("raw_customers", "skipped")
        assert facts(rows, "_row", "_error") == [
            (1, "schema change"),
            (7, "tombstone"),
            (8, "tombstone"),
        ]
        (file,) = shop.rows("raw_customers", "file")
        assert file["_file_rows"] == len(CUSTOMERS)
        assert file["_file_columns"] == ["bio", "id", "name"]

    def test_what_cannot_be_used_is_in_quarantine(self, shop: LandingProject) -> None:
        rows = sorted(shop.rows("quarantine_customers"), key=lambda row: row["line"])
        assert facts(rows, "line", "reason") == [
            (11, "no before image"),
            (12, "key id is missing"),
            (13, 'operation "x" is not one of r, c, u, d, t'),
            (14, "no payload: a message has an op"),
            (15, "id is not a bigint: four"),
            (16, "source.lsn is missing"),
            (17, "not a JSON object"),
            (18, "source.ts_ms is not a time in milliseconds: 1706745600000170"),
            (19, "key id is missing"),
        ]
        assert [row["raw_text"] for row in rows] == CUSTOMERS[10:]
        (run,) = {row["run_id"] for row in rows}
        assert len(run) == 36
        assert {row["_run"] for row in shop.rows("raw_customers", "file")} == {run}


def loads(shop: LandingProject) -> list[int]:
    """The numbers of the loads of the orders, in order."""
    return sorted({row["_batch"] for row in shop.rows("raw_orders")})


@pytest.mark.smoke
class TestFormats:
    def test_a_full_load_has_no_operations_and_comes_first(self, shop: LandingProject) -> None:
        rows = [r for r in shop.rows("raw_orders", "row") if r["_batch"] == loads(shop)[0]]
        assert facts(rows, "_op", "_sequence", "id", "amount", "note", "_row", "_load_date") == [
            ("update", "2024-02-01T10:00:00.500000|00000000000000000017", "1", "11", 'a, "b"', 1,
             date(2024, 2, 1)),
            ("load", "2024-01-01T00:00:00.000000|00000000000000000000", "1", "10", "first", 1,
             date(2024, 1, 1)),
            ("load", "2024-01-01T00:00:00.000000|00000000000000000000", "2", "20", None, 2,
             date(2024, 1, 1)),
        ]  # fmt: skip
        marks = {row["_file_path"]: row for row in shop.rows("raw_orders", "file")}
        load = marks["shop/orders/LOAD00000001.csv"]
        assert (load["_load"], load["_sequence"]) == ("full", rows[1]["_sequence"])
        change = marks["shop/orders/20240201-1.csv"]
        assert (change["_load"], change["_sequence"], change["_file_rows"]) == ("changes", None, 3)

    def test_json_is_text_too(self, shop: LandingProject) -> None:
        rows = shop.rows("raw_items", "row")
        assert facts(rows, "_row", "id", "price", "tags", "sold", "extra") == [
            (1, "1", "1.10", '["a",{"b":1}]', "true", None),
            (5, "4", None, "ünï", None, "12345678901234567890"),
            (6, "5", "4.5E+1", '[1.50,{"a":-0},"1.50"]', None, "123456789012345678901234.567890"),
        ]
        assert {row["_sequence"] for row in rows} == {"2024-01-01|0"}
        reasons = facts(shop.rows("raw_items", "bad"), "_row", "_error")
        assert reasons == [
            (2, "rule price_in_range: price between 0 and 50"),
            (3, "price is not a decimal(10,2): cheap"),
            (4, "not a JSON object"),
        ]

    def test_numbers_stay_as_they_are_written(self, spark: SparkReader) -> None:
        numbers = ["-0", "0.10", "-0.0", "1E400", "1e-7", "12", "9" * 40, "1." + "0123456789" * 4]
        broken = ["01.5", "1.", "1.5x", ".5", "-", "1.5 2.5"]
        # A long text with a number and escapes before, as a pattern may stumble over it.
        before = '{"x": "' + '\\\\ \\" 1.5, ' * 50_000 + '", "a": '
        document = json_sql.exact(f"concat({text(before)}, v, '}}')")
        found = json_sql.plain(f"{json_sql.json_object(document, ['a'])}.a")
        listed = ", ".join(f"({text(one)})" for one in [*numbers, *broken])
        rows = dict(spark.rows(f"select v, {found} from values {listed} as t(v)"))
        assert rows == {**{one: one for one in numbers}, **dict.fromkeys(broken)}

    def test_a_date_is_written_with_its_day(self, spark: SparkReader) -> None:
        times = {
            "2024-01-31": "2024-01-31T00:00:00.000000",
            " 2024-1-5": "2024-01-05T00:00:00.000000",
            "0001-01-01": "0001-01-01T00:00:00.000000",
            "9999-12-31T23:30:00Z": "9999-12-31T23:30:00.000000",
            "9999-12-31T23:30:00-05:00": None,
            **dict.fromkeys(["19723", "2024", "2024-01", "202401", "20240131", "0000-01-01"]),
            **dict.fromkeys(["12024-01-01", "-2024-01-01", "12:30", "1700000000000"]),
        }
        listed = ", ".join(f"({text(one)})" for one in times)
        day, at = exact("v", "date"), sortable_text("v", "timestamp")
        rows = spark.rows(f"select v, {at}, {day} is null from values {listed} as t(v)")
        assert {row[0]: row[1] for row in rows} == times
        assert {row[0] for row in rows if row[2]} == {
            v for v, time in times.items() if not time
        } - {"9999-12-31T23:30:00-05:00"}

    def test_parquet_is_text_too(self, shop: LandingProject) -> None:
        rows = shop.rows("raw_readings", "row")
        assert facts(rows, "_row", "room", "at", "celsius", "_op", "_sequence", "_load") == [
            (1, "x", "2024-01-01 00:00:00", "20", "insert", "2024-01-01|1", "changes"),
            (3, "x", "2024-01-01 02:00:00", "19", "insert", "2024-01-01|1", "changes"),
        ]
        (bad,) = shop.rows("raw_readings", "bad")
        assert bad["_error"] == "celsius is not a int: 21.5"
        assert json.loads(bad["_raw"])["at"] == "2024-01-01 01:00:00"


class TestLater:
    """The second build: other columns, deliveries once more, and a file that is broken."""

    @pytest.fixture(scope="class")
    def second(self, shop: LandingProject) -> Outcome:
        shop.deliver(
            "shop/orders/20240301-1.csv",
            "Op,changed_at,id,amount,remark,vat,seq\nU,2024-03-01 10:00:00,2,22,new,7,19\n",
        )
        shop.deliver("shop/orders/20240302-again.csv", CHANGES)
        shop.deliver("items/load_date=2024-02-01/i.jsonl.gz", b"\x1f\x8b broken")
        return shop.build("--exclude", "customers", wap_publish="lineage").failed()

    def test_a_new_column_flows_in(self, shop: LandingProject, second: Outcome) -> None:
        rows = [row for row in shop.rows("raw_orders", "row") if row["_batch"] == loads(shop)[1]]
        assert facts(rows, "id", "amount", "note", "vat") == [("2", "22", "new", "7")]
        for notice in (
            "shop/orders/20240301-1.csv: columns new, appended as text: 'vat'",
            "shop/orders/20240301-1.csv: columns renamed: 'remark' is 'note'",
            "shop/orders/20240302-again.csv is a copy of shop/orders/20240201-1.csv: skipped",
        ):
            assert notice in second.text

    def test_a_second_delivery_is_not_read(self, shop: LandingProject, second: Outcome) -> None:
        marks = {Path(r["_file_path"]).name: r for r in shop.rows("raw_orders", "file")}
        again = marks["20240302-again.csv"]
        assert again["_file_rows"] == 0
        assert again["_error"] == "skipped: it is a copy of shop/orders/20240201-1.csv"

    def test_a_broken_file_fails_its_own_table(self, shop: LandingProject, second: Outcome) -> None:
        assert second.verdict("raw_items") == "rejected"
        assert "i.jsonl.gz cannot be read" in second.reason("raw_items")
        assert second.verdict("raw_orders") == "published"
        assert len(shop.rows("raw_items", "file")) == 1

    def test_a_fix_of_the_entry_brings_rows_back(
        self, shop: LandingProject, second: Outcome
    ) -> None:
        schema = shop.project.schema
        assert staged(shop) == ("int", {1: 11, 2: 22})
        orders = ENTRIES["orders"] | {
            "columns": {**ENTRIES["orders"]["columns"], "amount": "bigint"}
        }
        model = RawModel("raw_orders", (schema, "raw_orders"), shop.landing, parse_entry(orders))
        catalog = LakePlace("lake", dict(shop.reader.catalog.properties))
        assert [row.reason for row in raw_models.bad_rows(catalog, model)] == [
            "wrong number of fields, or broken quotes",
            "amount is not a int: 3000000000 (fits bigint)",
        ]
        shop.entries["orders"] = orders
        done = shop.build("--select", "raw_orders+", landing_replay=True).succeeded()
        (back,) = [row for row in shop.rows("raw_orders", "row") if row["_batch"] == loads(shop)[2]]
        assert (back["id"], back["amount"], back["_row"]) == ("3", "3000000000", 4)
        assert (back["_file_path"], back["_load_date"]) == (
            "shop/orders/20240201-1.csv",
            date(2024, 2, 1),
        )
        assert back["_run"] == done.run_id
        assert len(shop.rows("raw_orders", "bad")) == 2, "the log forgets nothing"
        assert [row["line"] for row in shop.rows("quarantine_orders")] == [3]
        assert len(raw_models.bad_rows(catalog, model)) == 1
        state = {row["id"]: row["amount"] for row in shop.rows("cdc_orders")}
        assert state == {"1": "11", "2": "22", "3": "3000000000"}
        assert "column amount: 1 values do not fit int; its type is now bigint" in done.text
        assert staged(shop) == ("long", {1: 11, 2: 22, 3: 3000000000})

    def test_a_column_that_was_widened_stays_so(
        self, shop: LandingProject, second: Outcome
    ) -> None:
        fixed = "Op,changed_at,id,amount,note,seq\nU,2024-05-01 10:00:00,3,5,,21\n"
        shop.deliver("shop/orders/20240501-1.csv", fixed)
        done = shop.build("--select", "raw_orders+").succeeded()
        assert "column amount" not in done.text
        assert staged(shop) == ("long", {1: 11, 2: 22, 3: 5})


def test_a_replayed_row_is_not_deleted_by_its_own_load(
    make_project: MakeProject, reader: Reader
) -> None:
    orders = ENTRIES["orders"] | {"threshold": 1, "files": [{"match": "*LOAD*", "load": "full"}]}
    project = make_landing_project(make_project, reader, "replayed", {"orders": orders})
    project.deliver(
        "shop/orders/20240110-LOAD1.csv",
        "changed_at,id,amount\n2024-01-01 00:00:00,1,x\n2024-01-05 00:00:00,2,20\n",
    )
    project.build().succeeded()
    assert {row["id"] for row in project.rows("cdc_orders")} == {"2"}
    project.entries["orders"] = orders | {"columns": {**orders["columns"], "amount": "string"}}
    project.build(landing_replay=True).succeeded()
    state = {row["id"]: row["_is_deleted"] for row in project.rows("cdc_orders")}
    assert state == {"1": False, "2": False}
