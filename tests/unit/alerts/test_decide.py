"""The selection, grouping and suppression of events."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparkwap.alerts.decide import messages
from sparkwap.alerts.model import Event, Message
from sparkwap.gate.alert_settings import SEVERITY, AlertSettings, Chat, Value
from sparkwap.ledger.records import DeliveredAlert

from .conftest import NOW, RUN, event


def slack(name: str, **more: Any) -> Chat:
    return Chat(name=name, type="slack", url=Value(variable="HOOK"), **more)


ALL = slack("all")


def sent(events: list[Event], *routes: Chat, delivered: Any = (), **more: Any) -> list[Message]:
    target = more.pop("target", "prod")
    settings = AlertSettings(routes=routes or (ALL,), **more)
    return messages(events, settings, delivered, target=target, now=NOW)


def subjects(found: list[Message]) -> dict[str, list[list[str]]]:
    by_route: dict[str, list[list[str]]] = {}
    for m in found:
        by_route.setdefault(m.route, []).append([event.subject for event in m.events])
    return by_route


class TestRouting:
    def test_routes_select_events_by_owner_kind_severity_and_target(self) -> None:
        routes = (
            ALL,
            slack("jane", owners=frozenset({"jane"})),
            slack("rollbacks", events=frozenset({"rolled_back"})),
            slack("bad", severity="error"),
            slack("dev", targets=frozenset({"dev"})),
        )
        found = sent(
            [
                event("a", owners=("Jane",)),
                event("b", kind="held", owners=("Jane",)),
                event("c", kind="rolled_back"),
            ],
            *routes,
        )
        assert subjects(found) == {
            "all": [["a", "b"], ["c"]],
            "jane": [["a", "b"]],
            "rollbacks": [["c"]],
            "bad": [["a"]],
        }

    def test_events_without_an_owner_go_only_to_routes_without_owners(self) -> None:
        mine = slack("mine", owners=frozenset({"me"}))
        assert subjects(sent([event("a")], ALL, mine)) == {"all": [["a"]]}

    def test_without_routes_there_are_no_messages(self) -> None:
        assert messages([event()], AlertSettings(), [], target="", now=NOW) == []


class TestGroups:
    def test_each_run_and_set_of_owners_has_one_message(self) -> None:
        other = "9" * 8
        found = sent(
            [
                event("a", owners=("x",)),
                event("b", owners=("y",)),
                event("c", owners=("x",)),
                event("d", owners=("x",), run_id=other),
                event("e", owners=("x", "y")),
            ]
        )
        assert [(m.run_id, m.owners, [e.subject for e in m.events]) for m in found] == [
            (RUN, ("x",), ["a", "c"]),
            (RUN, ("y",), ["b"]),
            (other, ("x",), ["d"]),
            (RUN, ("x", "y"), ["e"]),
        ]

    def test_errors_come_first(self) -> None:
        found = sent([event("a", kind="held"), event("z"), event("y")])
        assert subjects(found) == {"all": [["y", "z", "a"]]}
        assert found[0].severity == "error"

    @given(
        st.lists(
            st.builds(
                lambda s, k, o: event(s, kind=k, owners=tuple(sorted(o))),
                st.sampled_from("abcdef"),
                st.sampled_from(sorted(SEVERITY)),
                st.sets(st.sampled_from("xyz")),
            )
        )
    )
    def test_a_route_that_takes_all_events_gets_each_once(self, events: list[Event]) -> None:
        found = [event.fingerprint for m in sent(events) for event in m.events]
        assert sorted(found) == sorted({event.fingerprint for event in events})


class TestSuppression:
    def test_an_event_is_suppressed_within_the_interval_of_its_route(self) -> None:
        delivered = [DeliveredAlert("all", event("a").fingerprint, NOW - timedelta(hours=23))]
        other = slack("other")
        found = sent([event("a"), event("b")], ALL, other, delivered=delivered)
        assert subjects(found) == {"all": [["b"]], "other": [["a", "b"]]}
        assert [m.known for m in found] == [1, 0]
        assert sent([event("a")], delivered=delivered) == []
        assert len(sent([event("a")], delivered=delivered, suppress_hours=23)) == 1
        assert len(sent([event("a")], delivered=delivered, suppress_hours=0)) == 1

    def test_a_message_that_is_sent_again_has_its_id_and_a_reminder_another(self) -> None:
        (first,), (again,) = sent([event("a")]), sent([event("a")])
        (next_run,) = sent([event("a", run_id="f" * 8)])
        assert next_run.message_id != first.message_id == again.message_id
        (first,), (again,) = (
            sent([event("raw", kind="quarantine", run_id=check)]) for check in ("1" * 8, "2" * 8)
        )
        assert first.message_id == again.message_id
        (first,) = sent([event("a")])
        delivered = [DeliveredAlert("all", event("a").fingerprint, NOW - timedelta(hours=25))]
        (reminder,) = sent([event("a")], delivered=delivered)
        (other,) = sent([event("a")], delivered=[replace(delivered[0], route="other")])
        assert reminder.message_id != first.message_id == other.message_id

    def test_the_same_problem_in_another_run_has_the_same_fingerprint(self) -> None:
        tonight = event(run_id="f" * 8, branch="wap_ffffffff", reasons=("another number of rows",))
        assert tonight.fingerprint == event().fingerprint
        for other in (
            event(branch="pr_7"),
            event(kind="held"),
            event("shop.totals"),
            event(key="another test"),
        ):
            assert other.fingerprint != event().fingerprint
