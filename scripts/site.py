"""A hook of mkdocs: replaces links out of docs/ by paths, because the site has no such files."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[`?([^\]`]+)`?\]\(\.\./((?!catalogs/)[^)]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the links of a page."""
    if "/" in page.file.src_uri:  # `../` is docs/ for these pages
        return markdown

    def plain(match: re.Match[str]) -> str:
        text, path = match.groups()
        return f"`{path}`" if text in path else f"{text} (`{path}`)"

    return _OUTSIDE.sub(plain, markdown)
