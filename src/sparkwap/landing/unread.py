"""Which files of the landing folder are new, and which of them a run takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from sparkwap.core.errors import ConfigError
from sparkwap.landing.entry import Entry
from sparkwap.landing.errors import LandingError
from sparkwap.landing.files import LandingFile, list_files, listed_files, unchanged
from sparkwap.landing.index import Index


def files_to_read(
    root: Path,
    entry: Entry,
    known: Mapping[str, str],
    until: date | None,
    index: Index,
    listing_id: str,
) -> list[LandingFile]:
    """The files that a run reads.

    If the command that has started this run has listed the folder, the run looks at the files that
    it reads, and at no others. If one of these has changed since, it lists the folder itself.

    Args:
        root: the landing folder.
        entry: the entry.
        known: name to SHA-256 of the files that the log holds.
        until: the last load date to read.
        index: the index of the model's files.
        listing_id: which listing the run is to go by; empty for its own.

    Raises:
        LandingError: see `list_files` and `pending`.
    """
    if listing_id and index.listing_id == listing_id:
        with suppress(LandingError):  # its own listing may have none
            listed = listed_files(root, entry, index)
            if listed is not None:
                taken = choose(pending(listed, known), entry.kind, until)
                if unchanged(taken, index):
                    index.save()
                    return taken
    return choose(pending(list_files(root, entry, index, listing_id), known), entry.kind, until)


def pending(files: Iterable[LandingFile], known: Mapping[str, str]) -> list[LandingFile]:
    """The files that were not read yet.

    Args:
        files: what is in the landing folder.
        known: name to SHA-256 of the files that the log holds.

    Raises:
        LandingError: a file has the name of one that was read, and other content.
    """
    new = []
    for file in files:
        if file.name not in known:
            new.append(file)
        elif known[file.name] != file.sha256:
            raise LandingError(
                f"{file.path} was read before with other content (SHA-256 "
                f"{known[file.name][:12]}..., now {file.sha256[:12]}...). Nothing was read; the "
                "tables keep the first content. Put the old file back and deliver the correction "
                "as a new file under a later load date, then: sparkwap build"
            )
    return new


def copies(
    new: Sequence[LandingFile], known: Mapping[str, str], entry: Entry
) -> dict[LandingFile, str]:
    """Those new files that are deliveries of bytes that were read before, and where those are.

    Equal bytes are a second delivery if the rows carry their own order (sequence columns, files
    of changes), whatever the file is called, or if they are two files of one drop. Otherwise they
    are news: an extract that is the same as last month's says that nothing has changed.

    Args:
        new: unread files, in the order in which they are read.
        known: name to SHA-256 of the files that the log holds.
    """
    seen: dict[tuple[str, object], str] = {}
    for name, digest in known.items():
        seen.setdefault((digest, _drop_of(name)), name)
        seen.setdefault((digest, None), name)
    found: dict[LandingFile, str] = {}
    for file in new:
        anywhere = file.layout.load != "full" and bool(entry.sequence)
        place = None if anywhere else _drop_of(file.name)
        first = seen.get((file.sha256, place))
        if first is not None and file.bytes:
            found[file] = first
            continue
        seen.setdefault((file.sha256, _drop_of(file.name)), file.name)
        seen.setdefault((file.sha256, None), file.name)
    return found


def _drop_of(name: str) -> str:
    return name.rpartition("/")[0]


def choose(new: Sequence[LandingFile], kind: str, until: date | None) -> list[LandingFile]:
    """The files that a run takes.

    With ``until`` all new files up to that load date, and those whose date only their events
    tell. Without it, all for kind ``changes``, and for kind ``extract`` the oldest drop alone: a
    snapshot built on the latest extract would never see the states in between.
    """
    if until is not None:
        return [f for f in new if f.load_date is None or f.load_date <= until]
    if kind == "extract" and new:
        oldest = min(f.load_date or date.min for f in new)
        return [f for f in new if (f.load_date or date.min) == oldest]
    return list(new)


def root_of(model: str, meta: Mapping[str, Any]) -> Path:
    """The landing folder that a raw model's meta names, as it is written there.

    Raises:
        ConfigError: it names none.
    """
    drop = meta.get("drop")
    root = drop.get("root") if isinstance(drop, Mapping) else None
    if not root:
        raise ConfigError(
            f"The model {model} has a landing entry, but no landing folder. Nothing was read, and "
            "nothing was built. Name it for all raw models in dbt_project.yml: "
            "`+meta: {drop: {root: landing}}`; all of the setting is in docs/landing.md."
        )
    return Path(str(root))


def parse_until(value: object) -> date | None:
    """The variable ``landing_until`` as a date; empty means no limit.

    Raises:
        LandingError: it is not a date.
    """
    if value in (None, "", "None"):
        return None
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise LandingError(
            f"landing_until is '{value}', which is not a date. Nothing was read. "
            "Use --vars '{landing_until: 2024-01-31}'."
        ) from None
