"""Compares the merged code with the code that was audited on a branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkwap.ledger.code import BUILT, name_of, same
from sparkwap.pr.standing import BranchState

Digests = Mapping[str, str]
"""Unique id -> digest, from `sparkwap.ledger.code.digests`."""

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Differing:
    """Ids of nodes and tests whose merged code was not audited.

    Attributes:
        changed: Built or run on the branch with other code, or with code that is not stored.
        absent: On the branch, but no longer in the project.
        unaudited: Not on the branch, and different both from the audited code and from the lake.
    """

    changed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unaudited: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.absent or self.unaudited)

    def lines(self) -> list[str]:
        """Return a line for each group."""
        groups = {
            "audited with other code": self.changed,
            "audited, but no longer in the project": self.absent,
            "changed, but not audited": self.unaudited,
        }
        return [f"  {title}: {listed(ids)}" for title, ids in groups.items() if ids]


def differing(
    standing: BranchState,
    now: Digests,
    audited: Mapping[str, Digests],
    lake: Digests,
) -> Differing:
    """Return the nodes and tests of the merged project whose code was not audited.

    Args:
        now: Digests of the merged project.
        audited: Hash -> digests of the manifests of the branch's runs.
        lake: Digests of the last publish; empty if there is none.
    """
    on_branch = {str(row["node_id"]) for row in standing.nodes}

    def code(run_id: str) -> Digests:
        return audited.get(standing.manifests.get(run_id) or "", {})

    ran = {
        **{node: code(maker).get(node) for node, maker in standing.makers.items()},
        **{str(r["test_id"]): code(str(r["run_id"])).get(r["test_id"]) for r in standing.tests},
    }
    last = max(
        ((row["built_at"], standing.makers[row["node_id"]]) for row in standing.nodes),
        default=None,
    )
    unchanged = code(last[1]) if last else {}
    return Differing(
        # A test that ran and is no longer in the project is no difference.
        tuple(
            sorted(key for key, digest in ran.items() if key in now and not same(now[key], digest))
        ),
        tuple(sorted(on_branch - now.keys())),
        tuple(
            sorted(
                key
                for key, digest in now.items()
                if key.split(".")[0] in BUILT
                and key not in on_branch
                and not same(digest, unchanged.get(key))
                and not same(digest, lake.get(key))
            )
        ),
    )


def listed(ids: Sequence[str]) -> str:
    """Return the names of nodes and tests as one text."""
    more = len(ids) - _SHOWN
    return ", ".join(map(name_of, ids[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
