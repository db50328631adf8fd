"""Selects the new files of the landing folder, and those that a run reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from sparkwap.core import next_command
from sparkwap.core.errors import ConfigError
from sparkwap.core.personal import ERASED_FILE
from sparkwap.landing.entry import Entry
from sparkwap.landing.errors import LandingError
from sparkwap.landing.index import Index
from sparkwap.landing.landing_files import (
    DROP_PREFIX,
    LandingFile,
    list_files,
    listed_files,
    unchanged,
)


def files_to_read(
    root: Path,
    entry: Entry,
    known: Mapping[str, str],
    until: date | None,
    index: Index,
    listing_id: str,
) -> list[LandingFile]:
    """Return the files that a run reads.

    If the command that started this run has listed the folder, the run checks only the files that
    it reads. If one of them has changed since, the run lists the folder again.

    Args:
        known: name to SHA-256 of the files in the log.
        until: the last load date to read.
        listing_id: the id of the listing to use; empty for a new listing.
    """
    if listing_id and index.listing_id == listing_id:
        with suppress(LandingError):  # a new listing may have no fault
            listed = listed_files(root, entry, index)
            if listed is not None:
                taken = choose(pending(listed, known), entry.kind, until)
                if unchanged(taken, index):
                    index.save()
                    return taken
    return choose(pending(list_files(root, entry, index, listing_id), known), entry.kind, until)


def pending(files: Iterable[LandingFile], known: Mapping[str, str]) -> list[LandingFile]:
    """Return the files that were not read yet.

    Args:
        known: name to SHA-256 of the files in the log.

    Raises:
        LandingError: the content of a file differs from the file of the same name in the log.
    """
    new = []
    for file in files:
        if file.name not in known:
            new.append(file)
        elif known[file.name] != file.sha256 and not known[file.name].startswith(ERASED_FILE):
            raise LandingError(
                f"{file.path} was read before with other content (SHA-256 "
                f"{known[file.name][:12]}..., now {file.sha256[:12]}...). Nothing was read; the "
                "tables keep the first content. Put the old file back and deliver the correction "
                f"as a new file under a later load date, then: {next_command.sparkwap('build')}"
            )
    return new


def edited(known: Mapping[str, str], index: Index) -> list[str]:
    """Return the files of an erasure whose content is no longer that which was read.

    Args:
        known: name to SHA-256 of the files in the log.
        index: the index, with all files of the folder.
    """
    there = {name: ERASED_FILE + row.sha256 for name, row in index.rows.items()}
    return sorted(
        name
        for name, digest in known.items()
        if digest.startswith(ERASED_FILE) and there.get(name, digest) != digest
    )


def copies(
    new: Sequence[LandingFile], known: Mapping[str, str], entry: Entry
) -> dict[LandingFile, str]:
    """Return the new files that are copies of files that were read before, with the first names.

    A file with equal bytes is a copy if the rows have their own order (sequence columns, files of
    changes), or if both files are in one drop. Otherwise it is new data: an extract that equals
    an earlier one is the state of its own day.

    Args:
        new: unread files, in the order in which they are read.
        known: name to SHA-256 of the files in the log.
    """
    seen: dict[tuple[str, object], str] = {}
    for name, digest in known.items():
        digest = digest.removeprefix(ERASED_FILE)
        seen.setdefault((digest, _drop_of(name, entry)), name)
        seen.setdefault((digest, None), name)
    found: dict[LandingFile, str] = {}
    for file in new:
        anywhere = file.layout.load != "full" and bool(entry.sequence)
        place = None if anywhere else _drop_of(file.name, entry)
        first = seen.get((file.sha256, place))
        if first is not None and file.bytes:
            found[file] = first
            continue
        seen.setdefault((file.sha256, _drop_of(file.name, entry)), file.name)
        seen.setdefault((file.sha256, None), file.name)
    return found


def _drop_of(name: str, entry: Entry) -> tuple[str, str]:
    """Return the folder of a file, and the date in its name if that is its load date."""
    folder, _, base = name.rpartition("/")
    loose = not folder.rpartition("/")[2].startswith(DROP_PREFIX)
    match = re.search(entry.load_date, base) if entry.load_date and loose else None
    return folder, match[1] if match else ""


def choose(new: Sequence[LandingFile], kind: str, until: date | None) -> list[LandingFile]:
    """Return the files that a run reads.

    With ``until``: all new files up to that load date, and files without a date. Without it: all
    files for kind ``changes``, and the oldest drop for kind ``extract``, because a snapshot on the
    latest extract would miss the states in between.
    """
    if until is not None:
        return [f for f in new if f.load_date is None or f.load_date <= until]
    if kind == "extract" and new:
        oldest = min(f.load_date or date.min for f in new)
        return [f for f in new if (f.load_date or date.min) == oldest]
    return list(new)


def root_of(model: str, meta: Mapping[str, Any], entry: Entry) -> Path:
    """Return the landing folder in a raw model's meta, unresolved; for a topic the project's."""
    if entry.topic:
        return Path()
    drop = meta.get("drop")
    root = drop.get("root") if isinstance(drop, Mapping) else None
    if not root:
        raise ConfigError(
            f"The model {model} has a landing entry, but no landing folder. Nothing was read, and "
            "nothing was built. Set the folder for all raw models in dbt_project.yml: "
            "`+meta: {drop: {root: landing}}` (see docs/landing.md)."
        )
    return Path(str(root))


def parse_until(value: object) -> date | None:
    """Return the variable ``landing_until`` as a date; empty means no limit."""
    if value in (None, "", "None"):
        return None
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise LandingError(
            f"landing_until is '{value}', which is not a date. Nothing was read. "
            "Use --vars '{landing_until: 2024-01-31}'."
        ) from None
