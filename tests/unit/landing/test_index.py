"""The index of landing files: a file is hashed once, and no change is missed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkwap import landing
from sparkwap.landing import LandingError, LandingFile, landing_files, reading
from sparkwap.landing import index as indexing
from sparkwap.landing.index import Hashed, Index, Stamp
from sparkwap.landing.log_state import NOTHING
from sparkwap.landing.unread import edited, files_to_read

ENTRY = landing.parse_entry(
    {
        "entity": "t",
        "kind": "changes",
        "key": ["id"],
        "columns": {"id": "bigint"},
        "files": [{"match": "*", "load": "inserts"}],
    }
)


def deliver(root: Path, name: str, content: bytes = b"id\n1\n", day: str = "2024-01-01") -> Path:
    path = root / "t" / f"load_date={day}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "landing"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The files that are read for their digest, by name."""
    found: list[str] = []
    real = Index.hash

    def hash_(self: Index, stream: Any) -> Hashed:
        found.append(Path(stream.name).name)
        return real(self, stream)

    monkeypatch.setattr(Index, "hash", hash_)
    yield found


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files were changed long before they are hashed."""
    monkeypatch.setattr(indexing, "MARGIN_NS", -(10**15))


def index_of(root: Path, model: str = "raw_t") -> Index:
    return Index.of_model(root.parent / "target", model, root, "t")


def listed(root: Path, listing_id: str = "") -> list[LandingFile]:
    return landing.list_files(root, ENTRY, index_of(root), listing_id)


# ---------------------------------------------------------------- a file is hashed once


@pytest.mark.usefixtures("later")
def test_only_new_files_are_hashed(root: Path, hashed: list[str]) -> None:
    for number in range(20):
        deliver(root, f"{number}.csv")
    first = listed(root)
    assert len(hashed) == 20
    hashed.clear()
    deliver(root, "new.csv")
    second = listed(root)
    assert hashed == ["new.csv"]
    assert [f for f in second if f.path.name != "new.csv"] == first
    assert second == landing.list_files(root, ENTRY)


@pytest.mark.usefixtures("later")
def test_a_changed_file_is_hashed_again(root: Path, hashed: list[str]) -> None:
    path = deliver(root, "a.csv", b"id\n1\n")
    deliver(root, "b.csv")
    listed(root)
    before = path.stat()
    path.write_bytes(b"id\n2\n")
    # Like rsync and tar: the file keeps the change time of the original.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    hashed.clear()
    assert listed(root)[0].sha256 == hashlib.sha256(b"id\n2\n").hexdigest()
    assert hashed == ["a.csv"]


def test_a_file_that_was_just_written_is_hashed_again(root: Path, hashed: list[str]) -> None:
    deliver(root, "a.csv")
    listed(root)
    listed(root)
    assert hashed == ["a.csv", "a.csv"]


def test_a_digest_is_valid_only_if_the_file_was_old() -> None:
    changed = 10**18
    stamp = Stamp(5, changed - 10**12, changed, 7)
    assert Hashed(stamp, "x", changed + indexing.MARGIN_NS).holds(stamp)
    assert not Hashed(stamp, "x", changed + indexing.MARGIN_NS - 1).holds(stamp)
    for other in ({"bytes": 6}, {"modified": 1}, {"changed": 1}, {"inode": 8}):
        assert not Hashed(stamp, "x", 2 * changed).holds(stamp._replace(**other))


@pytest.mark.usefixtures("later")
def test_a_file_that_changes_while_it_is_hashed_is_hashed_again(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id\n")
    with path.open("rb") as stream:
        row = Index().hash(_Growing(stream, path))  # type: ignore[arg-type]
    assert not row.holds(Stamp.of(path.stat()))
    with path.open("rb") as stream:
        assert Index().hash(stream).holds(Stamp.of(path.stat()))


class _Growing:
    """A file that grows while it is read."""

    def __init__(self, stream: Any, path: Path) -> None:
        self.stream, self.path = stream, path

    def fileno(self) -> int:
        return int(self.stream.fileno())

    def read(self, size: int) -> bytes:
        found: bytes = self.stream.read(size)
        if found == b"id\n":
            with self.path.open("ab") as more:
                more.write(b"1\n")
        return found


@pytest.mark.usefixtures("later")
def test_digests_of_removed_files_are_dropped(root: Path) -> None:
    deliver(root, "a.csv").unlink()
    path = deliver(root, "b.csv")
    listed(root)
    path.unlink()
    deliver(root, "c.csv")
    listed(root)
    assert [Path(name).name for name in index_of(root).rows] == ["c.csv"]


@pytest.mark.usefixtures("later")
def test_a_fault_in_the_folder_keeps_all_digests(root: Path, hashed: list[str]) -> None:
    deliver(root, "a.csv")
    (root / "t" / "load_date=soon").mkdir()
    for _ in range(2):
        with pytest.raises(LandingError, match="is not a folder named"):
            listed(root)
    assert hashed == ["a.csv"]


# ---------------------------------------------------------------- what no index counts for


def damage(file: Path, how: str) -> None:
    content = file.read_bytes()
    if how == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        file.write_bytes(content.replace(b'"id-1"', b'"id-2"'))
    elif how == "no JSON":
        file.write_bytes(b"\xff{\n{")
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "others may write":
        file.chmod(0o666)
    else:
        file.unlink()
        file.mkdir()


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    "how", ["cut", "flipped", "no JSON", "empty", "others may write", "a folder"]
)
def test_a_damaged_or_writable_index_is_ignored(root: Path, how: str, hashed: list[str]) -> None:
    deliver(root, "a.csv")
    expected = listed(root, "id-1")
    (file,) = (root.parent / "target" / indexing.FOLDER).iterdir()
    assert index_of(root).listing_id == "id-1"
    damage(file, how)
    assert (index_of(root).rows, index_of(root).listing_id) == ({}, "")
    assert listed(root) == expected
    assert hashed == ["a.csv", "a.csv"]


@pytest.mark.usefixtures("later")
def test_an_index_of_another_owner_is_ignored(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(root, "a.csv")
    listed(root)
    (file,) = (root.parent / "target" / indexing.FOLDER).iterdir()
    assert Index(file, "raw_u\nelsewhere\nt").rows == {}
    assert index_of(root, "raw_u").rows == {}
    assert index_of(root).rows
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert index_of(root).rows == {}


def test_only_the_owner_can_read_an_index(root: Path) -> None:
    deliver(root, "a.csv")
    listed(root)
    folder = root.parent / "target" / indexing.FOLDER
    (file,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_unwritable_index_is_not_an_error(root: Path) -> None:
    deliver(root, "a.csv")
    (root.parent / "target").write_text("a file")
    assert listed(root) == landing.list_files(root, ENTRY)


# ---------------------------------------------------------------- a listing that is handed on


def taken(root: Path, listing_id: str, known: dict[str, str] | None = None) -> list[LandingFile]:
    return files_to_read(root, ENTRY, known or {}, None, index_of(root), listing_id)


@pytest.mark.usefixtures("later")
def test_a_build_uses_the_listing_of_its_command(
    root: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(root, "old.csv")
    deliver(root, "new.csv", day="2024-01-02")
    found = listed(root, "id-1")
    known = {f.name: f.sha256 for f in found if f.path.name == "old.csv"}
    hashed.clear()
    monkeypatch.setattr(
        landing_files, "_folders", lambda *_: pytest.fail("the folder is listed again")
    )
    (root / "t" / "load_date=2024-01-01" / "old.csv").unlink()  # nobody looks at it
    assert taken(root, "id-1", known) == [f for f in found if f.path.name == "new.csv"]
    assert hashed == []


@pytest.mark.usefixtures("later")
def test_a_new_log_reads_all_files(root: Path) -> None:
    deliver(root, "old.csv")
    deliver(root, "new.csv", day="2024-01-02")
    assert taken(root, "id-1", {}) == listed(root, "id-1") == taken(root, "id-1", {})


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("listing_id", ["", "id-2"])
def test_other_builds_list_the_folder_themselves(root: Path, listing_id: str) -> None:
    deliver(root, "a.csv")
    listed(root, "id-1")
    deliver(root, "b.csv")
    assert [f.path.name for f in taken(root, listing_id)] == ["a.csv", "b.csv"]


@pytest.mark.usefixtures("later")
def test_a_file_that_changes_after_the_listing_is_read_in_its_new_state(root: Path) -> None:
    path = deliver(root, "a.csv", b"id\n1\n")
    deliver(root, "b.csv")
    listed(root, "id-1")
    path.write_bytes(b"id\n2\n")
    assert taken(root, "id-1") == landing.list_files(root, ENTRY)
    path.unlink()
    assert [f.path.name for f in taken(root, "id-1")] == ["b.csv"]


def test_a_file_that_was_listed_too_early_is_hashed_again(root: Path, hashed: list[str]) -> None:
    deliver(root, "a.csv")
    listed(root, "id-1")
    taken(root, "id-1")
    assert hashed == ["a.csv", "a.csv"]


@pytest.mark.usefixtures("later")
def test_new_content_under_an_old_name_is_refused_as_before(root: Path) -> None:
    path = deliver(root, "a.csv", b"id\n1\n")
    known = {f.name: f.sha256 for f in listed(root, "id-1")}
    path.write_bytes(b"id\n2\n")
    listed(root, "id-2")
    for listing_id in ("", "id-2"):
        with pytest.raises(LandingError, match=r"a\.csv was read before with other content"):
            taken(root, listing_id, known)
    path.write_bytes(b"id\n1\n")  # put back after the listing
    assert taken(root, "id-2", known) == []


# ---------------------------------------------------------------- any history

SECOND = 10**9


class Disk:
    """A file system in memory, with its own clock, which has steps.

    Attributes:
        now: our time, in nanoseconds.
        read: how many files were read.
    """

    def __init__(self, step: int, skew: int) -> None:
        self.step, self.skew, self.now, self.read = step, skew, 10**18, 0
        self.files: dict[str, tuple[bytes, Stamp]] = {}

    def time(self) -> int:
        return (self.now + self.skew) // self.step * self.step

    def write(self, name: str, content: bytes) -> None:
        inode = self.files[name][1].inode if name in self.files else self.free()
        self.files[name] = content, Stamp(len(content), self.time(), self.time(), inode)

    def free(self) -> int:
        """The lowest free inode number: a freed number is reused at once."""
        used = {stamp.inode for _, stamp in self.files.values()}
        return next(i for i in range(len(used) + 1) if i not in used)

    def replace(self, name: str, content: bytes) -> None:
        self.files.pop(name, None)
        self.write(name, content)

    def touch(self, name: str, modified: int | None) -> None:
        if name in self.files:
            content, stamp = self.files[name]
            when = self.time() if modified is None else modified
            self.files[name] = content, stamp._replace(modified=when, changed=self.time())

    def rename(self, name: str, other: str) -> None:
        if name in self.files and name != other:
            content, stamp = self.files.pop(name)
            self.files[other] = content, stamp._replace(changed=self.time())


class OnDisk(Index):
    """An index of the files of a `Disk`."""

    def __init__(self, disk: Disk, before: Index | None) -> None:
        super().__init__()
        self.disk = disk
        self.rows = dict(before.rows) if before else {}

    def hash(self, stream: Any) -> Hashed:
        self.disk.read += 1
        content, stamp = stream
        return Hashed(stamp, hashlib.sha256(content).hexdigest(), self.disk.now)

    def digests(self) -> dict[str, str]:
        found = {}
        for name, (content, stamp) in self.disk.files.items():
            path: Any = _Opened((content, stamp))
            found[name] = self.look(name, path, stamp).sha256
        self.record(dict.fromkeys(found), "")
        return found


class _Opened:
    def __init__(self, file: tuple[bytes, Stamp]) -> None:
        self.file = file

    def open(self, _: str) -> Any:
        return nullcontext(self.file)


NAMES = st.sampled_from("abc")
CONTENTS = st.sampled_from([b"1", b"2", b"33"])
EVENTS = st.one_of(
    st.tuples(st.just("write"), NAMES, CONTENTS),
    st.tuples(st.just("replace"), NAMES, CONTENTS),
    st.tuples(st.just("touch"), NAMES, st.sampled_from([None, 10**17, 10**18])),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("wait"), st.sampled_from([1, SECOND // 250, SECOND, 2 * SECOND, 9 * SECOND])),
    st.tuples(st.just("list")),
)


@settings(max_examples=examples(300))
@given(
    st.lists(EVENTS, max_size=40),
    st.sampled_from([1, SECOND // 100, SECOND, 2 * SECOND]),
    st.integers(-3 * SECOND, 3 * SECOND),
)
def test_the_index_agrees_with_hashing_everything(
    events: list[tuple[Any, ...]], step: int, skew: int
) -> None:
    disk, index = Disk(step, skew), None
    for what, *given_ in [*events, ("list",)]:
        if what == "wait":
            disk.now += given_[0]
        elif what == "delete":
            disk.files.pop(given_[0], None)
        elif what == "list":
            index = OnDisk(disk, index)
            everything = {
                name: hashlib.sha256(content).hexdigest()
                for name, (content, _) in disk.files.items()
            }
            assert index.digests() == everything
        else:
            getattr(disk, what)(*given_)


def test_the_margin_finds_changes_within_a_clock_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the margin, the history above would miss a change."""

    def history() -> tuple[str, str]:
        disk = Disk(2 * SECOND, 0)
        disk.write("a", b"1")
        index = OnDisk(disk, None)
        first = index.digests()["a"]
        disk.now += SECOND
        disk.write("a", b"2")
        return first, OnDisk(disk, index).digests()["a"]

    first, second = history()
    assert first != second
    monkeypatch.setattr(indexing, "MARGIN_NS", 0)
    first, second = history()
    assert first == second


