"""The net below the guard: decides, from facts alone, which writer has moved `main`.

The guard refuses harmful statements before they are sent. The net checks their effects: it detects
a table of ``main`` that this run has moved past the gate, whatever the statement was. The run puts
the table back and is rejected. Moves by other writers are never undone.

A move belongs to this run in each of these cases:

- A new snapshot on ``main`` has this run's id (``wap_run``), and no publish brought it.
- A new snapshot without a run's id was written by this run's Spark application, during a command of
  this run that may write such snapshots (``call``, ``delete``, or any command of a session whose
  settings were reset), and the command names the table, or hides the names of its tables. On a
  server that writes no ids (Spark 3.5) also during a command that creates the table, or names its
  ``main``.
- Readers see a change without a new snapshot (another current snapshot, a changed schema, a missing
  receipt, a dropped or replaced table) during a command of this run that may cause it, and the
  command names the table, or hides the names of its tables.

The clock of a remote cluster may be wrong. There a move without a run's id is `unknown` if it is
between two checks of the net but outside of the commands that could have caused it: the run is
rejected, and the table is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from sparkwap.catalog.model import Identifier
from sparkwap.core.sqllex import tokens

# `explain execute immediate ...` runs the explained statement.
_READS = frozenset({"select", "values", "table", "describe", "desc", "show", "use"})
_SESSION = frozenset({"set", "reset", "refresh", "list"})
_MARKED = frozenset({"insert", "merge", "update", "create", "replace", "with", "from"})
_ROWS_ONLY = frozenset({"insert", "merge", "update", "delete", "with", "from"})
_WRITES_WITHIN = re.compile(r"\b(?:insert|merge|update|delete)\b")
_HIDES = re.compile(r"\bexecute immediate\b|\bidentifier \(|\\|\$ \{")
# Arguments of a call are expressions, and Spark joins adjacent string literals.
_WORKED_OUT = re.compile(r"\bcall [^(]*\(.*?(?:['\"] ['\"]|\||\b(?!(?:map|array) )\w+ \()")
_DROPS_SCHEMA = re.compile(r"\bdrop\s+(?:schema|database|namespace)\b")
_TAKES_AWAY = re.compile(r"\b(?:drop|rename)\b")
_PART = re.compile(r"`(?:[^`]|``)*`|\w+")
_DOTTED = re.compile(rf"(?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))+")
_NAME = rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*"
# Where tables are gated, only these commands write to ``main``, whatever branch the session has.
_CREATES = re.compile(
    rf"(?:create(?: or replace)?|replace)(?: external)? table (?:if not exists )?({_NAME})"
)
_WRITES_MAIN = re.compile(
    r"\b(?:insert (?:into|overwrite)(?: table)?|merge (?:with schema evolution )?into|update)"
    rf" ({_NAME})\.`?branch_main`?(?!\w)"
)
_AROUND_DOTS = re.compile(r" ?\. ?")
_PROPERTY = "snapshot-property"


@dataclass(frozen=True, slots=True)
class SentCommand:
    """A statement of this run that may change something.

    Attributes:
        node: Id of the node or test that sent it; None for a hook.
        text: The statement: SQL, or the text of a Spark Connect request.
        sent_ms: The time of sending, in milliseconds since the epoch.
        done_ms: The time of the answer; None while there is none.
        marked: Whether its session's settings still add the run's id to the snapshots it writes.
    """

    node: str | None
    text: str
    sent_ms: float
    done_ms: float | None = None
    marked: bool = True


@dataclass(frozen=True, slots=True)
class Application:
    """The Spark application that carries out a run's statements.

    Attributes:
        app_id: Its id, which Iceberg writes into each snapshot.
        marks: Whether it writes the run's id there too, as far as the session asks for it. Iceberg
            for Spark 3.5 does not: there a snapshot is this run's if the run was sending a command
            that creates the table, or names its ``main``.
    """

    app_id: str
    marks: bool = True


@dataclass(frozen=True, slots=True)
class Writer:
    """A new snapshot on ``main``.

    Attributes:
        run_id: The run that wrote it, by its summary; None if the summary has none.
        app_id: The Spark application that wrote it; None for other engines.
        at_ms: The time of the write.
        published: Whether a publish brought it, by its receipt and the ledger.
        maintained: Whether a maintenance has rewritten files without changing rows.
    """

    snapshot_id: int
    run_id: str | None
    app_id: str | None
    at_ms: int
    published: bool = False
    maintained: bool = False


@dataclass(frozen=True, slots=True)
class MainChange:
    """A change of a table or view for readers since the last check.

    Attributes:
        what: The differences, in words.
        times: The times of its metadata writes since then, in milliseconds; empty if not known, as
            for a dropped table.
        writers: The new snapshots on ``main``, newest first.
        seen: The state that readers see now, in words.
        passed: The snapshots that were current since the last check, but no longer are.
    """

    identifier: Identifier
    what: tuple[str, ...]
    times: tuple[int, ...]
    writers: tuple[Writer, ...] = ()
    seen: str = ""
    passed: tuple[Writer, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeOrigin:
    """The origin of a change.

    Attributes:
        by: ``run`` for this run, ``others`` for another writer, ``unknown`` if this run may have
            caused it but nothing proves it.
        own: The snapshots of this run among the change's ``writers`` and ``passed``.
        may_delete_files: Whether the command still runs, and may delete the files of a dropped
            table.
    """

    by: Literal["run", "others", "unknown"]
    own: frozenset[int] = frozenset()
    evidence: str = ""
    node: str | None = None
    may_delete_files: bool = False


def is_command(text: str) -> bool:
    """Return whether a statement may change anything; True if this is not known."""
    first, plain = _read(text)
    if first == "with":
        return _WRITES_WITHIN.search(plain) is not None
    return first not in _READS | _SESSION


def unmarks(text: str) -> bool:
    """Return whether later snapshots of the session may lack the run's id."""
    return _read(text)[0] in ("reset", "begin") or _PROPERTY in text.lower() or _hides(text)


