"""Each materialization: readers of main see the old rows and columns until the publish.

One project has a node of each kind, and one story is told with it; the tests look at what a reader
saw at each of its moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pytest
from helpers import materializations as all_kinds
from helpers.catalogs import TRANSACTIONS
from helpers.lake import Look, Poller, Reader, SparkReader
from helpers.project import MakeProject, Outcome, Project

pytestmark = pytest.mark.smoke

State = dict[str, Look]
"""Every table and view of the schema that readers see, by one state of the catalog."""


@dataclass
class Phase:
    """A build of which nothing may be published, and the command that ends it.

    Attributes:
        before: what a reader saw before the build.
        held: what it saw after the build.
        published: what it saw after the command that published or discarded.
        views: the rows of the view at these three moments, through a plain Spark session.
        versions: the versions of the rows that are published after it.
        poller: the states that a reader saw while that command ran.
    """

    before: State
    held: State
    published: State
    views: tuple[list[int], list[int], list[int]]
    versions: tuple[int, ...]
    poller: Poller
    build: Outcome
    publish: Outcome


class Story:
    """The phases. Each is told when a test asks for it, and what it published stays."""

    def __init__(self, project: Project, reader: Reader, spark: SparkReader) -> None:
        self.project, self.reader, self.spark = project, reader, spark
        self.versions: list[int] = []

    @cached_property
    def first(self) -> Phase:
        return self._tell("wap_publish", v=1, wap_publish="never")

    @cached_property
    def second(self) -> Phase:
        return self.first and self._tell("test", v=2, wap_publish="never")

    @cached_property
    def failing(self) -> Phase:
        return self.first and self._tell("wap_discard", v=3, bad=True, wap_publish="lineage")

    @cached_property
    def widened(self) -> Phase:
        return self.first and self._tell("wap_publish", v=4, extra=True, wap_publish="never")

    def _tell(
        self, end: str, *, v: int, bad: bool = False, extra: bool = False, **gate: str
    ) -> Phase:
        before, before_view = self._look(), self._view()
        built = all_kinds.build(self.project, v=v, bad=bad, extra=extra, **gate)
        held, held_view = self._look(), self._view()
        with self.reader.polling(self.project.schema) as poller:
            ended = (
                self.project.dbt("test", v=v, extra=extra, wap_branch=built.branch)
                if end == "test"
                else self.project.operation(end, branch=built.branch)
            )
        self.versions += [] if bad else [v]
        return Phase(
            before=before,
            held=held,
            published=self._look(),
            views=(before_view, held_view, self._view()),
            versions=tuple(self.versions),
            poller=poller,
            build=built,
            publish=ended,
        )

    def _look(self) -> State:
        return self.reader.look(self.project.schema)

    def _view(self) -> list[int]:
        if all_kinds.VIEW not in self.reader.pointers(self.project.schema):
            return []
        sql = f"select amount from {self.project.schema}.{all_kinds.VIEW}"
        return [amount for (amount,) in self.spark.rows(sql)]


@pytest.fixture(scope="module")
def story(make_project: MakeProject, reader: Reader, spark: SparkReader) -> Story:
    return Story(make_project("kinds", all_kinds.project_files()), reader, spark)


def seen(state: State, name: str) -> tuple[object, ...]:
    return state[name].seen()


@pytest.mark.parametrize("name", all_kinds.NAMES)
class TestEachMaterialization:
    def test_first_build_is_invisible_until_the_publish(self, story: Story, name: str) -> None:
        phase = story.first
        assert name not in phase.before
        assert name not in phase.held
        assert_rows(phase, name)

    def test_second_build_is_invisible_until_the_publish(self, story: Story, name: str) -> None:
        phase = story.second
        assert seen(phase.held, name) == seen(phase.before, name)
        assert_rows(phase, name)

    def test_failing_test_keeps_the_old_rows(self, story: Story, name: str) -> None:
        phase = story.failing
        assert phase.build.verdict(name) == "rejected"
        assert seen(phase.held, name) == seen(phase.before, name)
        assert seen(phase.published, name) == seen(phase.before, name)

    def test_changed_columns_are_invisible_until_the_publish(self, story: Story, name: str) -> None:
        phase = story.widened
        assert "extra" not in phase.held[name].columns
        assert seen(phase.held, name) == seen(phase.before, name)
        assert "extra" in phase.published[name].columns
        assert_rows(phase, name)


def assert_rows(phase: Phase, name: str) -> None:
    expected = all_kinds.amounts(name, phase.versions)
    if name == all_kinds.VIEW:
        assert phase.views[2] == expected
        return
    look = phase.published[name]
    assert all_kinds.current(name, look) == expected
    if name in all_kinds.SNAPSHOTS:
        assert len(look.rows) == len(all_kinds.IDS) * len(phase.versions)


@pytest.mark.parametrize("phase", ["first", "second", "failing", "widened"])
def test_view_reads_what_is_published(story: Story, phase: str) -> None:
    before, held, _ = getattr(story, phase).views
    assert held == before


def test_commands_end_as_they_should(story: Story) -> None:
    for phase in (story.first, story.second, story.widened):
        phase.build.succeeded()
        phase.publish.succeeded()
        assert {v for v, _ in phase.build.verdicts.values()} == {"held"}
    story.failing.build.failed()
    story.failing.publish.succeeded()


def test_lineage_publishes_what_no_failing_test_reads(story: Story) -> None:
    phase = story.failing
    assert phase.build.verdict(all_kinds.UNTESTED) == "published"
    assert seen(phase.held, all_kinds.UNTESTED) != seen(phase.before, all_kinds.UNTESTED)


@pytest.mark.parametrize("phase", ["first", "second", "widened"])
def test_all_tables_are_published_at_once(story: Story, phase: str) -> None:
    poller = getattr(story, phase).poller
    old, new = poller.only_move()
    # On a REST catalog each look is many requests.
    assert poller.polls > (20 if TRANSACTIONS else 3)
    assert set(all_kinds.NAMES) <= set(new)
    assert all(old.get(name) != new[name] for name in all_kinds.NAMES)
