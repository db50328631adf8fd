"""When main moved away under a run: what of it is built again, how soon, or why not.

Pure. The catalog has refused the publish and said, by kinds, what differs; no words are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkwap.catalog.model import Difference
from sparkwap.gate.facts import BuiltNode

FOLLOWED: frozenset[Difference] = frozenset({"main", "table", "definition", "standing", "read"})
"""What a build on main as it is now mends. All else means that the audit branch is not as its
audits left it, and a person has to look at it."""

_LONGEST_WAIT_SECONDS = 300.0
_SHORTEST_LIMIT_SECONDS = 3600.0
_TIMES_THE_RUN = 3
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Rebase:
    """Build these again.

    Attributes:
        nodes: Ids of the nodes, in the order in which they were given.
        moved: Ids of those whose publish was refused.
    """

    nodes: tuple[str, ...]
    moved: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not build again, for this reason; empty where the refusal says all."""

    reason: str = ""


def decide(
    refusals: Mapping[str, Collection[Difference]],
    nodes: Sequence[BuiltNode],
    buildable: Collection[str],
    *,
    tried: int,
    tries: int,
) -> Rebase | GiveUp:
    """Decide what is built again after a refused publish.

    Args:
        refusals: Node id -> what differed, of the nodes whose publish was refused.
        nodes: All nodes on the audit branch, with their parents.
        buildable: Ids of the nodes that this invocation can build as they were built: with the
            same vars and flags.
        tried: How often this run has done so already.
        tries: How often it may.

    Returns:
        The refused nodes and all that is downstream of them, or why not.
    """
    if not refusals:
        return GiveUp()
    names = {node.node_id: node.name for node in nodes}
    if not refusals.keys() <= names.keys():
        return GiveUp("the catalog refused what this run does not know")
    if any("alike" in kinds for kinds in refusals.values()):
        return GiveUp()
    touched = [
        names[n] for n, kinds in refusals.items() if not kinds or not FOLLOWED.issuperset(kinds)
    ]
    if touched:
        return GiveUp(f"what was audited of {_listed(touched)} is no longer on the audit branch")
    if tries == 0:
        return GiveUp("rebuilds are off (wap_rebuilds: 0)")
    if tried >= tries:
        return GiveUp(
            f"it was built again {tried} time{'s' if tried != 1 else ''}, and moved again"
        )
    again = downstream(refusals, {node.node_id: node.parents for node in nodes})
    # Stored failures are built by their tests, which come with what they test.
    chosen = [n for n in nodes if n.node_id in again and n.kind != "failures"]
    others = [node.name for node in chosen if node.node_id not in buildable]
    if others:
        return GiveUp(
            f"{_listed(others)} was built by an earlier run on the branch, "
            "and with which vars and flags only that one knows"
        )
    return Rebase(tuple(n.node_id for n in chosen), tuple(n for n in names if n in refusals))


def downstream(start: Iterable[str], parents: Mapping[str, Iterable[str]]) -> set[str]:
    """The nodes of ``start`` and all that read them, directly or not.

    Args:
        start: Ids of nodes.
        parents: Ids of what each node reads, by its id.
    """
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
    """Whether it is certain that another writer moved ``main`` while a run was building.

    If it was the run itself, the catalog does not keep branches apart, and building again would
    write to ``main`` once more.

    Args:
        summaries: Those of the snapshots that are new on ``main``.
        run_id: The run.
        wrote_to_branch: The head of its audit branch is a snapshot of its own, so that is where
            its writes go.
    """
    writers = {summary.get("wap_run") for summary in summaries}
    if run_id in writers:
        return False
    return wrote_to_branch or (bool(writers) and None not in writers)


def wait_seconds(tried: int, first: float, draw: float) -> float:
    """How long to wait before the next try: twice as long each time, five minutes at most.

    Args:
        tried: Tries so far.
        first: Seconds before the first one.
        draw: From 0 up to 1, by chance: two runs that met once would meet again at equal pauses.
    """
    # The power is bounded too, as a float overflows.
    return min(first * 2.0 ** min(tried, 64) * (0.5 + draw), _LONGEST_WAIT_SECONDS)


def limit_seconds(given: float | None, taken: float) -> float | None:
    """How long a build that follows main may take; None for as long as it likes.

    It builds no more than the run has built, so what takes much longer hangs, or waits for what
    will not come; and the run, with all who wait for it, would wait too.

    Args:
        given: The setting, in seconds; 0 for no limit, None for a limit that follows from the run.
        taken: Seconds that the run itself has taken, from its start to its refused publish.
    """
    if given is not None:
        return given or None
    return max(_SHORTEST_LIMIT_SECONDS, _TIMES_THE_RUN * taken)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
