"""Operations by hand: show, publish, accept, discard, sweep, maintain, roll back.

dbt's run-operations call them by their names, such as ``wap_status``. To add an operation, write
its dataclass in a new file, add it to ``OPERATIONS``, and run ``scripts/operations.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkwap.runs.operations.accept import Accept
from sparkwap.runs.operations.context import Context, Operation
from sparkwap.runs.operations.discard import Discard
from sparkwap.runs.operations.maintain import Maintain, NotMaintained
from sparkwap.runs.operations.publish import NotPublished, PublishBranch
from sparkwap.runs.operations.rollback import Rollback
from sparkwap.runs.operations.status import Status
from sparkwap.runs.operations.sweep import NotSwept, Sweep

OPERATIONS: tuple[type[Operation], ...] = (
    Status,
    PublishBranch,
    Accept,
    Discard,
    Sweep,
    Maintain,
    Rollback,
)


@dataclass(frozen=True)
class LakeOperations(Context):
    """The operations on one lake."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """Check the arguments and run an operation; returns the lines to print.

        Raises:
            ConfigError: An argument is unknown, missing or illegal; the message has the legal
                values.
        """
        (kind,) = (one for one in OPERATIONS if one.name == name)
        operation = kind.of(arguments)
        # Complete or undo interrupted publishes first.
        found = [] if kind.only_reads else self.lake.publishing.recover()
        return [*found, *operation.operate(self)]


__all__ = ["OPERATIONS", "LakeOperations", "NotMaintained", "NotPublished", "NotSwept", "Operation"]
