"""The guard: statements that would harm a live table are refused before they reach Spark.

On an audit branch only rows are apart from `main`. Columns, properties, refs and the table itself
belong to all branches, so a statement that changes those changes what readers of `main` see, at
once and unaudited. The guard looks at the head of each statement, as far as the name of the table,
so a large INSERT costs no more than a small one.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from sparkwap.errors import GateError

IsLive = Callable[[str], bool]

END_SESSION = "end session"
"""What `session_changes` returns for a change that no statement can undo. It is not SQL."""


def check(
    sql: str,
    is_live: IsLive,
    is_stray: IsLive = lambda name: False,
    *,
    closed: bool = False,
) -> None:
    """Refuse a statement that would harm a live table.

    Args:
        sql: One statement; comments and common table expressions may stand before it.
        is_live: Whether a name means a table or view that readers of `main` see. Called with the
            name as it is written, catalog and schema included where they are, in lower case and
            without backquotes: `lake.insurance.policies`.
        is_stray: Whether a name means a gated table that this run does not build. Only writes are
            asked for.
        closed: Whether the gate has decided, and sessions are on main: a hook that comes later.

    Raises:
        GateError: The statement would do harm; the message says what to do instead.
    """
    head = _Head(sql)
    head.skip_ctes()
    verb = head.next()
    rule = _RULES.get(verb)
    if rule is not None and not (closed and _maintains(sql)):
        rule(head, is_live)
    if verb in _WRITES:
        _refuse_stray(_written_name(sql), is_stray, closed=closed)


def written_table(sql: str) -> str | None:
    """Return the table that a statement writes rows to, named as for `check`; None for others."""
    head = _Head(sql)
    head.skip_ctes()
    return (_written_name(sql) or None) if head.next() in _WRITES else None


def session_changes(sql: str) -> str | None:
    """Return the statement that undoes what `sql` changes in its session.

    Returns:
        None where nothing has to be undone; SQL for what can be; `END_SESSION` where only a new
        session helps (`use`, `reset`, `add jar`), and for every statement that is not known.
    """
    head = _Head(sql)
    verb = head.next()
    if verb in _UNDOS:
        return _UNDOS[verb](head)
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


# --- the rules ----------------------------------------------------------------------------------

_UNCHANGED = "It was not sent to Spark, and readers of main see no change."
_BY_HAND = "To do it all the same, run it outside of a run, or add --vars 'wap_guard: false'."
_BRANCH_PREFIX = "branch_"
_MAINTENANCE = frozenset({"expire_snapshots", "remove_orphan_files"})
_PROCEDURES = _MAINTENANCE | {
    "cherrypick_snapshot",
    "fast_forward",
    "publish_changes",
    "rollback_to_snapshot",
    "rollback_to_timestamp",
    "set_current_snapshot",
}
_WAP_PROPERTY = "write.wap.enabled"
_WAP_SETTINGS = ("spark.wap.branch", "spark.wap.id")


def _refuse(what: str, harm: str, instead: str, *, by_hand: bool = True) -> None:
    parts = [f"The guard refused {what}: {harm}.", _UNCHANGED, instead]
    raise GateError(" ".join([*parts, _BY_HAND] if by_hand else parts))


def _create(head: "_Head", is_live: IsLive) -> None:
    replaces = head.take("or", "replace")
    head.take("external")
    kind = head.next()
    if kind not in ("table", "view"):  # `temporary view` is nobody else's
        return
    head.take("if", "not", "exists")
    name = head.name()
    _refuse_branch_name(name, f"create {kind} {name}", is_live)
    if replaces:
        _replaced(name, kind, is_live)


def _replace(head: "_Head", is_live: IsLive) -> None:
    if head.take("table"):
        _replaced(head.name(), "table", is_live)


def _replaced(name: str, kind: str, is_live: IsLive) -> None:
    if is_live(name):
        _refuse(
            f"create or replace {kind} {name}",
            f"{name} is live, and its readers would see the new {kind}, or no rows, at once",
            "Let the model's materialization build it: it writes to the audit branch.",
        )


def _drop(head: "_Head", is_live: IsLive) -> None:
    kind = head.next()
    if kind not in ("table", "view"):
        return
    head.take("if", "exists")
    name = head.name()
    if is_live(name):
        _refuse(
            f"drop {kind} {name}",
            f"{name} is live, and its readers would lose it at once",
            "A model that is built anew needs no drop: the gate puts the new one in its place.",
        )


def _alter(head: "_Head", is_live: IsLive) -> None:
    kind = head.next()
    if kind not in ("table", "view"):
        return
    head.take("if", "exists")
    name = head.name()
    verb, what = head.next(), head.peek()
    if kind == "view":
        harmful = verb in ("as", "rename")
    elif verb in ("set", "unset") and what == "tblproperties":
        _alter_properties(head, verb, name, is_live)
        return
    elif verb in ("create", "replace", "drop") and _names_ref(head):
        _refuse_ref_change(verb, name, is_live)
        return
    else:
        harmful = verb in ("rename", "alter", "change")
        harmful = harmful or (verb in ("add", "drop", "replace") and what in _COLUMN_WORDS)
    if harmful and is_live(name):
        _refuse_definition(f"alter {kind} {name} {verb} {what}".rstrip(), name)


_COLUMN_WORDS = ("column", "columns")


def _refuse_definition(what: str, name: str) -> None:
    _refuse(
        what,
        f"{name} is live, and columns and names belong to all of its branches, so its readers "
        "would see the change at once",
        "Change the model instead: a run builds changed columns beside the table and publishes "
        "them with the rows.",
    )


def _alter_properties(head: "_Head", verb: str, name: str, is_live: IsLive) -> None:
    head.next()
    head.take("if", "exists")
    words = head.arguments()
    for at, word in enumerate(words):
        touched = word == _WAP_PROPERTY and (at == 0 or words[at - 1] == ",")
        value = [other for other in words[at + 1 : at + 3] if other != "="][:1]
        # `true` is how a live table has to be, so that is no change.
        if touched and value != ["true"] and is_live(name):
            _refuse(
                f"alter table {name} {verb} tblproperties ('{_WAP_PROPERTY}' ...)",
                "without that property the writes of a run go straight to main",
                "The adapter keeps the property; leave it alone.",
            )


def _names_ref(head: "_Head") -> bool:
    head.take("or", "replace")
    return head.peek() in ("branch", "tag")


def _refuse_ref_change(verb: str, name: str, is_live: IsLive) -> None:
    if is_live(name):
        _refuse(
            f"alter table {name} {verb} branch or tag",
            "audit branches and receipts are made and moved by the gate alone, or it could not "
            "know what was audited",
            "Use dbt run-operation wap_publish, wap_discard or wap_rollback.",
        )


def _call(head: "_Head", is_live: IsLive) -> None:
    # Whether the table is live does not matter: a clone shares its files with a live table.
    procedure = head.name().rpartition(".")[2]
    if procedure in _PROCEDURES:
        _refuse(
            f"call {procedure}",
            "it moves main, or deletes snapshots and files that an audit needs",
            "The gate moves main: dbt run-operation wap_publish or wap_rollback. Maintenance "
            "has its time when no run is on.",
        )


def _maintains(sql: str) -> bool:
    """Whether a statement calls what deletes old snapshots or files, as a run's end may."""
    head = _Head(sql)
    return head.take("call") and head.name().rpartition(".")[2] in _MAINTENANCE


