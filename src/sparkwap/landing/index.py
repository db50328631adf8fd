"""Caches the digests of landing files between builds: an unchanged file is hashed once.

The index of a raw model is a file in dbt's target folder, which only its owner can read. It has a
row for each landing file of the model: its stamp (size, times of change, inode), its digest, the
time of hashing, and its load date. A digest is valid only while the file has the same stamp, and
only if the file was hashed `MARGIN_NS` or more after its last change: the clock of a file system
has steps of up to two seconds, so a file that changes in the step of its hashing keeps its stamp.

An index is ignored if it is damaged, belongs to another user, model or landing folder, or is
writable by other users. The files are then hashed again, without an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import BinaryIO, NamedTuple

FOLDER = "sparkwap_landing"
LISTING = "SPARKWAP_LANDING_LISTING"
"""Environment variable with the id of the listing that `sparkwap build` gives to its dbt builds."""
MARGIN_NS = 5 * 10**9
"""Two seconds for the steps of a file system's clock, the rest for differences between clocks."""
_VERSION = 1
_CHUNK = 1 << 20
_OTHERS_WRITE = 0o022


class Stamp(NamedTuple):
    """Metadata that differs after a change of a file.

    Attributes:
        modified: time of the last change of the content, in nanoseconds; programs can set it.
        changed: time of the last change of content or inode; programs cannot set it.
        inode: the inode number; a file that replaces this one has another number.
    """

    bytes: int
    modified: int
    changed: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp of a file from its status."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class Hashed(NamedTuple):
    """The digest of a file.

    Attributes:
        stamp: the file's stamp after hashing.
        at: start of the hashing, in nanoseconds; 0 if the file changed in the meantime.
    """

    stamp: Stamp
    sha256: str
    at: int

    def holds(self, stamp: Stamp) -> bool:
        """Return whether a file with this stamp must have the same content."""
        last_change = max(stamp.modified, stamp.changed)
        return stamp == self.stamp and last_change + MARGIN_NS <= self.at


Listing = Mapping[str, date | None]
"""The names of the landing files of a model, each with its load date."""


class Index:
    """The digests of a model's landing files.

    Attributes:
        rows: the latest digests, by file name.
        listing: the files of the latest listing.
        listing_id: the id of the command of that listing.
    """

    def __init__(self, file: Path | None = None, owner: str = "") -> None:
        self._file, self._owner = file, owner
        self.rows: dict[str, Hashed] = {}
        self.listing: Listing = {}
        self.listing_id = ""
        if file is not None:
            self._read(file)

    @classmethod
    def of_model(cls, target_folder: Path | None, model: str, root: Path, path: str) -> Index:
        """Return the index of a raw model.

        Args:
            target_folder: dbt's target folder; None for an index that is not saved.
        """
        if target_folder is None:
            return cls()
        owner = f"{model}\n{root}\n{path}"
        name = hashlib.sha256(owner.encode(errors="surrogateescape")).hexdigest()[:16]
        return cls(target_folder / FOLDER / f"{name}.json", owner)

    def look(self, name: str, path: Path, stamp: Stamp) -> Hashed:
        """Return a file's digest, from the index if it is valid there, else by hashing the file."""
        known = self.rows.get(name)
        if known is None or not known.holds(stamp):
            with path.open("rb") as stream:
                known = self.hash(stream)
            self.rows[name] = known
        return known

    def hash(self, stream: BinaryIO) -> Hashed:
        """Return the digest of a file."""
        at, digest = time.time_ns(), hashlib.sha256()
        before = Stamp.of(os.fstat(stream.fileno()))
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
        after = Stamp.of(os.fstat(stream.fileno()))
        return Hashed(after, digest.hexdigest(), at if before == after else 0)

    def record(self, listing: Listing, listing_id: str) -> None:
        """Record the listed files, and drop the digests of all others."""
        self.rows = {name: row for name, row in self.rows.items() if name in listing}
        self.listing, self.listing_id = dict(listing), listing_id

    def save(self) -> None:
        """Write the index to its file."""
        if self._file is None:
            return
        days = {name: day and day.isoformat() for name, day in self.listing.items()}
        rows = {name: [*row.stamp, row.sha256, row.at] for name, row in self.rows.items()}
        body = json.dumps([self.listing_id, days, rows]).encode()
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=self._file.parent, prefix=".partial-")
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(self._head(body) + b"\n" + body)
                Path(partial).replace(self._file)
            except OSError:
                Path(partial).unlink()

    def _head(self, body: bytes) -> bytes:
        return json.dumps([_VERSION, self._owner, hashlib.sha256(body).hexdigest()]).encode()

    def _read(self, file: Path) -> None:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            with file.open("rb") as stream:
                status = os.fstat(stream.fileno())
                if status.st_uid != os.getuid() or status.st_mode & _OTHERS_WRITE:
                    return
                head, _, body = stream.read().partition(b"\n")
            if head != self._head(body):
                return
            listing_id, days, rows = json.loads(body)
            listing = {name: day and date.fromisoformat(day) for name, day in days.items()}
            hashed = {
                name: Hashed(Stamp(*stamp), sha256, at)
                for name, (*stamp, sha256, at) in rows.items()
            }
            self.rows, self.listing, self.listing_id = hashed, listing, listing_id
