"""What is in the landing folder, what of it is new, and what a run takes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sparkwap.core.errors import ConfigError
from sparkwap.landing.contents import require_size, unreadable
from sparkwap.landing.entry import Entry, Layout
from sparkwap.landing.errors import LandingError, any_of
from sparkwap.landing.sql import has_controls

_FOLDER = re.compile(r"load_date=(\d{4}-\d{2}-\d{2})")
_GLOB = re.compile(r"[*?\[]")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class LandingFile:
    """A file in the landing folder.

    ``name`` is its path below the folder, with ``/``. ``load_date`` is None where only its
    events tell it.
    """

    path: Path
    name: str
    load_date: date | None
    layout: Layout
    sha256: str
    bytes: int


# ---------------------------------------------------------------- what is there


def list_files(root: Path, entry: Entry) -> list[LandingFile]:
    """All files of an entity, ordered by load date and name; those without a date come first.

    Names that begin with ``.`` or ``_`` or end with ``._COPYING_`` are files on their way (Spark
    skips them too). Every byte is read once, for the digest.

    Raises:
        LandingError: no such folder, a folder that is not ``load_date=YYYY-MM-DD``, a file that
            no layout of the entry matches, or one whose load date nothing tells.
    """
    if not root.is_dir():
        raise LandingError(
            f"There is no landing folder {root}. Nothing was read. "
            "Set LANDING to the folder that holds <entity>/load_date=YYYY-MM-DD/<files>."
        )
    found = [
        _landing_file(root, path, load_date, entry)
        for folder in _folders(root, entry)
        for path, load_date in _members(folder, entry)
    ]
    return sorted(found, key=lambda f: (f.load_date or date.min, f.name))


def _folders(root: Path, entry: Entry) -> list[Path]:
    if _GLOB.search(entry.path):
        found = sorted(p for p in root.glob(entry.path) if p.is_dir())
    else:
        found = [root / entry.path]
    if not found or not found[0].is_dir():
        raise LandingError(
            f"The landing folder {root} has no folder '{entry.path}'. Nothing was read. "
            "Set LANDING and SOURCES to a landing folder and the sources that are in it."
        )
    return found


def _members(folder: Path, entry: Entry) -> Iterable[tuple[Path, date | None]]:
    """The files of an entity's folder, with their load dates."""
    for item in sorted(p for p in folder.iterdir() if not _hidden(p.name)):
        if item.is_file() and (_dateless(entry) or entry.load_date is not None):
            yield item, _date_in_name(item, entry)
            continue
        load_date = _load_date(item)
        for path in sorted(p for p in item.iterdir() if not _hidden(p.name)):
            yield path, load_date


def _dateless(entry: Entry) -> bool:
    """Whether the events of a file may tell its load date."""
    return entry.kind == "changes" and entry.event_time is not None


def _date_in_name(path: Path, entry: Entry) -> date | None:
    match = re.search(entry.load_date, path.name) if entry.load_date else None
    if match:
        try:
            return date.fromisoformat(re.sub(r"\D", "", match[1]))
        except ValueError:
            pass
    if _dateless(entry):
        return None
    raise LandingError(
        f"{path} has no date in its name that 'load_date' of the landing entry of "
        f"'{entry.entity}' finds ({entry.load_date}). Nothing was read. Correct the entry, or put "
        "the file into a folder named load_date=YYYY-MM-DD."
    )


def _hidden(name: str) -> bool:
    return name.startswith((".", "_")) or name.endswith("._COPYING_")


def _load_date(folder: Path) -> date:
    match = _FOLDER.fullmatch(folder.name)
    try:
        if match and folder.is_dir():
            return date.fromisoformat(match[1])
    except ValueError:
        pass
    raise LandingError(
        f"{folder} is not a folder named load_date=YYYY-MM-DD, so it cannot be placed in time. "
        "Nothing was read. Move it there or away."
    )


def _landing_file(root: Path, path: Path, load_date: date | None, entry: Entry) -> LandingFile:
    layout = layout_of(path.name, entry)
    if layout is None or not path.is_file():
        patterns = any_of(la.match for la in entry.layouts)
        raise LandingError(
            f"{path} is not a file that the landing entry of '{entry.entity}' knows ({patterns}). "
            "Nothing was read. Add it to 'files' of the entry, or move it away."
        )
    name = _require_inside(root, path)
    digest, size = hashlib.sha256(), 0
    try:
        require_size(path, path.stat().st_size, entry)
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise unreadable(path, f"{type(error).__name__}: {error}") from error
    return LandingFile(path, name, load_date, layout, digest.hexdigest(), size)


def _require_inside(root: Path, path: Path) -> str:
    """The name of a file: its path below the landing folder.

    Raises:
        LandingError: a link leads out of the landing folder, or the name is no text.
    """
    if not path.resolve().is_relative_to(root.resolve()):
        raise LandingError(
            f"{path} is a link that leads out of the landing folder, to {path.resolve()}. Nothing "
            "was read. Put a copy of the file there, or set LANDING to the folder that it is in."
        )
    name = path.relative_to(root).as_posix()
    if has_controls(name) or ":" in name:
        raise LandingError(
            f"The name {name!r} in the landing folder has a colon, which Spark cannot open, or "
            "line ends and the like, which no name should have. Nothing was read. Give the file "
            "another name, then: dbt retry"
        )
    return name


def layout_of(name: str, entry: Entry) -> Layout | None:
    """The layout of a file by its base name; None if no layout matches."""
    return next((la for la in entry.layouts if fnmatchcase(name, la.match)), None)


# ---------------------------------------------------------------- what is new


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
