"""Generates the text of a new source table's files: models, snapshot and YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from sparkwap.cdc.event_sql import quote
from sparkwap.core.errors import ConfigError
from sparkwap.core.spark_types import decimal_digits, wider
from sparkwap.landing import parse_entry
from sparkwap.landing.guessing import Guess

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_RAW = """\
from sparkwap import landing


def model(dbt, session):
    dbt.config(materialized="incremental")
    return landing.model(dbt, session)
"""
_STATE = """\
from sparkwap import cdc


def model(dbt, session):
    dbt.config(materialized="incremental")
    return cdc.model(dbt, session, dbt.ref("raw_{name}"))
"""
_STAGING = """\
with latest as (

    select * from {{{{ ref('cdc_{name}') }}}}
    where not {deleted}

),

final as (

    select
{columns},
        {{{{ added_columns('raw_{name}') }}}},

        row_hash,
        cast(_load_date as timestamp) as loaded_at,
        {{{{ landed_up_to(ref('raw_{name}')) }}}} as as_of
    from latest

)

select * from final
"""
_HISTORY = """\
{{{{ config(materialized='scd2', unique_key={key}) }}}}

{{{{ change_events(ref('raw_{name}'), columns={{
{columns}
}}) }}}}
"""
_DELETED = "_is_deleted"
_MAX_DROP = {"arguments": {"max_drop": 0.2}}


def files(source: str, entity: str, found: Guess, history: bool = False) -> dict[str, str]:
    """Return the files of a new source table: path in the project to text.

    Raises:
        ConfigError: the source or the entity is not a legal name.
    """
    for option, given in (("source", source), ("entity", entity)):
        if not _NAME.fullmatch(given):
            raise ConfigError(
                f"--{option} is '{given}'. Nothing was written. Legal: a lower-case letter, then "
                "lower-case letters, digits and underscores."
            )
    parse_entry(found.entry)
    name = f"{source}__{entity}"
    key, columns = found.entry["key"], found.entry["columns"]
    extract = found.entry["kind"] == "extract"
    wanted = {
        f"models/raw/{source}/raw_{name}.py": _RAW,
        f"models/raw/{source}/_{name}__models.yml": _yaml([_raw_yaml(name, found.entry)]),
        f"models/quarantine/{source}/quarantine_{name}.sql": (
            f"{{{{ quarantine(ref('raw_{name}')) }}}}\n"
        ),
        f"models/quarantine/{source}/_{name}__models.yml": _yaml([_quarantine_yaml(name)]),
        f"models/staging/{source}/cdc_{name}.py": _STATE.format(name=name),
        f"models/staging/{source}/stg_{name}.sql": _STAGING.format(
            name=name,
            columns=",\n".join(f"        {_cast(name, *column)}" for column in columns.items()),
            deleted=_DELETED,
        ),
        f"models/staging/{source}/_{name}__models.yml": _yaml(
            [_state_yaml(name, key), _staging_yaml(name, key, extract)]
        ),
    }
    if history and extract:
        wanted[f"snapshots/{source}/snp_{name}.yml"] = _yaml(
            [_snapshot_yaml(name, key)], "snapshots"
        )
    elif history:
        plain = [_plain(k) for k in key]
        wanted[f"models/history/{source}/hst_{name}.sql"] = _HISTORY.format(
            name=name, key=plain, columns=_events(columns)
        )
        wanted[f"models/history/{source}/_{name}__models.yml"] = _yaml([_history_yaml(name, plain)])
    return wanted


def _events(columns: Mapping[str, str]) -> str:
    sql = {name: f"`{name}`".replace("'", "\\'") for name in columns}
    return "\n".join(
        f"    '{_plain(name)}': '{sql[name]}'," if kind == "string"
        else f"    '{_plain(name)}': 'cast({sql[name]} as {kind})',"
        for name, kind in columns.items()
    )  # fmt: skip


def _cast(name: str, column: str, kind: str) -> str:
    """Return the SQL of a staging column from the `cdc_` table; texts need no cast."""
    plain, quoted = _plain(column), column if _PLAIN.fullmatch(column) else quote(column)
    if kind == "string":
        return quoted if quoted == plain else f"{quoted} as {plain}"
    if decimal_digits(kind) or wider(kind):
        renamed = "" if plain == column else f", '{plain}'"
        cast = f"exact_cast({column!r}, '{kind}', ref('cdc_{name}'){renamed})"
        return f"{{{{ {cast} }}}} as {plain}"
    return f"cast({quoted} as {kind}) as {plain}"


def _plain(name: str) -> str:
    """Return a column's name in staging: ``GICS Sector`` -> ``gics_sector``."""
    if _PLAIN.fullmatch(name):
        return name
    plain = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_")
    return plain if _PLAIN.fullmatch(plain) else f"column_{plain}"


