"""The exceptions of sparkwap.

Every message has what happened, the state, and the command that continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkwap.core.redaction import redact

if TYPE_CHECKING:
    from sparkwap.core.command_end import Outcome


class SparkwapError(Exception):
    """Base of all errors that sparkwap raises on purpose; its text is for the user.

    Secrets are removed from the text, because it may quote messages of other programs.
    """

    outcome: Outcome = "failed"

    def __init__(self, message: str = "") -> None:
        super().__init__(redact(str(message)))


class ConfigError(SparkwapError):
    """A setting has a value that is not allowed."""

    outcome = "usage"


class ServerError(SparkwapError):
    """The embedded server cannot be started, found or stopped."""


class JavaError(ServerError):
    """No usable Java runtime."""


class JarError(ServerError):
    """A jar could not be fetched, or its checksum is not the pinned one."""


class CatalogError(SparkwapError):
    """The catalog refused or failed an operation."""


class MetadataFileMissing(CatalogError):
    """A metadata file does not exist, such as one of a former state that Iceberg has deleted."""


class GateError(SparkwapError):
    """The gate cannot decide, so nothing is published."""


class PublishError(GateError):
    """A publish did not happen; ``main`` is as it was before."""
