"""What README and docs tell people to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`((?:sparkwap|dbt|make) [^`\n]+)`")
_VARIABLE = re.compile(r"[A-Z_]+=")
_PLACEHOLDER = re.compile(r"<[^>]+>")
# The first line of a summary reads like a command: two spaces tell them apart.
_COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:sparkwap|dbt|make|python) (?! )")


@dataclass(frozen=True)
class Command:
    """A command of a page.

    Attributes:
        page: the page's path in the repository.
        words: its words, without variables of the environment before it; names in pointed brackets
            stand for something, and are ``pr_1`` here.
        inline: whether it stands in a sentence or table, where it may be part of a command only.
    """

    page: str
    words: tuple[str, ...]
    inline: bool = False

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"

    def option(self, name: str) -> str | None:
        """The value of an option."""
        given = dict(zip(self.words, self.words[1:], strict=False))
        return given.get(name)


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return [text for found, text in _BLOCK.findall(page.read_text()) if found == language]


def commands(*programs: str) -> list[Command]:
    """All commands of all pages that call one of some programs."""
    return [one for page in PAGES for one in _of(page) if one.words[0] in programs]


def _of(page: Path) -> Iterator[Command]:
    name = str(page.relative_to(ROOT))
    for block in (text for kind in ("sh", "") for text in blocks(page, kind)):
        for line in block.replace("\\\n", " ").splitlines():
            text = line.strip().removeprefix("$ ")
            if _COMMAND.match(text):
                yield Command(name, _words(text))
    for text in _INLINE.findall(page.read_text()):
        yield Command(name, _words(text.replace("\\|", "|")), inline=True)


def _words(text: str) -> tuple[str, ...]:
    words = shlex.split(_PLACEHOLDER.sub("pr_1", text), comments=True)
    while _VARIABLE.match(words[0]):
        words.pop(0)
    return tuple(words)
