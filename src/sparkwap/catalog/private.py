"""Local files that have no more rights than the warehouse that they are in.

A lake's folders are their owner's alone, and a file in them should be no less, wherever it is moved
to later. What the umask of the calling process is does not matter.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from sparkwap.catalog.files import create_file, local_path, rights_of

if TYPE_CHECKING:
    from pyiceberg.io import OutputStream


class PrivateFileIO(PyArrowFileIO):
    """PyIceberg's file access, for the files of the ledger and of tables that it writes."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write, made with the rights of the warehouse where it is local."""
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
        # It is there then, so it is written over, and keeps its rights.
        with suppress(FileExistsError):
            os.close(create_file(self._local, self._rights))
        return super().create(overwrite=True)