def judge(
    change: MainChange,
    run_id: str,
    commands: Sequence[SentCommand],
    *,
    application: Application | None,
    same_clock: bool,
) -> ChangeOrigin:
    """Decide which writer caused a change for readers.

    Args:
        commands: Its commands since the last check, and those that ran at that time.
        same_clock: Whether Spark and this process use the same clock.
    """
    able = [command for command in commands if _touches(command, change.identifier)]
    own: set[int] = set()
    evidence, node = "", None
    for writer in change.writers:
        found = _wrote(writer, run_id, able, application, change.identifier)
        if found is not None:
            own.add(writer.snapshot_id)
            evidence, node = found[0], found[1] or node
    passed = {
        writer.snapshot_id
        for writer in change.passed
        if _wrote(writer, run_id, able, application, change.identifier)
    }
    if own:
        return ChangeOrigin("run", frozenset(own | passed), evidence, node or _only(able, commands))
    if change.writers and change.what[0] in (MAIN, NEW, REPLACED):
        return ChangeOrigin("others")
    movers = [command for command in able if _may_move(command, change)]
    at_work = [command for command in movers if _at_work(command, change.times)]
    if at_work:
        mover = _nearest(at_work, change.identifier)
        evidence = f"it changed while this run sent: {shown(mover.text)}"
        may_delete_files = mover.done_ms is None and change.what[0] in (GONE, REPLACED)
        return ChangeOrigin("run", frozenset(passed), evidence, mover.node, may_delete_files)
    if movers and not same_clock:
        mover = _nearest(movers, change.identifier)
        evidence = f"this run sent: {shown(mover.text)}"
        return ChangeOrigin("unknown", frozenset(), evidence, mover.node)
    return ChangeOrigin("others")


MAIN = "main"
"""In `MainChange.what`: another snapshot is current."""
TAGS = "the tags "
"""The beginning of an entry of `MainChange.what`: receipts are gone or moved."""
GONE, NEW, REPLACED = "it no longer exists", "it was created", "it was replaced"
"""In `MainChange.what`: a change of the whole table or view."""


def format_change(
    change: MainChange, judgement: ChangeOrigin, seconds: float | None, problem: str, *, back: bool
) -> str:
    """Return the summary's message about a change by this run.

    Args:
        seconds: The time that readers saw it; None if not known.
        problem: The reason why it was not put back.
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
    return f"{text}; readers see {change.seen}: it was not put back, because {problem}"


def named(text: str) -> set[Identifier]:
    """Return all pairs of adjacent parts of the dotted names in a statement.

    A name may begin with a catalog, or end with a branch.
    """
    found = set()
    for match in _DOTTED.finditer(_plain(text)):
        parts = _parts(match[0])
        found |= {(parts[i], parts[i + 1]) for i in range(len(parts) - 1)}
    return found


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.strip("`").replace("``", "`") for part in _PART.findall(name))


def about(commands: Iterable[SentCommand]) -> set[Identifier] | None:
    """Return the tables that commands may have moved; None if not known."""
    texts = [command.text for command in commands]
    if any(_hides(text) or _DROPS_SCHEMA.search(_read(text)[1]) for text in texts):
        return None
    names = [named(text) for text in texts]
    # A name without a schema means a table of the session's current schema.
    return set().union(*names) if all(names) else None


def shown(text: str) -> str:
    """Return a statement in one line, cut to the length of a summary's line."""
    line = _plain(text)
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 4]} ..."


