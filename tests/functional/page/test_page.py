"""The page in a real browser, over a lake behind the gate: its content and its buttons.

In one file and one order, as all of it looks at the same few builds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.browser import Browser, browsing
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project

ROOT = Path(__file__).parents[3]
TOKEN_FIELD = "input[type=password]"
PLOTS = "document.querySelectorAll('[data-testid=stVegaLiteChart] svg.marks').length"
HELD = "pr_7"
SHOP = {
    "models/orders.sql": """
        select id, if(id = {{ var('bad_id', 0) }}, null, id * 2) as amount
        from range(1, {{ var('rows', 10) }} + 1)
    """,
    "models/prices.sql": """
        select * from values
            (1, 10, timestamp '2026-01-01', timestamp '2026-01-20'),
            (1, 12, timestamp '2026-01-20', cast(null as timestamp)),
            (2, 20, timestamp '2026-01-05', cast(null as timestamp))
            as prices(id, price, valid_from, valid_to)
    """,
    "models/properties.yml": """
        models:
          - name: orders
            columns:
              - name: amount
                data_tests: [{not_null: {name: amounts_known}}]
          - name: prices
            columns: [{name: price, data_tests: [{not_null: {name: prices_known}}]}]
    """,
}


@dataclass
class Shown:
    """The page of a project, open in a browser."""

    project: Project
    reader: Reader
    rejected: Outcome
    browser: Browser
    url: str
    token: str
    log: Path

    def view(self, name: str, token: str | None = None) -> None:
        """Open a view in a new session, and type a token."""
        self.browser.open("about:blank")
        self.browser.open(f"{self.url}/?view={name}")
        self.browser.wait("document.querySelector('h1') !== null")
        if token is not None:
            self.browser.type(token, TOKEN_FIELD)

    def amounts(self) -> list[Any]:
        """Return the rows that readers of main see."""
        return self.reader.table(self.project.schema, "orders").values("id", "amount")

    def refs(self) -> set[str]:
        """Return the branches and tags of the table, read by PyIceberg."""
        table = self.reader.catalog.load_table((self.project.schema, "orders"))
        return set(table.metadata.refs)


@pytest.fixture(scope="module")
def streamlit() -> None:
    """Install Streamlit as `make page` does, if it is not installed."""
    if importlib.util.find_spec("streamlit") is None:
        subprocess.run(["scripts/page"], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def page(
    make_project: MakeProject,
    reader: Reader,
    streamlit: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shown]:
    """A published run, a rejected one and a held one; the page, and a browser that shows it."""
    project = make_project("page", SHOP, settings={"models": {"+materialized": "table"}})
    project.dbt("build").succeeded()
    rejected = project.dbt("build", bad_id=3).failed()
    held = project.dbt("build", "--select", "orders", rows=12, wap_branch=HELD, wap_publish="never")
    held.succeeded()
    folder = tmp_path_factory.mktemp("browser")
    log = folder / "page.log"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DBT_", "SPARKWAP_P"))}
    with log.open("w") as said:
        served = subprocess.Popen(
            [
                *(sys.executable, "-c", "from sparkwap.cli import main; raise SystemExit(main())"),
                *("page", "--project-dir", str(project.folder)),
                *("--profiles-dir", str(project.folder)),
            ],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=environment,
        )
        assert served.stdout is not None
        try:
            url = served.stdout.readline().split()[-1]
            token = served.stdout.readline().split()[-1]
            with browsing(folder / "profile") as browser:
                yield Shown(project, reader, rejected, browser, url, token, log)
        finally:
            served.send_signal(signal.SIGTERM)
            served.wait(30)


def test_the_page_is_only_on_loopback_and_only_its_owner_reads_the_settings(page: Shown) -> None:
    assert page.url.startswith("http://127.0.0.1:")
    (settings,) = (page.project.folder / "target/page").glob("settings_*.json")
    assert settings.stat().st_mode & 0o777 == 0o600
    with urllib.request.urlopen(page.url, timeout=30) as answer:
        assert page.token not in answer.read().decode()


def test_runs_are_shown_with_their_verdicts(page: Shown) -> None:
    page.view("Runs")
    page.browser.wait_for("Verdicts of the gate")
    page.browser.wait(f"{PLOTS} >= 2")
    page.browser.wait_for("All runs")
    # The axis has the time of a run; the table and the selection have its id.
    text = page.browser.text()
    assert "run (UTC), oldest first" in text
    assert page.rejected.run_id[:8] not in text.partition("All runs")[0]


def test_a_rejected_branch_is_shown_with_its_reason_and_its_commands(page: Shown) -> None:
    page.view("Branches")
    page.browser.wait_for(page.rejected.branch)
    page.browser.wait_for("amounts_known failed")
    page.browser.wait_for(HELD)
    text = page.browser.text()
    assert f"wap_discard --args '{{branch: {HELD}}}'" in text or "Commands that continue" in text


def test_without_the_token_the_buttons_are_disabled(page: Shown) -> None:
    before, refs = page.amounts(), page.refs()
    for token in (None, "no-such-token-at-all", page.token[:-1]):
        page.view("Branches", token)
        if token:
            page.browser.wait_for("This token is wrong.")
        for button in ("Approve and publish", "Discard …"):
            assert page.browser.disabled(button)
    # Even if somebody enables the buttons in the browser.
    shut = "[...document.querySelectorAll('button')].filter(one => one.disabled)"
    page.browser.run(f"{shut}.forEach(one => {{one.disabled = false; one.click()}})")
    page.browser.wait_for("Branches")
    assert (page.amounts(), page.refs()) == (before, refs)


def test_rows_need_the_token(page: Shown) -> None:
    page.view("History of a key")
    page.browser.wait_for("to unlock rows")
    page.browser.type(page.token, TOKEN_FIELD)
    page.browser.wait_for("changed: price")


def test_tests_are_a_grid_over_runs(page: Shown) -> None:
    page.view("Tests")
    page.browser.wait_for("Pass and fail over runs")
    page.browser.wait_for("amounts_known")


def test_publish_moves_main_to_the_held_branch(page: Shown) -> None:
    assert len(page.amounts()) == 10
    page.view("Branches", page.token)
    page.browser.wait_for("are unlocked.")
    press(page.browser, HELD, "Approve and publish")
    page.browser.wait_for("Done.")
    assert sorted(page.amounts()) == [(n, n * 2) for n in range(1, 13)]
    assert HELD not in page.refs()
    (row,) = [r for r in page.reader.ledger("runs", branch=HELD) if r["command"] == "wap_publish"]
    assert row["outcome"] == "published"


def test_a_rejected_branch_cannot_be_approved(page: Shown) -> None:
    before = page.amounts()
    page.view("Branches", page.token)
    page.browser.wait_for("are unlocked.")
    page.browser.wait_for("This branch cannot be published. The gate has rejected a table.")
    assert page.browser.disabled("Approve and publish")
    shut = "[...document.querySelectorAll('button')].filter(one => one.disabled)"
    page.browser.run(f"{shut}.forEach(one => {{one.disabled = false; one.click()}})")
    page.browser.wait_for("Branches")
    assert page.amounts() == before
    assert page.rejected.branch in page.refs()


def test_discard_drops_the_branch_and_readers_see_no_change(page: Shown) -> None:
    before = page.amounts()
    page.view("Branches", page.token)
    page.browser.wait_for("are unlocked.")
    press(page.browser, page.rejected.branch, "Discard …")
    page.browser.click(f"Yes, discard {page.rejected.branch}")
    page.browser.wait_for("Done.")
    assert page.amounts() == before
    assert page.rejected.branch not in page.refs()
    # Other tests of this lake may have left branches of their own open.
    gone = json.dumps(f".st-key-{_key('Discard …')}-{page.rejected.branch} button")
    page.browser.wait(f"document.querySelector({gone}) === null")


def test_no_log_and_no_address_has_the_token(page: Shown) -> None:
    assert page.token not in page.log.read_text()
    assert page.token not in str(page.browser.run("location.href"))
    for log in page.project.folder.rglob("*.log"):
        assert page.token not in log.read_text()


def press(browser: Browser, branch: str, label: str) -> None:
    """Click a button of one branch, as soon as it can be clicked."""
    key = json.dumps(f".st-key-{_key(label)}-{branch} button")
    button = f"document.querySelector({key})"
    browser.wait(f"{button} !== null && !{button}.disabled")
    browser.run(f"{button}.click()")


def _key(label: str) -> str:
    return {"Approve and publish": "publish", "Discard …": "discard"}[label]
