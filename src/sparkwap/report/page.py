"""The report's page, by Elementary's own code: ``python page.py ANSWERS.json PAGE.html``.

This file runs by itself where the package ``elementary-data`` is installed, which need not be where
sparkwap is. Elementary asks its dbt project by macros; here a file answers. What the page looks
like, and what its data are, is Elementary's alone.
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
    """Stands where Elementary has a runner of dbt.

    Args:
        given: The answer to each macro, by its name.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self.asked: set[str] = set()

    def run_operation(
        self, macro_name: str, macro_args: Mapping[str, Any] | None = None, **_: Any
    ) -> list[str]:
        """What the macro would print: one text, of JSON in all cases but one.

        Raises:
            KeyError: This version of Elementary asks what is not answered.
        """
        name = macro_name.removeprefix(_PREFIX)
        self.asked.add(name)
        if name == _RELATION:
            return [str(self._given["database"])]
        return [json.dumps(self._given["answers"][name])]


class AnsweredReport(DataMonitoringReport):
    """Elementary's report over given answers.

    Args:
        given: ``answers`` by macro, ``database``, ``project``, ``env`` and ``days``.
        folder: Where Elementary puts the data of the page, as ``elementary_output.json``.
    """

    def __init__(self, given: Mapping[str, Any], folder: Path) -> None:
        self.answers = AnswerRunner(given)
        config = Config(
            # A folder without a config.yml: the user's own is for the user's own edr.
            config_dir=str(folder),
            target_path=str(folder),
            env=given["env"],
            run_dbt_deps_if_needed=False,
        )
        # Without a tracker nobody is told that a report was made.
        super().__init__(config, tracking=None)

    def _init_internal_dbt_runner(self) -> Any:
        return self.answers

    def _add_report_tracking(self, report_data: Any, error: Exception | None = None) -> None:
        # Elementary would go on with an empty page.
        if error is not None:
            raise error


def write(given: Mapping[str, Any], page: Path) -> set[str]:
    """Write the page, and its data beside it.

    Returns:
        What Elementary has asked.
    """
    report = AnsweredReport(given, page.parent)
    report.generate_report(
        days_back=int(given["days"]),
        file_path=str(page),
        should_open_browser=False,
        project_name=given["project"],
    )
    return report.answers.asked


if __name__ == "__main__":
    handed, wanted = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    try:
        asked = write(json.loads(handed.read_text()), wanted)
    except Exception as failure:
        sys.exit(f"{type(failure).__name__}: {' '.join(str(failure).split())}")
    print(json.dumps(sorted(asked)))
