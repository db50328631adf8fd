"""Who changes a lake, from where, and with which command: for the rows of the ledger."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ACTOR = "SPARKWAP_ACTOR"
"""Environment variable with the person or job that calls, as the ledger has to name it."""

_OF_CI = ("GITHUB_ACTOR", "GITLAB_USER_LOGIN")
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a command.

    Attributes:
        actor: The person or job: `ACTOR`, the person that CI names, or the user of the system.
        catalog_user: The user of the catalog's database.
        command: dbt's command, or the name of the run-operation.
    """

    actor: str | None = None
    host: str | None = None
    catalog_user: str | None = None
    project: str | None = None
    command: str | None = None


def this_caller(project: str | None = None, command: str | None = None) -> Caller:
    """Return the caller of this process, by its environment."""
    return Caller(this_actor(), _plain(socket.gethostname()), None, project, command)


def this_actor() -> str:
    """Return the person or job that calls, by the environment of this process."""
    found = (os.environ.get(name, "") for name in (ACTOR, *_OF_CI))
    return next((text for one in found if (text := _plain(one))), None) or _plain(_user())


def describe(row: Mapping[str, Any]) -> str:
    """Return project, actor and host of a row of the ledger in words; empty if it has none.

    Older versions of sparkwap have not recorded them.
    """
    project, actor, host = (row.get(key) for key in ("project", "actor", "host"))
    by = f"by {actor}" + (f" on {host}" if host else "") if actor else ""
    return ", ".join(part for part in (f"project {project}" if project else "", by) if part)


def _plain(text: str) -> str:
    """Return a text in one line of UTF-8, without control characters."""
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return "".join(one for one in line if one.isprintable())[:_LONGEST]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        return f"uid {os.getuid()}"
