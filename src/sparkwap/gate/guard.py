"""The guard: a statement reaches Spark only if it is known to harm no live table.

On an audit branch only rows are apart from `main`. Columns, properties, refs and the table itself
belong to all branches, so a statement that changes those changes what readers of `main` see, at
once and unaudited; and a write that names another branch, or a gated table that the run does not
build, goes past the gate.

Nobody can list all statements that do harm. So `classify` tells what a statement is, from a lexer
that reads what Spark reads, and `check` sends what is on a list: queries, settings and temporary
objects of the session, writes of a run to the tables that it builds, anything in the side schemas
of its audit branch, and writes to tables that are certainly not gated. What cannot be read, and
what is not known, is refused. Only the part of a statement that names its target is looked at, so a
large INSERT costs no more than a small one.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

from sparkwap.core import sqllex
from sparkwap.core.errors import GateError
from sparkwap.gate.session_settings import settable

Name = tuple[str, ...]
"""A name part by part, as it is written, without quotes: `("lake", "insurance", "Policies")`."""

Identifier = tuple[str, str]
"""Schema and name of a table or view in the lake's catalog."""

Kind = Literal["read", "session", "change", "maintain", "unknown"]
"""What a statement is.

- `read`: returns rows, and changes nothing.
- `session`: changes what only its own session sees.
- `change`: changes the tables, views or functions that it names.
- `maintain`: deletes snapshots and files that nobody reads any more.
- `unknown`: anything else.
"""

Action = Literal["write", "create", "replace", "drop", "purge", "alter"]
"""What is done to a target: to its rows (`write`), or to the object itself."""

Standing = Literal["side", "placed", "gated", "node", "own", "table", "view", "absent"]
"""What a name means now.

- `side`: something in a side schema of this run's audit branch.
- `placed`: a table that this run builds on its audit branch.
- `gated`: a table whose rows come by the gate, and that is not placed.
- `node`: a model, seed or snapshot of the project, whatever stands there.
- `own`: sparkwap's own: its ledger, or a side schema of another audit branch.
- `table`: a table that is none of these: no gate stands before it.
- `view`: a view that is none of these.
- `absent`: nothing.
"""

Phase = Literal["run", "closed", "outside"]
"""Of an invocation: a run is open, its gate has decided, or the command opens none."""

END_SESSION = "end session"
"""What `session_changes` returns for a change that no statement can undo. It is not SQL."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a statement changes: its name, what kind of thing it is, and what is done to it."""

    name: Name
    kind: str
    action: Action


@dataclass(frozen=True, slots=True)
class Statement:
    """What a statement is.

    Attributes:
        kind: See `Kind`.
        verb: Its first words, for messages: `insert into`, `alter table`.
        targets: All that it changes; empty but for `change`.
        beyond: Why its effect is not told by its targets alone: `options of the write`, `location`;
            empty where it is.
        why: Of what is `unknown`, why it is.
    """

    kind: Kind
    verb: str = ""
    targets: tuple[Target, ...] = ()
    beyond: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """Who sends a statement, and what names mean there.

    Attributes:
        catalog: The lake's catalog, as Spark knows it.
        look: Tells what stands under a name of the lake, compared to the letter.
        phase: See `Phase`.
        named: Tables that somebody has allowed writes to by name (`wap_writes`).
    """

    catalog: str
    look: Callable[[Identifier], Standing]
    phase: Phase
    named: Collection[Name] = ()


def check(sql: str, scope: Scope) -> None:
    """Refuse a statement that is not known to be harmless.

    Args:
        sql: One statement; comments and common table expressions may stand before it.
        scope: Who sends it.

    Raises:
        GateError: It is not sent; the message says why, and what to do instead.
    """
    told = refusal(sql, scope)
    if told is not None:
        raise GateError(told)


def refusal(sql: str, scope: Scope) -> str | None:
    """Return why a statement is not sent, and what to do instead; None if it is. See `check`."""
    try:
        _permit(classify(sql), scope)
    except _Refused as refused:
        return str(refused)
    return None


def classify(sql: str) -> Statement:
    """Tell what a statement is.

    Args:
        sql: One statement. What Spark would not parse may come out as anything.
    """
    try:
        head = _Head(sql)
        if not sql.strip():
            return Statement("read")
        return _classified(head)
    except _Unreadable as problem:
        return Statement("unknown", why=f"{problem}, so the guard cannot tell what it does")


