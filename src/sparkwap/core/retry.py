"""Rules for transient errors: retry, refresh, rebuild, or fail.

The functions are pure. They recognise an error by its class names in Java or Python, its SQLSTATE,
and the messages of Iceberg and the databases. An unknown error is not transient.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tenacity import Retrying

Rule = Literal["retry", "refresh", "rebuild", "look", "fail"]
"""The action after an error.

- ``retry``: the catalog was busy and nothing was committed. Send the same again, after a pause.
- ``refresh``: another writer was faster, and nothing was committed. Read the metadata again, then
  send the same again.
- ``rebuild``: another writer changed the statement's inputs. The same rows would be wrong, so the
  table must be built again.
- ``look``: the change may be committed. Do not send it again; check the table.
- ``fail``: a permanent error.
"""

Fate = Literal["made", "not made", "unknown", "no table"]
"""The result of a statement: its snapshot exists, does not exist, another writer's snapshot exists,
or the statement does not write rows to a table."""

Step = Literal["raise", "done", "send"]

TRIES = 5
FIRST_WAIT_SECONDS = 0.2

# The first match counts: an unknown result may be hidden behind any other error.
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
            r"|could not obtain lock|canceling statement due to lock timeout"
            # In libpq's words. Iceberg's may come after a commit whose connection was lost.
            r"|connection to server .* failed: FATAL: +"
            r"(?:sorry, too many clients|remaining connection slots|too many connections)",
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
# Class 40: the transaction was rolled back; 55P03: a lock was not available.
_RETRYABLE_STATES = frozenset({"40001", "40P01", "55P03"})


def classify(message: str, classes: Iterable[str] = (), sqlstate: str | None = None) -> Rule:
    """Return the rule for an error.

    Args:
        message: The message, including the Java stack trace with the cause.
        classes: Names of its Python classes.
    """
    if sqlstate in _RETRYABLE_STATES:
        return "retry"
    text = "\n".join([*classes, message])
    return next((rule for rule, pattern in _CLASSES if pattern.search(text)), "fail")


def rule_of(error: BaseException) -> Rule:
    """Return the rule for a Python error, including its cause and the driver's error."""
    chain: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        link = waiting.pop(0)
        if isinstance(link, BaseException) and link not in chain:
            chain.append(link)
            waiting += [getattr(link, "orig", None), link.__cause__]
    states = (getattr(link, "pgcode", None) for link in chain)
    return classify(
        "\n".join(map(str, chain)),
        (base.__name__ for link in chain for base in type(link).__mro__),
        next((state for state in states if state), None),
    )


def fate(
    before: int | None, after: int | None, parent: int | None, writer: str | None, run_id: str
) -> Fate:
    """Return the result of a write that ended with an error.

    Args:
        before: The head of the table's branch before the write; None without a head.
        after: The head after the write.
        parent: The parent snapshot of the head after the write.
        writer: The run id in the summary of the head after the write.
        run_id: The run that sent the write.
    """
    if after == before:
        return "not made"
    return "made" if parent == before and writer == run_id else "unknown"


def batch_fate(written: Iterable[tuple[str | None, str | None]], run_id: str, batch: str) -> Fate:
    """Return the result of a batch's write, beside which other batches of its run may write.

    ``written`` are run and batch of each snapshot since the write was sent.
    """
    writers = set(written)
    if any(writer != run_id for writer, _ in writers):
        return "unknown"
    return "made" if (run_id, batch) in writers else "not made"


def step(rule: Rule, found: Fate, tried: int) -> Step:
    """Return the next step: raise the error, go on because the write is done, or send it again."""
    if rule in ("fail", "rebuild") or found == "unknown":
        return "raise"
    if found == "made":
        return "done"
    # The snapshot does not exist now. If it may appear later, the write must not be sent twice.
    if rule == "look" or tried >= TRIES:
        return "raise"
    return "send"


def retrying(
    again: Callable[[BaseException], bool],
    tries: int = TRIES,
    first: float = FIRST_WAIT_SECONDS,
    longest: float = math.inf,
) -> Retrying:
    """Return a retry policy for transient errors, with pauses that double.

    Args:
        again: Returns whether an error is transient.
        tries: The maximum number of calls; after the last call, its error is raised.
        first: The first pause, in seconds.
        longest: The longest pause, in seconds.
    """
    import tenacity

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(again),
        # Jitter, because writers with equal pauses would collide again.
        wait=tenacity.wait_exponential(first, min(first * 1000, longest))
        + tenacity.wait_random(0, first if math.isinf(longest) else longest / 2),
        stop=tenacity.stop_after_attempt(tries),
        reraise=True,
    )


def wait_seconds(
    tried: int, draw: float, first: float = FIRST_WAIT_SECONDS, longest: float = 300.0
) -> float:
    """Return the seconds before the next try: twice as long each time.

    Args:
        tried: The number of tries so far, from 1 on.
        draw: A random number from 0 to 1, so that two writers do not collide again.
        first: The seconds after the first try.
        longest: The most seconds.
    """
    # The exponent is limited, because a float can overflow.
    return min(first * 2.0 ** min(tried - 1, 64) * (0.5 + draw), longest)
