"""The same events in any order and any split give the history that plain Python makes of them.

A case is a whole event set over many keys, so that one statement in Spark meets many situations:
late, early, tied and repeated events, deletes before their inserts, resets, loads read twice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from helpers.lake import Reader
from helpers.project import Project
from helpers.reference_model import Events, attempts, deliver, event_set, history, in_order, rows_of

from .conftest import MakeHistories, expected, made, model, write_log


@dataclass(frozen=True)
class Case:
    """An event set, the settings of the model over it, and what they mean to the oracle."""

    events: Events
    config: str
    tracked: tuple[str, ...] | None = None
    grain: str = "timestamp"
    expect: dict[str, Any] = field(default_factory=dict)


CASES = {
    "plain": Case(event_set(1, loads=2), "unique_key='id', surrogate_key=true"),
    "by_day": Case(
        event_set(2, key=("id", "kind"), keys=20),
        "unique_key=['id', 'kind'], grain='date', open_end='9999-12-31', expire='day_before'",
        grain="date",
        expect={"days": True},
    ),
    "parts": Case(
        event_set(3, partial=True, truncates=2, loads=0),
        "unique_key='id', tracked_columns=['b', 'a']",
        tracked=("a", "b"),
    ),
    "deletions": Case(
        event_set(4, partial=True, loads=3, truncates=0),
        "unique_key='id', deletes='record', surrogate_key='number'",
        expect={"record": True},
    ),
}
LONG = pytest.mark.skipif("SOAK" not in os.environ, reason="takes minutes; SOAK=1 runs it")
MODELS = {name: model(case.config, name, case.events.columns) for name, case in CASES.items()}


def bring(
    project: Project, patch: pytest.MonkeyPatch, number: int, logs: dict[str, list[Any]]
) -> None:
    folder = project.folder / "log" / str(number)
    for name, rows in logs.items():
        write_log(folder / f"{name}.parquet", rows, CASES[name].events.columns)
    patch.setenv("LOG", str(folder))


def check(project: Project, reader: Reader, logs: dict[str, list[Any]]) -> None:
    for name, case in CASES.items():
        events = case.events
        truth = history(
            logs[name], events.key, events.columns, tracked=case.tracked, grain=case.grain
        )
        rows = reader.table(project.schema, name).rows
        assert made(rows, events.columns) == expected(truth, events.columns, **case.expect), name


@pytest.mark.parametrize(
    ("batches", "seed"),
    [(1, 0), (4, 1), pytest.param(10, 2, marks=LONG)],
)
def test_any_order_and_split(
    make_histories: MakeHistories,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    batches: int,
    seed: int,
) -> None:
    project = make_histories(f"order_{batches}", MODELS)
    logs: dict[str, list[Any]] = {name: [] for name in CASES}
    delivered = {
        name: (
            list(attempts(deliver(case.events, seed, batches=batches), seed))
            if batches > 1
            else [(rows_of(in_order(case.events)), True)]
        )
        for name, case in CASES.items()
    }
    number = 0
    while any(delivered.values()):
        number += 1
        tried = {}
        for name, left in delivered.items():
            rows, kept = left.pop(0) if left else ([], True)
            tried[name] = (logs[name] + rows, kept)
        # What is discarded of one table is discarded of all: the next one brings it again.
        kept = all(one for _, one in tried.values())
        for name, (rows, one) in tried.items():
            if one and not kept:
                delivered[name].insert(0, (rows[len(logs[name]) :], True))
        bring(project, monkeypatch, number, {name: rows for name, (rows, _) in tried.items()})
        if kept:
            logs = {name: rows for name, (rows, _) in tried.items()}
            project.dbt("build").succeeded()
            check(project, reader, logs)
        else:
            project.dbt("build", wap_publish="never").succeeded()
