"""All answers together."""

from __future__ import annotations

import json

from sparkwap.report.answers import answers
from sparkwap.report.facts import ReportFacts

from .conftest import MANIFEST, NOW, VERDICTS, VOLUME, metric, result, row


def test_all_answers_are_json() -> None:
    facts = ReportFacts(
        MANIFEST,
        [row("runs", 1, run_id="r1", outcome="rejected", branch="b")],
        VERDICTS,
        [result(1, "fail", VOLUME)],
        [metric(1, 1)],
        "lake",
        NOW,
    )
    assert json.loads(json.dumps(answers(facts)))
