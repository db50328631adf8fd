"""A REST catalog as strict as Apache Polaris and Lakekeeper, in front of Iceberg's test server.

The servers themselves are not run here. Each rule is documented or in their source; see
``docs/catalogs/rest.md``. A refused request never reaches Iceberg's server.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

import requests

from helpers.rest import RestServer
from helpers.s3 import vended_keys

_TABLE = re.compile(r"/v1/namespaces/([^/]+)/(table|view)s/([^/]+)")
_CREATION = re.compile(r"/v1/namespaces/([^/]+)/(tables|views|register)")
_NAMESPACE = re.compile(r"/v1/namespaces/([^/]+)(/properties)?")
_LIST = re.compile(r"/v1/namespaces(/[^/]+/(tables|views))?")
_DELEGATION = "X-Iceberg-Access-Delegation"
_RESERVED = ("write.metadata.path", "write.data.path")


class Refused(Exception):
    """The server refuses a request: status, type and message of its answer."""

    def __init__(self, status: int, kind: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.headers = status, kind, headers


@dataclass(frozen=True)
class Rules:
    """What a server refuses or does otherwise than Iceberg's test server.

    Attributes:
        unique: A table's UUID exists once, and so does its location (Lakekeeper: 409). Soft-deleted
            tables keep both. Views are placed in folders that no name is in.
        overlap: Where locations may not overlap (Polaris: 403): within a namespace by default, in
            the whole catalog with ``OPTIMIZED_SIBLING_CHECK``.
        structured: Tables lie in their namespace's location, their snapshots in the table's own
            (Polaris: 403, unless ``allow.unstructured.table.location``).
        soft_delete: Dropped tables and views are kept for a while, and their namespace with them.
        purge: ``default``: a drop deletes the folder, unless it says otherwise (Lakekeeper);
            ``refused``: it may not ask for it (Polaris).
        transactions: ``transactions/commit`` creates no table, moves none, and has each once.
        reserved: Properties of paths are refused, and so are keys of namespaces in upper case.
        page_size: Lists come in pages, even if the request has no ``pageToken``.
        vends: The field with keys of the S3 store for the folder of a table, if the request asks
            for them.
        seconds: How long these keys are valid.
    """

    unique: bool = False
    overlap: Literal["namespace", "catalog"] | None = None
    structured: bool = False
    soft_delete: bool = False
    purge: Literal["default", "refused"] | None = None
    transactions: bool = True
    reserved: bool = False
    page_size: int | None = 2
    vends: Literal["config", "storage-credentials"] | None = None
    seconds: float = 3600


LAKEKEEPER = Rules(unique=True, purge="default", reserved=True)
LAKEKEEPER_SOFT = replace(LAKEKEEPER, soft_delete=True)
POLARIS = Rules(overlap="namespace", structured=True, purge="refused")
POLARIS_UNSTRUCTURED = replace(POLARIS, structured=False)
POLARIS_OPTIMIZED = replace(POLARIS_UNSTRUCTURED, overlap="catalog")


@dataclass
class StrictServer:
    """A running strict server.

    Attributes:
        server: Its address, and the warehouse.
        rules: May be replaced at any time.
        busy: How many requests are answered by a status and ``Retry-After``, and not carried out.
        lost: How many changes are carried out and answered by a status, as by a proxy that fails.
        conflicts: How many commits, also of a schema's properties, are refused as if another
            writer had been faster.
        seen: Method and target of each request.
    """

    server: RestServer
    upstream: str
    rules: Rules = field(default_factory=Rules)
    busy: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    conflicts: int = 0
    seen: list[tuple[str, str]] = field(default_factory=list)
    _deleted: list[tuple[tuple[str, str], dict[str, Any]]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _own: threading.local = field(default_factory=threading.local)

    def reset(self, rules: Rules) -> None:
        """Forget everything, and follow these rules."""
        self.rules, self.conflicts = rules, 0
        for one in (self.busy, self.lost, self.seen, self._deleted):
            one.clear()

    def expire(self) -> None:
        """End the time for which dropped tables are kept."""
        self._deleted.clear()

    def answer(self, method: str, target: str, body: bytes, headers: Any) -> requests.Response:
        """Refuse a request, or have Iceberg's server carry it out. One change at a time."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        self.seen.append((method, target))
        if method in ("GET", "HEAD"):
            self._maybe_busy()
            if method == "GET" and self.rules.page_size and _LIST.fullmatch(path):
                query = {"pageToken": [""], **query, "pageSize": [str(self.rules.page_size)]}
            return self._send(method, path, query, body, headers)
        with self._lock:
            self._maybe_busy()
            purge = self._check(method, path, query, json.loads(body) if body else {})
            body = self._placed(path, body)
            answer = self._send(method, path, query, body, headers)
            if answer.ok and purge is not None:
                shutil.rmtree(purge, ignore_errors=True)
            if self.lost and answer.ok:
                raise Refused(self.lost.pop(0), "ServiceFailureException", "the proxy gave up")
            return answer

    def _placed(self, path: str, body: bytes) -> bytes:
        """Place a view as Lakekeeper does: in a folder that no name is in."""
        found = _CREATION.fullmatch(path)
        if not self.rules.unique or not found or found[2] != "views":
            return body
        placed = {"location": f"{self.server.warehouse}/{uuid4()}", **json.loads(body)}
        return json.dumps(placed).encode()

    def _maybe_busy(self) -> None:
        if self.busy:
            more = {"Retry-After": "0"}
            raise Refused(self.busy.pop(0), "SlowDownException", "try again later", **more)

    def _send(
        self, method: str, path: str, query: dict[str, list[str]], body: bytes, headers: Any
    ) -> requests.Response:
        kept = {k: v for k, v in headers.items() if k.lower() in ("content-type", "accept")}
        address = f"{self.upstream}{path}"
        answer = self._session.request(
            method, address, params=query, data=body, headers=kept, timeout=60
        )
        if self.rules.vends and "vended-credentials" in headers.get(_DELEGATION, ""):
            self._vend(answer, self.rules.vends)
        return answer

    def _vend(self, answer: requests.Response, field: str) -> None:
        """Add keys to an answer that has a table."""
        found = answer.json() if answer.ok and answer.content else {}
        if "table-uuid" in found.get("metadata", ()):
            location = found["metadata"]["location"]
            keys = vended_keys(location, time.time() + self.rules.seconds)
            # Some servers answer each table with one prefix, and keys of its folder.
            own = keys if field == "config" else [{"prefix": "s3", "config": keys}]
            answer._content = json.dumps({**found, field: own}).encode()

    @property
    def _session(self) -> requests.Session:
        """Each thread's own connection."""
        if not hasattr(self._own, "session"):
            self._own.session = requests.Session()
        found: requests.Session = self._own.session
        return found

    def _check(self, method: str, path: str, query: Any, body: Any) -> Path | None:
        """Refuse a change, or return the folder that it also deletes."""
        if found := _CREATION.fullmatch(path):
            self._check_creation(unquote(found[1]), found[2], body)
        elif path == "/v1/transactions/commit":
            self._check_transaction(body["table-changes"])
        elif (found := _TABLE.fullmatch(path)) and method == "DELETE":
            return self._check_drop((unquote(found[1]), unquote(found[3])), found[2], query)
        elif found:
            self._check_commit((unquote(found[1]), unquote(found[3])), found[2], body)
        elif method == "DELETE" and (found := _NAMESPACE.fullmatch(path)):
            name = unquote(found[1])
            if any(place[0] == name for place, _ in self._deleted):
                raise Refused(
                    409, "NamespaceNotEmptyException", f"Namespace with {name} is not empty."
                )
        elif path == "/v1/namespaces" or _NAMESPACE.fullmatch(path):
            keys = [*body.get("properties", ()), *body.get("updates", ())]
            odd = [key for key in keys if key != key.lower()]
            if self.rules.reserved and odd:
                message = f"The property '{odd[0]}' is not all lowercase."
                raise Refused(400, "PropertyNotLowercase", message)
            if path.endswith("/properties"):
                self._check_conflict(path)
        return None

    def _check_creation(self, schema: str, what: str, body: Any) -> None:
        name = (schema, body["name"])
        if what != "register":
            location = body.get("location")
            self._check_properties(body.get("properties") or {})
            if location:
                self._check_location(name, location, None)
                self._check_structure(name, [location])
            return
        if body["metadata-location"].startswith("s3:"):
            return
        document = read_metadata(body["metadata-location"])
        self._check_properties(document.get("properties") or {})
        lists = [one["manifest-list"] for one in document.get("snapshots") or ()]
        self._check_structure(name, [document["location"], body["metadata-location"], *lists])
        self._check_location(name, document["location"], document["table-uuid"])

    def _check_location(self, name: tuple[str, str], location: str, uuid: str | None) -> None:
        living = [one for one in self._tables() if one[0] != name]
        # Iceberg's server refuses a name that is taken.
        for other, found in [*self._deleted, *living]:
            same = uuid is not None and found.get("table-uuid") == uuid
            if self.rules.unique and same:
                message = "Tabular with the same name already exists in the namespace"
                raise Refused(409, "AlreadyExistsException", message)
            if not _overlap(location, found["location"]):
                continue
            if self.rules.unique:
                message = f"Location '{location}' is already taken by another table or view."
                raise Refused(409, "LocationAlreadyTaken", message)
            if self.rules.overlap == "catalog" or (
                self.rules.overlap == "namespace" and other[0] == name[0]
            ):
                raise Refused(
                    403,
                    "ForbiddenException",
                    f"Unable to create entity at location '{location}' because it conflicts with "
                    f"existing table or namespace at {found['location']}",
                )

    def _check_structure(self, name: tuple[str, str], locations: list[str]) -> None:
        if not self.rules.structured:
            return
        own = f"{self.server.warehouse}/{name[0]}"
        found = self._load(name, "table")
        if found is not None:
            own = found["metadata"]["location"]
        for one in locations:
            if not _inside(one, own):
                raise Refused(
                    403,
                    "ForbiddenException",
                    f"Invalid locations '[{one}]' for identifier '{'.'.join(name)}': {one} is not "
                    f"in the list of allowed locations: [{own}]",
                )

    def _check_commit(self, name: tuple[str, str], kind: str, body: Any) -> None:
        self._check_conflict(".".join(name))
        for update in body.get("updates", ()):
            if update["action"] == "set-properties":
                self._check_properties(update["updates"])
            if update["action"] == "add-snapshot" and kind == "table":
                self._check_structure(name, [update["snapshot"]["manifest-list"]])

    def _check_conflict(self, name: str) -> None:
        if self.conflicts:
            self.conflicts -= 1
            message = f"Cannot commit to {name}: it has been concurrently modified"
            raise Refused(409, "CommitFailedException", message)

    def _check_properties(self, properties: Any) -> None:
        found = [key for key in properties if key.startswith(_RESERVED)]
        if self.rules.reserved and found:
            message = f"Properties contain unsupported property: '{found[0]}'"
            raise Refused(409, "FailedToSetProperties", message)

    def _check_transaction(self, changes: Any) -> None:
        names = [json.dumps(change["identifier"]) for change in changes]
        if self.rules.transactions and len(set(names)) < len(names):
            message = "Table identifiers must be unique"
            raise Refused(400, "TableIdentifiersNotUnique", message)
        for change in changes:
            created = any(one["type"] == "assert-create" for one in change["requirements"])
            moved = any(one["action"] == "set-location" for one in change["updates"])
            if self.rules.transactions and (created or moved):
                what = "updateForStagedCreate" if created else "containing SetLocation"
                message = f"Unsupported operation: commitTransaction with {what}"
                raise Refused(400, "BadRequestException", message)
        for change in changes:
            one = change["identifier"]
            self._check_commit((one["namespace"][0], one["name"]), "table", change)

    def _check_drop(self, name: tuple[str, str], kind: str, query: Any) -> Path | None:
        asked = query.get("purgeRequested", [None])[0]
        if self.rules.purge == "refused" and asked == "true":
            message = f"Table {'.'.join(name)} cannot be dropped with purge"
            raise Refused(403, "ForbiddenException", message)
        found = self._load(name, kind)
        if found is None:
            return None
        if self.rules.soft_delete:
            self._deleted.append((name, found["metadata"]))
            return None
        purges = self.rules.purge == "default" and asked != "false"
        return Path(_plain(found["metadata"]["location"])) if purges else None

    def _tables(self) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
        for (schema,) in self._list("namespaces", "namespaces"):
            for kind in ("table", "view"):
                for one in self._list(f"namespaces/{schema}/{kind}s", "identifiers"):
                    found = self._load((schema, one["name"]), kind)
                    if found is not None:
                        yield (schema, one["name"]), found["metadata"]

    def _list(self, path: str, key: str) -> Any:
        found = self._session.get(f"{self.upstream}/v1/{path}", timeout=60).json()
        return found.get(key) or []

    def _load(self, name: tuple[str, str], kind: str) -> Any:
        path = f"{self.upstream}/v1/namespaces/{name[0]}/{kind}s/{name[1]}"
        answer = self._session.get(path, timeout=60)
        return answer.json() if answer.ok else None


