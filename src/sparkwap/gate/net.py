"""The net below the guard: who moved `main`, and by what evidence. Pure.

The guard refuses statements that it takes for harmful, before they are sent. The net looks at what
has happened: whatever a statement looked like, a table of ``main`` that this run has moved past the
gate is found, put back, and the run is rejected. What other writers have moved is theirs, and is
never undone.

A move is this run's where one of these holds:

- a snapshot that came to ``main`` has this run's id (``wap_run``), and no publish brought it;
- a snapshot without a run's id was written by this run's Spark application while a command of this
  run was at work that may write such ones (``call``, ``delete``, or any command of a session whose
  settings were taken off) and that names the table, or hides what it names;
- what readers see changed without a snapshot (another snapshot became current, a changed schema,
  a receipt that went, a table that was dropped or replaced) while a command of this run was at work
  that may do so, and that names the table, or hides what it names.

The clocks of a cluster elsewhere may be off. There a move without a run's id is `unknown` if it
falls between two looks of the net and outside of the commands that could have made it: the run is
rejected, and the table is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from sparkwap.catalog.model import Identifier
from sparkwap.core.sqllex import tokens

# `explain execute immediate ...` runs what it explains.
_READS = frozenset({"select", "values", "table", "describe", "desc", "show", "use"})
_SESSION = frozenset({"set", "reset", "refresh", "list"})
_MARKED = frozenset({"insert", "merge", "update", "create", "replace", "with", "from"})
_ROWS_ONLY = frozenset({"insert", "merge", "update", "delete", "with", "from"})
_WRITES_WITHIN = re.compile(r"\b(?:insert|merge|update|delete)\b")
_HIDES = re.compile(r"\bexecute immediate\b|\bidentifier \(|\\|\$ \{")
# Arguments of a call are expressions, and Spark joins texts that stand side by side.
_WORKED_OUT = re.compile(r"\bcall [^(]*\(.*?(?:['\"] ['\"]|\||\b(?!(?:map|array) )\w+ \()")
_DROPS_SCHEMA = re.compile(r"\bdrop\s+(?:schema|database|namespace)\b")
_TAKES_AWAY = re.compile(r"\b(?:drop|rename)\b")
_PART = re.compile(r"`(?:[^`]|``)*`|\w+")
_DOTTED = re.compile(rf"(?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))+")
_AROUND_DOTS = re.compile(r" ?\. ?")
_PROPERTY = "snapshot-property"


@dataclass(frozen=True, slots=True)
class SentCommand:
    """A statement of this run that may change something.

    Attributes:
        node: Id of the node or test that sent it; None for a hook.
        text: What was sent: SQL, or what Spark Connect sends.
        sent_ms: When, in milliseconds since the epoch.
        done_ms: When it was answered; None while it is not.
        marked: Whether the settings of its session still stamp the run's id on what it writes.
    """

    node: str | None
    text: str
    sent_ms: float
    done_ms: float | None = None
    marked: bool = True


@dataclass(frozen=True, slots=True)
class Writer:
    """A snapshot that came to ``main``.

    Attributes:
        snapshot_id: The snapshot.
        run_id: The run that wrote it, by its summary; None where it says none.
        app_id: The Spark application that wrote it; None for other engines.
        at_ms: When it was written.
        published: Whether a publish brought it, by its receipt and the ledger.
    """

    snapshot_id: int
    run_id: str | None
    app_id: str | None
    at_ms: int
    published: bool = False


@dataclass(frozen=True, slots=True)
class MainChange:
    """What readers see of a table or view now, against the last look.

    Attributes:
        identifier: The table or view.
        what: What is not as it was, in words.
        times: When its metadata was written since then, milliseconds; empty where that is not
            known, as of what is gone.
        writers: The snapshots that came to ``main``, newest first.
        seen: What readers see now, in words.
        passed: The snapshots that were current since the last look, and are not any more.
    """

    identifier: Identifier
    what: tuple[str, ...]
    times: tuple[int, ...]
    writers: tuple[Writer, ...] = ()
    seen: str = ""
    passed: tuple[Writer, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeOrigin:
    """Whose a change is.

    Attributes:
        by: ``run`` for this run, ``others`` for another writer, ``unknown`` where it may be this
            run's and nothing proves it.
        own: The snapshots that are this run's, among its writers and those that passed.
        evidence: By what it is known, in words.
        node: The node that did it, as far as that is known.
        goes_on: What did it has not been answered yet, and may delete files behind a drop.
    """

    by: Literal["run", "others", "unknown"]
    own: frozenset[int] = frozenset()
    evidence: str = ""
    node: str | None = None
    goes_on: bool = False


def is_command(text: str) -> bool:
    """Whether a statement may change anything at all; one that cannot be told is taken for one."""
    first, plain = _read(text)
    if first == "with":
        return _WRITES_WITHIN.search(plain) is not None
    return first not in _READS | _SESSION


def unmarks(text: str) -> bool:
    """Whether what its session writes from here on may lack the run's id."""
    return _read(text)[0] in ("reset", "begin") or _PROPERTY in text.lower() or _hides(text)


