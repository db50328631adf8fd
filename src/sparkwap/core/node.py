"""The node of the Python model that is being built, besides the ``dbt`` object.

The ``dbt`` object has only the settings that the model's code names. The adapter stores the whole
node here while the model runs, so ``return landing.model(dbt, session)`` is a complete model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkwap.core.errors import SparkwapError


@dataclass(frozen=True)
class Node:
    """A Python model that is being built.

    Attributes:
        meta: the node's ``config.meta``.
        parents: unique ids of the nodes that it reads.
        run_id: dbt's invocation id.
        meta_of: returns the ``config.meta`` of a node by its unique id; empty if unknown.
        tell: adds a notice, one line, to the summary at the end of the run.
        published: returns SQL for a from clause: the published state of the node's own table, in a
            run with ``as_of`` at that time; None if there is none.
        replay: whether the run has ``as_of``, see `sparkwap.runs.time_travel`.
        settings: the settings of this command, as environment variables.
        target_folder: dbt's target folder; None if nothing is kept.
    """

    node_id: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    run_id: str = ""
    meta_of: Callable[[str], Mapping[str, Any]] = lambda _: {}
    tell: Callable[[str], None] = lambda _: None
    published: Callable[[], str | None] = lambda: None
    replay: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    project: Path = Path()
    target_folder: Path | None = None

    def parent_meta(self, name: str) -> Mapping[str, Any] | None:
        """Return the setting ``name`` in the meta of the first parent that has it."""
        found = (self.meta_of(parent).get(name) for parent in self.parents)
        return next((setting for setting in found if setting), None)


_CURRENT: ContextVar[Node] = ContextVar("sparkwap_node")


def current() -> Node:
    """Return the node that is being built in this thread."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise SparkwapError(
            "No Python model is being built. Nothing was read. Call this function in a model's "
            "`def model(dbt, session)`, and build the model: dbt build"
        ) from None


@contextmanager
def building(node: Node) -> Iterator[None]:
    """Set ``node`` as the current node while the block runs."""
    token = _CURRENT.set(node)
    try:
        yield
    finally:
        _CURRENT.reset(token)
