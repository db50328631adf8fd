"""``sparkwap pr audit | publish | close | comment | state``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sparkwap.core.dbt_cli import add_dbt_options, call_of, say
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.core.names import BRANCH_RULE, branch_problem, is_run_branch

if TYPE_CHECKING:
    # Not at run time: the catalog comes with it, for which other commands would wait.
    from sparkwap.pr.life import PullRequest

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def register_pr(commands: Commands) -> None:
    """``sparkwap pr audit|publish|close|comment|state``."""
    what = "a pull request's life in the lake"
    parser = commands.add_parser("pr", help=what, description=what)
    actions = parser.add_subparsers(title="actions", metavar="action", required=True)

    def action(
        name: str, text: str, handler: Callable[[argparse.Namespace], int], branch: bool = True
    ) -> argparse.ArgumentParser:
        one = actions.add_parser(name, help=text, description=text)
        if branch:
            one.add_argument("--branch", required=True, help="the branch, such as pr_123")
        add_dbt_options(one)
        one.set_defaults(handler=handler)
        return one

    def force(one: argparse.ArgumentParser) -> None:
        text = "also take the branch away from a run that is at work on it: the newest push wins"
        one.add_argument("--force", action="store_true", help=text)

    def base(one: argparse.ArgumentParser) -> None:
        text = "the publish, or run, to compare with (default: the newest of this project's tables)"
        one.add_argument("--base", metavar="ID", help=text)

    def build(one: argparse.ArgumentParser) -> None:
        base(one)
        text = "narrow what differs to this, as for dbt build"
        one.add_argument("--select", nargs="+", default=[], metavar="NODES", help=text)
        text = "more for dbt build, behind --"
        one.add_argument("dbt_arguments", nargs="*", metavar="...", help=text)

    audit = action("audit", "build and test on the branch what differs from the lake", _audit)
    force(audit)
    build(audit)
    publish = action("publish", "publish what was audited, when it is merged", _publish)
    build(publish)
    force(action("close", "discard the branch and all that is only on it", _close))
    text = "print what the audit came to, as Markdown for the pull request"
    said = action("comment", text, _comment)
    said.add_argument("--output", type=Path, metavar="FILE", help="write it there")
    said.add_argument("--no-diff", action="store_true", help="without the data diff")
    text = "write the folder for dbt's --state: the code of the lake's newest publish"
    state = action("state", text, _state, branch=False)
    text = "write it there"
    state.add_argument("--output", type=Path, required=True, metavar="DIR", help=text)
    base(state)


def _audit(parsed: argparse.Namespace) -> int:
    return _of(parsed).audit(force=parsed.force)


def _publish(parsed: argparse.Namespace) -> int:
    return _of(parsed).publish()


def _close(parsed: argparse.Namespace) -> int:
    return _of(parsed).close(force=parsed.force)


def _state(parsed: argparse.Namespace) -> int:
    parsed.branch = "pr_0"  # only what is parsed, never built, has it
    return _of(parsed).write_state(parsed.output)


def _comment(parsed: argparse.Namespace) -> int:
    from sparkwap.pr import comment
    from sparkwap.pr.life import diff_section

    found = _of(parsed).standing()
    diff = ""
    if found.outcome in ("ready", "held", "rejected", "moved") and not parsed.no_diff:
        try:
            diff = diff_section(parsed.branch, call_of(parsed), comment.LIMIT // 2)
        except SparkwapError as error:
            # The verdict is what the reviewer waits for.
            say(f"the comment has no data diff: {error}")
    text = comment.render(found, diff)
    if parsed.output is None:
        print(text, end="")
    else:
        parsed.output.write_text(text, encoding="utf-8")
        say(f"{parsed.output} is the comment")
    return 0


def _of(parsed: argparse.Namespace) -> PullRequest:
    problem = branch_problem(parsed.branch)
    if is_run_branch(parsed.branch):
        problem = "it is the name of a run's own branch"
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
