"""The metadata documents of a catalog: cached reads, and files that are written all or none."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from sparkwap.catalog import metadata as md
from sparkwap.catalog.backend import CatalogBackend
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.threads import Threads
from sparkwap.core.errors import CatalogError, MetadataFileMissing

T = TypeVar("T")
R = TypeVar("R")

_CACHED_DOCUMENTS = 1000


class Documents:
    """The metadata documents of a catalog; safe for use by several threads."""

    def __init__(self, backend: CatalogBackend) -> None:
        self.backend = backend
        self.files = backend.files
        self._unwritten: dict[str, md.Document] = {}
        self._documents: OrderedDict[str, md.Document] = OrderedDict()
        self._lock = threading.Lock()
        self._threads = Threads("sparkwap-lake")

    def close(self) -> None:
        """Close connections and threads."""
        self._threads.close()
        self.backend.close()

    def load(self, location: str) -> md.Document:
        """Return the metadata document in a file; cached, because metadata files never change."""
        given = self.backend.document(location)
        if given is not None:
            return given
        with self._lock:
            document = self._documents.get(location)
            if document is not None:
                self._documents.move_to_end(location)
                return document
        document = self.reload(location)
        with self._lock:
            self._documents[location] = document
            while len(self._documents) > _CACHED_DOCUMENTS:
                self._documents.popitem(last=False)
        return document

    def documents(self, rows: Iterable[Pointer]) -> list[md.Document]:
        """Return the metadata document of each row, in order; see `load`."""
        return self.map(lambda row: self.load(row.location), rows)

    def reload(self, location: str) -> md.Document:
        """Like `load`, but always read the file."""
        try:
            return md.parse(self.files.read(location))
        except FileNotFoundError as error:
            raise MetadataFileMissing(
                f"The metadata file {location} does not exist, but the catalog or the history of a "
                "table refers to it. Nothing was changed. Restore the file, or drop its table."
            ) from error
        except ValueError as error:
            raise CatalogError(
                f"The metadata file {location} cannot be read: {error}. Nothing was changed. "
                "Restore the file, or drop its table."
            ) from error
        except OSError as error:
            raise CatalogError(
                f"The metadata file {location} cannot be read: {error}. Nothing was changed. Check "
                "that this machine reaches the store with the properties of `catalog` in the "
                "profile (address, keys, region, rights); `sparkwap doctor` tries it."
            ) from error

    def map(self, function: Callable[[T], R], values: Iterable[T]) -> list[R]:
        """Return ``function`` of each value, in order; runs in several threads."""
        return self._threads.map(function, values)

    def write(self, documents: Mapping[str, md.Document]) -> list[str]:
        """Write metadata files, all or none; returns their locations.

        If the catalog writes metadata itself, the documents stay in memory until `commit`.
        """
        if not self.backend.takes_files:
            with self._lock:
                self._unwritten.update(documents)
            return list(documents)
        try:
            self.map(lambda item: self.files.write(item[0], md.dump(item[1])), documents.items())
        except BaseException:
            self.delete(documents)
            raise
        return list(documents)

    def delete(self, locations: Iterable[str]) -> list[str]:
        """Delete files if they exist; returns those that could not be deleted."""
        with self._lock:
            written = [one for one in locations if self._unwritten.pop(one, None) is None]
        gone = self.map(self.files.delete, written)
        return [one for one, is_gone in zip(written, gone, strict=True) if not is_gone]

    def _unwritten_of(self, locations: Iterable[str]) -> dict[str, md.Document]:
        with self._lock:
            return {one: self._unwritten[one] for one in locations if one in self._unwritten}

    def _forget_unwritten(self, locations: Iterable[str]) -> None:
        with self._lock:
            for location in locations:
                self._unwritten.pop(location, None)
