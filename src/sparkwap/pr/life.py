"""A pull request's life in the lake: audited, published, closed.

What changes something is a command of dbt's, printed before it is run, so that people can run it
themselves; the lake's ledger is read without dbt and Spark.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.core import next_command
from sparkwap.core.dbt_cli import DbtCall
from sparkwap.core.errors import SparkwapError
from sparkwap.gate.settings import of_one_call
from sparkwap.ledger.manifests import unpack
from sparkwap.pr import base as bases
from sparkwap.pr import comment
from sparkwap.pr.base import Base
from sparkwap.pr.code import digests
from sparkwap.pr.merging import Differing, differing
from sparkwap.pr.standing import BranchState, standing

if TYPE_CHECKING:
    from sparkwap.ledger.manifests import Document
    from sparkwap.publish.lake import Lake

EXIT_ERROR = 1
FOLDER = "pr"
"""The folder in dbt's target folder with the states that branches were compared with."""


class PullRequest:
    """A branch of the lake, and the project in the form that it has now.

    Args:
        call: How dbt is called.
        branch: The branch.
        wanted: The publish that the project is compared with; None for the newest.
        select: Node selection that narrows what is built.
        more: More arguments for ``dbt build``.
        tell: Takes lines of progress.
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
        own = ("wap_publish", "wap_branch")
        self._call = replace(
            call,
            variables={k: v for k, v in call.variables.items() if k not in own},
            environment={
                **call.environment,
                # A publish without a rebuild needs that what was read has not moved either.
                "SPARKWAP_READS": "strict",
                "SPARKWAP_PUBLISH": "never",
                "SPARKWAP_BRANCH": branch,
                # The next steps of a pull request are told at its end, once.
                next_command.VARIABLE: next_command.OFF,
            },
        )
        self._wanted = wanted
        self._select = tuple(select)
        self._more = tuple(more)
        self._tell = tell
        self._lake: Lake | None = None
        self._manifest: Document | None = None

    # -- what there is ---------------------------------------------------------------------------

    @property
    def lake(self) -> Lake | None:
        """The lake; None where nothing was ever built."""
        if self._lake is None:
            # Here, as it brings PyIceberg along, which `--help` does not need.
            from sparkwap.publish.lake import Lake

            found = self._call.lake()
            if found.exists:
                self._lake = Lake(found.name, found.properties)
        return self._lake

    @property
    def manifest(self) -> Document:
        """The project as it is now."""
        if self._manifest is None:
            self._manifest = self._call.manifest(f"sparkwap pr audit --branch {self.branch}")
        return self._manifest

    def base(self) -> Base | None:
        """What the project is compared with; None where nothing was published yet."""
        return bases.find(self.lake.ledger, self.manifest, self._wanted) if self.lake else None

    @property
    def is_open(self) -> bool:
        """Whether anything is on the branch."""
        lake = self.lake
        return lake is not None and any(b.branch == self.branch for b in lake.branches.all())

    def standing(self) -> BranchState:
        """How the branch stands now."""
        if self.lake is None:
            return BranchState(self.branch, "nothing")
        ledger = self.lake.ledger
        return standing(
            self.branch,
            is_open=self.is_open,
            nodes=ledger.branch_rows("nodes", self.branch),
            tests=ledger.branch_rows("tests", self.branch),
            runs=ledger.runs(self.branch),
        )

    # -- commands --------------------------------------------------------------------------------

    def audit(self, *, force: bool) -> int:
        """Build on the branch what differs from the lake, and test it; returns the exit code.

        Each audit begins the branch anew, from main as it is: what an earlier push changed and
        this one does not is gone from it, and nothing is built on a main that is no more.

        Args:
            force: Also take the branch away from a run that is at work on it.
        """
        code = self._build(force=force, publish=False)
        found = self.standing()
        if found.outcome in ("nothing", "discarded"):
            self._tell(
                f"dbt ended with code {code}, and nothing was built on {self.branch}"
                if code
                else "nothing that is built differs from what is published"
            )
            return code
        self._tell_standing(found)
        return code or (0 if found.outcome == "ready" else EXIT_ERROR)

    def publish(self) -> int:
        """Publish what was audited, or build it again where main has moved; the exit code.

        Raises:
            SparkwapError: The branch is not ready, or its code is not what is merged.
        """
        found = self.standing()
        if found.outcome not in ("ready", "moved", "published", "nothing", "discarded"):
            raise SparkwapError(
                f"{self.branch} {comment.title(found.outcome)}, so nothing was published; readers "
                f"of main see no change.\n{_ways(found)}"
            )
        self._require_audited(found)
        if found.outcome not in ("ready", "moved"):
            self._tell(f"main has all that {self.branch} changes; nothing was to be published")
            return 0
        if found.outcome == "ready":
            code = self._publish_candidates()
            if not code:
                return self._published()
            found = self.standing()
            if found.outcome != "moved":
                return code
        self._tell("main moved since the audit: building and auditing it again on main as it is")
        code = self._build(force=False, publish=True)
        if code or self.standing().outcome in ("rejected", "held", "moved", "unfinished"):
            self._tell_standing(self.standing())
            return code or EXIT_ERROR
        return self._published()

    def close(self, *, force: bool) -> int:
        """Discard the branch, its clones and its side schemas; does nothing if there are none."""
        if not self.is_open:
            self._tell(f"nothing is on {self.branch}: there is nothing to close")
            return 0
        return self._discard(force=force)

    def write_state(self, output: Path) -> int:
        """Write the folder that dbt compares with.

        Raises:
            SparkwapError: Nothing was published yet.
        """
        found = self.base()
        if found is None:
            raise SparkwapError(
                "No publish of this project is in the lake, so there is no state to compare with "
                "and none was written. Build all: dbt build"
            )
        bases.write(found, output)
        self._tell(f"{output}/{bases.MANIFEST} is the code of {found}")
        return 0

    # -- parts -----------------------------------------------------------------------------------

    def _build(self, *, force: bool, publish: bool) -> int:
        found = self.base()
        if self.is_open:
            code = self._discard(force=force)
            if code:
                if not force:
                    again = f"sparkwap pr audit --branch {self.branch} --force"
                    self._tell(f"to let the newest push win: {again}")
                return code
        arguments = ["build", *self._selection(found), *self._more]
        return self._dbt(*arguments, **({"SPARKWAP_PUBLISH": "run"} if publish else {}))

    def _selection(self, found: Base | None) -> list[str]:
        if found is None:
            self._tell("nothing of this project is published yet: building all of it")
            return ["--select", *self._select] if self._select else []
        state = self._call.project_dir / self._call.target_path / FOLDER / self.branch
        bases.write(found, state)
        self._tell(f"comparing with the code of {found}")
        return [
            "--select",
            *selection(self._select),
            "--state",
            str(state),
            # All tests that read what is built, whatever the project's default is.
            "--indirect-selection",
            "eager",
        ]

    def _publish_candidates(self) -> int:
        return self._operation("wap_publish")

    def _published(self) -> int:
        if self.is_open:
            # A table of stored failures, say; nobody will ask for it any more.
            self._discard(force=False)
        self._tell(f"{self.branch} is published, and closed")
        return 0

    def _discard(self, *, force: bool) -> int:
        return self._operation("wap_discard", **({"force": True} if force else {}))

    def _operation(self, name: str, **arguments: Any) -> int:
        given = json.dumps({"branch": self.branch, **arguments})
        return self._dbt("run-operation", name, "--args", given)

    def _dbt(self, *command: str, **environment: str) -> int:
        settings = of_one_call({**self._call.environment, **environment})
        given = "".join(f"{key}={value} " for key, value in settings.items())
        self._tell(f"$ {given}dbt {shlex.join(self._call.arguments(*command))}")
        return self._call.run(*command, **environment)

    def _require_audited(self, found: BranchState) -> None:
        lake = self.lake
        if lake is None:
            raise SparkwapError(
                "There is no lake yet, so nothing was audited and nothing was published. Build "
                "all: dbt build"
            )
        runs = {*(row["run_id"] for row in found.tests), *found.makers.values()}
        hashes = {found.manifests.get(run_id) for run_id in runs}
        audited = {}
        for one in sorted(hashes - {None}, key=str):
            kept = lake.ledger.manifest(str(one))
            if kept is not None:
                audited[str(one)] = digests(unpack(kept[1]))
        published = self.base()
        differs = differing(
            found,
            digests(self.manifest),
            audited,
            digests(published.manifest) if published else {},
        )
        if differs:
            raise SparkwapError(_not_audited(self.branch, differs))

    def _tell_standing(self, found: BranchState) -> None:
        self._tell(f"{self.branch} {comment.title(found.outcome)}")
        ways = _ways(found)
        if ways:
            self._tell(f"Next:\n{ways}")


def selection(select: Sequence[str]) -> list[str]:
    """dbt's node selection of what differs from the state, with all that is downstream.

    Args:
        select: What to narrow it to, as for ``--select``; nothing for all.
    """
    changed = "state:modified+"
    return [f"{one},{changed}" for text in select for one in text.split()] or [changed]


def diff_section(branch: str, call: DbtCall, limit: int) -> str:
    """What a branch changes in the data, as Markdown.

    The only place that knows `sparkwap.diff`.

    Args:
        branch: The branch.
        call: How dbt is called.
        limit: Characters at most.

    Raises:
        SparkwapError: Nothing could be compared.
    """
    # Here, as it brings PyArrow along, which no other command needs.
    from sparkwap import diff

    # Beside what dbt has written of the audit.
    given = replace(call, target_path=call.target_path / FOLDER)
    return diff.comment(
        branch, project_dir=call.project_dir, limit=limit, dbt_arguments=given.arguments()
    )


def _not_audited(branch: str, differs: Differing) -> str:
    told = "\n".join(differs.lines())
    return (
        f"What is merged is not what was audited on {branch}, so nothing was published; readers of "
        f"main see no change.\n{told}\n"
        f"  audit what is merged   sparkwap pr audit --branch {branch}\n"
        f"  and publish that       sparkwap pr publish --branch {branch}"
    )


def _ways(found: BranchState) -> str:
    ways = comment.ways_on(found)
    width = max((len(purpose) for purpose, _ in ways), default=0)
    return "\n".join(f"  {purpose:<{width}}   {command}" for purpose, command in ways)
