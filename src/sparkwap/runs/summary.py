"""The summary of a run: published, held and rejected tables, the reasons, and the next commands."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sparkwap.core import next_command
from sparkwap.core.names import short_run_id
from sparkwap.core.text import counted
from sparkwap.gate.facts import BuiltNode
from sparkwap.gate.verdicts import Outcome, Verdict
from sparkwap.runs.next_steps import NodeOutcome, discard_command, next_steps, node_outcomes

if TYPE_CHECKING:
    from sparkwap.runs.types import RunEnd

_ROWS_SHOWN = 20
_REASONS_SHOWN = 3
_OUTCOMES: tuple[Outcome, ...] = ("published", "rejected", "held")
_INDENT = "  "
_LABEL_WIDTH = max(map(len, _OUTCOMES)) + 2
_NAMES = " " * (len(_INDENT) + _LABEL_WIDTH + 2)
_UNCHANGED = "readers of main still see the state before this run."
_AGAIN = "readers of main see the state before this run again."
TOGETHER = (
    "The tables that the gate lets through are published together or not at all. On a catalog "
    "without transactions, the next command first completes or undoes the publish."
)
"""What holds also for a run whose close has failed."""


def lines(
    closing: RunEnd,
    *,
    run_id: str,
    branch: str,
    remarks: Sequence[str] = (),
    width: int | None = None,
    with_next: bool = True,
) -> list[str]:
    """Return the summary of a run, line by line, as plain text.

    Args:
        remarks: More lines, after the totals.
        width: Columns of a line; None for no limit. A longer word, such as a quoted argument of a
            command, is not broken.

    Returns:
        One line for each of up to 20 tables per outcome (tables with the same reason share a
        line), up to 20 notices, the totals, and the next commands. Empty if the run built nothing.
    """
    rows = node_outcomes(closing)
    if not rows:
        return []
    shown = {outcome: [row for row in rows if row.outcome == outcome] for outcome in _OUTCOMES}
    longest = max(len(row.node.name) for group in shown.values() for row in group[:_ROWS_SHOWN])
    text = [f"sparkwap  run {short_run_id(run_id)} on branch {branch}"]
    for outcome, group in shown.items():
        text += _group(outcome, group, longest, branch)
    text += _notices(closing)
    text += _totals(closing, rows)
    if closing.refused is not None:
        text += (f"{_INDENT}{line}" for line in closing.refused.splitlines())
    text += (f"{_INDENT}{line}" for line in remarks)
    wrapped = [part for line in text for part in _wrapped(line, width)]
    return [*wrapped, *(next_lines(closing, branch, width) if with_next else ())]


def next_lines(closing: RunEnd, branch: str, width: int | None = None) -> list[str]:
    """Return the next commands after a run, line by line."""
    return list(_next(next_steps(closing, branch), width))


def not_closed(*, run_id: str, branch: str, caught: Sequence[str] = ()) -> list[str]:
    """Return the summary of a run that ended without a decision of the gate, line by line.

    The gate is a hook, and dbt skips all hooks after a failed hook.

    Args:
        caught: Messages about the tables that the run has moved past the gate.
    """
    unchanged = "" if caught else "Readers of main see no change; "
    return [
        f"sparkwap  run {short_run_id(run_id)} on branch {branch}",
        f"{_INDENT}A hook failed before the gate decided, so nothing was published.",
        *(f"{_INDENT}{message}" for message in caught),
        f"{_INDENT}{unchanged}the built tables stay on the branch.",
    ]


def broke_down(*, run_id: str, branch: str) -> list[str]:
    """Return the summary of a run whose close ended with an error, line by line."""
    return [
        f"sparkwap  run {short_run_id(run_id)} on branch {branch}",
        f"{_INDENT}An error ended the run before its end was recorded; see the failed hook below.",
    ]


def next_of_not_closed(branch: str) -> list[str]:
    """Return the next commands after `not_closed`, line by line."""
    fixed = next_command.dbt("build", branch=branch)
    return list(
        _next([("after a fix of the hook", fixed), ("discard it", discard_command(branch))])
    )


def _group(
    outcome: Outcome, group: Sequence[NodeOutcome], width: int, branch: str
) -> Iterable[str]:
    label = f"{_INDENT}{outcome:<{_LABEL_WIDTH}}"
    alike: dict[tuple[str, ...], list[NodeOutcome]] = {}
    for number, row in enumerate(group):
        # Each published table has its own line, with its number of tests.
        alike.setdefault(row.verdict.reasons or (str(number),), []).append(row)
    left = _ROWS_SHOWN
    for same in alike.values():
        if left <= 0:
            break
        _, node, verdict = same[0]
        first, *more = _details(node, verdict)
        if len(same) == 1:
            yield f"{label}{node.name:<{width}}   {first}"
            yield from (" " * (len(label) + width + 3) + text for text in more)
        else:
            yield f"{label}{len(same):,} tables: {first}"
            yield from (f"{' ' * len(label)}{text}" for text in more)
            yield f"{_NAMES}{', '.join(other.name for _, other, _ in same[:left])}"
        left -= len(same)
    if len(group) > _ROWS_SHOWN:
        # wap_status shows open branches, so it does not show published tables.
        status = next_command.operation("wap_status", branch)
        hint = "" if outcome == "published" else f": {status}"
        yield f"{label}and {len(group) - _ROWS_SHOWN:,} more{hint}"


def _details(node: BuiltNode, verdict: Verdict) -> list[str]:
    if verdict.outcome == "published":
        return ["; ".join([_audited(node, verdict), *_notices_shown(verdict)])]
    reasons = list(verdict.reasons[:_REASONS_SHOWN])
    more = len(verdict.reasons) - _REASONS_SHOWN
    return [*reasons, f"and {more} more"] if more > 0 else reasons or ["no reason was given"]


def _audited(node: BuiltNode, verdict: Verdict) -> str:
    if node.kind == "failures":
        return "stored failures"
    if not verdict.expected:
        return "no tests"
    return f"{verdict.passed}/{counted(verdict.expected, 'test')}"


def _notices_shown(verdict: Verdict) -> tuple[str, ...]:
    # Without tests, the line already has the text `no tests`.
    return verdict.notices if verdict.expected else ()


def _notices(closing: RunEnd) -> Iterable[str]:
    found = [
        f"{node.name}: {notice}"
        for node in closing.nodes
        for notice in closing.notices.get(node.node_id, ())
    ]
    label = f"{_INDENT}{'notice':<{_LABEL_WIDTH}}"
    yield from (f"{label}{notice}" for notice in found[:_ROWS_SHOWN])
    if len(found) > _ROWS_SHOWN:
        yield f"{label}and {len(found) - _ROWS_SHOWN:,} more"


def _totals(closing: RunEnd, rows: Sequence[NodeOutcome]) -> Iterable[str]:
    total, live = len(rows), closing.published
    counts = [(outcome, sum(row.outcome == outcome for row in rows)) for outcome in _OUTCOMES]
    if closing.refused is not None:
        refused = "The catalog refused the publish, so nothing was published"
        yield f"{_INDENT}{refused}{readers(closing)}"
    elif not live:
        kept = " and ".join(f"{count} {outcome}" for outcome, count in counts if count)
        yield f"{_INDENT}Nothing was published ({kept}){readers(closing)}"
    else:
        what = counted(live, "table") if live == total else f"{live:,} of {total:,} tables"
        tail = "" if live == total else "; the others stay on the branch, where no reader sees them"
        # The time of a publish by another run is not known.
        took = f" ({closing.seconds:.2f} s)" if closing.seconds else ""
        how = "in a sequential publish" if closing.sequential else "in one transaction"
        yield f"{_INDENT}Published {what} {how}{took}{tail}."


def readers(closing: RunEnd) -> str:
    """Return what readers of main see after a run without publish, as the end of a sentence.

    It is only a period if nobody has watched `main`.
    """
    if not closing.watched:
        return "."
    left = sorted({".".join(move.identifier) for move in closing.caught if not move.back})
    if left:
        return f"; but readers of main see what the run has done to {', '.join(left)}."
    return f"; {_AGAIN if closing.caught else _UNCHANGED}"


def _next(ways: Sequence[tuple[str, str]], width: int | None = None) -> Iterable[str]:
    longest = max((len(purpose) for purpose, _ in ways), default=0)
    for number, (purpose, command) in enumerate(ways):
        label = f"{_INDENT}{'Next:' if number == 0 else '     '} "
        line = f"{label}{purpose:<{longest}}   {command}"
        if width is None or len(line) <= width:
            yield line
        else:
            yield f"{label}{purpose}"
            yield from _continued(command, " " * (len(label) + 2), width)


# --- the width of the terminal ------------------------------------------------------------------

_WORDS = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")


def _wrapped(line: str, width: int | None) -> Iterable[str]:
    """Break a line that is too long, and indent the rest to the start of its text."""
    if width is None or len(line) <= width:
        return [line]
    text = line.lstrip(" ")
    row = text.startswith((*_OUTCOMES, "notice ")) or len(line) - len(text) >= len(_NAMES) - 2
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=_NAMES if row else _INDENT * 2,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _continued(command: str, indent: str, width: int) -> Iterable[str]:
    """Break a command with backslashes, never within quotes."""
    line = indent
    for word in _WORDS.findall(command):
        if line.strip() and len(line) + len(word) + 2 > width:
            yield f"{line.rstrip()} \\"
            line = indent + "  "
        line += f"{word} "
    yield line.rstrip()