def test_old_files_are_not_read_again_by_later_listings() -> None:
    disk, index = Disk(SECOND, 0), None
    for number in range(100):
        disk.write(f"{number}", b"1")
    disk.now += 10 * SECOND
    for day in range(10):
        disk.write(f"new {day}", b"2")
        disk.now += 10 * SECOND
        index = OnDisk(disk, index)
        index.digests()
    assert disk.read == 110


@settings(max_examples=examples(15))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["write", "replace", "restore"]), NAMES, CONTENTS),
            st.tuples(st.just("delete"), NAMES, st.just(b"")),
            st.tuples(st.sampled_from(["wait", "list"]), st.just("a"), st.just(b"")),
        ),
        max_size=15,
    )
)
def test_the_index_agrees_on_a_real_disk(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, str, bytes]]
) -> None:
    root = tmp_path_factory.mktemp("history") / "landing"
    (root / "t").mkdir(parents=True)
    usual, indexing.MARGIN_NS = indexing.MARGIN_NS, SECOND // 25
    try:
        for what, name, content in [*events, ("list", "a", b"")]:
            path = root / "t" / "load_date=2024-01-01" / f"{name}.csv"
            if what == "wait":
                time.sleep(0.05)
            elif what == "list":
                assert listed(root) == landing.list_files(root, ENTRY)
            elif what == "delete":
                path.unlink(missing_ok=True)
            elif what == "replace":
                deliver(root, "_part", content).replace(path)
            else:
                before = path.stat() if path.exists() else None
                deliver(root, path.name, content)
                if what == "restore" and before:
                    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    finally:
        indexing.MARGIN_NS = usual


