"""The base class of operations, and the context in which they run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import Identifier, OpenBranch
from sparkwap.core.arguments import Arguments
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.errors import ConfigError
from sparkwap.gate.settings import GateSettings

if TYPE_CHECKING:
    from sparkwap.ledger.manifests import Packed
    from sparkwap.ledger.records import LedgerPublish
    from sparkwap.maintenance.rules import Rules
    from sparkwap.publish.lake import Lake
    from sparkwap.runs.state import LastRun
    from sparkwap.runs.types import TestFact


@dataclass(frozen=True)
class Context:
    """The lake and the project of an operation.

    Attributes:
        tests: Returns all tests of the project, which a publish expects to have passed.
        known: Returns the ids of the project's nodes. ``tests`` has no tests of other nodes.
        unfinished: The last run of this working copy, if it has not ended.
        manifest: Returns the project's code, which a publish stores in the ledger.
        table_of_node: Returns schema and name of the table of a node; None if there is none.
        code_of_node: Returns a digest of the text of a node; None if there is no such node.
        width: The maximum width of a line of a summary; None for no limit.
        next_steps: Whether a summary lists the next commands.
        rolled_back: The publishes that a rollback has undone; filled by the rollback.
        execute: Sends a statement to Spark, and returns its rows.
        rules: Returns each table of the project -> how it is maintained, by its config.
        found: The end of the operation for programs, if it has more than its lines; filled by it.
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
    table_of_node: Callable[[str], Identifier | None] = lambda node_id: None
    code_of_node: Callable[[str], str | None] = lambda node_id: None
    width: int | None = None
    next_steps: bool = True
    rolled_back: list[LedgerPublish] = field(default_factory=list)
    execute: Callable[[str], Sequence[Sequence[Any]]] | None = None
    rules: Callable[[], Mapping[Identifier, Rules]] = dict
    found: list[CommandEnd] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Operation(Arguments):
    """An operation on audit branches by hand."""

    @abstractmethod
    def operate(self, gate: Context) -> Iterable[str]:
        """Run the operation; returns the lines to print."""

    def open_branch(self, found: Sequence[OpenBranch], branch: str | None) -> OpenBranch:
        """Return the open branch with this name.

        Raises:
            ConfigError: There is no such branch; the message lists the open branches.
        """
        for one in found:
            if one.branch == branch:
                return one
        problem = "branch is missing" if branch is None else f"there is no open branch {branch!r}"
        open_ones = ", ".join(one.branch for one in found) or "none"
        raise ConfigError(f"{self.refused(problem)}\nOpen branches: {open_ones}")
