"""Reads samples of landing files: the first rows of a table's files, to guess their entry."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Sequence
from pathlib import Path

from sparkwap.landing.errors import LandingError, any_of
from sparkwap.landing.formats import DEFAULT, FORMATS
from sparkwap.landing.formats.base import FileSample, Format
from sparkwap.landing.landing_files import DROP_PREFIX, is_hidden

ALIKE = 0.5
"""Minimum share: of common columns of two files of one table; of known codes among the values of
an operation column; of an extract's row count in the next extract."""
_FILES = 60


def read_samples(given: Sequence[Path]) -> list[FileSample]:
    """Return the first rows of the files of a table.

    Args:
        given: files, or folders of files. If this is one file, the other files of its table are
            read too: files in the ``load_date=`` folders next to its own folder, else files with
            similar columns in its folder.
    """
    named = [path for path in given if not path.is_dir()]
    samples = {path: _named(path) for path in named}
    if len(given) == 1 and named:
        (path,) = named
        around = _table_folder(path)
        others = [other for other in _members(around) if other != path]
        like = samples[path].columns
        strict = around == path.parent
    else:
        others = [file for path in given if path.is_dir() for file in _members(path)]
        like, strict = [], False
    for path in _spread(others):
        sample = _quietly(path)
        if sample is not None and (not strict or _alike(like, sample.columns)):
            samples[path] = sample
    found = [samples[path] for path in sorted(samples) if samples[path].rows]
    if not found:
        raise _no_sample(given[0], "it has no rows")
    return found


def _table_folder(path: Path) -> Path:
    parent = path.resolve().parent
    return parent.parent if parent.name.startswith(DROP_PREFIX) else path.parent


def _members(folder: Path) -> list[Path]:
    """Return the files of a table's folder, including its ``load_date=`` folders."""
    inner = [p for p in folder.iterdir() if p.is_dir() and p.name.startswith(DROP_PREFIX)]
    files = [p for place in (folder, *inner) for p in place.iterdir() if p.is_file()]
    return sorted(p for p in files if not is_hidden(p.name))


def _spread(files: Sequence[Path]) -> Sequence[Path]:
    """Return the first and the last file, and a limited number of files between them."""
    step = -(-len(files) // _FILES) or 1
    return [*files[::step], *files[-1:]]


def _alike(columns: Sequence[str], others: Sequence[str]) -> bool:
    least = min(len(columns), len(others))
    return least > 0 and len({*columns} & {*others}) >= ALIKE * least


def _named(path: Path) -> FileSample:
    try:
        return _read(path)
    except RecursionError:
        raise _no_sample(path, "its JSON is nested too deeply") from None
    except (OSError, EOFError, zlib.error, csv.Error, ValueError) as error:
        raise _no_sample(path, f"{type(error).__name__}: {error}") from error


def _quietly(path: Path) -> FileSample | None:
    """Return the sample of a file that the user did not name; None if it cannot be read."""
    if not _formats_of(path):
        return None
    try:
        return _named(path)
    except LandingError:
        return None


def _no_sample(path: Path, why: str) -> LandingError:
    return LandingError(
        f"{path} cannot be used as a sample: {why}. Nothing was written. Give a file of one "
        f"of the formats {any_of(FORMATS)} (CSV with a header), or a folder of such files: "
        "sparkwap source add <file> --source <name> --entity <name>"
    )


def _read(path: Path) -> FileSample:
    for format_ in _formats_of(path) or [FORMATS[DEFAULT]]:
        sample = format_.sample(path)
        if sample is not None:
            sample.name = path.name
            return sample
    raise ValueError("its content does not have the format that its name says")


def _formats_of(path: Path) -> list[Format]:
    name = path.name.lower().removesuffix(".gz")
    return [one for one in FORMATS.values() if name.endswith(one.suffixes)]
