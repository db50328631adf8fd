"""Reads, writes and deletes metadata files: local files directly, others through PyIceberg."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sparkwap.core.checkpoints import METADATA_HALF, METADATA_WRITING, METADATA_WRITTEN, checkpoint
from sparkwap.core.errors import CatalogError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

# Three schemes of Hadoop's and Iceberg's clients for the same objects.
_S3 = re.compile(r"^s3[an]?://")
FILE_IO = "sparkwap.catalog.private.PrivateFileIO"
"""PyIceberg's file access in catalogs that sparkwap opens."""

_GZIP_SUFFIX = ".gz.metadata.json"
_OPEN_STORES = 50
_NO_KEYS: Mapping[str, str] = {}


def local_path(location: str) -> Path | None:
    """Return the path of a local location (``/x``, ``file:/x``, ``file:///x``); None for others.

    Percent escapes are not decoded, because Hadoop and PyIceberg do not decode them.
    """
    if location.startswith("file:"):
        rest = location[len("file:") :]
        return Path("/" + rest.lstrip("/"))
    return None if "://" in location else Path(location)


def write_failed(location: str, error: OSError) -> CatalogError:
    """Return the error for a file of the lake that cannot be written before a commit."""
    return CatalogError(
        f"{location} cannot be written: {error.strerror or error}. Nothing was changed. Check the "
        "space and the rights there, then run the same command again (`dbt retry` for a build)."
    )


def rights_of(warehouse: str | None) -> int:
    """Return the rights for new folders in the warehouse: those of the warehouse itself.

    If it is not local, or does not exist yet, all rights, which the umask then limits.
    """
    path = local_path(warehouse) if warehouse else None
    try:
        return path.stat().st_mode & 0o777 if path is not None else 0o777
    except OSError:
        return 0o777


def create_file(path: Path, rights: int) -> int:
    """Create a new file, and the folders above it, with these rights; returns its descriptor."""
    make_folders(path.parent, rights)
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, rights & 0o666)


def make_folders(path: Path, rights: int) -> None:
    """Create a folder, and the folders above it, with these rights."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=rights, exist_ok=True)


def plain_location(location: str) -> str:
    """Return a location in one spelling, so that files and folders can be compared."""
    path = local_path(location)
    return _S3.sub("s3://", location).rstrip("/") if path is None else str(path)


@dataclass(frozen=True)
class StoredFile:
    """A file of the lake: its location, size in bytes, and time of the last change if known."""

    path: str
    size: int
    modified: datetime | None


class Keys(Protocol):
    """Keys that a catalog vends; see `sparkwap.catalog.vended_keys.VendedKeys`."""

    @property
    def vends(self) -> bool: ...
    def of(self, location: str) -> Mapping[str, str]: ...


class WarehouseFiles:
    """The files of a lake; safe for use by several threads."""

    def __init__(self, properties: Mapping[str, str], vended: Keys | None = None) -> None:
        self._properties = dict(properties)
        self.vended = vended
        self._ios: OrderedDict[tuple[str, ...], FileIO] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def reach_all(self) -> bool:
        """Whether the keys reach the whole warehouse, and not only folders of tables."""
        return not (self.vended and self.vended.vends)

    def read(self, location: str) -> bytes:
        """Return the content of a file; decompressed if it has the suffix of a gzip file."""
        path = local_path(location)
        if path is not None:
            data = path.read_bytes()
        else:
            with self.io(location).new_input(location).open() as stream:
                data = stream.read()
        return gzip.decompress(data) if location.endswith(_GZIP_SUFFIX) else data

    def exists(self, location: str) -> bool:
        """Return whether a file exists."""
        path = local_path(location)
        if path is not None:
            return path.exists()
        return self.io(location).new_input(location).exists()

    def write(self, location: str, data: bytes) -> None:
        """Write a new file; never replaces one. A local file is durable when this returns.

        Raises:
            CatalogError: The file cannot be written (no space, no rights); no part of it is left.
        """
        try:
            self._write(location, data)
        except OSError as error:
            raise write_failed(location, error) from error

    def _write(self, location: str, data: bytes) -> None:
        if location.endswith(_GZIP_SUFFIX):
            data = gzip.compress(data)
        path = local_path(location)
        checkpoint(METADATA_WRITING, file=location)
        if path is None:
            # The name is unique; a look whether the file exists would be two more requests.
            with self.io(location).new_output(location).create(overwrite=True) as stream:
                stream.write(data)
        else:
            _write_new(path, data, location, rights_of(self._properties.get("warehouse")))
        checkpoint(METADATA_WRITTEN, file=location)

    def make_folder(self, location: str) -> None:
        """Create a folder if it does not exist."""
        path = local_path(location)
        try:
            if path is None:
                system, inner = self._system(location)
                system.create_dir(inner)
            else:
                make_folders(path, rights_of(self._properties.get("warehouse")))
        except OSError as error:
            raise write_failed(location, error) from error

    def delete(self, location: str) -> bool:
        """Delete a file if it exists; returns whether it is gone.

        A failure only leaves an orphan file, so it is no error.
        """
        path = local_path(location)
        try:
            if path is not None:
                path.unlink(missing_ok=True)
            else:
                self.io(location).delete(location)
        except FileNotFoundError:
            return True
        except Exception:
            return False
        return True

    def delete_tree(self, location: str) -> None:
        """Delete a folder with its content; like `delete`, never an error."""
        with contextlib.suppress(Exception):
            path = local_path(location)
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)
                return
            system, inner = self._system(location)
            system.delete_dir(inner)

    def delete_empty(self, location: str) -> None:
        """Delete a local folder if it is empty."""
        path = local_path(location)
        if path is not None:
            with contextlib.suppress(OSError):
                path.rmdir()

    def delete_marker(self, folder: str) -> bool:
        """Delete the object ``<folder>/`` of an object store; False if the folder has a file.

        PyArrow writes it whenever it deletes an object of the folder. Nothing else may write to the
        folder meanwhile.
        """
        if any(not one.path.endswith("/") for one in self.listing(folder)):
            return False
        with contextlib.suppress(FileNotFoundError):
            system, inner = self._system(folder)
            system.delete_dir(inner)
        return True

    def listing(self, folder: str) -> list[StoredFile]:
        """Return all files below a folder, hidden files included; none if there is no folder.

        A folder below it without files is listed as ``<folder>/``, because its name may be a
        value. Links to folders are not followed.

        Raises:
            CatalogError: A folder cannot be read.
        """
        path = local_path(folder)
        try:
            return list(_walk(path)) if path is not None else self._objects(folder)
        except OSError as error:
            vended = "" if self.reach_all else (
                ", by keys of the warehouse in `catalog` of the profile: those that the catalog "
                "vends reach the folder of one table"
            )  # fmt: skip
            raise CatalogError(
                f"{folder} cannot be listed: {error}. Give this machine the right to list "
                f"it{vended}. Then run the same command again."
            ) from error

    def _objects(self, folder: str) -> list[StoredFile]:
        from pyarrow.fs import FileSelector, FileType

        system, inner = self._system(folder)
        root = folder.rstrip("/").removesuffix(inner)
        found = system.get_file_info(FileSelector(inner, allow_not_found=True, recursive=True))
        files = [one for one in found if one.type == FileType.File]
        used = {above for one in files for above in _above(one.path)}
        empty = [one for one in found if one.type == FileType.Directory and one.path not in used]
        return [
            *(StoredFile(f"{root}{one.path}", one.size, one.mtime) for one in files),
            *(StoredFile(f"{root}{one.path}/", 0, one.mtime) for one in empty),
        ]

    def _system(self, location: str) -> tuple[Any, str]:
        """Return PyArrow's file system of a location, and the path in it."""
        from pyiceberg.io.pyarrow import PyArrowFileIO

        scheme, netloc, inner = PyArrowFileIO.parse_location(location)
        io = self.io(location)
        # Another FileIO has no listing; PyArrow's reads the same properties.
        arrow = io if isinstance(io, PyArrowFileIO) else PyArrowFileIO(io.properties)
        return arrow.fs_by_scheme(scheme, netloc), inner.rstrip("/")

    def io(self, location: str) -> FileIO:
        """Return PyIceberg's file access for ``location``."""
        from pyiceberg.io import load_file_io

        keys = self.vended.of(location) if self.vended else _NO_KEYS
        used = (location.split(":", 1)[0], *(f"{key}={keys[key]}" for key in sorted(keys)))
        with self._lock:
            if used not in self._ios:
                self._ios[used] = load_file_io({**self._properties, **keys}, location)
                if len(self._ios) > _OPEN_STORES:
                    self._ios.popitem(last=False)
            self._ios.move_to_end(used)
            return self._ios[used]


