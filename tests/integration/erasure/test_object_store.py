"""The search of a lake in an object store, from which files are read in parts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from helpers.people import ANNA, PEOPLE
from helpers.s3 import running_s3

from sparkwap.erasure.lake_files import LakeFiles
from sparkwap.erasure.search import Search
from sparkwap.erasure.subject_tables import SubjectTable
from sparkwap.publish.lake import Lake

NAME = ("s", "people")


def test_files_of_an_object_store_are_searched(tmp_path: Path) -> None:
    with running_s3() as store:
        uri = f"sqlite:///{tmp_path}/catalog.db"
        lake = Lake("lake", {"uri": uri, "warehouse": store.warehouse, **store.properties})
        lake.catalog.create_namespace("s")
        table = lake.catalog.create_table(NAME, PEOPLE.schema)
        table.append(PEOPLE)
        files = LakeFiles(lake)
        search = Search.of(["42"], {"email": [ANNA]}, [ANNA])
        place = SubjectTable(NAME, ("customer_id",), ("email",))
        scanner = files.scanner(search, [place], lake.states([NAME]), frozenset())
        paths = files.paths()
        (data,) = (path for path in paths if path.endswith(".parquet"))
        assert isinstance(files.read(data), pa.NativeFile)
        assert files.each(paths, scanner.collect) == {"email": {(ANNA, True)}}
        held = {file.path: file.found for file in files.scan(scanner, paths).holding}
        assert {"column customer_id", "column email"} <= set(held[data])
        # A file that another writer has deleted meanwhile holds nothing.
        lake.store.files.delete(data)
        assert data not in {file.path for file in files.scan(scanner, paths).files}
        lake.close()
