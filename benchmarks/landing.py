"""What it costs to find one new landing file among many old ones.

What `sparkwap build` and its dbt build do with the landing folder before anything is read: list it,
find what is new, and hand that on. A new file beside 1,000 old ones is compared with the same file
alone, and with the way without an index, on which each of three listings (before the build, in it,
after it) hashes all files. Sides in turn, by CPU time of this process, which other work on the
machine disturbs least. No server is started. The files have their size, and no blocks on disk.

    python benchmarks/landing.py [--old 1000] [--kilobytes 256] [--rounds 5]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import machine, spread

from sparkwap import landing
from sparkwap.landing.index import MARGIN_NS, Index
from sparkwap.landing.unread import files_to_read

ENTRY = landing.parse_entry(
    {
        "entity": "t",
        "kind": "changes",
        "key": ["id"],
        "columns": {"id": "bigint"},
        "files": [{"match": "*", "load": "inserts"}],
    }
)
LISTINGS_BEFORE = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=int, default=1_000)
    parser.add_argument("--kilobytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    size = given.kilobytes << 10
    with tempfile.TemporaryDirectory(prefix="sparkwap-bench-") as home:
        alone, many = Path(home) / "alone", Path(home) / "many"
        for number in range(given.old):
            _deliver(many, f"old_{number:06}.csv", size, number % 28 + 1)
        # A digest is trusted only if its file was old when it was hashed.
        time.sleep(MARGIN_NS / 10**9)
        known = {file.name: file.sha256 for file in _listed(many)}
        _deliver(many, "new.csv", size, 28)
        _deliver(alone, "new.csv", size, 28)
        time.sleep(MARGIN_NS / 10**9)
        kept = shutil.copytree(many / "target", Path(home) / "kept")

        def with_index() -> float:
            shutil.rmtree(many / "target")
            shutil.copytree(kept, many / "target")
            return _cpu(lambda: _build(many, known))

        def one_alone() -> float:
            shutil.rmtree(alone / "target", ignore_errors=True)
            return _cpu(lambda: _build(alone, {}))

        sides = {
            "one file alone": one_alone,
            "the index": with_index,
            "hashing all": lambda: _cpu(lambda: _without_index(many, known)),
        }
        found: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(given.rounds):
            for name, side in sides.items():
                found[name].append(side())
        _print(found, given)


def _deliver(side: Path, name: str, size: int, day: int) -> None:
    path = side / "landing" / "t" / f"load_date=2024-01-{day:02}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(f"id\n{name}\n".encode())
        file.truncate(size)


def _index(side: Path) -> Index:
    return Index.of_model(side / "target", "raw_t", side / "landing", "t")


def _listed(side: Path, listing_id: str = "") -> list[landing.LandingFile]:
    return landing.list_files(side / "landing", ENTRY, _index(side), listing_id)


def _build(side: Path, known: Mapping[str, str]) -> None:
    """What `sparkwap build` does, then the raw model in its dbt build."""
    (new,) = landing.pending(_listed(side, "listing"), known)
    taken = files_to_read(side / "landing", ENTRY, known, None, _index(side), "listing")
    assert taken == [new]


def _without_index(side: Path, known: Mapping[str, str]) -> None:
    for _ in range(LISTINGS_BEFORE):
        (_new,) = landing.pending(landing.list_files(side / "landing", ENTRY), known)


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _print(found: Mapping[str, list[float]], given: argparse.Namespace) -> None:
    alone, index, all_ = (found[name] for name in ("one file alone", "the index", "hashing all"))

    def ms(side: list[float]) -> str:
        return f"{statistics.median(side) * 1000:,.0f} ms"

    print(f"Machine: {machine()}\n")
    print(f"One new file, {given.old:,} old ones, {given.kilobytes:,} KB each\n")
    print("| with the index | against | | ratio (min - median - max) |")
    print("|---|---|---|---|")
    for name, side in (("the new file alone", alone), ("hashing all, three times", all_)):
        ratio = spread([ours / theirs for ours, theirs in zip(index, side, strict=True)])
        print(f"| {ms(index)} | {name} | {ms(side)} | {ratio} |")


if __name__ == "__main__":
    main()
