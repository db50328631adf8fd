"""What an operation is given: the lake, and what it knows of the project."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkwap.catalog import Identifier, OpenBranch
from sparkwap.core.arguments import Arguments
from sparkwap.core.errors import ConfigError
from sparkwap.gate.settings import GateSettings

if TYPE_CHECKING:
    from sparkwap.ledger.manifests import Packed
    from sparkwap.ledger.records import LedgerPublish
    from sparkwap.publish.lake import Lake
    from sparkwap.runs.state import LastRun
    from sparkwap.runs.types import TestFact


@dataclass(frozen=True)
class Context:
    """The lake and the project that operations are called for.

    Attributes:
        lake: The lake.
        run_id: dbt's invocation id.
        settings: The gate's settings.
        project: The project's name.
        target_name: dbt's target.
        tests: Tells all tests of the project, which a publish needs to know what was expected.
        known: Tells ids of what is in the project: the tests of all else are not among ``tests``.
        unfinished: The last run of this working copy, if it has not come to its end.
        manifest: Tells the project's code, which a publish puts on record.
        stands: Tells schema and name of the table that a node is; None for none.
        width: Columns that a line of a summary may have; None for no limit.
        next_steps: Whether a summary tells the commands that go on.
        rolled_back: The publishes that were undone, for those who want to know.
    """

    lake: Lake
    run_id: str
    settings: GateSettings
    project: str
    target_name: str
    tests: Callable[[], Sequence[TestFact]]
    known: Callable[[], Collection[str]]
    unfinished: LastRun | None = None
    manifest: Callable[[], Packed] | None = None
    stands: Callable[[str], Identifier | None] = lambda node_id: None
    width: int | None = None
    next_steps: bool = True
    rolled_back: list[LedgerPublish] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Operation(Arguments):
    """An operation on audit branches by hand."""

    @abstractmethod
    def operate(self, gate: Context) -> Iterable[str]:
        """Do it; returns the lines to print."""

    def open_branch(self, found: Sequence[OpenBranch], branch: str | None) -> OpenBranch:
        """The open branch of a name.

        Raises:
            ConfigError: There is none; the message names those that are open.
        """
        for one in found:
            if one.branch == branch:
                return one
        problem = "branch is missing" if branch is None else f"there is no open branch {branch!r}"
        open_ones = ", ".join(one.branch for one in found) or "none"
        raise ConfigError(f"{self.refused(problem)}\nOpen branches: {open_ones}")