@contextmanager
def running_strict_server(server: RestServer) -> Iterator[StrictServer]:
    """Start a strict server in front of a REST server, on a free port of loopback."""
    strict = StrictServer(server, server.uri)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Else each body waits 40 ms for the receipt of its headers.
        disable_nagle_algorithm = True

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                answer = strict.answer(self.command, self.path, body, self.headers)
                status, content, more = answer.status_code, answer.content, {}
            except Refused as refused:
                error = {"message": str(refused), "type": refused.kind, "code": refused.status}
                status, content = refused.status, json.dumps({"error": error}).encode()
                more = refused.headers
            self.send_response(status)
            for key, value in more.items():
                self.send_header(key, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "0" if status == 204 else str(len(content)))
            self.end_headers()
            if self.command != "HEAD" and status != 204:
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    for method in ("GET", "HEAD", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._do)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        strict.server = replace(server, uri=f"http://127.0.0.1:{listening.server_port}")
        yield strict
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def read_metadata(location: str) -> dict[str, Any]:
    """Read a metadata file of the local file system."""
    content = Path(_plain(location)).read_bytes()
    found: dict[str, Any] = json.loads(
        gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    )
    return found


def _plain(location: str) -> str:
    return location.removeprefix("file://").removeprefix("file:").rstrip("/")


def _inside(location: str, folder: str) -> bool:
    return f"{_plain(location)}/".startswith(f"{_plain(folder)}/")


def _overlap(one: str, other: str) -> bool:
    return _inside(one, other) or _inside(other, one)
