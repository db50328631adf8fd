"""Requests to AWS Glue, whose answers may be lost.

The client sends a request again that was not answered, and Glue may refuse the second one because
it has carried out the first. So each attempt is watched, and an unclear change is looked up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparkwap.catalog.pointers import Conflict, Unanswered
from sparkwap.core import next_command
from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.core.text import first_line

if TYPE_CHECKING:
    from pyiceberg.catalog.glue import GlueCatalog

_TRIES = "glue.max-retries"
_TAKEN, _GONE = "AlreadyExistsException", "EntityNotFoundException"
_CONFLICTS = frozenset({_TAKEN, _GONE, "ConcurrentModificationException"})
# Refusals after which the request may be carried out nevertheless, beside those with a status from
# 500 on.
_UNCLEAR = frozenset(
    {
        "FederationSourceException", "FederationSourceRetryableException",
        "InternalServiceException", "OperationTimeoutException",
    }
)  # fmt: skip
_ADVICE = {
    "AccessDeniedException": "Give the role of this process the rights to databases and tables in "
    "Glue (glue:Get*, glue:CreateDatabase, glue:DeleteDatabase, glue:CreateTable, "
    "glue:UpdateTable, glue:DeleteTable), and in Lake Formation if the database is registered "
    "there.",
    "InvalidInputException": "Names have to be lower-case letters, digits and underscores.",
    "ResourceNumberLimitExceededException": "Raise the quota of the account.",
    "ThrottlingException": "Run the same command again, or raise the quota of the account.",
}
_DEFAULT_ADVICE = (
    "Check `glue.region`, `glue.endpoint`, `glue.id` and the credentials in `catalog` of the "
    "profile, or in the environment."
)


class GlueClient:
    """Sends requests to Glue; safe for use by several threads.

    Args:
        properties: PyIceberg's catalog properties: ``glue.*``, ``client.*``.
    """

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.glue: Any = _connect(name, properties).glue
        self._attempts = _Attempts()
        self.glue.meta.events.register("before-send.glue", self._attempts.sent)
        self.glue.meta.events.register("response-received.glue", self._attempts.answered)

    def read(self, action: str, **parameters: Any) -> dict[str, Any] | None:
        """Return the answer to a request that changes nothing; None if there is no such entry."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self.glue, action)(**parameters)
        except (BotoCoreError, ClientError) as error:
            if code_of(error) == _GONE:
                return None
            raise self._refused(action, error) from error
        return answer

    def pages(self, action: str, key: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        token: dict[str, str] = {}
        while True:
            answer = self.read(action, **parameters, **token)
            if answer is None:
                return
            yield from answer.get(key) or ()
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}

    def change(self, action: str, name: str, made: Callable[[], bool], **parameters: Any) -> None:
        """Carry out a change.

        The client sends a request again that was not answered. If the first one was carried out,
        the second is refused as a conflict with it. So the result is looked up if any answer was
        not clear.

        Args:
            action: The name of the client's method. A deletion of nothing is no conflict.
            name: What is changed, for messages.

        Raises:
            Conflict: The change was not made, because of the present state.
            CatalogError: The change was not made, for another reason.
            Unanswered: It is not known whether the change was made.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        self._attempts.watched, self._attempts.unclear = True, False
        try:
            getattr(self.glue, action)(**parameters)
            return
        except (BotoCoreError, ClientError, _NotAgain) as error:
            code, failed = code_of(error), error
        finally:
            self._attempts.watched = False
        if code == _GONE and action.startswith("delete"):
            return
        reason = f"{name}: {_said(failed)}"
        if not self._attempts.unclear:
            if code in _CONFLICTS:
                raise Conflict(None, reason) from failed
            raise self._refused(action, failed) from failed
        with suppress(CatalogError):
            if made():
                return
        # An answered conflict also means that the request before cannot be carried out any more.
        raise Unanswered(reason, lost=code not in _CONFLICTS) from failed

    def _refused(self, action: str, error: Exception) -> CatalogError:
        """Return the error of a request that changed nothing."""
        code = code_of(error)
        verb = f"refused {action}" if code else "cannot be asked"
        return CatalogError(
            f"AWS Glue ({self.glue.meta.endpoint_url}) {verb}: {_said(error)} Nothing was "
            f"changed. {_ADVICE.get(code, _DEFAULT_ADVICE)}"
        )


class _NotAgain(Exception):
    """A deletion is not sent again after an unclear answer: the name may be another table's."""


class _Attempts(threading.local):
    """The attempts of the client to carry out the present change of a thread.

    Attributes:
        watched: Whether there is a change; PyIceberg has the same client.
        unclear: Whether an attempt may have been carried out without telling it.
    """

    watched = False
    unclear = False

    def sent(self, event_name: str, **_: Any) -> None:
        """Called by the client before each attempt."""
        if self.watched and self.unclear and event_name.rpartition(".")[2].startswith("Delete"):
            raise _NotAgain("no answer to the deletion")

    def answered(
        self, response_dict: Any, parsed_response: Any, exception: Exception | None, **_: Any
    ) -> None:
        """Called by the client after each attempt."""
        from botocore.exceptions import (
            ConnectTimeoutError,
            EndpointConnectionError,
            ProxyConnectionError,
        )

        not_sent = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)
        if exception is not None:
            self.unclear |= not isinstance(exception, not_sent)
        elif response_dict["status_code"] >= 300:
            said = (parsed_response or {}).get("Error") or {}
            self.unclear |= response_dict["status_code"] >= 500 or said.get("Code") in _UNCLEAR


def _connect(name: str, properties: Mapping[str, str]) -> GlueCatalog:
    try:
        from botocore.exceptions import BotoCoreError
        from pyiceberg.catalog.glue import GlueCatalog
    except ImportError as error:
        raise ConfigError(
            f"A catalog of the type glue needs the package boto3 ({error}). Nothing was done. Run: "
            f"{next_command.install('glue')}"
        ) from error
    tries = properties.get(_TRIES, "")
    if tries and not tries.isdecimal():
        raise ConfigError(
            f"{_TRIES} is {tries!r}; it has to be a number. Nothing was done. Correct it in "
            "`catalog` of the profile."
        )
    try:
        # The client requires a number.
        return GlueCatalog(name, **{**properties, **({_TRIES: int(tries)} if tries else {})})
    except (BotoCoreError, ValueError) as error:
        raise CatalogError(
            f"AWS Glue cannot be opened: {_said(error)} Nothing was done. {_DEFAULT_ADVICE}"
        ) from error


def code_of(error: Exception) -> str:
    """Return the name of an error of Glue; empty if it comes from this side."""
    response = getattr(error, "response", None)
    return str(response["Error"].get("Code", "")) if isinstance(response, Mapping) else ""


def _said(error: Exception) -> str:
    text = first_line(str(error)) or type(error).__name__
    return text if text.endswith(".") else f"{text}."
