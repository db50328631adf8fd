"""An S3 server on loopback, in a process of a test's own: moto, which keeps objects in memory.

In front of it is a filter that counts requests, fails or delays those that a test chooses, and
refuses those that are not signed, or by the keys of another folder (`vended_keys`).
"""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import boto3
import pytest
import requests

KEY, SECRET, REGION, BUCKET = "lake", "lake-secret", "us-east-1", "lake"
_CONTROL = "/_control"
_SIGNED = re.compile(r"Credential=([^/]+)/.*/s3/aws4_request")
_VENDED = re.compile(r"vended-(\d+)-([0-9a-f]+)-\d+")
_DELETED = re.compile(rb"<Key>([^<]*)</Key>")


@dataclass(frozen=True)
class Faults:
    """What the server does to requests, instead of answering them at once.

    Attributes:
        every: each n-th request is refused with 503 (slow down), as S3 does under load; 0: none.
        seconds: the delay of each request.
        paths: only requests whose path has this text.
        method: only requests of this method (``GET``), or of this action of a service with JSON
            requests (``UpdateTable`` of Glue); all if empty.
        error: the name of a service's error, with which requests are refused instead of 503.
        lost: requests are not refused but carried out, and the connection breaks before the answer.
        most: how many requests are refused or lost at most.
    """

    every: int = 0
    seconds: float = 0
    paths: str = ""
    method: str = ""
    error: str = ""
    lost: bool = False
    most: int = 1_000_000


def forget_own_keys(patch: pytest.MonkeyPatch) -> None:
    """Hide the keys of this machine, which may also be one of a cloud that has some."""
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        patch.delenv(name, raising=False)


def vended_keys(folder: str, until: float) -> dict[str, str]:
    """Return PyIceberg's properties with new keys for the objects below a folder.

    Args:
        folder: a location in the bucket.
        until: the end of the keys, in seconds since 1970.
    """
    inner = folder.removeprefix(f"s3://{BUCKET}/").rstrip("/").encode().hex()
    return {
        "s3.access-key-id": f"vended-{until * 1000:.0f}-{inner}-{time.time_ns()}",
        "s3.secret-access-key": SECRET,
        "s3.session-token": "vended",
        "s3.session-token-expires-at-ms": f"{until * 1000:.0f}",
    }


@dataclass(frozen=True)
class Store:
    """A running S3 server with an empty bucket.

    Attributes:
        endpoint: its address.
        warehouse: a location in its bucket.
    """

    endpoint: str
    warehouse: str = f"s3://{BUCKET}/warehouse"
    _session: requests.Session = field(default_factory=requests.Session, repr=False)

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of the store."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": REGION,
        }

    @property
    def iceberg(self) -> dict[str, str]:
        """The properties of a catalog of Iceberg in Java."""
        return {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "client.region": REGION,
        }

    def object_keys(self) -> list[str]:
        """Return the keys of all objects."""
        pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def delete(self, prefix: str) -> None:
        """Delete the objects whose keys begin so."""
        client = self._client()
        for key in self.object_keys():
            if key.startswith(prefix):
                client.delete_object(Bucket=BUCKET, Key=key)

    def _client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )

    def download(self, folder: Path) -> Path:
        """Copy all objects to a folder that need not exist."""
        from pyarrow.fs import LocalFileSystem, S3FileSystem, copy_files

        store = S3FileSystem(
            access_key=KEY, secret_key=SECRET, region=REGION, endpoint_override=self.endpoint
        )
        folder.mkdir(parents=True)
        copy_files(
            BUCKET, str(folder), source_filesystem=store, destination_filesystem=LocalFileSystem()
        )
        return folder

    def faults(self, faults: Faults) -> None:
        """Change what the server does to requests from now on."""
        answer = self._session.post(self.endpoint + _CONTROL, json=vars(faults), timeout=60)
        answer.raise_for_status()

    def requests(self) -> dict[str, int]:
        """Return the number of requests since the last call, by kind, such as ``GET`` or ``LIST``;
        ``503`` for those that were refused or lost."""
        counted: dict[str, int] = self._session.get(self.endpoint + _CONTROL, timeout=60).json()
        return counted


