"""dbt snapshots: keys that look the same when they are joined are told apart, NULL from empty."""

from __future__ import annotations

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject

# Joined by a bar, the first two are one key, and so are the next two.
SQL = """
    select a, b, {{ env_var('V') }} as amount, timestamp '2024-01-0{{ env_var('V') }}' as changed_at
    from values ('a|', 'b'), ('a', '|b'), ('c|', ''), ('c', '|'), ('', 'null') as t (a, b)
"""
HASHES = """
    select {{ snapshot_hash_arguments(['a', 'b']) }} as hash
    from values ('a|', 'b'), ('a', '|b'), ('a', null), ('a', ''), (null, 'a'), ('', 'a'),
        (null, null), ('', ''), ('null', null), (null, 'null') as t (a, b)
"""
SNAPSHOT = """
    {% snapshot history %}
    {{ config(strategy='timestamp', unique_key=['a', 'b'], updated_at='changed_at') }}
    select * from {{ ref('pairs') }}
    {% endsnapshot %}
"""


def test_keys_that_look_alike(make_project: MakeProject, reader: Reader) -> None:
    files = {
        "models/pairs.sql": SQL,
        "models/hashes.sql": "{{ config(materialized='table') }}" + HASHES,
        "snapshots/history.sql": SNAPSHOT,
    }
    project = make_project("hash", files, output={"poll_interval": 1})
    with pytest.MonkeyPatch.context() as patch:
        for version in "12":
            patch.setenv("V", version)
            project.dbt("build").succeeded()
    assert len(set(reader.table(project.schema, "hashes").values("hash"))) == 10
    rows = reader.table(project.schema, "history").rows
    assert len({row["dbt_scd_id"] for row in rows}) == 10
    found = sorted((r["a"], r["b"], r["amount"], r["dbt_valid_to"] is None) for r in rows)
    keys = [("", "null"), ("a", "|b"), ("a|", "b"), ("c", "|"), ("c|", "")]
    assert found == [(*key, v, v == 2) for key in keys for v in (1, 2)]
