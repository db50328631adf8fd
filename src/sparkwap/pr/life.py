"""Audits, publishes and closes a pull request in the lake.

Each change is a dbt command, which is printed first, so that people can run it themselves. The
ledger is read without dbt and Spark.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.core import next_command
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.command_end import Outcome as CommandOutcome
from sparkwap.core.dbt_cli import DbtCall, DbtEnd, as_yaml
from sparkwap.core.errors import SparkwapError
from sparkwap.gate.settings import of_one_call
from sparkwap.ledger.code import digests
from sparkwap.ledger.manifests import unpack
from sparkwap.ledger.records import candidates_digest
from sparkwap.pr import base as bases
from sparkwap.pr import comment
from sparkwap.pr.base import Base
from sparkwap.pr.merging import Differing, differing, listed
from sparkwap.pr.results import StateResult, pull_request_state
from sparkwap.pr.standing import BranchState, standing
from sparkwap.runs import replay_moment

if TYPE_CHECKING:
    from sparkwap.ledger.manifests import Document
    from sparkwap.publish.lake import Lake

FOLDER = "pr"
"""The folder, in dbt's target folder, of the states that branches are compared with."""
AUDIT = "audit.txt"
"""The file in the folder of a branch with the outcome of an audit that has built nothing."""

_UNBUILT = ("nothing", "published", "undone", "discarded")
"""The states in which the branch has neither a table nor a failed node."""

_OUTCOMES: Mapping[str, CommandOutcome] = {
    "rejected": "rejected",
    "held": "held",
    "moved": "held",
    "published": "published",
    "unfinished": "failed",
    "gone": "failed",
}


class NotPublished(SparkwapError):
    """A branch may not be published; the message has the next commands."""

    def __init__(self, message: str, outcome: CommandOutcome = "rejected") -> None:
        super().__init__(message)
        self.outcome = outcome


