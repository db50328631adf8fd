"""What a Python model may know of the node that it is, besides the object that dbt hands to it.

dbt tells a Python model only those settings that its code names. The adapter puts the whole node
here while the model runs, so that ``return landing.model(dbt, session)`` is all a model has to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkwap.core.errors import SparkwapError


def _no_meta(_: str) -> Mapping[str, Any]:
    return {}


def _nothing() -> None:
    return None


def _tell_nobody(_: str) -> None:
    return None


@dataclass(frozen=True)
class Node:
    """A Python model that is being built.

    Attributes:
        node_id: dbt's unique id.
        meta: its ``config.meta``.
        parents: unique ids of the nodes that it reads.
        run_id: dbt's invocation id.
        meta_of: gives the ``config.meta`` of any node by its unique id; empty if unknown.
        published: gives SQL for a from clause, the published state of the node's own table: in a
            replay as of then; None where there is none.
        replay: whether the run is a replay, see `sparkwap.runs.time_travel`.
        project: the project's folder.
        target_folder: dbt's target folder; None where nothing is kept.
        tell: takes a notice, one line, for the summary at the end of the run.
        settings: environment variables that are settings of this call.
    """

    node_id: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    run_id: str = ""
    meta_of: Callable[[str], Mapping[str, Any]] = _no_meta
    tell: Callable[[str], None] = _tell_nobody
    published: Callable[[], str | None] = _nothing
    replay: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    project: Path = Path()
    target_folder: Path | None = None

    def parent_meta(self, name: str) -> Mapping[str, Any] | None:
        """The setting ``name`` in the meta of the first node it reads that has one."""
        found = (self.meta_of(parent).get(name) for parent in self.parents)
        return next((one for one in found if one), None)


_CURRENT: ContextVar[Node] = ContextVar("sparkwap_node")


def current() -> Node:
    """The node that is being built in this thread.

    Raises:
        SparkwapError: there is none.
    """
    try:
        return _CURRENT.get()
    except LookupError:
        raise SparkwapError(
            "No Python model is being built here. Nothing was read. Call this from a model's "
            "`def model(dbt, session)`, and build it by dbt: dbt build"
        ) from None


@contextmanager
def building(node: Node) -> Iterator[None]:
    """Make ``node`` the current one while the block runs."""
    token = _CURRENT.set(node)
    try:
        yield
    finally:
        _CURRENT.reset(token)
