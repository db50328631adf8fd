"""The batches of microbatch models, which dbt may run at the same time in several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.artifacts.resources.types import BatchSize
from dbt.flags import get_flags
from dbt.materializations.incremental.microbatch import MicrobatchBuilder

from dbt.adapters.sparkwap.command import as_dbt_error
from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.relation import identifier_of
from dbt.adapters.sparkwap.statements import StatementGuard
from sparkwap.catalog import Identifier
from sparkwap.core.errors import SparkwapError
from sparkwap.gate.batch_writes import BatchWrite, are_apart, decide
from sparkwap.runs.batches import as_utc, builds, lost, untold

_BATCH = "spark.sql.iceberg.snapshot-property.wap_batch"
_NEVER = datetime.max.replace(tzinfo=UTC)


class Microbatches:
    """The calls of the incremental materialization for batches."""

    def __init__(self, runs: CommandRun, statements: StatementGuard) -> None:
        self._runs = runs
        self._statements = statements
        self._lock = threading.Lock()
        self._turns: dict[Identifier, threading.RLock] = {}

    @available.parse(lambda *a, **k: BatchWrite())
    def begin_batch(self, model: Mapping[str, Any], relation: BaseRelation) -> BatchWrite:
        """Begin to write a batch; returns how it writes.

        The snapshots of the batch get its name. It tells after an error whether the batch or
        another one at the same time has written.
        """
        run, config, table = self._runs.current(), model["config"], identifier_of(relation)
        if run is None or not config.get("concurrent_batches"):
            return decide(together=False, built_whole=False, apart=False)
        name = str(model["batch"]["event_time_start"]).replace(" ", "T")
        with self._statements.own():
            self._runs.command.connections.rows_of(f"set `{_BATCH}`={name}")
        self._statements.at_work.batch = name
        state, event_time = self._runs.state(table), str(config["event_time"])
        types = {c.name.lower(): c.type for c in state.columns} if state else {}
        return decide(
            together=True,
            built_whole=table in run.candidates.whole,
            apart=state is not None
            and are_apart(
                run.lake.partitionings(state.identifier),
                event_time,
                types.get(event_time.lower(), ""),
                BatchSize(config["batch_size"]).value,
            ),
        )

    @available.parse(lambda *a, **k: None)
    def require_all(self, model: Mapping[str, Any], relation: BaseRelation) -> None:
        """Check that a table that is built anew keeps the batches that it has on `main`.

        Batches before the model's ``begin`` may go.
        """
        run, flags, table = self._runs.current(), get_flags(), identifier_of(relation)
        first, last = flags.EVENT_TIME_START, flags.EVENT_TIME_END
        if run is None or run.replay is not None or not (first or last):
            return
        begin = as_utc(datetime.fromisoformat(str(model["config"]["begin"])))
        # dbt builds whole batches.
        size = BatchSize(model["config"]["batch_size"])
        kept = (
            MicrobatchBuilder.truncate_timestamp(as_utc(first), size) if first else begin,
            MicrobatchBuilder.ceiling_timestamp(as_utc(last), size) if last else _NEVER,
        )
        known = run.lake.ledger.builds(model["unique_id"], table)
        live = run.lake.state(table)
        rows_there = live is not None and live.main is not None
        has = [*builds(known), *(untold(known) if rows_there else ())]
        gone = [(max(start, begin), end) for start, end in lost(has, kept) if end > begin]
        if gone:
            shown = ", ".join(
                f"{start:%Y-%m-%dT%H:%M} to {end:%Y-%m-%dT%H:%M}" for start, end in gone
            )
            with as_dbt_error():
                raise SparkwapError(
                    f"--full-refresh builds {'.'.join(table)} anew from the batches of "
                    f"--event-time-start and --event-time-end only. Its batches from {shown} would "
                    "be lost. Nothing of it was built. Leave out --full-refresh to replace these "
                    "batches in the table, or the other flags to build all batches. To give older "
                    "batches up, set `begin` of the model."
                )

    @available.parse(lambda *a, **k: "")
    def in_turn(
        self, relation: BaseRelation, alone: bool = True, *, caller: Callable[[], str]
    ) -> str:
        """Run the body of a `call` block; `alone`: while no other batch of the table runs one."""
        with self._lock:
            turn = self._turns.setdefault(identifier_of(relation), threading.RLock())
        with turn if alone else nullcontext():
            return caller()
