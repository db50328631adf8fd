"""The page drawn by Streamlit, without a browser, over a lake in a folder."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dbt.adapters.factory import reset_adapters
from helpers.project import Project

from sparkwap.catalog import lease
from sparkwap.catalog.model import LedgerRows
from sparkwap.core import dbt_cli
from sparkwap.core.personal import MARKS, OF_TABLES, RAW_TEXT
from sparkwap.page import access, actions
from sparkwap.page.access import SETTINGS, Settings
from sparkwap.page.formats import escape_markdown
from sparkwap.publish.lake import Lake

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
APP = ROOT / "src/sparkwap/page/app.py"
TOKEN = "0123456789abcdef"
BRANCH = "pr_1"
NOW = datetime.now(UTC)
RUN = "1a2b3c4d-0000-4000-8000-000000000000"
HOSTILE = "test ids failed: ![x](http://127.0.0.1/x) Ann"

Draw = Callable[..., Any]


@pytest.fixture(scope="session", autouse=True)
def streamlit() -> None:
    """Install Streamlit as `make page` does, if it is not installed."""
    if importlib.util.find_spec("streamlit") is None:
        subprocess.run(["scripts/page"], cwd=ROOT, check=True)
        importlib.invalidate_caches()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A dbt project whose lake is in its folder, and the page's settings for it."""
    Project(tmp_path, "s", {"type": "sparkwap", "lake": str(tmp_path / ".lake"), "threads": 1})
    options = ("--project-dir", str(tmp_path), "--profiles-dir", str(tmp_path))
    Settings(TOKEN, options).write(tmp_path / "settings.json")
    monkeypatch.setenv(SETTINGS, str(tmp_path / "settings.json"))
    monkeypatch.delenv("DBT_TARGET_PATH", raising=False)
    yield tmp_path
    reset_adapters()


@pytest.fixture
def lake(project: Path) -> Iterator[Lake]:
    """A lake with one published table, and a rejected candidate of it."""
    described = dbt_cli.parse_call(access.read(project / "settings.json").arguments).lake()
    (project / ".lake").mkdir()
    lake = Lake(described.name, dict(described.properties))
    lake.ensure_schema("s")
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    lake.catalog.create_table(("s", "orders"), rows.schema).append(rows)
    lake.branches.open(("s", "orders"), BRANCH)
    lake.catalog.load_table(("s", "orders")).append(rows, branch=BRANCH)
    shared = {"run_id": RUN, "branch": BRANCH}
    node = {"node_id": "model.shop.orders", "schema": "s", "name": "orders", "built_at": NOW}
    test = {"test_id": "test.shop.ids", "test_name": "ids", "executed_at": NOW}
    times = {"started_at": NOW - timedelta(seconds=9), "ended_at": NOW}
    lake.ledger.append(
        [
            LedgerRows("runs", [{**shared, **times, "outcome": "rejected", "command": "build"}]),
            LedgerRows("nodes", [{**shared, **node, "verdict": "rejected", "reason": HOSTILE}]),
            LedgerRows("tests", [{**shared, **test, "status": "fail", "failures": 3}]),
        ]
    )
    yield lake
    lake.close()


@pytest.fixture
def held(lake: Lake) -> None:
    """Build the branch again; it is held."""
    node = {"node_id": "model.shop.orders", "schema": "s", "name": "orders", "verdict": "held"}
    later = {"run_id": RUN, "branch": BRANCH, "built_at": NOW + timedelta(seconds=5)}
    lake.ledger.append([LedgerRows("nodes", [{**node, **later}])])


@pytest.fixture
def draw(project: Path) -> Draw:
    """Return a function that draws a view, with or without a token."""
    from streamlit.testing.v1 import AppTest

    def draw(view: str, token: str | None = TOKEN) -> Any:
        page = AppTest.from_file(str(APP), default_timeout=60)
        page.query_params["view"] = view
        page.run()
        if token is not None:
            page.text_input(key="token").input(token).run()
        assert not page.exception, page.exception[0].stack_trace
        return page

    return draw


