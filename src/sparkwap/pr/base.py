"""What a pull request is compared with: the code of a publish, as the lake has it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.core.errors import ConfigError
from sparkwap.core.names import folded, short_run_id
from sparkwap.ledger.manifests import Document, unpack
from sparkwap.pr.code import BUILT

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier
    from sparkwap.ledger.ledger import Ledger
    from sparkwap.ledger.records import LedgerPublish

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Base:
    """The publish that a project is compared with, and its code."""

    publish: LedgerPublish
    manifest: Document

    def __str__(self) -> str:
        return (
            f"the publish of run {short_run_id(self.publish.run_id)} at "
            f"{self.publish.published_at:%Y-%m-%d %H:%M:%S} UTC"
        )


def tables_of(manifest: Document) -> set[Identifier]:
    """The names of all tables and views that a project builds, in lower case."""
    return {
        folded((str(node["schema"]), str(node["alias"])))
        for node in manifest["nodes"].values()
        if node["resource_type"] in BUILT
    }


def find(ledger: Ledger, manifest: Document, wanted: str | None = None) -> Base | None:
    """The newest publish of a project's tables whose code is kept; None where there is none yet.

    A publish of another project in the lake does not count, nor one to other schemas (a
    developer's), nor one that was rolled back.

    Args:
        ledger: The lake's ledger.
        manifest: The project as it is now.
        wanted: Id of a publish or run, or its first eight digits, to take that one instead.

    Raises:
        ConfigError: There is no such publish, or its code was not kept.
    """
    if wanted is not None:
        return _named(ledger, wanted)
    project = str(manifest["metadata"]["project_name"])
    chosen = choose(ledger.publishes(), ledger.manifest_projects(), project, tables_of(manifest))
    return _loaded(ledger, chosen) if chosen is not None else None


def choose(
    publishes: Collection[LedgerPublish],
    projects: Mapping[str, str],
    project: str,
    tables: Collection[Identifier],
) -> LedgerPublish | None:
    """The first of the publishes, newest first, that tells what code stands in these tables.

    Args:
        publishes: All publishes, newest first.
        projects: Hash -> project of the manifests that are kept.
        project: The project's name.
        tables: What it builds, in lower case.
    """
    for one in publishes:
        names = {folded(name) for name in _names(one)}
        if projects.get(one.manifest_hash or "") == project and not names.isdisjoint(tables):
            return one
    return None


def write(base: Base, folder: Path) -> None:
    """Write a folder for dbt's ``--state``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_text(json.dumps(base.manifest))


def _names(publish: LedgerPublish) -> list[Identifier]:
    return [entry.identifier for entry in publish.left]


def _named(ledger: Ledger, wanted: str) -> Base:
    found = ledger.publish(wanted)
    kept = [one for one in found if one.manifest_hash is not None]
    if len(kept) == 1:
        return _loaded(ledger, kept[0])
    if not found:
        problem = "is no publish or run of this lake"
    elif not kept:
        problem = "is a publish whose code was not kept (of an earlier version, or of dbt clone)"
    else:
        problem = f"means {len(kept)} publishes; give the whole publish id"
    recent = [one for one in ledger.publishes() if one.manifest_hash is not None][:5]
    known = "".join(
        f"\n  {short_run_id(one.run_id)}   publish {one.publish_id}   "
        f"{one.published_at:%Y-%m-%d %H:%M:%S} UTC"
        for one in recent
    )
    raise ConfigError(
        f"--base {wanted!r} {problem}. Nothing was built. The latest ones:{known or ' none'}"
    )


def _loaded(ledger: Ledger, publish: LedgerPublish) -> Base:
    found: Any = ledger.manifest(str(publish.manifest_hash))
    if found is None:
        raise ConfigError(
            f"The manifest {publish.manifest_hash} of publish {publish.publish_id} is not in "
            "wap_ledger.manifests: somebody has taken it out. Nothing was built. Name another "
            "publish with --base; the next publish keeps its manifest again."
        )
    return Base(publish, unpack(found[1]))
