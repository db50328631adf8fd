"""Answers of a REST catalog, as they are understood after former tries."""

from __future__ import annotations

from typing import Any

import pytest
from requests import Response

from sparkwap.catalog.pointers import CannotShare, Conflict, Unanswered
from sparkwap.catalog.rest_client import RestClient


def answer(status: int, *former: int) -> Response:
    made = Response()
    made.status_code = status
    made._content = b"{}"
    made.history = [answer(one) for one in former]
    return made


@pytest.fixture
def client() -> Any:
    return object.__new__(RestClient)


@pytest.mark.parametrize("status", [400, 403])
def test_a_refusal_is_clear_unless_a_former_try_may_have_been_carried_out(
    client: Any, status: int
) -> None:
    with pytest.raises(CannotShare):
        client._registered(answer(status, 429, 429), "s.a", lambda: False)
    with pytest.raises(Unanswered):
        client._registered(answer(status, 503, 429), "s.a", lambda: False)


@pytest.mark.parametrize(("former", "unclear"), [([], False), ([429], False), ([503], True)])
def test_a_conflict_is_unclear_only_after_a_lost_answer(
    client: Any, former: list[int], unclear: bool
) -> None:
    with pytest.raises(Conflict) as caught:
        client._committed(answer(409, *former), "s.a")
    assert caught.value.unclear is unclear