def written_tables(sql: str) -> tuple[Name, ...]:
    """Return the tables that a statement writes rows to; none for other statements."""
    return tuple(t.name for t in classify(sql).targets if t.action == "write")


def dropped(sql: str) -> tuple[Name, ...]:
    """Return the tables and views that a statement drops."""
    return tuple(target.name for target in classify(sql).targets if target.action == "drop")


def name_of(text: str) -> Name:
    """Read a table's name as SQL has it: `schema.table`, with backquotes or without.

    Raises:
        ValueError: It is no such name, or has no schema.
    """
    try:
        head = _Head(text)
        name = head.name()
        if head.peek() or len(name) < 2:
            raise ValueError(f"{text!r} is not a name with its schema")
    except _Unreadable as problem:
        raise ValueError(f"{text!r}: {problem}") from None
    return name


def identifier_of(name: Name, catalog: str) -> Identifier | None:
    """Return the table of the lake that a name means; None for what may be elsewhere.

    Args:
        name: As a statement has it.
        catalog: The lake's catalog, as Spark knows it.
    """
    parts = name[1:] if len(name) == 3 and name[0] == catalog else name
    # `lake.t` is a table of that catalog without a schema.
    if len(parts) != 2 or (parts is name and parts[0] == catalog):
        return None
    return parts[0], parts[1]


def session_changes(sql: str) -> str | None:
    """Return the statement that undoes what `sql` changes in its session.

    Returns:
        None where nothing has to be undone; SQL for what can be; `END_SESSION` where only a new
        session helps (`use`, `reset`, `add jar`), and for every statement that is not known.
    """
    try:
        head = _Head(sql)
        verb = head.next()
        if verb in _UNDOS:
            return _UNDOS[verb](head)
    except _Unreadable:
        return END_SESSION
    return None if verb in _STATELESS else END_SESSION


def undoing(changes: Iterable[str], settings: Mapping[str, str]) -> list[str]:
    """Return the statements that undo changes of a session, in their order.

    Args:
        changes: What `session_changes` has returned, in the order of the statements.
        settings: What the session was opened with. `reset` goes back to the server's default, so
            these have to be set again.
    """
    undo: list[str] = []
    for change in dict.fromkeys(reversed(list(changes))):
        key = change.removeprefix("reset ").strip("`")
        if change == END_SESSION:
            continue
        if key != change and key in settings:
            undo.append(f"set `{key}`={settings[key]}")
            continue
        if change.startswith(_DROP_VIEW) and not change.startswith(_DROP_VIEW + "global_temp."):
            # The node may have dropped it, and then the name means a view that others read.
            view = change.removeprefix(_DROP_VIEW)
            undo.append(f"create or replace temporary view {view} as select 1 as nothing")
        undo.append(change)
    return undo


# --- the rule -----------------------------------------------------------------------------------

_CHANGES: frozenset[Action] = frozenset({"create", "replace", "drop", "alter"})
_HARMLESS: dict[Standing, frozenset[Action]] = {
    # Not `purge`: a clone shares its files with the live table.
    "side": _CHANGES | {"write"},
    "placed": frozenset({"write"}),
    "table": _CHANGES | {"write", "purge"},
    "absent": frozenset({"create", "replace", "drop"}),
}
_NAMEABLE: frozenset[Standing] = frozenset({"table", "view", "absent"})
"""What `wap_writes` can open: never what is gated."""

_UNCHANGED = "It was not sent to Spark, and readers of main see no change."
_NAMED = (
    "If no gate stands before it, name it: `wap_writes: [schema.table]` in the config of the model "
    "or the vars of the project."
)
_BY_HAND = "or, by hand and at your own risk, add --vars 'wap_guard: false'."
_AUTHOR = {
    "run": f"Leave it out, run it outside of dbt, {_BY_HAND}",
    "closed": f"Leave it out, run it outside of dbt, {_BY_HAND}",
    "outside": f"This command opens no run, so it only reads. Run it outside of dbt, {_BY_HAND}",
}
_BRANCH_PREFIXES = ("branch_", "tag_")


