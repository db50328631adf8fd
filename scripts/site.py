"""A hook of mkdocs: a link out of docs/ becomes the path, as a site has no such file."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[`?([^\]`]+)`?\]\(\.\./((?!catalogs/)[^)]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the links of a page."""
    if "/" in page.file.src_uri:  # `../` is docs/ itself there
        return markdown

    def plain(match: re.Match[str]) -> str:
        text, path = match.groups()
        return f"`{path}`" if text in path else f"{text} (`{path}`)"

    return _OUTSIDE.sub(plain, markdown)
