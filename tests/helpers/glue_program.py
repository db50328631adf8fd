"""Moto's services with a Glue that behaves as AWS documents it: the program of `helpers.glue`.

Moto keeps entries as Glue does, but leaves out what this project relies on:

- ``UpdateTable`` with a ``VersionId`` that is not the present one fails
  (``ConcurrentModificationException``). Moto ignores it.
- With ``SkipArchive``, the former version is not kept. Moto keeps all.
- Names are folded to lower case, where they are stored and where they are asked for.
- ``GetTables`` and ``GetDatabases`` answer with pages of at most 100. Moto has no pages.
- A column's comment has at most 255 characters, and no line breaks.

Requests are served by threads, so those of Glue are carried out one after the other.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The folder of this file is the first place of modules, and some have names of packages.
    sys.path[0] = str(Path(__file__).parents[1])

from helpers.s3 import serve

Action = Callable[[Any], Any]

_PAGE = 100
_COMMENT = 255


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
