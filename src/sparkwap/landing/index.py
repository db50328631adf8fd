"""Digests of landing files, kept from build to build: a file that stays the same is hashed once.

The index of a raw model is a file in dbt's target folder, for its owner alone. It has a row for
each landing file of the model: its stamp (size, times of change, inode), its digest, when it was
hashed, and its load date. A digest counts only while the file has the same stamp, and only if the
file was hashed `MARGIN_NS` or more after its last change: file systems tell times in steps of up to
two seconds, so that a file which is hashed and changed within one step may keep its stamp.

An index counts for nothing if it is damaged, belongs to another user, model or landing folder, or
can be written to by others. The files are hashed again then; that is never an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import BinaryIO, NamedTuple

FOLDER = "sparkwap_landing"
LISTING = "SPARKWAP_LANDING_LISTING"
"""Environment variable by which `sparkwap build` tells its dbt builds which listing is its own."""
MARGIN_NS = 5 * 10**9
"""Two seconds for the steps of a file system's time, the rest for clocks that disagree."""
_VERSION = 1
_CHUNK = 1 << 20
_OTHERS_WRITE = 0o022


class Stamp(NamedTuple):
    """What tells that a file has changed, without reading it.

    Attributes:
        bytes: its size.
        modified: when its content was changed, in nanoseconds; a program can set this back.
        changed: when its content or its inode was changed; no program can set this.
        inode: its number, which a file that takes its place does not have.
    """

    bytes: int
    modified: int
    changed: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """The stamp of a file, by its status."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class Hashed(NamedTuple):
    """A file as it was hashed; ``at`` is when that began, in nanoseconds, 0 if it changed since."""

    stamp: Stamp
    sha256: str
    at: int

    def holds(self, stamp: Stamp) -> bool:
        """Whether a file with this stamp must have the same content."""
        last_change = max(stamp.modified, stamp.changed)
        return stamp == self.stamp and last_change + MARGIN_NS <= self.at


Listing = Mapping[str, date | None]
"""The names of the landing files of a model, each with its load date."""


class Index:
    """The digests of a model's landing files.

    Attributes:
        rows: the files by name, as they were hashed last.
        listing: the files that were listed last.
        listing_id: which command has listed them.
    """

    def __init__(
        self, file: Path | None = None, owner: str = "", clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._file, self._owner, self._clock = file, owner, clock
        self.rows: dict[str, Hashed] = {}
        self.listing: Listing = {}
        self.listing_id = ""
        if file is not None:
            self._read(file)

    @classmethod
    def of_model(cls, target_folder: Path | None, model: str, root: Path, path: str) -> Index:
        """The index of a raw model.

        Args:
            target_folder: dbt's target folder; None for an index that nothing is kept of.
            model: the model's name.
            root: the landing folder.
            path: where the model's files are in it.
        """
        if target_folder is None:
            return cls()
        owner = f"{model}\n{root}\n{path}"
        name = hashlib.sha256(owner.encode(errors="surrogateescape")).hexdigest()[:16]
        return cls(target_folder / FOLDER / f"{name}.json", owner)

    def look(self, name: str, path: Path, stamp: Stamp) -> Hashed:
        """A file's digest: the one on record if it holds, else that of the file as it is now.

        Raises:
            OSError: the file cannot be read.
        """
        known = self.rows.get(name)
        if known is None or not known.holds(stamp):
            with path.open("rb") as stream:
                known = self.hash(stream)
            self.rows[name] = known
        return known

    def hash(self, stream: BinaryIO) -> Hashed:
        """Hash a file."""
        at, digest = self._clock(), hashlib.sha256()
        before = Stamp.of(os.fstat(stream.fileno()))
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
        after = Stamp.of(os.fstat(stream.fileno()))
        return Hashed(after, digest.hexdigest(), at if before == after else 0)

    def record(self, listing: Listing, listing_id: str) -> None:
        """Take note of the files that are there now; those that are gone are forgotten."""
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
