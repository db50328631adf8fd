"""Changes of metadata: posted updates, requirements, and the changed document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import difference, view_updates

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


def test_a_publish_requires_all_refs_that_it_changes() -> None:
    before = document()
    moved = MetadataChange(before).branch("main", 2).tag("t", 2, 1000)
    change = moved.remove_refs("pr", "none").properties({"b": "2", "a": None, "c": None})
    after = change.document("file:/t/metadata/1.json")
    assert [u["action"] for u in change.posted] == [
        "set-snapshot-ref",
        "set-snapshot-ref",
        "remove-snapshot-ref",
        "set-properties",
        "remove-properties",
    ]
    assert change.posted[1]["max-ref-age-ms"] == 1000
    assert change.requirements[:5] == [
        {"type": "assert-table-uuid", "uuid": "u"},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
        {"type": "assert-ref-snapshot-id", "ref": "pr", "snapshot-id": 2},
        {"type": "assert-ref-snapshot-id", "ref": "t", "snapshot-id": None},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
    ]
    assert after["refs"] == {
        "main": {"snapshot-id": 2, "type": "branch"},
        "t": {"snapshot-id": 2, "type": "tag", "max-ref-age-ms": 1000},
    }
    assert (after["properties"], after["current-snapshot-id"]) == ({"b": "2"}, 2)
    assert after["metadata-log"] == [
        {"metadata-file": "file:/t/metadata/1.json", "timestamp-ms": 1}
    ]
    assert [one["snapshot-id"] for one in after["snapshot-log"]] == [2]
    assert change.is_made(after)
    assert not change.is_made(before)
    # The change is made, even if others changed the table since.
    assert change.is_made(MetadataChange(after).tag("other", 1).document(None))


def test_main_is_required_even_if_only_a_property_changes() -> None:
    change = MetadataChange(document()).properties({"a": "2"})
    main = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}
    assert main in change.requirements
    assert change.is_made(document(properties={"a": "2"}))
    assert not change.is_made(document())


def test_an_added_snapshot_shows_that_a_change_is_made_although_main_went_on() -> None:
    before = document()
    change = MetadataChange(before).add_snapshot(snapshot(3, 1)).branch("main", 3)
    followed = MetadataChange(change.document(None)).add_snapshot(snapshot(4, 3)).branch("main", 4)
    assert change.is_made(followed.document(None))
    another = MetadataChange(before).add_snapshot(snapshot(4, 1)).branch("main", 4)
    assert change.is_made(another.document(None)) is False
    # All snapshots of that time were removed since, so that nothing can be told.
    assert change.is_made(followed.document(None) | {"snapshots": [snapshot(4, 3)]}) is None


def test_a_removal_of_snapshots_is_made_if_they_are_gone() -> None:
    before = document()
    change = MetadataChange(before).remove_refs("pr").remove_snapshots([2])
    assert change.is_made(before) is False
    assert change.is_made(change.document(None))
    alone = MetadataChange(document(refs={})).remove_snapshots([2])
    assert alone.is_made(document(refs={})) is False
    assert alone.is_made(alone.document(None))


def test_a_change_that_others_have_covered_is_unknown() -> None:
    change = MetadataChange(document()).branch("main", 2)
    other = {"main": {"snapshot-id": 5, "type": "branch"}}
    assert change.is_made(document(refs=other)) is None


def test_statistics_show_that_a_change_is_made() -> None:
    given = {"snapshot-id": 1, "statistics-path": "file:/t/1.stats"}
    change = MetadataChange(document()).then({"action": "set-statistics", "statistics": given})
    assert change.is_made(document()) is False
    assert change.is_made(document(statistics=[given]))


def test_a_changed_schema_comes_before_its_snapshots_and_requires_the_definition() -> None:
    after = document(
        schemas=[*document()["schemas"], {"schema-id": 1, "fields": [FIELD, OTHER]}],
        current_schema_id=1,
        last_column_id=2,
        snapshots=[*document()["snapshots"], snapshot(3, 1)],
        current_snapshot_id=3,
        refs={**document()["refs"], "main": {"snapshot-id": 3, "type": "branch"}},
    )
    found = difference(document(), after)
    assert found.refusal is None
    assert [u["action"] for u in found.posted] == [
        "add-schema",
        "set-current-schema",
        "add-snapshot",
        "set-snapshot-ref",
    ]
    required = {one["type"]: one for one in found.requirements}
    assert required["assert-current-schema-id"]["current-schema-id"] == 0
    assert required["assert-last-assigned-field-id"]["last-assigned-field-id"] == 1


def test_an_empty_change() -> None:
    assert difference(document(), document(last_updated_ms=9)).posted == []
    # Writers may leave out an empty value.
    said = [{"schema-id": 0, "type": "struct", "fields": [FIELD], "identifier-field-ids": []}]
    assert difference(document(), document(schemas=said)).updates == ()


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (document(table_uuid="v"), "another table"),
        (document(encryption_keys=["k"]), "encryption-keys"),
        (document(schemas=[{"schema-id": 0, "fields": [OTHER]}]), "can only be added"),
        (document(schemas=[]), "can only be added"),
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
def test_a_change_without_an_update_needs_a_sql_catalog(after: dict[str, Any], told: str) -> None:
    change = difference(document(), after)
    assert change.refusal is not None and told in change.refusal
    assert change.applied(0) == after


REFS = st.dictionaries(
    st.sampled_from(["main", "pr", "t", "u"]),
    st.builds(
        lambda number, kind, age: {"snapshot-id": number, "type": kind, **age},
        st.integers(1, 4),
        st.sampled_from(["branch", "tag"]),
        st.sampled_from([{}, {"max-ref-age-ms": 5}]),
    ),
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Any state of one table, related to another state or not."""
    refs = draw(REFS)
    refs.get("main", {}).update(type="branch")
    ids = draw(st.sets(st.integers(1, 4))) | {ref["snapshot-id"] for ref in refs.values()}
    schemas = [
        {"schema-id": number, "type": "struct", "fields": draw(st.sampled_from([[FIELD], [OTHER]]))}
        for number in range(draw(st.integers(1, 3)))
    ]
    found = document(
        snapshots=[snapshot(number) for number in draw(st.permutations(sorted(ids)))],
        refs=refs,
        properties=draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from("123"))),
        schemas=schemas,
        current_schema_id=draw(st.integers(0, len(schemas) - 1)),
        last_column_id=draw(st.integers(2, 5)),
        last_sequence_number=draw(st.integers(4, 6)),
        statistics=[{"snapshot-id": number} for number in sorted(ids) if draw(st.booleans())],
        snapshot_log=[{"snapshot-id": number, "timestamp-ms": number} for number in sorted(ids)],
        metadata_log=draw(st.sampled_from([[], [{"metadata-file": "f", "timestamp-ms": 1}]])),
        location=draw(st.sampled_from(["file:/t", "file:/u"])),
        unknown=draw(st.sampled_from(["x", "y"])),
    )
    found.pop("current-snapshot-id")
    return found | ({"current-snapshot-id": refs["main"]["snapshot-id"]} if "main" in refs else {})


