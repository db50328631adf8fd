"""The kill matrix: where what dies, and how. Made from the list of steps.

Without Spark there is no server to kill. With ``SOAK=1`` the tests take the longer lists.
"""

from __future__ import annotations

import os

from sparkwap.core import checkpoints

ALL = bool(os.environ.get("SOAK"))
ACTIONS = ("kill-process", "raise")
ON_SPARK = (*ACTIONS, "kill-server")

# -- without Spark -----------------------------------------------------------------------------

CELLS = [
    (step.name, action)
    for step in checkpoints.CHECKPOINTS.values()
    if step.where not in ("dbt", "sequential")
    for action in ACTIONS
]

_SEQUENTIAL_STEPS = [
    step.name for step in checkpoints.CHECKPOINTS.values() if step.where == "sequential"
]
SEQUENTIAL_CELLS = [(name, "kill-process") for name in _SEQUENTIAL_STEPS]
SEQUENTIAL_SOAK = [
    (name, action) for name in _SEQUENTIAL_STEPS for action in ("kill-process", "raise")
]
ROLLED_BACK = ("journal.written", "sequential.changed", "journal.closing")
"""Where a sequential rollback dies."""
RETRIED = (
    "journal.writing", "journal.written", "sequential.moved", "journal.closing", "journal.closed",
)  # fmt: skip
"""Where a run dies that publishes sequentially, and that `dbt retry` goes on with."""
UNBEGUN = (("ledger.begins", 2),)
"""Where, and at which time, a run that publishes sequentially has verdicts and no journal."""

FULL_DISK = ("build", "dbt clone", "wap_publish", "wap_discard", "wap_rollback")
SIZES = (0, 2, 4, 14, 28)
SIZES_SOAK = tuple(range(64))
"""KiB that no file may exceed."""
LOST_DATABASE = (
    ("build", "open_branch"),
    ("build", "publish"),
    ("wap_publish", "publish"),
    ("wap_discard", "discard"),
    ("wap_rollback", "rollback"),
)
PARTS = ("begun", "rows_changed", "committed")

# -- with dbt and Spark ------------------------------------------------------------------------

REPRESENTATIVE = [
    *(
        (step.name, "kill-process", 1)
        for step in checkpoints.CHECKPOINTS.values()
        if step.where == "dbt"
    ),
    ("node.placed", "kill-process", 1),
    ("node.checking", "kill-process", 2),
    ("publish.rows_changed", "kill-process", 1),
    ("publish.committed", "kill-process", 1),
    ("node.placed", "kill-server", 2),
    ("audit.begins", "kill-server", 1),
    ("publish.committed", "kill-server", 1),
    ("run.decided", "raise", 1),
    ("publish.committed", "raise", 1),
    ("statement.sending", "lost-network", 2),
]
# What a build of these models does not do: clones, copies, rollbacks, and the like.
_REACHED = ("run", "node", "statement", "audit", "metadata", "open_branch", "forget", "publish",
            "record", "results")  # fmt: skip
_NOT_REACHED = ("forget.purging", "forget.purged", "publish.purging", "publish.purged")
_FORGETTING = ("forget.begun", "forget.rows_changed", "forget.committed")
EVERYTHING = [
    (name, action, 1)
    for name in checkpoints.CHECKPOINTS
    if name.partition(".")[0] in _REACHED and name not in (*_NOT_REACHED, *_FORGETTING)
    for action in ON_SPARK
]
AGAIN = [("forget.committed", "kill-process")]
AGAIN_SOAK = [(name, action) for name in _FORGETTING for action in ON_SPARK]
"""Where a retry dies: a build has nothing yet on its branch that it could forget."""
NAMED = ("publish.committed", "publish.rows_changed")
"""Where a build dies whose branch the user has named (``wap_branch``): after its publish, and
before it, where others have published on a branch of that name."""
SIGNALS = ("SIGKILL", "SIGINT")
"""What ends a build while Spark is writing."""