class _Refused(Exception):
    """What is told of a statement that is not sent."""


def _permit(statement: Statement, scope: Scope) -> None:
    """Refuse a statement that is not known to be harmless."""
    if statement.kind == "unknown":
        _refuse(statement.verb or "a statement", statement.why, _AUTHOR[scope.phase])
    if statement.kind == "maintain" and scope.phase != "closed":
        _refuse(
            statement.verb,
            "it deletes snapshots and files that an audit needs",
            "Maintenance has its time when no run is on.",
        )
    for target in statement.targets:
        _require(target, statement, scope)


def _refuse(what: str, harm: str, instead: str) -> NoReturn:
    raise _Refused(f"The guard refused {what}: {harm}. {_UNCHANGED} {instead}")


def _require(target: Target, statement: Statement, scope: Scope) -> None:
    """Refuse a change of a target that is not known to be harmless."""
    what = f"{statement.verb} {'.'.join(target.name)}"
    identifier = identifier_of(target.name, scope.catalog)
    if _is_named(target.name, scope):
        return
    if identifier is None:
        _refuse(what, *_elsewhere(target.name, scope))
    standing = scope.look(identifier)
    if standing == "side" and scope.phase == "run" and target.action in _HARMLESS["side"]:
        return
    if statement.beyond:
        _refuse(what, f"{statement.beyond} may lead past the gate", f"Leave it out. {_NAMED}")
    # A function is not in the lake's catalog, so nothing is known of it.
    if target.kind == "function" or target.action not in _harmless(standing, scope.phase):
        _refuse(what, *_harm(target, standing, scope))


def _harmless(standing: Standing, phase: Phase) -> frozenset[Action]:
    """What may be done to what stands under a name without a word of anybody's."""
    if phase == "outside":
        return frozenset({"drop"}) if standing == "absent" else frozenset()
    if phase == "closed" and standing not in _NAMEABLE:
        return frozenset()
    return _HARMLESS.get(standing, frozenset())


def _is_named(name: Name, scope: Scope) -> bool:
    """Whether writes to a table were allowed by its name; never to one that is gated."""
    own = identifier_of(name, scope.catalog)
    if own is not None:
        named = {identifier_of(one, scope.catalog) for one in scope.named}
        return own in named and scope.look(own) in _NAMEABLE
    # Another catalog may be the lake's under another name, and `s.t.branch_b` is no table of one.
    return (
        len(name) == 3
        and name in scope.named
        and scope.look((name[0], name[1])) == "absent"
        and scope.look((name[1], name[2])) in _NAMEABLE
    )


def _elsewhere(name: Name, scope: Scope) -> tuple[str, str]:
    """Why a name that is not certainly a table of the lake is refused, and what to do instead."""
    if len(name) < 2:
        return (
            "which table a name without a schema means is up to the session",
            "Write the schema in front of the name.",
        )
    table = ".".join(name[:-1])
    inner = identifier_of(name[:-1], scope.catalog)
    if name[-1].startswith(_BRANCH_PREFIXES) and inner and scope.look(inner) != "absent":
        return (
            f"it names a branch of {table} past the gate",
            f"Write to {table} itself: inside a run that is the audit branch. Another branch is "
            "chosen with --vars 'wap_branch: <name>'.",
        )
    return "it is not certainly a table of the lake without a gate", _NAMED


def _harm(target: Target, standing: Standing, scope: Scope) -> tuple[str, str]:
    """Why a change of something in the lake is refused, and what to do instead."""
    name = ".".join(target.name)
    if standing == "own":
        return f"{name} is sparkwap's own", "Use dbt run-operation wap_status, wap_discard, ..."
    if standing == "side":
        return (
            "what is there is a run's, and shares files with the live table",
            "Use dbt run-operation wap_discard to drop an audit branch.",
        )
    if scope.phase == "outside" and standing in _NAMEABLE:
        return "this command opens no run, so it only reads", _NAMED
    if target.action == "write" and standing == "absent":
        return f"there is no table {name}", "Create it first, or correct its name."
    if target.action == "write" and standing in ("gated", "node", "placed"):
        return _stray(scope.phase), "Make the rows part of the table's own model."
    if standing in ("gated", "node", "placed") and target.action in ("drop", "purge"):
        return (
            f"{name} is live, or will be by the gate, and its readers would lose it at once",
            "Leave it out. To give the table up, disable or delete its model, then drop the table "
            "outside of dbt.",
        )
    if standing in ("gated", "node", "placed"):
        return (
            f"{name} is live, or will be by the gate: columns, properties, branches and the table "
            "itself belong to all of its branches, so its readers would see the change at once",
            "Change the model instead: a run builds what changed beside the table, and publishes "
            "it with the rows.",
        )
    return f"it cannot be known who reads {name}", _NAMED


