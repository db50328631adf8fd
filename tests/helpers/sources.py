"""A project that reads a source which other programs write to."""

from __future__ import annotations

import pyarrow as pa

from helpers.lake import Reader
from helpers.project import MakeProject, Project


def project_with_source(
    make_project: MakeProject, reader: Reader, name: str, files: dict[str, str], schema: str
) -> Project:
    """Make a project whose source table ``raw`` has one row.

    Args:
        make_project: Makes it.
        reader: Writes to the source.
        name: The project's name.
        files: Its files.
        schema: The text of its ``models/schema.yml``, with ``{schema}``.
    """
    made = make_project(name, files)
    made.write({"models/schema.yml": schema.format(schema=made.schema)})
    reader.catalog.create_namespace_if_not_exists(made.schema)
    append(reader, made, 1)
    return made


def append(reader: Reader, project: Project, number: int) -> None:
    """Append a row to the source table ``raw``, past the gate."""
    rows = pa.table({"id": pa.array([number], pa.int64())})
    name = (project.schema, "raw")
    reader.catalog.create_table_if_not_exists(name, rows.schema).append(rows)
