"""The end of a command for machines: its outcome, its exit code, and a JSON document.

The document is one line. Its schema is in docs/output.md; a change that is not an addition needs
another ``SCHEMA_VERSION``.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from sparkwap import __version__
from sparkwap.core.redaction import redact

SCHEMA_VERSION = 1

Outcome = Literal[
    "done", "published", "rejected", "unsafe", "usage", "held", "stopped", "failed", "interrupted"
]
"""``done``: the command did what it had to, and there was nothing to publish; ``published``: all
tables are on main; ``rejected``: a test or a build failed, or the gate refused; ``unsafe``: doctor
has found what breaks the gate's promises; ``usage``: an argument, a setting, the project or the
profile is wrong, and nothing was done; ``held``: nothing failed, but tables wait on a branch;
``stopped``: the server does not run; ``failed``: the command did not come to its end, such as
without a server; ``interrupted``: by a signal."""

EXIT_CODES: Mapping[Outcome, int] = {
    "done": 0,
    "published": 0,
    "rejected": 1,
    "unsafe": 1,
    "usage": 2,
    "held": 3,
    "stopped": 3,
    "failed": 4,
    "interrupted": 130,
}


@dataclass(frozen=True)
class CommandEnd:
    """The end of a command; ``result`` is a dataclass with what it has found or done."""

    outcome: Outcome = "done"
    result: Any = None
    message: str | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_CODES[self.outcome]

    def document(self, command: str) -> str:
        """Return the JSON document of a command, such as ``dbt build``: one line, no secrets."""
        found = {
            "schema_version": SCHEMA_VERSION,
            "sparkwap": __version__,
            "command": command,
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "message": self.message,
            "result": self.result,
        }
        return json.dumps(plain(found), allow_nan=False)  # ASCII, for every locale


FILE_NAME = "sparkwap_results.json"
"""The file in dbt's target folder with the document of the last dbt command."""

VARIABLE = "SPARKWAP_RESULTS"
"""The environment variable with another file for it."""

_DBT_USAGE = 2


def results_file(target: Path) -> Path:
    """Return the file for the document of a dbt command."""
    return Path(os.environ.get(VARIABLE) or target / FILE_NAME)


def write(path: Path, command: str, end: CommandEnd) -> None:
    """Write a document, readable by its owner only; never leaves half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file")
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(end.document(command) + "\n")
    try:
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any] | None:
    """Return a document; None if there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found


def of_dbt(code: int, document: Mapping[str, Any] | None) -> Outcome:
    """Return the outcome of a dbt command, by its exit code and the document of the gate."""
    if document is None:
        # Before the run opens, dbt ends with 2 for options, project and profile.
        return "done" if not code else "usage" if code == _DBT_USAGE else "failed"
    found: Outcome = next((o for o in EXIT_CODES if o == document["outcome"]), "failed")
    # Such as by a hook after the gate.
    return "rejected" if code and not EXIT_CODES[found] else found


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: dataclasses as objects, times in ISO 8601, no secrets."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {redact(str(key)): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(one) for one in value)
    if isinstance(value, date):  # and datetime
        return value.isoformat()
    if isinstance(value, str | Path):
        return redact(str(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else None  # JSON has no other
    return value if isinstance(value, int | None) else redact(str(value))