def _walk(path: Path) -> Iterator[StoredFile]:
    """Yield the files below a local folder, and folders without files; of a file, the file.

    Raises:
        OSError: A folder cannot be read, so files in it are not known.
    """

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    if path.is_file():
        yield _stored(path.stat(), str(path))
        return
    used: set[str] = set()
    folders: dict[str, None] = {}
    for root, inner, names in os.walk(path, onerror=failed, followlinks=False):
        folders.update((os.path.join(root, name), None) for name in inner)  # noqa: PTH118
        for file in (os.path.join(root, name) for name in names):  # noqa: PTH118
            try:
                found = os.stat(file)  # noqa: PTH116
            except FileNotFoundError:
                continue
            if stat.S_ISREG(found.st_mode):
                used.update(_above(file))
                yield _stored(found, file)
    for folder in folders:
        if folder not in used:
            yield StoredFile(f"{folder}/", 0, None)


def _stored(found: os.stat_result, path: str) -> StoredFile:
    return StoredFile(path, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


def _above(path: str) -> Iterator[str]:
    """Yield the folders above a path."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def read_apart(path: Path) -> bytes:
    """Return the content of a SQLite file, read by another process.

    POSIX drops all locks of a process on a file when the process closes any descriptor of it. So a
    read in this process would drop the locks of its open connections.
    """
    read = "import pathlib, sys; sys.stdout.buffer.write(pathlib.Path(sys.argv[1]).read_bytes())"
    return subprocess.run(
        [sys.executable, "-S", "-c", read, str(path)], check=True, stdout=subprocess.PIPE
    ).stdout


def _write_new(path: Path, data: bytes, location: str, rights: int) -> None:
    """Write a complete and durable file, before anything can refer to it.

    The database is durable after its commit, so the file must be durable, too: its content, its
    entry in the folder, and the entries of new folders.
    """
    made = [folder for folder in path.parents if not folder.exists()]
    with os.fdopen(create_file(path, rights), "wb") as file:
        try:
            file.write(data[: len(data) // 2])
            file.flush()
            checkpoint(METADATA_HALF, file=location)
            file.write(data[len(data) // 2 :])
            file.flush()
            os.fsync(file.fileno())
            sync_folders(path, made)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def sync_folders(path: Path, made: Iterable[Path]) -> None:
    """Make the name of a new file durable, and those of the folders that were made for it."""
    for folder in (path.parent, *(one.parent for one in made)):
        # Some file systems cannot sync a folder; these do not lose entries, either.
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
