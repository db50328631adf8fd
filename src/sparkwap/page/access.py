"""Who may press the buttons, and see rows: whoever has the page's token.

The token is made when the page starts and is in a file of its owner's alone. It is typed into the
page, never part of an address: addresses are kept, in logs and histories.
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
"""Environment variable: the token, in place of one that is made."""

SETTINGS = "SPARKWAP_PAGE_SETTINGS"
"""Environment variable, for the page's process: the file of its `Settings`."""

SHORTEST = 16
_BYTES = 24
_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class Settings:
    """What the page is started with.

    Attributes:
        token: What opens the buttons.
        arguments: The options of dbt that say which project, profile and target.
    """

    token: str
    arguments: tuple[str, ...] = ()

    def opened_by(self, given: str) -> bool:
        """Whether a text is the token; takes as long for a near miss as for any other."""
        return bool(self.token) and hmac.compare_digest(given.encode(), self.token.encode())

    def write(self, path: Path) -> None:
        """Write it to a new file that nobody else may read.

        Raises:
            ConfigError: It cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            # With its rights from the start: one that is mended later could be opened before.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
            with os.fdopen(handle, "w") as file:
                json.dump({"token": self.token, "arguments": self.arguments}, file)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror or error}. The page was not started. "
                "It is in dbt's target folder; choose another one: --target-path"
            ) from error


def read(path: Path) -> Settings:
    """What `Settings.write` has written.

    Raises:
        ConfigError: It is not there, or no such file.
    """
    try:
        content = json.loads(path.read_text())
        return Settings(str(content["token"]), tuple(map(str, content["arguments"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "The page has no settings: it was not started by its command, or that has ended. "
            "Nothing was read. Start it with: sparkwap page"
        ) from error


def new_token(environment: Mapping[str, str]) -> str:
    """The token of a page that starts: the given one, or a new one.

    Raises:
        ConfigError: The given one is so short that it could be guessed.
    """
    given = environment.get(TOKEN, "")
    if given and len(given) < SHORTEST:
        raise ConfigError(
            f"{TOKEN} has {len(given)} characters; legal: {SHORTEST} or more. The page was not "
            f"started. Without {TOKEN} it makes a token of its own."
        )
    return given or secrets.token_urlsafe(_BYTES)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for commands that the page calls: they need no token."""
    return {key: value for key, value in environment.items() if key not in (TOKEN, SETTINGS)}
