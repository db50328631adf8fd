"""A page as a real browser shows it, without a window."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_UNSEEN = frozenset({"script", "style", "head", "noscript"})
# Of the page's own clock, which goes on as fast as it can.
_PATIENCE_MS = 15_000
_PATIENCE_SECONDS = 600.0
_FLAGS = (
    "--headless",
    "--no-sandbox",  # root, as CI is, cannot have one
    "--disable-gpu",
)


def shown(page: Path, route: str = "") -> list[str]:
    """The texts that a browser shows of a page, in their order, once its scripts have run.

    Args:
        page: The HTML file.
        route: What comes after the ``#``.
    """
    command = [
        _program(),
        *_FLAGS,
        f"--virtual-time-budget={_PATIENCE_MS}",
        "--dump-dom",
        f"{page.as_uri()}#{route}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    reader = _Texts()
    reader.feed(done.stdout)
    return reader.found


class Browser:
    """A browser that clicks and types, by the DevTools protocol over two pipes.

    Args:
        send: Where commands go.
        receive: Where answers come from.
    """

    def __init__(self, send: int, receive: int) -> None:
        self._send = send
        self._receive = receive
        self._rest = b""
        self._last = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.size(1400, 900)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._receive], [], [], _PATIENCE_SECONDS)
            assert ready, "the browser says nothing"
            more = os.read(self._receive, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def size(self, width: int, height: int) -> None:
        """How large the window is, in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def open(self, url: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        ended = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in ended, ended["exceptionDetails"]
        return ended["result"].get("value")

    def text(self) -> str:
        """All text that is on the page."""
        return str(self.run("document.body ? document.body.innerText : ''"))

    def wait(self, condition: str, seconds: float = _PATIENCE_SECONDS) -> None:
        """Wait until a JavaScript condition holds."""
        until = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < until, f"waited for {condition}; the page:\n{self.text()}"
            time.sleep(0.1)

    def wait_for(self, text: str) -> None:
        """Wait until a text is on the page."""
        self.wait(f"document.body !== null && document.body.innerText.includes({json.dumps(text)})")

    def click(self, label: str, among: str = "button") -> None:
        """Click what has a text, as soon as it can be clicked."""
        found = f"{_having(label, among)}.filter(one => !one.disabled)"
        self.wait(f"{found}.length > 0")
        self.run(f"{found}[0].click()")

    def disabled(self, label: str) -> bool:
        """Whether the buttons with a text, which are there, are all disabled."""
        self.wait(f"{_having(label, 'button')}.length > 0")
        return bool(self.run(f"{_having(label, 'button')}.every(one => one.disabled)"))

    def type(self, text: str, selector: str) -> None:
        """Put a text into a field in the place of what is there, and press Enter."""
        field = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{field} !== null")
        self.run(f"({field}.focus(), {field}.select(), true)")
        self.call("Input.insertText", text=text)
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        self.call("Input.dispatchKeyEvent", type="keyDown", text="\r", **enter)
        self.call("Input.dispatchKeyEvent", type="keyUp", **enter)

    def picture(self, path: Path) -> None:
        """Write what the window shows to a PNG."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def browsing(profile: Path, *flags: str) -> Iterator[Browser]:
    """A browser, until the end of the block.

    Args:
        profile: An empty folder for what it keeps.
        flags: More options of its command line.
    """
    ours, theirs = os.pipe(), os.pipe()
    # The browser reads commands from 3 and writes answers to 4: first out of the way of those two.
    reads, writes = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (ours[0], theirs[1]))

    def wire() -> None:
        os.dup2(reads, 3)
        os.dup2(writes, 4)

    command = [_program(), *_FLAGS, *flags, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        command, preexec_fn=wire, pass_fds=(3, 4), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for end in (reads, writes, ours[0], theirs[1]):
        os.close(end)
    try:
        yield Browser(ours[1], theirs[0])
    finally:
        process.terminate()
        process.wait(30)
        os.close(ours[1])
        os.close(theirs[0])


def _program() -> str:
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        pytest.skip(f"there is no browser on this machine: {', '.join(_BROWSERS)}")
    return browser


def _having(label: str, among: str) -> str:
    return (
        f"[...document.querySelectorAll({json.dumps(among)})]"
        f".filter(one => one.innerText.includes({json.dumps(label)}))"
    )


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unseen += tag in _UNSEEN

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in _UNSEEN

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if text and not self._unseen:
            self.found.append(text)