def texts(page: Any) -> str:
    kinds = (page.markdown, page.caption, page.subheader, page.info, page.success, page.code)
    return "\n".join(str(one.value) for kind in kinds for one in kind)


def buttons(page: Any) -> dict[str, bool]:
    """Return whether each button of a branch is enabled."""
    return {one.key: not one.disabled for one in page.button if one.key and BRANCH in one.key}


VIEWS = ["Home", "Runs", "Branches", "Tests", "Quarantine", "History of a key", "Compare"]


@pytest.mark.parametrize("view", [VIEWS[0], VIEWS[-1]])
def test_without_a_lake_a_view_has_the_command_and_creates_no_lake(
    draw: Draw, project: Path, view: str
) -> None:
    page = draw(view)
    assert "There is no lake yet." in texts(page)
    assert "dbt build" in texts(page)
    assert not (project / ".lake").exists()


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_drawn_with_a_token_and_without(draw: Draw, lake: Lake, view: str) -> None:
    for token in (None, TOKEN):
        page = draw(view, token)
        assert page.title[0].value
        assert not page.error


def test_the_totals_of_the_runs(draw: Draw, lake: Lake) -> None:
    page = draw("Runs")
    totals = {one.label: one.value for one in page.metric}
    assert totals == {
        "runs": "1",
        "✔ published": "0",
        "◆ held": "0",
        "✖ rejected": "1",
        "open branches": "1",
    }


def test_a_rejected_branch_is_shown_with_its_reason_as_plain_text(draw: Draw, lake: Lake) -> None:
    page = draw("Branches")
    assert page.subheader[0].value == BRANCH
    assert escape_markdown(HOSTILE) in texts(page)
    assert HOSTILE not in texts(page)
    frame = page.dataframe[0].value
    assert list(frame["table"]) == ["s.orders"]
    assert (frame["rows on main"][0], frame["rows here"][0]) == (2, 4)
    assert list(frame["change"]) == ["+2 rows"]


@pytest.mark.parametrize("token", [None, "0123456789abcdeF"])
def test_the_buttons_are_disabled_without_the_token(
    draw: Draw, lake: Lake, token: str | None
) -> None:
    assert set(buttons(draw("Branches", token)).values()) == {False}


def test_a_rejected_branch_can_be_discarded_and_not_approved(draw: Draw, lake: Lake) -> None:
    page = draw("Branches")
    assert buttons(page)[f"publish-{BRANCH}"] is False
    assert buttons(page)[f"discard-{BRANCH}"] is True
    assert "The gate has rejected a table." in texts(page)


def test_the_token_enables_the_buttons_and_discard_needs_a_confirmation(
    draw: Draw, lake: Lake, held: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, Any]] = []

    def perform(
        call: Any, operation: str, arguments: Any, *, open_branches: list[str]
    ) -> actions.Done:
        called.append((operation, arguments, open_branches))
        return actions.Done("dbt run-operation ...", True, "Discarded pr_1")

    monkeypatch.setattr(actions, "perform", perform)
    page = draw("Branches")
    assert set(buttons(page).values()) == {True}
    page.button(key=f"discard-{BRANCH}").click().run()
    assert called == []
    page.button(key=f"no-{BRANCH}").click().run()
    assert f"yes-{BRANCH}" not in buttons(page)
    page.button(key=f"discard-{BRANCH}").click().run()
    page.button(key=f"yes-{BRANCH}").click().run()
    assert called == [("wap_discard", {"branch": BRANCH}, [BRANCH])]
    assert "Discarded pr_1" in texts(page)
    page.button(key=f"publish-{BRANCH}").click().run()
    assert called[-1] == ("wap_publish", {"branch": BRANCH}, [BRANCH])


