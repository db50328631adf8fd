"""Keys for the files of one table, which a REST catalog vends with the table.

The protocol has two forms: ``storage-credentials``, each with a prefix of locations, and
``config``, for all files of the table (Iceberg's REST specification, `LoadTableResult`). The
former wins, and the longest prefix of the same answer wins.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sparkwap.catalog.files import plain_location
from sparkwap.catalog.model import Identifier
from sparkwap.core.errors import SparkwapError

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
_SECRETS = ("access-key-id", "token", "account-key")
_EXPIRY = ("token-expires-at", "expiration-time")
_MARGIN_SECONDS = 120.0
"""Keys that end sooner are not used for a request that may take long."""
_TABLES = 5_000
_NONE: Properties = {}


@dataclass(frozen=True)
class _Kept:
    """What a server has vended with a table: keys by prefix, the longest first."""

    identifier: Identifier
    by_prefix: tuple[tuple[str, Properties], ...]
    lasts_until: float | None
    complete: bool


class VendedKeys:
    """The keys that a server has vended; safe for use by several threads.

    Args:
        load: Loads a table from the server, and `keep`s what it vends.
        now: The present time, in seconds since 1970.
    """

    def __init__(
        self, load: Callable[[Identifier], object], now: Callable[[], float] = time.time
    ) -> None:
        self._load = load
        self._now = now
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._asking = threading.Lock()

    @property
    def vends(self) -> bool:
        """Whether the server has vended keys."""
        return bool(self._kept)

    def keep(
        self, identifier: Identifier, answer: Mapping[str, Any], *, complete: bool = True
    ) -> None:
        """Keep the keys in the server's answer to the load of a table.

        Args:
            answer: The answer: ``metadata``, ``metadata-location``, ``config``,
                ``storage-credentials``.
            complete: False if the answer may have had more keys.
        """
        config = _of_store(answer.get("config"))
        found = {
            _plain_prefix(one.get("prefix")): {**config, **_of_store(one.get("config"))}
            for one in answer.get("storage-credentials") or ()
        }
        by_prefix = sorted({"": config, **found}.items(), key=lambda one: -len(one[0]))
        keys = tuple((prefix, keys) for prefix, keys in by_prefix if _are_keys(keys))
        if not keys:
            return
        kept = _Kept(identifier, keys, self._lasts_until(keys), complete)
        with self._lock:
            for folder in _folders(answer):
                former = self._kept.get(folder)
                better = former is not None and former.complete >= complete
                if former and better and self._still_lasts(former):
                    # Most servers make keys for each answer, which need connections of their own.
                    self._kept[folder] = replace(former, identifier=identifier)
                else:
                    self._kept[folder] = kept
                self._kept.move_to_end(folder)
            while len(self._kept) > _TABLES:
                self._kept.popitem(last=False)

    def of(self, location: str) -> Properties:
        """Return the keys for a file or folder; empty if the server has vended none for it.

        Keys that end soon are asked for again, by one thread.
        """
        plain = plain_location(location)
        kept = self._find(plain)
        if kept is not None and not self._is_good(kept):
            with self._asking:
                kept = self._find(plain) or kept
                if not self._is_good(kept):
                    # Without an answer, the store decides whether these still are good.
                    with suppress(SparkwapError):
                        self._load(kept.identifier)
                    kept = self._find(plain) or kept
        by_prefix = kept.by_prefix if kept else ()
        return next((keys for prefix, keys in by_prefix if plain.startswith(prefix)), _NONE)

    def _lasts_until(self, keys: tuple[tuple[str, Properties], ...]) -> float | None:
        """Return until when keys are used; None for keys without an end."""
        ends = [end for _, properties in keys if (end := _expiry(properties)) is not None]
        if not ends:
            return None
        return min(ends) - min(_MARGIN_SECONDS, max(0.0, min(ends) - self._now()) / 2)

    def _is_good(self, kept: _Kept) -> bool:
        return kept.lasts_until is None or self._still_lasts(kept)

    def _still_lasts(self, kept: _Kept) -> bool:
        return kept.lasts_until is not None and self._now() < kept.lasts_until

    def _find(self, plain: str) -> _Kept | None:
        with self._lock:
            if not self._kept:
                return None
            found = (self._kept.get(folder) for folder in _upwards(plain))
            return next((kept for kept in found if kept), None)


def _plain_prefix(prefix: object) -> str:
    """Return a prefix of locations in the spelling of `plain_location`; all have the empty one."""
    text = str(prefix or "")
    return "s3" if text in ("s3a", "s3n") else plain_location(text) if "://" in text else text


def _of_store(config: Mapping[str, Any] | None) -> dict[str, str]:
    return {
        key: str(value)
        for key, value in (config or {}).items()
        if value is not None and (key.startswith(_OF_STORES) or key in _EXPIRY)
    }


def _are_keys(properties: Properties) -> bool:
    """Return whether there are keys, and not only the place of a store."""
    return any(part in key for key in properties for part in _SECRETS)


def _folders(answer: Mapping[str, Any]) -> set[str]:
    """Return the folder of a table, and that of its metadata files."""
    folders = {plain_location(str(answer["metadata"]["location"]))}
    if location := answer.get("metadata-location"):
        folders.add(plain_location(str(location)).rpartition("/")[0])
    return folders


def _expiry(keys: Properties) -> float | None:
    """Return the first end of keys, in seconds since 1970; the properties have milliseconds."""
    ends = []
    for key, value in keys.items():
        if any(part in key for part in _EXPIRY):
            with suppress(ValueError):
                ends.append(float(value) / 1000)
    return min(ends, default=None)


def _upwards(location: str) -> Iterator[str]:
    """Yield a location, the folders above it, and its bucket."""
    yield location
    root = location.partition("://")[0]
    while len(location) > len(root) + 3:
        location = location.rpartition("/")[0]
        yield location.rstrip("/")
