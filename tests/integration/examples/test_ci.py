"""The workflow files: which jobs an event starts, and what GitLab is asked.

What their commands come to on a lake is in `tests/functional/pr`.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from helpers.ci import EXAMPLES, GitHub, GitLab, Place

# It notes what it is called with, and fails if the file `bad` is there.
SPARKWAP = """
echo "$*" >> calls
if [ "$2" = comment ]; then echo "<!-- sparkwap pr -->" > comment.md; else test ! -e bad; fi
"""
# It knows the comments of the file `comments`.
GH = """
if [ "$2" != --paginate ]; then echo "gh $*" >> calls
elif [ -e comments ]; then jq -r "$5" comments; fi
"""


def written(method: str, path: str) -> str:
    return f"gh api --silent --method {method} repos/us/shop/issues/{path} -F body=@comment.md"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "checkout", tmp_path / "programs", {})
    place.folder.mkdir()
    (place.folder / "requirements.txt").touch()
    (place.folder / "ci").mkdir()
    shutil.copy(EXAMPLES / "gitlab/gitlab.py", place.folder / "ci")
    for name, text in {"sparkwap": SPARKWAP, "gh": GH, "pip": ""}.items():
        place.program(name, text)
    return place


def calls(place: Place) -> list[str]:
    file = place.folder / "calls"
    found = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return found


def test_github_starts_the_right_job(place: Place) -> None:
    github = GitHub(place)
    comment = ["pr comment --branch pr_7 --file comment.md"]
    comment += [written("POST", "7/comments")]
    for action in ("opened", "synchronize", "reopened"):
        (name, ended), *others = github.pull_request(action, 7).items()
        assert (name, ended.code, others) == ("audit", 0, [])
        assert calls(place) == ["pr audit --branch pr_7 --force", *comment]
    assert list(github.pull_request("closed", 7, merged=True)) == ["publish"]
    assert calls(place) == ["pr publish --branch pr_7", *comment]
    assert list(github.pull_request("closed", 7)) == ["close"]
    assert calls(place) == ["pr close --branch pr_7 --force"]
    for action in ("opened", "synchronize", "closed"):
        assert github.pull_request(action, 7, merged=True, of="a/fork") == {}


@pytest.mark.skipif(not shutil.which("jq"), reason="it stands for the one in gh")
def test_github_replaces_its_own_comment_only(place: Place) -> None:
    mark, bot = "<!-- sparkwap pr -->", "github-actions[bot]"
    comments = [
        {"id": 1, "user": {"login": "somebody"}, "body": mark},
        {"id": 2, "user": {"login": bot}, "body": f"{mark}\nRejected"},
        {"id": 3, "user": {"login": bot}, "body": "Coverage: 81 %"},
    ]
    (place.folder / "comments").write_text(json.dumps(comments))
    GitHub(place).pull_request("synchronize", 7)["audit"].succeeded()
    assert calls(place)[-1] == written("PATCH", "comments/2")
    (place.folder / "comments").write_text(json.dumps([comments[0], comments[2]]))
    GitHub(place).pull_request("synchronize", 7)["audit"].succeeded()
    assert calls(place)[-1] == written("POST", "7/comments")


def test_github_comments_on_a_failure_and_fails(place: Place) -> None:
    (place.folder / "bad").touch()
    GitHub(place).pull_request("opened", 7)["audit"].failed()
    assert [call.split()[1] for call in calls(place)] == ["audit", "comment", "api"]


class Answers(BaseHTTPRequestHandler):
    """GitLab, as far as the script asks it."""

    asked: list[tuple[str, str, Any]]
    answers: dict[str, Any]

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        assert self.headers["PRIVATE-TOKEN"] == "secret"
        self.asked.append((self.command, self.path, body))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.answers.get(self.path, {})).encode())

    do_GET = do_PUT = do_POST = _answer  # noqa: N815 - names of the protocol

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def gitlab() -> Iterator[tuple[type[Answers], dict[str, str]]]:
    handler = type("OneTest", (Answers,), {"asked": [], "answers": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield (
        handler,
        {
            "CI_API_V4_URL": f"http://127.0.0.1:{server.server_port}",
            "CI_PROJECT_ID": "5",
            "SPARKWAP_GITLAB_TOKEN": "secret",
        },
    )
    server.shutdown()


NOTES = "/projects/5/merge_requests/7/notes"


def test_gitlab_audits_a_merge_request(
    place: Place, gitlab: tuple[type[Answers], dict[str, str]]
) -> None:
    service, given = gitlab
    service.answers[f"{NOTES}?sort=desc&per_page=100"] = [{"id": 1, "body": "by somebody"}]
    given |= {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_IID": "7"}
    (place.folder / "bad").touch()
    ended = GitLab(place).pipeline(**given)
    assert list(ended) == ["audit"], "the close is pressed by people"
    ended["audit"].failed()
    assert [call.split()[1] for call in calls(place)] == ["audit", "comment"]
    assert service.asked[-1][:2] == ("POST", NOTES)
    # The next push replaces the comment.
    body = service.asked[-1][2]["body"]
    service.answers[f"{NOTES}?sort=desc&per_page=100"] = [{"id": 3, "body": body}]
    (place.folder / "bad").unlink()
    GitLab(place).pipeline(**given)["audit"].succeeded()
    assert service.asked[-1][:2] == ("PUT", f"{NOTES}/3")
    pressed = GitLab(place).pipeline("close", **given)
    pressed["close"].succeeded()
    assert calls(place)[-1] == "pr close --branch pr_7 --force"


def test_gitlab_publishes_a_merge(
    place: Place, gitlab: tuple[type[Answers], dict[str, str]]
) -> None:
    service, given = gitlab
    service.answers["/projects/5/repository/commits/abc/merge_requests"] = [
        {"iid": 5, "state": "merged", "target_branch": "stacked"},
        {"iid": 6, "state": "closed", "target_branch": "main"},
        {"iid": 7, "state": "merged", "target_branch": "main"},
    ]
    service.answers["/projects/5/repository/commits/def/merge_requests"] = []
    service.answers[f"{NOTES}?sort=desc&per_page=100"] = []
    given |= {"CI_PIPELINE_SOURCE": "push", "CI_DEFAULT_BRANCH": "main"}
    ended = GitLab(place).pipeline(**given, CI_COMMIT_BRANCH="main", CI_COMMIT_SHA="abc")
    assert list(ended) == ["publish"]
    assert calls(place)[0] == "pr publish --branch pr_7"
    ended = GitLab(place).pipeline(**given, CI_COMMIT_BRANCH="main", CI_COMMIT_SHA="def")
    assert ended["publish"].succeeded()
    assert calls(place) == []
    assert GitLab(place).pipeline(**given, CI_COMMIT_BRANCH="other", CI_COMMIT_SHA="abc") == {}
    (place.folder / "bad").touch()
    given |= {"CI_COMMIT_BRANCH": "main", "CI_COMMIT_SHA": "abc"}
    GitLab(place).pipeline(**given)["publish"].failed()


def test_gitlab_sweeps_by_schedule(place: Place) -> None:
    assert list(GitLab(place).pipeline(CI_PIPELINE_SOURCE="schedule")) == ["sweep"]
    assert calls(place) == ["sweep --named-older-than 14"]
