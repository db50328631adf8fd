"""A lake kept up to date by Prefect: new landing files, a schedule, retries, replay, cleaning up.

    python flow.py once                      one run now
    python flow.py serve --every 3600        runs on schedule, and for new landing files
    python flow.py replay 2024-02-01T00:00Z  what the models give as of then; publishes nothing

sparkwap is called as a command, since dbt and Prefect want an environment each. PROJECT is the dbt
project, SPARKWAP and DBT are its commands, LANDING is its landing folder.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect import flow, get_run_logger, serve, task
from prefect.tasks import exponential_backoff

PROJECT = Path(os.environ.get("PROJECT", ".")).resolve()
LANDING = PROJECT / os.environ.get("LANDING", "examples/landing")
SPARKWAP = shlex.split(os.environ.get("SPARKWAP", "sparkwap"))
DBT = shlex.split(os.environ.get("DBT", "dbt"))
STATE = PROJECT / "target" / "prefect_landing.json"
SETTLE = float(os.environ.get("SETTLE", "10"))
RETRY_DELAY = float(os.environ.get("RETRY_DELAY", "30"))


def call(*command: str) -> None:
    """Run a command in the project, its output in Prefect's log.

    Raises:
        RuntimeError: Its exit code is not 0.
    """
    logger = get_run_logger()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=PROJECT, start_new_session=True, **streams) as process:
        try:
            for line in process.stdout or ():
                logger.info(line.rstrip())
            code = process.wait()
        except BaseException:
            # A run that is cancelled: dbt is interrupted as by Ctrl-C, and publishes nothing.
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
            raise
    if code:
        raise RuntimeError(f"{shlex.join(command)} ended with code {code}; see its output above")


def listing() -> list[list[object]]:
    """The landing files that are whole, by name, size and time of their last change."""
    files = (path for path in LANDING.rglob("*") if not path.name.startswith((".", "_")))
    stats = ((str(path), path.stat()) for path in files if path.is_file())
    return sorted([name, stat.st_size, stat.st_mtime_ns] for name, stat in stats)


@contextmanager
def one_at_a_time() -> Iterator[bool]:
    """Whether this is the only run; the lock goes with its process, however that ends."""
    STATE.parent.mkdir(parents=True, exist_ok=True)
    with STATE.with_suffix(".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


@task(retries=3, retry_delay_seconds=exponential_backoff(RETRY_DELAY), retry_jitter_factor=0.5)
def build() -> None:
    """Read, build, audit and publish each drop; a try that is repeated does nothing twice."""
    call(*SPARKWAP, "build")


@task
def clean_up() -> None:
    """Take away what runs have left behind, and tell of what waits for somebody."""
    call(*SPARKWAP, "sweep")
    if os.environ.get("ALERTS"):
        call(*SPARKWAP, "alerts", "check")


@flow(name="lake")
def lake() -> str:
    """One run: all of it is published, or what is not is on its audit branch and the run fails."""
    with one_at_a_time() as alone:
        if not alone:
            return "another run is at work"
        taken = listing()
        try:
            build()
        finally:
            clean_up(return_state=True)
            # Also of a run that failed: the same files would fail again; a change is tried.
            STATE.write_text(json.dumps(taken))
    return "published"


@flow(name="arrivals")
def arrivals() -> str:
    """Look for landing files; run when they are new and nothing is being written any more."""
    found = listing()
    if STATE.exists() and json.loads(STATE.read_text()) == found:
        return "nothing new"
    time.sleep(SETTLE)
    return lake() if listing() == found else "files are arriving"


@flow(name="replay")
def replay(as_of: str, select: str = "") -> str:
    """Build from the tables as they were at a point in time, on a branch that is not published."""
    branch = "replay_" + re.sub(r"[^a-z0-9]+", "_", as_of.lower()).strip("_")
    chosen = ["--select", *select.split()] if select else []
    variables = {"as_of": as_of, "wap_branch": branch, "wap_publish": "never"}
    call(*DBT, "build", *chosen, "--vars", json.dumps(variables))
    return branch


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("once")
    commands.add_parser("arrivals")
    of_serve = commands.add_parser("serve")
    of_serve.add_argument("--every", type=float, default=3600)
    of_replay = commands.add_parser("replay")
    of_replay.add_argument("as_of")
    of_replay.add_argument("--select", default="")
    given = parser.parse_args()
    if given.command == "serve":
        serve(
            lake.to_deployment("schedule", interval=given.every),
            arrivals.to_deployment("arrivals", interval=30, concurrency_limit=1),
            replay.to_deployment("replay"),
        )
    elif given.command == "replay":
        print(replay(given.as_of, given.select))
    else:
        print({"once": lake, "arrivals": arrivals}[given.command]())