def _insert(head: "_Head", is_live: IsLive) -> None:
    evolves = head.take("with", "schema", "evolution")
    head.take_any("into", "overwrite")
    head.take("table")
    _written(head, is_live, evolves=evolves)


def _merge(head: "_Head", is_live: IsLive) -> None:
    evolves = head.take("with", "schema", "evolution")
    head.take("into")
    _written(head, is_live, evolves=evolves)


def _delete(head: "_Head", is_live: IsLive) -> None:
    head.take("from")
    _written(head, is_live)


def _truncate(head: "_Head", is_live: IsLive) -> None:
    head.take("table")
    _written(head, is_live)


def _written(head: "_Head", is_live: IsLive, *, evolves: bool = False) -> None:
    name = head.name()
    _refuse_branch_name(name, f"a write to {name}", is_live)
    if evolves and is_live(name):
        _refuse_definition(f"a write with schema evolution to {name}", name)


def _written_name(sql: str) -> str:
    """The table that a statement of `_WRITES` writes to."""
    head = _Head(sql)
    head.skip_ctes()
    head.next()
    head.take("with", "schema", "evolution")
    head.take_any("into", "overwrite", "from")
    head.take("table")
    return head.name()


def _refuse_stray(name: str, is_stray: IsLive, *, closed: bool) -> None:
    if is_stray(name):
        harm = (
            "the table is gated and the gate of this run is closed, so the rows would reach "
            "readers of main without an audit"
            if closed
            else "the table is gated and this run does not build it, so the rows would go to a "
            "branch that nobody audits or publishes"
        )
        _refuse(f"a write to {name}", harm, "Make the rows part of the table's own model.")


def _refuse_branch_name(name: str, what: str, is_live: IsLive) -> None:
    table, _, last = name.rpartition(".")
    # A table may well be called `branch_offices`; it is a branch only behind a table's name.
    if last.startswith(_BRANCH_PREFIX) and table and is_live(table):
        _refuse(
            what,
            f"it names a branch of {table} past the gate",
            f"Write to {table} itself: inside a run that is the audit branch. Another branch is "
            "chosen with --vars 'wap_branch: <name>'.",
        )


def _set(head: "_Head", is_live: IsLive) -> None:
    key, assigns = head.setting()
    if assigns and key.strip("`").lower() in _WAP_SETTINGS:
        _refuse_setting(f"set {key}")


def _reset(head: "_Head", is_live: IsLive) -> None:
    key, _ = head.setting()
    if not key or key.strip("`").lower() in _WAP_SETTINGS:
        _refuse_setting(f"reset {key}".rstrip())


