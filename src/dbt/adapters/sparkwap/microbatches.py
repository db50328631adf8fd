"""The batches of microbatch models, which dbt may run at the same time in several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation

from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.relation import identifier_of
from dbt.adapters.sparkwap.statements import StatementGuard
from sparkwap.catalog import Identifier
from sparkwap.gate.batch_writes import BatchWrite, are_apart, decide

_BATCH = "spark.sql.iceberg.snapshot-property.wap_batch"


class Microbatches:
    """The calls of the incremental materialization for batches.

    Args:
        runs: The command's run.
        statements: The guard and the net around its statements.
    """

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

        Args:
            model: dbt's node of the model, with the batch.
            relation: Its table.
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
                str(getattr(config["batch_size"], "value", config["batch_size"])),
            ),
        )

    @available.parse(lambda *a, **k: "")
    def in_turn(
        self, relation: BaseRelation, alone: bool = True, *, caller: Callable[[], str]
    ) -> str:
        """Run the body of a `call` block while no other batch of the table runs one.

        Args:
            relation: The table.
            alone: Whether to wait for the other batches.
            caller: The body.
        """
        with self._lock:
            turn = self._turns.setdefault(identifier_of(relation), threading.RLock())
        with turn if alone else nullcontext():
            return caller()
