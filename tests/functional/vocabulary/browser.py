"""A page as a real browser shows it, without a window."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_UNSEEN = frozenset({"script", "style", "head", "noscript"})
# Of the page's own clock, which goes on as fast as it can.
_PATIENCE_MS = 15_000


def shown(page: Path, route: str = "") -> list[str]:
    """The texts that a browser shows of a page, in their order, once its scripts have run.

    Args:
        page: The HTML file.
        route: What comes after the ``#``.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        pytest.skip(f"there is no browser on this machine: {', '.join(_BROWSERS)}")
    command = [
        browser,
        "--headless",
        "--no-sandbox",  # root, as CI is, cannot have one
        "--disable-gpu",
        f"--virtual-time-budget={_PATIENCE_MS}",
        "--dump-dom",
        f"{page.as_uri()}#{route}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    reader = _Texts()
    reader.feed(done.stdout)
    return reader.found


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