class PullRequest:
    """A branch of the lake, and the project as it is now.

    Args:
        wanted: The publish to compare the project with; None for the newest.
        select: Node selection; only its nodes are built, if they differ.
    """

    def __init__(
        self,
        call: DbtCall,
        branch: str,
        *,
        wanted: str | None = None,
        select: Sequence[str] = (),
        more: Sequence[str] = (),
        tell: Callable[[str], None],
    ) -> None:
        self.branch = branch
        replay_moment.refuse(call.variables, "sparkwap pr")
        own = ("wap_publish", "wap_branch")
        self._call = replace(
            call,
            variables={k: v for k, v in call.variables.items() if k not in own},
            environment={
                **call.environment,
                # A publish without a rebuild also needs that the tables it read have not moved.
                "SPARKWAP_READS": "strict",
                "SPARKWAP_PUBLISH": "never",
                "SPARKWAP_BRANCH": branch,
                # This command prints the next steps once, at its end.
                next_command.VARIABLE: next_command.OFF,
            },
        )
        self._wanted = wanted
        self._select = tuple(select)
        self._more = tuple(more)
        self._tell = tell
        self._lake: Lake | None = None

    @property
    def lake(self) -> Lake | None:
        """The lake; None before the first build."""
        if self._lake is None:
            # Imported here because PyIceberg is slow to import, and `--help` does not need it.
            from sparkwap.publish.lake import Lake

            found = self._call.lake()
            if found.exists:
                self._lake = Lake(found.name, found.properties)
        return self._lake

    @cached_property
    def manifest(self) -> Document:
        """The project as it is now."""
        return self._call.manifest(comment.command("audit", self.branch))

    def base(self) -> Base | None:
        """Return the publish to compare with; None if there is none yet."""
        ledger = self.lake.ledger if self.lake else None
        found = bases.find(ledger, self.manifest, self._wanted) if ledger else None
        if ledger is None or found is None or not found.outdated:
            return found
        # Others merged the outdated nodes that this branch has never built.
        own = found.outdated & ledger.built_on(self.branch)
        return replace(found, modified=found.modified | own, outdated=found.outdated - own)

    @property
    def is_open(self) -> bool:
        """Whether the branch has a table or view."""
        lake = self.lake
        return lake is not None and any(b.branch == self.branch for b in lake.branches.all())

    @property
    def _is_used(self) -> bool:
        """Whether the branch has a table or view, or the ledger a failed node of it."""
        return self.is_open or self.standing().outcome not in _UNBUILT

    def standing(self) -> BranchState:
        """Return the present state of the branch."""
        if self.lake is None:
            return BranchState(self.branch, "nothing")
        ledger = self.lake.ledger
        return standing(
            self.branch,
            is_open=self.is_open,
            nodes=ledger.branch_rows("nodes", self.branch),
            tests=ledger.branch_rows("tests", self.branch),
            runs=ledger.runs(self.branch),
            undone={p.publish_id for p in ledger.publishes() if p.left != p.entries},
        )

    def reported(self) -> BranchState:
        """Return the state of the branch for a reviewer of the present code."""
        found = self._after_audit(self.standing())
        if found.outcome not in ("ready", "moved"):
            return found
        try:
            lines = self._differing(found).lines()
        except SparkwapError as error:
            lines = [str(error)]
        for line in lines:
            self._tell(line.strip())
        return replace(found, outcome="stale") if lines else found

    def _after_audit(self, found: BranchState) -> BranchState:
        """Return the state with the outcome of an audit that has built nothing."""
        file = self._folder / AUDIT
        outcome = file.read_text() if file.exists() else ""
        if outcome == "nothing" and found.outcome == "discarded":
            return replace(found, outcome="nothing")
        # The ledger has no row of such an audit, but perhaps those of an earlier push.
        unfinished = replace(found, outcome="unfinished", nodes=(), tests=())
        return unfinished if outcome == "unfinished" else found

    @property
    def _folder(self) -> Path:
        return self._call.project_dir / self._call.target_path / FOLDER / self.branch

    # -- commands --------------------------------------------------------------------------------

    def audit(self, *, force: bool) -> CommandEnd:
        """Build and test, on the branch, the nodes that differ from the lake.

        Each audit discards the branch first, so that the branch starts from the present main and
        has no changes of an earlier push.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / AUDIT).write_text("unfinished")
        before = self.standing()
        end = self._build(force=force, publish=False)
        found = self.standing()
        if found.outcome in _UNBUILT or (end.code and found == before):
            if not end.code:
                (self._folder / AUDIT).write_text("nothing")
            self._tell(
                f"dbt ended with code {end.code}, and nothing was built on {self.branch}"
                if end.code
                else "no model, seed or snapshot differs from the newest published code"
            )
        else:
            (self._folder / AUDIT).unlink(missing_ok=True)
            self._tell_standing(found)
        result = pull_request_state(self._after_audit(found))
        return replace(self._end(end, found), result=result)

    def publish(self) -> CommandEnd:
        """Publish the audited branch; build and audit it again first if main has moved.

        Raises:
            SparkwapError: The branch is not ready, or its code is not the merged code.
        """
        found = self.standing()
        if found.outcome not in ("ready", "moved", "published", "nothing", "discarded"):
            raise NotPublished(
                f"{self.branch} {comment.TITLES[found.outcome]}, so nothing was published; readers "
                f"of main see no change.\n{_next(found)}",
                _OUTCOMES.get(found.outcome, "held"),
            )
        differs = self._differing(found)
        if differs:
            raise NotPublished(_not_audited(self.branch, differs))
        if found.outcome not in ("ready", "moved"):
            self._tell(f"main has all changes of {self.branch}; there is nothing to publish")
            self._tell_outdated(self.base())
            return self._end(None, found)
        if found.outcome == "ready":
            end = self._operation("wap_publish", candidates=candidates_digest(found.nodes))
            if not end.code:
                return self._published()
            found = self.standing()
            if found.outcome != "moved":
                return self._end(end, found)
        self._tell("main moved since the audit: building and auditing it again on main as it is")
        end = self._build(force=False, publish=True)
        found = self.standing()
        if "published" in (end.outcome, found.outcome):
            return self._published()
        if not end.code and found.outcome in ("nothing", "discarded"):
            raise NotPublished(
                f"dbt has selected nothing to build on {self.branch}, so nothing was published; "
                "readers of main see no change. The audited tables are discarded.\n"
                f"  audit it again    {comment.command('audit', self.branch)}\n"
                f"  then publish it   {comment.command('publish', self.branch)}",
                "failed",
            )
        self._tell_standing(found)
        return self._end(end, found)

    def close(self, *, force: bool) -> CommandEnd:
        """Discard the branch, its clones and its side schemas."""
        (self._folder / AUDIT).unlink(missing_ok=True)
        if not self._is_used:
            self._tell(f"{self.branch} is empty; there is nothing to close")
            return CommandEnd(result=pull_request_state(self.standing()))
        end = self._discard(force=force)
        return CommandEnd(end.outcome, pull_request_state(self.standing()), end.message)

    def _end(self, end: DbtEnd | None, found: BranchState) -> CommandEnd:
        """Return the end of a command: the state of the branch, or why dbt failed."""
        outcome = _OUTCOMES.get(found.outcome, "done")
        if end is not None and end.code and outcome in ("done", "published"):
            outcome = end.outcome
        return CommandEnd(outcome, pull_request_state(found), end.message if end else None)

    def write_state(self, output: Path) -> CommandEnd:
        """Write the folder that dbt compares with."""
        found = self.base()
        if found is None:
            raise SparkwapError(
                "The lake has no publish of this project, so there is no state to compare with. "
                "Nothing was written. Build all: dbt build"
            )
        bases.write(found, output)
        self._tell(f"wrote the code of {found} to {output}/{bases.MANIFEST}")
        return CommandEnd(result=StateResult(output, found.publish.publish_id))

    def _build(self, *, force: bool, publish: bool) -> DbtEnd:
        found = self.base()
        # The newest publish may have the merged code, without the tables that wait on the branch.
        again = [str(row["node_id"]) for row in self.standing().nodes] if publish else []
        if self._is_used:
            end = self._discard(force=force)
            if end.code:
                if not force:
                    audit = comment.command("audit", self.branch)
                    self._tell(f"to take over the branch: {audit} --force")
                return end
        arguments = ["build", *self._selection(found, again), *self._more]
        return self._dbt(*arguments, **({"SPARKWAP_PUBLISH": "run"} if publish else {}))

    def _selection(self, found: Base | None, again: Sequence[str]) -> list[str]:
        if found is None:
            self._tell("nothing of this project is published yet; building all nodes")
            return ["--select", *self._select] if self._select else []
        bases.write(found, self._folder, again)
        self._tell(f"comparing with the code of {found}")
        self._tell_outdated(found)
        return [
            "--select",
            *selection(self._select),
            "--state",
            str(self._folder),
            # All tests that read a built node must run, whatever the project's default is.
            "--indirect-selection",
            "eager",
        ]

    def _published(self) -> CommandEnd:
        (self._folder / AUDIT).unlink(missing_ok=True)
        if self.is_open:
            # Tables of stored failures may remain, which are no longer needed.
            self._discard(force=False)
        closed = "could not be closed" if self.is_open else "closed"
        self._tell(f"{self.branch} is published, and {closed}")
        return CommandEnd("published", pull_request_state(self.standing()))

    def _discard(self, *, force: bool) -> DbtEnd:
        return self._operation("wap_discard", **({"force": True} if force else {}))

    def _operation(self, name: str, **arguments: Any) -> DbtEnd:
        given = as_yaml({"branch": self.branch, **arguments})
        return self._dbt("run-operation", name, "--args", given)

    def _dbt(self, *command: str, **environment: str) -> DbtEnd:
        settings = of_one_call({**self._call.environment, **environment})
        given = "".join(f"{key}={value} " for key, value in settings.items())
        self._tell(f"$ {given}dbt {shlex.join(self._call.arguments(*command))}")
        return self._call.run(*command, **environment)

    def _differing(self, found: BranchState) -> Differing:
        lake = self.lake
        if lake is None:
            raise SparkwapError(
                "There is no lake yet, so there is no audit. Nothing was published. The first "
                "build creates the lake: dbt build"
            )
        runs = {*(row["run_id"] for row in found.tests), *found.makers.values()}
        hashes = {found.manifests.get(run_id) for run_id in runs}
        audited = {}
        for hashed in sorted(hashes - {None}, key=str):
            stored = lake.ledger.manifest(str(hashed))
            if stored is not None:
                audited[str(hashed)] = digests(unpack(stored[1]))
        published = self.base()
        live = published.code if published else {}
        return differing(found, digests(self.manifest), audited, live)

    def _tell_outdated(self, found: Base | None) -> None:
        if found and found.outdated:
            self._tell(
                f"merged earlier, and not published yet: {listed(sorted(found.outdated))}. This "
                "does not belong to this pull request; the next build of production publishes it"
            )

    def _tell_standing(self, found: BranchState) -> None:
        self._tell(f"{self.branch} {comment.TITLES[found.outcome]}")
        steps = _next(found)
        if steps:
            self._tell(f"Next:\n{steps}")


def selection(select: Sequence[str]) -> list[str]:
    """Return dbt's selection of what differs and all downstream, only of ``select`` if given."""
    changed = "state:modified+"
    return [f"{nodes},{changed}" for text in select for nodes in text.split()] or [changed]


def diff_section(branch: str, call: DbtCall, limit: int) -> str:
    """Return the data diff of a branch, as Markdown.

    Raises:
        SparkwapError: No table could be compared.
    """
    # Imported here because it imports PyArrow, which is slow.
    from sparkwap import diff

    # A folder of its own, so that dbt keeps the artifacts of the audit.
    given = replace(call, target_path=call.target_path / FOLDER)
    return diff.comment(
        branch, project_dir=call.project_dir, limit=limit, dbt_arguments=given.arguments()
    )


def _not_audited(branch: str, differs: Differing) -> str:
    lines = "\n".join(differs.lines())
    return (
        f"The merged code is not the code that was audited on {branch}, so nothing was published; "
        f"readers of main see no change.\n{lines}\n"
        f"  audit the merged code   {comment.command('audit', branch)}\n"
        f"  then publish it         {comment.command('publish', branch)}"
    )


def _next(found: BranchState) -> str:
    steps = comment.next_steps(found)
    width = max((len(purpose) for purpose, _ in steps), default=0)
    return "\n".join(f"  {purpose:<{width}}   {command}" for purpose, command in steps)
