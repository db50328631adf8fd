"""Metadata files: read, written once, deleted; local paths directly, others through PyIceberg."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_GZIP_SUFFIX = ".gz.metadata.json"


def local_path(location: str) -> Path | None:
    """The path of a local location (``/x``, ``file:/x``, ``file:///x``); None for any other.

    Nothing is unquoted, as Hadoop and PyIceberg do not unquote either.
    """
    if location.startswith("file:"):
        rest = location[len("file:") :]
        return Path("/" + rest.lstrip("/"))
    return None if "://" in location else Path(location)


def rights_of(warehouse: str | None) -> int:
    """The rights that a folder in the warehouse may have: those of the warehouse itself.

    All rights, for the umask to decide, where it is not local or not there yet.
    """
    path = local_path(warehouse) if warehouse else None
    try:
        return path.stat().st_mode & 0o777 if path is not None else 0o777
    except OSError:
        return 0o777


def create_file(path: Path, rights: int) -> int:
    """Make a new file, and the folders above it, with these rights; its descriptor.

    Raises:
        FileExistsError: There is one.
    """
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=rights, exist_ok=True)
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, rights & 0o666)


def plain_location(location: str) -> str:
    """A location in one spelling, so that prefixes can be compared."""
    path = local_path(location)
    return location.rstrip("/") if path is None else str(path)


class Files:
    """The files of a lake; safe for use by several threads.

    Args:
        properties: PyIceberg's catalog properties, which configure the access to object stores.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)
        self._ios: dict[str, FileIO] = {}
        self._lock = threading.Lock()

    def read(self, location: str) -> bytes:
        """The content of a file, decompressed where its name says that it is compressed.

        Raises:
            FileNotFoundError: There is no such file.
        """
        path = local_path(location)
        if path is not None:
            data = path.read_bytes()
        else:
            with self.io(location).new_input(location).open() as stream:
                data = stream.read()
        return gzip.decompress(data) if location.endswith(_GZIP_SUFFIX) else data

    def write(self, location: str, data: bytes) -> None:
        """Write a new file, durably where it is local; never replaces one."""
        if location.endswith(_GZIP_SUFFIX):
            data = gzip.compress(data)
        path = local_path(location)
        if path is None:
            with self.io(location).new_output(location).create(overwrite=False) as stream:
                stream.write(data)
            return
        try:
            rights = rights_of(self._properties.get("warehouse"))
            with os.fdopen(create_file(path, rights), "wb") as file:
                file.write(data)
                file.flush()
                # The database is durable after its commit, so what it points to must be, too.
                os.fsync(file.fileno())
        except FileExistsError:
            raise
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def delete(self, location: str) -> None:
        """Delete a file if it is there; a failure only leaves an orphan, so it is not an error."""
        with contextlib.suppress(Exception):
            path = local_path(location)
            if path is not None:
                path.unlink(missing_ok=True)
            else:
                self.io(location).delete(location)

    def delete_tree(self, location: str) -> None:
        """Delete a folder with all that is in it; as `delete`, never an error."""
        with contextlib.suppress(Exception):
            path = local_path(location)
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)
                return
            from pyiceberg.io.pyarrow import PyArrowFileIO

            scheme, netloc, inner = PyArrowFileIO.parse_location(location)
            io = PyArrowFileIO(self._properties)
            io.fs_by_scheme(scheme, netloc).delete_dir(inner)

    def delete_empty(self, location: str) -> None:
        """Delete a local folder if nothing is in it; object stores have no folders."""
        path = local_path(location)
        if path is not None:
            with contextlib.suppress(OSError):
                path.rmdir()

    def io(self, location: str) -> FileIO:
        """PyIceberg's file access for the scheme of ``location``."""
        from pyiceberg.io import load_file_io

        scheme = location.split(":", 1)[0]
        with self._lock:
            if scheme not in self._ios:
                self._ios[scheme] = load_file_io(self._properties, location)
            return self._ios[scheme]
