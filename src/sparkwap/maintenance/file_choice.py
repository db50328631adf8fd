"""Decides which files of a table a compaction rewrites, and what that takes and saves. Pure.

The figures of `CostModel` were measured with Spark 4.1 on 2 cores and a local disk (scans of one
million rows in 1 to 400 files). On an object store each file costs more, for all tables alike, so
the order of the tables stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkwap.catalog.file_plan import DataFile, DeleteFile, StateFiles
from sparkwap.maintenance.rules import MB, Rules

_SMALLEST_TARGET, _LARGEST_TARGET = 16 * MB, 512 * MB
_FILES_FOR_EACH_CORE = 4
_LARGEST_FILE = 2**62
_SMALL = 0.75  # of the target; as Iceberg's own default
_STEP = 4
_MANY_DELETES = 10
"""Delete files of one data file with which it is rewritten, whatever its size."""

_MANY_MANIFESTS = 100


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of Spark's work.

    Attributes:
        data_file: To open a data file in a scan.
        delete_file: To read a delete file in a scan.
        manifest: To read a manifest for the plan of a scan.
        start: The fixed part of a rewrite.
        rewrite_bytes: Bytes that a rewrite reads and writes in a second.
    """

    data_file: float = 0.006
    delete_file: float = 0.0035
    manifest: float = 0.002
    start: float = 1.0
    rewrite_bytes: float = 20e6


COSTS = CostModel()


@dataclass(frozen=True, slots=True)
class Compaction:
    """A rewrite of the small files of a table, and of files with many deleted rows.

    Attributes:
        below: Files with fewer bytes are merged.
        min_files: The fewest files of a partition to merge.
        target_bytes: The size of the new files.
        files: Number of files to rewrite.
        bytes: Their size.
        into: Number of new files.
        delete_files: Number of delete files that a scan then no longer reads.
        manifests: Number of manifests, if they are rewritten too; else 0.
    """

    below: int
    min_files: int
    target_bytes: int
    files: int = 0
    bytes: int = 0
    into: int = 0
    delete_files: int = 0
    manifests: int = 0

    @property
    def seconds(self) -> float:
        """The expected duration."""
        reading = self.files * COSTS.data_file + self.delete_files * COSTS.delete_file
        return COSTS.start + reading + self.bytes / COSTS.rewrite_bytes

    @property
    def saved(self) -> float:
        """The seconds that each later scan of the table saves."""
        return (
            max(0, self.files - self.into) * COSTS.data_file
            + self.delete_files * COSTS.delete_file
            + self.manifests * COSTS.manifest
        )


def target_size(total: int, cores: int, rules: Rules, declared: str | None) -> int:
    """Return the size of the files that a table should have, in bytes.

    Args:
        cores: The cores of the engine: a table has some files for each, if they are not too small.
        declared: Its property ``write.target-file-size-bytes``.
    """
    if rules.target_mb is not None:
        return rules.target_mb * MB
    if declared is not None and declared.isdecimal() and 0 < int(declared) < _LARGEST_FILE:
        return int(declared)
    each = math.ceil(total / max(1, cores * _FILES_FOR_EACH_CORE))
    return min(_LARGEST_TARGET, max(_SMALLEST_TARGET, each))


