"""``sparkwap pr audit | publish | close | comment | state``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import add_dbt_options, call_of, say
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.core.names import BRANCH_RULE, FORMER_BRANCH, branch_problem, is_run_branch

if TYPE_CHECKING:
    # Not at run time: it imports the catalog, which is slow.
    from sparkwap.core.dbt_cli import Commands
    from sparkwap.pr.life import PullRequest


def register_pr(commands: Commands) -> None:
    """Add ``sparkwap pr audit|publish|close|comment|state``."""
    text = "audit a pull request on a branch of the lake, and publish it when it is merged"
    parser = commands.add_parser("pr", help=text, description=text)
    actions = parser.add_subparsers(title="actions", metavar="action", required=True)

    def action(
        name: str,
        text: str,
        handler: Callable[[argparse.Namespace], CommandEnd],
        branch: bool = True,
    ) -> argparse.ArgumentParser:
        parser = actions.add_parser(name, help=text, description=text)
        if branch:
            parser.add_argument("--branch", required=True, help="the branch, such as pr_123")
        add_dbt_options(parser)
        parser.set_defaults(handler=handler)
        return parser

    def force(parser: argparse.ArgumentParser) -> None:
        text = "take over the branch even if another run is using it, such as that of an older push"
        parser.add_argument("--force", action="store_true", help=text)

    def base(parser: argparse.ArgumentParser) -> None:
        text = "the publish or run to compare with (default: the newest of this project's tables)"
        parser.add_argument("--base", metavar="ID", help=text)

    def build(parser: argparse.ArgumentParser) -> None:
        base(parser)
        text = "build only these of the nodes that differ, as for dbt build"
        parser.add_argument("--select", nargs="+", default=[], metavar="NODES", help=text)
        text = "more arguments for dbt build, after --"
        parser.add_argument("dbt_arguments", nargs="*", metavar="...", help=text)

    text = "build and test, on the branch, the nodes that differ from the lake"
    audit = action("audit", text, lambda parsed: _of(parsed).audit(force=parsed.force))
    force(audit)
    build(audit)
    text = "publish the audited branch, when it is merged"
    build(action("publish", text, lambda parsed: _of(parsed).publish()))
    text = "discard the branch and everything that is only on it"
    force(action("close", text, lambda parsed: _of(parsed).close(force=parsed.force)))
    text = "print the result of the audit as Markdown for the pull request"
    comment = action("comment", text, _comment)
    comment.add_argument("--file", type=Path, metavar="FILE", help="write the comment to a file")
    comment.add_argument("--no-diff", action="store_true", help="leave out the data diff")
    text = "write the folder for dbt's --state: the code of the lake's newest publish"
    state = action("state", text, _state, branch=False)
    text = "the folder"
    state.add_argument("--dir", type=Path, required=True, metavar="DIR", help=text)
    base(state)


def _state(parsed: argparse.Namespace) -> CommandEnd:
    parsed.branch = "pr_0"  # dbt parses with this branch, and builds nothing
    return _of(parsed).write_state(parsed.dir)


def _comment(parsed: argparse.Namespace) -> CommandEnd:
    from sparkwap.pr import comment
    from sparkwap.pr.life import diff_section
    from sparkwap.pr.results import CommentResult, pull_request_state

    found = _of(parsed).reported()
    diff = ""
    if found.outcome in ("ready", "held", "rejected", "moved") and not parsed.no_diff:
        try:
            diff = diff_section(parsed.branch, call_of(parsed), comment.LIMIT // 2)
        except SparkwapError as error:
            # The reviewer needs the verdict, also without a diff.
            say(f"the comment has no data diff: {error}")
    text = comment.render(found, diff)
    if parsed.file is None:
        print(text, end="")
    else:
        parsed.file.parent.mkdir(parents=True, exist_ok=True)
        parsed.file.write_text(text, encoding="utf-8")
        say(f"wrote the comment to {parsed.file}")
    return CommandEnd(result=CommentResult(pull_request_state(found), text, parsed.file))


def _of(parsed: argparse.Namespace) -> PullRequest:
    problem = branch_problem(parsed.branch)
    if is_run_branch(parsed.branch) or parsed.branch == FORMER_BRANCH:
        problem = "names of this form are those of sparkwap's own branches"
    if problem is not None:
        raise ConfigError(
            f"{parsed.branch!r} cannot be the branch of a pull request: {problem}. Nothing was "
            f"done. Allowed: {BRANCH_RULE}."
        )
    from sparkwap.pr.life import PullRequest

    return PullRequest(
        call_of(parsed),
        parsed.branch,
        wanted=getattr(parsed, "base", None),
        select=getattr(parsed, "select", ()),
        more=getattr(parsed, "dbt_arguments", ()),
        tell=say,
    )
