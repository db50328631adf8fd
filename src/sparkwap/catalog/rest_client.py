"""The HTTP client of a REST catalog: requests, pages of lists, and errors in plain words."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyiceberg.catalog.rest import RestCatalog

from sparkwap.catalog.pointers import CannotShare, Conflict, Unanswered
from sparkwap.catalog.threads import Threads
from sparkwap.core.errors import CatalogError
from sparkwap.core.text import first_line

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.typedef import Identifier
    from requests import Response

    from sparkwap.catalog.vended_keys import VendedKeys

# Seconds to connect, and to wait for an answer: a commit of many tables may take long.
_TIMEOUT = (10, 300)
# The server is busy, so any request is sent again. A proxy says 503 also if it has lost the answer:
# a refusal of the second request does not tell whether the first was carried out; see `Store`. A
# request that has no condition of its own is sent again only if what it changes is as before.
_BUSY = frozenset({429, 503})
# A proxy lost the answer: only a request that changes nothing may be sent again.
_LOST = frozenset({502, 504})
_TRIES = 5
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 30.0


class KeepingRestCatalog(RestCatalog):
    """PyIceberg's REST catalog; keeps the keys that the server vends with a table."""

    def __init__(self, name: str, keys: VendedKeys, properties: Mapping[str, str]) -> None:
        super().__init__(name, **properties)
        self._keys = keys

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return a table; see `RestCatalog.load_table`."""
        table: Table = super().load_table(identifier)
        known = {**self.properties, **table.properties}
        given = table.io.properties.items()
        answer = {
            "config": {key: value for key, value in given if known.get(key) != value},
            "metadata": {"location": table.location()},
            "metadata-location": table.metadata_location,
        }
        schema, name = self.identifier_to_tuple(identifier)[-2:]
        # PyIceberg has chosen one of several credentials.
        self._keys.keep((schema, name), answer, complete=False)
        return table


class RestClient:
    """Sends requests to a REST catalog; safe for use by several threads.

    Args:
        keys: Keeps what the server vends.

    Raises:
        CatalogError: The server does not answer, or refuses the request.
    """

    def __init__(self, name: str, properties: Mapping[str, str], keys: VendedKeys) -> None:
        self.name = name
        self._catalog = _connect(name, properties, keys)
        self.properties: Mapping[str, str] = {
            key: str(value) for key, value in self._catalog.properties.items()
        }
        self._lock = threading.Lock()
        self._threads = Threads("sparkwap-rest")

    def close(self) -> None:
        """Close connections and threads."""
        self._threads.close()
        self._catalog._session.close()

    def _pages(self, path: str, key: str) -> list[Any]:
        """Return all pages of a list; empty if the server has no such list."""
        found: list[Any] = []
        token: str | None = None
        while True:
            answer = self._send("GET", path, params={"pageToken": token} if token else None)
            if answer.status_code == 404:
                return found
            body = self._must(answer).json()
            found += body.get(key) or []
            token = body.get("next-page-token")
            if not token:
                return found

    def _send(
        self, method: str, path: str, *, check: Callable[[], None] = lambda: None, **more: Any
    ) -> Response:
        """Send a request; repeats it while the server is busy.

        The answer has those to former tries in its history.

        Args:
            path: The path below that of the catalog.
            check: Called before each repetition, and raises to stop it.

        Raises:
            CatalogError: There is no answer to a request that changes nothing.
            Unanswered: There is no answer to a change.
        """
        again = _BUSY | _LOST if method == "GET" else _BUSY
        former: list[Response] = []
        while True:
            answer = self._send_once(method, path, **more)
            answer.history += former
            if answer.status_code not in again or len(former) + 1 == _TRIES:
                return answer
            former.append(answer)
            time.sleep(_pause(answer, len(former)))
            check()

    def _send_once(self, method: str, path: str, **more: Any) -> Response:
        from requests import RequestException

        try:
            return self._catalog._session.request(
                method, self._catalog.url(path), timeout=_TIMEOUT, **more
            )
        except RequestException as error:
            if method == "GET":
                raise CatalogError(
                    f"The REST catalog {_shown(self._catalog.uri)} does not answer "
                    f"({type(error).__name__}). Nothing was changed. Check it, then run the same "
                    "command again."
                ) from error
            raise Unanswered(
                f"no answer to a change ({type(error).__name__})", lost=True
            ) from error

    def _registered(self, answer: Response, names: str, is_taken: Callable[[], bool]) -> None:
        """Check the answer to the registration of a table.

        Raises:
            Conflict: The name is taken.
            CannotShare: The server does not take this table, whatever its name.
        """
        # 409 is both: the name is taken, or the identity or the folder is another table's.
        refused = answer.status_code in (400, 403) and not _is_unclear(answer)
        if refused or (answer.status_code == 409 and not is_taken()):
            raise CannotShare(names, f"{answer.status_code}: {_said(answer)}")
        self._committed(answer, names)

    def _must(self, answer: Response) -> Response:
        """Return the answer if it is a success."""
        if answer.ok:
            return answer
        raise CatalogError(
            f"The REST catalog {_shown(self._catalog.uri)} refused a request "
            f"({answer.status_code}): {_said(answer)}. This request changed nothing. Check its "
            "address, its credentials and their rights in `catalog` of the profile."
        )

    def _committed(self, answer: Response, names: str) -> None:
        unclear = _is_unclear(answer)
        if answer.status_code in (404, 409):
            raise Conflict(None, f"{names}: {_said(answer)}", unclear=unclear)
        if answer.status_code >= 500 or (unclear and not answer.ok):
            # By the protocol, the state is then unknown.
            raise Unanswered(f"{names}: {answer.status_code} {_said(answer)}", lost=True)
        self._must(answer)


def _is_unclear(answer: Response) -> bool:
    """Return whether a former try may have been carried out; a 429 tells that it was not."""
    return any(one.status_code == 503 for one in answer.history)


def part(name: str) -> str:
    """Return a name as a part of a path."""
    return quote(name, safe="")


def _pause(answer: Response, attempt: int) -> float:
    """Return the seconds that the server asks for, or growing ones."""
    asked = answer.headers.get("Retry-After", "")
    wanted = float(asked) if asked.isdecimal() else _FIRST_WAIT_SECONDS * 2 ** (attempt - 1)
    return min(wanted, _LONGEST_WAIT_SECONDS)


def _connect(name: str, properties: Mapping[str, str], keys: VendedKeys) -> KeepingRestCatalog:
    uri = properties["uri"]
    try:
        return KeepingRestCatalog(name, keys, properties)
    except Exception as error:
        first = first_line(str(error)) or type(error).__name__
        raise CatalogError(
            f"The REST catalog {_shown(uri)} cannot be opened: {first}. Nothing was done. Check "
            "`uri`, `warehouse` and the credentials in `catalog` of the profile."
        ) from error


def _said(answer: Response) -> str:
    try:
        return str(answer.json()["error"]["message"]).splitlines()[0]
    except (ValueError, KeyError, TypeError, IndexError):
        return answer.reason or "no reason given"


def _shown(uri: str) -> str:
    """Return the address without passwords and query parameters."""
    from sqlalchemy.engine import make_url

    try:
        return make_url(uri).render_as_string(hide_password=True).split("?")[0]
    except Exception:
        return "of the profile"
