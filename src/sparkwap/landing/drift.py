"""Maps the columns of files to the columns of the log, if files differ from the entry.

These are pure decisions on names. A new column is appended, ignored or refused
(``on_new_columns``). A missing column is NULL. The entry's ``renames`` map renamed columns. A
column that an earlier file added to the log is not new. The columns that every row needs (key,
operation, sequence of changes) must not be missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sparkwap.landing.entry import STATE_COLUMNS, Entry, FileLayout
from sparkwap.landing.errors import LandingError, any_of
from sparkwap.landing.formats import FORMATS
from sparkwap.landing.row_sql import has_controls

_MOST_COLUMNS = 2_000
_LONGEST_NAME = 255


@dataclass(frozen=True)
class Mapped:
    """Maps the columns of some files to the columns of the log.

    Attributes:
        sources: column of the log to the published names that it is filled from; empty for NULL.
        new: the columns that are neither in the entry nor in the log yet.
        notices: messages about the differences, one line each.
        refused: columns of messages that a table cannot have.
    """

    sources: Mapping[str, tuple[str, ...]]
    new: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def map_columns(
    entry: Entry,
    layout: FileLayout,
    published: Sequence[str],
    extras: Collection[str] = (),
    where: str = "the files",
) -> Mapped:
    """Map published columns to columns of the log.

    Args:
        published: the columns as published; for JSON, the columns of all rows.
        extras: columns of the log that the entry does not have.

    Raises:
        LandingError: a required column is missing, two columns have one name, or a new column is
            refused.
    """
    rows_differ = FORMATS[layout.format].columns_by_row
    # A file can be corrected; a message cannot, so only its own row is bad.
    refused = _refused(entry, published, [*entry.columns, *extras]) if entry.topic else ()
    published = [c for c in published if c not in refused]
    present = [c for c in published if c not in entry.service_columns]
    named = {c: entry.renames.get(c, c) for c in present}
    known = [*entry.columns, *(c for c in extras if c not in entry.columns)]
    unknown = [c for c in present if named[c] not in known]
    hidden = [c for c in unknown if c.startswith("_")]
    news = [c for c in unknown if not c.startswith("_")]
    faults = _faults(entry, layout, published, [*known, *news], rows_differ)
    if entry.on_new_columns == "append":
        faults += _unusable(news, len(known))
    if not rows_differ:
        faults += _twice([named[c] for c in present])
    if news and entry.on_new_columns == "fail":
        faults.append(f"new columns {any_of(news)}, and on_new_columns is 'fail'")
    if faults:
        raise LandingError(
            f"{where}: {'; '.join(faults)}. Nothing was read for '{entry.entity}'. "
            "Correct the entry (columns, renames, on_new_columns) or the file, then: dbt retry"
        )
    append = news if entry.on_new_columns == "append" else []
    sources = {
        column: tuple(c for c in present if named[c] == column) for column in [*known, *append]
    }
    cases = {
        "new, appended as text": append,
        "new, ignored": [c for c in news if c not in append],
        "ignored, as they begin with '_'": hidden,
        "missing, filled with NULL": [c for c in entry.columns if not sources[c] and published],
    }
    notices = [
        f"{where}: columns {case}: {any_of(found)}" for case, found in cases.items() if found
    ]
    renamed = [f"'{c}' is '{entry.renames[c]}'" for c in present if c in entry.renames]
    if renamed:
        notices.append(f"{where}: columns renamed: {', '.join(renamed)}")
    return Mapped(sources, tuple(append), tuple(notices), refused)


def _refused(entry: Entry, published: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the published columns that a table cannot have besides its known ones."""
    own = {*known, *entry.service_columns}
    news = [c for c in published if c not in own and entry.renames.get(c, c) not in known]
    taken = Counter(c.lower() for c in [*known, *news])
    return tuple(c for c in news if not _usable(c) or taken[c.lower()] > 1)


def _usable(name: str) -> bool:
    legal = bool(name) and len(name) <= _LONGEST_NAME and not has_controls(name)
    return legal and name.lower() not in STATE_COLUMNS


def _faults(
    entry: Entry,
    layout: FileLayout,
    published: Sequence[str],
    columns: Sequence[str],
    rows_differ: bool,
) -> list[str]:
    cases: dict[str, list[str]] = {}
    for column in columns:
        cases.setdefault(column.lower(), []).append(column)
    faults = [f"columns {any_of(same)} differ in case only; name one of them in 'renames'"
              for same in cases.values() if len(same) > 1]  # fmt: skip
    if rows_differ or not published:
        return faults
    there = {entry.renames.get(c, c) for c in published}
    faults += [f"no key column '{k}'" for k in entry.key if k not in there]
    if layout.load != "full":
        needed = [
            *([layout.operation] if layout.operation and layout.load == "changes" else []),
            *(n for n, _ in entry.sequence),
        ]
        faults += [f"no column '{c}', which the changes need" for c in needed
                   if c not in there and c not in published]  # fmt: skip
    return faults


def _unusable(news: Sequence[str], known: int) -> list[str]:
    """Return the faults of new columns that a table cannot have."""
    bad = [c for c in news if not _usable(c)]
    faults = [f"columns {', '.join(f'{c[:40]!r}' for c in bad[:3])} have no usable names"] * bool(
        bad
    )
    if known + len(news) > _MOST_COLUMNS:
        faults.append(
            f"{len(news):,} new columns, but a table has at most {_MOST_COLUMNS:,}; set "
            "on_new_columns to 'ignore', or list the columns to keep in 'columns'"
        )
    return faults


def _twice(columns: Sequence[str]) -> list[str]:
    return [f"column '{c}' occurs twice" for c in sorted(set(columns)) if columns.count(c) > 1]