def _refuse_setting(what: str) -> None:
    _refuse(
        what,
        "it takes the session off the audit branch, so writes would go straight to main",
        "Choose the branch of a run with --vars 'wap_branch: <name>'.",
        by_hand=False,
    )


_WRITES = frozenset({"delete", "insert", "merge", "truncate", "update"})
_RULES: dict[str, Callable[["_Head", IsLive], None]] = {
    "alter": _alter,
    "call": _call,
    "create": _create,
    "delete": _delete,
    "drop": _drop,
    "insert": _insert,
    "merge": _merge,
    "replace": _replace,
    "reset": _reset,
    "set": _set,
    "truncate": _truncate,
    "update": _written,
}


# --- what a session must undo -------------------------------------------------------------------


def _undo_set(head: "_Head") -> str | None:
    if head.take("time", "zone"):
        return "reset spark.sql.session.timeZone"
    if head.take("catalog"):
        return END_SESSION
    key, assigns = head.setting()  # of `set var x = 1` none: undone where x is declared
    return f"reset {key}" if assigns else None


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

_RAW_STRING = r"\b[rR](?:'[^']*'|\"[^\"]*\")"
_STRING = rf"{_RAW_STRING}|'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\""
_QUOTED = rf"{_STRING}|`(?:[^`]|``)*`"
_LINE_COMMENT = r"--(?:\\\n|[^\r\n])*"
_BLANK = re.compile(rf"(?:\s+|{_LINE_COMMENT})+")
_TOKEN = re.compile(rf"{_QUOTED}|\w+|.", re.DOTALL)
_LANDMARK = re.compile(rf"{_QUOTED}|{_LINE_COMMENT}|/\*|[()]", re.DOTALL)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ASSIGNMENT = re.compile(r"\s*(`(?:[^`]|``)*`|[^=;\s]*)\s*(=?)")


class _Head:
    """Reads a statement from its beginning, token by token, past blanks and comments.

    Tokens come in lower case; an empty one is the end.
    """

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._at = 0

    def peek(self) -> str:
        """Return the next token and stay before it."""
        return self._token().lower()

    def next(self) -> str:
        """Return the next token and go past it."""
        token = self._token()
        self._at += len(token)
        return token.lower()

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

    def name(self) -> str:
        """Go past a name and return it, lower-case, dotted, without quotes."""
        return ".".join(self._parts()).lower()

    def name_as_written(self) -> str:
        """Go past a name and return its text."""
        self._skip_blanks()
        start = self._at
        self._parts()
        return self._sql[start : self._at]

    def arguments(self) -> list[str]:
        """Go past a list in brackets and return its tokens, unquoted, dotted names as one."""
        if not self.take("("):
            return []
        words: list[str] = []
        while self.peek() not in (")", ""):
            word = _unquoted(self.next())
            while self.take("."):
                word += "." + _unquoted(self.next())
            words.append(word)
        return words

    def setting(self) -> tuple[str, bool]:
        """Return the key after SET or RESET as written, and whether a value is assigned to it."""
        self._skip_blanks()
        match = _ASSIGNMENT.match(self._sql, self._at)
        assert match is not None  # all of it is optional
        return match[1], match[2] == "="

    def skip_ctes(self) -> None:
        """Go past `with a as (...), b as (...)` to the statement that they belong to."""
        if not self.take("with"):
            return
        depth = 0
        while (landmark := _LANDMARK.search(self._sql, self._at)) is not None:
            self._at = landmark.end()
            if landmark[0] == "/*":
                self._at = landmark.start()
                self._skip_blanks()
            elif landmark[0] == "(":
                depth += 1
            elif landmark[0] == ")":
                depth -= 1
                # After a list of columns comes `as` or `max recursion level`, after a body a comma
                # or the statement.
                if depth == 0 and self.peek() not in ("as", "max", ","):
                    return
        self._at = len(self._sql)

    def _parts(self) -> list[str]:
        if self.take("identifier", "("):
            parts = [part.strip("` ") for part in _unquoted(self.next()).split(".")]
            self.take(")")
            return parts
        parts = [_unquoted(self.next())]
        while self.take("."):
            parts.append(_unquoted(self.next()))
        return parts

    def _token(self) -> str:
        self._skip_blanks()
        match = _TOKEN.match(self._sql, self._at)
        return match[0] if match is not None else ""

    def _skip_blanks(self) -> None:
        while True:
            blank = _BLANK.match(self._sql, self._at)
            if blank is not None:
                self._at = blank.end()
            if not self._sql.startswith("/*", self._at):
                return
            self._skip_comment()

    def _skip_comment(self) -> None:
        """Go past a comment in brackets; in Spark they nest."""
        depth = 0
        while (edge := _COMMENT_EDGE.search(self._sql, self._at)) is not None:
            self._at = edge.end()
            depth += 1 if edge[0] == "/*" else -1
            if depth == 0:
                return
        self._at = len(self._sql)


def _unquoted(token: str) -> str:
    if token[:1] in ("'", '"', "`") and len(token) > 1:
        return token[1:-1].replace(token[0] * 2, token[0])
    return token
