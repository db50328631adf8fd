"""The checkpoints of the gate: all named places between two changes of state.

A run is a sequence of changes: a branch is opened, rows are written, a transaction commits, a
record is written. Code calls `checkpoint` between them. Listeners are the log of steps, and the
fault injector of the tests, which kills the process at a checkpoint.

Each new change of state needs a checkpoint here. The kill matrix
(``tests/helpers/crashes/cells.py``) and the table in ``docs/crashes.md`` are generated from this
list: the suite fails if no test kills the process at a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Side = Literal["before", "between", "gap", "after"]
"""The state that readers of ``main`` see at a checkpoint: before or after the publish or rollback.
On catalogs without transactions, also ``between``: each table is in its old or its new state; and
``gap``: like ``between``, but one of the tables is missing."""

Where = Literal["catalog", "sequential", "run", "dbt"]
"""The code with the checkpoint: the catalog, the sequential publish on catalogs without
transactions, the run, or the adapter inside dbt."""

Listener = Callable[["Checkpoint", Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A named place between two changes of state.

    Attributes:
        name: ``<change>.<step>``.
        done: The state at the checkpoint, in one line.
        readers: The state that readers of ``main`` see if the process dies here.
        next_command: The command that continues if the process dies here.
    """

    name: str
    where: Where
    done: str
    readers: Side = "before"
    next_command: str = "dbt retry"


Operation = Literal[
    "open_branch", "clone", "copy", "forget", "cherry_pick", "publish", "rollback", "discard",
    "ledger", "drop_schema", "erase", "reopen", "sweep", "sweep_table", "maintain", "leftovers",
]  # fmt: skip
"""The purpose of a commit to the catalog."""

Part = Literal[
    "begins", "files_written", "begun", "rows_changed", "committed", "cleaned", "purging", "purged"
]  # fmt: skip

_OPERATIONS: Mapping[Operation, str] = {
    "open_branch": "creating the audit branch of a table, with its base tag",
    "clone": "creating the clone of a table in the side schema",
    "copy": "creating a table that shares the files of another table",
    "forget": "dropping a table's candidate on the branch",
    "cherry_pick": "moving the candidate of a branch to a compacted main",
    "publish": "the publish of all tables of a run",
    "rollback": "the rollback of a publish",
    "discard": "dropping an audit branch",
    "ledger": "writing rows of the ledger",
    "drop_schema": "dropping a schema",
    "erase": "removing the history of a table, for an erasure",
    "reopen": "restoring the candidates of a publish that was rolled back",
    "sweep": "removing an expired audit branch",
    "sweep_table": "removing expired tags and snapshots of a table",
    "maintain": "moving main of a table to its rewritten files, or removing its old snapshots",
    "leftovers": "dropping the remains of a sequential publish in side schemas",
}
_PARTS: Mapping[Part, str] = {
    "begins": "not begun: {}",
    "files_written": "the new metadata files are written, and not in the catalog yet: {}",
    "begun": "the catalog's transaction has begun: {}",
    "rows_changed": "all rows are changed in the open transaction: {}",
    "committed": "the transaction is committed: {}",
    "cleaned": "unreferenced old metadata files of the ledger are deleted, after {}",
    "purging": "folders used only by dropped tables and views still exist, after {}",
    "purged": "folders used only by dropped tables and views are deleted, after {}",
}
_PURGES: frozenset[Operation] = frozenset(
    {"forget", "publish", "discard", "drop_schema", "leftovers"}
)
_NOTHING = "none: everything is done"
_NEXT = "any command"
_NEXT_COMMAND: Mapping[Operation, str] = {
    "rollback": "wap_rollback",
    "reopen": "wap_rollback",
    "sweep": "wap_sweep",
    "sweep_table": "wap_sweep",
    "maintain": "wap_maintain",
    "discard": "wap_discard",
    "drop_schema": "the same command",
    "erase": "wap_erase",
    "leftovers": _NEXT,
}
_NEXT_COMMAND_BY_SIDE: Mapping[Side, str] = {
    "before": "dbt retry",
    "between": _NEXT,
    "gap": _NEXT,
    "after": _NOTHING,
}
_MOVES_MAIN: frozenset[Operation] = frozenset({"publish", "rollback", "drop_schema"})

_AFTER: frozenset[Part] = frozenset({"committed", "cleaned", "purging", "purged"})

CHECKPOINTS: dict[str, Checkpoint] = {}
"""All checkpoints by name, roughly in the order of a run."""


def _step(
    name: str, where: Where, done: str, readers: Side = "before", next_command: str | None = None
) -> Checkpoint:
    """Add a checkpoint; the default of the next command depends on the readers' state."""
    command = next_command or _NEXT_COMMAND_BY_SIDE[readers]
    step = Checkpoint(name, where, done, readers, command)
    CHECKPOINTS[name] = step
    return step


def _commit_steps(operation: Operation) -> dict[Part, Checkpoint]:
    made: dict[Part, Checkpoint] = {}
    for part, done in _PARTS.items():
        if part in ("purging", "purged") and operation not in _PURGES:
            continue
        sequential = operation == "leftovers"
        moved = sequential or (operation in _MOVES_MAIN and part in _AFTER)
        text = done.format(_OPERATIONS[operation])
        readers: Side = "after" if moved else "before"
        # If readers see the whole publish, only an open journal still needs a command.
        complete = moved and not (sequential and part not in ("purging", "purged"))
        next_command = None if complete else _NEXT_COMMAND.get(operation)
        where: Where = "sequential" if sequential else "catalog"
        made[part] = _step(f"{operation}.{part}", where, text, readers, next_command)
    return made


