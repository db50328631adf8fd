"""``sparkwap quarantine``: the listed rows, the messages, and the command of a replay."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkwap import landing
from sparkwap.cli import quarantine
from sparkwap.core.dbt_cli import DbtCall, DbtEnd, LakePlace, parse_call
from sparkwap.core.errors import ConfigError
from sparkwap.landing import raw_models
from sparkwap.landing.entry import REPLAY
from sparkwap.landing.raw_models import BadRow, RawModel

ENTRY = landing.parse_entry(
    {
        "entity": "orders",
        "kind": "extract",
        "key": ["id"],
        "columns": {"id": "bigint"},
        "files": [{"match": "*"}],
    }
)
MODEL = RawModel("raw_shop__orders", ("shop", "raw_shop__orders"), Path("/landing"), ENTRY)
ROW = BadRow("orders/a.csv", 3, "id is not a bigint: x", "x,\n1")


@pytest.mark.parametrize(
    "name", ["raw_shop__orders", "quarantine_shop__orders", "shop__orders", "orders"]
)
def test_a_model_has_several_names(name: str) -> None:
    assert quarantine.chosen([MODEL], [name]) == [MODEL]


def test_no_name_means_all_and_an_unknown_name_is_an_error() -> None:
    assert quarantine.chosen([MODEL], []) == [MODEL]
    with pytest.raises(
        ConfigError, match=r"raw model items\. .*The raw models are: raw_shop__orders"
    ):
        quarantine.chosen([MODEL], ["items"])


def test_rows_are_listed_with_file_and_line() -> None:
    assert quarantine.listing([(MODEL, [ROW])]) == [
        "raw_shop__orders: 1 row in quarantine",
        "  orders/a.csv, line 3: id is not a bigint: x",
        "    x, 1",
    ]
    assert quarantine.listing([]) == ["No row is in quarantine."]
    many = [BadRow("a", line, "no", "x" * 200) for line in range(25)]
    assert quarantine.listing([(MODEL, many)])[-1] == "  and 5 more"


def test_the_summary_of_a_replay() -> None:
    assert quarantine.replay_summary(5, 0, 0) == "5 rows of 5 accepted"
    assert "3 rows of 5 accepted; 2 rows stay" in quarantine.replay_summary(5, 2, 0)
    assert "4 rows of 5 accepted; 1 row stays" in quarantine.replay_summary(5, 1, 0)
    assert "No row of 5 was accepted" in quarantine.replay_summary(5, 5, 0)
    failed = quarantine.replay_summary(5, 3, 1)
    assert "dbt ended with code 1, so the replay is not published as a whole" in failed
    assert "; 2 of 5 rows accepted" in failed


class Table:
    """A fake raw table: the rows of each kind, as PyIceberg returns them."""

    def __init__(self, bad: list[dict[str, Any]], good: list[dict[str, Any]]) -> None:
        self.bad, self.good = bad, good

    def scan(self, condition: Any, selected_fields: tuple[str, ...]) -> Any:
        rows = self.bad if condition == "_kind = 'bad'" else self.good
        frame = pa.Table.from_pylist(
            [{k: row[k] for k in selected_fields} for row in rows],
            schema=pa.schema([(k, pa.int64() if k in ("_row", "_batch") else pa.string())
                              for k in selected_fields]),
        )  # fmt: skip

        class Scan:
            def to_arrow(self) -> pa.Table:
                return frame

        return Scan()


def row(line: int, batch: int, error: str = "no") -> dict[str, Any]:
    return {"_file_path": "f", "_row": line, "_batch": batch, "_error": error, "_raw": "x"}


def test_an_accepted_row_is_no_longer_in_quarantine() -> None:
    table: Any = Table([row(1, 1), row(2, 1), row(2, 3, "still no")], [row(1, 2), row(2, 2)])
    assert raw_models.open_rows(table) == [BadRow("f", 2, "still no", "x")]
    empty: Any = Table([], [])
    assert raw_models.open_rows(empty) == []


def test_a_replay_builds_downstream_models(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, lines = [], []
    left = iter([[ROW, ROW], [ROW]])
    monkeypatch.setattr(quarantine, "bad_rows", lambda *_: next(left))
    monkeypatch.setattr(DbtCall, "lake", lambda _: LakePlace("lake", {}))
    monkeypatch.setattr(DbtCall, "run", lambda _, *a, **k: calls.append((a, k)) or DbtEnd(0))
    end = quarantine.replay(parse_call([]), [MODEL], lines.append)
    assert (end.exit_code, end.result) == (0, quarantine.QuarantineReplay(2, 1))
    assert calls == [(("build", "--select", "raw_shop__orders+"), {REPLAY: "true"})]
    assert lines[0].startswith("1 row of 2 accepted")


def test_nothing_to_replay_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(quarantine, "bad_rows", lambda *_: [])
    monkeypatch.setattr(DbtCall, "lake", lambda _: LakePlace("lake", {}))
    assert quarantine.replay(parse_call([]), [MODEL], lines.append).exit_code == 0
    assert lines == ["no row is in quarantine; nothing to do"]
