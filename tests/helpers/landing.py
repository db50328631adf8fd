"""A project of raw models, quarantine models and states, made from landing entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project

RAW = """
from sparkwap import landing


def model(dbt, session):
    dbt.config(materialized="incremental")
    return landing.model(dbt, session)
"""
STATE = """
from sparkwap import cdc


def model(dbt, session):
    dbt.config(materialized="incremental")
    return cdc.model(dbt, session, dbt.ref("raw_{name}"))
"""


@dataclass
class LandingProject:
    """Raw models by name, each with its landing entry, over one landing folder.

    Attributes:
        bare: the names of those that have no quarantine model.
        broker: the address of the broker of their topics.
        kafka: more settings of the connection to it.
    """

    project: Project
    reader: Reader
    entries: dict[str, dict[str, Any]]
    bare: frozenset[str] = frozenset()
    broker: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict)

    @property
    def landing(self) -> Path:
        return self.project.folder / "landing"

    def deliver(self, name: str, content: str | bytes) -> Path:
        path = self.landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def write(self) -> None:
        """Write the models and their YAML."""
        files = {}
        for name in self.entries:
            files[f"models/raw_{name}.py"] = RAW
            files[f"models/cdc_{name}.py"] = STATE.format(name=name)
            if name not in self.bare:
                files[f"models/quarantine_{name}.sql"] = f"{{{{ quarantine(ref('raw_{name}')) }}}}"
        files["models/models.yml"] = json.dumps({"models": list(self._properties())})
        self.project.write(files)

    def _properties(self) -> Any:
        layout = {
            "incremental_strategy": "append",
            "on_schema_change": "append_new_columns",
            "partition_by": ["_kind", "_load_date"],
        }
        for name, entry in self.entries.items():
            drop = {
                "root": str(self.landing),
                "replay": "{{ var('landing_replay', '') | string | as_text }}",
            }
            meta = {"landing": entry, "drop": drop}
            if "topic" in entry:
                meta["kafka"] = {"bootstrap.servers": self.broker, **self.kafka}
            yield {
                "name": f"raw_{name}",
                "config": {**layout, "meta": meta},
                "data_tests": ["quarantine_below", "files_add_up"],
            }
            merged = {"incremental_strategy": "merge", "unique_key": entry["key"]}
            yield {
                "name": f"cdc_{name}",
                "config": {**merged, "on_schema_change": "append_new_columns"},
            }
            if name in self.bare:
                continue
            state = {"raw": f"ref('raw_{name}')", "state": f"ref('cdc_{name}')"}
            yield {
                "name": f"quarantine_{name}",
                "config": {"materialized": "table"},
                "data_tests": [{"rows_add_up": {"arguments": state}}],
            }

    def build(self, *arguments: str, **variables: Any) -> Outcome:
        self.write()
        return self.project.dbt("build", *arguments, **variables)

    def rows(self, name: str, kind: str | None = None) -> list[dict[str, Any]]:
        """What a reader of main sees of a table; of a log only the rows of a kind, in order."""
        found = list(self.reader.table(self.project.schema, name).rows)
        if kind is None:
            return found
        chosen = [row for row in found if row["_kind"] == kind]
        return sorted(chosen, key=lambda r: (r["_batch"], r["_file_path"], r["_row"], r["_part"]))


def make_landing_project(
    make_project: MakeProject,
    reader: Reader,
    name: str,
    entries: Mapping[str, dict[str, Any]],
    bare: Iterable[str] = (),
    broker: str = "",
) -> LandingProject:
    """A project with these entries, by the names of their models."""
    project = make_project(name, {})
    return LandingProject(project, reader, dict(entries), frozenset(bare), broker)