def _stray(phase: str) -> str:
    if phase == "run":
        return (
            "the table is gated and its build in this run has not begun, or is in a side schema, "
            "where `this` and ref() name it, so the rows would go to a branch that nobody audits "
            "or publishes"
        )
    return "the table is gated, so the rows would reach readers of main without an audit"


# --- what a statement is ------------------------------------------------------------------------


def _unknown(verb: str, why: str = "it is not known to be harmless") -> Statement:
    return Statement("unknown", verb, why=why)


def _changes(verb: str, *targets: Target, beyond: str = "") -> Statement:
    return Statement("change", verb, targets, beyond)


def _classified(head: "_Head") -> Statement:
    """What the statement from here on is."""
    verb = head.next()
    if verb == "with":
        head.skip_ctes()
        verb = head.next()
        if verb not in _AFTER_CTES:
            return _unknown(f"with ... {verb}".rstrip())
    rule = _RULES.get(verb)
    if verb in _QUERIES:
        return _query(head, verb)
    return rule(head, verb) if rule is not None else _unknown(verb)


def _read(head: "_Head", verb: str) -> Statement:
    return Statement("read", verb)


def _session(head: "_Head", verb: str) -> Statement:
    return Statement("session", verb)


def _query(head: "_Head", verb: str) -> Statement:
    """A query, or the inserts that stand behind one: `from s insert into t select ...`."""
    inserts = []
    # Of all queries only those that begin with `from` can go on with an insert.
    while verb == "from" and head.take_insert():
        inserts.append(_insert(head, "insert"))
    if not inserts:
        return Statement("read", verb)
    odd = [one for one in inserts if one.kind != "change"]
    if odd:
        return odd[0]
    targets = tuple(target for one in inserts for target in one.targets)
    beyond = next((one.beyond for one in inserts if one.beyond), "")
    return Statement("change", inserts[0].verb, targets, beyond)


def _explain(head: "_Head", verb: str) -> Statement:
    """Spark plans what it explains; what is not known may be run for that (`execute immediate`)."""
    head.take_any("logical", "formatted", "extended", "codegen", "cost")
    inner = _classified(head)
    return inner if inner.kind == "unknown" else Statement("read", verb)


def _insert(head: "_Head", verb: str) -> Statement:
    evolves = head.take("with", "schema", "evolution")
    if not head.take_any("into", "overwrite"):
        return _unknown(verb)
    verb = f"{verb} {head.last}"
    head.take_keyword("table")
    return _written(head, verb, evolves=evolves)


def _merge(head: "_Head", verb: str) -> Statement:
    evolves = head.take("with", "schema", "evolution")
    if not head.take("into"):
        return _unknown(verb)
    return _written(head, "merge into", evolves=evolves)


def _delete(head: "_Head", verb: str) -> Statement:
    return _written(head, "delete from") if head.take("from") else _unknown(verb)


def _truncate(head: "_Head", verb: str) -> Statement:
    return _written(head, "truncate table") if head.take("table") else _unknown(verb)


def _update(head: "_Head", verb: str) -> Statement:
    return _written(head, verb)


def _written(head: "_Head", verb: str, *, evolves: bool = False) -> Statement:
    target = Target(head.name(), "table", "write")
    beyond = "an option of the write" if head.take("with", "(") else ""
    if not evolves:
        return _changes(verb, target, beyond=beyond)
    return _changes(f"{verb} with schema evolution,", target, replace(target, action="alter"))


def _create(head: "_Head", verb: str) -> Statement:
    action: Action = "replace" if head.take("or", "replace") else "create"
    head.take("global")
    if head.take_any("temporary", "temp"):
        known = head.peek() in ("view", "function")
        return Statement("session", verb) if known else _unknown("create temporary")
    head.take("external")
    kind = head.next()
    if kind in _SCHEMAS:  # a new one, or none
        return Statement("session", f"create {kind}")
    return _created(head, f"create {kind}" if action == "create" else f"create or replace {kind}")


