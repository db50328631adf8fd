"""The progress of an erasure, in a file, so that an interrupted erasure can continue.

After the rows are deleted, the lake no longer has the subject's values. So a file that only its
owner can read keeps these values until the proof is done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sparkwap.catalog.model import Identifier


@dataclass
class ErasureProgress:
    """The progress of one operation.

    Attributes:
        salt: The salt of the hashes in its statements and its report.
        branch: The audit branch that it opened last; None if it opened none.
        values: The subject's personal values by column.
        texts: The values that are texts.
        outside: Landing files that held the subject.
        files: The files to which the tables that held the subject have referred.
        runs: Ids of the runs that had a lease when tables lost the subject; they may have read it.
        report: The numbers before the first change.
    """

    salt: str
    branch: str | None = None
    keys: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, salt: str) -> ErasureProgress:
        """Read the stored progress; a new one if there is none."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return cls(salt)

    def learn(
        self, keys: Iterable[str], values: Mapping[str, Iterable[str]], texts: Iterable[str]
    ) -> None:
        """Add keys and values to search for."""
        self.keys = sorted({*self.keys, *keys})
        for name, found in values.items():
            self.values[name] = sorted({*self.values.get(name, ()), *found})
        self.texts = sorted({*self.texts, *texts})

    def note(self, reach: Mapping[str, set[Identifier]], tables: Collection[Identifier]) -> None:
        """Add the files to which some of the tables refer."""
        found = (path for path, names in reach.items() if not names.isdisjoint(tables))
        self.files = sorted({*self.files, *found})

    def write(self, path: Path) -> None:
        """Write the file durably; only its owner can read it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".tmp")
        scratch.unlink(missing_ok=True)
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
