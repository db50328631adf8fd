"""The guard: sends a statement to Spark only if it is known to harm no live table.

On an audit branch only the rows are separate from `main`. Columns, properties, refs and the table
itself belong to all branches: readers of `main` see a change of them immediately and without an
audit. A write that names another branch, or a gated table that the run does not build, bypasses the
gate.

A list of all harmful statements is impossible. So the guard allows what is on a list: queries,
settings and temporary objects of the session, writes of a run to the tables that it builds,
anything in the side schemas of its audit branch, and writes to tables that are certainly not gated.
It refuses everything else.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, NoReturn

from sparkwap.catalog.model import Identifier
from sparkwap.core.errors import GateError
from sparkwap.gate.statement_effects import Action, Statement, StatementTarget, classify
from sparkwap.gate.statement_reader import Name

NameState = Literal["side", "placed", "gated", "node", "own", "table", "view", "absent"]
"""The present meaning of a name of the lake.

- `side`: an object in a side schema of this run's audit branch.
- `placed`: a table that this run builds on its audit branch.
- `gated`: a gated table that this run does not build on its audit branch.
- `node`: a model, seed or snapshot of the project, whether its table exists or not.
- `own`: an object of sparkwap: its ledger, or a side schema of another audit branch.
- `table`: any other table; it is not gated.
- `view`: any other view.
- `absent`: nothing has this name.
"""

Phase = Literal["run", "closed", "outside"]
"""The phase of an invocation: a run is open, its gate has decided, or the command opens no run."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The context of a statement.

    Attributes:
        catalog: The name of the lake's catalog in Spark.
        look: Returns the `NameState` of a name of the lake; case-sensitive.
        named: Tables to which the project allows writes by name (`wap_writes`).
    """

    catalog: str
    look: Callable[[Identifier], NameState]
    phase: Phase
    named: Collection[Name] = ()


def check(sql: str, scope: Scope) -> None:
    """Refuse a statement that is not known to be harmless.

    Args:
        sql: One statement; it may begin with comments and common table expressions.

    Raises:
        GateError: The statement is refused; the message has the reason and an alternative.
    """
    statement = classify(sql)
    if statement.kind == "unknown":
        _refuse(statement.verb or "a statement", statement.why, _WAY_ON[scope.phase])
    if statement.kind == "maintain" and scope.phase != "closed":
        _refuse(
            statement.verb,
            "it deletes snapshots and files that an audit needs",
            "Run maintenance while no run is open.",
        )
    for target in statement.targets:
        _require(target, statement, scope)


def identifier_of(name: Name, catalog: str) -> Identifier | None:
    """Return the table of the lake that a name refers to; None if it may not be in the lake."""
    parts = name[1:] if len(name) == 3 and name[0] == catalog else name
    # `lake.t` is a table of that catalog without a schema.
    if len(parts) != 2 or (parts is name and parts[0] == catalog):
        return None
    return parts[0], parts[1]


_CHANGES: frozenset[Action] = frozenset({"create", "replace", "drop", "alter"})
_HARMLESS: dict[NameState, frozenset[Action]] = {
    # Not `purge` and `unguard`: a clone shares its files with the live table.
    "side": _CHANGES | {"write"},
    "placed": frozenset({"write"}),
    "table": _CHANGES | {"write", "purge", "unguard"},
    "absent": frozenset({"create", "replace", "drop"}),
}
_NAMEABLE: frozenset[NameState] = frozenset({"table", "view", "absent"})
"""The objects that `wap_writes` can allow: never a gated table."""

_UNCHANGED = "It was not sent to Spark, and readers of main see no change."
_NAMED = (
    "If the table is not gated, allow writes to it: `wap_writes: [schema.table]` in the config of "
    "the model or the vars of the project."
)
_GUARD_OFF = "or turn the guard off at your own risk: --vars 'wap_guard: false'."
_WAY_ON = {
    "run": f"Leave it out, run it outside of dbt, {_GUARD_OFF}",
    "closed": f"Leave it out, run it outside of dbt, {_GUARD_OFF}",
    "outside": f"This command opens no run, so it only reads. Run it outside of dbt, {_GUARD_OFF}",
}
_BRANCH_PREFIXES = ("branch_", "tag_")


def _refuse(what: str, harm: str, instead: str) -> NoReturn:
    raise GateError(f"The guard refused {what}: {harm}. {_UNCHANGED} {instead}")


def _require(target: StatementTarget, statement: Statement, scope: Scope) -> None:
    what = f"{statement.verb} {'.'.join(target.name)}"
    identifier = identifier_of(target.name, scope.catalog)
    if _is_named(target.name, scope):
        return
    if identifier is None:
        _refuse(what, *_elsewhere(target.name, scope))
    state = scope.look(identifier)
    if state == "side" and scope.phase == "run" and target.action in _HARMLESS["side"]:
        return
    if statement.beyond:
        _refuse(what, f"{statement.beyond} may bypass the gate", f"Leave it out. {_NAMED}")
    # Functions are not in the lake's catalog, so their state is not known.
    if target.kind == "function" or target.action not in _harmless(state, scope.phase):
        _refuse(what, *_harm(target, state, scope))


def _harmless(state: NameState, phase: Phase) -> frozenset[Action]:
    """Return the allowed actions for an object that `wap_writes` does not name."""
    if phase == "outside":
        return frozenset({"drop"}) if state == "absent" else frozenset()
    if phase == "closed" and state not in _NAMEABLE:
        return frozenset()
    return _HARMLESS.get(state, frozenset())


def _is_named(name: Name, scope: Scope) -> bool:
    """Return whether `wap_writes` allows writes to a table; False for a gated table."""
    own = identifier_of(name, scope.catalog)
    if own is not None:
        named = {identifier_of(allowed, scope.catalog) for allowed in scope.named}
        return own in named and scope.look(own) in _NAMEABLE
    # Another catalog may be the lake under another name, and `s.t.branch_b` names a branch.
    return (
        len(name) == 3
        and name in scope.named
        and scope.look((name[0], name[1])) == "absent"
        and scope.look((name[1], name[2])) in _NAMEABLE
    )


def _elsewhere(name: Name, scope: Scope) -> tuple[str, str]:
    """Return why a name that may not be a table of the lake is refused, and an alternative."""
    if len(name) < 2:
        return (
            "it has no schema, so the session decides which table the name means",
            "Write the schema in front of the name.",
        )
    table = ".".join(name[:-1])
    inner = identifier_of(name[:-1], scope.catalog)
    if name[-1].startswith(_BRANCH_PREFIXES) and inner and scope.look(inner) != "absent":
        return (
            f"it names a branch of {table} and so bypasses the gate",
            f"Write to {table} itself: inside a run the rows go to the audit branch. Choose "
            "another branch with --vars 'wap_branch: <name>'.",
        )
    return "it may be a gated table", _NAMED


def _harm(target: StatementTarget, state: NameState, scope: Scope) -> tuple[str, str]:
    name = ".".join(target.name)
    if state == "own":
        return (
            f"{name} belongs to sparkwap",
            "Use dbt run-operation wap_status, wap_discard, ...",
        )
    if state == "side":
        return (
            "it belongs to a run, and shares files with the live table",
            "Leave it out. To drop an audit branch, use dbt run-operation wap_discard.",
        )
    if scope.phase == "outside" and state in _NAMEABLE:
        return "this command opens no run, so it only reads", _NAMED
    if target.action == "write" and state == "absent":
        return f"there is no table {name}", "Create it first, or correct its name."
    if target.action == "write" and state in ("gated", "node", "placed"):
        return _stray(scope.phase), "Make the rows part of the table's own model."
    if state in ("gated", "node", "placed") and target.action in ("drop", "purge"):
        return (
            f"{name} is live, or will be once it is published, and its readers would lose it at "
            "once",
            "Leave it out. To give the table up, disable or delete its model, then drop the table "
            "by a program other than dbt, such as beeline or PyIceberg.",
        )
    if state in ("gated", "node", "placed"):
        return (
            f"{name} is live, or will be once it is published: columns, properties, branches and "
            "the table itself belong to all of its branches, so its readers would see the change "
            "at once",
            "Change the model instead (`tblproperties` in its config, its columns): a run builds "
            "the changed table beside the live one and publishes it with the rows.",
        )
    return f"the readers of {name} are not known", _NAMED


def _stray(phase: str) -> str:
    if phase == "run":
        return (
            "the table is gated, and its build in this run has not begun or is in a side schema "
            "(use `this` or ref() for its name), so no test would read the rows and no publish "
            "would include them"
        )
    return "the table is gated, so the rows would reach readers of main without an audit"
