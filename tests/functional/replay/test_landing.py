"""A replay of raw models: the log as it was, whatever has landed since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from helpers.landing import make_landing_project

if TYPE_CHECKING:
    from helpers.lake import Reader
    from helpers.project import MakeProject

ENTRY = {
    "entity": "items",
    "kind": "extract",
    "format": "json",
    "key": ["id"],
    "columns": {"id": "bigint", "price": "decimal(10,2)"},
    "files": [{"match": "*.jsonl"}],
    "threshold": 0.9,
}


def test_what_landed_later_is_not_read(
    make_project: MakeProject, reader: Reader, branch_reader: Any
) -> None:
    story = make_landing_project(make_project, reader, "replayed", {"items": ENTRY})
    look = branch_reader(reader, story.project.schema)
    names = ("raw_items", "cdc_items")
    bad = '{"id": 2, "price": "much"}\n'
    story.deliver("items/load_date=2024-01-01/a.jsonl", '{"id": 1, "price": 1.10}\n' + bad)
    first = story.build().succeeded()
    then = {name: look.main(name) for name in names}
    landed = story.deliver("items/load_date=2024-01-02/a.jsonl", '{"id": 1, "price": 2, "x": 1}\n')
    story.build().succeeded()
    # Files that were read already may be gone; one that nobody has read yet lies there.
    landed.unlink()
    story.deliver("items/load_date=2024-01-03/a.jsonl", '{"id": 3, "price": 3}\n')
    now = {name: one.seen() for name, one in reader.look(story.project.schema).items()}
    replay = story.build(as_of=f"wap_pub_{first.run_id[:8]}").succeeded()
    assert {name: look.branch(name, replay.branch) for name in names} == then
    bad_rows = look.branch("quarantine_items", replay.branch).rows
    assert [row["raw_text"] for row in bad_rows] == [bad.strip()]
    assert {n: one.seen() for n, one in reader.look(story.project.schema).items()} == now
