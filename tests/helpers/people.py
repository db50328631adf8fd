"""Three people: a lake with them, made without Spark, and a project that builds them."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from helpers.s3 import BUCKET, Store
from sparkwap.publish.lake import Lake

PEOPLE = pa.table(
    {
        "customer_id": pa.array([41, 42, 43], pa.int64()),
        "email": ["bo@mail.example", "anna.berg@mail.example", "cleo@mail.example"],
        "city": ["Oslo", "Oslo", "Bergen"],
    }
)


ANNA = "anna.berg@mail.example"
FORMER = "anna.former@mail.example"
BO = "bo.lund@mail.example"

SHOP = {
    "models/raw_shop__customers.sql": """
        {{ config(materialized='table') }}
        select cast(null as string) as customer_id, cast(null as string) as email,
            'one.csv' as _file_path, cast(null as bigint) as _row, 'file' as _kind,
            cast(null as string) as _raw, cast(5 as bigint) as _file_rows
        union all
        select id, email, 'one.csv', row, kind, raw, null
        from values
            ('41', 'bo.lund@mail.example', 1, 'row', null),
            ('42', 'anna.berg@mail.example', 2, 'row', null),
            ('43', 'cleo@mail.example', 3, 'row', null),
            (null, null, 4, 'bad', '42;anna.berg@mail'),
            (null, null, 5, 'bad', '43;cleo;;;')
            as rows(id, email, row, kind, raw)
    """,
    "models/quarantine_shop__customers.sql": """
        {{ config(materialized='table') }}
        select _file_path as file_path, _row as line, 'wrong' as reason, _raw as raw_text
        from {{ ref('raw_shop__customers') }} where _kind = 'bad'
    """,
    "models/stg_shop__customers.sql": """
        {{ config(materialized='table', partition_by='city') }}
        select cast(customer_id as bigint) as customer_id,
            {% if env_var('ERASURE_V', '1') == '1' %}
            replace(email, 'anna.berg', 'anna.former') as email,
            {% else %}
            email,
            {% endif %}
            if(customer_id = '43', 'Bergen', 'Oslo') as city
        from {{ ref('raw_shop__customers') }} where _kind = 'row'
    """,
    "snapshots/snp_shop__customers.yml": """
        snapshots:
          - name: snp_shop__customers
            relation: ref('stg_shop__customers')
            config: {unique_key: customer_id, strategy: check, check_cols: all}
            columns:
              - {name: customer_id, config: {meta: {subject: customer}}}
              - {name: email, config: {meta: {personal: customer}}}
    """,
    "models/fct_visits.sql": """
        {{ config(materialized='table') }}
        select customer_id, count(email) as visits from {{ ref('stg_shop__customers') }}
        group by customer_id
    """,
    "models/totals.sql": """
        {{ config(materialized='table') }}
        select count(customer_id) as customers, 42 as amount
        from {{ ref('stg_shop__customers') }}
    """,
    "models/properties.yml": """
        models:
          - name: raw_shop__customers
            columns:
              - {name: customer_id, config: {meta: {subject: customer}}}
              - {name: email, config: {meta: {personal: customer}}}
          - name: stg_shop__customers
            columns:
              - name: customer_id
                config: {meta: {subject: customer}}
                data_tests: [not_null]
              - name: email
                config: {meta: {personal: customer}}
                data_tests:
                  - unique:
                      config: {store_failures: true}
                  - accepted_values:
                      arguments: {values: ['cleo@mail.example']}
                      config: {store_failures: true, severity: warn}
              - {name: city, config: {meta: {personal: customer}}}
          - name: fct_visits
            columns:
              - {name: customer_id, config: {meta: {subject: customer, on_erase: clear}}}
    """,
}


@contextmanager
def lake_of_people(folder: Path) -> Iterator[Lake]:
    """A lake; table ``s.people`` has one data file, with the subject 42 in the middle."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"{folder}/warehouse",
    }
    lake = Lake("lake", properties)
    lake.ensure_schema("s")
    people(lake.catalog, "people")
    yield lake
    lake.close()


def people(catalog: SqlCatalog, name: str, rows: pa.Table = PEOPLE) -> None:
    """Make a table of people."""
    catalog.create_table(("s", name), rows.schema).append(rows)


def files(folder: Path) -> list[str]:
    """All files of the warehouse."""
    return sorted(str(p) for p in (folder / "warehouse").rglob("*") if p.is_file())


def bytes_of(path: Path) -> bytes:
    """Return a file's content as bytes, with compressed parts decompressed."""
    data = path.read_bytes()
    if data[:3] == b"ORC":
        return repr(orc.read_table(path).to_pylist()).encode()
    if data[:4] == b"Obj\x01":
        with AvroFile[Any](PyArrowFileIO().new_input(str(path))) as records:
            return repr(list(records)).encode()
    if data[:4] == b"PAR1":
        table = pq.read_table(path, partitioning=None)
        return repr(table.to_pylist()).encode() + repr(pq.read_metadata(path).to_dict()).encode()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def holding(lake: Path, *texts: str) -> list[str]:
    """Return the files of a lake that hold one of the texts."""
    wanted = [form[:15].encode() for text in texts for form in (text, repr(text)[1:-1])]
    return [
        str(path)
        for path in sorted((lake / "warehouse").rglob("*"))
        # A manifest has the first 16 characters of the lowest and the highest text.
        if path.is_file() and any(text in bytes_of(path) for text in wanted)
    ]


@dataclass(frozen=True)
class LakeFiles:
    """The files of a lake's warehouse.

    Attributes:
        lake: The folder of the lake.
        store: The S3 store with the warehouse; None if it is in the folder.
    """

    lake: Path
    store: Store | None = None

    def paths(self) -> set[str]:
        """All files."""
        if self.store is None:
            return set(files(self.lake))
        return {f"s3://{BUCKET}/{key}" for key in self.store.object_keys()}

    def holding(self, *texts: str) -> list[str]:
        """The files that hold one of the texts."""
        if self.store is None:
            return holding(self.lake, *texts)
        with TemporaryDirectory() as folder:
            copy = self.store.download(Path(folder) / "copy")
            found = holding(copy, *texts)
        return [f"s3://{BUCKET}/{Path(one).relative_to(copy)}" for one in found]

    def write(self, path: str, rows: pa.Table) -> str:
        """Write a Parquet file; returns its location."""
        if self.store is None:
            file = self.lake / "warehouse" / path
            file.parent.mkdir(parents=True)
            pq.write_table(rows, file)
            return str(file)
        location = f"{self.store.warehouse}/{path}"
        with PyArrowFileIO(self.store.properties).new_output(location).create() as stream:
            pq.write_table(rows, stream)
        return location

    def remove(self, schema: str) -> None:
        """Delete what is left below the folder of a schema."""
        if self.store is None:
            for folder in (schema, f"{schema}.db"):  # the second is Spark's, in a metastore
                shutil.rmtree(self.lake / "warehouse" / folder, ignore_errors=True)
            return
        self.store.delete(f"warehouse/{schema}")