def _replace(head: "_Head", verb: str) -> Statement:
    return _created(head, "replace table") if head.next() == "table" else _unknown(verb)


def _created(head: "_Head", verb: str) -> Statement:
    action: Action = "replace" if "replace" in verb else "create"
    kind = verb.rpartition(" ")[2]
    if kind not in _OBJECTS:
        return _unknown(verb)
    head.take("if", "not", "exists")
    name = head.name()
    # What is made where other files are may delete them when it is overwritten or dropped.
    placed = kind == "table" and head.has_clause("location", "options")
    return _changes(verb, Target(name, kind, action), beyond=_PLACE if placed else "")


def _drop(head: "_Head", verb: str) -> Statement:
    if head.take_any("temporary", "temp"):
        return Statement("session", "drop temporary")
    kind = head.next()
    verb = f"drop {kind}"
    if kind not in _OBJECTS:
        return _unknown(verb)
    head.take("if", "exists")
    name = head.name()
    if kind == "view" and len(name) == 1:
        # The session's own; a view of that name in its schema is found by `check`.
        name = (_DEFAULT_SCHEMA, *name)
    return _changes(verb, Target(name, kind, "purge" if head.take("purge") else "drop"))


def _alter(head: "_Head", verb: str) -> Statement:
    kind = head.next()
    verb = f"{verb} {kind}"
    if kind not in ("table", "view"):
        return _unknown(verb)
    head.take("if", "exists")
    target = Target(head.name(), kind, "alter")
    if head.take("rename", "to"):
        return _changes(verb, replace(target, action="drop"), Target(head.name(), kind, "create"))
    return _changes(verb, target, beyond=_PLACE if head.take("set", "location") else "")


def _comment(head: "_Head", verb: str) -> Statement:
    if not (head.take("on") and head.take_any("table", "view")):
        return _unknown("comment on")
    return _changes("comment on table", Target(head.name(), "table", "alter"))


def _analyze(head: "_Head", verb: str) -> Statement:
    if not head.take("table"):
        return _unknown(verb)
    return _changes("analyze table", Target(head.name(), "table", "alter"))


def _call(head: "_Head", verb: str) -> Statement:
    name = head.name()
    procedure = name[-1].lower()
    verb = f"call {procedure}"
    if len(name) < 2 or name[-2].lower() != "system":
        return _unknown(verb)
    if procedure in _READING_PROCEDURES:
        return Statement("read", verb)
    if procedure in _MAINTENANCE:
        return Statement("maintain", verb)
    return _unknown(
        verb,
        "a procedure may move main, or put rows or files past the gate (main is moved by dbt "
        "run-operation wap_publish or wap_rollback)",
    )


def _set(head: "_Head", verb: str) -> Statement:
    if head.peek() in ("", "-"):  # shows settings
        return Statement("read", verb)
    if head.take("time", "zone"):
        return Statement("session", verb)
    if head.take_any("variable", "var"):
        return Statement("session", verb)
    key, follows = head.setting()
    if not follows and "." in key and _KEY.fullmatch(key):  # shows it
        return Statement("read", verb)
    known = follows == "=" and _settable(key)
    return Statement("session", verb) if known else _refused_setting(verb, key)


def _reset(head: "_Head", verb: str) -> Statement:
    key, follows = head.setting()
    known = not follows and _settable(key)
    return Statement("session", verb) if known else _refused_setting(verb, key)


def _settable(key: str) -> bool:
    # The materializations say themselves how partitions are overwritten before they do so.
    own = key == "spark.sql.sources.partitionOverwriteMode"
    return _KEY.fullmatch(key) is not None and (own or settable(key))


def _refused_setting(verb: str, key: str) -> Statement:
    return _unknown(
        f"{verb} {key}".rstrip(),
        "it is not among the settings that are known to leave writes where they are (a setting of "
        "all sessions has its place in the profile's server_side_parameters, the branch of a run "
        "in --vars 'wap_branch: <name>')",
    )


