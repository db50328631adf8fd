"""Keys for the files of one table, which a REST catalog vends with the table.

The protocol has two forms: ``storage-credentials``, each with a prefix of locations, and
``config``, for all files of the table (Iceberg's REST specification, `LoadTableResult`). The
former wins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkwap.catalog.files import plain_location
from sparkwap.catalog.model import Identifier

Properties = Mapping[str, str]
"""PyIceberg's properties of a file access."""

OWN_KEYS = frozenset({
    "client.access-key-id", "client.profile-name", "client.role-arn",
    "s3.access-key-id", "s3.profile-name", "s3.role-arn",
    "gcs.oauth2.token",
    "adls.account-key", "adls.client-secret", "adls.connection-string", "adls.credential",
    "adls.sas-token", "adls.token",
})  # fmt: skip
"""PyIceberg's properties with keys of one's own, which reach the whole warehouse."""

_OF_STORES = ("s3.", "gcs.", "adls.", "client.", "oss.")
_FOLDERS = ("write.data.path", "write.metadata.path", "write.object-storage.path")
_EXPIRY = ("token-expires-at", "expiration-time")
_MARGIN_SECONDS = 120.0
"""Keys that end sooner are not used for a request that may take long."""


@dataclass(frozen=True)
class _Kept:
    properties: Properties
    identifier: Identifier
    expires_at: float | None


class VendedKeys:
    """The keys that a server has vended, by folder; safe for use by several threads.

    Args:
        load: Loads a table from the server, and `keep`s what it vends.
        now: The present time, in seconds since 1970.
    """

    def __init__(
        self, load: Callable[[Identifier], object], now: Callable[[], float] = time.time
    ) -> None:
        self._load = load
        self._now = now
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    def keep(self, identifier: Identifier, answer: Mapping[str, Any]) -> None:
        """Keep the keys in the server's answer to the load of a table."""
        found: dict[str, Properties] = {}
        if config := _of_store(answer.get("config") or {}):
            found.update((folder, config) for folder in _folders(answer))
        for one in answer.get("storage-credentials") or ():
            if keys := _of_store(one.get("config") or {}):
                found[plain_location(one["prefix"])] = {**config, **keys}
        with self._lock:
            for folder, vended in found.items():
                # Most servers make keys for each answer, and each needs connections of its own.
                if not self._lasts(self._kept.get(folder)):
                    self._kept[folder] = _Kept(vended, identifier, _expiry(vended))

    def of(self, location: str) -> Properties:
        """Return the keys for a file or folder; empty if the server has vended none for it.

        Keys that end soon are asked for again.
        """
        kept = self._find(location)
        if kept and kept.expires_at and not self._lasts(kept):
            # A table that is gone has no other keys; the store then refuses the request.
            self._load(kept.identifier)
            kept = self._find(location)
        return kept.properties if kept else {}

    def _lasts(self, kept: _Kept | None) -> bool:
        ends = kept.expires_at if kept else None
        return ends is not None and ends - self._now() > _MARGIN_SECONDS

    def _find(self, location: str) -> _Kept | None:
        with self._lock:
            if not self._kept:
                return None
            found = (self._kept.get(folder) for folder in _upwards(plain_location(location)))
            return next((kept for kept in found if kept), None)


def _of_store(config: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in config.items()
            if key.startswith(_OF_STORES) or key in _EXPIRY}  # fmt: skip


def _folders(answer: Mapping[str, Any]) -> Iterator[str]:
    metadata = answer["metadata"]
    yield plain_location(str(metadata["location"]))
    if location := answer.get("metadata-location"):
        yield plain_location(str(location)).rpartition("/")[0]
    for name in _FOLDERS:
        if folder := (metadata.get("properties") or {}).get(name):
            yield plain_location(str(folder))


def _expiry(keys: Properties) -> float | None:
    """Return the first end of keys, in seconds since 1970; the properties have milliseconds."""
    ends = [int(value) / 1000 for key, value in keys.items()
            if any(part in key for part in _EXPIRY) and value.isdecimal()]  # fmt: skip
    return min(ends, default=None)


def _upwards(location: str) -> Iterator[str]:
    """Yield a location, the folders above it, its bucket, and its scheme."""
    yield location
    scheme, _, _ = location.partition("://")
    while len(location) > len(scheme) + 3:
        location = location.rpartition("/")[0]
        yield location.rstrip("/")
    yield scheme
