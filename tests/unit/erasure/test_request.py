"""The arguments of an erasure."""

from __future__ import annotations

import re
import shlex
from datetime import date
from typing import Any

import pytest
import yaml

from sparkwap.core.errors import ConfigError
from sparkwap.erasure import Erase, Rectify


def test_a_dry_run_is_the_default() -> None:
    request = Erase.of({"subject": "customer", "keys": ["42"], "confirm": None})
    assert (request.keys, request.confirm, request.erases) == (("42",), False, True)


def test_keys_may_come_from_a_table() -> None:
    request = Erase.of({"subject": "c", "keys_from": "s.requests.id"})
    assert request.source == (("s", "requests"), "id")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"keys": ["1"]}, "subject is missing"),
        ({"subject": "c"}, "either keys or keys_from"),
        ({"subject": "c", "keys": ["1"], "keys_from": "a.b.c"}, "either keys or keys_from"),
        ({"subject": "c", "keys_from": "b.c"}, "keys_from is 'b.c'"),
        ({"subject": "c", "keys": ["1"], "confirm": "yes"}, "confirm is 'yes'"),
        ({"subject": "c", "key": [1]}, "unknown argument: key"),
        # As YAML reads [042], 042, [12:30, 1.0], [null], [[42, 43]], [yes], [2024-1-5], [''].
        ({"subject": "c", "keys": ["7", 34]}, r"keys has a value that is no text \(int\).*'042'"),
        ({"subject": "c", "keys": 34}, "is no text"),
        ({"subject": "c", "keys": [750, 1.0]}, "is no text"),
        ({"subject": "c", "keys": ["7", None]}, "is no text"),
        ({"subject": "c", "keys": [["42", "43"], "7"]}, "is no text"),
        ({"subject": "c", "keys": [True]}, "is no text"),
        ({"subject": "c", "keys": [date(2024, 1, 5)]}, "is no text"),
        ({"subject": "c", "keys": ["7", " "]}, "keys has an empty text"),
        ({"subject": True, "keys": ["7"]}, "subject has a value that is no text"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Erase.of(arguments)


def test_the_spelling_in_a_refusal_works_in_a_shell() -> None:
    with pytest.raises(ConfigError) as refused:
        Erase.of({"subject": "c", "keys": [34]})
    (example,) = re.findall(r"such as --args (.+?)\. ", str(refused.value))
    assert yaml.safe_load(*shlex.split(example)) == {"key": "042"}


def test_a_rectification_needs_values() -> None:
    with pytest.raises(ConfigError, match="values is missing"):
        Rectify.of({"subject": "c", "keys": ["1"]})


@pytest.mark.parametrize("value", [668, ["Oslo"], date(2024, 1, 5)])
def test_new_values_are_texts_or_null(value: Any) -> None:
    asked = {"subject": "c", "keys": ["1"]}
    assert Rectify.of({**asked, "values": {"zip": "01234", "city": None}})
    with pytest.raises(ConfigError, match="values has a value that is no text"):
        Rectify.of({**asked, "values": {"zip": value}})


def test_confirm_does_not_change_the_token() -> None:
    asked = {"subject": "c", "keys": ["2", "1"]}
    first = Erase.of(asked)
    second = Erase.of({**asked, "keys": ["1", "2"], "confirm": True})
    assert first.token == second.token
    assert first.token != Erase.of({**asked, "subject": "d"}).token
