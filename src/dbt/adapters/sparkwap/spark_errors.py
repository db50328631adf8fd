"""The texts of Spark's errors, as dbt shows them."""

from __future__ import annotations

import re

from sparkwap.core.redaction import redact

# The server wraps each error and repeats its class.
_WRAPPING = re.compile(
    r"org\.apache\.hive\.service\.cli\.HiveSQLException: (?:Error running query: )?"
    r"(?:\[[\w.]+\] [\w.$]+:\s+(?=\[))?"
)
_STACK_TRACE = re.compile(r"\n\s*at [\w.$]+\(|\n\tat |\n\nJVM stacktrace:")

LOST = (
    "The connection to Spark was lost in the middle of a statement. It is not known whether the "
    "statement took effect, so it is not sent again. The run writes to its audit branch; if main "
    "has moved nevertheless, the summary at the end of the run reports it. See `sparkwap server "
    "status` and `sparkwap server logs`, then run `dbt retry`."
)

CANCELLED = "Cancelled, because the command was interrupted."


def short_error(message: str) -> str:
    """Return a Spark error without the server's wrapping and the Java stack trace."""
    if "StatusCode.UNAVAILABLE" in message:  # gRPC's error when Spark Connect is gone
        return LOST
    return redact(_WRAPPING.sub("", _STACK_TRACE.split(message, maxsplit=1)[0]).strip())


def server_message(error: BaseException) -> str | None:
    """Return the message in the reply of a Thrift server; None if the error has no reply."""
    reply = getattr(error.args[0], "status", None) if error.args else None
    return getattr(reply, "errorMessage", None)
