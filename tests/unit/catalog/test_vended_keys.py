"""The keys of a store that a REST catalog vends with a table."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sparkwap.catalog.files import WarehouseFiles
from sparkwap.catalog.vended_keys import VendedKeys
from sparkwap.core.errors import CatalogError

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
    for odd in ("s3://lake/ab/1", "s3://other/a/1", "/a/1", "", "/", "s3:", "s3://", "a://b://c"):
        assert keys.of(odd) == {}


def test_the_folder_of_the_metadata_has_the_keys_of_the_table() -> None:
    keys = _keys()
    config = {"gcs.oauth2.token": "x", "token": "of the catalog", "write.parquet.level": "1"}
    answer = _answer("gs://lake/a", config)
    keys.keep(A, {**answer, "metadata-location": "gs://other/metadata/1.metadata.json"})
    for location in ("gs://lake/a/1", "gs://other/metadata/2.metadata.json"):
        assert keys.of(location) == {"gcs.oauth2.token": "x"}


def test_the_longest_prefix_of_the_table_has_the_keys() -> None:
    keys = _keys()
    of_bucket = {"prefix": "s3a://lake/", "config": {"s3.access-key-id": "of the bucket"}}
    of_all = {"prefix": "s3", "config": {"s3.access-key-id": "of all", "s3.session-token": None}}
    config = {"s3.region": "eu-west-1"}
    answer = _answer("s3://lake/a", config, **{"storage-credentials": [of_all, of_bucket]})
    keys.keep(A, {**answer, "metadata-location": "s3://more/a/metadata/1.metadata.json"})
    assert keys.of("s3://lake/a/1") == {**config, "s3.access-key-id": "of the bucket"}
    assert keys.of("s3://more/a/metadata/1") == {**config, "s3.access-key-id": "of all"}
    assert keys.of("s3://lake/b/1") == keys.of("s3://more/b/1") == {}


def test_tables_with_one_prefix_have_keys_of_their_own() -> None:
    keys = _keys()
    for identifier, name in ((A, "a"), (B, "b")):
        given = [{"prefix": "s3", "config": {"s3.access-key-id": name}}]
        keys.keep(identifier, _answer(f"s3://lake/{name}", {}, **{"storage-credentials": given}))
    assert [keys.of(f"s3://lake/{name}/1") for name in "ab"] == [
        {"s3.access-key-id": "a"},
        {"s3.access-key-id": "b"},
    ]


def test_a_place_without_keys_is_that_of_the_profile() -> None:
    keys = _keys()
    keys.keep(A, _answer("s3://lake/a", {"s3.endpoint": "http://minio.internal"}))
    assert keys.of("s3://lake/a/1") == {} and not keys.vends


def test_an_answer_with_all_keys_replaces_one_of_them() -> None:
    keys = _keys()
    until = {"s3.session-token-expires-at-ms": "900000"}
    keys.keep(A, _answer("s3://lake/a", {"s3.access-key-id": "one", **until}), complete=False)
    keys.keep(A, _answer("s3://lake/a", {"s3.access-key-id": "all", **until}))
    keys.keep(A, _answer("s3://lake/a", {"s3.access-key-id": "one", **until}), complete=False)
    assert keys.of("s3://lake/a/1")["s3.access-key-id"] == "all"


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


def test_keys_of_a_renamed_table_are_asked_for_by_its_name() -> None:
    now, asked = 0.0, []
    keys = VendedKeys(asked.append, lambda: now)
    config = {"s3.access-key-id": "x", "s3.session-token-expires-at-ms": "900000"}
    keys.keep(A, _answer("s3://lake/a", config))
    keys.keep(B, _answer("s3://lake/a", config))
    now = 850.0
    assert keys.of("s3://lake/a/1") == config
    assert asked == [B]


def test_keys_are_used_as_long_as_the_catalog_does_not_answer() -> None:
    def load(identifier: Any) -> None:
        raise CatalogError("no answer")

    now = 0.0
    keys = VendedKeys(load, lambda: now)
    config = {"s3.access-key-id": "x", "s3.session-token-expires-at-ms": "900000"}
    keys.keep(A, _answer("s3://lake/a", config))
    now = 850.0
    assert keys.of("s3://lake/a/1") == config


def test_one_thread_asks_again() -> None:
    now, asked = 0.0, []

    def load(identifier: Any) -> None:
        asked.append(identifier)
        time.sleep(0.05)
        later = {**config, "s3.session-token-expires-at-ms": "9000000"}
        keys.keep(A, _answer("s3://lake/a", later))

    keys = VendedKeys(load, lambda: now)
    config = {"s3.access-key-id": "x", "s3.session-token-expires-at-ms": "900000"}
    keys.keep(A, _answer("s3://lake/a", config))
    now = 850.0
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(keys.of, ["s3://lake/a/1"] * 8))
    assert len(asked) == 1 and len({one["s3.session-token-expires-at-ms"] for one in found}) == 1


def test_keys_of_a_table_that_is_gone_stay() -> None:
    now = 0.0
    keys = VendedKeys(lambda identifier: None, lambda: now)
    config = {"s3.access-key-id": "x", "s3.session-token-expires-at-ms": "110000"}
    keys.keep(A, _answer("s3://lake/a", config))
    now = 100.0
    assert keys.of("s3://lake/a/1") == config


def test_each_folder_has_a_file_access_of_its_own() -> None:
    keys = _keys()
    for name in ("a", "b"):
        keys.keep(("s", name), _answer(f"s3://lake/{name}", {"s3.access-key-id": name}))
    files = WarehouseFiles({"s3.region": "eu-west-1", "s3.access-key-id": "own"}, keys)
    accesses = [files.io(f"s3://lake/{name}/1") for name in ("a", "b", "c", "a")]
    assert [one.properties["s3.access-key-id"] for one in accesses] == ["a", "b", "own", "a"]
    assert accesses[0] is accesses[3]
    assert {one.properties["s3.region"] for one in accesses} == {"eu-west-1"}
