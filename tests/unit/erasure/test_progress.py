"""The progress of an interrupted operation, and the search that it makes from it."""

from __future__ import annotations

from pathlib import Path

from sparkwap.erasure import Erase, Rectify
from sparkwap.erasure.finder import _search
from sparkwap.erasure.progress import ErasureProgress


def test_only_the_owner_can_read_the_progress(tmp_path: Path) -> None:
    path = tmp_path / "erasure/open_1.json"
    journal = ErasureProgress("ab", branch="wap_1")
    journal.learn(["42"], {"email": ["a@b.example"]}, ["a@b.example"])
    journal.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ErasureProgress.read(path, "cd") == journal
    assert ErasureProgress.read(tmp_path / "none.json", "cd") == ErasureProgress("cd")


def test_values_are_added_to_the_progress() -> None:
    journal = ErasureProgress("ab")
    journal.learn(["42"], {"email": ["new@b.example"]}, ["new@b.example"])
    journal.learn(["42"], {"email": ["old@b.example"]}, [])
    assert journal.values == {"email": ["new@b.example", "old@b.example"]}


def journal() -> ErasureProgress:
    found = ErasureProgress("ab")
    values = {"email": ["anna@b.example"], "city": ["Bergen", "Oslo"], "born": ["1990-05-17"]}
    found.learn(["42"], values, ["anna@b.example", "Bergen", "Oslo"])
    return found


def test_values_of_others_are_not_searched_for() -> None:
    request = Erase.of({"subject": "c", "keys": ["42"]})
    search = _search(request, journal(), {"city": {"Oslo"}})
    # A date is searched for only in its column; the key is too short for other places.
    assert search.words == {"anna@b.example", "Bergen"}
    assert search.values["city"] == {"Bergen"}
    assert search.keys == {"42"}


def test_a_rectification_searches_only_for_old_values() -> None:
    asked = {"subject": "c", "keys": ["42"], "values": {"City": "Oslo"}}
    search = _search(Rectify.of(asked), journal(), {})
    assert search.words == {"Bergen"}
    assert dict(search.values) == {"city": frozenset({"Bergen"})}
    assert search.keys == frozenset()
