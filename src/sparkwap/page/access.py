"""The token that unlocks buttons and rows.

The page makes it when it starts, in a file that only its owner can read. The user types it into the
page. It is never part of an address, because logs and browser histories keep addresses.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkwap.core.errors import ConfigError

TOKEN = "SPARKWAP_PAGE_TOKEN"
"""Environment variable with a token to use instead of a new one."""

SETTINGS = "SPARKWAP_PAGE_SETTINGS"
"""Environment variable of the page's process, with the path of its `Settings`."""

SHORTEST = 16
_BYTES = 24
_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class Settings:
    """The token of a started page, and its options of dbt: project, profile and target."""

    token: str
    arguments: tuple[str, ...] = ()

    def opened_by(self, given: str) -> bool:
        """Return whether a text is the token, in a time that does not depend on the text."""
        return bool(self.token) and hmac.compare_digest(given.encode(), self.token.encode())

    def write(self, path: Path) -> None:
        """Write the settings to a new file that only its owner may read."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            # Created with its permissions: another process could open it before a later chmod.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
            with os.fdopen(handle, "w") as file:
                json.dump({"token": self.token, "arguments": self.arguments}, file)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror or error}. The page was not started. "
                "It is in dbt's target folder. Choose another folder with --target-path"
            ) from error


def read(path: Path) -> Settings:
    """Read the file of `Settings.write`."""
    try:
        content = json.loads(path.read_text())
        return Settings(str(content["token"]), tuple(map(str, content["arguments"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "The page has no settings: `sparkwap page` did not start it, or has ended. Nothing was "
            "read. Start it with: sparkwap page"
        ) from error


def new_token(environment: Mapping[str, str]) -> str:
    """Return the token from the environment, or a new one."""
    given = environment.get(TOKEN, "")
    if given and len(given) < SHORTEST:
        raise ConfigError(
            f"{TOKEN} has {len(given)} characters and needs {SHORTEST} or more. The page was not "
            f"started. Without {TOKEN}, the page makes its own token."
        )
    return given or secrets.token_urlsafe(_BYTES)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the commands of the page, without the token."""
    return {key: value for key, value in environment.items() if key not in (TOKEN, SETTINGS)}