_SHOWN = 90


def _wrote(
    writer: Writer,
    run_id: str,
    able: Sequence[SentCommand],
    application: Application | None,
    identifier: Identifier,
) -> tuple[str, str | None] | None:
    """Return the evidence that this run wrote a snapshot, and the node; None without evidence."""
    if writer.published or (writer.maintained and writer.run_id != run_id):
        return None
    at_work = [command for command in able if _at_work(command, (writer.at_ms,))]
    node = _nearest(at_work, identifier).node if at_work else None
    if writer.run_id == run_id:
        return f"snapshot {writer.snapshot_id} on it has this run's id", node
    elsewhere = writer.app_id is None or (
        application is not None and writer.app_id != application.app_id
    )
    marks = application is None or application.marks
    unmarked = [
        command
        for command in at_work
        if _may_lack_id(command) or (not marks and _writes_main(command, identifier))
    ]
    if elsewhere or not unmarked:
        return None
    mover = _nearest(unmarked, identifier)
    sent = shown(mover.text)
    evidence = f"snapshot {writer.snapshot_id} on it was written while this run sent: {sent}"
    return evidence, mover.node


def _nearest(commands: Sequence[SentCommand], identifier: Identifier) -> SentCommand:
    """Return the last command that names a table, or else the last command."""
    naming = [command for command in commands if _is_named(_read(command.text)[1], identifier)]
    return (naming or commands)[-1]


def _may_lack_id(command: SentCommand) -> bool:
    return not command.marked or _read(command.text)[0] not in _MARKED or _hides(command.text)


def _writes_main(command: SentCommand, identifier: Identifier) -> bool:
    """Return whether a command writes to ``main`` of a table, in spite of the session's branch."""
    plain = _read(command.text)[1]
    found = [*_WRITES_MAIN.finditer(plain), _CREATES.match(plain.lstrip("(; "))]
    wanted = tuple(part.lower() for part in identifier)
    return any(one and _parts(one[1])[-2:] == wanted for one in found)


def _may_move(command: SentCommand, change: MainChange) -> bool:
    """Return whether a command can cause a change without writing a snapshot."""
    first, plain = _read(command.text)
    if _hides(command.text):
        return True
    if all(part.startswith(TAGS) for part in change.what):
        # Receipts also go by a sweep or a maintenance.
        return first in ("alter", "call")
    return first not in _ROWS_ONLY and (
        change.what != (GONE,) or _TAKES_AWAY.search(plain) is not None
    )


def _touches(command: SentCommand, identifier: Identifier) -> bool:
    return _hides(command.text) or _is_named(_read(command.text)[1], identifier)


def _is_named(text: str, identifier: Identifier) -> bool:
    schema, name = (part.lower() for part in identifier)
    if any(found in (None, schema) for found in _schemas_of(text, name)):
        return True
    dropped = _DROPS_SCHEMA.search(text) is not None
    return dropped and any(True for _ in _schemas_of(text, schema))


def _schemas_of(text: str, name: str) -> Iterator[str | None]:
    """Return the schema before each occurrence of a name in a text; None if there is none.

    The schema matters, because a run builds tables of the same names in its side schemas.
    """
    quoted = re.escape(name.replace("`", "``"))
    for found in re.finditer(rf"(?:(`(?:[^`]|``)*`|\w+)\s*\.\s*)?(?<!\w)`?{quoted}(?!\w)", text):
        yield found[1].strip("`").replace("``", "`") if found[1] else None


def _hides(text: str) -> bool:
    first, plain = _read(text)
    return first == "begin" or any(found.search(plain) for found in (_HIDES, _WORKED_OUT))


def _at_work(command: SentCommand, times: Iterable[int]) -> bool:
    """Return whether a command ran at one of the times; True if no times are known."""
    times = tuple(times)
    end = command.done_ms if command.done_ms is not None else float("inf")
    return not times or any(command.sent_ms - 1 <= at <= end + 1 for at in times)


def _only(able: Sequence[SentCommand], commands: Sequence[SentCommand]) -> str | None:
    """Return the node that caused a change; None if several may have."""
    nodes = {command.node for command in able} or {command.node for command in commands}
    return next(iter(nodes)) if len(nodes) == 1 else None


@lru_cache(maxsize=1024)
def _plain(text: str) -> str:
    """Return a statement without comments, with one space between tokens and none around dots."""
    return _AROUND_DOTS.sub(".", " ".join(token.text for token in tokens(text)))


def _read(text: str) -> tuple[str, str]:
    """Return the first word of a statement, and the result of `_plain`; both in lower case."""
    plain = _plain(text).lower()
    return (plain.lstrip("(; ").split(" ", 1) or [""])[0], plain
