"""PyIceberg's access to files: rights and durability of local files, retries of S3.

Only their owner may read a lake's folders, whatever the umask is. Local files have the same rights,
in case they are moved.
"""

from __future__ import annotations

import os
from contextlib import suppress
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow.fs import AwsStandardS3RetryStrategy
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from sparkwap.catalog.files import create_file, local_path, rights_of, sync_folders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.io import OutputStream


class S3Retries(AwsStandardS3RetryStrategy):  # type: ignore[misc]
    """Sends a request to S3 up to ten times, with growing waits; PyArrow's default is three times.

    A store under load refuses requests with the status 503, and a publish has hundreds of them.
    """

    def __init__(self) -> None:
        super().__init__(max_attempts=10)


class PrivateFileIO(PyArrowFileIO):
    """PyIceberg's file access, for the files that PyIceberg writes (those of the ledger)."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write.

        A local file gets the rights of the warehouse, and is durable when it is closed.
        """
        output = super().new_output(location)
        path = local_path(location)
        rights = rights_of(self.properties.get("warehouse"))
        return _PrivateFile(output, path, rights) if path is not None else output


class _PrivateFile(PyArrowFile):
    def __init__(self, output: PyArrowFile, path: Path, rights: int) -> None:
        super().__init__(output.location, output._path, output._filesystem, output._buffer_size)
        self._local = path
        self._rights = rights

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        made = [folder for folder in self._local.parents if not folder.exists()]
        # An existing file is overwritten, and keeps its rights.
        with suppress(FileExistsError):
            os.close(create_file(self._local, self._rights))
        return _DurableStream(self._local, made)


class _DurableStream(BufferedWriter):
    """Writes a local file; the database is durable after its commit, so the file must be, too."""

    def __init__(self, path: Path, made: Sequence[Path]) -> None:
        super().__init__(FileIO(path, "wb"))
        self._path, self._made = path, made

    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            sync_folders(self._path, self._made)
        super().close()