def judge(
    change: MainChange,
    run_id: str,
    commands: Sequence[SentCommand],
    *,
    app_id: str | None,
    same_clock: bool,
) -> ChangeOrigin:
    """Decide whose a change of what readers see is.

    Args:
        change: The change.
        run_id: This run.
        commands: Its commands since the last look, and those that were at work then.
        app_id: The Spark application that this run writes by; None if that is not known.
        same_clock: Whether Spark's clock is that of this process.
    """
    able = [one for one in commands if _touches(one, change.identifier)]
    own: set[int] = set()
    evidence, node = "", None
    for writer in change.writers:
        found = _wrote(writer, run_id, able, app_id, change.identifier)
        if found is not None:
            own.add(writer.snapshot_id)
            evidence, node = found[0], found[1] or node
    passed = {
        one.snapshot_id
        for one in change.passed
        if _wrote(one, run_id, able, app_id, change.identifier)
    }
    if own:
        return ChangeOrigin("run", frozenset(own | passed), evidence, node or _only(able, commands))
    if change.writers and change.what[0] in (MAIN, NEW, REPLACED):
        return ChangeOrigin("others")
    movers = [one for one in able if _may_move(one, change)]
    at_work = [one for one in movers if _at_work(one, change.times)]
    if at_work:
        one = _nearest(at_work, change.identifier)
        told = f"it changed while this run sent: {shown(one.text)}"
        goes_on = one.done_ms is None and change.what[0] in (GONE, REPLACED)
        return ChangeOrigin("run", frozenset(passed), told, one.node, goes_on)
    if movers and not same_clock:
        one = _nearest(movers, change.identifier)
        return ChangeOrigin("unknown", frozenset(), f"this run sent: {shown(one.text)}", one.node)
    return ChangeOrigin("others")


MAIN = "main"
"""In `MainChange.what`: another snapshot is current."""
GONE, NEW, REPLACED = "it is gone", "it is new", "another one stands there"
"""Likewise, of the whole table or view."""


def format_change(
    change: MainChange, judgement: ChangeOrigin, seconds: float | None, problem: str, *, back: bool
) -> str:
    """What the summary says of a change of this run's.

    Args:
        change: The change.
        judgement: Whose it is.
        seconds: Since when readers saw it; None where that is not known.
        problem: Why it was not put back.
        back: Whether it was.
    """
    verb = "was moved past the gate" if judgement.by == "run" else "moved"
    what = " and ".join(change.what)
    text = f"{'.'.join(change.identifier)} {verb}: {what} ({judgement.evidence})"
    if back:
        span = (
            "until it was put back"
            if seconds is None
            else f"for {seconds:.1f} s, until it was put back"
        )
        return f"{text}; readers saw {change.seen} {span}"
    return f"{text}; readers see {change.seen}: it was not put back, as {problem}"


def named(text: str) -> set[Identifier]:
    """The last two parts of every dotted name in a statement, and those before a branch."""
    found = set()
    for match in _DOTTED.finditer(_plain(text)):
        parts = [part.strip("`").replace("``", "`") for part in _PART.findall(match[0])]
        found |= {(parts[i], parts[i + 1]) for i in range(len(parts) - 1)}
    return found


def about(commands: Iterable[SentCommand]) -> set[Identifier] | None:
    """What commands may have moved; None if that cannot be told."""
    texts = [one.text for one in commands]
    if any(_hides(text) or _DROPS_SCHEMA.search(_read(text)[1]) for text in texts):
        return None
    return {name for text in texts for name in named(text)}