@given(documents(), documents())
def test_the_difference_of_two_documents_leads_from_one_to_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    change = difference(before, after)
    assert change.applied(0) == after
    # A change of counters alone leaves no sign.
    assert change.is_made(after) is not False
    assert not difference(after, after).updates


NAMES = st.sampled_from(["main", "pr", "t", "u"])
STEPS: st.SearchStrategy[Callable[[MetadataChange], MetadataChange]] = st.one_of(
    st.builds(lambda n, s: lambda c: c.branch(n, s), NAMES, st.integers(1, 4)),
    st.builds(lambda n, s, a: lambda c: c.tag(n, s, a), NAMES, st.integers(1, 4), st.none()),
    st.builds(lambda n: lambda c: c.remove_refs(n), NAMES),
    st.builds(
        lambda p: lambda c: c.properties(p),
        st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", None])),
    ),
    st.just(lambda c: c.add_snapshot(snapshot(9))),
)


@given(documents(), st.lists(STEPS, max_size=5))
def test_posted_and_applied_updates_have_the_same_result(
    before: dict[str, Any], steps: list[Callable[[MetadataChange], MetadataChange]]
) -> None:
    """Applies the posted updates by an independent implementation."""
    change = MetadataChange(before)
    for step in steps:
        change = step(change)
    refs, properties = dict(before["refs"]), dict(before["properties"])
    added = []
    for update in change.posted:
        action = update["action"]
        if action == "set-snapshot-ref":
            ref = {k: v for k, v in update.items() if k not in ("action", "ref-name")}
            refs[update["ref-name"]] = ref
        elif action == "remove-snapshot-ref":
            del refs[update["ref-name"]]
        elif action == "set-properties":
            properties |= update["updates"]
        elif action == "remove-properties":
            properties = {k: v for k, v in properties.items() if k not in update["removals"]}
        else:
            added.append(update["snapshot"])
    after = change.document(None)
    assert after["refs"] == refs
    assert after["properties"] == properties
    assert after["snapshots"] == [*before["snapshots"], *added]
    assert md.main_of(after) == refs.get("main", {}).get("snapshot-id")
    assert change.refusal is None and change.base == before
    touched = {update["ref-name"] for update in change.posted if "ref-name" in update} | {"main"}
    assert {one["ref"]: one["snapshot-id"] for one in change.requirements if "ref" in one} == {
        name: before["refs"].get(name, {}).get("snapshot-id") for name in touched
    }


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


def test_a_view_gets_a_new_version_or_an_existing_one() -> None:
    added = view_updates(view(1, "select 1"), view(1, "select 2"))
    assert [u["action"] for u in added] == ["add-view-version", "set-current-view-version"]
    assert added[0]["view-version"]["version-id"] == 2
    back = view_updates(view(2, "select 1", "select 2"), view(1, "select 1"))
    assert back == [{"action": "set-current-view-version", "view-version-id": 1}]
    assert view_updates(view(1, "select 1"), view(1, "select 1")) == []