# fmt: off
RUN_OPENING = _step("run.opening", "dbt", "the run has the name of its branch; nothing is written",
                    next_command="the same command")
RUN_OPENED = _step("run.opened", "dbt", "dbt's target folder has a record of the open run")
SCHEMA_CREATING = _step("schema.creating", "catalog", "a schema is about to be created")
SCHEMA_CREATED = _step("schema.created", "catalog", "a schema is created; a side schema has its "
                       "mark")
LEDGER_CREATING = _step("ledger_table.creating", "catalog", "a table of the ledger is missing")
LEDGER_CREATED = _step("ledger_table.created", "catalog", "a table of the ledger is created")
NODE_BEGINS = _step("node.begins", "run", "a node begins; its old candidate is still on the branch")
NODE_BEGUN = _step("node.begun", "run", "the node's old candidate is dropped")
NODE_PLACING = _step("node.placing", "run", "the node's table has no place on the branch yet")
NODE_PLACED = _step("node.placed", "run", "the branch, clone or side schema exists")
STATEMENT_SENDING = _step("statement.sending", "dbt", "a statement is about to be sent to Spark")
STATEMENT_DONE = _step("statement.done", "dbt", "Spark has answered a statement")
NODE_CHECKING = _step("node.checking", "run", "the node's rows are written")
NODE_RECORDED = _step("node.recorded", "run", "the candidate is recorded in the run's memory")
AUDIT_BEGINS = _step("audit.begins", "dbt", "a test is about to read the branch")
CLOSING = _step("run.closing", "run", "all nodes are built and audited")
DECIDED = _step("run.decided", "run", "the gate has its verdicts")
METADATA_WRITING = _step("metadata.writing", "catalog", "a metadata file is about to be written")
METADATA_HALF = _step("metadata.half_written", "catalog", "half of a metadata file is written, and "
                      "not referenced")
METADATA_WRITTEN = _step("metadata.written", "catalog", "a metadata file is flushed to disk, and "
                         "not referenced")
# fmt: on
COMMIT_STEPS: Mapping[Operation, Mapping[Part, Checkpoint]] = {
    operation: _commit_steps(operation) for operation in _OPERATIONS
}
# fmt: off
FILES_DELETING = _step("files.deleting", "catalog", "a folder has unreferenced files")
FILES_DELETED = _step("files.deleted", "catalog", "the unreferenced files of a folder are deleted; "
                      "this is not in the ledger yet")
JOURNAL_WRITING = _step("journal.writing", "sequential", "a sequential publish or rollback is "
                        "checked, and not in the journal yet",
                        next_command="dbt retry, wap_rollback")
JOURNAL_WRITTEN = _step("journal.written", "sequential", "the journal lists the tables to move; "
                        "no table is moved", next_command=_NEXT)
SEQUENTIAL_CHANGED = _step("sequential.changed", "sequential", "a table is moved in place; other "
                           "tables are not moved yet", "between")
SEQUENTIAL_FREED = _step("sequential.freed", "sequential", "a table to replace is dropped, and its "
                         "successor does not exist yet", "gap")
SEQUENTIAL_RENAMED = _step("sequential.renamed", "sequential", "a new table has its live name, and "
                           "no tag yet", "between")
SEQUENTIAL_MOVED = _step("sequential.moved", "sequential", "a new table or view is in its place; "
                         "others may not be moved yet", "between")
JOURNAL_DECIDED = _step("journal.decided", "sequential", "the journal records whether to complete "
                        "or undo the publish", "between", _NEXT)
JOURNAL_MOVED = _step("journal.moved", "sequential", "all tables are moved and read again",
                      "after", _NEXT)
JOURNAL_CLOSING = _step("journal.closing", "sequential", "all tables are moved; this is not in the "
                        "ledger yet", "after", _NEXT)
JOURNAL_CLOSED = _step("journal.closed", "sequential", "the ledger has the publish or rollback, "
                       "and the journal is closed", "after")
SEQUENTIAL_MOVED_BACK = _step("sequential.moved_back", "sequential", "a table is moved back, "
                              "because another writer changed a table that was not moved yet",
                              "between")
JOURNAL_GIVING_UP = _step("journal.giving_up", "sequential", "all moved tables are moved back; the "
                          "journal is still open", next_command=_NEXT)
JOURNAL_GIVEN_UP = _step("journal.given_up", "sequential", "the journal records that the publish "
                         "was undone")
PUBLISH_VERIFIED = _step("publish.verified", "catalog", "the catalog was read again, and has the "
                         "committed state", "after")
CLOSED = _step("run.closed", "run", "the ledger has the verdicts: published, held or rejected",
               "after")
RECORDING = _step("record.writing", "dbt", "as run.closed; the record in the target folder is "
                  "still open", "after")
RECORDED = _step("record.written", "dbt", "the record in the target folder is held or closed",
                 "after")
MARKED = _step("results.marked", "dbt", "dbt's results mark the rejected tables; nothing is "
               "printed yet", "after")
# fmt: on

_listeners: tuple[Listener, ...] | None = None


def checkpoint(step: Checkpoint, **facts: Any) -> None:
    """Notify the listeners that a checkpoint is reached, with the facts that the caller has.

    These are ``run_id``, ``branch``, ``table`` (``schema.name``), ``node_id``, ``file``.
    """
    if _listeners is not None:
        for listener in _listeners:
            listener(step, facts)


def listen(listener: Listener) -> Callable[[], None]:
    """Call ``listener`` at every checkpoint, in its thread; returns a function that ends this."""
    global _listeners
    _listeners = (*(_listeners or ()), listener)

    def end() -> None:
        global _listeners
        _listeners = tuple(other for other in _listeners or () if other is not listener) or None

    return end