def _use(head: "_Head", verb: str) -> Statement:
    return _unknown(
        verb,
        "names without a schema or catalog would mean something else after it; write the "
        "schema in front of each name",
    )


_PLACE = "a place of its own"
_OBJECTS = frozenset({"table", "view", "function"})
_SCHEMAS = frozenset({"schema", "database", "namespace"})
_DEFAULT_SCHEMA = "default"
"""Where a session of the Thrift server begins; as `use` is refused, it stays there."""

_QUERIES = frozenset({"(", "from", "select", "table", "values", "map", "reduce"})
_AFTER_CTES = _QUERIES | {"insert", "merge", "update", "delete"}
_READING_PROCEDURES = frozenset({"ancestors_of", "create_changelog_view"})
_MAINTENANCE = frozenset({"expire_snapshots", "remove_orphan_files"})
_RULES: dict[str, Callable[["_Head", str], Statement]] = {
    "add": _session,
    "alter": _alter,
    "analyze": _analyze,
    "cache": _session,
    "call": _call,
    "clear": _session,
    "comment": _comment,
    "create": _create,
    "declare": _session,
    "delete": _delete,
    "desc": _read,
    "describe": _read,
    "drop": _drop,
    "explain": _explain,
    "insert": _insert,
    "list": _read,
    "merge": _merge,
    "refresh": _read,
    "replace": _replace,
    "reset": _reset,
    "set": _set,
    "show": _read,
    "truncate": _truncate,
    "uncache": _session,
    "update": _update,
    "use": _use,
}
_KEY = re.compile(r"[\w.:-]+", re.ASCII)


# --- what a session must undo -------------------------------------------------------------------


def _undo_set(head: "_Head") -> str | None:
    if head.take("time", "zone"):
        return "reset spark.sql.session.timeZone"
    if head.take("catalog"):
        return END_SESSION
    if head.take_any("variable", "var"):
        return None  # undone where it is declared
    key, follows = head.setting()
    if not follows:  # shows it
        return None
    if follows != "=" or not _KEY.fullmatch(key):
        return END_SESSION
    # To the letter: Spark takes a key of other case for another setting, and resets nothing.
    return f"reset {key}" if re.fullmatch(r"[\w.]+", key) else f"reset `{key}`"


def _undo_create(head: "_Head") -> str | None:
    head.take("or", "replace")
    scope = "global_temp." if head.take("global") else ""
    if not head.take_any("temporary", "temp"):
        return None
    kind = head.next()
    head.take("if", "not", "exists")
    name = head.name_as_written()
    if kind == "function":
        return f"drop temporary function if exists {name}"
    return f"{_DROP_VIEW}{scope}{name}"


def _undo_declare(head: "_Head") -> str | None:
    head.take("or", "replace")
    head.take_any("variable", "var")
    return f"drop temporary variable if exists {head.name_as_written()}"


def _undo_cache(head: "_Head") -> str | None:
    head.take("lazy")
    return f"uncache table if exists {head.name_as_written()}" if head.take("table") else None


def _undo_by_new_session(head: "_Head") -> str | None:
    return END_SESSION


_DROP_VIEW = "drop view if exists "
# Statements that leave their session as it is. The empty one is a comment.
_STATELESS = frozenset(
    """
    ( alter analyze call comment delete desc describe drop explain from grant insert list map merge
    msck optimize reduce refresh repair replace select show table truncate uncache update values
    with
    """.split()  # noqa: SIM905 - a page of one word a line
) | {""}
_UNDOS: dict[str, Callable[["_Head"], str | None]] = {
    "add": _undo_by_new_session,
    "cache": _undo_cache,
    "create": _undo_create,
    "declare": _undo_declare,
    "reset": _undo_by_new_session,
    "set": _undo_set,
    "use": _undo_by_new_session,
}


# --- reading a statement ------------------------------------------------------------------------

_BRACKETS = {"(": 1, ")": -1}
_ASSIGNMENT = re.compile(r"\s*(`(?:[^`]|``)*`|[^=;\s]*)\s*(=?)")


class _Unreadable(Exception):
    """The statement is not one that the guard certainly reads as Spark does."""


