"""What happens to a history beside new events: corrections of the log, new columns, its cost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from helpers.lake import Look, Reader
from helpers.project import Project
from helpers.reference_model import Row, history

from .conftest import MakeHistories, expected, made, model, write_log

KEYS = 400
LARGE = 3_000_000_000
START = datetime(2024, 1, 1, tzinfo=UTC)
MODELS = {
    "dim": model("unique_key='id', surrogate_key=true", "dim", ["id", "name"], partial="false"),
    "wide": (
        "{{ config(materialized='scd2', unique_key='id') }}"
        "{{ change_events('parquet.`' ~ env_var('LOG') ~ '/wide.parquet`', columns=dict("
        "{'id': 'cast(id as int)', 'name': 'name', 'size': 'cast(`size` as int)'},"
        " **({'city': 'city'} if env_var('CITY') == 'yes' else {}))) }}"
    ),
    "members": model("unique_key='id', delete_when=\"name = 'left'\"", "dim", ["id", "name"]),
}


def event(number: int, key: int, name: str, batch: int, **more: Any) -> Row:
    return {
        "id": str(key),
        "name": name,
        "city": None,
        "_op": "update",
        "_sequence": f"{number:09d}",
        "_event_time": START + timedelta(hours=number),
        "_file_path": f"batch_{batch}.csv",
        "_row": number,
        "_part": 0,
        "_batch": batch,
        "_kind": "row",
        "_load": "changes",
        **more,
    }


DIM = [
    event(number, key, name, 1)
    for number, (key, name) in enumerate(
        [(1, "a"), (2, "a"), (3, "a"), (1, "b"), (2, "left"), (3, "b"), (1, "c"), (2, "d")]
    )
]
CORRECTED = [event(3, 1, "B", 1), event(5, 3, "B", 1)]
WIDE = [event(0, key, "first", 1) for key in range(KEYS)]


class Story:
    """Builds, each with what a reader saw after it."""

    def __init__(self, project: Project, reader: Reader, patch: pytest.MonkeyPatch) -> None:
        self.project, self.reader, self.patch = project, reader, patch
        self.builds = 0

    def build(
        self, dim: list[Row], wide: list[Row], *arguments: str, city: str = "no", **variables: Any
    ) -> dict[str, Look]:
        self.builds += 1
        folder = self.project.folder / "log" / str(self.builds)
        write_log(folder / "dim.parquet", dim, ["id", "name"])
        write_log(folder / "wide.parquet", wide, ["id", "name", "city", "size"])
        self.patch.setenv("LOG", str(folder))
        self.patch.setenv("CITY", city)
        self.told = self.project.dbt("build", *arguments, **variables).succeeded().text
        return self.reader.look(self.project.schema)

    def types(self) -> tuple[str, str]:
        """The types of two columns of ``wide``."""
        metadata = self.reader.metadata(self.project.schema, "wide")
        (schema,) = (
            s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"]
        )
        kinds = {field["name"]: field["type"] for field in schema["fields"]}
        return kinds["id"], kinds["size"]

    def summary(self, table: str) -> dict[str, Any]:
        """The summary of a table's last snapshot."""
        metadata = self.reader.metadata(self.project.schema, table)
        newest = max(metadata["snapshots"], key=lambda one: one["sequence-number"])
        summary: dict[str, Any] = newest["summary"]
        return summary


LOG = [*DIM, event(8, 4, "a", 2)]
CORRECTED_LOG = [*CORRECTED, *(e for e in LOG if e["_row"] not in (3, 5))]
MOVED = [*WIDE, event(1, 7, "second", 2, size="5")]


@pytest.fixture(scope="module")
def begun(make_histories: MakeHistories, reader: Reader) -> Iterator[dict[str, Any]]:
    """What a reader saw after the first two builds."""
    found: dict[str, Any] = {"log": LOG, "corrected": CORRECTED_LOG}
    with pytest.MonkeyPatch.context() as patch:
        story = found["story"] = Story(make_histories("story", MODELS), reader, patch)
        found["first"] = story.build(DIM, WIDE)
        found["second"] = story.build(LOG, MOVED)
        found["wide"] = story.summary("wide")
        yield found