# ---------------------------------------------------------------- an upload that goes on


@pytest.mark.parametrize("old", [True, False])
def test_a_file_that_changes_while_it_is_read_is_an_error(
    root: Path, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if old:
        monkeypatch.setattr(indexing, "MARGIN_NS", -(10**15))
    path, other = deliver(root, "a.csv"), deliver(root, "b.csv", b"id\n3\n")
    index = index_of(root)
    files = files_to_read(root, ENTRY, {}, None, index, "")
    other.touch()
    reading.require_unchanged(files, index)
    path.write_bytes(b"id\n1\n2\n")
    with pytest.raises(
        LandingError, match=r"a\.csv has changed while it was read.*Wait until its upload"
    ):
        reading.require_unchanged(files, index)


# ---------------------------------------------------------------- a full refresh


def test_a_full_refresh_needs_all_files_that_the_log_has_read(root: Path) -> None:
    paths = [deliver(root, f"{name}.csv", name.encode()) for name in "abc"]
    index = index_of(root)
    files = files_to_read(root, ENTRY, {}, None, index, "")
    known = replace(NOTHING, files={file.name: file.sha256 for file in files})
    reading.require_all_files(ENTRY, known, index)
    paths[0].rename(paths[0].with_name("renamed.csv"))
    files_to_read(root, ENTRY, {}, None, index, "")
    reading.require_all_files(ENTRY, known, index)
    # An erasure has named it, and it was edited.
    erased = replace(known, files={n: f"erased:{sha}" for n, sha in known.files.items()})
    reading.require_all_files(ENTRY, erased, index)
    assert edited(erased.files, index) == []
    paths[1].write_text(paths[1].read_text() + "\n")
    files_to_read(root, ENTRY, {}, None, index, "")
    reading.require_all_files(ENTRY, erased, index)
    assert edited(erased.files, index) == [files[1].name]
    for path in paths[1:]:
        path.unlink()
    files_to_read(root, ENTRY, {}, None, index, "")
    with pytest.raises(LandingError, match=r"has read .*/b\.csv and 1 more, which .*no longer"):
        reading.require_all_files(ENTRY, known, index)
