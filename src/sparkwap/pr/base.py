"""Finds the publish whose code a pull request is compared with."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.core.dbt_cli import VARIABLES
from sparkwap.core.errors import ConfigError
from sparkwap.core.names import folded, short_run_id
from sparkwap.ledger.code import BUILT, digests, same
from sparkwap.ledger.manifests import Document, unpack

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier
    from sparkwap.ledger.ledger import Ledger
    from sparkwap.ledger.records import LedgerPublish

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Base:
    """A publish to compare a project with, and its code.

    Attributes:
        modified: Nodes that dbt may find unmodified, although they count as modified, by a variable
            of the project or the table of a source.
        outdated: Other nodes with the code of this publish, whose own last publish had other code.
    """

    publish: LedgerPublish
    manifest: Document
    modified: frozenset[str] = frozenset()
    outdated: frozenset[str] = frozenset()

    @property
    def code(self) -> dict[str, str]:
        """The digests of the published nodes and their tests; see `sparkwap.ledger.code`."""
        return {k: v for k, v in digests(self.manifest).items() if k not in self.modified}

    def __str__(self) -> str:
        return (
            f"the publish of run {short_run_id(self.publish.run_id)} at "
            f"{self.publish.published_at:%Y-%m-%d %H:%M:%S} UTC"
        )


def tables_of(manifest: Document) -> set[Identifier]:
    """Return the names of all tables and views that a project builds, in lower case."""
    built = (node for node in manifest["nodes"].values() if node["resource_type"] in BUILT)
    return {_table(node) for node in built}


def _table(node: Mapping[str, Any]) -> Identifier:
    return folded((str(node["schema"]), str(node["alias"])))


def find(ledger: Ledger, manifest: Document, wanted: str | None = None) -> Base | None:
    """Return the newest publish of a project's tables whose code is stored; None if there is none.

    Publishes of other projects, to other schemas (such as a developer's), and publishes that were
    rolled back do not count.

    Args:
        wanted: Id of a publish or run, or its first eight digits, to use this publish instead.

    Raises:
        ConfigError: There is no such publish, or its code is not stored.
    """
    project, last = str(manifest["metadata"]["project_name"]), {}
    projects = ledger.manifest_projects()
    if wanted is not None:
        found = _named(ledger, wanted)
    else:
        publishes = ledger.publishes()
        chosen = choose(publishes, projects, project, tables_of(manifest))
        if chosen is None:
            return None
        found, last = _loaded(ledger, chosen), last_code(publishes)
    now, newest = digests(manifest), digests(found.manifest)
    # What dbt does not compare, or only as its flags say, is left out.
    seen, compared = (
        digests({**one, VARIABLES: {}, "sources": {}}) for one in (manifest, found.manifest)
    )
    codes = {found.publish.manifest_hash: newest}
    modified, outdated = set(), set()
    for key, node in manifest["nodes"].items():
        if node["resource_type"] not in BUILT or not same(seen.get(key), compared.get(key)):
            continue
        if not same(newest.get(key), now.get(key)):
            modified.add(key)
            continue
        hashed = last.get(_table(node))
        own = hashed is not None and projects.get(hashed) == project
        if own and hashed not in codes and (stored := ledger.manifest(str(hashed))) is not None:
            codes[hashed] = digests(unpack(stored[1]))
        if not same(codes.get(hashed if own else None, newest).get(key), now.get(key)):
            outdated.add(key)
    return replace(found, modified=frozenset(modified), outdated=frozenset(outdated))


def last_code(publishes: Iterable[LedgerPublish]) -> dict[Identifier, str | None]:
    """Return the hash of the code of each table's last publish; ``publishes`` is newest first."""
    found: dict[Identifier, str | None] = {}
    for publish in publishes:
        for name in _names(publish):
            found.setdefault(name, publish.manifest_hash)
    return found


def choose(
    publishes: Collection[LedgerPublish],
    projects: Mapping[str, str],
    project: str,
    tables: Collection[Identifier],
) -> LedgerPublish | None:
    """Return the newest publish of these tables by this project whose code is stored.

    Args:
        publishes: All publishes, newest first.
        projects: Hash -> project of the stored manifests.
        tables: The tables and views that the project builds, in lower case.
    """
    for publish in publishes:
        is_own = projects.get(publish.manifest_hash or "") == project
        if is_own and not _names(publish).isdisjoint(tables):
            return publish
    return None


def write(base: Base, folder: Path, again: Collection[str] = ()) -> None:
    """Write the folder for dbt's ``--state``.

    Args:
        base: The publish; its modified nodes are left out, so that dbt counts them as modified.
        again: Other nodes to leave out.
    """
    left_out = {*base.modified, *again}
    nodes = {key: node for key, node in base.manifest["nodes"].items() if key not in left_out}
    folder.mkdir(parents=True, exist_ok=True)
    kept = {**base.manifest, "nodes": nodes}
    kept.pop(VARIABLES, None)  # which dbt does not know
    (folder / MANIFEST).write_text(json.dumps(kept))


def _names(publish: LedgerPublish) -> set[Identifier]:
    return {folded(entry.identifier) for entry in publish.left}


def _named(ledger: Ledger, wanted: str) -> Base:
    found = ledger.publish(wanted)
    stored = [publish for publish in found if publish.manifest_hash is not None]
    if len(stored) == 1:
        return _loaded(ledger, stored[0])
    if not found:
        problem = "is no publish or run of this lake"
    elif not stored:
        problem = "is a publish whose code is not stored (by an earlier version, or by dbt clone)"
    else:
        problem = f"matches {len(stored)} publishes; give the whole publish id"
    recent = [publish for publish in ledger.publishes() if publish.manifest_hash is not None][:5]
    known = "".join(
        f"\n  {short_run_id(publish.run_id)}   publish {publish.publish_id}   "
        f"{publish.published_at:%Y-%m-%d %H:%M:%S} UTC"
        for publish in recent
    )
    raise ConfigError(
        f"--base {wanted!r} {problem}. Nothing was built. The latest publishes:{known or ' none'}"
    )


def _loaded(ledger: Ledger, publish: LedgerPublish) -> Base:
    found: Any = ledger.manifest(str(publish.manifest_hash))
    if found is None:
        raise ConfigError(
            f"The manifest {publish.manifest_hash} of publish {publish.publish_id} is not in "
            "wap_ledger.manifests; somebody has deleted it. Nothing was built. Name another "
            "publish with --base; the next publish stores its manifest again."
        )
    return Base(publish, unpack(found[1]))
