"""Finds the raw models of a project, and reads the files and quarantined rows of their tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkwap.core.dbt_cli import LakePlace
from sparkwap.landing import (
    Entry,
    LandingError,
    kafka,
    list_files,
    parse_entry,
    pending,
    root_of,
    topic,
)  # fmt: skip
from sparkwap.landing.index import Index, Stamp
from sparkwap.landing.landing_files import LandingFile

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


@dataclass(frozen=True)
class RawModel:
    """A raw model of the project.

    Attributes:
        root: its landing folder; the project's folder for a topic.
        kafka: the connection to Kafka as it is written in the meta; None for files.
    """

    name: str
    table: tuple[str, str]
    root: Path
    entry: Entry
    kafka: Any = None


def raw_models(manifest: Mapping[str, Any], project_dir: Path) -> list[RawModel]:
    """Return the enabled models of dbt's manifest that have a landing entry, ordered by name."""
    nodes = [node for node in manifest["nodes"].values() if has_entry(node)]
    return [_raw_model(node, project_dir) for node in sorted(nodes, key=lambda n: str(n["name"]))]


def _raw_model(node: Mapping[str, Any], project_dir: Path) -> RawModel:
    name, meta = str(node["name"]), node["config"]["meta"]
    entry = parse_entry(meta["landing"])
    root = (project_dir / root_of(name, meta, entry)).resolve()
    return RawModel(name, (node["schema"], node["alias"]), root, entry, meta.get("kafka"))


def switched_off(manifest: Mapping[str, Any]) -> list[str]:
    """Return the folders of the disabled models that have a landing entry."""
    disabled = [node for nodes in manifest.get("disabled", {}).values() for node in nodes]
    return sorted({str(node["fqn"][-2]) for node in disabled if has_entry(node)})


def has_entry(node: Mapping[str, Any]) -> bool:
    """Return whether a node of dbt's manifest is a model with a landing entry."""
    return node["resource_type"] == "model" and bool(
        (node["config"].get("meta") or {}).get("landing")
    )


def published(catalog: Catalog, table: tuple[str, str]) -> Table | None:
    """Return a raw table, by schema and name; None if no run has published it yet."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        found = catalog.load_table(table)
    except NoSuchTableError:
        return None
    return None if found.current_snapshot() is None else found


def known_files(
    lake: LakePlace, models: Sequence[RawModel], names: Collection[str] | None = None
) -> dict[tuple[str, str], dict[str, str]]:
    """Return name to SHA-256 of the files in each published raw table.

    Tables of different landing folders may have files of one name.

    Args:
        names: the files to look for; None for all.
    """
    catalog = lake.open() if models else None
    if catalog is None:
        return {}
    return {
        model.table: dict(_files_of(table, names))
        for model in models
        if (table := published(catalog, model.table)) is not None
    }


def unread(
    lake: LakePlace, manifest: Mapping[str, Any], project_dir: Path, target_path: Path
) -> dict[tuple[str, str], int]:
    """Return the number of unread landing files, or messages, of each raw model, by its table.

    Args:
        target_path: The folder with the indexes of the landing files.

    Raises:
        LandingError: An entry is invalid.
    """
    models = raw_models(manifest, project_dir)
    of_files = [model for model in models if not model.entry.topic]
    known = known_files(lake, of_files)
    found = {}
    for model in models:
        try:
            if model.entry.topic:
                found[model.table] = unread_messages(lake, model)
            else:
                found[model.table] = len(unread_files(model, known, target_path))
        except LandingError:
            # Its build shows the fault.
            found[model.table] = 1
    return found


def unread_files(
    model: RawModel,
    known: Mapping[tuple[str, str], Mapping[str, str]],
    target_path: Path,
    listing_id: str = "",
) -> dict[LandingFile, Stamp]:
    """Return the files of a raw model that its table does not have, with their stamps.

    Args:
        known: the files that were read; see `known_files`.
        listing_id: the id of this listing, for the builds that use it.
    """
    index = Index.of_model(target_path, model.name, model.root, model.entry.path)
    files = list_files(model.root, model.entry, index, listing_id)
    return {
        file: index.rows[file.name].stamp for file in pending(files, known.get(model.table, {}))
    }


def unread_messages(lake: LakePlace, model: RawModel) -> int:
    """Return the number of messages of a raw model's topic that its table does not have.

    Messages that Kafka has deleted, or that mark the end of a transaction, count too.
    """
    settings = kafka.connection(model.name, {"kafka": model.kafka})
    state = kafka.state(settings, model.entry.topic)
    at = position(lake, model)
    return sum(one.next - one.first for one in topic.unread_ranges(model.entry, at, state))


def position(lake: LakePlace, model: RawModel) -> topic.Known:
    """Return the position of a published raw table in its topic."""
    known = known_files(lake, [model]).get(model.table, {})
    return topic.known_of(known, model.entry.topic)


def unread_topics(lake: LakePlace, models: Sequence[RawModel]) -> tuple[dict[str, int], list[str]]:
    """Return raw model to number of unread messages, without zeros, and the faults of others.

    Args:
        models: the raw models; those of files are left out.
    """
    found: dict[str, int] = {}
    faults = []
    for model in models:
        try:
            count = unread_messages(lake, model) if model.entry.topic else 0
        except LandingError as error:
            faults.append(str(error))
            continue
        if count:
            found[model.name] = count
    return found, faults


def _files_of(table: Table, names: Collection[str] | None) -> Iterator[tuple[str, str]]:
    condition = "_kind = 'file'" if names is None else _rows_of("file", names)
    rows = table.scan(condition, selected_fields=("_file_path", "_file_sha256")).to_arrow()
    for row in rows.to_pylist():
        yield row["_file_path"], row["_file_sha256"] or ""


def _rows_of(kind: str, files: Collection[str]) -> Any:
    """Return PyIceberg's condition for the rows of one ``_kind`` from some files."""
    from pyiceberg import expressions

    ex: Any = expressions  # the types of its classes allow named arguments only
    return ex.And(ex.EqualTo("_kind", kind), ex.In("_file_path", files))


@dataclass(frozen=True, order=True)
class BadRow:
    """A row in quarantine: its place in the file, the reason, and its text."""

    file: str
    line: int
    reason: str
    text: str


def bad_rows(lake: LakePlace, model: RawModel) -> list[BadRow]:
    """Return the published bad rows of a raw model that no replay has accepted."""
    catalog = lake.open()
    table = published(catalog, model.table) if catalog is not None else None
    return [] if table is None else open_rows(table)


def open_rows(table: Table) -> list[BadRow]:
    """Return the bad rows of a published raw table that no replay has accepted."""
    place = ("_file_path", "_row", "_batch")
    bad = table.scan("_kind = 'bad'", selected_fields=(*place, "_error", "_raw")).to_arrow()
    rows = bad.to_pylist()
    if not rows:
        return []
    files = {row["_file_path"] for row in rows}
    good = table.scan(_rows_of("row", files), selected_fields=place).to_arrow()
    last: dict[tuple[str, int], tuple[int, BadRow | None]] = {}
    for row in [*rows, *good.to_pylist()]:
        at, found = (row["_file_path"], row["_row"]), None
        if "_error" in row:
            found = BadRow(*at, row["_error"], row["_raw"] or "")
        elif at not in last:
            continue  # it was never bad
        if at not in last or last[at][0] < row["_batch"]:
            last[at] = row["_batch"], found
    return [found for _, found in last.values() if found is not None]
