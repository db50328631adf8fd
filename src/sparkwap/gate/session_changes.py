"""The changes of a Spark session by a statement, and the statements that undo them."""

import re
from collections.abc import Callable, Iterable, Mapping

from sparkwap.gate.statement_reader import SETTING_KEY, StatementReader, UnreadableStatement

END_SESSION = "end session"
"""What `session_changes` returns for a change that no statement can undo. It is not SQL."""


def session_changes(sql: str) -> str | None:
    """Return the statement that undoes the change of the session by `sql`.

    Returns:
        None if there is nothing to undo, SQL if a statement can undo it, and `END_SESSION` if only
        a new session can (`use`, `reset`, `call`, `add jar`) or the statement is not known.
    """
    try:
        head = StatementReader(sql)
        verb = head.next()
        if verb in _UNDOS:
            return _UNDOS[verb](head)
    except UnreadableStatement:
        return END_SESSION
    return None if verb in _STATELESS else END_SESSION


def undo_statements(changes: Iterable[str], settings: Mapping[str, str]) -> list[str]:
    """Return the statements that undo changes of a session, in their order.

    Args:
        changes: The results of `session_changes`, in the order of the statements.
        settings: The settings that the session was opened with. `reset` restores the server's
            default, so these must be set again.
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
            # If the node has dropped the view, the name refers to a view of the schema, so create
            # the temporary view first.
            view = change.removeprefix(_DROP_VIEW)
            undo.append(f"create or replace temporary view {view} as select 1 as nothing")
        undo.append(change)
    return undo


def _undo_set(head: StatementReader) -> str | None:
    if head.take("time", "zone"):
        return "reset spark.sql.session.timeZone"
    if head.take("catalog"):
        return END_SESSION
    if head.take_any("variable", "var"):
        return None  # the undo of `declare` drops the variable
    key, follows = head.setting()
    if not follows:  # only shows the setting
        return None
    if follows != "=" or not SETTING_KEY.fullmatch(key):
        return END_SESSION
    # Keys are case-sensitive: Spark resets nothing for a key in another case.
    return f"reset {key}" if re.fullmatch(r"[\w.]+", key) else f"reset `{key}`"


def _undo_create(head: StatementReader) -> str | None:
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


def _undo_declare(head: StatementReader) -> str | None:
    head.take("or", "replace")
    head.take_any("variable", "var")
    return f"drop temporary variable if exists {head.name_as_written()}"


def _undo_cache(head: StatementReader) -> str | None:
    head.take("lazy")
    if not head.take("table"):
        return None
    name = head.name_as_written()
    if head.take("options", "("):
        head.skip_brackets()
    # Spark caches a query as a temporary view, which `uncache` keeps.
    verb = "uncache table if exists " if head.peek() in ("", ";") else _DROP_VIEW
    return f"{verb}{name}"


def _undo_by_new_session(head: StatementReader) -> str | None:
    return END_SESSION


_DROP_VIEW = "drop view if exists "
# Statements that do not change their session. The empty statement is a comment.
_STATELESS = frozenset(
    """
    ( alter analyze comment delete desc describe drop explain from grant insert list map merge msck
    optimize reduce refresh repair replace select show table truncate uncache update values with
    """.split()  # noqa: SIM905 - a page of one word a line
) | {""}
_UNDOS: dict[str, Callable[[StatementReader], str | None]] = {
    "add": _undo_by_new_session,
    "cache": _undo_cache,
    "create": _undo_create,
    "declare": _undo_declare,
    "reset": _undo_by_new_session,
    "set": _undo_set,
    "use": _undo_by_new_session,
}
