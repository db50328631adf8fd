"""The workflow files of `examples/ci`, read and run as their services would run their steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples/ci"
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
_NAME = re.compile(r"\bgithub(?:\.\w+)+")


@dataclass(frozen=True)
class Ended:
    """How a job ended: its exit code is that of its first step that failed."""

    code: int
    text: str

    def succeeded(self) -> Ended:
        assert self.code == 0, self.text
        return self

    def failed(self) -> Ended:
        assert self.code != 0, f"a non-zero exit was expected:\n{self.text}"
        return self


@dataclass(frozen=True)
class Place:
    """Where steps run: a checkout, and programs that stand for those of the service."""

    folder: Path
    programs: Path
    environment: Mapping[str, str]

    def program(self, name: str, text: str) -> None:
        """Put a program on the path."""
        self.programs.mkdir(parents=True, exist_ok=True)
        path = self.programs / name
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def run(self, script: str, environment: Mapping[str, str]) -> Ended:
        """Run a script as both services do: in bash, up to its first error."""
        path = f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder,
            env={**os.environ, **self.environment, **environment, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout)


class GitHub:
    """The workflow for GitHub Actions."""

    def __init__(self, place: Place) -> None:
        self.file = yaml.safe_load((EXAMPLES / "github/sparkwap.yml").read_text())
        self.place = place

    def pull_request(
        self, action: str, number: int, *, merged: bool = False, of: str = "us/shop"
    ) -> dict[str, Ended]:
        """What an event of a branch of a repository starts: each job that runs, by name."""
        # YAML takes the word `on` for true.
        assert action in self.file[True]["pull_request"]["types"]
        event = {
            "action": action,
            "number": number,
            "pull_request": {
                "merged": merged,
                "merge_commit_sha": "1a2b",
                "head": {"repo": {"full_name": of}},
            },
        }
        context = {"github": {"event": event, "token": "a token", "repository": "us/shop"}}
        jobs = self.file["jobs"]
        return {n: self._job(j, context) for n, j in jobs.items() if _value(j["if"], context)}

    def _job(self, job: Mapping[str, Any], context: Mapping[str, Any]) -> Ended:
        code, text = 0, []
        for step in job["steps"]:
            # What others have made (`uses`) is not run; after a failure, what asks for it.
            if "run" not in step or (code and not _value(step.get("if", "false"), context)):
                continue
            given = {**self.file["env"], **step.get("env", {})}
            ended = self.place.run(
                step["run"], {key: _filled(value, context) for key, value in given.items()}
            )
            text.append(ended.text)
            code = code or ended.code
        return Ended(code, "\n".join(text))


class GitLab:
    """The jobs for GitLab CI."""

    def __init__(self, place: Place) -> None:
        self.file = yaml.safe_load((EXAMPLES / "gitlab/sparkwap.yml").read_text())
        self.place = place

    def pipeline(self, *pressed: str, **variables: str) -> dict[str, Ended]:
        """What a pipeline with these variables runs: each job, by name; manual ones if pressed."""
        jobs = {name: job for name, job in self.file.items() if isinstance(job, dict)}
        return {
            name: self._job(job, variables)
            for name, job in jobs.items()
            if not name.startswith(".") and self._runs(name, job, pressed, variables)
        }

    @staticmethod
    def _runs(
        name: str, job: Mapping[str, Any], pressed: Sequence[str], variables: Mapping[str, str]
    ) -> bool:
        for rule in job["rules"]:
            terms = [term.split("==") for term in rule["if"].split("&&")]
            if all(_given(a, variables) == _given(b, variables) for a, b in terms):
                return rule.get("when") != "manual" or name in pressed
        return False

    def _job(self, job: Mapping[str, Any], variables: Mapping[str, str]) -> Ended:
        common = self.file[job["extends"]]
        given = {**common["variables"], **variables}
        # One shell for all lines, and another one for those that come after, whatever happened.
        ended = self.place.run("\n".join([*common["before_script"], *job["script"]]), given)
        if "after_script" in job:
            after = self.place.run("\n".join(job["after_script"]), given)
            return Ended(ended.code, ended.text + after.text)
        return ended


def _given(text: str, variables: Mapping[str, str]) -> str:
    text = text.strip()
    return variables.get(text[1:], "") if text.startswith("$") else text.strip('"')


def _filled(text: Any, context: Mapping[str, Any]) -> str:
    return _EXPRESSION.sub(lambda found: str(_value(found[1], context)), str(text))


def _value(expression: Any, context: Mapping[str, Any]) -> Any:
    """The value of an expression of GitHub's, as far as the workflow has them."""
    text = _EXPRESSION.sub(r"\1", str(expression)).replace("cancelled()", "False")
    text = _NAME.sub(lambda found: repr(_looked_up(found[0], context)), text.strip())
    text = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or "))
    return eval(text.strip().replace("false", "False"), {"__builtins__": {}})


def _looked_up(name: str, context: Any) -> Any:
    for part in name.split("."):
        context = context[part]
    return context
