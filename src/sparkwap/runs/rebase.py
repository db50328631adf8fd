"""Decides on the rebase of a run after main has moved: which nodes, when, or why not.

Pure. The input is the kinds of differences for which the catalog refused the publish.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkwap.catalog.model import Difference
from sparkwap.core.text import counted, some_of
from sparkwap.gate.facts import BuiltNode

FOLLOWED: frozenset[Difference] = frozenset({"main", "table", "definition", "standing", "read"})
"""The differences that a build on the present main resolves. All others mean that the audit branch
has changed since its audits, and a person has to look at it."""

_SHORTEST_LIMIT_SECONDS = 3600.0
_TIMES_THE_RUN = 3


@dataclass(frozen=True, slots=True)
class Rebase:
    """Build these again.

    Attributes:
        moved: Ids of the nodes whose publish was refused.
    """

    nodes: tuple[str, ...]
    moved: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not build again, for this reason; empty if the refusal needs no explanation."""

    reason: str = ""


def decide(
    refusals: Mapping[str, Collection[Difference]],
    nodes: Sequence[BuiltNode],
    buildable: Collection[str],
    *,
    tried: int,
    tries: int,
) -> Rebase | GiveUp:
    """Decide which nodes are built again after a refused publish.

    Args:
        refusals: Node id -> the differences, of the nodes whose publish was refused.
        buildable: Ids of the nodes that this invocation can build in the same way: with the same
            vars and flags.

    Returns:
        The refused nodes and all nodes downstream of them, or the reason for no rebase.
    """
    if not refusals:
        return GiveUp()
    names = {node.node_id: node.name for node in nodes}
    if not refusals.keys() <= names.keys():
        return GiveUp("the catalog refused tables that this run does not know")
    if any("alike" in kinds for kinds in refusals.values()):
        return GiveUp()
    touched = [
        names[n] for n, kinds in refusals.items() if not kinds or not FOLLOWED.issuperset(kinds)
    ]
    if touched:
        return GiveUp(f"the audited state of {some_of(touched)} is no longer on the audit branch")
    if tries == 0:
        return GiveUp("rebuilds are off (wap_rebuilds: 0)")
    if tried >= tries:
        return GiveUp(f"it was built again {counted(tried, 'time')}, and main moved again")
    again = downstream(refusals, {node.node_id: node.parents for node in nodes})
    # Tests build the tables of stored failures, and run with their nodes.
    chosen = [n for n in nodes if n.node_id in again and n.kind != "failures"]
    others = [node.name for node in chosen if node.node_id not in buildable]
    if others:
        return GiveUp(
            f"{some_of(others)} was built by an earlier run on the branch, whose vars and flags "
            "are unknown"
        )
    if not chosen:
        return GiveUp("only stored failures of tests were refused")
    return Rebase(tuple(n.node_id for n in chosen), tuple(n for n in names if n in refusals))


def downstream(start: Iterable[str], parents: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the nodes of ``start`` and all their direct and indirect readers."""
    readers: dict[str, list[str]] = {}
    for node_id, read in parents.items():
        for parent in read:
            readers.setdefault(parent, []).append(node_id)
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        node_id = waiting.pop()
        if node_id not in found:
            found.add(node_id)
            waiting += readers.get(node_id, [])
    return found


def moved_by_others(
    summaries: Iterable[Mapping[str, str]], run_id: str, *, wrote_to_branch: bool
) -> bool:
    """Return whether another writer, and certainly not the run, moved ``main`` during a build.

    If the run itself moved it, the catalog does not keep branches apart, and a rebase would write
    to ``main`` again.

    Args:
        summaries: The summaries of the new snapshots on ``main``.
        wrote_to_branch: Whether the run has written the head of its audit branch, which shows
            that its writes go there.
    """
    writers = {summary.get("wap_run") for summary in summaries}
    if run_id in writers:
        return False
    return wrote_to_branch or (bool(writers) and None not in writers)


def limit_seconds(given: float | None, taken: float) -> float | None:
    """Return the time limit of a rebase's build in seconds; None for no limit.

    The build contains no more nodes than the run, so a build that takes much longer hangs. Without
    a limit, the run would wait for it for ever.

    Args:
        given: The setting, in seconds; 0 for no limit, None for a limit derived from the run.
        taken: The seconds from the start of the run to its refused publish.
    """
    if given is not None:
        return given or None
    return max(_SHORTEST_LIMIT_SECONDS, _TIMES_THE_RUN * taken)
