"""A new format of landing files: one class, and one entry in the registry."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from sparkwap import landing
from sparkwap.core.sqltext import literal
from sparkwap.landing.contents import Contents, Text
from sparkwap.landing.entry import Entry, FileLayout
from sparkwap.landing.formats import FORMATS
from sparkwap.landing.formats.base import FileSample, Group, TextFormat
from sparkwap.landing.formats.frame import NULL, flat
from sparkwap.landing.guessing import guess
from sparkwap.landing.samples import read_samples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class PairsFormat(TextFormat):
    """Lines such as ``id=1 name=x``."""

    name = "pairs"
    suffixes = (".pairs",)

    def look(self, text: Text, layout: FileLayout, entry: Entry) -> Contents:
        rows = [pairs(line.decode()) for line in text.lines()]
        return Contents(tuple(rows[0]), len(rows))

    def sample_text(self, text: str) -> FileSample:
        # A stream breaks lines where Spark does; `str.splitlines` knows more line ends.
        return FileSample(self, [pairs(line) for line in io.StringIO(text, newline="")])

    def parse(self, texts: DataFrame, group: Group) -> DataFrame:
        fields = {name: f"str_to_map(_text, ' ', '=')[{literal(name)}]" for name in group.columns}
        return flat(texts, group, fields, NULL)


def pairs(line: str) -> dict[str, str | None]:
    return dict(pair.split("=", 1) for pair in line.split())


ENTRY: dict[str, Any] = {
    "entity": "things",
    "kind": "extract",
    "format": "pairs",
    "key": ["id"],
    "columns": {"id": "bigint", "name": "string"},
    "files": [{"match": "*.pairs", "load": "full"}],
}


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"format": "json", "delimiter": ";"}, "format 'json' has no setting 'delimiter'"),
        ({"format": "parquet", "multiline": True}, "format 'parquet' has no setting 'multiline'"),
        (
            {"format": "json", "files": [{"match": "*", "load": "full", "header": False}]},
            "format 'json' has no setting 'header'",
        ),
    ],
)
def test_a_setting_that_a_format_does_not_read_is_a_fault(more: dict[str, Any], fault: str) -> None:
    with pytest.raises(landing.LandingError, match=fault):
        landing.parse_entry(ENTRY | more)


def test_a_setting_of_one_of_two_formats_is_legal() -> None:
    files = [
        {"match": "LOAD*", "load": "full", "format": "parquet"},
        {"match": "*", "load": "full", "format": "csv"},
    ]
    assert (
        landing.parse_entry(ENTRY | {"format": "csv", "files": files, "delimiter": ";"}).delimiter
        == ";"
    )


def test_a_new_format_needs_one_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(landing.LandingError, match="format 'pairs' is not one of "):
        landing.parse_entry(ENTRY)
    monkeypatch.setitem(FORMATS, "pairs", PairsFormat())
    entry = landing.parse_entry(ENTRY)
    (layout,) = entry.layouts
    path = tmp_path / "a.pairs"
    path.write_text("id=1 name=x\nid=2 name=y\n")

    assert landing.look_into(path, layout, entry) == Contents(("id", "name"), 2)

    found = guess(read_samples([tmp_path]), "things")
    assert found.entry == ENTRY
    assert found.assumed[0] == "format pairs, from 2 rows"

    frame = Mock()
    group = Group(entry, layout, ("a.pairs",), ("id",), (str(path),), {"id": ("id",)})
    FORMATS[layout.format].parse(frame, group)
    (own,) = [sql for sql in frame.selectExpr.call_args.args if sql.endswith("as _own")]
    assert "str_to_map(_text, ' ', '=')['id']" in own
