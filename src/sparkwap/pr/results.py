"""What the commands of ``sparkwap pr`` return for programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparkwap.pr.standing import BranchState


@dataclass(frozen=True, slots=True)
class PullRequestTable:
    """A table of the branch: ``schema.table``, its verdict, and the reason."""

    table: str
    verdict: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class PullRequestTest:
    """A test of the branch: dbt's id, its status, and the number of failing rows."""

    test_id: str
    status: str
    failures: int | None


@dataclass(frozen=True, slots=True)
class PullRequestState:
    """The state of the branch of a pull request.

    Attributes:
        state: The state in one word; see `sparkwap.pr.standing.Outcome`.
        published_by: The publish of the branch, also an undone one; None if it was not published.
    """

    branch: str
    state: str
    published_by: str | None
    tables: tuple[PullRequestTable, ...]
    tests: tuple[PullRequestTest, ...]


@dataclass(frozen=True, slots=True)
class CommentResult:
    """A comment: the state that it describes, its Markdown, and its file, if any."""

    pull_request: PullRequestState
    markdown: str
    file: Path | None


@dataclass(frozen=True, slots=True)
class StateResult:
    """The folder for dbt's ``--state``, and the publish whose code it has."""

    folder: Path
    publish_id: str


def pull_request_state(found: BranchState) -> PullRequestState:
    """Return the state of a branch for programs."""
    return PullRequestState(
        found.branch,
        found.outcome,
        found.published_by,
        tuple(
            PullRequestTable(f"{row['schema']}.{row['name']}", row["verdict"], row["reason"])
            for row in found.nodes
        ),
        tuple(
            PullRequestTest(row["test_id"], row["status"], row["failures"]) for row in found.tests
        ),
    )
