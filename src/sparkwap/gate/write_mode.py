"""Chooses between copy-on-write and merge-on-read for a table, by what its runs change. Pure.

Copy-on-write rewrites each file that has a changed row; merge-on-read writes the changed rows, and
delete files that every later reading has to apply until a compaction. So it depends on the part of
the rows that change in the files that are touched, and on the size of these files: small ones are
rewritten faster than a delete file for each is written and applied. The figures are in the
summaries of snapshots: those of ``merge`` from Spark 4.1 on, of other statements from any engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

Mode = Literal["copy-on-write", "merge-on-read"]
MODES: tuple[Mode, ...] = get_args(Mode)
PROPERTIES = ("write.merge.mode", "write.update.mode", "write.delete.mode")

_OBSERVED, _NEEDED = 5, 2
_FEW, _MANY = 0.1, 0.3
"""The parts of rows at which the mode changes; between them it stays, so that it does not swing."""

_SMALL_BYTES = 4 * 1024 * 1024
"""With smaller files, copy-on-write is faster (docs/benchmarks.md: partitions of 20,000 rows)."""

_MERGE = "spark.merge-into.num-target-rows-"


@dataclass(frozen=True, slots=True)
class WriteMode:
    """The mode of a table's next changes, and the reason in words."""

    mode: Mode
    reason: str


def choose(summaries: Iterable[Mapping[str, str]], present: str | None) -> WriteMode:
    """Choose the mode of a table.

    Args:
        summaries: The summaries of the snapshots of `main`, newest first.
        present: The table's property ``write.merge.mode``; None for Iceberg's default.
    """
    now: Mode = "merge-on-read" if present == "merge-on-read" else "copy-on-write"
    seen: list[tuple[float, float]] = []
    sizes: list[float] = []
    for summary in summaries:
        found = rows_changed(summary)
        if found is not None:
            seen.append(found)
            sizes += _file_size(summary)
        if len(seen) == _OBSERVED:
            break
    if len(seen) < _NEEDED:
        return WriteMode(now, "too few changes are known yet")
    share = sum(changed for changed, _ in seen) / sum(touched for _, touched in seen)
    mode: Mode = (
        "merge-on-read" if share < (_MANY if now == "merge-on-read" else _FEW) else MODES[0]
    )
    reason = (
        f"the last {len(seen)} changes have changed {share:.1%} of the rows of the files that they "
        "touched"
    )
    size = sum(sizes) / len(sizes) if sizes else _SMALL_BYTES
    if mode != now and mode == "merge-on-read" and size < _SMALL_BYTES:
        return WriteMode(now, f"{reason}, but these files are small ({size / 1e6:.1f} MB)")
    return WriteMode(mode, reason)


def rows_changed(summary: Mapping[str, str]) -> tuple[float, float] | None:
    """Return the rows that a snapshot changed, and about how many rows the touched files had.

    None if it changed none, or if its summary does not tell.
    """
    number = partial(_number, summary)
    if summary.get("operation") not in ("overwrite", "delete"):
        return None
    deletes = number("added-delete-files")
    if deletes:
        files = number("total-data-files")
        changed = number("added-position-deletes") - number("removed-position-deletes")
        touched = deletes * number("total-records") / files if files else 0.0
    elif f"{_MERGE}copied" in summary:
        changed = number(f"{_MERGE}matched-updated") + number(f"{_MERGE}deleted")
        changed += number(f"{_MERGE}not-matched-by-source-updated")
        touched = float(changed + number(f"{_MERGE}copied"))
    else:
        # Of an update, the changed rows are not known: it writes as many rows as it removes.
        changed = number("deleted-records") - number("added-records")
        touched = float(number("deleted-records"))
    return (float(changed), max(touched, float(changed))) if changed > 0 else None


def _file_size(summary: Mapping[str, str]) -> list[float]:
    """Return the mean size of the files that copy-on-write has replaced; empty if not known."""
    files, size = _number(summary, "deleted-data-files"), _number(summary, "removed-files-size")
    return [size / files] if files and size and not _number(summary, "added-delete-files") else []


def _number(summary: Mapping[str, str], key: str) -> int:
    text = str(summary.get(key, ""))
    return int(text) if text.isdecimal() else 0
