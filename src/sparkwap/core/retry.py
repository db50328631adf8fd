"""Errors that pass: what may be done after each class of them.

Pure. An error is known by the names of its classes, Java's or Python's, by its SQLSTATE, and by
what Iceberg and the databases write; what is not known is not transient.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tenacity import Retrying

Rule = Literal["retry", "refresh", "rebuild", "look", "fail"]
"""What an error calls for.

- ``retry``: the catalog was busy and has done nothing. The same can be sent again, after a pause.
- ``refresh``: another writer was faster, and nothing was committed. Read the metadata anew, then
  send it again.
- ``rebuild``: what the statement has read was changed by somebody else. The same rows would be
  wrong: the table has to be built again.
- ``look``: it may have been committed. Nothing is sent again; the table says what happened.
- ``fail``: an error like any other.
"""

Fate = Literal["made", "not made", "unknown", "no table"]
"""What became of a statement: its snapshot is there, is not there, somebody else's is, or it does
not write rows to a table."""

Step = Literal["raise", "done", "send"]

TRIES = 5
FIRST_WAIT_SECONDS = 0.2

# The first that matches counts: an unknown end hides behind any other error.
_CLASSES: tuple[tuple[Rule, re.Pattern[str]], ...] = (
    (
        "look",
        re.compile(
            r"CommitStateUnknown|cannot determine whether the commit was successful"
            r"|connection (?:reset|lost|closed)|broken pipe|StatusCode\.UNAVAILABLE"
            r"|This connection has been closed|An I/O error occurred while sending"
            r"|server closed the connection unexpectedly",
            re.IGNORECASE,
        ),
    ),
    (
        "rebuild",
        re.compile(
            r"Found (?:new )?conflicting (?:files|delete)|Found new conflicting delete"
            r"|missing data files|Cannot commit, found new delete|Found conflicting deleted"
        ),
    ),
    (
        "retry",
        re.compile(
            r"SQLITE_BUSY|SQLITE_LOCKED|database (?:table )?is locked"
            r"|The database file is locked"
            r"|could not serialize access|deadlock detected"
            r"|could not obtain lock|canceling statement due to lock timeout",
            re.IGNORECASE,
        ),
    ),
    (
        "refresh",
        re.compile(
            r"CommitFailedException|metadata refresh is required|stale table metadata"
            r"|Requirement failed: (?:branch|tag|ref|current schema|last assigned)"
            r"|has been updated by another process"
        ),
    ),
)
# Class 40: the transaction was rolled back; 55P03: a lock was not to be had.
_RETRYABLE_STATES = frozenset({"40001", "40P01", "55P03"})


def classify(message: str, classes: Iterable[str] = (), sqlstate: str | None = None) -> Rule:
    """The rule for an error.

    Args:
        message: All that is known of it, the Java stack trace included: the cause stands there.
        classes: Names of its Python classes.
        sqlstate: The SQLSTATE, where a database gave one.
    """
    if sqlstate in _RETRYABLE_STATES:
        return "retry"
    text = "\n".join([*classes, message])
    return next((rule for rule, pattern in _CLASSES if pattern.search(text)), "fail")


def rule_of(error: BaseException) -> Rule:
    """The rule for a Python error, its cause and the driver's error in it included."""
    chain: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, BaseException) and one not in chain:
            chain.append(one)
            waiting += [getattr(one, "orig", None), one.__cause__]
    states = (getattr(one, "pgcode", None) for one in chain)
    return classify(
        "\n".join(map(str, chain)),
        (base.__name__ for one in chain for base in type(one).__mro__),
        next((state for state in states if state), None),
    )


def fate(
    before: int | None, after: int | None, parent: int | None, writer: str | None, run_id: str
) -> Fate:
    """What became of a write that ended with an error.

    Args:
        before: The head of the table's branch before it was sent; None where there was none.
        after: The head now.
        parent: The parent of that.
        writer: The run in the summary of that.
        run_id: The run that sent the write.
    """
    if after == before:
        return "not made"
    return "made" if parent == before and writer == run_id else "unknown"


def step(rule: Rule, found: Fate, tried: int, tries: int = TRIES) -> Step:
    """What to do after an error: raise it, go on as the statement is done, or send it again.

    Args:
        rule: That of the error.
        found: What became of the statement.
        tried: How often it was sent.
        tries: How often it may be sent.
    """
    if rule in ("fail", "rebuild") or found == "unknown":
        return "raise"
    if found == "made":
        return "done"
    # It is not there now; where it may still come, it must not be sent twice.
    if rule == "look" or tried >= tries:
        return "raise"
    return "send"


def retrying(
    again: Callable[[BaseException], bool], tries: int = TRIES, first: float = FIRST_WAIT_SECONDS
) -> Retrying:
    """What calls a function again after errors of some kind, with pauses that double.

    Args:
        again: Whether an error may pass.
        tries: How often the function is called at most; then its last error is raised.
        first: The first pause, in seconds.
    """
    import tenacity

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(again),
        # Jitter, as writers that met once would meet again at equal pauses.
        wait=tenacity.wait_exponential_jitter(first, first * 1000, jitter=first),
        stop=tenacity.stop_after_attempt(tries),
        reraise=True,
    )


def wait_seconds(tried: int, draw: float, first: float = FIRST_WAIT_SECONDS) -> float:
    """The pause before the next try, twice as long each time; ``draw`` is from 0 to 1 by chance."""
    return first * 2.0 ** min(tried - 1, 10) * (0.5 + draw)