def _raw_yaml(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": f"raw_{name}",
        "description": f"Append-only change log of {name.replace('__', ' ')}, and the list of its "
        "landing files.",
        "config": {"meta": {"landing": dict(entry)}},
        "data_tests": ["quarantine_below", "files_add_up", {"full_load_drop": _MAX_DROP}],
    }


def _quarantine_yaml(name: str) -> dict[str, Any]:
    refs = {"raw": f"ref('raw_{name}')", "state": f"ref('cdc_{name}')"}
    return {
        "name": f"quarantine_{name}",
        "description": "Bad rows of the landing files, with the reason.",
        "data_tests": [{"rows_add_up": {"arguments": refs}}],
    }


def _state_yaml(name: str, key: list[str]) -> dict[str, Any]:
    return {
        "name": f"cdc_{name}",
        "description": "The latest state of each key, as text, including deleted keys.",
        "config": {"unique_key": key},
    }


def _staging_yaml(name: str, key: list[str], extract: bool) -> dict[str, Any]:
    drop: list[Any] = [{"row_count_drop": _MAX_DROP}] if extract else []
    tests = ["not_null", "unique"] if len(key) == 1 else ["not_null"]
    return {
        "name": f"stg_{name}",
        "description": f"Typed rows, one for each {' and '.join(map(_plain, key))}.",
        "data_tests": ["not_empty", *drop],
        "columns": [{"name": _plain(k), "data_tests": tests} for k in key],
    }


def _snapshot_yaml(name: str, key: list[str]) -> dict[str, Any]:
    plain = [_plain(k) for k in key]
    by_key = {"arguments": {"key": plain}}
    return {
        "name": f"snp_{name}",
        "description": "History by load date; a delete closes a version and adds no row.",
        "relation": f"ref('stg_{name}')",
        "config": {
            "unique_key": plain[0] if len(plain) == 1 else plain,
            "strategy": "check",
            "check_cols": ["row_hash"],
            "updated_at": "loaded_at",
            "hard_deletes": "invalidate",
            "hard_deletes_at": "max(as_of)",
        },
        "data_tests": [
            "not_empty", {"scd2_one_current": by_key}, {"scd2_no_overlap": by_key}, "scd2_in_order",
        ],
    }  # fmt: skip


def _history_yaml(name: str, key: list[str]) -> dict[str, Any]:
    times = {"valid_from": "valid_from", "valid_to": "valid_to"}
    current = {"key": key, "valid_to": "valid_to"}
    return {
        "name": f"hst_{name}",
        "description": f"Every version of each {' and '.join(key)}.",
        "data_tests": [
            "not_empty",
            {"scd2_one_current": {"arguments": current}},
            {"scd2_no_overlap": {"arguments": {"key": key, **times}}},
            {"scd2_in_order": {"arguments": times}},
        ],
    }


class _Plain(yaml.SafeDumper):
    """YAML without anchors, with lists indented like in dbt's documentation."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _yaml(models: list[dict[str, Any]], what: str = "models") -> str:
    return yaml.dump({what: models}, Dumper=_Plain, sort_keys=False, allow_unicode=True,
                     width=100)  # fmt: skip
