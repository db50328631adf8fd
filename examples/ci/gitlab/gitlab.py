"""What a pipeline asks of GitLab: the number of a merge, and a comment that is kept up to date.

    python gitlab.py merged <commit>                  print the number of the merge request
    python gitlab.py comment <number> <file>          write the comment, or replace it

Reads CI_API_V4_URL, CI_PROJECT_ID, CI_DEFAULT_BRANCH and SPARKWAP_GITLAB_TOKEN.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen


def ask(method: str, path: str, body: str | None = None) -> Any:
    """The answer to a request about this project."""
    address = f"{os.environ['CI_API_V4_URL']}/projects/{os.environ['CI_PROJECT_ID']}/{path}"
    request = Request(
        address,
        method=method,
        data=None if body is None else json.dumps({"body": body}).encode(),
        headers={
            "PRIVATE-TOKEN": os.environ["SPARKWAP_GITLAB_TOKEN"],
            "Content-Type": "application/json",
        },
    )
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


def merged(commit: str) -> None:
    """Print the number of the merge request of a commit of the default branch; else nothing."""
    found = ask("GET", f"repository/commits/{commit}/merge_requests")
    here = ("merged", os.environ["CI_DEFAULT_BRANCH"])
    numbers = [one["iid"] for one in found if (one["state"], one["target_branch"]) == here]
    print(numbers[0] if numbers else "")


def comment(number: str, file: str) -> None:
    """Put the file's text in the place of the last comment that begins with the same line."""
    text = Path(file).read_text(encoding="utf-8")
    notes = f"merge_requests/{number}/notes"
    marker = text.splitlines()[0]
    for note in ask("GET", f"{notes}?sort=desc&per_page=100"):
        if note["body"].startswith(marker):
            ask("PUT", f"{notes}/{note['id']}", text)
            return
    ask("POST", notes, text)


if __name__ == "__main__":
    {"merged": merged, "comment": comment}[sys.argv[1]](*sys.argv[2:])
