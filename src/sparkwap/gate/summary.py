"""The text at the end of a run: what was published, held and rejected, why, and what comes next."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from sparkwap.core import next_command
from sparkwap.core.names import short_run_id
from sparkwap.gate.verdicts import (
    CHANGED_RULE,
    HELD_WARNING,
    NOT_RUN,
    PARTIAL,
    PUBLISHING_OFF,
    UNTESTED,
    BuiltNode,
    Decision,
    Outcome,
    Verdict,
)

LEFTOVER = "leftover"
"""The kind of what an earlier run has left on the branch, and nobody has audited."""

LOAD = "load"
"""The kind of rows that another program than dbt has written (`examples/load`)."""

MOVED = "moved"
"""The kind of what a run has moved past the gate, where no node of it is known to have done so."""
_UNBUILT = (LOAD, MOVED)
_ROWS_SHOWN = 20
_REASONS_SHOWN = 3
_SELECTED = 3
_OUTCOMES: tuple[Outcome, ...] = ("published", "rejected", "held")
_INDENT = "  "
_LABEL_WIDTH = max(map(len, _OUTCOMES)) + 2
_NAMES = " " * (len(_INDENT) + _LABEL_WIDTH + 2)
_UNCHANGED = "readers of main still see the state before this run."
_AGAIN = "readers of main see the state before this run again."

_Row = tuple[Outcome, BuiltNode, Verdict]


class Caught(Protocol):
    """What a run has moved past the gate, as `sparkwap.runs.watched.GateBypass` tells it."""

    @property
    def identifier(self) -> tuple[str, str]: ...
    @property
    def back(self) -> bool: ...


class Closing(Protocol):
    """How a run ended, as `sparkwap.runs.types.RunEnd` tells it."""

    @property
    def decision(self) -> Decision: ...
    @property
    def nodes(self) -> Sequence[BuiltNode]: ...
    @property
    def published(self) -> int: ...
    @property
    def refused(self) -> str | None: ...
    @property
    def seconds(self) -> float: ...
    @property
    def earlier(self) -> frozenset[str]: ...
    @property
    def notices(self) -> Mapping[str, tuple[str, ...]]: ...
    @property
    def in_series(self) -> bool: ...
    @property
    def watched(self) -> bool: ...
    @property
    def caught(self) -> Sequence[Caught]: ...
    @property
    def continued(self) -> frozenset[str]: ...


def lines(
    closing: Closing,
    *,
    run_id: str,
    branch: str,
    remarks: Sequence[str] = (),
    width: int | None = None,
    next_steps: bool = True,
) -> list[str]:
    """Return the summary of a run, line by line, as plain text.

    Args:
        closing: The gate's decision, the nodes it is about, and how the publish went: `published`
            counts what is live now, `refused` is the catalog's message, `seconds` is the time
            that the publish took, `earlier` are the nodes that this invocation has not built,
            `notices` is what their builds had to tell, such as a column that is new in a file,
            `in_series` is true where the catalog has no transaction over several tables.
        run_id: dbt's invocation id.
        branch: The audit branch.
        remarks: What else there is to tell of how it came to this, behind the totals.
        width: Columns that a line may have; None for no limit. A single word that is longer, such
            as a quoted argument of a command, stays whole.
        next_steps: Whether to tell the commands that go on from here.

    Returns:
        One line for each of up to 20 tables of each outcome, those that wait for the same reason
        together, up to 20 notices, the totals, and the commands that go on from here. Empty when
        the run built nothing.
    """
    rows = [_row(node, closing) for node in closing.nodes]
    if not rows:
        return []
    shown = {outcome: [row for row in rows if row[0] == outcome] for outcome in _OUTCOMES}
    longest = max(len(row[1].name) for group in shown.values() for row in group[:_ROWS_SHOWN])
    text = [f"sparkwap  run {short_run_id(run_id)} on branch {branch}"]
    for outcome, group in shown.items():
        text += _group(outcome, group, longest)
    text += _notices(closing)
    text += _totals(closing, rows)
    if closing.refused is not None:
        text += (f"{_INDENT}{line}" for line in closing.refused.splitlines())
    text += (f"{_INDENT}{line}" for line in remarks)
    told = [part for line in text for part in _wrapped(line, width)]
    return [*told, *(_next(_ways_on(rows, branch, closing), width) if next_steps else ())]


def ways(closing: Closing, branch: str) -> list[tuple[str, str]]:
    """Return the next steps after a run: what each is for, and its command."""
    return _ways_on([_row(node, closing) for node in closing.nodes], branch, closing)


def not_closed(*, run_id: str, branch: str, caught: Sequence[str] = ()) -> list[str]:
    """Return what to tell of a run of which dbt has not asked the gate, line by line.

    dbt skips the hooks that are behind one that failed, and the gate is such a hook.

    Args:
        run_id: dbt's invocation id.
        branch: The audit branch.
        caught: What the run has moved past the gate.
    """
    unchanged = "" if caught else "Readers of main see no change; "
    return [
        f"sparkwap  run {short_run_id(run_id)} on branch {branch}",
        f"{_INDENT}A hook failed before the gate was asked, so nothing was published.",
        *(f"{_INDENT}{one}" for one in caught),
        f"{_INDENT}{unchanged}what was built waits on its branch.",
        *_next(
            [
                ("after a fix of the hook", next_command.dbt("build", branch=branch)),
                ("give it up", _discard(branch)),
            ]
        ),
    ]


def _row(node: BuiltNode, closing: Closing) -> _Row:
    verdict = closing.decision.verdicts[node.node_id]
    if verdict.outcome == "published" and closing.refused is not None:
        return "held", node, Verdict("held", ("the catalog refused the publish",))
    return verdict.outcome, node, verdict


# --- the tables ---------------------------------------------------------------------------------


def _group(outcome: Outcome, group: Sequence[_Row], width: int) -> Iterable[str]:
    label = f"{_INDENT}{outcome:<{_LABEL_WIDTH}}"
    alike: dict[tuple[str, ...], list[_Row]] = {}
    for number, row in enumerate(group):
        # What is published has its own number of tests, and mostly nothing else to tell.
        alike.setdefault(row[2].reasons or (str(number),), []).append(row)
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
            yield f"{_NAMES}{', '.join(one.name for _, one, _ in same[:left])}"
        left -= len(same)
    if len(group) > _ROWS_SHOWN:
        # wap_status tells of open branches, so it knows nothing of what is published.
        hint = "" if outcome == "published" else ": dbt run-operation wap_status"
        yield f"{label}and {len(group) - _ROWS_SHOWN:,} more{hint}"


def _details(node: BuiltNode, verdict: Verdict) -> list[str]:
    if verdict.outcome == "published":
        return ["; ".join([_audited(node, verdict), *_told(verdict)])]
    reasons = list(verdict.reasons[:_REASONS_SHOWN])
    more = len(verdict.reasons) - _REASONS_SHOWN
    return [*reasons, f"and {more} more"] if more > 0 else reasons or ["no reason was given"]


def _audited(node: BuiltNode, verdict: Verdict) -> str:
    if node.kind == "failures":
        return "stored failures"
    if not verdict.expected:
        return "no tests"
    return f"{verdict.passed}/{verdict.expected} {_counted(verdict.expected, 'test', number=False)}"


def _told(verdict: Verdict) -> tuple[str, ...]:
    # `no tests` has said it already.
    return verdict.notices if verdict.expected else ()


def _notices(closing: Closing) -> Iterable[str]:
    told = [
        f"{node.name}: {notice}"
        for node in closing.nodes
        for notice in closing.notices.get(node.node_id, ())
    ]
    label = f"{_INDENT}{'notice':<{_LABEL_WIDTH}}"
    yield from (f"{label}{notice}" for notice in told[:_ROWS_SHOWN])
    if len(told) > _ROWS_SHOWN:
        yield f"{label}and {len(told) - _ROWS_SHOWN:,} more"


# --- the totals ---------------------------------------------------------------------------------


def _totals(closing: Closing, rows: Sequence[_Row]) -> Iterable[str]:
    total, live = len(rows), closing.published
    counts = [(outcome, sum(row[0] == outcome for row in rows)) for outcome in _OUTCOMES]
    if closing.refused is not None:
        refused = "The catalog refused the publish, so nothing was published"
        yield f"{_INDENT}{refused}{_readers(closing)}"
    elif not live:
        kept = " and ".join(f"{count} {outcome}" for outcome, count in counts if count)
        yield f"{_INDENT}Nothing was published ({kept}){_readers(closing)}"
    else:
        what = _counted(live, "table") if live == total else f"{live:,} of {total:,} tables"
        tail = "" if live == total else "; the others stay on the branch, out of readers' sight"
        # Of a publish by another run it is not known.
        took = f" ({closing.seconds:.2f} s)" if closing.seconds else ""
        how = "by a journal, one after the other" if closing.in_series else "in one transaction"
        yield f"{_INDENT}Published {what} {how}{took}{tail}."


def _readers(closing: Closing) -> str:
    """What readers of main see after a run that has published nothing, as far as it was looked."""
    if not closing.watched:
        return "."
    left = sorted({".".join(one.identifier) for one in closing.caught if not one.back})
    if left:
        return f"; but readers of main see what the run has done to {', '.join(left)}."
    return f"; {_AGAIN if closing.caught else _UNCHANGED}"


def _counted(count: int, noun: str, *, number: bool = True) -> str:
    words = noun if count == 1 else f"{noun}s"
    return f"{count:,} {words}" if number else words


# --- what comes next ----------------------------------------------------------------------------


def _ways_on(rows: Sequence[_Row], branch: str, closing: Closing) -> list[tuple[str, str]]:
    """Return the next steps: what it is for, and the command."""
    kept = [row for row in rows if row[0] != "published"]
    if not kept:
        return []
    ways: list[tuple[str, str]] = []
    stopped = closing.refused is not None
    # No dbt command brings its rows again.
    loads = [row[1] for row in kept if row[1].kind == LOAD and (stopped or row[0] == "rejected")]
    rejected = [
        row for row in kept if row[0] == "rejected" and row[1].kind not in _UNBUILT and row[1].known
    ]
    looked_at = next((node for _, node, _ in rejected if node.candidate), None)
    if looked_at is not None:
        query = f"select * from {{{{ {_ref(looked_at.node_id)} }}}}"
        look = f'show --inline "{query}"'
        ways.append(("look at it as built", next_command.dbt(look, branch=branch)))
    strange = [row for row in kept if not row[1].known and row[1] not in loads]
    if strange:
        # Only its own project knows how it is built and what its tests are.
        rebuilt = any(row[0] == "rejected" for row in strange)
        command = next_command.dbt("build" if rebuilt else "test", branch=branch)
        ways.append(("in the project that has it", command))
    if rejected:
        # A retry repeats this invocation: if that was only a test, it sees the same rows again.
        again = [node for _, node, _ in rejected if node.node_id in closing.earlier]
        if not again:
            ways.append(("after a fix of it", "dbt retry"))
        failed = next((name for _, _, verdict in rejected for name in verdict.failed), None)
        if failed is not None:
            ways.append(("accept it as it is", _accept(branch, failed)))
        nodes = again or [node for _, node, _ in rejected]
        ways.append(
            (
                "after a fix" if again else "after any other fix",
                _build(nodes, branch, upstream=not again),
            )
        )
    elif any(row[1].kind == MOVED for row in kept):
        ways.append(("after a fix of it", next_command.dbt("build", branch=branch)))
    elif not stopped and not loads:
        ways += _ways_from_held(kept, branch)
    elif stopped:
        # The refused candidates stand on a base that is no more.
        refused = [node for _, node, _ in kept if node.kind not in ("failures", LOAD)]
        if any(node.node_id in closing.continued for node in refused):
            # Any other command builds the batches of today, and not those that are there.
            ways.append(("build all its batches on main as it is", "dbt retry"))
        elif refused:
            ways.append(("build on main as it is", _build(refused, branch)))
    return [*ways, ("give it up", _discard(branch))]


def _discard(branch: str) -> str:
    return next_command.operation("wap_discard", branch)


def _accept(branch: str, test: str) -> str:
    arguments = f'{{branch: {branch}, test: {test}, reason: "<why>"}}'
    return next_command.dbt(f"run-operation wap_accept --args '{arguments}'")


def _build(nodes: Sequence[BuiltNode], branch: str, *, upstream: bool = False) -> str:
    """Return the command that builds these nodes, and what is downstream, once more."""
    names = [next_command.selected(node.node_id) for node in nodes]
    before = "+" if upstream else ""
    # What is left over has the name of its table, by which dbt selects nothing.
    few = len(names) <= _SELECTED and all(node.kind != LEFTOVER for node in nodes)
    selected = "".join(f" {before}{name}+" for name in names) if few else ""
    return next_command.dbt(f"build{' --select' if selected else ''}{selected}", branch=branch)


def _ways_from_held(kept: Sequence[_Row], branch: str) -> Iterable[tuple[str, str]]:
    test = next_command.dbt("test", branch=branch)
    reasons = {reason for _, _, verdict in kept for reason in verdict.reasons}
    missing = any(verdict.passed < verdict.expected for _, _, verdict in kept)
    if reasons & set(PARTIAL.values()):
        nodes = [node for _, node, _ in kept if node.status in PARTIAL]
        yield "build it whole", _build(nodes, branch)
    elif any(node.stale for _, node, _ in kept):
        yield "build it again", _build([node for _, node, _ in kept if node.stale], branch)
    elif any(reason.endswith(NOT_RUN["disabled"]) for reason in reasons):
        # `dbt test` does nothing, hooks included, where no other test is left.
        publish = next_command.operation("wap_publish", branch, disabled_tests="publish")
        yield "enable the test, and run it", test
        yield "publish without it", publish
    elif missing:
        yield "run the tests, and publish", test
    if UNTESTED in reasons:
        yield "after adding tests", test
    if any(reason.endswith((HELD_WARNING, CHANGED_RULE)) for reason in reasons):
        accepted = next_command.dbt("test", branch=branch, warnings="publish")
        yield "accept the warnings", accepted
    if PUBLISHING_OFF in reasons and not missing:
        yield "publish it", next_command.operation("wap_publish", branch)


def _ref(node_id: str) -> str:
    """Return the `ref` of a node: `model.shop.orders.v2` -> `ref('orders', v=2)`."""
    parts = node_id.split(".", 2)
    name, dot, version = parts[-1].rpartition(".v")
    return f"ref('{name}', v={version})" if dot else f"ref('{parts[-1]}')"


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
    """Break a line of the summary where it is too long, its rest below where its text begins."""
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
    """Break a command as a shell lets it be broken, never within quotes."""
    line = indent
    for word in _WORDS.findall(command):
        if line.strip() and len(line) + len(word) + 2 > width:
            yield f"{line.rstrip()} \\"
            line = indent + "  "
        line += f"{word} "
    yield line.rstrip()
