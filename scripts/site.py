"""A hook of mkdocs: links to files outside of docs/ become their paths, as a site has no such files."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[`?([^\]`]+)`?\]\((?:\.\./)+(?!(?:[\w-]+/)?[\w-]+\.md)([^)]+)\)|"
                      r"\[([^\]]+)\]\(\.\./((?:CONTRIBUTING|CHANGELOG|README)\.md[^)]*)\)")  # fmt: skip


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the links of a page."""

    def plain(match: re.Match[str]) -> str:
        text, path = match[1] or match[3], match[2] or match[4]
        return f"`{path}`" if text in path else f"{text} (`{path}`)"

    return _OUTSIDE.sub(plain, markdown)
