"""Writes the report's page with Elementary's code: ``python page.py ANSWERS.json PAGE.html``.

This file runs without sparkwap, in the environment of the package ``elementary-data``. Elementary
calls macros of its dbt project; here a file has their answers. Elementary alone defines the look
and the data of the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elementary.config.config import Config
from elementary.monitor.data_monitoring.report.data_monitoring_report import DataMonitoringReport

_PREFIX = "elementary_cli."
_RELATION = "get_elementary_database_and_schema"


class AnswerRunner:
    """Replaces Elementary's runner of dbt.

    Args:
        given: ``answers`` by macro, and ``database``.

    Attributes:
        called: The names of the macros that Elementary has called.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self.called: set[str] = set()

    def run_operation(
        self, macro_name: str, macro_args: Mapping[str, Any] | None = None, **_: Any
    ) -> list[str]:
        """Return the output of the macro: one text, which is JSON except for ``_RELATION``.

        Raises:
            KeyError: There is no answer for a macro that this version of Elementary calls.
        """
        name = macro_name.removeprefix(_PREFIX)
        self.called.add(name)
        if name == _RELATION:
            return [str(self._given["database"])]
        return [json.dumps(self._given["answers"][name])]


class AnsweredReport(DataMonitoringReport):
    """Elementary's report from given answers.

    Args:
        given: ``answers`` by macro, ``database``, ``project``, ``env`` and ``days``.
        folder: The folder where Elementary writes ``elementary_output.json``, the page's data.
    """

    def __init__(self, given: Mapping[str, Any], folder: Path) -> None:
        self.answers = AnswerRunner(given)
        config = Config(
            # A folder without a config.yml: the user's config.yml is for the user's edr.
            config_dir=str(folder),
            target_path=str(folder),
            env=given["env"],
            run_dbt_deps_if_needed=False,
        )
        # Without a tracker, Elementary sends no usage data.
        super().__init__(config, tracking=None)

    def _init_internal_dbt_runner(self) -> Any:
        return self.answers

    def _add_report_tracking(self, report_data: Any, error: Exception | None = None) -> None:
        # Otherwise Elementary would write an empty page.
        if error is not None:
            raise error


def write(given: Mapping[str, Any], page: Path) -> set[str]:
    """Write the page and its data; return the names of the macros that Elementary has called."""
    report = AnsweredReport(given, page.parent)
    report.generate_report(
        days_back=int(given["days"]),
        file_path=str(page),
        should_open_browser=False,
        project_name=given["project"],
    )
    return report.answers.called


if __name__ == "__main__":
    handed, wanted = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    try:
        called = write(json.loads(handed.read_text()), wanted)
    except Exception as failure:
        sys.exit(f"{type(failure).__name__}: {' '.join(str(failure).split())}")
    print(json.dumps(sorted(called)))
