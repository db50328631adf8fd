"""What an interrupted operation remembers, and what it looks for with it."""

from __future__ import annotations

from pathlib import Path

from sparkwap.erasure import Erase, Rectify
from sparkwap.erasure.finder import _search
from sparkwap.erasure.progress import ErasureProgress


def test_notes_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "erasure/open_1.json"
    journal = ErasureProgress("ab", branch="wap_1")
    journal.learn(["42"], {"email": ["a@b.example"]}, ["a@b.example"])
    journal.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ErasureProgress.read(path, "cd") == journal
    assert ErasureProgress.read(tmp_path / "none.json", "cd") == ErasureProgress("cd")


def test_notes_add_up() -> None:
    journal = ErasureProgress("ab")
    journal.learn(["42"], {"email": ["new@b.example"]}, ["new@b.example"])
    journal.learn(["42"], {"email": ["old@b.example"]}, [])
    assert journal.values == {"email": ["new@b.example", "old@b.example"]}


def journal() -> ErasureProgress:
    found = ErasureProgress("ab")
    values = {"email": ["anna@b.example"], "city": ["Bergen", "Oslo"], "born": ["1990-05-17"]}
    found.learn(["42"], values, ["anna@b.example", "Bergen", "Oslo"])
    return found


def test_what_others_have_too_is_not_looked_for() -> None:
    request = Erase.of({"subject": "c", "keys": [42]})
    search = _search(request, journal(), {"city": {"Oslo"}})
    # A day is looked for in its column only; the key is too short to be looked for elsewhere.
    assert search.words == {"anna@b.example", "Bergen"}
    assert search.values["city"] == {"Bergen"}
    assert search.keys == {"42"}


def test_a_rectification_looks_for_former_values_only() -> None:
    asked = {"subject": "c", "keys": [42], "values": {"City": "Oslo"}}
    search = _search(Rectify.of(asked), journal(), {})
    assert search.words == {"Bergen"}
    assert dict(search.values) == {"city": frozenset({"Bergen"})}
    assert search.keys == frozenset()
