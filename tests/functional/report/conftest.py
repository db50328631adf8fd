"""A shop with some normal days and an anomalous one."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from helpers.lake import Look, Reader
from helpers.project import MakeProject, Outcome, Project

from sparkwap.cli import main
from sparkwap.report.command import PYTHON

ROOT = Path(__file__).parents[3]

SHOP = {
    "models/orders.sql": "select id from range({{ env_var('SHOP_ROWS') }})",
    "models/payments.sql": """
        select id, if({{ env_var('SHOP_BAD') }} and id > 50, null, id) as amount
        from range(1, 101)
    """,
    "models/visits.sql": """
        select id, {% if env_var('SHOP_BAD') == 'true' %} 'a' {% else %} id {% endif %} as page
        from range(3)
    """,
    "models/deliveries.sql": """
        select
            current_timestamp()
            - make_dt_interval(if({{ env_var('SHOP_BAD') }}, 90, 1)) as delivered_at
    """,
    "models/regions.sql": "select id, id % 2 as part from range({{ env_var('SHOP_ROWS') }})",
    "models/calm.sql": "select id from {{ ref('regions') }} where id < 5",
    "models/properties.yml": """
        models:
          - name: orders
            config: {meta: {owner: "Ann, Bob"}, tags: [daily]}
            data_tests:
              - wap_volume_anomaly: {name: orders_volume, arguments: {min_samples: 3}}
          - name: payments
            columns:
              - name: amount
                data_tests:
                  - wap_column_anomaly:
                      name: payments_amounts
                      arguments: {metrics: [null_share, mean, max], min_samples: 3}
                  - not_null:
                      name: payments_known
                      config: {severity: warn, store_failures: true}
          - name: visits
            data_tests: [{wap_schema_changes: {name: visits_columns}}]
          - name: deliveries
            columns:
              - name: delivered_at
                data_tests:
                  - wap_freshness_anomaly: {name: deliveries_age, arguments: {min_samples: 3}}
          - name: regions
            data_tests:
              # Four rows each day; the scope leaves out all others.
              - wap_volume_anomaly:
                  name: regions_volume
                  arguments: {min_samples: 3, direction: drop}
                  config: {where: "id < 8 and part = 0"}
          - name: calm
            data_tests: [{wap_volume_anomaly: {name: calm_volume, arguments: {min_samples: 3}}}]
    """,
}
DAYS = (100, 101, 99)
BAD_DAY = 10


@dataclass
class Story:
    """The results of the days.

    Attributes:
        days: the builds of the steady days.
        bad_day: the build of the other one.
        before: what readers saw before it; ``after``: what they saw then.
    """

    project: Project
    reader: Reader
    days: list[Outcome] = field(default_factory=list)
    before: dict[str, Look] = field(default_factory=dict)
    bad_day: Outcome | None = None
    after: dict[str, Look] = field(default_factory=dict)

    def build(self, rows: int, *, bad: bool = False) -> Outcome:
        """The build of one day."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHOP_ROWS", str(rows))
            patch.setenv("SHOP_BAD", str(bad).lower())
            return self.project.dbt("build", wap_publish="lineage")

    def look(self) -> dict[str, Look]:
        """Return the rows that a reader sees now."""
        return self.reader.look(self.project.schema)


@pytest.fixture(scope="module")
def story(make_project: MakeProject, reader: Reader) -> Story:
    settings = {"models": {"+materialized": "table"}}
    story = Story(make_project("alike", SHOP, settings=settings), reader)
    story.days = [story.build(rows).succeeded() for rows in DAYS]
    story.before = story.look()
    story.bad_day = story.build(BAD_DAY, bad=True).failed()
    story.after = story.look()
    return story


@pytest.fixture(scope="session")
def elementary() -> Path:
    """Return a Python that has Elementary: the named one, or one that `make report` installs."""
    named = os.environ.get(PYTHON)
    if named:
        return Path(named)
    subprocess.run(["make", "-s", ".venv-elementary/.ready"], cwd=ROOT, check=True)
    return ROOT / ".venv-elementary/bin/python"


@pytest.fixture(scope="module")
def page(story: Story, elementary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report's page after the bad day."""
    output = tmp_path_factory.mktemp("report")
    folder = str(story.project.folder)
    arguments = ["--project-dir", folder, "--profiles-dir", folder, "--dir", str(output)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DBT_TARGET_PATH", "target")
        assert main(["report", *arguments, "--samples", "3", "--python", str(elementary)]) == 0
    return output / "index.html"