def shown(text: str) -> str:
    """A statement in one line, as long as a line of the summary takes."""
    line = _plain(text)
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 4]} ..."


_SHOWN = 90


def _wrote(
    writer: Writer,
    run_id: str,
    able: Sequence[SentCommand],
    app_id: str | None,
    identifier: Identifier,
) -> tuple[str, str | None] | None:
    """By what evidence this run wrote a snapshot, and which node did; None if it did not."""
    if writer.published:
        return None
    at_work = [one for one in able if _at_work(one, (writer.at_ms,))]
    node = _nearest(at_work, identifier).node if at_work else None
    if writer.run_id == run_id:
        return f"snapshot {writer.snapshot_id} on it has this run's id", node
    elsewhere = writer.app_id is None or (app_id is not None and writer.app_id != app_id)
    unstamped = [one for one in at_work if _may_lack_id(one)]
    if elsewhere or not unstamped:
        return None
    one = _nearest(unstamped, identifier)
    told = f"snapshot {writer.snapshot_id} on it came while this run sent: {shown(one.text)}"
    return told, one.node


def _nearest(commands: Sequence[SentCommand], identifier: Identifier) -> SentCommand:
    """The last of the commands that name a table, or else of those that hide what they name."""
    naming = [one for one in commands if _is_named(_read(one.text)[1], identifier)]
    return (naming or commands)[-1]


def _may_lack_id(command: SentCommand) -> bool:
    return not command.marked or _read(command.text)[0] not in _MARKED or _hides(command.text)


def _may_move(command: SentCommand, change: MainChange) -> bool:
    """Whether a command can do so without a snapshot."""
    first, plain = _read(command.text)
    if _hides(command.text):
        return True
    return first not in _ROWS_ONLY and (
        change.what != (GONE,) or _TAKES_AWAY.search(plain) is not None
    )


def _touches(command: SentCommand, identifier: Identifier) -> bool:
    """Whether a command names a table, or hides what it names."""
    return _hides(command.text) or _is_named(_read(command.text)[1], identifier)


def _is_named(text: str, identifier: Identifier) -> bool:
    schema, name = (part.lower() for part in identifier)
    if any(one in (None, schema) for one in _schemas_of(text, name)):
        return True
    dropped = _DROPS_SCHEMA.search(text) is not None
    return dropped and any(True for _ in _schemas_of(text, schema))


def _schemas_of(text: str, name: str) -> Iterator[str | None]:
    """What stands before a name and a dot, wherever a text has the name; None for nothing.

    A run builds tables of the same names in its side schemas.
    """
    quoted = re.escape(name.replace("`", "``"))
    for found in re.finditer(rf"(?:(`(?:[^`]|``)*`|\w+)\s*\.\s*)?(?<!\w)`?{quoted}(?!\w)", text):
        yield found[1].strip("`").replace("``", "`") if found[1] else None


def _hides(text: str) -> bool:
    first, plain = _read(text)
    return first == "begin" or any(one.search(plain) for one in (_HIDES, _WORKED_OUT))


def _at_work(command: SentCommand, times: Iterable[int]) -> bool:
    """Whether a command was at work at one of the times; where none is known, it may have been."""
    times = tuple(times)
    end = command.done_ms if command.done_ms is not None else float("inf")
    return not times or any(command.sent_ms - 1 <= at <= end + 1 for at in times)


def _only(able: Sequence[SentCommand], commands: Sequence[SentCommand]) -> str | None:
    """The one node that can have done it."""
    nodes = {one.node for one in able} or {one.node for one in commands}
    return next(iter(nodes)) if len(nodes) == 1 else None


@lru_cache(maxsize=1024)
def _plain(text: str) -> str:
    """A statement without comments, a blank between its tokens, none around the dots of a name."""
    return _AROUND_DOTS.sub(".", " ".join(token.text for token in tokens(text)))


def _read(text: str) -> tuple[str, str]:
    """The first word of a statement, and the statement as `_plain` gives it; in lower case."""
    plain = _plain(text).lower()
    return (plain.lstrip("(; ").split(" ", 1) or [""])[0], plain
