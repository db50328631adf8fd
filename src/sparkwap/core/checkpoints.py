"""The checkpoints of the gate: every place between two changes of state, by name.

A run is a chain of changes: a branch is opened, rows are written, a transaction commits, a record
is written. Code calls `checkpoint` between them. Listeners learn where a run is: the fault injector
of the tests, which kills the process there, and the log of steps.

A new change of state gets a checkpoint here. The kill matrix (``tests/helpers/crashes/cells.py``)
and the table in ``docs/crashes.md`` are made from this list: a checkpoint at which no test kills
the process fails the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Side = Literal["before", "between", "gap", "after"]
"""What readers of ``main`` see at a checkpoint: the state before the publish or rollback, or after
it. On catalogs without transactions also ``between``: each table is as before or as after; and
``gap``: besides, one of the tables is missing."""

Where = Literal["catalog", "series", "run", "dbt"]
"""Which code runs there: the catalog, the sequential publish on catalogs without transactions, the
run, or the adapter inside dbt."""

Listener = Callable[["Checkpoint", Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A named place between two changes of state.

    Attributes:
        name: ``<what>.<where in it>``.
        where: Which code calls it.
        done: What has happened before it, in one line.
        readers: What readers of ``main`` see if the process dies here.
        goes_on: The next command if the process dies here.
    """

    name: str
    where: Where
    done: str
    readers: Side = "before"
    goes_on: str = "dbt retry"


Operation = Literal[
    "open_branch", "clone", "copy", "forget", "publish", "rollback", "discard", "ledger",
    "drop_schema", "erase", "reopen", "sweep", "sweep_table", "leftovers",
]  # fmt: skip
"""What a commit to the catalog is for."""

Part = Literal[
    "begins", "files_written", "begun", "rows_changed", "committed", "cleaned", "purging", "purged"
]  # fmt: skip

_OPERATIONS: Mapping[Operation, str] = {
    "open_branch": "the audit branch of a table, with the tag of its base",
    "clone": "the clone of a table in the side schema",
    "copy": "a table that shares another one's files",
    "forget": "dropping what the branch had of a table",
    "publish": "the publish of all tables of a run",
    "rollback": "the rollback of a publish",
    "discard": "dropping an audit branch",
    "ledger": "rows of the ledger",
    "drop_schema": "dropping a schema",
    "erase": "a table without its history, for an erasure",
    "reopen": "the candidates of a publish that was rolled back, on their branch again",
    "sweep": "taking away an audit branch that is past its age",
    "sweep_table": "taking tags and snapshots away from a table that are past their age",
    "leftovers": "dropping what a publish by a series has left in side schemas",
}
_PARTS: Mapping[Part, str] = {
    "begins": "nothing yet of {}",
    "files_written": "the metadata files are written that the catalog will name for {}",
    "begun": "the catalog's transaction has begun: {}",
    "rows_changed": "all rows are changed in the open transaction: {}",
    "committed": "the transaction is committed: {}",
    "cleaned": "former metadata files of the ledger that nothing names are deleted, after {}",
    "purging": "folders that only dropped tables and views used are still there, after {}",
    "purged": "folders that only dropped tables and views used are deleted, after {}",
}
_PURGES: frozenset[Operation] = frozenset(
    {"forget", "publish", "discard", "drop_schema", "leftovers"}
)
_NOTHING = "none: all is done"
_NEXT = "the next command"
_GOES_ON: Mapping[Operation, str] = {
    "rollback": "wap_rollback",
    "reopen": "wap_rollback",
    "sweep": "wap_sweep",
    "sweep_table": "wap_sweep",
    "discard": "wap_discard",
    "drop_schema": "the same command",
    "erase": "wap_erase",
    "leftovers": _NEXT,
}
_GOES_ON_BY_SIDE: Mapping[Side, str] = {
    "before": "dbt retry",
    "between": _NEXT,
    "gap": _NEXT,
    "after": _NOTHING,
}
_MOVES_MAIN: frozenset[Operation] = frozenset({"publish", "rollback", "drop_schema"})

_AFTER: frozenset[Part] = frozenset({"committed", "cleaned", "purging", "purged"})

CHECKPOINTS: dict[str, Checkpoint] = {}
"""All checkpoints by name, roughly in the order in which a run passes them."""


def _step(
    name: str, where: Where, done: str, readers: Side = "before", goes_on: str | None = None
) -> Checkpoint:
    """Add a checkpoint; by default the next command follows from what readers see."""
    step = Checkpoint(name, where, done, readers, goes_on or _GOES_ON_BY_SIDE[readers])
    CHECKPOINTS[name] = step
    return step


def _commit_steps(operation: Operation) -> dict[Part, Checkpoint]:
    made: dict[Part, Checkpoint] = {}
    for part, done in _PARTS.items():
        if part in ("purging", "purged") and operation not in _PURGES:
            continue
        in_series = operation == "leftovers"
        moved = in_series or (operation in _MOVES_MAIN and part in _AFTER)
        text = done.format(_OPERATIONS[operation])
        readers: Side = "after" if moved else "before"
        # Where readers see all of it, nothing but an open journal waits for a command.
        done_with = moved and not (in_series and part not in ("purging", "purged"))
        goes_on = None if done_with else _GOES_ON.get(operation)
        where: Where = "series" if in_series else "catalog"
        made[part] = _step(f"{operation}.{part}", where, text, readers, goes_on)
    return made


# fmt: off
RUN_OPENING = _step("run.opening", "dbt", "nothing: the run has its branch's name, no more",
                    goes_on="the same command")