def compaction(
    state: StateFiles,
    target: int,
    rules: Rules,
    *,
    manifests: int = 0,
    cold: int = -1,
    everything: bool = False,
) -> Compaction | None:
    """Return the compaction of a table that is worth considering; None if there is none.

    Args:
        cold: The sequence number at which partitions were last written that get no appends any
            more; their files are merged whatever their sizes.
        everything: Merge all small files, whatever their sizes.
    """
    deletes = _Deletes(state.deletes)
    dirty = frozenset(one.path for one in state.data if deletes.many(one, rules.delete_ratio))
    groups: dict[str, list[DataFile]] = {}
    for one in state.data:
        groups.setdefault(one.partition, []).append(one)
    min_files = 2 if everything else max(2, rules.min_files)
    few = manifests if manifests >= _MANY_MANIFESTS else 0
    below = int(target * _SMALL)
    smallest = min((one.size for one in state.data), default=below)
    while below > smallest:
        chosen = [
            found
            for files in groups.values()
            if (found := _merged(files, below, min_files, target))
        ]
        if chosen and (everything or _grows(chosen, cold, min_files)):
            break
        below //= _STEP
    else:
        below, chosen = min(below, smallest), []
    merged = {one.path for files in chosen for one in files}
    by_group: dict[str, list[DataFile]] = {}
    for one in state.data:
        if one.path in merged or one.path in dirty:
            by_group.setdefault(one.partition, []).append(one)
    rewritten = [one for files in by_group.values() for one in files]
    if not rewritten and not few:
        return None
    into = sum(math.ceil(deletes.live_bytes(files) / target) for files in by_group.values())
    gone = {one for file in rewritten for one in deletes.of(file)}
    return Compaction(
        below,
        min_files,
        target,
        len(rewritten),
        sum(one.size for one in rewritten),
        into,
        len(gone),
        few,
    )


def _merged(
    files: Collection[DataFile], below: int, min_files: int, target: int
) -> list[DataFile] | None:
    small = [one for one in files if one.size < below]
    into = max(1, math.ceil(sum(one.size for one in small) / target))
    return small if len(small) >= max(min_files, into + 1) else None


def _grows(chosen: Iterable[Sequence[DataFile]], cold: int, times: int) -> bool:
    """Return whether the merged files are so much larger that they are not soon merged again.

    A file that grows by small appends is then rewritten a logarithmic number of times, not once for
    each append.
    """
    largest = total = 0
    for files in chosen:
        total += sum(one.size for one in files)
        if max(one.sequence for one in files) > cold:
            largest += max(one.size for one in files)
    return largest * times <= total


class _Deletes:
    """The delete files of a state by data file."""

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        self._of: dict[str, list[DeleteFile]] = {}
        self._any: list[DeleteFile] = []
        for one in deletes:
            if one.target is None:
                self._any.append(one)
            else:
                self._of.setdefault(one.target, []).append(one)

    def of(self, file: DataFile) -> list[DeleteFile]:
        """Return the delete files that a scan of a data file reads."""
        found = [*self._of.get(file.path, ()), *self._any]
        return [one for one in found if one.sequence >= file.sequence]

    def rows(self, file: DataFile) -> int:
        """Return how many rows of a file its own delete files delete."""
        return min(file.rows, sum(one.rows for one in self._of.get(file.path, ())))

    def many(self, file: DataFile, ratio: float) -> bool:
        """Return whether a file has so many deletes that it is to be rewritten."""
        deleted = self.rows(file)
        return bool(deleted and deleted >= ratio * file.rows) or len(self.of(file)) >= _MANY_DELETES

    def live_bytes(self, files: Iterable[DataFile]) -> int:
        """Return about how many bytes the rows that are not deleted have."""
        return sum(
            math.ceil(one.size * (1 - self.rows(one) / one.rows)) for one in files if one.rows
        )


def options(work: Compaction, rules: Rules, max_files: int | None) -> Mapping[str, str]:
    """Return the options of Iceberg's ``rewrite_data_files`` for a compaction."""
    found = {
        "target-file-size-bytes": str(work.target_bytes),
        "min-file-size-bytes": str(max(1, work.below)),
        # Iceberg requires it to be larger than the target; larger files are not split.
        "max-file-size-bytes": str(min(work.target_bytes * 1000, _LARGEST_FILE)),
        "min-input-files": str(work.min_files),
        "delete-file-threshold": str(_MANY_DELETES),
        "delete-ratio-threshold": str(rules.delete_ratio),
        "remove-dangling-deletes": "true",
    }
    return found if max_files is None else {**found, "max-files-to-rewrite": str(max_files)}