class _Head:
    """Reads a statement from its beginning, token by token.

    Tokens come in lower case, names as they are written; an empty token is the end.
    """

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = sqllex.tokens(sql)
        self._read: list[sqllex.Token] = []
        self._at = 0
        self.last = ""

    def peek(self) -> str:
        """Return the next token and stay before it."""
        token = self._token()
        return "" if token is None else token.text.lower()

    def next(self) -> str:
        """Return the next token and go past it."""
        self.last = self.peek()
        self._at += 1 if self.last else 0
        return self.last

    def take(self, *words: str) -> bool:
        """Go past these words if they come next, all of them."""
        start = self._at
        for word in words:
            if self.next() != word:
                self._at = start
                return False
        return True

    def take_any(self, *words: str) -> bool:
        """Go past the next token if it is one of these words."""
        return any(self.take(word) for word in words)

    def take_keyword(self, word: str) -> None:
        """Go past a word that may be left out, unless a name begins with it."""
        start = self._at
        if self.take(word) and self.peek() == ".":
            self._at = start

    def name(self) -> Name:
        """Go past a name and return its parts."""
        parts = self._part()
        while self.take("."):
            parts += self._part()
        return parts

    def name_as_written(self) -> str:
        """Go past a name and return its text."""
        first = self._token()
        self.name()
        return self._sql[first.start if first else 0 : self._end()]

    def setting(self) -> tuple[str, str]:
        """Go to the end of a `set` or `reset`, and return its key and what follows that.

        Of the text as it is, as Spark does, not of its tokens: a key may hold anything.
        """
        match = _ASSIGNMENT.match(self._sql, self._end())
        if match is None:
            return "", ""
        return match[1].strip("`"), match[2] or self._sql[match.end() :].strip(" ;\n\t")

    def has_clause(self, *words: str) -> bool:
        """Whether one of these words comes before the query, brackets left out."""
        while (token := self.next()) not in ("", "as", "select", "with", "from", "values"):
            if token in words:
                return True
            if token == "(":
                self._skip_brackets()
        return False

    def skip_ctes(self) -> None:
        """Go past the common table expressions that `with` begins."""
        recursive = self.take("recursive")
        if recursive and self.peek() in ("as", "("):  # it is a name here
            self._at -= 1
        while True:
            self._part()
            if self.take("("):
                self._skip_brackets()
                if self.take(","):  # that was the body, not a list of columns
                    continue
                if self.peek() not in ("as", "max", "("):
                    return
            if self.take("max", "recursion", "level"):
                self.next()
            self.take("as")
            if not self.take("("):
                raise _Unreadable("its common table expressions are not understood")
            self._skip_brackets()
            if not self.take(","):
                return

    def take_insert(self) -> bool:
        """Go past the next `insert` that begins one, wherever it is."""
        while token := self.next():
            if token == "insert" and self.peek() in ("into", "overwrite", "with"):
                return True
        return False

    def _skip_brackets(self) -> None:
        """Go past the bracket that belongs to the open one right before here."""
        depth = 1
        while depth:
            token = self._token()
            if token is None:
                raise _Unreadable("a bracket has no end")
            self._at += 1
            depth += _BRACKETS.get(token.text, 0)

    def _part(self) -> Name:
        token = self._token()
        if token is None or not (token.is_name or token.text[0] == '"'):
            raise _Unreadable("a name is missing")
        self._at += 1
        if token.is_word("identifier") and self.take("("):
            return self._named_by_text()
        return (token.text[1:-1].replace('""', '"') if token.text[0] == '"' else token.value,)

    def _named_by_text(self) -> Name:
        """The name in `identifier('a.b')`; one that Spark has to work out is not known."""
        token = self._token()
        self._at += 1
        if token is None or token.kind != "string" or not self.take(")"):
            raise _Unreadable("the name in `identifier(...)` is worked out by Spark")
        inner = _Head(token.value)
        name = inner.name()
        if inner.peek():
            raise _Unreadable("the name in `identifier(...)` is not understood")
        return name

    def _token(self) -> sqllex.Token | None:
        while self._at >= len(self._read):
            token = next(self._tokens, None)
            if token is None:
                return None
            if token.kind == "unclosed":
                raise _Unreadable("a quote or comment has no end")
            self._read.append(token)
        return self._read[self._at]

    def _end(self) -> int:
        return self._read[self._at - 1].end if self._at else 0
