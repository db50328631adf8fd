"""Catalogs in a metastore: what is refused, interrupted and found again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.sql_metastore import SqlMetastore

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.metastore_backend import MetastoreBackend
from sparkwap.catalog.pointers import Conflict, Pointer, PointerUpdate, Unanswered
from sparkwap.catalog.refusals import CommitUnknown
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.catalog.store import Staged, Store
from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.publish.lake import Lake

T, SIDE = ("s", "t"), ("s__b", "t")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[MetastoreBackend]:
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/warehouse"}
    sql = SqlBackend("lake", properties)
    backend = MetastoreBackend("lake", properties, SqlMetastore(sql, renames=False))
    backend.ensure_schema("s")
    backend.ensure_schema("s__b", "b")
    yield backend
    backend.close()


def put(rows: MetastoreBackend, name: tuple[str, str] = T, uuid: str = "u") -> Pointer:
    """Register a table with a property."""
    folder = f"{rows.properties['warehouse']}/{uuid}"
    document: dict[str, Any] = {
        "format-version": 2,
        "table-uuid": uuid,
        "location": folder,
        "last-updated-ms": 1,
        "properties": {"owner": "ann"},
    }
    row = Pointer(name, "table", f"{folder}/metadata/00000-{uuid}.metadata.json")
    Store(rows).write({row.location: document})
    rows.register(row)
    return row


def changed(row: Pointer, rows: MetastoreBackend, owner: str = "bob") -> MetadataChange:
    return MetadataChange(Store(rows).load(row.location)).properties({"owner": owner})


def owner(rows: MetastoreBackend, name: tuple[str, str] = T) -> str:
    row = rows.get(name)
    assert row is not None
    return md.properties_of(Store(rows).reload(row.location))["owner"]


def when_changed(rows: MetastoreBackend, carry: Callable[[PointerUpdate], None]) -> Any:
    """Replace how the metastore makes a change; returns how it did."""
    metastore: Any = rows.metastore
    plain = metastore.carry
    metastore.carry = carry
    return plain


def test_a_change_requires_the_file_that_was_read(rows: MetastoreBackend) -> None:
    row = put(rows)
    change, late = changed(row, rows), changed(row, rows, "eve")
    rows.evolve([(row, change)])
    assert owner(rows) == "bob"
    files = set(Path(rows.properties["warehouse"]).rglob("*.json"))
    with pytest.raises(Conflict):
        rows.evolve([(row, late)])
    with pytest.raises(Conflict):
        rows.apply([PointerUpdate(row, None)], documents={})
    assert owner(rows) == "bob"
    # The refused change leaves no file.
    assert set(Path(rows.properties["warehouse"]).rglob("*.json")) == files


def test_a_refusal_of_a_change_that_others_have_followed_keeps_its_file(
    rows: MetastoreBackend,
) -> None:
    row = put(rows)

    def carry(update: PointerUpdate) -> None:
        plain(update)
        rows.metastore.carry = plain  # type: ignore[attr-defined]
        assert update.after is not None
        rows.evolve([(update.after, changed(update.after, rows, "eve"))])
        raise Conflict(None, "changed meanwhile")

    change = changed(row, rows)
    plain = when_changed(rows, carry)
    with pytest.raises(Conflict):
        rows.evolve([(row, change)])
    assert owner(rows) == "eve"
    live = rows.get(T)
    assert live is not None
    log = [one["metadata-file"] for one in Store(rows).reload(live.location)["metadata-log"]]
    assert len(log) == 2 and all(map(rows.files.exists, log))


def test_a_change_that_changes_nothing_writes_nothing(rows: MetastoreBackend) -> None:
    row = put(rows)
    rows.evolve([(row, MetadataChange(Store(rows).load(row.location)))])
    assert rows.get(T) == row


def test_a_rename_that_was_interrupted_between_its_two_steps(rows: MetastoreBackend) -> None:
    put(rows, SIDE)

    def dies(update: PointerUpdate) -> None:
        if update.after is None:
            raise KeyboardInterrupt
        plain(update)

    plain = when_changed(rows, dies)
    with pytest.raises(KeyboardInterrupt):
        rows.rename(SIDE, T, "table")
    assert set(rows.find([SIDE, T])) == {SIDE, T}
    when_changed(rows, plain)
    # The publish, which knows that both are one table, drops one of them.
    with pytest.raises(Conflict):
        rows.rename(SIDE, T, "table")
    assert set(rows.find([SIDE, T])) == {SIDE, T}


def test_a_rename_takes_no_name_of_another_table(rows: MetastoreBackend) -> None:
    first, second = put(rows), put(rows, SIDE, "v")
    with pytest.raises(Conflict):
        rows.rename(SIDE, T, "table")
    assert rows.find([SIDE, T]) == {T: first, SIDE: second}
    with pytest.raises(Conflict):
        rows.rename(("s", "missing"), ("s", "free"), "table")


def test_required_rows_are_checked_first(rows: MetastoreBackend) -> None:
    row = put(rows)
    with pytest.raises(Conflict):
        rows.apply([PointerUpdate(row, None)], documents={}, requires={SIDE: row})
    assert rows.get(T) == row


def test_schemas_with_members_stay(rows: MetastoreBackend) -> None:
    row = put(rows, SIDE)
    rows.apply([], documents={}, drop_if_empty=["s__b"])
    with pytest.raises(Conflict):
        rows.apply([], documents={}, drop_schemas=["s__b"])
    assert rows.side_schemas() == {"s__b": "b"}
    rows.apply([PointerUpdate(row, None)], documents={}, drop_schemas=["s__b"])
    assert rows.schemas() == {"s"}


def test_a_users_schema_is_no_side_schema(rows: MetastoreBackend) -> None:
    with pytest.raises(ConfigError, match="no schema of sparkwap"):
        rows.ensure_schema("s", "b")
    with pytest.raises(ConfigError, match="lower-case letters"):
        rows.ensure_schema("Shop")


def commit(rows: MetastoreBackend, row: Pointer) -> Any:
    store = Store(rows)
    change = changed(row, rows)
    return store.commit(lambda: Staged(None, *store.grow([(row, change)])), "rollback", table="t")


def test_an_answer_that_was_lost_after_the_change(rows: MetastoreBackend) -> None:
    row = put(rows)

    def lost(update: PointerUpdate) -> None:
        plain(update)
        raise Unanswered("timeout", lost=True)

    plain = when_changed(rows, lost)
    commit(rows, row)
    assert owner(rows) == "bob"


def test_an_answer_that_was_lost_before_the_change(rows: MetastoreBackend) -> None:
    """The metastore may still make the change, so its file has to stay."""
    row = put(rows)
    on_its_way: list[PointerUpdate] = []

    def lost(update: PointerUpdate) -> None:
        on_its_way.append(update)
        raise Unanswered("timeout", lost=True)

    plain = when_changed(rows, lost)
    with pytest.raises(CommitUnknown, match="catalog's server failed"):
        commit(rows, row)
    assert owner(rows) == "ann"
    plain(on_its_way[0])
    assert owner(rows) == "bob"


def test_a_change_that_the_metastore_refuses(rows: MetastoreBackend) -> None:
    row = put(rows)

    def refuses(update: PointerUpdate) -> None:
        raise Unanswered("out of space", lost=False)

    when_changed(rows, refuses)
    with pytest.raises(CatalogError, match="Nothing was changed"):
        commit(rows, row)
    assert len(list(Path(rows.properties["warehouse"]).rglob("*.json"))) == 1


@pytest.fixture
def lake(rows: MetastoreBackend) -> Lake:
    lake = Lake("lake", rows.properties)
    lake.store = Store(rows)
    return lake


def test_what_a_metastore_cannot_have_is_refused_before_it_is_built(lake: Lake) -> None:
    lake.require_possible(("s", "new"), None, "table")
    with pytest.raises(ConfigError, match="lower-case"):
        lake.require_possible(("s", "New"), None, "table")
    with pytest.raises(CatalogError, match="neither for a moment"):
        lake.require_possible(("s", "t"), "view", "table")
    lake.require_possible(("s", "v"), "view", "view")
    lake.store.backend.metastore.others.add(("s", "csv"))
    with pytest.raises(ConfigError, match="another format"):
        lake.require_possible(("s", "csv"), None, "table")
    lake.store.backend.keeps_views = False
    with pytest.raises(ConfigError, match="has no views"):
        lake.require_possible(("s", "v"), None, "view")