@contextmanager
def running_s3(program: str = __file__) -> Iterator[Store]:
    """Start a server; its objects are gone when it ends.

    Args:
        program: the script that serves on the port it is given.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, program, str(port)], stderr=subprocess.DEVNULL)
    store = Store(f"http://127.0.0.1:{port}")
    try:
        _wait(store, process)
        yield store
    finally:
        process.kill()
        process.wait()


def _wait(store: Store, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert process.poll() is None, "the S3 server has ended"
        try:
            requests.put(f"{store.endpoint}/{BUCKET}", timeout=5).raise_for_status()
        except requests.ConnectionError:
            time.sleep(0.1)
        else:
            store.requests()
            return
    raise AssertionError("the S3 server did not start")


class _Filter:
    """Counts requests, refuses or delays some, and hands the others on. A WSGI application."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._faults = Faults()
        self._counts: dict[str, int] = {}
        self._met = 0
        self._failed = 0
        self._lock = threading.Lock()

    def __call__(self, environment: dict[str, Any], start: Any) -> Iterable[bytes]:
        path, method = environment["PATH_INFO"], environment["REQUEST_METHOD"]
        if path == _CONTROL:
            return self._control(method, environment, start)
        if code := _refusal(environment):
            with self._lock:
                self._counts[code] = self._counts.get(code, 0) + 1
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>by its keys</Message></Error>".encode()]
        action = environment.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        kind = action or _kind(method, environment.get("QUERY_STRING", ""))
        faults = self._meets(path, action or method, kind)
        if faults is None:
            return self._application(environment, start)
        if faults.lost:
            for _ in self._application(environment, lambda *_: None):
                pass
            environment["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError("a test wants this answer to be lost")
        # What is sent is read, or the client takes it for a broken connection.
        environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        if faults.error:
            start("400 Bad Request", [("Content-Type", "application/x-amz-json-1.1")])
            return [json.dumps({"__type": faults.error, "message": "by a test"}).encode()]
        start("503 Slow Down", [("Content-Type", "application/xml")])
        return [b"<Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"]

    def _meets(self, path: str, method: str, kind: str) -> Faults | None:
        """Count a request, delay it if it is meant; returns the faults if it has to fail."""
        with self._lock:
            faults = self._faults
            meant = faults.paths in path and faults.method in ("", method)
            self._met += meant
            fails = bool(meant and faults.every and self._met % faults.every == 0)
            fails = fails and self._failed < faults.most
            self._failed += fails
            for name in (kind, *(["503"] if fails else [])):
                self._counts[name] = self._counts.get(name, 0) + 1
        if meant and faults.seconds:
            time.sleep(faults.seconds)
        return faults if fails else None

    def _control(self, method: str, environment: Mapping[str, Any], start: Any) -> Iterable[bytes]:
        with self._lock:
            if method == "POST":
                sent = environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"]))
                self._faults, self._met, self._failed = Faults(**json.loads(sent)), 0, 0
            counts, self._counts = self._counts, {} if method == "GET" else self._counts
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(counts).encode()]


def _refusal(environment: dict[str, Any]) -> str | None:
    """Return S3's code if the keys of a request do not reach its objects."""
    path, query = unquote(environment["PATH_INFO"]), parse_qs(environment.get("QUERY_STRING", ""))
    made = path == f"/{BUCKET}" and environment["REQUEST_METHOD"] == "PUT"
    if made or "HTTP_X_AMZ_TARGET" in environment:
        return None
    signed = _SIGNED.search(environment.get("HTTP_AUTHORIZATION", ""))
    if signed is None:
        return "AccessDenied"
    vended = _VENDED.fullmatch(signed[1])
    if vended is None:
        return None
    if int(vended[1]) < time.time() * 1000:
        return "ExpiredToken"
    reached = bytes.fromhex(vended[2]).decode()
    names = [path.removeprefix(f"/{BUCKET}").lstrip("/")]
    if not names[0] and "delete" in environment.get("QUERY_STRING", ""):
        body = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        environment["wsgi.input"] = io.BytesIO(body)
        names = [found.decode() for found in _DELETED.findall(body)]
    elif not names[0]:
        names = query.get("prefix", [""])
    inside = all(f"{name}/".startswith(f"{reached}/") for name in names)
    return None if inside else "AccessDenied"


def _kind(method: str, query: str) -> str:
    return "LIST" if method == "GET" and "list-type" in query else method


def serve(port: int) -> None:
    """Serve all of moto's services on a port of loopback, behind the filter."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    application = _Filter(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, application, threaded=True)


if __name__ == "__main__":
    # The folder of this file is the first place of modules, and some have names of packages.
    sys.path.remove(str(Path(__file__).parent))
    serve(int(sys.argv[1]))
