"""Lists the files of the landing folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

from sparkwap.landing.contents import require_size, unreadable
from sparkwap.landing.entry import Entry, FileLayout
from sparkwap.landing.errors import AGAIN, LandingError, any_of
from sparkwap.landing.index import Index, Stamp
from sparkwap.landing.row_sql import has_controls

DROP_PREFIX = "load_date="
"""The prefix of the folder names of drops."""
_FOLDER = re.compile(rf"{DROP_PREFIX}(\d{{4}}-\d{{2}}-\d{{2}})")
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class LandingFile:
    """A file in the landing folder.

    Attributes:
        name: the path below the landing folder, with ``/``.
        load_date: None if it must be derived from the file's events.
    """

    path: Path
    name: str
    load_date: date | None
    layout: FileLayout
    sha256: str
    bytes: int


def list_files(
    root: Path, entry: Entry, index: Index | None = None, listing_id: str = ""
) -> list[LandingFile]:
    """Return all files of an entity, ordered by load date and name; files without a date are first.

    Names that begin with ``.`` or ``_`` or end with ``._COPYING_`` are incomplete files (Spark
    skips them too). A file is hashed only if the index has no valid digest of it.

    Args:
        index: the digests of earlier listings; this listing is added and saved.
        listing_id: the id of the command that lists.

    Raises:
        LandingError: the folder does not exist, a folder is not ``load_date=YYYY-MM-DD``, no layout
            of the entry matches a file, or a file has no load date.
    """
    if not root.is_dir():
        raise LandingError(
            f"There is no landing folder {root}. Nothing was read. "
            "Set `drop.root` in the meta of the raw models (dbt_project.yml; in the demo the "
            "variable LANDING) to the folder that holds <entity>/load_date=YYYY-MM-DD/<files>."
        )
    index, resolved = index or Index(), dict[Path, Path]()
    try:
        found = [
            _landing_file(root, path, load_date, entry, index, resolved)
            for folder in _folders(root, entry)
            for path, load_date in _members(folder, entry)
        ]
        index.record({file.name: file.load_date for file in found}, listing_id)
    finally:
        index.save()
    return _in_order(found)


def listed_files(root: Path, entry: Entry, index: Index) -> list[LandingFile] | None:
    """Return the files of the index's last listing, unchecked; None if the entry does not fit."""
    found = []
    for name, load_date in index.listing.items():
        row, layout = index.rows.get(name), layout_of(name.rpartition("/")[2], entry)
        if row is None or layout is None:
            return None
        size = row.stamp.bytes
        found.append(LandingFile(root / name, name, load_date, layout, row.sha256, size))
    return _in_order(found)


def _in_order(files: Iterable[LandingFile]) -> list[LandingFile]:
    return sorted(files, key=lambda file: (file.load_date or date.min, file.name))


def unchanged(files: Iterable[LandingFile], index: Index) -> bool:
    """Return whether listed files still have the same content, by the index or a new digest."""
    try:
        return all(
            index.look(file.name, file.path, Stamp.of(file.path.stat())).sha256 == file.sha256
            for file in files
        )
    except OSError:
        return False


def _folders(root: Path, entry: Entry) -> list[Path]:
    if _GLOB.search(entry.path):
        found = sorted(p for p in root.glob(entry.path) if p.is_dir())
    else:
        found = [root / entry.path]
    if not found or not found[0].is_dir():
        raise LandingError(
            f"The landing folder {root} has no folder '{entry.path}'. Nothing was read. "
            "Create it, correct `path` in the landing entry, or exclude its raw model: "
            "--exclude <raw model>+"
        )
    return found


def _members(folder: Path, entry: Entry) -> Iterable[tuple[Path, date | None]]:
    """Yield the files of an entity's folder, with their load dates."""
    loose = _dateless(entry) or entry.load_date is not None
    for item in _visible(folder):
        if loose and item.is_file():
            yield item, _date_in_name(item, entry)
            continue
        load_date = _load_date(item)
        for path in _visible(item):
            yield path, load_date


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not is_hidden(path.name))


def _dateless(entry: Entry) -> bool:
    """Return whether the load date of a file may come from its events."""
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
        f"The name of {path} has no date that matches 'load_date' of the landing entry of "
        f"'{entry.entity}' ({entry.load_date}). Nothing was read. Correct the entry, or put the "
        "file into a folder named load_date=YYYY-MM-DD."
    )


def is_hidden(name: str) -> bool:
    """Return whether the name marks a file or folder as incomplete, so that it is not read yet."""
    return name.startswith((".", "_")) or name.endswith("._COPYING_")


def _load_date(folder: Path) -> date:
    match = _FOLDER.fullmatch(folder.name)
    try:
        if match and folder.is_dir():
            return date.fromisoformat(match[1])
    except ValueError:
        pass
    raise LandingError(
        f"{folder} is not a folder named load_date=YYYY-MM-DD, so its load date is unknown. "
        "Nothing was read. Move it into such a folder, or out of the landing folder."
    )


def _landing_file(
    root: Path,
    path: Path,
    load_date: date | None,
    entry: Entry,
    index: Index,
    resolved: dict[Path, Path],
) -> LandingFile:
    layout = layout_of(path.name, entry)
    if layout is None or not path.is_file():
        patterns = any_of(la.match for la in entry.layouts)
        what = "" if layout is None else "is not a file, so it "
        raise LandingError(
            f"{path} {what}matches no layout of the landing entry of '{entry.entity}' "
            f"({patterns}). Nothing was read. Add a layout to 'files' of the entry, or move it "
            "away."
        )
    name = _require_inside(root, path, resolved)
    try:
        status = path.stat()
        require_size(path, status.st_size, entry)
        row = index.look(name, path, Stamp.of(status))
    except OSError as error:
        raise unreadable(path, f"{type(error).__name__}: {error}") from error
    return LandingFile(path, name, load_date, layout, row.sha256, row.stamp.bytes)


def _require_inside(root: Path, path: Path, resolved: dict[Path, Path]) -> str:
    """Return the name of a file: its path below the landing folder.

    Args:
        resolved: a cache of resolved folders, by path; to resolve the path of each file would be
            most of a listing's cost.

    Raises:
        LandingError: a link leads out of the landing folder, or the name has illegal characters.
    """
    for folder in (root, path.parent):
        if folder not in resolved:
            resolved[folder] = folder.resolve()
    real = path.resolve() if path.is_symlink() else resolved[path.parent] / path.name
    if not real.is_relative_to(resolved[root]):
        raise LandingError(
            f"{path} is a link that leads out of the landing folder, to {real}. Nothing was read. "
            "Replace the link with a copy of the file, or set `drop.root` (dbt_project.yml) to the "
            "folder of the file."
        )
    name = path.relative_to(root).as_posix()
    if has_controls(name) or ":" in name:
        raise LandingError(
            f"The name {name!r} in the landing folder has a colon, which Spark cannot open, or a "
            "line end or another control character. Nothing was read. Rename the file, "
            f"then {AGAIN}"
        )
    return name


def layout_of(name: str, entry: Entry) -> FileLayout | None:
    """Return the layout of a file by its base name; None if no layout matches."""
    return next((la for la in entry.layouts if fnmatchcase(name, la.match)), None)
