"""How the batches of a microbatch model write: at the same time, or one after another.

A batch deletes its time range on the audit branch, then inserts its rows. Inserts never conflict.
Deletes of two batches conflict if one data file has rows of both: the delete rewrites that file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparkwap.gate.placement import partition_term

_UNITS = ("hour", "day", "month", "year")


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """How a batch writes.

    Attributes:
        checked: A row outside the time range of the batch is an error. Otherwise the result would
            depend on the order of the batches.
        alone: No other batch of the model may write at the same time.
    """

    checked: bool = False
    deletes: bool = True
    alone: bool = True


def decide(*, together: bool, built_whole: bool, apart: bool) -> BatchWrite:
    """Return how a batch writes.

    Args:
        together: Whether dbt may run the model's batches at the same time.
        built_whole: Whether an earlier batch of this run has built the whole table. The table then
            has only rows of other batches, so there is nothing to delete.
        apart: Whether no data file can have rows of two batches; see `are_apart`.
    """
    if not together:
        return BatchWrite()
    return BatchWrite(checked=True, deletes=not built_whole, alone=not (built_whole or apart))


def are_apart(
    specs: Iterable[Sequence[str]], event_time: str, column_type: str, batch_size: str
) -> bool:
    """Return whether a table's partitions keep the rows of two batches in different files.

    Args:
        specs: The partition terms of every spec of the table, as old files keep their spec.
        column_type: Its Spark type.
        batch_size: `hour`, `day`, `month` or `year`.
    """
    column = partition_term(event_time)
    terms = {column}
    if column_type == "date":
        terms.add(f"days({column})")
    elif column_type == "timestamp" and batch_size in _UNITS:
        # Partitions and batches begin in UTC. The time of a `date` or `timestamp_ntz` depends on
        # the session's time zone instead.
        terms |= {f"{unit}s({column})" for unit in _UNITS[: _UNITS.index(batch_size) + 1]}
    found = [{partition_term(term) for term in spec} for spec in specs]
    return bool(found) and all(terms & spec for spec in found)
