"""From one metadata document to the next, in updates."""

from __future__ import annotations

from typing import Any

import pytest

from sparkwap.catalog import metadata as md
from sparkwap.catalog.updates import NotExpressible, change, made, view_updates

FIELD = {"id": 1, "name": "id", "required": False, "type": "long"}
OTHER = {"id": 2, "name": "extra", "required": False, "type": "string"}


def snapshot(number: int, parent: int | None = None) -> dict[str, Any]:
    more = {} if parent is None else {"parent-snapshot-id": parent}
    return {"snapshot-id": number, "sequence-number": number, "timestamp-ms": number, **more}


def document(**changes: Any) -> dict[str, Any]:
    return {
        "format-version": 2,
        "table-uuid": "u",
        "location": "file:/t",
        "last-sequence-number": 2,
        "last-updated-ms": 1,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "type": "struct", "fields": [FIELD]}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"a": "1"},
        "current-snapshot-id": 1,
        "snapshots": [snapshot(1), snapshot(2, 1)],
        "refs": {
            "main": {"snapshot-id": 1, "type": "branch"},
            "pr": {"snapshot-id": 2, "type": "branch"},
        },
        **{key.replace("_", "-"): value for key, value in changes.items()},
    }


def test_a_publish_moves_refs_under_all_that_it_touches() -> None:
    before = document()
    edit = md.Edit(before, "file:/t/metadata/1.json").branch("main", 2).tag("t", 2, 1000)
    after = edit.remove_ref("pr").properties({"b": "2", "a": None}).build()
    found = change(before, after)
    assert [u["action"] for u in found.updates] == [
        "set-properties",
        "remove-properties",
        "set-snapshot-ref",
        "set-snapshot-ref",
        "remove-snapshot-ref",
    ]
    assert found.updates[3]["max-ref-age-ms"] == 1000
    assert found.requirements == [
        {"type": "assert-table-uuid", "uuid": "u"},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
        {"type": "assert-ref-snapshot-id", "ref": "pr", "snapshot-id": 2},
        {"type": "assert-ref-snapshot-id", "ref": "t", "snapshot-id": None},
    ]
    assert made(before, after, after)
    assert not made(before, after, before)
    # Made, whatever others did to it since.
    assert made(before, after, md.Edit(after, None).tag("other", 1).build())


def test_main_is_required_even_where_only_a_property_changes() -> None:
    found = change(document(), document(properties={"a": "2"}))
    assert {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1} in found.requirements
    assert made(document(), document(properties={"a": "2"}), document(properties={"a": "2"}))
    assert not made(document(), document(properties={"a": "2"}), document())


def test_a_changed_schema_comes_before_its_snapshots_and_requires_the_definition() -> None:
    after = document(
        schemas=[*document()["schemas"], {"schema-id": 1, "fields": [FIELD, OTHER]}],
        current_schema_id=1,
        last_column_id=2,
        snapshots=[*document()["snapshots"], snapshot(3, 1)],
        current_snapshot_id=3,
        refs={**document()["refs"], "main": {"snapshot-id": 3, "type": "branch"}},
    )
    found = change(document(), after)
    assert [u["action"] for u in found.updates] == [
        "add-schema",
        "set-current-schema",
        "add-snapshot",
        "set-snapshot-ref",
    ]
    required = {one["type"]: one for one in found.requirements}
    assert required["assert-current-schema-id"]["current-schema-id"] == 0
    assert required["assert-last-assigned-field-id"]["last-assigned-field-id"] == 1


def test_nothing_is_nothing() -> None:
    assert change(document(), document(last_updated_ms=9)).updates == []
    # Writers may leave out what is empty, or say it.
    said = [{"schema-id": 0, "type": "struct", "fields": [FIELD], "identifier-field-ids": []}]
    assert change(document(), document(schemas=said)).updates == []


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (document(table_uuid="v"), "another table"),
        (document(encryption_keys=["k"]), "encryption-keys"),
        (document(schemas=[{"schema-id": 0, "fields": [OTHER]}]), "added to only"),
        (document(schemas=[]), "added to only"),
        (
            document(schemas=[*document()["schemas"], {"schema-id": 7, "fields": [OTHER]}]),
            "both sides",
        ),
        (
            document(snapshots=[{**snapshot(1), "timestamp-ms": 9}, snapshot(2, 1)]),
            "a snapshot would change",
        ),
        (
            document(
                snapshots=[*document()["snapshots"], {**snapshot(9, 1), "sequence-number": 2}]
            ),
            "other snapshots since",
        ),
    ],
)
def test_what_no_update_says_is_refused(after: dict[str, Any], told: str) -> None:
    with pytest.raises(NotExpressible, match=told):
        change(document(), after)


def view(current: int, *texts: str) -> dict[str, Any]:
    return {
        "view-uuid": "u",
        "current-version-id": current,
        "properties": {},
        "schemas": [{"schema-id": 0, "fields": [FIELD]}],
        "versions": [
            {
                "version-id": number,
                "timestamp-ms": number,
                "schema-id": 0,
                "representations": [{"sql": text}],
            }
            for number, text in enumerate(texts, 1)
        ],
    }


def test_a_view_gets_a_version_or_goes_back_to_one_that_it_has() -> None:
    added = view_updates(view(1, "select 1"), view(1, "select 2"))
    assert [u["action"] for u in added] == ["add-view-version", "set-current-view-version"]
    assert added[0]["view-version"]["version-id"] == 2
    back = view_updates(view(2, "select 1", "select 2"), view(1, "select 1"))
    assert back == [{"action": "set-current-view-version", "view-version-id": 1}]
    assert view_updates(view(1, "select 1"), view(1, "select 1")) == []