def test_a_failed_operation_shows_its_output(
    draw: Draw, lake: Lake, held: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = actions.Done("dbt run-operation wap_publish", False, "rejected: test ids failed")
    monkeypatch.setattr(actions, "perform", lambda *_, **__: refused)
    page = draw("Branches")
    page.button(key=f"publish-{BRANCH}").click().run()
    assert "failed" in page.error[0].value
    assert "rejected: test ids failed" in texts(page)


def test_a_branch_that_was_dropped_meanwhile_is_not_shown(
    draw: Draw, lake: Lake, held: None
) -> None:
    page = draw("Branches")
    lake.branches.discard(BRANCH, str(uuid.uuid4()))
    page.button(key=f"publish-{BRANCH}").click().run()
    # The page is drawn from the present catalog, so the button is missing.
    assert "No audit branch is open" in page.success[0].value
    assert buttons(page) == {}


# Outcomes and states that the catalog and the ledger have beside those of the fixture `lake`.


def publishes(run_id: str, **more: Any) -> dict[str, Any]:
    names = {"publish_id": "p", "run_id": run_id, "schema": "s", "how": "branch"}
    return {**names, "name": "orders", "published_at": NOW, "action": "publish", **more}


@pytest.mark.parametrize(
    ("others", "outcome"), [([], "rolled back"), (["prices"], "partly rolled back")]
)
def test_a_run_whose_publish_was_undone_is_shown_as_rolled_back(
    draw: Draw, lake: Lake, others: list[str], outcome: str
) -> None:
    later = {"started_at": NOW, "ended_at": NOW, "branch": "main_1", "publish_id": "p"}
    undone = "2b2b3c4d-0000-4000-8000-000000000000"
    run = {"run_id": undone, "outcome": "published", "command": "build", **later}
    rows = [publishes(undone), *(publishes(undone, name=name) for name in others)]
    undo = publishes("3b2b3c4d-0000-4000-8000-000000000000", action="rollback")
    lake.ledger.append([LedgerRows("runs", [run]), LedgerRows("publishes", [*rows, undo])])
    page = draw("Runs")
    shown = next(one.value for one in page.dataframe if "outcome" in one.value)
    assert dict(zip(shown["run"], shown["outcome"], strict=True)) == {
        "2b2b3c4d": f"↩ {outcome}",
        RUN[:8]: "✖ rejected",
    }
    home = draw("Home").dataframe[0].value
    assert any(f"The run 2b2b3c4d (build) was {outcome.removeprefix('partly ')}" in text
               for text in home["what"])  # fmt: skip


def test_a_branch_that_a_run_is_building_is_shown_as_building(draw: Draw, lake: Lake) -> None:
    holding = lease.hold(lake.leases, run_id=RUN, branch=BRANCH, command="build")
    try:
        page = draw("Branches")
        assert "**building**" in texts(page)
        assert "is in use by run 1a2b3c4d" in texts(page).replace("\\", "")
        assert buttons(page)[f"publish-{BRANCH}"] is False
        assert "A run is building on this branch." in texts(page)
    finally:
        holding.release()
    page = draw("Branches")
    assert "**building**" not in texts(page)
    assert "✖ rejected 1" in texts(page)


# Personal values

COLUMNS = sorted({f"has_{mark}" for mark in MARKS} | RAW_TEXT)
WHOLE = [f"whole_{mark}" for mark in OF_TABLES]
SECRETS = [*(f"secret of {name}" for name in COLUMNS), *(f"secret of {name}" for name in WHOLE)]
SHOWN, DELIVERED = "Rome is shown", "delivered as text"
BAD = {"_kind": "bad", "_file_path": "a.csv", "_row": 1, "_batch": 1}


@pytest.fixture
def personal(lake: Lake, project: Path) -> None:
    """Tables with all marks: versions of keys, rows in quarantine, and reasons that quote."""
    versions = {
        "valid_from": pa.array([datetime(2026, 1, 1)], pa.timestamp("us")),
        "valid_to": pa.array([None], pa.timestamp("us")),
    }
    texts = {name: [f"secret of {name}"] for name in COLUMNS}
    hidden_by_pattern = {"phone_2": ["secret of phone_2"]}
    tables = {"people": {"id": [7], "city": [SHOWN], **texts, **hidden_by_pattern, **versions}}
    marks: dict[str, dict[str, Any]] = {"people": {}}
    for name in WHOLE:
        tables[name] = {"id": [7], "v": [f"secret of {name}"], **versions}
        marks[name] = {"meta": {name.removeprefix("whole_"): True}}
    bad = {key: [value] for key, value in BAD.items()}
    for name in ("people", *WHOLE):
        secret = f"secret of {'has_pii' if name == 'people' else name}"
        errors = {"_error": [f"id is not a bigint: {secret}"], "_raw": [f"{secret},Oslo"]}
        # A column without a mark of its own is as personal as the marked one of the same name.
        column = "has_pii" if name == "people" else "id"
        tables[f"raw_{name}"] = {**bad, **errors, column: pa.array([None], pa.string())}
        marks[f"raw_{name}"] = marks[name]
    tables["raw_orders"] = {**bad, "_error": ["gone"], "_raw": [DELIVERED]}
    marks["raw_orders"] = {}
    nodes = {}
    for name, columns in tables.items():
        rows = pa.table(columns)
        lake.catalog.create_table(("s", name), rows.schema).append(rows)
        nodes[f"model.shop.{name}"] = {
            "unique_id": f"model.shop.{name}", "resource_type": "model", "schema": "s",
            "alias": name, "name": name, "config": {"unique_key": "id", **marks[name]},
        }  # fmt: skip
    nodes["model.shop.people"]["columns"] = {
        f"has_{mark}": {"name": f"has_{mark}", "config": {"meta": {mark: "customer"}}}
        for mark in MARKS
    }
    (project / "target").mkdir()
    (project / "target/manifest.json").write_text(json.dumps({"nodes": nodes}))
    config = json.loads((project / "dbt_project.yml").read_text())
    config["vars"] = {"wap_diff_hide": ["phone*"]}
    (project / "dbt_project.yml").write_text(json.dumps(config))
    shared = {"run_id": RUN, "branch": BRANCH, "schema": "s", "verdict": "rejected"}
    rejected = []
    for name in ("people", *WHOLE):
        table = lake.catalog.load_table(("s", name))
        lake.branches.open(("s", name), BRANCH)
        table.refresh()
        table.append(table.scan().to_arrow(), branch=BRANCH)
        secret = f"secret of {'has_pii' if name == 'people' else name}"
        reason = f"build failed: [CAST_INVALID_INPUT] The value '{secret}' cannot be cast"
        node = {"node_id": f"model.shop.{name}", "name": name, "built_at": NOW, "reason": reason}
        rejected.append({**shared, **node})
    lake.ledger.append([LedgerRows("nodes", rejected)])


def shown(page: Any) -> bytes:
    """Return all that the browser receives: texts, tables, plots, and options of selections."""
    found = [*page.main, *page.sidebar]
    return b"".join(e.proto.SerializeToString() for e in found if getattr(e, "proto", None))


def secrets(page: Any) -> list[str]:
    content = shown(page)
    return [text for text in (*SECRETS, "secret of") if text.encode() in content]


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_shows_a_value_that_a_mark_hides(draw: Draw, personal: None, view: str) -> None:
    page = draw(view)
    assert secrets(page) == []
    # The view has drawn what it was asked for.
    error = escape_markdown("[CAST_INVALID_INPUT]")
    drawn = {"Quarantine": DELIVERED, "History of a key": SHOWN, "Branches": error}
    assert drawn.get(view, "").encode() in shown(page)


def test_compare_shows_no_value_of_any_table(draw: Draw, personal: None) -> None:
    page = draw("Compare")
    for name in ("people", *WHOLE):
        page.selectbox(key="compared").select_index(
            page.selectbox(key="compared").options.index(f"s.{name}")
        ).run()
        assert secrets(page) == []
        assert b"valid_from" in shown(page)


def test_the_quarantine_says_that_rows_with_personal_columns_are_not_shown(
    draw: Draw, personal: None
) -> None:
    page = draw("Quarantine")
    for name in ("people", *WHOLE):
        assert f"sparkwap quarantine list raw_{name}" in texts(page)
    assert "sparkwap quarantine list raw_orders" not in texts(page)
    assert DELIVERED.encode() not in shown(draw("Quarantine", None))


@pytest.mark.parametrize("key", [*COLUMNS, "phone_2"])
def test_a_personal_column_is_no_key_of_a_history(draw: Draw, personal: None, key: str) -> None:
    page = draw("History of a key")
    if key not in page.selectbox(key="key").options:
        assert key.startswith("_"), "technical columns cannot be chosen"
        return
    page.selectbox(key="key").select(key).run()
    assert "is personal" in page.warning[0].value
    assert not page.dataframe
    assert secrets(page) == []


@pytest.mark.parametrize("name", WHOLE)
def test_a_personal_table_has_no_history(draw: Draw, personal: None, name: str) -> None:
    page = draw("History of a key")
    tables = page.selectbox(key="history")
    tables.select_index(tables.options.index(f"s.{name}")).run()
    for key in page.selectbox(key="key").options:
        page.selectbox(key="key").select(key).run()
        assert "is personal" in page.warning[0].value
        assert not page.dataframe
        assert secrets(page) == []


def test_the_history_of_a_key_is_locked_without_the_token(draw: Draw, personal: None) -> None:
    assert SHOWN.encode() not in shown(draw("History of a key", None))


def test_without_a_readable_manifest_no_row_is_shown(
    draw: Draw, personal: None, project: Path
) -> None:
    (project / "target/manifest.json").write_text('{"nodes": {"model.shop.people": {"un')
    for view in ("Branches", "Quarantine", "History of a key"):
        page = draw(view)
        assert secrets(page) == []
        assert not {text for text in (SHOWN, DELIVERED) if text.encode() in shown(page)}
        assert "dbt parse" in page.warning[0].value


def test_errors_and_metrics_that_may_tell_a_value_need_the_token(
    draw: Draw, personal: None, lake: Lake
) -> None:
    shared = {"run_id": RUN, "branch": BRANCH, "schema": "s", "node_id": "model.shop.raw_orders"}
    reason = f"build failed: [CAST_INVALID_INPUT] The value '{DELIVERED}' cannot be cast"
    node = {"name": "raw_orders", "built_at": NOW, "verdict": "rejected", "reason": reason}
    measured = {"name": "raw_orders", "measured_at": NOW, "value": 184250.0, "scope": ""}
    audit = {"test_id": "model.shop.raw_orders", "test_name": "a", "executed_at": NOW}
    finding = {"status": "fail", "finding": "max:id is 184,250: expected 1, by 9 published runs"}
    test = {"run_id": RUN, "branch": BRANCH, **audit, **finding}
    lake.ledger.append(
        [
            LedgerRows("runs", [{"run_id": RUN, "branch": BRANCH, "started_at": NOW}]),
            LedgerRows("nodes", [{**shared, **node}]),
            LedgerRows("tests", [test]),
            LedgerRows(
                "metrics",
                [
                    {**shared, **measured, "metric": metric, "test_id": audit["test_id"]}
                    for metric in ("max:id", "row_count")
                ],
            ),
        ]
    )
    for view, value in (("Branches", DELIVERED), ("Branches", "184,250"), ("Tests", "max:id")):
        assert value.encode() in shown(draw(view))
        locked = draw(view, None)
        assert value.encode() not in shown(locked)
        assert b"row_count" in shown(locked) or view == "Branches"


def test_a_stored_comparison_shows_no_column_that_is_marked_now_and_ends_with_its_branch(
    draw: Draw, personal: None, project: Path
) -> None:
    sample = {"change": "added", "before": None, "after": {"HAS_PII": "secret of", "city": SHOWN}}
    table = {
        "schema": "s", "name": "people", "change": "changed", "notes": [], "samples": [sample],
        "rows": {"added": 1, "removed": 0, "changed": 0}, "columns": {"changed": {}},
    }  # fmt: skip
    stored = json.dumps({"at": NOW.isoformat(), "against": "main", "tables": [table]})
    folder = project / "target/page"
    folder.mkdir()
    for branch in (BRANCH, "gone"):
        (folder / f"diff_{branch}.json").write_text(stored)
    page = draw("Branches")
    assert SHOWN.encode() in shown(page) and secrets(page) == []
    assert [file.name for file in folder.iterdir()] == [f"diff_{BRANCH}.json"]
