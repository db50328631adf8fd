"""The arguments of an erasure."""

from __future__ import annotations

from typing import Any

import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.erasure import Erase, Rectify


def test_a_dry_run_is_the_default() -> None:
    request = Erase.of({"subject": "customer", "keys": [42], "confirm": None})
    assert (request.keys, request.confirm, request.erases) == ((42,), False, True)


def test_keys_may_come_from_a_table() -> None:
    request = Erase.of({"subject": "c", "keys_from": "s.requests.id"})
    assert request.source == (("s", "requests"), "id")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"keys": [1]}, "subject is missing"),
        ({"subject": "c"}, "either keys or keys_from"),
        ({"subject": "c", "keys": [1], "keys_from": "a.b.c"}, "either keys or keys_from"),
        ({"subject": "c", "keys_from": "b.c"}, "keys_from is 'b.c'"),
        ({"subject": "c", "keys": [1], "confirm": "yes"}, "confirm is 'yes'"),
        ({"subject": "c", "key": [1]}, "unknown argument: key"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Erase.of(arguments)


def test_a_rectification_needs_values() -> None:
    with pytest.raises(ConfigError, match="values is missing"):
        Rectify.of({"subject": "c", "keys": [1]})


def test_confirm_does_not_change_the_token() -> None:
    asked = {"subject": "c", "keys": [2, 1]}
    first = Erase.of(asked)
    second = Erase.of({**asked, "keys": [1, 2], "confirm": True})
    assert first.token == second.token
    assert first.token != Erase.of({**asked, "subject": "d"}).token
