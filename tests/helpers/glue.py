"""A Glue data catalog and an S3 store on loopback, in a process of a test's own: moto.

Moto keeps entries as Glue does, but leaves out what this project relies on. The server here adds
what AWS documents:

- ``UpdateTable`` with a ``VersionId`` that is not the present one fails
  (``ConcurrentModificationException``). Moto ignores it.
- With ``SkipArchive``, the former version is not kept. Moto keeps all.
- Names are folded to lower case, where they are stored and where they are asked for.
- ``GetTables`` and ``GetDatabases`` answer with pages of at most 100. Moto has no pages.
- A column's comment has at most 255 characters, and no line breaks.

Requests are served by threads, so those of Glue are carried out one after the other.
`running_glue_server` starts Spark on such a catalog.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The folder of this file is the first place of modules, and some have names of packages.
    sys.path[0] = str(Path(__file__).parents[1])

from helpers.cluster import LOCK
from helpers.maven import java_or_skip, kept_jars, pinned_jars
from helpers.s3 import KEY, REGION, SECRET, Faults, Store, running_s3, serve
from helpers.spark_server import SPARK_HOME, SparkServer
from sparkwap.server import jars
from sparkwap.server.java import find

Action = Callable[[Any], Any]

_PAGE = 100
_COMMENT = 255


@dataclass(frozen=True)
class GlueServer:
    """A running server without databases, and its store.

    Attributes:
        store: the S3 store, in the same process.
    """

    store: Store

    @property
    def endpoint(self) -> str:
        """The address of both services."""
        return self.store.endpoint

    @property
    def warehouse(self) -> str:
        """A location in the store."""
        return self.store.warehouse

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        return {
            "type": "glue",
            "glue.endpoint": self.endpoint,
            "glue.region": REGION,
            "glue.access-key-id": KEY,
            "glue.secret-access-key": SECRET,
            "warehouse": self.warehouse,
            **self.store.properties,
        }

    @property
    def spark_catalog(self) -> dict[str, str]:
        """Spark's settings of the catalog, without the prefix.

        Iceberg has no property for Glue's keys: they come from the environment of Spark.
        """
        return {
            "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "warehouse": self.warehouse,
            "glue.endpoint": self.endpoint,
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": "true",
            "client.region": REGION,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The credentials, for the environment of Spark."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}

    def faults(self, faults: Faults) -> None:
        """Change what the server does to requests from now on."""
        self.store.faults(faults)

    def requests(self) -> dict[str, int]:
        """Return the number of requests since the last call, by action, such as ``GetTables``."""
        return self.store.requests()


@contextmanager
def running_glue() -> Iterator[GlueServer]:
    """Start a server; its entries and objects are gone when it ends."""
    with running_s3(__file__) as store:
        yield GlueServer(store)


@dataclass(kw_only=True)
class GlueSparkServer(SparkServer):
    """A Thrift server with Spark Connect whose catalog is Glue.

    Attributes:
        glue: the data catalog and the store.
    """

    glue: GlueServer

    @property
    def catalog(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        return self.glue.properties

    @property
    def spark_catalog(self) -> dict[str, str]:
        """Spark's settings of the catalog, without the prefix."""
        return self.glue.spark_catalog

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark."""
        unwanted = ("spark.sql.catalog.lake.type", "spark.sql.catalog.lake.jdbc.schema-version")
        return {key: value for key, value in super().settings.items() if key not in unwanted}


@contextmanager
def running_glue_server(folder: Path) -> Iterator[GlueSparkServer]:
    """Start Spark and its catalog. Skips where jars or Java cannot be had.

    Args:
        folder: the files of Spark.
    """
    java_or_skip("Spark")
    java = find()
    # A session's private catalog is in SQLite.
    own = jars.provide((jars.ICEBERG, jars.SQLITE), kept_jars(), java, SPARK_HOME, {}, print)
    bundle = pinned_jars(LOCK, "cluster", java.path)
    with running_glue() as glue:
        server = GlueSparkServer(
            folder=folder,
            java=java,
            jars=[*own, *bundle],
            environment=glue.environment,
            glue=glue,
        )
        server.prepare()
        try:
            server.start_server()
            yield server
        finally:
            server.stop()


# The server of the catalog


def _amend() -> None:
    """Change moto's Glue, as the text at the top of this file says."""
    from moto.glue.responses import GlueResponse

    lock = threading.Lock()
    for noun in ("table", "tables", "database", "databases"):
        for verb in ("create", "get", "update", "delete"):
            name = f"{verb}_{noun}"
            if action := getattr(GlueResponse, name, None):
                amended = {"update_table": _checked, "get_tables": _paged, "get_databases": _paged}
                setattr(GlueResponse, name, _alone(lock, amended.get(name, _same)(action)))


def _same(action: Action) -> Action:
    return action


def _alone(lock: threading.Lock, action: Action) -> Action:
    """Carry out one action at a time, with names in lower case."""
    from moto.glue.exceptions import InvalidInputException

    def served(response: Any) -> Any:
        asked = response.parameters
        for part in (asked, asked.get("TableInput", {}), asked.get("DatabaseInput", {})):
            for name in {"Name", "DatabaseName"} & part.keys():
                part[name] = part[name].lower()
        for column in (asked.get("TableInput", {}).get("StorageDescriptor") or {}).get(
            "Columns", ()
        ):
            comment = column.get("Comment") or ""
            if len(comment) > _COMMENT or "\n" in comment:
                raise InvalidInputException("", f"the comment of {column['Name']}")
        response.body = json.dumps(asked)
        with lock:
            return action(response)

    return served


def _checked(update: Action) -> Action:
    """Update a table only if it has the version that the request names."""
    from moto.core.exceptions import JsonRESTError

    def served(response: Any) -> Any:
        asked = response.parameters
        table = response.glue_backend.get_table(asked["DatabaseName"], asked["TableInput"]["Name"])
        if asked.get("VersionId") not in (None, table.as_dict()["VersionId"]):
            raise JsonRESTError(
                "ConcurrentModificationException", "Update table failed due to concurrent changes."
            )
        answer = update(response)
        if asked.get("SkipArchive"):
            newest = list(table.versions)[-1]
            table.versions = {newest: table.versions[newest]}
        return answer

    return served


def _paged(get: Action) -> Action:
    """Answer with a page of a list."""

    def served(response: Any) -> Any:
        asked = response.parameters
        size, begin = int(asked.get("MaxResults") or _PAGE), int(asked.get("NextToken") or 0)
        answer = get(response)
        [(key, found)] = answer.result.items()
        more = {"NextToken": str(begin + size)} if begin + size < len(found) else {}
        return type(answer)({key: found[begin : begin + size], **more})

    return served


if __name__ == "__main__":
    _amend()
    serve(int(sys.argv[1]))