@pytest.fixture(scope="module")
def told(begun: dict[str, Any]) -> dict[str, Any]:
    """What a reader saw after each build."""
    newer = [
        *MOVED,
        event(2, 9, "second", 3, city="Rome", size=str(LARGE)),
        event(1, 7, "second", 3, size="5"),
    ]
    found, story = begun, begun["story"]
    found["types"] = [story.types()]
    found["third"] = story.build(CORRECTED_LOG, newer, city="yes")
    found["told"] = story.told
    found["types"].append(story.types())
    where = {"model": "dim", "where": "id between '1' and '2'"}
    found["restated"] = story.build(CORRECTED_LOG, newer, city="yes", scd2_restate=where)
    found["told_later"] = story.told
    found["rebuilt"] = story.build(
        CORRECTED_LOG, newer, "--full-refresh", "-s", "dim", "wide", city="yes"
    )
    found["types"].append(story.types())
    return found


def versions(rows: list[Row], keys: str) -> list[tuple[Any, ...]]:
    truth = history([r for r in rows if r["id"] in keys], ["id"], ["id", "name"])
    return expected(truth, ["id", "name"])


def of_keys(look: Look, keys: str) -> list[tuple[Any, ...]]:
    return made((row for row in look.rows if row["id"] in keys), ["id", "name"])


def test_a_correction_below_the_last_batch_waits_for_a_restatement(told: dict[str, Any]) -> None:
    assert of_keys(told["third"]["dim"], "1234") == versions(told["log"], "1234")


def test_restatement_builds_the_named_keys_again(told: dict[str, Any]) -> None:
    assert of_keys(told["restated"]["dim"], "12") == versions(told["corrected"], "12")
    assert of_keys(told["restated"]["dim"], "34") == versions(told["log"], "34")


def test_full_refresh_builds_all_keys_again(told: dict[str, Any]) -> None:
    assert of_keys(told["rebuilt"]["dim"], "1234") == versions(told["corrected"], "1234")


def test_surrogate_keys_stay(told: dict[str, Any]) -> None:
    def numbers(build: str) -> dict[Any, int]:
        return {(r["id"], r["valid_from"]): r["version_key"] for r in told[build]["dim"].rows}

    first, last = numbers("first"), numbers("rebuilt")
    assert sorted(first.values()) == list(range(1, 9))
    assert {at: last[at] for at in first} == first
    assert last.keys() == numbers("restated").keys()
    assert sorted(last.values()) == list(range(1, 10))


@pytest.mark.smoke
def test_what_is_written_follows_the_change(begun: dict[str, Any]) -> None:
    # The closed version, the new one, and a mark that the old row is gone; of 400.
    assert begun["wide"]["added-records"] == "2"
    assert begun["wide"]["added-position-deletes"] == "1"
    assert begun["wide"].get("deleted-data-files") is None


def test_new_columns_are_null_in_old_versions(told: dict[str, Any]) -> None:
    rows = {(r["id"], r["version"]): r["city"] for r in told["third"]["wide"].rows}
    assert rows.pop((9, 2)) == "Rome"
    assert set(rows.values()) == {None}
    assert len(rows) == KEYS + 1  # a new column that is NULL makes no version


def test_a_column_gets_the_type_that_its_values_need(told: dict[str, Any]) -> None:
    notice = "column size: 1 values do not fit int; its type is now bigint"
    assert notice in told["told"] and "column id" not in told["told"]
    assert "column size" not in told["told_later"]
    for build in ("third", "restated", "rebuilt"):
        assert {row["size"] for row in told[build]["wide"].rows} == {None, 5, LARGE}
    assert told["types"] == [("int", "int"), ("int", "long"), ("int", "long")]


def test_a_rebuild_with_the_new_column_is_the_same(told: dict[str, Any]) -> None:
    def own(build: str) -> list[Any]:
        return told[build]["wide"].values(
            "id", "name", "city", "size", "version", "valid_from", "valid_to", "row_hash"
        )

    assert own("rebuilt") == own("third")


def test_deletion_by_status(told: dict[str, Any]) -> None:
    rows = told["first"]["members"].values("id", "name", "is_current", "change_flag")
    assert [row for row in rows if row[0] == "2"] == [
        ("2", "a", False, "I"),
        ("2", "d", True, "I"),
    ]


def test_all_faults_of_a_model_are_told_at_once(make_histories: MakeHistories) -> None:
    sql = (
        "{{ config(materialized='scd2', unique_key='key', grain='week', deletes='drop', "
        "open_end='2999-01-01', tracked_columns=['size']) }} "
        "select 1 as id, 2 as version, 'x' as _op"
    )
    done = make_histories("faults", {"bad": sql}).dbt("build").failed()
    for fault in (
        "grain is 'week'; legal values: timestamp, date",
        "deletes is 'drop'; legal values: close, record",
        "open_end is '2999-01-01'; legal values: null, '9999-12-31'",
        "the query has no column key",
        "the query has no column size",
        "the query has no column _sequence",
        "the query's column version has the name of a column that the history adds",
    ):
        assert fault in done.text
