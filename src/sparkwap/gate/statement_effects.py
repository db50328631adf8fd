"""Classifies statements: whether a statement reads or changes, and which objects it changes.

Only the part of a statement that names its target is read, so a large INSERT costs no more than a
small one. A statement that cannot be read, or that is not on a list here, is `unknown`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from sparkwap.catalog import metadata as md
from sparkwap.gate.session_settings import settable
from sparkwap.gate.statement_reader import SETTING_KEY, Name, StatementReader, UnreadableStatement

StatementKind = Literal["read", "session", "change", "maintain", "unknown"]
"""The kind of a statement.

- `read`: returns rows, and changes nothing.
- `session`: changes only its own session.
- `change`: changes the tables, views or functions that it names.
- `maintain`: deletes old snapshots and unused files.
- `unknown`: anything else.
"""

Action = Literal["write", "create", "replace", "drop", "purge", "alter", "unguard"]
"""The change of a target: of its rows (`write`), of the object itself, or of a property that keeps
its rows from readers or its files from deletion (`unguard`)."""


@dataclass(frozen=True, slots=True)
class StatementTarget:
    """An object that a statement changes: its name, its kind, and the change."""

    name: Name
    kind: str
    action: Action


@dataclass(frozen=True, slots=True)
class Statement:
    """The effects of a statement.

    Attributes:
        verb: Its first words, for messages: `insert into`, `alter table`.
        targets: All objects that it changes; empty unless its kind is `change`.
        beyond: A clause that may have effects beyond its targets, such as an option of the write;
            empty for none.
    """

    kind: StatementKind
    verb: str = ""
    targets: tuple[StatementTarget, ...] = ()
    beyond: str = ""
    why: str = ""


def classify(sql: str) -> Statement:
    """Return the effects of a statement.

    Args:
        sql: One statement. For text that Spark cannot parse the result may be anything.
    """
    try:
        head = StatementReader(sql)
        if not sql.strip():
            return Statement("read")
        return _classified(head)
    except UnreadableStatement as problem:
        return Statement("unknown", why=f"{problem}, so the guard cannot tell what it does")


def written_tables(sql: str) -> tuple[Name, ...]:
    """Return the tables that a statement writes rows to; none for other statements."""
    return tuple(t.name for t in classify(sql).targets if t.action == "write")


def dropped_objects(sql: str) -> tuple[Name, ...]:
    """Return the tables and views that a statement drops."""
    return tuple(target.name for target in classify(sql).targets if target.action == "drop")


def name_of(text: str) -> Name:
    """Read a table's name in SQL syntax: `schema.table`, with or without backquotes.

    Raises:
        ValueError: The text is no name, or has no schema.
    """
    try:
        head = StatementReader(text)
        name = head.name()
        if head.peek() or len(name) < 2:
            raise ValueError(f"{text!r} is not a name with its schema")
    except UnreadableStatement as problem:
        raise ValueError(f"{text!r}: {problem}") from None
    return name


def _unknown(verb: str, why: str = "it is not known to be harmless") -> Statement:
    return Statement("unknown", verb, why=why)


def _changes(verb: str, *targets: StatementTarget, beyond: str = "") -> Statement:
    return Statement("change", verb, targets, beyond)


def _classified(head: StatementReader) -> Statement:
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


def _read(head: StatementReader, verb: str) -> Statement:
    return Statement("read", verb)


def _session(head: StatementReader, verb: str) -> Statement:
    return Statement("session", verb)


def _query(head: StatementReader, verb: str) -> Statement:
    """Classify a query, or the inserts that follow one: `from s insert into t select ...`."""
    inserts = []
    # Only a query that begins with `from` can continue with an insert.
    while verb == "from" and head.take_insert():
        inserts.append(_insert(head, "insert"))
    if not inserts:
        return Statement("read", verb)
    unreadable = [insert for insert in inserts if insert.kind != "change"]
    if unreadable:
        return unreadable[0]
    targets = tuple(target for insert in inserts for target in insert.targets)
    beyond = next((insert.beyond for insert in inserts if insert.beyond), "")
    return Statement("change", inserts[0].verb, targets, beyond)


def _explain(head: StatementReader, verb: str) -> Statement:
    """Classify `explain`: Spark may run the explained statement (`execute immediate`)."""
    head.take_any("logical", "formatted", "extended", "codegen", "cost")
    inner = _classified(head)
    return inner if inner.kind == "unknown" else Statement("read", verb)


def _insert(head: StatementReader, verb: str) -> Statement:
    evolves = head.take("with", "schema", "evolution")
    if not head.take_any("into", "overwrite"):
        return _unknown(verb)
    verb = f"{verb} {head.last}"
    head.take_keyword("table")
    return _written(head, verb, evolves=evolves)


def _merge(head: StatementReader, verb: str) -> Statement:
    evolves = head.take("with", "schema", "evolution")
    if not head.take("into"):
        return _unknown(verb)
    return _written(head, "merge into", evolves=evolves)


def _delete(head: StatementReader, verb: str) -> Statement:
    return _written(head, "delete from") if head.take("from") else _unknown(verb)


def _truncate(head: StatementReader, verb: str) -> Statement:
    return _written(head, "truncate table") if head.take("table") else _unknown(verb)


def _update(head: StatementReader, verb: str) -> Statement:
    return _written(head, verb)


def _written(head: StatementReader, verb: str, *, evolves: bool = False) -> Statement:
    target = StatementTarget(head.name(), "table", "write")
    beyond = "an option of the write" if head.take("with", "(") else ""
    if not evolves:
        return _changes(verb, target, beyond=beyond)
    return _changes(f"{verb} with schema evolution,", target, replace(target, action="alter"))


def _create(head: StatementReader, verb: str) -> Statement:
    action: Action = "replace" if head.take("or", "replace") else "create"
    head.take("global")
    if head.take_any("temporary", "temp"):
        known = head.peek() in ("view", "function")
        return Statement("session", verb) if known else _unknown("create temporary")
    head.take("external")
    kind = head.next()
    if kind in _SCHEMAS:  # creates a new schema, or does nothing
        return Statement("session", f"create {kind}")
    return _created(head, f"create {kind}" if action == "create" else f"create or replace {kind}")


def _replace(head: StatementReader, verb: str) -> Statement:
    return _created(head, "replace table") if head.next() == "table" else _unknown(verb)


def _created(head: StatementReader, verb: str) -> Statement:
    action: Action = "replace" if "replace" in verb else "create"
    kind = verb.rpartition(" ")[2]
    if kind not in _OBJECTS:
        return _unknown(verb)
    head.take("if", "not", "exists")
    name = head.name()
    # A table at a location with other files may delete them when it is overwritten or dropped.
    placed = kind == "table" and head.has_clause("location", "options")
    return _changes(verb, StatementTarget(name, kind, action), beyond=_PLACE if placed else "")


def _drop(head: StatementReader, verb: str) -> Statement:
    if head.take_any("temporary", "temp"):
        return Statement("session", "drop temporary")
    kind = head.next()
    verb = f"drop {kind}"
    if kind not in _OBJECTS:
        return _unknown(verb)
    head.take("if", "exists")
    name = head.name()
    if kind == "view" and len(name) == 1:
        # A view of the session, or a view of the default schema, which `check` looks up.
        name = (_DEFAULT_SCHEMA, *name)
    return _changes(verb, StatementTarget(name, kind, "purge" if head.take("purge") else "drop"))


def _alter(head: StatementReader, verb: str) -> Statement:
    kind = head.next()
    verb = f"{verb} {kind}"
    if kind not in ("table", "view"):
        return _unknown(verb)
    head.take("if", "exists")
    target = StatementTarget(head.name(), kind, "alter")
    if head.take("rename", "to"):
        return _changes(
            verb, replace(target, action="drop"), StatementTarget(head.name(), kind, "create")
        )
    guards = (md.WAP_ENABLED, md.GC_ENABLED, md.DELETE_OLD_METADATA)
    if any(one.startswith(guards) for one in head.properties()):
        target = replace(target, action="unguard")
    return _changes(verb, target, beyond=_PLACE if head.take("set", "location") else "")


def _comment(head: StatementReader, verb: str) -> Statement:
    if not (head.take("on") and head.take_any("table", "view")):
        return _unknown("comment on")
    return _changes("comment on table", StatementTarget(head.name(), "table", "alter"))


def _analyze(head: StatementReader, verb: str) -> Statement:
    if not head.take("table"):
        return _unknown(verb)
    return _changes("analyze table", StatementTarget(head.name(), "table", "alter"))


def _call(head: StatementReader, verb: str) -> Statement:
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
        "a procedure may move main, or write rows or files that bypass the gate (to move main, use "
        "dbt run-operation wap_publish or wap_rollback)",
    )


def _set(head: StatementReader, verb: str) -> Statement:
    if head.peek() in ("", "-"):  # shows settings
        return Statement("read", verb)
    if head.take("time", "zone"):
        return Statement("session", verb)
    if head.take_any("variable", "var"):
        return Statement("session", verb)
    key, follows = head.setting()
    if not follows and "." in key and SETTING_KEY.fullmatch(key):  # only shows the setting
        return Statement("read", verb)
    known = follows == "=" and _settable(key)
    return Statement("session", verb) if known else _refused_setting(verb, key)


def _reset(head: StatementReader, verb: str) -> Statement:
    key, follows = head.setting()
    known = not follows and _settable(key)
    return Statement("session", verb) if known else _refused_setting(verb, key)


def _settable(key: str) -> bool:
    # Each materialization sets this key before it overwrites partitions.
    own = key == "spark.sql.sources.partitionOverwriteMode"
    return SETTING_KEY.fullmatch(key) is not None and (own or settable(key))


def _refused_setting(verb: str, key: str) -> Statement:
    return _unknown(
        f"{verb} {key}".rstrip(),
        "it is not on the list of settings that cannot redirect a write (put a setting of all "
        "sessions in the profile's server_side_parameters; choose the branch of a run with "
        "--vars 'wap_branch: <name>')",
    )


def _use(head: StatementReader, verb: str) -> Statement:
    return _unknown(
        verb,
        "it changes the meaning of names without a schema or catalog; write the schema in front of "
        "each name",
    )


_PLACE = "a location of its own"
_OBJECTS = frozenset({"table", "view", "function"})
_SCHEMAS = frozenset({"schema", "database", "namespace"})
_DEFAULT_SCHEMA = "default"
"""The schema of a session of the Thrift server; it never changes, because `use` is refused."""

_QUERIES = frozenset({"(", "from", "select", "table", "values", "map", "reduce"})
_AFTER_CTES = _QUERIES | {"insert", "merge", "update", "delete"}
_READING_PROCEDURES = frozenset({"ancestors_of", "create_changelog_view"})
_MAINTENANCE = frozenset({"expire_snapshots", "remove_orphan_files"})
_RULES: dict[str, Callable[[StatementReader, str], Statement]] = {
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