RUN_OPENED = _step("run.opened", "dbt", "the run is on record in dbt's target folder, as open")
SCHEMA_CREATING = _step("schema.creating", "catalog", "a schema is about to be created")
SCHEMA_CREATED = _step("schema.created", "catalog", "a schema is created, a side schema with its "
                       "mark")
LEDGER_CREATING = _step("ledger_table.creating", "catalog", "a table of the ledger lacks")
LEDGER_CREATED = _step("ledger_table.created", "catalog", "a table of the ledger is created")
NODE_BEGINS = _step("node.begins", "run", "a node's turn has come; what the branch had of it is "
                    "still there")
NODE_BEGUN = _step("node.begun", "run", "what the branch had of the node's table is forgotten")
NODE_PLACING = _step("node.placing", "run", "the node's table has no place on the branch yet")
NODE_PLACED = _step("node.placed", "run", "the branch, clone or side schema is there to be written")
STATEMENT_SENDING = _step("statement.sending", "dbt", "a statement is about to be sent to Spark")
STATEMENT_DONE = _step("statement.done", "dbt", "Spark has answered a statement")
NODE_CHECKING = _step("node.checking", "run", "the node's rows are written")
NODE_RECORDED = _step("node.recorded", "run", "the candidate is recorded, in the run's memory")
AUDIT_BEGINS = _step("audit.begins", "dbt", "a test is about to read the branch")
CLOSING = _step("run.closing", "run", "all nodes are built and audited")
DECIDED = _step("run.decided", "run", "the gate has its verdicts")
METADATA_WRITING = _step("metadata.writing", "catalog", "a metadata file is about to be written")
METADATA_HALF = _step("metadata.half_written", "catalog", "half of a metadata file is written; "
                      "nothing names it")
METADATA_WRITTEN = _step("metadata.written", "catalog", "a metadata file is on the disk for good; "
                         "nothing names it")
# fmt: on
COMMIT_STEPS: Mapping[Operation, Mapping[Part, Checkpoint]] = {
    operation: _commit_steps(operation) for operation in _OPERATIONS
}
# fmt: off
FILES_DELETING = _step("files.deleting", "catalog", "files to which nothing refers are found in a "
                       "folder")
FILES_DELETED = _step("files.deleted", "catalog", "files to which nothing refers are deleted from "
                      "a folder; the ledger does not know yet")
JOURNAL_WRITING = _step("journal.writing", "series", "a publish or rollback by a series is "
                        "checked, and not written down yet", goes_on="dbt retry, wap_rollback")
JOURNAL_WRITTEN = _step("journal.written", "series", "the journal says what is to be moved; "
                        "nothing is moved", goes_on=_NEXT)
SERIES_CHANGED = _step("series.changed", "series", "a table that changes in its place is moved; "
                       "others wait", "between")
SERIES_FREED = _step("series.freed", "series", "a table that is replaced is gone, and its "
                     "successor not there yet", "gap")
SERIES_RENAMED = _step("series.renamed", "series", "a new table has its live name, and no tag yet",
                       "between")
SERIES_MOVED = _step("series.moved", "series", "a new table or a view is in its place; others may "
                     "wait", "between")
JOURNAL_DECIDED = _step("journal.decided", "series", "the journal says whether the publish is "
                        "completed or undone, for all who carry it on", "between", _NEXT)
JOURNAL_MOVED = _step("journal.moved", "series", "all tables were read again, and are moved",
                      "after", _NEXT)
JOURNAL_CLOSING = _step("journal.closing", "series", "all is moved; the ledger does not know yet",
                        "after", _NEXT)
JOURNAL_CLOSED = _step("journal.closed", "series", "the ledger has the publish or rollback, and "
                       "the journal is closed", "after")
SERIES_MOVED_BACK = _step("series.moved_back", "series", "a table is back where it was, as "
                          "others have moved one that still waited", "between")
JOURNAL_GIVING_UP = _step("journal.giving_up", "series", "all tables that were moved are back; "
                          "the journal is open still", goes_on=_NEXT)
JOURNAL_GIVEN_UP = _step("journal.given_up", "series", "the journal says that the publish was "
                         "undone")
PUBLISH_VERIFIED = _step("publish.verified", "catalog", "the catalog was read again, and keeps "
                         "what it was told", "after")
CLOSED = _step("run.closed", "run", "published, held or rejected, and in the ledger", "after")
RECORDING = _step("record.writing", "dbt", "as run.closed; the record in the target folder still "
                  "says open", "after")
RECORDED = _step("record.written", "dbt", "the record in the target folder says held or closed",
                 "after")
MARKED = _step("results.marked", "dbt", "dbt's results say which tables were rejected; nothing is "
               "printed yet", "after")
# fmt: on

_listeners: tuple[Listener, ...] | None = None


def checkpoint(step: Checkpoint, **facts: Any) -> None:
    """Notify the listeners that a checkpoint is reached.

    Args:
        step: The checkpoint.
        facts: What it is about, as far as the caller knows: ``run_id``, ``branch``, ``table``
            (``schema.name``), ``node_id``, ``file``.
    """
    if _listeners is not None:
        for listener in _listeners:
            listener(step, facts)


def listen(listener: Listener) -> Callable[[], None]:
    """Call ``listener`` at every checkpoint, in the thread that reaches it.

    Returns:
        A function that removes the listener.
    """
    global _listeners
    _listeners = (*(_listeners or ()), listener)

    def end() -> None:
        global _listeners
        _listeners = tuple(one for one in _listeners or () if one is not listener) or None

    return end
