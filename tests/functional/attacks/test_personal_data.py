"""Attacked: alerts, diffs, comments and the report, with a value under each mark.

The marks are those of `sparkwap.core.personal`, taken from there: one that is added is tried here,
and an output that goes by a list of its own fails. A new output belongs into `outputs`. The views
of the page, which need no Spark, are in `tests/integration/page/test_app.py`. What dbt and
`sparkwap quarantine list` print to the terminal of the person who calls them hides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest
from helpers.endpoints import Endpoint, endpoint
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project

from sparkwap.core.dbt_cli import DbtCall, parse_call
from sparkwap.core.personal import MARKS, OF_TABLES, RAW_TEXT
from sparkwap.diff import comment
from sparkwap.pr.comment import render
from sparkwap.pr.standing import standing
from sparkwap.publish.lake import Lake
from sparkwap.report.answers import answers
from sparkwap.report.command import collect

BRANCH = "pr_personal"
COLUMNS = sorted({f"has_{mark}" for mark in MARKS} | RAW_TEXT)
TABLES = ["people", *(f"whole_{mark}" for mark in OF_TABLES)]
SECRETS = [f"secret of {name}" for name in (*COLUMNS, *OF_TABLES)]


def rows(column: str, text: str) -> str:
    """A value that version 2 changes, and has twice."""
    return f"concat('{text}', ' {{{{ env_var('V') }}}}') as `{column}`"


FROM = "from range({{ env_var('V') }})"
CONFIG = "{{ config(materialized='table') }} "
PEOPLE = ", ".join(rows(name, f"secret of {name}") for name in COLUMNS)
FILES = {
    "models/people.sql": f"{CONFIG} select 1 as id, 'city {{{{ env_var('V') }}}}' as city, "
    f"{PEOPLE} {FROM}",
    # What has a marked column under its own name is as personal, without a mark.
    "models/copies.sql": f"{CONFIG} select * from {{{{ ref('people') }}}}",
    **{
        f"models/whole_{mark}.sql": f"{CONFIG} select 1 as id, {rows('v', f'secret of {mark}')} "
        f"{FROM}"
        for mark in OF_TABLES
    },
    # Spark quotes the value that it cannot cast.
    "models/broken.sql": CONFIG
    + "select {% if env_var('V') == '2' %} cast(has_pii as int) {% else %} 1 {% endif %} as n "
    "from {{ ref('people') }}",
    "models/properties.yml": json.dumps(
        {
            "models": [
                {
                    "name": "people",
                    "columns": [
                        {
                            "name": name,
                            "data_tests": [{"unique": {"config": {"store_failures": True}}}],
                            "config": {"meta": {name.removeprefix("has_"): "customer"}},
                        }
                        for name in COLUMNS
                    ],
                },
                *(
                    {
                        "name": f"whole_{mark}",
                        "config": {"meta": {mark: True}},
                        "columns": [
                            {
                                "name": "v",
                                "data_tests": [{"unique": {"config": {"store_failures": True}}}],
                            }
                        ],
                    }
                    for mark in OF_TABLES
                ),
            ]
        }
    ),
    "tests/all_of_people.sql": "{{ config(store_failures=true) }} select * from {{ ref('people') }}"
    " where {{ env_var('V') }} = 2",
}


@dataclass(frozen=True)
class Audited:
    """A project with a branch on which all values differ, and all that can fail has failed."""

    project: Project
    reader: Reader
    hook: Endpoint

    def outputs(self) -> Iterator[tuple[str, str]]:
        """All that shows values to others: its name, its text."""
        folder = self.project.folder
        yield "alerts", "".join(request.body.decode() for request in self.hook.received)
        for form in ("text", "json"):
            file = folder / f"diff.{form}"
            yield form, self.diff(form, str(file)).text + file.read_text()
        yield "comment", self.comment()
        yield "report", json.dumps(self.report(), default=str)

    def diff(self, form: str, output: str) -> Outcome:
        arguments = {"branch": BRANCH, "sample": 5, "format": form, "file": output}
        # Not those of stored failures; what is made from people is not built, as its tests fail.
        arguments["tables"] = [f"{self.project.schema}.{name}" for name in TABLES]
        return self.project.operation("wap_diff", **arguments).succeeded()

    def comment(self) -> str:
        folder = self.project.folder
        options = ["--profiles-dir", str(folder)]
        diff = comment(BRANCH, project_dir=folder, sample=5, dbt_arguments=options)
        described = self.call().lake()
        with closing(Lake(described.name, described.properties)) as lake:
            ledger = {
                name: [row for row in lake.ledger.rows(name) if row["branch"] == BRANCH]
                for name in ("nodes", "tests", "runs")
            }
        return render(standing(BRANCH, is_open=True, **ledger), diff)

    def call(self) -> DbtCall:
        folder = str(self.project.folder)
        return parse_call(["--project-dir", folder, "--profiles-dir", folder])

    def report(self) -> object:
        target = self.project.folder / "target"
        return answers(collect(self.call(), target, days=2, samples=5))


@pytest.fixture
def audited(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Audited]:
    alerts = {
        "sample_rows": 5,
        "routes": [{"name": "team", "type": "webhook", "url": "{{ env_var('HOOK') }}"}],
    }
    with endpoint() as hook:
        monkeypatch.setenv("HOOK", hook.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("V", "1")
        settings = {"vars": {"wap_alerts": alerts}}
        project = make_project("personal", FILES, settings=settings)
        project.dbt("build").succeeded()
        monkeypatch.setenv("V", "2")
        project.dbt("build", "--no-fail-fast", wap_branch=BRANCH, wap_publish="never").failed()
        yield Audited(project, reader, hook)
        project.operation("wap_discard", branch=BRANCH).succeeded()


def test_no_output_shows_a_value_that_a_mark_hides(audited: Audited) -> None:
    shown = dict(audited.outputs())
    for name, text in shown.items():
        assert [secret for secret in SECRETS if secret in text] == [], name
    # Each of them was asked for what it would show.
    for name in ("text", "json", "comment"):
        assert "city 2" in shown[name], name
    assert "people" in shown["alerts"] and "withheld" in shown["alerts"]
    assert "has_pii" in shown["report"]
