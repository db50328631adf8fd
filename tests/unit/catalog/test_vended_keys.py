"""The keys of a store that a REST catalog vends with a table."""

from __future__ import annotations

from typing import Any

from sparkwap.catalog.files import WarehouseFiles
from sparkwap.catalog.vended_keys import VendedKeys

A, B = ("s", "a"), ("s", "b")


def _answer(location: str, config: dict[str, str], **more: Any) -> dict[str, Any]:
    metadata = {"location": location, "properties": more.pop("properties", {})}
    file = f"{location}/metadata/00000-x.metadata.json"
    return {"metadata": metadata, "metadata-location": file, "config": config, **more}


def _keys(now: float = 0) -> VendedKeys:
    return VendedKeys(lambda identifier: None, lambda: now)


def test_keys_belong_to_the_folder_of_their_table() -> None:
    keys = _keys()
    keys.keep(A, _answer("s3://lake/a", {"s3.access-key-id": "of a"}))
    keys.keep(B, _answer("s3a://lake/a/b/", {"s3.access-key-id": "of b"}))
    assert keys.of("s3://lake/a/data/1.parquet") == {"s3.access-key-id": "of a"}
    assert keys.of("s3a://lake/a/") == {"s3.access-key-id": "of a"}
    assert keys.of("s3://lake/a/b/data/1.parquet") == {"s3.access-key-id": "of b"}
    assert keys.of("s3://lake/ab/1.parquet") == keys.of("s3://other/a/1") == keys.of("/a/1") == {}


def test_folders_outside_the_table_have_its_keys() -> None:
    keys = _keys()
    config = {"gcs.oauth2.token": "x", "token": "of the catalog", "write.parquet.level": "1"}
    answer = _answer("gs://lake/a", config, properties={"write.data.path": "gs://data/a"})
    keys.keep(A, {**answer, "metadata-location": "gs://other/metadata/1.metadata.json"})
    for location in ("gs://lake/a/1", "gs://data/a/1", "gs://other/metadata/1.metadata.json"):
        assert keys.of(location) == {"gcs.oauth2.token": "x"}


def test_a_prefix_has_keys_of_its_own() -> None:
    keys = _keys()
    of_bucket = {"prefix": "s3://lake", "config": {"s3.access-key-id": "of the bucket"}}
    of_all = {"prefix": "s3", "config": {"s3.access-key-id": "of all"}}
    config = {"s3.region": "eu-west-1"}
    answer = _answer("gs://lake/a", config, **{"storage-credentials": [of_bucket, of_all]})
    keys.keep(A, answer)
    assert keys.of("s3://lake/b/1") == {**config, "s3.access-key-id": "of the bucket"}
    assert keys.of("s3://more/b/1") == {**config, "s3.access-key-id": "of all"}
    assert keys.of("gs://lake/a/1") == config


def test_keys_that_end_soon_are_asked_for_again() -> None:
    now, asked = 1_000.0, []

    def load(identifier: Any) -> None:
        asked.append(identifier)
        keys.keep(A, _answer("s3://lake/a", _until(now + 3600)))

    def _until(end: float) -> dict[str, str]:
        return {"s3.session-token-expires-at-ms": f"{end * 1000:.0f}"}

    keys = VendedKeys(load, lambda: now)
    keys.keep(A, _answer("s3://lake/a", _until(now + 3600)))
    kept = keys.of("s3://lake/a/1")
    # Most servers make new keys for each answer, and those of before are still valid.
    keys.keep(A, _answer("s3://lake/a", _until(now + 4000)))
    assert keys.of("s3://lake/a/1") == kept and not asked
    now += 3500
    assert keys.of("s3://lake/a/1") == _until(now + 3600)
    assert asked == [A]


def test_keys_of_a_table_that_is_gone_stay() -> None:
    now = 0.0
    keys = VendedKeys(lambda identifier: None, lambda: now)
    config = {"s3.access-key-id": "x", "s3.session-token-expires-at-ms": "200000"}
    keys.keep(A, _answer("s3://lake/a", config))
    now = 100.0
    assert keys.of("s3://lake/a/1") == config


def test_each_folder_has_a_file_access_of_its_own() -> None:
    keys = _keys()
    for name in ("a", "b"):
        keys.keep(("s", name), _answer(f"s3://lake/{name}", {"s3.access-key-id": name}))
    files = WarehouseFiles({"s3.region": "eu-west-1", "s3.access-key-id": "own"}, keys.of)
    accesses = [files.io(f"s3://lake/{name}/1") for name in ("a", "b", "c", "a")]
    assert [one.properties["s3.access-key-id"] for one in accesses] == ["a", "b", "own", "a"]
    assert accesses[0] is accesses[3]
    assert {one.properties["s3.region"] for one in accesses} == {"eu-west-1"}
