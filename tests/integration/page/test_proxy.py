"""The page behind nginx, with the configuration of docs/page.md, in a real browser."""

from __future__ import annotations

import base64
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.error import HTTPError

import pyarrow as pa
import pytest
from helpers.browser import Browser, browsing
from helpers.documents import ROOT, blocks
from helpers.project import Project
from helpers.spark_server import free_port, listens

from sparkwap.publish.lake import Lake

HOST, USER = "lake.example.com", "ann:secret"
TOKEN = "0123456789abcdef"
BRANCH = "wap_1a2b3c4d"


@dataclass
class Served:
    """The page behind the proxy: its address, the proxy's port, and the page's own port."""

    url: str
    proxy: int
    port: int
    lake: Lake


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    """Install Streamlit if it is not installed; skip without nginx."""
    if shutil.which("nginx") is None:
        pytest.skip("there is no nginx on this machine")
    if importlib.util.find_spec("streamlit") is None:
        subprocess.run(["scripts/page"], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("proxy")
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/.lake/catalog.db",
        "warehouse": f"file://{folder}/.lake/warehouse",
    }
    Project(folder, "s", {"type": "sparkwap", "lake": str(folder / ".lake"), "threads": 1})
    lake = Lake("lake", properties)
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    lake.ensure_schema("s")
    lake.catalog.create_table(("s", "orders"), rows.schema).append(rows)
    lake.branches.open(("s", "orders"), BRANCH)
    proxy, port = free_port(), free_port()
    url = f"https://{HOST}:{proxy}/quality/"
    with closing(lake), nginx(folder, proxy, port), page(folder, port, url):
        yield Served(url, proxy, port, lake)


class Process:
    """A process, until the end of the block."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.command, self.log, self.environment = command, log, environment

    def __enter__(self) -> None:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=self.environment
            )

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def nginx(folder: Path, listen: int, port: int) -> Process:
    """The server of the page's documentation, on loopback, with files of this test."""
    (server,) = blocks(ROOT / "docs/page.md", "nginx")
    for written, here in (
        ("listen 443", f"listen 127.0.0.1:{listen}"),
        ("127.0.0.1:8501", f"127.0.0.1:{port}"),
        ("/etc/nginx/", f"{folder}/"),
    ):
        assert written in server
        server = server.replace(written, here)
    subject = ["-subj", f"/CN={HOST}", "-days", "2", "-newkey", "rsa:2048", "-nodes"]
    keys = ["-keyout", str(folder / "lake.key"), "-out", str(folder / "lake.pem")]
    subprocess.run(["openssl", "req", "-x509", *subject, *keys], check=True, capture_output=True)
    name, _, password = USER.partition(":")
    (folder / "lake.users").write_text(f"{name}:{{PLAIN}}{password}\n")
    scratch = "".join(
        f"{one}_temp_path {folder}/{one};" for one in
        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )  # fmt: skip
    # Started as root, its workers would be another user, who cannot read the folder.
    user = "user root; " if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user}daemon off; pid {folder}/nginx.pid; error_log stderr; events {{}}\n"
        f"http {{ access_log {folder}/access.log; {scratch}\n{server}}}\n"
    )
    command = ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    return Process(command, folder / "nginx.log", dict(os.environ))


def page(folder: Path, port: int, url: str) -> Process:
    """The page, as the documentation starts it."""
    shell = next(one for one in blocks(ROOT / "docs/page.md", "sh") if "--url" in one)
    (line,) = [line for line in shell.splitlines() if line.startswith("sparkwap page")]
    for written, here in (
        ("--target prod", f"--project-dir {folder} --profiles-dir {folder}"),
        ("8501", str(port)),
        ("https://lake.example.com/quality/", url),
    ):
        assert written in line
        line = line.replace(written, here)
    code = "from sparkwap.cli import main; raise SystemExit(main())"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DBT_")}
    return Process(
        [sys.executable, "-c", code, *line.split()[1:]],
        folder / "page.log",
        {**kept, "SPARKWAP_PAGE_TOKEN": TOKEN},
    )


@pytest.fixture(scope="module")
def browser(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    flags = (f"--host-resolver-rules=MAP {HOST} 127.0.0.1", "--ignore-certificate-errors")
    with browsing(tmp_path_factory.mktemp("browser") / "profile", *flags) as browser:
        until_up(served)
        yield browser


def until_up(served: Served) -> None:
    import time

    end = time.monotonic() + 120
    while not (listens(served.proxy) and listens(served.port)):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_page_works_under_its_path_and_its_buttons_too(
    served: Served, browser: Browser
) -> None:
    browser.open(served.url.replace(HOST, f"{USER}@{HOST}"))
    browser.wait("document.querySelector('h1') !== null")
    browser.open(served.url.rstrip("/"))
    browser.wait("document.querySelector('h1') !== null && location.pathname === '/quality/'")
    browser.open(f"{served.url}?view=Branches")
    browser.wait_for(BRANCH)
    assert browser.disabled("Discard …")
    browser.type(TOKEN, "input[type=password]")
    browser.wait_for("are unlocked.")
    if picture := os.environ.get("SPARKWAP_TEST_PICTURE"):
        browser.picture(Path(picture))
    browser.click("Discard …")
    browser.click(f"Yes, discard {BRANCH}")
    browser.wait_for("Done.")
    table = served.lake.catalog.load_table(("s", "orders"))
    assert set(table.metadata.refs) == {"main"}


def test_without_a_login_the_proxy_shows_nothing(served: Served, browser: Browser) -> None:
    import ssl

    trusting = ssl._create_unverified_context()
    asked = urllib.request.Request(
        f"https://127.0.0.1:{served.proxy}/quality/", headers={"Host": HOST}
    )
    with pytest.raises(HTTPError, match="401"):
        urllib.request.urlopen(asked, timeout=30, context=trusting)
    asked.add_header("Authorization", f"Basic {base64.b64encode(USER.encode()).decode()}")
    with urllib.request.urlopen(asked, timeout=30, context=trusting) as answer:
        assert TOKEN not in answer.read().decode()


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        (HOST, f"https://{HOST}", 101),
        ("127.0.0.1", "http://127.0.0.1", 101),
        (HOST, "https://evil.example", 403),
        # A name of others that leads to this machine.
        ("evil.example", "http://evil.example", 403),
    ],
)
def test_requests_of_other_pages_are_refused(
    served: Served, browser: Browser, host: str, origin: str, code: int
) -> None:
    with closing(HTTPConnection("127.0.0.1", served.port, timeout=30)) as connection:
        key = base64.b64encode(b"0123456789abcdef").decode()
        connection.request(
            "GET",
            "/quality/_stcore/stream",
            headers={
                "Host": host, "Origin": origin, "Connection": "Upgrade", "Upgrade": "websocket",
                "Sec-WebSocket-Key": key, "Sec-WebSocket-Version": "13",
            },
        )  # fmt: skip
        assert connection.getresponse().status == code


def test_the_page_listens_on_loopback_only(served: Served, browser: Browser) -> None:
    sockets = subprocess.run(["cat", "/proc/net/tcp"], capture_output=True, text=True, check=True)
    found = re.findall(rf" (\w+):{served.port:04X} 00000000:0000 0A", sockets.stdout)
    assert found == ["0100007F"]
