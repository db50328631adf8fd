"""Whether what was audited on a branch is the code that is merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkwap.pr.code import BUILT, name_of
from sparkwap.pr.standing import BranchState

Digests = Mapping[str, str]
"""Unique id -> digest, as `sparkwap.pr.code.digests` gives them."""

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Differing:
    """Node and test ids whose code is not the audited one.

    Attributes:
        changed: Built or run on the branch with other code, or with code that was not kept.
        absent: On the branch, and no more in the project.
        unaudited: Not on the branch, and neither as they were when it was audited, nor as in the
            lake.
    """

    changed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unaudited: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.absent or self.unaudited)

    def lines(self) -> list[str]:
        """One line for each group, for people."""
        groups = {
            "audited with other code": self.changed,
            "audited, and not in the project any more": self.absent,
            "changed, and not audited": self.unaudited,
        }
        return [f"  {what}: {_listed(ids)}" for what, ids in groups.items() if ids]


def differing(
    standing: BranchState,
    now: Digests,
    audited: Mapping[str, Digests],
    lake: Digests,
) -> Differing:
    """What of the merged project is not what was audited.

    Args:
        standing: The branch.
        now: The project that is merged.
        audited: Hash -> digests of the manifests that the branch's runs had.
        lake: Digests of what was published last; empty where nothing was.
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
        # A test that is gone audited more than is asked for.
        tuple(sorted(key for key, digest in ran.items() if key in now and now[key] != digest)),
        tuple(sorted(on_branch - now.keys())),
        tuple(
            sorted(
                key
                for key, digest in now.items()
                if key.split(".")[0] in BUILT
                and key not in on_branch
                and digest not in (unchanged.get(key), lake.get(key))
            )
        ),
    )


def _listed(ids: Sequence[str]) -> str:
    more = len(ids) - _SHOWN
    return ", ".join(map(name_of, ids[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
